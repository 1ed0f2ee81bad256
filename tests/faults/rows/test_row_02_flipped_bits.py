"""Row 2: a bit that flips in a compressed file with a checksum."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
from pathlib import Path

import pytest

import gristmill as gm
from faults.rows.entry_points import ENTRY_POINTS, TOKENIZER, count
from faults.rows.fault import Fault
from gristmill.cli import main
from gristmill.corpus import streams
from gristmill.corpus.packages import load_zstd
from scripts import run_script
from shards.shard_corpora import digest

FAULT = Fault(
    row=2,
    injected="Every bit of a small gzip file and of a small zstd file with checksum flipped, one at a time; a damaged "
    "file that is repaired without a change of its size and time",
    promise="`CorruptInputError` (`TruncatedInputError` if the file then seems too short), or identical data if "
    "decoders ignore the bit, as in the time stamp of gzip. The next run of `encode_corpus` uses no text of the "
    "damaged file",
    undetectable="Flips in zstd files without checksum and in plain text; a run that is killed while it reads a "
    "damaged file and resumes on the repaired file of the same size and time",
    see_also=("tests/corpus/test_corpus_streams.py",),
)

TEXT = "one text, two 三, it's text. ".encode() * 3
DAMAGED = (gm.CorruptInputError, gm.TruncatedInputError)


def zst(data: bytes) -> bytes:
    zstd = load_zstd()
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def streamed_zst(data: bytes) -> bytes:
    """Return a frame as a stream writer makes it: the header has the size of the window, not that of the content."""
    zstd = load_zstd()
    options = {zstd.CompressionParameter.checksum_flag: 1, zstd.CompressionParameter.content_size_flag: 0}
    packer = zstd.ZstdCompressor(options=options)
    return packer.compress(data) + packer.flush()


PACKERS = {"gz": gzip.compress, "zst": zst, "zst streamed": streamed_zst}


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def check_every_flip(call, path: Path, folder: Path, data: bytes, step: int = 1) -> list[int]:
    """Return the bits that decoders ignore. Every other one is an error with path and offset."""
    path.write_bytes(data)
    expected = comparable(call(path, folder))
    ignored = []
    for bit in range(0, 8 * len(data), step):
        path.write_bytes(flipped(data, bit))
        try:
            assert comparable(call(path, folder)) == expected, bit
            ignored.append(bit)
        except DAMAGED as error:
            assert error.path == str(path)
            assert str(error).startswith(f"{path}: ")
            assert 0 <= error.offset <= len(data)
    return ignored


def comparable(result):
    if isinstance(result, gm.Words):
        return dict(result.items())
    return result.merges if isinstance(result, gm.Tokenizer) else result


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_row_02_a_flipped_bit_is_an_error_or_one_that_decoders_ignore(tmp_path, kind, name):
    data = PACKERS[kind](TEXT)
    path = tmp_path / f"a.txt.{kind.partition(' ')[0]}"
    step = 1 if name == "count_words" else 5 if name == "train_tokenizer" else 13  # the others take milliseconds
    ignored = check_every_flip(ENTRY_POINTS[name], path, tmp_path, data, step)
    if kind == "gz":
        # Bits of the flags, the time stamp, the system, and of the rest of a byte after the last block.
        assert all(bit // 8 in range(3, 10) or bit // 8 == len(data) - 9 for bit in ignored)
    else:
        # Unused bits of the header, and the size of the window, which may be larger than needed.
        assert all(bit // 8 in (4, 5) for bit in ignored)


def test_row_02_a_flipped_bit_is_found_by_zlib_where_isal_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "load_igzip", lambda: None)
    data = gzip.compress(TEXT)
    ignored = check_every_flip(count, tmp_path / "a.txt.gz", tmp_path, data)
    assert all(bit // 8 in range(3, 10) or bit // 8 == len(data) - 9 for bit in ignored)


@pytest.mark.parametrize("kind", PACKERS)
def test_row_02_a_flip_in_the_second_member_is_an_error(tmp_path, kind):
    pack = PACKERS[kind]
    first, second = pack(TEXT), pack(b"and more")
    path = tmp_path / f"a.txt.{kind.partition(' ')[0]}"
    path.write_bytes(first + second)
    expected = comparable(count(path, tmp_path))
    for bit in range(8 * len(first), 8 * len(first + second), 3):
        path.write_bytes(flipped(first + second, bit))
        try:
            assert comparable(count(path, tmp_path)) == expected
        except DAMAGED as error:
            assert error.offset <= len(first + second)


def test_row_02_zstd_without_a_checksum_is_the_case_that_cannot_be_detected(tmp_path):
    zstd = load_zstd()
    data = zstd.compress(TEXT, options={zstd.CompressionParameter.checksum_flag: 0})
    path = tmp_path / "a.txt.zst"
    path.write_bytes(data)
    expected = comparable(count(path, tmp_path))
    num_wrong = 0
    for bit in range(8 * len(data)):
        path.write_bytes(flipped(data, bit))
        with contextlib.suppress(*DAMAGED):
            num_wrong += comparable(count(path, tmp_path)) != expected
    assert num_wrong > 0  # otherwise the table claims a weakness that does not exist


def long_file(path: Path) -> bytes:
    """Write a file of several batches and return its bytes. Without compression, a flip changes one character."""
    source = random.Random(2)
    text = b"".join(b"text %s\n" % source.randbytes(20).hex().encode() for _ in range(350_000))
    data = gzip.compress(text, compresslevel=0, mtime=0)
    write(path, data)
    return data


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.utime(path, ns=(10**18, 10**18))


def test_row_02_after_a_repair_that_keeps_size_and_time_no_damaged_text_is_in_the_shards(tmp_path):
    path = tmp_path / "corpus" / "b.txt.gz"
    path.parent.mkdir()
    write(path.with_name("a.txt"), b"the first input\n" * 200_000)
    data = long_file(path)
    options = {"documents": "line", "checkpoint_seconds": 0, "shard_tokens": 2_000_000, "progress": None}
    gm.encode_corpus(path.parent, TOKENIZER, out=tmp_path / "good", **options)
    bit = 8 * 10_000  # of a hexadecimal digit, between the samples by which a run recognizes its inputs
    write(path, flipped(data, bit))
    saved = []
    with pytest.raises(gm.CorruptInputError, match=rf"{path}: damaged in bytes"):
        gm.encode_corpus(
            path.parent,
            TOKENIZER,
            out=tmp_path / "out",
            **options | {"progress": lambda _: saved.append((tmp_path / "out" / "progress.json").exists())},
        )
    assert any(saved)  # a checkpoint had recorded shards with the damaged text
    write(path, data)
    run = gm.encode_corpus(path.parent, TOKENIZER, out=tmp_path / "out", **options)
    assert not run.resumed
    assert digest(tmp_path / "out") == digest(tmp_path / "good")


def test_row_02_damage_in_a_later_input_keeps_the_checkpoint_of_an_earlier_one(tmp_path):
    """Only a run with text of the damaged input starts again."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    write(corpus / "a.txt", (b"the first input " * 60 + b"\n") * 40_000)
    data = gzip.compress(TEXT, mtime=0)
    write(corpus / "b.txt.gz", flipped(data, 8 * (len(data) - 5)))
    options = {"documents": "line", "checkpoint_seconds": 0, "shard_tokens": 1_000_000, "progress": None}
    with pytest.raises(gm.CorruptInputError):
        gm.encode_corpus(corpus, TOKENIZER, out=tmp_path / "out", **options)
    assert (tmp_path / "out" / "progress.json").exists()


