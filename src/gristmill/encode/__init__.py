"""encode: text -> ids, and ids -> text.

| in reading order | contents |
|---|---|
| `tokenizer.py` | `Tokenizer`: vocabulary, encoding and decoding methods in one class |
| `encoder.py` | `Encoder`: the protocol of an object that turns text into ids |
| `native_encoder.py` | the encoder for native patterns, in the core |
| `regex_encoder.py`, `regex_rule.py`, `regex_worker.py` | the encoder for all other patterns, and its workers |
| `has_encoder.py`, `special_rules.py` | a tokenizer with its encoder; which special tokens are allowed in a text |
| `document_encoder.py` | `DocumentEncoder`: documents of a corpus, on many threads |
| `encode_methods.py`, `chunks.py`, `compressed.py` | text -> ids: methods, streams, compressed files |
| `offsets.py`, `dropout.py` | token offsets; BPE-dropout |
| `decode_methods.py`, `stream_decoder.py`, `ids.py` | ids -> text: methods, streams, checks of ids |
| `columns.py` | columns of pandas, polars, pyarrow and NumPy as lists; an error for tables |
| `ragged.py` | `Ragged`: many rows of ids as two flat arrays |
"""

from gristmill.encode.document_encoder import DocumentEncoder
from gristmill.encode.offsets import Offsets
from gristmill.encode.ragged import Ragged
from gristmill.encode.stream_decoder import StreamDecoder
from gristmill.encode.tokenizer import AnyTokenizer, Tokenizer, as_tokenizer

__all__ = ["AnyTokenizer", "DocumentEncoder", "Offsets", "Ragged", "StreamDecoder", "Tokenizer", "as_tokenizer"]
