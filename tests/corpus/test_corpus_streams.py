"""Streams: truncated, damaged and changed inputs are errors, never short data."""

from __future__ import annotations

import gzip
import io
import os
import random
import sys

import pytest
from corpus_files import COMPRESSIONS, batches_of, compress, cut_at_spaces, documents_of, find

import gristmill as gm
from gristmill.corpus import packages, streams
from gristmill.corpus.formats import read_batches
from gristmill.corpus.packages import load_zstd
from scripts import run_script

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
TEXT = b"".join(b"some text, number %d, " % (i * i) for i in range(300))


@pytest.fixture(params=[".gz", ".zst", "zlib"])
def suffix(request, monkeypatch):
    """Both compressions, and gzip without igzip."""
    if request.param == "zlib":
        monkeypatch.setattr(streams, "load_igzip", lambda: None)
        return ".gz"
    return request.param


def pack(data, suffix):
    if suffix == ".gz":
        return gzip.compress(data)
    zstd = load_zstd()
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def test_every_byte_at_which_a_file_may_be_cut_is_found(tmp_path, suffix):
    packed = pack(TEXT[:1000], suffix)
    path = tmp_path / f"a.txt{suffix}"
    for size in range(len(packed)):
        path.write_bytes(packed[:size])
        with pytest.raises(gm.TruncatedInputError, match=rf"truncated at byte {size:,} of the compressed") as caught:
            documents_of(path)
        assert (caught.value.path, caught.value.offset) == (str(path), size)


