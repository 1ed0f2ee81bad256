"""tokenizer: merges, a pattern and special tokens, or a file -> a vocabulary with fixed ids.

| in reading order | contents |
|---|---|
| `vocabulary.py` | `Vocabulary`: tokens with their ids, and the merges that create them, in any layout |
| `parts.py` | `TokenizerParts`: a vocabulary, a pattern and a tie-break; their fingerprint |
| `extending.py` | learning merges from a corpus, after those of a tokenizer |
| `vocabulary_methods.py` | the methods of `Tokenizer` that need no text: its parts, files, other vocabulary sizes |
| `pretrained.py` | a tokenizer from a folder, or by name from the Hugging Face Hub |
| `formats/` | the file formats, one module each, and their registry `FORMATS` |

`Tokenizer` is in `gristmill.encode.tokenizer`, because it combines this stage and the next one.
"""

from gristmill.tokenizer.extending import learn
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary, extended, plain_merges

__all__ = ["TokenizerParts", "Vocabulary", "extended", "learn", "plain_merges"]
