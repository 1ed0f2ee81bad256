"""Row 1: a .gz or .zst file that is cut, as after an interrupted download."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path

import fsspec
import pytest

import gristmill as gm
from faults.rows.entry_points import ENTRY_POINTS, TOKENIZER, count
from faults.rows.fault import Fault
from gristmill.cli import main
from gristmill.corpus import streams
from gristmill.corpus.packages import load_zstd

FAULT = Fault(
    row=1,
    injected="A .gz or .zst file cut at every byte",
    promise="`TruncatedInputError` with path and offset, never short data. `encode_corpus` writes no manifest, and "
    '`on_error="skip"` uses nothing of the file',
    undetectable="A cut exactly between two members or frames, and a cut in a file that is not compressed",
    see_also=("tests/corpus/test_corpus_streams.py", "tests/encode/test_encode_compressed.py"),
)

TEXT = "one text, two 三, it's text. ".encode() * 3


def zstd_with_checksum(data: bytes) -> bytes:
    zstd = load_zstd()
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def zstd_without_size(data: bytes) -> bytes:
    """Return a frame as a stream writer makes it: without a checksum, and without the size of the content."""
    zstd = load_zstd()
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.content_size_flag: 0})
    return packer.compress(data) + packer.flush()


def zstd_skippable(data: bytes) -> bytes:
    """Return a frame of content between two frames that decoders skip."""
    note = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    return note + zstd_without_size(data) + note


def gzip_with_name(data: bytes) -> bytes:
    """Return a member whose header has an extra field, a name, a comment and a checksum of its own."""
    head = b"\x1f\x8b\x08\x1e" + b"\0" * 4 + b"\0\xff" + b"\x04\0" + b"xtra" + b"name\0" + b"comment\0"
    return head + (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little") + gzip.compress(data, mtime=0)[10:]


PACKERS = {
    "gz": gzip.compress,
    "gz with name": gzip_with_name,
    "zst": zstd_with_checksum,
    "zst without size": zstd_without_size,
    "zst skippable": zstd_skippable,
}


@pytest.fixture(params=PACKERS)
def packed(request) -> tuple[str, bytes]:
    """The suffix of a compressed file, and its bytes."""
    return "." + request.param.partition(" ")[0], PACKERS[request.param](TEXT)


def boundaries(data: bytes) -> set[int]:
    """Return the sizes at which a cut file ends with a complete frame, so nothing shows that the rest is missing."""
    return {11, 11 + len(zstd_without_size(TEXT))} if data == zstd_skippable(TEXT) else set()


def check_cut(call, path: Path, folder: Path, size: int) -> None:
    with pytest.raises(gm.TruncatedInputError) as caught:
        call(path, folder)
    assert (caught.value.path, caught.value.offset) == (str(path), size)
    assert str(caught.value).startswith(
        f"{path}: truncated at byte {size} of the compressed stream. Get the file again"
    )


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_row_01_every_cut_is_an_error_with_path_and_offset(tmp_path, packed, name):
    suffix, data = packed
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(data)
    ENTRY_POINTS[name](path, tmp_path)
    # These two take milliseconds for every call, and read as the others do.
    step = 7 if name in ("encode_corpus", "encode_file") else 1
    for size in {*range(0, len(data), step), *range(len(data) - 9, len(data))} - boundaries(data):
        path.write_bytes(data[:size])
        check_cut(ENTRY_POINTS[name], path, tmp_path, size)


def test_row_01_every_cut_is_found_by_zlib_where_isal_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "load_igzip", lambda: None)
    path = tmp_path / "a.txt.gz"
    for pack in (gzip.compress, gzip_with_name):
        for size in range(len(pack(TEXT))):
            path.write_bytes(pack(TEXT)[:size])
            check_cut(count, path, tmp_path, size)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_row_01_a_cut_in_a_later_member_is_an_error_except_at_its_beginning(tmp_path, suffix):
    pack = PACKERS[suffix[1:]]
    first, second = pack(TEXT), pack(TEXT)
    path = tmp_path / f"a.txt{suffix}"
    for size in range(1, len(second)):
        path.write_bytes(first + second[:size])
        check_cut(count, path, tmp_path, len(first) + size)
    path.write_bytes(first)  # nothing in the file shows that a second member is missing
    assert count(path, tmp_path).source_bytes == len(TEXT)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("format", ["txt", "jsonl"])
def test_row_01_a_file_of_several_chunks_and_batches_gives_no_part_of_its_text(tmp_path, suffix, format):
    # Hexadecimal digits compress to half of their size, so the file has several chunks of compressed bytes.
    line = b'{"text": "%s"}\n' if format == "jsonl" else b"%s\n"
    source = random.Random(1)
    text = b"".join(line % source.randbytes(200).hex().encode() for _ in range(12_000))
    data = PACKERS[suffix[1:]](text)
    assert len(data) > 8 * streams.CHUNK_BYTES
    path = tmp_path / f"a.{format}{suffix}"
    for size in (streams.CHUNK_BYTES, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(gm.TruncatedInputError) as caught:
            gm.count_words(path, progress=None)
        assert caught.value.offset == size
        with pytest.raises(gm.TruncatedInputError):
            gm.encode_corpus(path, TOKENIZER, out=tmp_path / "out", shard_tokens=100_000, progress=None)
        with pytest.raises((gm.ShardsFormatError, FileNotFoundError)):
            gm.Shards(tmp_path / "out")


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_row_01_skipping_a_cut_file_uses_nothing_of_it(tmp_path, suffix):
    (tmp_path / "good.txt").write_bytes(b"good")
    path = tmp_path / f"bad.txt{suffix}"
    path.write_bytes(PACKERS[suffix[1:]](TEXT)[:-1])
    with pytest.warns(gm.SkippedInputWarning, match=rf"bad\.txt{suffix}: truncated at byte"):
        words = gm.count_words([path, tmp_path / "good.txt"], on_error="skip", progress=None)
    assert dict(words.items()) == {b"good": 1}
    with pytest.warns(gm.SkippedInputWarning, match=rf"bad\.txt{suffix}: truncated at byte"):
        run = gm.encode_corpus(
            [path, tmp_path / "good.txt"], TOKENIZER, out=tmp_path / "out", on_error="skip", progress=None
        )
    assert [run.shards().decode(i) for i in range(len(run.shards()))] == ["good"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_row_01_commands_name_the_file_and_the_byte(tmp_path, capsys, suffix):
    data = PACKERS[suffix[1:]](TEXT)[:-4]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(data)
    TOKENIZER.save(tmp_path / "tok.json")
    tok = ["-t", str(tmp_path / "tok.json")]
    commands = [
        ["train-tokenizer", path, "--vocab-size", "300", "-o", tmp_path / "new.json"],
        ["count-words", path, "-o", tmp_path / "a.gmw"],
        ["encode", path, *tok, "-o", tmp_path / "out"],
        ["count", *tok, path],
        ["tokenize", *tok, "--file", path],
    ]
    for command in commands:
        assert main([*map(str, command)]) == 1
        output = capsys.readouterr()
        assert f"{path}: truncated at byte {len(data)} of the compressed stream" in output.err
        assert output.err.count("\n") == 1
    assert not {"new.json", "a.gmw"} & {file.name for file in tmp_path.iterdir()}
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_row_01_a_cut_file_at_a_url_is_an_error_with_its_url(tmp_path):
    system = fsspec.filesystem("memory")
    for suffix in (".gz", ".zst"):
        data = PACKERS[suffix[1:]](TEXT)
        for size in range(0, len(data), 11):
            system.pipe(f"/row-01/a.txt{suffix}", data[:size])
            with pytest.raises(gm.TruncatedInputError) as caught:
                gm.count_words(f"memory://row-01/a.txt{suffix}", progress=None)
            assert (caught.value.path, caught.value.offset) == (f"memory://row-01/a.txt{suffix}", size)
    system.rm("/row-01", recursive=True)