def test_row_02_a_window_larger_than_the_limit_may_be_damage_and_has_path_and_offset(tmp_path):
    data = bytearray(streamed_zst(TEXT))
    data[5] |= 0x80  # the size of the window in the header of the frame
    path = tmp_path / "a.txt.zst"
    path.write_bytes(data)
    with pytest.raises(gm.CorruptInputError, match=r"window of more than 128 MiB.*its header is damaged") as caught:
        count(path, tmp_path)
    assert (caught.value.path, caught.value.offset) == (str(path), 0)


def test_row_02_memory_that_is_used_up_is_not_reported_as_damage(tmp_path):
    zstd = load_zstd()
    options = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.content_size_flag: 0}
    packer = zstd.ZstdCompressor(options=options)
    (tmp_path / "a.txt.zst").write_bytes(packer.compress(b"word " * 1000) + packer.flush())
    script = """
        import resource, sys
        import gristmill as gm
        gm.count_words(sys.argv[2], num_threads=1, progress=None)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20),) * 2)
        try:
            gm.count_words(sys.argv[1], num_threads=1, progress=None)
        except MemoryError as error:
            print("MemoryError")
    """
    (tmp_path / "small.txt.zst").write_bytes(zst(b"word"))
    done = run_script(script, tmp_path / "a.txt.zst", tmp_path / "small.txt.zst")
    assert (done.returncode, done.stdout) == (0, "MemoryError\n"), done.stderr


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_row_02_commands_name_the_damaged_file_and_write_nothing(tmp_path, capsys, kind):
    data = PACKERS[kind](TEXT)
    path = tmp_path / f"a.txt.{kind}"
    path.write_bytes(flipped(data, 8 * (len(data) - 2)))  # of the checksum, or of the length after it
    TOKENIZER.save(tmp_path / "tok.json")
    tok = ["-t", str(tmp_path / "tok.json")]
    for command in (
        ["train-tokenizer", path, "--vocab-size", "300", "-o", tmp_path / "new.json"],
        ["encode", path, *tok, "-o", tmp_path / "out"],
        ["count", *tok, path],
    ):
        assert main([*map(str, command)]) == 1
        output = capsys.readouterr()
        assert f"{path}: damaged in bytes 0 to {len(data)} of the compressed stream" in output.err
        assert output.err.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"a.txt.{kind}", "tok.json"]
