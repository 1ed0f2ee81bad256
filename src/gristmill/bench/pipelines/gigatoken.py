"""gigatoken: `encode_files`, the ids as uint16, `tofile`.

Without `separator=` the file is one document, and its separators become their ids: the fastest form, to which only the
id after the last document is added. With `separator=` the documents are separated and the separators dropped, so their
ids are inserted between the documents; empty documents are lost.
"""

from pathlib import Path
from typing import Any

import awkward
import gigatoken
import numpy as np

from gristmill.bench.encoders import gigatoken as encoder
from gristmill.bench.encoders.vocabularies import SPECIAL, VocabularyFiles
from gristmill.bench.pipelines import Form, Task

DISTRIBUTION = encoder.DISTRIBUTION
THREADS = encoder.THREADS
SLOW = False
SYNCS = False


def build(files: VocabularyFiles, num_threads: int) -> gigatoken.Tokenizer:
    """Load the ranks; a first call does the lazy initialization, including threads."""
    tok = encoder.build(files, num_threads)
    tok.encode_batch([b""], parallel=num_threads > 1)
    return tok


def _whole_file(tok: Any, task: Task) -> list[Path]:
    result = tok.encode_files(task.path, parallel=task.num_threads > 1)
    ids = np.asarray(awkward.flatten(result, axis=1)).astype(np.uint16)
    with task.token_file.open("wb") as file:
        ids.tofile(file)
        if len(ids) and ids[-1] != task.end_of_text:
            file.write(np.uint16(task.end_of_text).tobytes())
    return [task.token_file]


def _documents(tok: Any, task: Task) -> list[Path]:
    source = gigatoken.TextFileSource([str(task.path)], separator=SPECIAL)
    result = tok.encode_files(source, parallel=task.num_threads > 1)
    ids, ends = np.asarray(awkward.flatten(result, axis=1)), np.cumsum(np.asarray(awkward.num(result, axis=1)))
    closing = ends + np.arange(len(ends))
    tokens = np.empty(len(ids) + len(ends), dtype=np.uint16)
    ordinary = np.ones(len(tokens), dtype=bool)
    ordinary[closing] = False
    tokens[closing] = task.end_of_text
    tokens[ordinary] = ids
    tokens.tofile(task.token_file)
    return [task.token_file]


FORMS = {
    "encode_files": Form("`encode_files(path)`, `astype(uint16)`, `tofile`", _whole_file),
    "separator": Form("`encode_files(TextFileSource(separator=))`, end-of-text ids put in, `tofile`", _documents),
}
