"""shards: token files with a manifest, and what reads and checks them.

| in this order | holds |
|---|---|
| `layouts/` | the formats of token files, one module each |
| `manifest.py` | manifest.json: what a folder holds, with a checksum of every file |
| `encoding.py` | `encode_corpus`: readers, encoders and the writer at work at the same time |
| `plan.py`, `request.py`, `end_of_text.py`, `inputs.py` | its arguments, checked, and what is written down of them |
| `encode_batches.py` | what each thread does |
| `writer.py`, `disk.py` | tokens -> parts -> shards; files in which every error is named |
| `state.py`, `journal.py` | how far that has come; the shards that are published |
| `folder.py`, `place.py`, `names.py` | what may be in the folder already, resuming, what a failure leaves |
| `exchange.py` | how new shards take the place of finished ones |
| `shards.py`, `tokens.py` | `Shards`: documents and tokens of a folder, by memory map |
| `edition.py`, `maps.py` | how a reader notices that its shards were replaced; memory maps |
| `verify.py` | `verify_shards`: whether a folder is what its manifest says |
| `input_samples.py` | a quick fingerprint of an input |
"""

from gristmill.shards.encoding import EncodeRun, encode_corpus
from gristmill.shards.layouts import LAYOUTS
from gristmill.shards.manifest import Manifest
from gristmill.shards.shards import Shards
from gristmill.shards.tokens import Tokens
from gristmill.shards.verify import Problem, Report, verify_shards

__all__ = [
    "LAYOUTS",
    "EncodeRun",
    "Manifest",
    "Problem",
    "Report",
    "Shards",
    "Tokens",
    "encode_corpus",
    "verify_shards",
]
