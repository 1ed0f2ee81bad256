"""encode: text -> ids, and ids -> text.

| in reading order | holds |
|---|---|
| `tokenizer.py` | `Tokenizer`: the methods of the tokenizer stage, of encoding and of decoding in one class |
| `encoder.py` | `Encoder`: what turns text into ids; the core's, or the one below |
| `regex_encoder.py` | the encoder of patterns without a native matcher |
| `special_rules.py` | which special tokens may stand in a text |
| `encode_methods.py`, `chunks.py`, `offsets.py`, `dropout.py` | text -> ids: the methods; streams; offsets; dropout |
| `decode_methods.py`, `stream_decoder.py`, `ids.py` | ids -> text: the methods; streams; ids checked |
| `ragged.py` | `Ragged`: many rows of ids as two flat arrays |
"""

from gristmill.encode.offsets import Offsets
from gristmill.encode.ragged import Ragged
from gristmill.encode.stream_decoder import StreamDecoder
from gristmill.encode.tokenizer import Tokenizer, check_tokenizer

__all__ = ["Offsets", "Ragged", "StreamDecoder", "Tokenizer", "check_tokenizer"]
