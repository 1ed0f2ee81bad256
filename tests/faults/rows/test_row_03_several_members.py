"""Row 3: a compressed file of several members or frames, as `cat a.gz b.gz` makes them."""

from __future__ import annotations

import gzip

import pytest

import gristmill as gm
from faults.rows.fault import Fault
from gristmill.corpus.packages import load_zstd

FAULT = Fault(
    row=3,
    injected="Two gzip members or two zstd frames in one file",
    promise="All of them are read, including members that are empty or end inside a character",
    see_also=("tests/corpus/test_corpus_streams.py",),
)

TEXT = "один two 三 four. " * 500


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("cut", [0, 1, 4001, -1])
def test_row_03_all_members_of_a_compressed_file_are_read(tmp_path, suffix, cut):
    compress = gzip.compress if suffix == ".gz" else load_zstd().compress
    data = TEXT.encode()
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress(data[:cut]) + compress(b"") + compress(data[cut:]))
    words = gm.count_words(path)
    assert words.source_bytes == len(data)
    assert dict(words.items()) == dict(gm.count_words([TEXT]).items())
