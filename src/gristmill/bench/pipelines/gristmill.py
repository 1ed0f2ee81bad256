"""gristmill, through the public function: a nanoGPT file, and the default shard folder with manifest and checksums."""

from pathlib import Path
from typing import Any

from gristmill.bench.encoders import gristmill as encoder
from gristmill.bench.encoders.vocabularies import VocabularyFiles
from gristmill.bench.pipelines import Form, Task
from gristmill.encode.tokenizer import Tokenizer
from gristmill.shards.run import encode_corpus

DISTRIBUTION = encoder.DISTRIBUTION
THREADS = encoder.THREADS
SLOW = False
SYNCS = True


def build(files: VocabularyFiles, num_threads: int) -> Tokenizer:
    """Load the ranks; a first call does the lazy initialization."""
    tok = encoder.build(files, num_threads)
    tok.encode("")
    return tok


def _encode(tok: Tokenizer, task: Task, layout: str) -> Path:
    folder = task.folder / layout
    encode_corpus(str(task.path), tok, out=str(folder), format=layout, num_threads=task.num_threads, progress=None)
    return folder


def _nanogpt(tok: Any, task: Task) -> list[Path]:
    return [_encode(tok, task, "nanogpt") / "train.bin"]


def _shards(tok: Any, task: Task) -> list[Path]:
    return sorted(_encode(tok, task, "gristmill").glob("shard-*.bin"))


FORMS = {
    "nanogpt": Form('`encode_corpus(format="nanogpt")`: one file, manifest, checksums', _nanogpt),
    "shards": Form("`encode_corpus`: the default layout, with document ends", _shards),
}
