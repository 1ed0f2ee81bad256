"""shards: token files with a manifest, and what reads and checks them.

| in this order | holds |
|---|---|
| `layouts/` | the formats of token files, one module each |
| `manifest.py` | manifest.json: what a folder holds, with a checksum of every file |
| `schema.py` | the shape of manifest.json and of what an unfinished run writes down, checked |
| `encoding.py` | `encode_corpus`: readers, encoders and the writer at work at the same time |
| `plan.py`, `request.py`, `end_of_text.py`, `inputs.py` | its arguments, checked, and what is written down of them |
| `encode_batches.py` | what each thread does |
| `writer.py`, `state.py` | tokens -> parts -> shards, and how far that has come |
| `folder.py` | what may be in the folder already, resuming, replacing, what a failure leaves |
| `shards.py`, `tokens.py` | `Shards`: documents and tokens of a folder, by memory map |
| `verify.py`, `verify_files.py` | `verify_shards`: whether a folder is what its manifest says, byte for byte |
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
