"""Row 8: a text that is cut at every byte while it is read, counted and encoded."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import gristmill as gm
from faults.rows.fault import Fault
from gristmill import _core
from gristmill.corpus import batches, streams
from gristmill.count.regex_counting import Specials
from gristmill.encode import chunks, compressed
from gristmill.pretokenize import NATIVE_PATTERNS

FAULT = Fault(
    row=8,
    injected="A cut at every byte of a text: inside characters, CRLF, contractions, runs of spaces and line breaks, "
    "numbers, special tokens and overlapping special tokens, by blocks of threads, batches of readers, and chunks of "
    "callers",
    promise="For every native pattern, the same counts and the same ids as for the text in one piece",
    see_also=(
        "tests/corpus/test_stretches.py",
        "tests/encode/test_encode.py",
        "tests/encode/test_encode_compressed.py",
        "tests/pretokenize/test_pretokenize.py",
        "tests/properties/test_encode_properties.py",
    ),
)

SPECIALS = ["<|end|>", "<|end|><|end|>", "«é»", "  \n", "l"]
TEXT = (
    "It's  we'LL don't 'ſ naïve e\u0301 東京で 👩\u200d💻 \u3000\u2003 \r\n\r\n\n   x\r \t\t 12345678 ½٣ a.b,,c !?/\n/ "
    "<|end|><|end|><|end|>«é»« é»<|end|  \n   \n<|en".encode()
    + b"\xe6\x9d \xff\xf0\x9f\x98 HE'S\0"
    + "ABCdef ǅx ʰ\u0bbe's   ".encode()
)


def tokenizer(pattern: str) -> gm.Tokenizer:
    return gm.train_tokenizer([TEXT] * 3, vocab_size=330, pattern=pattern, special_tokens=SPECIALS, progress=None)


@pytest.fixture(scope="module", params=NATIVE_PATTERNS)
def tok(request) -> gm.Tokenizer:
    return tokenizer(request.param)


def pieces_of(text: bytes, pattern: str) -> Counter[bytes]:
    """Return the counts of the pieces of a text in one piece. Special tokens are no pieces."""
    pieces = Counter(gm.pretokenize(text, pattern=pattern, special_tokens=SPECIALS))
    for special in SPECIALS:
        del pieces[special.encode()]
    return pieces


def count_in_blocks(source: Path | bytes, pattern: str, block_bytes: int, num_threads: int) -> dict[bytes, int]:
    """Return the words of a file or text, which threads take in blocks of this size."""
    counter = _core.Counter(
        pattern=pattern,
        special_tokens=[special.encode() for special in SPECIALS],
        num_threads=num_threads,
        block_bytes=block_bytes,
    )
    if isinstance(source, Path):
        counter.add_files([source])
    else:
        counter.add_texts([source])
    table, _ = counter.finish()
    data = bytes(table.data)
    words = [data[begin:end] for begin, end in pairwise(table.offsets.tolist())]
    return dict(zip(words, table.counts.tolist(), strict=True))


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_row_08_counts_do_not_depend_on_the_blocks_of_threads(tmp_path, pattern, num_threads):
    expected = pieces_of(TEXT, pattern)
    assert sum(map(len, expected.elements())) < len(TEXT)
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT)
    for block_bytes in range(1, len(TEXT) + 1):
        source = path if block_bytes % 2 else TEXT
        assert count_in_blocks(source, pattern, block_bytes, num_threads) == expected, block_bytes


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_row_08_counts_do_not_depend_on_the_batches_of_readers(tmp_path, monkeypatch, pattern):
    expected = pieces_of(TEXT * 2, pattern)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(TEXT) * 2)
    monkeypatch.setattr(batches, "MIN_STRETCH_BYTES", 1)
    monkeypatch.setattr(streams, "CHUNK_BYTES", 5)
    for size in (1, 2, 3, *range(4, len(TEXT), 5)):
        monkeypatch.setattr(batches, "BATCH_BYTES", size)
        words = gm.count_words(path, pattern=pattern, special_tokens=SPECIALS, num_threads=1, progress=None)
        assert dict(words.items()) == expected, size


def test_row_08_ids_do_not_depend_on_the_chunks_of_the_caller(tok, monkeypatch):
    monkeypatch.setattr(chunks, "BLOCK_BYTES", 1)
    for allowed in ("all", (), {"<|end|>"}):
        whole = tok.encode(TEXT, allowed_special=allowed)
        for cut in range(len(TEXT) + 1):
            assert list(tok.encode_iterable([TEXT[:cut], TEXT[cut:]], allowed_special=allowed)) == whole, cut
        for size in (1, 2, 3, 5, 16):
            parts = [TEXT[begin : begin + size] for begin in range(0, len(TEXT), size)]
            assert list(tok.encode_iterable(parts, allowed_special=allowed)) == whole, size
    text = TEXT.decode(errors="replace")
    assert list(tok.encode_iterable(iter(text), allowed_special="all")) == tok.encode(text, allowed_special="all")


def test_row_08_ids_do_not_depend_on_the_blocks_of_a_compressed_file(tok, tmp_path, monkeypatch):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(TEXT))
    for allowed in ("all", ()):
        whole = tok.encode(TEXT, allowed_special=allowed)
        for size in (1, 2, *range(3, len(TEXT), 3)):
            monkeypatch.setattr(compressed, "BLOCK_BYTES", size)
            assert tok.encode_file(path, allowed_special=allowed, num_threads=1).tolist() == whole, size


def test_row_08_shards_do_not_depend_on_the_batches_of_readers(tok, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_bytes(TEXT * 2)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT * 2))
    monkeypatch.setattr(batches, "MIN_STRETCH_BYTES", 1)
    options = {"documents": "file", "allowed_special": "all", "end_of_text": None, "num_threads": 2, "progress": None}
    whole = tok.encode(TEXT * 2, allowed_special="all")
    for size in (1, 7, 50, 101):
        monkeypatch.setattr(batches, "BATCH_BYTES", size)
        for name in ("a.txt", "a.txt.gz"):
            run = gm.encode_corpus(tmp_path / name, tok, out=tmp_path / f"{name}-{size}", **options)
            (ids,) = run.shards()
            assert ids.tolist() == whole, (name, size)


def test_row_08_ids_do_not_depend_on_the_threads_at_full_size(tok, tmp_path):
    """The length of the text is odd, so the blocks of 256 KiB end at different bytes of it."""
    text = TEXT + b"." * (1 - len(TEXT) % 2)
    data = text * 14_000
    assert len(data) > 10 * (256 << 10)
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    whole = np.fromiter(tok.encode_iterable([data], allowed_special="all"), np.uint16)
    for num_threads in (1, 3):
        assert np.array_equal(tok.encode_file(path, allowed_special="all", num_threads=num_threads), whole)
    words = gm.count_words(path, pattern=tok.pattern, special_tokens=SPECIALS, num_threads=3, progress=None)
    assert dict(words.items()) == count_in_blocks(data, tok.pattern, 1 << 30, 1)


def test_row_08_special_tokens_of_any_pattern_are_found_across_blocks(monkeypatch):
    specials = Specials(SPECIALS)
    expected = list(specials.find_in(TEXT))
    assert len(expected) > 4
    for size in range(1, len(TEXT) + 1):
        monkeypatch.setattr("gristmill.count.regex_counting.BLOCK_BYTES", size)
        assert list(specials.find_in_file(io.BytesIO(TEXT))) == expected, size


def test_row_08_documents_of_an_iterable_are_never_joined():
    """Documents are texts of their own: a list of chunks is not a text. `encode_iterable` takes chunks."""
    words = gm.count_words(["do", "n't"], progress=None)
    assert dict(words.items()) == {b"do": 1, b"n": 1, b"'t": 1}
