"""encode: text -> ids, and ids -> text.

| in reading order | holds |
|---|---|
| `tokenizer.py` | `Tokenizer`: the methods of the tokenizer stage, of encoding and of decoding in one class |
| `encoder.py` | `Encoder`: what turns text into ids, as a protocol |
| `native_encoder.py` | the one of native patterns: the core's |
| `regex_encoder.py`, `regex_rule.py`, `regex_worker.py` | the one of all other patterns, and its worker processes |
| `has_encoder.py`, `special_rules.py` | a tokenizer with its encoder; which special tokens may stand in a text |
| `document_encoder.py` | `DocumentEncoder`: documents of a corpus, on many threads |
| `encode_methods.py`, `chunks.py`, `compressed.py` | text -> ids: the methods; streams; compressed files |
| `offsets.py`, `dropout.py` | offsets; dropout |
| `decode_methods.py`, `stream_decoder.py`, `ids.py` | ids -> text: the methods; streams; ids checked |
| `columns.py` | columns of pandas, polars, pyarrow, NumPy as lists; tables refused |
| `ragged.py` | `Ragged`: many rows of ids as two flat arrays |
"""

from gristmill.encode.document_encoder import DocumentEncoder
from gristmill.encode.offsets import Offsets
from gristmill.encode.ragged import Ragged
from gristmill.encode.stream_decoder import StreamDecoder
from gristmill.encode.tokenizer import AnyTokenizer, Tokenizer, as_tokenizer

__all__ = ["AnyTokenizer", "DocumentEncoder", "Offsets", "Ragged", "StreamDecoder", "Tokenizer", "as_tokenizer"]