def test_a_second_member_that_is_cut_is_found(tmp_path, suffix):
    first, second = pack(TEXT, suffix), pack(TEXT, suffix)
    path = tmp_path / f"a.txt{suffix}"
    for size in (1, 5, 12, 20, len(second) // 2, len(second) - 1):
        path.write_bytes(first + second[:size])
        with pytest.raises(gm.TruncatedInputError):
            documents_of(path)


def test_a_flipped_bit_is_never_other_text(tmp_path, suffix):
    packed = pack(TEXT, suffix)
    path = tmp_path / f"a.txt{suffix}"
    source = random.Random(0)
    places = {*range(20), *range(len(packed) - 12, len(packed)), *source.sample(range(len(packed)), 100)}
    num_found = 0
    for place in places:
        damaged = bytearray(packed)
        damaged[place] ^= 1 << source.randrange(8)
        path.write_bytes(damaged)
        try:
            assert documents_of(path, documents="file") == [TEXT]  # such as a time stamp in the header
        except (gm.CorruptInputError, gm.TruncatedInputError) as error:
            assert error.path == str(path)
            assert str(path) in str(error)
            num_found += 1
    assert num_found > len(places) * 0.8


def test_a_flipped_bit_in_the_data_names_the_bytes(tmp_path, suffix):
    packed = bytearray(pack(TEXT * 1000, suffix))
    packed[-30] ^= 1
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(packed)
    with pytest.raises(gm.CorruptInputError, match=r"damaged in bytes [\d,]+ to [\d,]+ of the compressed stream") as e:
        documents_of(path, cut=cut_at_spaces)
    assert 0 <= e.value.offset < len(packed)


def test_a_file_that_is_not_compressed_is_damaged(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(b"plain text under a wrong name")
    with pytest.raises(gm.CorruptInputError):
        documents_of(path)


def test_all_members_and_frames_are_read(tmp_path, suffix):
    parts = [b"", b"one", b"", b"two" * 1000, b"three", b""]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(b"".join(pack(part, suffix) for part in parts))
    assert documents_of(path, documents="file") == [b"".join(parts)]


def test_zeros_after_gzip_are_padding_and_anything_else_is_damage(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one") + b"\0" * 100 + gzip.compress(b"two") + b"\0" * 1000)
    assert documents_of(path) == [b"onetwo"]
    path.write_bytes(gzip.compress(b"one") + b"junk")
    with pytest.raises((gm.CorruptInputError, gm.TruncatedInputError)):
        documents_of(path)
    path.write_bytes(gzip.compress(b"one") + b"junk, and more of it")
    with pytest.raises(gm.CorruptInputError):
        documents_of(path)


def test_skippable_frames_of_zstd_are_skipped(tmp_path):
    note = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    path = tmp_path / "a.txt.zst"
    path.write_bytes(note + pack(b"one", ".zst") + note + pack(b"two", ".zst") + note)
    assert documents_of(path) == [b"onetwo"]


def test_small_chunks_and_small_reads_give_the_same_bytes(tmp_path, monkeypatch, suffix, small_batches):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(TEXT[:2000], suffix) + pack(TEXT[2000:], suffix))
    for size in (1, 2, 7, 100):
        monkeypatch.setattr(streams, "CHUNK_BYTES", size)
        assert documents_of(path, documents="file", cut=cut_at_spaces) == [TEXT]


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("change", ["append", "truncate", "replace", "touch"])
def test_an_input_that_changes_while_it_is_read_is_an_error(tmp_path, small_batches, suffix, change):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress(TEXT, suffix))
    input, reading = find(path)
    batches = read_batches(input, reading, cut=cut_at_spaces)
    next(batches)
    data = path.read_bytes()
    if change == "append":
        path.write_bytes(data + data)
    elif change == "truncate":
        path.write_bytes(data[: len(data) // 2])
    elif change == "replace":
        (tmp_path / "other").write_bytes(data)
        (tmp_path / "other").replace(path)
    else:
        os.utime(path, ns=(0, 0))
    with pytest.raises(gm.InputChangedError, match=r"a\.txt.* changed while it was read"):
        list(batches)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_an_input_that_changed_since_it_was_found_is_an_error(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress(TEXT, suffix))
    input, reading = find(path)
    path.write_bytes(compress(TEXT + b"more", suffix))
    with pytest.raises(gm.InputChangedError):
        list(read_batches(input, reading, cut=cut_at_spaces))


@linux_only
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_gigabyte_of_zeros_in_a_megabyte_is_counted_in_little_memory(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    piece = pack(b"\0" * 9_999_999 + b" ", suffix)
    path.write_bytes(piece * 100)
    assert path.stat().st_size < 1_200_000
    script = """
        import re, sys
        import gristmill as gm
        from gristmill.corpus import Reading, find_files, read_files
        def resident():
            return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
        reading = Reading.checked({"documents": "file"})
        before = resident()
        cut = lambda text: bytes(text).rfind(b" ") + 1
        total = sum(batch.num_bytes for _, batch in read_files(find_files([sys.argv[1]], reading), reading, cut=cut, num_readers=1))
        print(total, resident() - before)
    """  # noqa: E501
    done = run_script(script, path)
    total, used = map(int, done.stdout.split())
    assert total == 1_000_000_000
    assert used < 150 << 20


def test_a_stretch_of_zeros_without_a_cut_meets_the_stated_limit(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"\0" * 5_000_000))
    with pytest.raises(gm.CorpusError, match="max_document_bytes=2097152"):
        gm.count_words(path, max_document_bytes=2 << 20, progress=None, special_tokens=())


def test_a_package_that_is_missing_is_named_with_what_to_install(tmp_path, monkeypatch):
    def fail(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(packages.importlib, "import_module", fail)
    (tmp_path / "a.txt.zst").write_bytes(b"")
    (tmp_path / "a.parquet").write_bytes(b"")
    for name in (tmp_path / "a.txt.zst", tmp_path / "a.parquet", "s3://bucket/a.txt"):
        with pytest.raises(gm.MissingPackageError, match=r" needs .* pip install 'gristmill\[data\]'"):
            find(name)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"zlib will do"))
    assert documents_of(tmp_path / "a.txt.gz") == [b"zlib will do"]


def test_import_does_not_load_what_only_some_inputs_need():
    script = """
        import sys
        import gristmill
        print([name for name in ("pyarrow", "isal", "backports.zstd", "fsspec", "orjson") if name in sys.modules])
    """
    assert run_script(script).stdout.strip() == "[]"


def test_a_window_of_zstd_larger_than_the_limit_says_so(tmp_path):
    zstd = load_zstd()
    packer = zstd.ZstdCompressor(
        options={zstd.CompressionParameter.window_log: 28, zstd.CompressionParameter.content_size_flag: 0}
    )
    path = tmp_path / "a.txt.zst"
    path.write_bytes(packer.compress(b"x" * 1000) + packer.flush())
    with pytest.raises(gm.CorpusError, match=r"window of more than 128 MiB\. Compress it without --long"):
        documents_of(path)


def test_reading_from_a_mark_in_a_compressed_file_drops_what_is_before(tmp_path, suffix, small_batches):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(TEXT, suffix))
    batches = batches_of(path, cut=cut_at_spaces)
    rest = batches_of(path, cut=cut_at_spaces, mark=batches[-2].mark)
    assert [batch.mark for batch in rest] == [batch.mark for batch in batches[-2:]]


def test_a_stream_is_closed_when_its_reader_is(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT)
    opened = []
    monkeypatch.setattr(
        "gristmill.corpus.sources.io",
        type("io", (), {"FileIO": lambda name: opened.append(io.FileIO(name)) or opened[-1]}),
    )
    input, reading = find(path)
    batches = read_batches(input, reading, cut=None)
    next(batches)
    batches.close()
    assert [file.closed for file in opened] == [True]
