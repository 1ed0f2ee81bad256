"""Row 7: bytes that are not text, and line ends and marks that other programs change."""

from __future__ import annotations

import gzip
import io
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import gristmill as gm
from faults.rows.fault import Fault
from gristmill.cli import main
from gristmill.corpus.packages import load_zstd
from gristmill.pretokenize import NATIVE_PATTERNS
from gristmill.shards.layouts import LAYOUTS

FAULT = Fault(
    row=7,
    injected="All bytes from 0x00 to 0xFF and thousands of their pairs, overlong and cut UTF-8, surrogates as UTF-8, "
    "NUL, CRLF, lone CR and byte order marks, in text files, compressed files, Parquet and iterables",
    promise="Counting loses no byte, and encoding, shards and decoding return exactly the same bytes. Nothing is "
    "normalised, stripped or replaced; `decode` to `str` replaces invalid UTF-8 unless asked otherwise",
    undetectable="Whether a byte that is not UTF-8 was meant",
    see_also=(
        "tests/corpus/test_corpus_text.py",
        "tests/encode/test_encode.py",
        "tests/pretokenize/test_pretokenize.py",
    ),
)

END = "<|end|>"
PARTS = [
    b"\0",
    b"\r\n",
    b"\r",
    b"\n",
    b"\n\r\r\n",
    b"\xef\xbb\xbf",  # byte order marks
    b"\xff\xfe",
    b"\xc0\xaf",  # overlong forms of one character
    b"\xe0\x80\xaf",
    b"\xf0\x80\x80\xaf",
    b"\xed\xa0\x80\xed\xb0\x80",  # surrogates
    b"\xf4\x90\x80\x80",  # above U+10FFFF
    b"\xf8\x88\x80\x80\x80",
    b"\x1a\x04\x1b[2J",  # ends of files in old systems, and an escape sequence
    "e\u0301 \u00e9 \ufb01 \u2028\u2029\x85\u200b\u3000".encode(),  # what normalisation would change
    "東京'S".encode()[:-3],
    b" 's  ",
]
PAIRS = b"".join(bytes([first, second]) for first in range(256) for second in range(0, 256, 5))
RAW = b"\xef\xbb\xbf" + bytes(range(256)) + b"".join(PARTS) + b"".join(reversed(PARTS)) + PAIRS + b"\r"
REGEX = r"\w+|\s+|[^\w\s]+"
PATTERNS = [*NATIVE_PATTERNS, REGEX]

pytestmark = pytest.mark.filterwarnings("ignore::gristmill.SlowPatternWarning")


