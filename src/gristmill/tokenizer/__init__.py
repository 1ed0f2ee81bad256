"""tokenizer: merges, a pattern and special tokens, or a file -> a vocabulary with ids that never change.

| in reading order | holds |
|---|---|
| `vocabulary.py` | `Vocabulary`: tokens with their ids, and the merges that make them, in any layout |
| `parts.py` | `TokenizerParts`: a vocabulary, a pattern and a tie-break; their fingerprint |
| `extending.py` | the merges that a corpus teaches after those of a tokenizer |
| `vocabulary_methods.py` | the methods of `Tokenizer` that need no text: its parts, files, other vocabulary sizes |
| `pretrained.py` | a tokenizer by its folder, or by its name on the Hugging Face Hub |
| `formats/` | the file formats, one module each, and their registry `FORMATS` |

`Tokenizer` itself is in `gristmill.encode.tokenizer`: it is this stage and the next one in one object.
"""

from gristmill.tokenizer.extending import learn
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary, extended, plain_merges

__all__ = ["TokenizerParts", "Vocabulary", "extended", "learn", "plain_merges"]
