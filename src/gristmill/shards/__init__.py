"""shards: token files with a manifest, and what reads and checks them.

| in reading order | holds |
|---|---|
| `options.py` | `EncodeOptions`: what decides the bytes that are written |
| `run.py` | `encode_corpus`: the story of a run, from top to bottom |
| `plan.py`, `end_of_text.py`, `inputs.py` | its arguments, checked; what is recorded |
| `request.py`, `tokenizer_changes.py` | how what was recorded and what is asked for now differ |
| `jobs.py` | the pipeline: batches of documents -> ids by splits, on threads |
| `output.py`, `writer.py`, `disk.py` | ids of all splits -> parts -> shards; files in which every error is named |
| `checkpoints.py`, `state.py`, `journal.py` | saving where a run stands: its position, the shards that are published |
| `distributed.py` | the same in parts, by the tasks of an executor: the story of such a run |
| `steps.py` | the same in steps that the caller runs: plan, tasks, finish |
| `encode_job.py`, `tasks.py` | what a worker knows of a run; its two tasks: encode a part, assemble a shard |
| `part_files.py`, `assembly.py` | the files of encoded parts; which stretches of them are which shard |
| `meter.py` | showing where a run stands |
| `folder.py`, `place.py`, `names.py` | what may be in the folder already, resuming, what a failure leaves |
| `remote_output.py` | the same for a folder at a URL, which executors write to |
| `exchange.py` | how new shards take the place of finished ones |
| `layouts/` | the formats of token files, one module each, and their registry `LAYOUTS` |
| `manifest.py` | manifest.json: what a folder holds, with a checksum of every file |
| `schema.py` | the shape of manifest.json and of the files of an unfinished run, checked |
| `shards.py`, `tokens.py`, `document_ends.py` | `Shards`: documents and tokens of a folder, by memory map |
| `foreign.py`, `explain.py` | folders of other programs, without a manifest; what is no folder of shards at all |
| `edition.py`, `maps.py` | how a reader notices that its shards were replaced; memory maps |
| `verify.py`, `verify_files.py` | `verify_shards`: whether a folder is what its manifest says, byte for byte |
"""

from gristmill.shards.layouts import LAYOUTS
from gristmill.shards.manifest import Manifest
from gristmill.shards.options import EncodeOptions
from gristmill.shards.run import EncodeRun, encode_corpus
from gristmill.shards.shards import Shards
from gristmill.shards.tokens import Tokens
from gristmill.shards.verify import Problem, Report, verify_shards

__all__ = [
    "LAYOUTS",
    "EncodeOptions",
    "EncodeRun",
    "Manifest",
    "Problem",
    "Report",
    "Shards",
    "Tokens",
    "encode_corpus",
    "verify_shards",
]