@pytest.fixture(scope="module", params=PATTERNS)
def tok(request) -> gm.Tokenizer:
    """A tokenizer whose tokens have such bytes too."""
    return gm.train_tokenizer(
        [RAW, b"a b\xff\xff\xff \r\n\r\n" * 20],
        vocab_size=400,
        pattern=request.param,
        special_tokens=[END],
        progress=None,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """The same bytes as a file of each kind that can hold them."""
    folder = tmp_path_factory.mktemp("raw")
    (folder / "a.txt").write_bytes(RAW)
    (folder / "a.txt.gz").write_bytes(gzip.compress(RAW))
    (folder / "a.txt.zst").write_bytes(load_zstd().compress(RAW))
    pa.parquet.write_table(pa.table({"text": pa.array([RAW], pa.binary())}), folder / "a.parquet")
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_row_07_counting_loses_and_changes_no_byte(files, pattern):
    expected = Counter(gm.pretokenize(RAW, pattern=pattern))
    assert b"".join(gm.pretokenize(RAW, pattern=pattern)) == RAW
    corpora = [*files.values(), [RAW, b""]] if pattern != REGEX else [files["a.txt.gz"]]  # its workers start slowly
    for corpus in corpora:
        words = gm.count_words(corpus, pattern=pattern, special_tokens=(), progress=None)
        assert dict(words.items()) == expected
        assert words.source_bytes == len(RAW) == sum(len(word) * count for word, count in words.items())


def test_row_07_every_way_of_encoding_and_decoding_returns_the_same_bytes(tok, files):
    ids = tok.encode(RAW)
    assert tok.decode_bytes(ids) == RAW
    assert list(tok.encode_iterable(RAW[i : i + 3] for i in range(0, len(RAW), 3))) == ids
    assert list(tok.encode_batch([RAW, b"", RAW])[2]) == ids
    assert list(tok.encode_with_offsets(RAW)[0]) == ids
    assert tok.count_tokens(RAW) == len(ids)
    for name in ("a.txt", "a.txt.gz", "a.txt.zst"):
        assert tok.encode_file(files[name]).tolist() == ids
    decoder = tok.stream_decoder(errors="surrogateescape")
    text = "".join([*(decoder.push(id) for id in ids), decoder.finish()])
    assert text.encode("utf-8", "surrogateescape") == RAW
    assert tok.decode(ids, errors="surrogateescape").encode("utf-8", "surrogateescape") == RAW
    assert tok.decode(ids) == RAW.decode(errors="replace")


def test_row_07_a_saved_tokenizer_has_the_same_ids(tok, tmp_path):
    tok.save(tmp_path / "tok.json")
    again = gm.Tokenizer.load(tmp_path / "tok.json")
    assert again.vocab == tok.vocab
    assert again.encode(RAW) == tok.encode(RAW)


@pytest.mark.parametrize("text", ["\ufeffa\r\nb\rc\0", "e\u0301\u00e9\ufb01", "\x85\u2028\n", "\uffff\U0010ffff"])
def test_row_07_str_is_not_normalised(tok, text):
    assert tok.decode(tok.encode(text)) == text
    assert tok.encode(text) == tok.encode(text.encode())


@pytest.mark.parametrize("format", [name for name in LAYOUTS if name not in ("parquet", "datatrove")])
def test_row_07_shards_of_every_format_have_the_same_bytes(files, tmp_path, format):
    tok = gm.train_tokenizer([RAW], vocab_size=300, special_tokens=[END], progress=None)
    for name, path in files.items():
        run = gm.encode_corpus(path, tok, out=tmp_path / name, format=format, end_of_text=END, progress=None)
        ids = np.concatenate([np.asarray(ids) for ids in run.shards()])
        assert tok.decode_bytes(ids[ids != tok.special_tokens[END]]) == RAW


@pytest.mark.parametrize("documents", ["file", "line", "separator"])
def test_row_07_documents_are_joined_to_the_same_bytes(files, tmp_path, documents):
    tok = gm.train_tokenizer([RAW], vocab_size=300, special_tokens=[END], progress=None)
    separator = {"file": b"", "line": b"\n", "separator": b"\r\n"}[documents]
    options = {"separator": "\r\n"} if documents == "separator" else {}
    run = gm.encode_corpus(
        files["a.txt"], tok, out=tmp_path / "out", documents=documents, end_of_text=None, progress=None, **options
    )
    texts = [tok.decode_bytes(ids) for ids in run.shards()]
    assert separator.join(texts) == RAW
    assert len(texts) == (RAW.count(separator) + 1 if separator else 1)


def test_row_07_commands_return_the_same_bytes(files, tmp_path, capsysbinary, monkeypatch):
    tok = gm.train_tokenizer([RAW], vocab_size=300, special_tokens=[END], progress=None)
    tok.save(tmp_path / "tok.json")
    argument = ["-t", str(tmp_path / "tok.json")]
    for name in ("a.txt", "a.txt.gz", "a.txt.zst"):
        assert main(["tokenize", *argument, "--file", str(files[name])]) == 0
        ids = capsysbinary.readouterr().out
        assert list(map(int, ids.split())) == tok.encode(RAW)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ids)))
        assert main(["decode", *argument]) == 0
        assert capsysbinary.readouterr().out == RAW
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(RAW)))
    assert main(["tokenize", *argument]) == 0
    assert list(map(int, capsysbinary.readouterr().out.split())) == tok.encode(RAW)


def test_row_07_random_bytes_return_unchanged(tok):
    source = random.Random(7)
    texts = [source.randbytes(source.randrange(200)) for _ in range(100)]
    texts += [b"".join(source.choices(PARTS, k=20)) for _ in range(100)]
    assert [tok.decode_bytes(ids) for ids in tok.encode_batch(texts)] == texts
