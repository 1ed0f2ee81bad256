"""Row 16: an input that changes while it is read."""

from __future__ import annotations

import gzip
import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gristmill as gm
from faults.rows.entry_points import TOKENIZER
from faults.rows.fault import Fault
from gristmill.corpus import sources
from gristmill.corpus.packages import load_zstd

FAULT = Fault(
    row=16,
    injected="A text, gzip, zstd, JSON lines or Parquet file that is truncated, appended to, overwritten, replaced or "
    "removed while counting, training or encoding has it open",
    promise="`InputChangedError` that names the file, and no output. Files are read and never mapped, so a truncated "
    "one is no SIGBUS",
    undetectable="A change that keeps size, inode and time of modification, in bytes that were not read yet",
    see_also=(
        "tests/count/test_count.py",
        "tests/faults/test_encode_faults.py",
        "tests/corpus/test_corpus_files.py",
        "tests/corpus/test_etags.py",
        "tests/shards/test_encode_tasks.py",
        "tests/lm/test_data_faults.py",
    ),
)

NUM_LINES = 60_000


def truncate(path: Path) -> None:
    os.truncate(path, 1000)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"b")
    os.utime(path, ns=(1, 1))


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def remove(path: Path) -> None:
    path.unlink()


CHANGES = (truncate, append, overwrite, replace, remove)
FORMATS = ("txt.gz", "txt.zst", "jsonl", "parquet")


@pytest.fixture(scope="module")
def contents(tmp_path_factory) -> dict[str, bytes]:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet  # noqa: F401 - pa.parquet

    source = random.Random(16)
    lines = [source.randbytes(30).hex() for _ in range(NUM_LINES)]
    text = "\n".join(lines).encode()
    table = tmp_path_factory.mktemp("table") / "a.parquet"
    pa.parquet.write_table(pa.table({"text": lines}), table, row_group_size=NUM_LINES // 20)
    return {
        "txt": text,
        "txt.gz": gzip.compress(text, compresslevel=1),
        "txt.zst": load_zstd().compress(text),
        "jsonl": b"".join(b'{"text": "%s"}\n' % line.encode() for line in lines),
        "parquet": table.read_bytes(),
    }


def count(path: Path, folder: Path, **options: Any) -> None:
    gm.count_words(path, num_threads=2, **options)


def train(path: Path, folder: Path, **options: Any) -> None:
    gm.train_tokenizer(path, vocab_size=300, num_threads=2, **options)


def encode(path: Path, folder: Path, **options: Any) -> None:
    gm.encode_corpus(path, TOKENIZER, out=folder / "out", num_threads=2, **options)


CALLS = (count, train, encode)


def check(call: Callable[..., None], path: Path, change: Callable[[Path], None], **options: Any) -> None:
    expected = (gm.InputChangedError, FileNotFoundError) if change is remove else gm.InputChangedError
    with pytest.raises(expected) as caught:
        call(path, path.parent, **options)
    assert str(path) in str(caught.value)
    assert not (path.parent / "out" / "manifest.json").exists()


# Counting reads a text natively; its tests, and those of encode_file, are in see_also.
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("call", "suffix"), [*itertools.product(CALLS, FORMATS), (encode, "txt")])
def test_row_16_a_file_that_changes_after_it_was_opened_is_an_error(
    tmp_path, monkeypatch, contents, call, suffix, change
):
    path = tmp_path / f"corpus.{suffix}"
    path.write_bytes(contents[suffix])
    opened = sources.LocalSource.__init__
    changes = []

    def open_and_change(source, *arguments):
        opened(source, *arguments)
        if not changes:
            changes.append(change)
            change(path)

    monkeypatch.setattr(sources.LocalSource, "__init__", open_and_change)
    check(call, path, change, progress=None)
    assert changes
