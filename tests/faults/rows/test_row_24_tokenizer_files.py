"""Row 24: malformed and hostile tokenizer files in every format, read with little memory."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import re
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

import gristmill as gm
from faults.rows.children import call
from faults.rows.fault import Fault
from gristmill.tokenizer.formats import FORMATS, gristmill_json, read_tokenizer
from gristmill.tokenizer.formats.byte_alphabet import CHARACTER_OF
from gristmill.tokenizer.formats.content import MAX_FILE_BYTES, MAX_LINES
from gristmill.tokenizer.formats.tiktoken import MAX_GZIP_MEMBERS

FAULT = Fault(
    row=24,
    injected="Tokenizer files with a missing byte, two tokens of one id, id 2^32 - 1, a cycle, an unknown merge, 1 GB, "
    "millions of lines or items, deep nesting, or a pattern that compiles to gigabytes",
    promise="`TokenizerFormatError` that names the file, before a large allocation: files have at most 128 MiB, "
    "10 million JSON items or 4 million lines, and patterns at most 65,536 elements",
    undetectable="A `.tiktoken`, `.model` or `merges.txt` that was cut between two lines: these formats have no end",
    see_also=(
        "tests/tokenizer/formats/test_format_malformed.py",
        "tests/faults/test_hostile_vocabularies.py",
        "tests/pretokenize/test_pattern_size.py",
        "tests/faults/test_mutated_files.py",
    ),
)

READ = [name for name in FORMATS if name != "gguf"]
EOT = "<|endoftext|>"
TOK = gm.Tokenizer([(b"a", b"b"), (b"ab", b"c")], special_tokens=[EOT])
GRISTMILL = json.loads(gristmill_json.dump(TOK.parts))
GRISTMILL.pop("sha256")
RANKS = [(bytes([byte]), byte) for byte in range(256)]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="measures memory in /proc")


def json_file(**change):
    return json.dumps(GRISTMILL | change).encode()


def with_rows(*rows, **change):
    """A file of version 2, whose merges state the ids that they create."""
    content = {"version": 2, "whole_pieces": False, "byte_ids": list(range(256)), "other_tokens": []}
    return json_file(**content, merges=list(rows), special_tokens=[], **change)


def huggingface(merges=(("a", "b"),), more=()):
    vocab = {CHARACTER_OF[byte]: byte for byte in range(256)} | {"ab": 256} | dict(more)
    model = {"type": "BPE", "vocab": vocab, "merges": list(merges)}
    return json.dumps({"model": model, "pre_tokenizer": {"type": "ByteLevel"}, "added_tokens": []}).encode()


def tiktoken(*more):
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in [*RANKS, *more])


def minbpe(*merges, specials=()):
    lines = ["minbpe v1", "", str(len(specials)), *specials, *merges]
    return ("\n".join(lines) + "\n").encode()


MOST = 2**32 - 1
DEEP = b"[" * 1_000_000
FILES = {
    "gristmill: duplicate id": ("a.json", with_rows([97, 98, 256], [97, 99, 256])),
    "gristmill: largest id": ("a.json", with_rows([97, 98, MOST])),
    "gristmill: cycle": ("a.json", with_rows([97, 257, 256], [97, 256, 257])),
    "gristmill: unknown merge": ("a.json", with_rows([97, 300, 256])),
    "gristmill: deep": ("a.json", json_file(merges="@").replace(b'"@"', DEEP + b"]" * 1_000_000)),
    "gristmill: special of id 2^32 - 1": ("a.json", json_file(version=2, special_tokens=[[EOT, MOST]])),
    "huggingface: duplicate id": ("a.json", huggingface(more={"xy": 97})),
    "huggingface: largest id": ("a.json", huggingface(more={"xy": MOST})),
    "huggingface: unknown merge": ("a.json", huggingface([("a", "b"), ("a", "nowhere")])),
    "huggingface: cycle": ("a.json", huggingface([("ab", "b"), ("a", "bb")], {"abb": 257, "bb": 258})),
    "huggingface: deep": ("a.json", b'{"model": ' + DEEP + b"]" * 1_000_000 + b"}"),
    "gpt2: duplicate id": ("vocab.json", json.dumps({"a": 1, "b": 1}).encode()),
    "gpt2: largest id": ("vocab.json", json.dumps({"a": MOST}).encode()),
    "gpt2: deep": ("vocab.json", b'{"a": ' * 1_000_000),
    "tiktoken: duplicate id": ("a.tiktoken", tiktoken((b"ab", 97))),
    "tiktoken: largest id": ("a.tiktoken", tiktoken((b"ab", MOST))),
    "tiktoken: huge id": ("a.tiktoken", tiktoken()[:-4] + b"9" * 100_000 + b"\n"),
    "tiktoken: gzip of 1 GB": ("a.tiktoken", gzip.compress(b"\0" * (8 << 20), mtime=0) * 128),
    "tiktoken: many gzip members": ("a.tiktoken", gzip.compress(b"", mtime=0) * (MAX_GZIP_MEMBERS + 1)),
    "tiktoken: many lines": ("a.tiktoken", b"\n" * (MAX_LINES + 2)),
    "minbpe: cycle": ("a.model", minbpe("97 257", "97 256")),
    "minbpe: unknown merge": ("a.model", minbpe("97 300")),
    "minbpe: duplicate id": ("a.model", minbpe(specials=["<s> 97"])),
    "minbpe: largest id": ("a.model", minbpe(f"97 {MOST}")),
    "minbpe: many lines": ("a.model", b"minbpe v1\n\n0\n" + b"97 98\n" * (MAX_LINES + 2)),
    "minbpe: many specials": ("a.model", b"minbpe v1\n\n999999999\n97 98\n"),
    "pattern: 10^12 copies": ("a.json", json_file(pattern={"name": None, "regex": "(?:" * 3 + "a" + "{9999})" * 3})),
    "pattern: nested plus": ("a.json", json_file(pattern={"name": None, "regex": "(?:" * 40 + "a" + ")+" * 40})),
    "pattern: 2 MB": ("a.json", json_file(pattern={"name": None, "regex": "(?:a|b)" * 300_000})),
    "pattern in minbpe": ("a.model", b"minbpe v1\n" + rb"\w{999999999}" + b"\n0\n"),
    "items": ("a.json", b'{"model": [' + b"[]," * 5_000_001 + b"1]}"),
    "long key": ("a.json", b'{"' + b"k" * 5_000_000 + b'": 1, "model": 7}'),
}


def peak_mib():
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10


def read_with_limits(path, expected=gm.TokenizerFormatError, seconds=30):
    """Read the file with 500 MiB of address space left and a time limit. Prints the growth of the memory in MiB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = peak_mib()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (500 << 20),) * 2)
    signal.signal(signal.SIGPROF, lambda *_: os._exit(99))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        read_tokenizer(path, pattern="gpt2" if path.suffix == ".tiktoken" else None)
    except expected as error:
        assert str(error).startswith(f"{path}: "), error
        assert len(str(error)) < 3000
        print(peak_mib() - before)
        return 0
    return 3


