"""shards: token files with a manifest: writing, reading and checking them.

| in reading order | contents |
|---|---|
| `options.py` | `EncodeOptions`: the options that decide the bytes written |
| `run.py` | `encode_corpus`: a run from start to end |
| `plan.py`, `end_of_text.py`, `inputs.py` | checking its arguments, and what is recorded of them |
| `request.py`, `tokenizer_changes.py` | how the recorded request and the current one differ |
| `jobs.py` | the pipeline: batches of documents -> ids by split, on threads |
| `output.py`, `writer.py`, `disk.py` | ids of all splits -> parts -> shards; files whose errors name them |
| `checkpoints.py`, `state.py`, `journal.py` | checkpoints of a run: its position and the published shards |
| `distributed.py` | encoding in parts, by the tasks of an executor |
| `steps.py` | encoding in steps that the caller runs: plan, tasks, finish |
| `encode_job.py`, `tasks.py` | a run as workers see it; its two tasks: encode a part, assemble a shard |
| `part_files.py`, `assembly.py` | the files of encoded parts; which ranges of them make up which shard |
| `meter.py` | progress of a run |
| `folder.py`, `place.py`, `names.py` | the output folder: existing files, resuming, cleaning up after a failure |
| `remote_output.py` | an output folder at a URL, which executors write to |
| `exchange.py` | replacing finished shards by new ones |
| `layouts/` | the formats of token files, one module each, and their registry `LAYOUTS` |
| `manifest.py` | manifest.json: contents of a folder, with a checksum of every file |
| `schema.py` | checking the structure of manifest.json and of the files of an unfinished run |
| `shards.py`, `tokens.py`, `document_ends.py` | `Shards`: documents and tokens of a folder, by memory map |
| `folder_kind.py` | whether a folder holds shards |
| `foreign.py`, `explain.py` | folders of other programs, without a manifest; error messages for anything else |
| `edition.py`, `maps.py` | how a reader detects that its shards were replaced; memory maps |
| `verify.py`, `verify_files.py` | `verify_shards`: checks a folder against its manifest, byte for byte |
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