@linux_only
@pytest.mark.parametrize("name", FILES)
def test_row_24_a_malformed_file_is_a_format_error_before_much_memory_or_time_is_used(name, tmp_path):
    file, data = FILES[name]
    path = tmp_path / file
    path.write_bytes(data)
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    ended = call(lambda: read_with_limits(path), log=tmp_path / "child.log")
    assert ended.status == 0, ended.text
    # Largest: 128 MiB of decompressed data, of which gzip's reader has two copies.
    assert int(ended.text) < 60 + 8 * len(data) / 2**20 + (300 if "1 GB" in name else 0)


@linux_only
@pytest.mark.parametrize("file", ["a.json", "vocab.json", "a.tiktoken", "a.model", "merges.txt"])
@pytest.mark.parametrize("size", [1 << 30, 1 << 40])
def test_row_24_a_file_of_a_gigabyte_or_a_terabyte_is_refused_unread(size, file, tmp_path):
    path = tmp_path / file
    (tmp_path / "merges.txt").write_text("a b\n")
    (tmp_path / "vocab.json").write_text(json.dumps({CHARACTER_OF[byte]: byte for byte in range(256)} | {"ab": 256}))
    with path.open("wb") as data:
        data.write(b"minbpe v1\n" if file == "a.model" else b"{")
        data.truncate(size)  # a sparse file, which takes no space on the disk
    if size > MAX_FILE_BYTES and path.suffix == ".tiktoken":
        path = path.rename(tmp_path / "b.tiktoken")
    ended = call(lambda: read_with_limits(path), log=tmp_path / "child.log")
    assert ended.status == 0, ended.text
    assert int(ended.text) < 30


@pytest.mark.filterwarnings("ignore::gristmill.FormatWarning")
@pytest.mark.parametrize("format", READ)
def test_row_24_a_missing_byte_gives_an_error_or_the_same_meaning_and_never_another_error(format, tmp_path):
    name = {"gpt2": "vocab.json", "minbpe": "tok.model", "tiktoken": "t.tiktoken"}.get(format, "tokenizer.json")
    path = TOK.export(tmp_path / name, format=format)[0]
    given = {"pattern": "gpt2", "special_tokens": TOK.special_tokens} if format in ("tiktoken", "gpt2") else {}
    data = path.read_bytes()
    began, num_read = time.process_time(), 0
    for position in [*range(0, len(data), 1 + len(data) // 100), *range(len(data) - 30, len(data))]:
        path.write_bytes(data[:position] + data[position + 1 :])
        with contextlib.suppress(gm.TokenizerFormatError):
            found = gm.Tokenizer.load(path, format=format, **given)
            assert format != "gristmill" or found == TOK  # its checksum covers everything but white space
            num_read += 1
    assert time.process_time() - began < 60
    assert num_read < 100
    path.write_bytes(data)
    assert gm.Tokenizer.load(path, format=format, **given).merges == TOK.merges


@pytest.mark.parametrize("format", ["auto", *READ])
def test_row_24_a_file_of_any_format_read_as_any_other_is_a_format_error(format, tmp_path):
    (tmp_path / "merges.txt").write_text("a b\n")
    for name, data in {
        "json": with_rows([97, 98, 256]),
        "hf": huggingface(),
        "ranks": tiktoken((b"ab", 256)),
        "model": minbpe("97 98"),
        "gguf": b"GGUF\3\0\0\0" + b"\xff" * 16,
        "zip": b"PK\3\4" + b"\0" * 100,
        "pickle": b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94.",
    }.items():
        (tmp_path / "vocab.json").write_bytes(data)
        with contextlib.suppress(gm.TokenizerFormatError):
            parts = read_tokenizer(tmp_path / "vocab.json", format, pattern="gpt2")
            assert name not in ("gguf", "zip", "pickle")
            assert len(parts.vocabulary.merges) == 1
