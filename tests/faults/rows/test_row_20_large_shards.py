"""Row 20: more tokens, or larger ids, than the fields of a format of token files can hold.

Files with more than 2^31 tokens are sparse: they have their full size, but take no space on the disk.
"""

from __future__ import annotations

import numpy as np
import pytest

import gristmill as gm
from faults.rows.fault import Fault
from gristmill.cli import main
from gristmill.lm.data.token_source import TokenFiles
from gristmill.lm.data.window_order import WindowOrder
from gristmill.shards.layouts import LAYOUTS, Part, megatron, parquet
from gristmill.shards.layouts.layout import UINT16, UINT32
from shards.builder import build_folder, change_shard
from shards.test_layouts import READERS

FAULT = Fault(
    row=20,
    injected="More than 2^31 tokens for llm.c, a document of 2^31 tokens for Megatron and Parquet, id 65536 for uint16",
    promise="Refused before a file is written, or split into shards. Positions beyond 2^32 are read correctly",
    undetectable="A header that another program wrote with a number of tokens that had wrapped around, if the file has "
    "exactly this size",
    see_also=("tests/shards/test_layouts.py", "tests/shards/test_foreign.py", "tests/encode/test_encode.py"),
)

MOST = 2**31 - 1
EOT = "<|endoftext|>"
SMALL = gm.Tokenizer([(b"l", b"o"), (b"lo", b"w")], special_tokens=[EOT])
TEXTS = ["low lower", "", "lowest low"]


def with_end_of_text(id, tmp_path):
    """Return a tokenizer whose largest id is `id`."""
    with pytest.warns(gm.FormatWarning):
        SMALL.export(tmp_path / "tok.tiktoken", format="tiktoken")
    return gm.Tokenizer.load(tmp_path / "tok.tiktoken", pattern="gpt2", special_tokens={EOT: id})


def sparse_llmc(path, num_tokens, *, header=None, last=()):
    fields = np.zeros(256, "<i4")
    fields[:2] = 20240520, 1
    fields[2:3].view("<u4")[0] = num_tokens if header is None else header
    with path.open("wb") as file:
        file.write(fields.tobytes())
        file.truncate(1024 + 2 * num_tokens)
        file.seek(1024 + 2 * (num_tokens - len(last)))
        file.write(np.array(last, "<u2").tobytes())


# The number of tokens


@pytest.mark.parametrize("shard_tokens", [2**31, 2**32 + 5, 2**63])
def test_row_20_shards_of_llmc_with_more_tokens_than_their_header_counts_are_refused(shard_tokens, tmp_path, capsys):
    message = rf"holds at most 2,147,483,647 tokens, not {shard_tokens:,}\. Pass a smaller"
    with pytest.raises(gm.OptionError, match=message):
        gm.encode_corpus(TEXTS, SMALL, out=tmp_path / "out", format="llmc", shard_tokens=shard_tokens, progress=None)
    assert list(tmp_path.iterdir()) == []


def test_row_20_the_command_line_refuses_them_too(tmp_path, capsys):
    SMALL.save(tmp_path / "tok.json")
    (tmp_path / "a.txt").write_text("low")
    names = [str(tmp_path / name) for name in ("a.txt", "tok.json", "out")]
    options = ["--format", "llmc", "--shard-tokens", str(2**31)]
    assert main(["encode", names[0], "-t", names[1], "-o", names[2], *options]) == 2
    assert "at most 2,147,483,647 tokens, not 2,147,483,648. Pass a smaller --shard-tokens" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_row_20_more_tokens_than_a_file_of_llmc_holds_are_split_into_shards(tmp_path, monkeypatch):
    # A lower limit takes the same path: a shard is closed at shard_tokens, which may not exceed the limit.
    monkeypatch.setattr(type(LAYOUTS["llmc"]), "max_tokens", 7)
    texts = ["low lower lowest " * 5, "low"]
    run = gm.encode_corpus(texts, SMALL, out=tmp_path / "out", format="llmc", shard_tokens=7, progress=None)
    files = sorted((tmp_path / "out").glob("*.bin"))
    shards = [READERS["llmc"](file, None, UINT16) for file in files]
    end = SMALL.special_tokens[EOT]
    assert [id for shard in shards for id in shard] == [id for text in texts for id in (end, *SMALL.encode(text))]
    assert [len(shard) for shard in shards[:-1]] == [7] * (len(shards) - 1) and len(shards) > 5
    assert run.manifest.splits["train"].tokens == sum(map(len, shards))


def test_row_20_a_header_is_never_written_with_a_number_that_wraps_around():
    found = LAYOUTS["llmc"]
    for dtype in (UINT16, UINT32):
        assert np.frombuffer(found.header(MOST, dtype), "<i4")[2] == MOST
        for num_tokens in (2**31, 2**32, 2**32 + 5):
            with pytest.raises(gm.OptionError, match=f"at most 2,147,483,647 tokens, not {num_tokens:,}"):
                found.header(num_tokens, dtype)


@pytest.mark.parametrize(("num_tokens", "header"), [(2**31, 2**31), (2**32 - 1, 2**32 - 1), (2**32 + 5, 5)])
def test_row_20_a_file_of_llmc_whose_header_has_wrapped_around_is_refused(num_tokens, header, tmp_path):
    sparse_llmc(tmp_path / "a_train_000001.bin", num_tokens, header=header)
    with pytest.raises(gm.ShardsFormatError, match=r"its header counts .* tokens, .* but its size is"):
        gm.Shards(tmp_path)


def test_row_20_positions_beyond_32_bits_are_read_from_two_full_files_of_llmc(tmp_path):
    sparse_llmc(tmp_path / "a_train_000001.bin", MOST, last=[1, 2, 3])
    sparse_llmc(tmp_path / "a_train_000002.bin", MOST, last=[4, 5, 6])
    sparse_llmc(tmp_path / "a_train_000003.bin", 9, last=[7] * 8 + [8])
    tokens = gm.Shards(tmp_path).tokens
    assert len(tokens) == 2 * MOST + 9
    assert tokens[MOST - 3 : MOST + 1].tolist() == [1, 2, 3, 0]
    assert tokens[2 * MOST - 3 : 2 * MOST + 2].tolist() == [4, 5, 6, 7, 7]
    assert (tokens[2**32 + 6], tokens[-1], tokens[2**31]) == (8, 8, 0)
    files = TokenFiles(tokens)
    assert files.stretch(2 * MOST - 1, 2 * MOST + 1).tolist() == [6, 7]
    order = WindowOrder(len(tokens), 8, seed=0, shift=True)
    starts = order.in_text_order(np.array([0, order.num_windows - 1]))
    assert starts.tolist() == [0, 2**32 - 8]
    assert files.windows(starts, 9).tolist() == [[0] * 9, [0, 0, 0, 4, 5, 6, 7, 7, 7]]


def test_row_20_documents_that_begin_beyond_32_bits_are_found(tmp_path):
    manifest = build_folder(tmp_path / "s", ["low", "low"], tokenizer=SMALL)
    entry = manifest.splits["train"].shards[0]
    first, ids = 2**32 + 3, SMALL.encode("lower")
    with (tmp_path / "s" / entry.file).open("wb") as file:
        file.seek(2 * first)
        file.write(np.array(ids, "<u2").tobytes())
    np.array([first, first + len(ids)], "<i8").tofile(tmp_path / "s" / entry.index)
    change_shard(tmp_path / "s", tokens=first + len(ids), bytes=2 * (first + len(ids)))
    shards = gm.Shards(tmp_path / "s")
    assert shards.document_ends.tolist() == [first, first + len(ids)]
    assert shards[1].tolist() == ids


def sparse_part(folder, ends):
    """A part with these document ends and a sparse file of tokens."""
    (folder / "ends").write_bytes(np.array(ends, "<i8").tobytes())
    with (folder / "tokens").open("wb") as file:
        file.truncate(2 * ends[-1])
    return Part(folder / "tokens", folder / "ends", ends[-1], len(ends), UINT16)


@pytest.mark.parametrize("name", ["megatron", "parquet"])
@pytest.mark.parametrize("ends", [[2**31], [5, 2**31 + 5], [5, 2**32 + 10]])
def test_row_20_a_document_of_two_to_the_31_tokens_is_refused_where_lengths_are_int32(name, ends, tmp_path):
    if name == "parquet":
        pytest.importorskip("pyarrow")
    part = sparse_part(tmp_path, ends)
    write = LAYOUTS[name].write_tokens if LAYOUTS[name].converts else LAYOUTS[name].write_index
    message = f"a document has {np.diff([0, *ends]).max():,} tokens.*2,147,483,647"
    with (tmp_path / "out").open("wb") as file, pytest.raises(gm.CorpusError, match=message):
        write(file, part)


def test_row_20_a_file_of_megatron_beyond_32_bits_has_pointers_of_64_bits(tmp_path):
    ends = [MOST, 2 * MOST, 2 * MOST + 3]
    part = sparse_part(tmp_path, ends)
    part.tokens.rename(tmp_path / "a.bin")
    with (tmp_path / "a.bin").open("r+b") as file:
        file.seek(2 * (2 * MOST))
        file.write(np.array([1, 2, 3], "<u2").tobytes())
    with (tmp_path / "a.idx").open("wb") as file:
        LAYOUTS["megatron"].write_index(file, part)
    part.ends.unlink()
    assert np.concatenate(list(LAYOUTS["megatron"].read_ends(tmp_path / "a.idx", 3, UINT16))).tolist() == ends
    shards = gm.Shards(tmp_path)
    assert shards.num_tokens == 2 * MOST + 3
    assert shards[2].tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", ["megatron", "parquet"])
def test_row_20_a_document_that_is_too_long_fails_the_run_and_leaves_no_finished_folder(name, tmp_path, monkeypatch):
    if name == "parquet":
        pytest.importorskip("pyarrow")
    monkeypatch.setattr({"megatron": megatron, "parquet": parquet}[name], "MAX_LENGTH", 20)
    texts = ["low", "low lower " * 20]
    with pytest.raises(gm.CorpusError, match=r"a document has \d+ tokens.*format='gristmill'"):
        gm.encode_corpus(texts, SMALL, out=tmp_path / "out", format=name, progress=None)
    assert not (tmp_path / "out" / "manifest.json").exists()
    monkeypatch.undo()
    gm.encode_corpus(texts, SMALL, out=tmp_path / "out", format=name, progress=None)
    assert gm.verify_shards(tmp_path / "out").is_sound


# The ids


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("largest", [65_498, 65_535, 65_536])
def test_row_20_an_id_beyond_uint16_is_refused_or_gets_wider_ids(name, largest, tmp_path):
    if name == "parquet":
        pytest.importorskip("pyarrow")
    tokenizer = with_end_of_text(largest, tmp_path)
    if name == "nanogpt" and largest == 65_536:
        with pytest.raises(gm.OptionError, match=r"ids up to 65535 .* the vocabulary has 65,537 ids"):
            gm.encode_corpus(TEXTS, tokenizer, out=tmp_path / "out", format=name, progress=None)
        assert not (tmp_path / "out").exists()
        return
    gm.encode_corpus(TEXTS, tokenizer, out=tmp_path / "out", format=name, progress=None)
    layout, dtype = LAYOUTS[name], LAYOUTS[name].dtype(tokenizer.vocab_size)
    index = layout.index_file("out", "train", 0)
    found = READERS[name](
        tmp_path / "out" / layout.token_file("out", "train", 0), index and tmp_path / "out" / index, dtype
    )
    flat = [id for row in found for id in row] if isinstance(found[0], list) else found
    rows = [tokenizer.encode(text) for text in TEXTS]
    assert flat == [
        id for ids in rows for id in ([*ids, largest] if layout.end_of_text == "after" else [largest, *ids])
    ]


def test_row_20_ids_that_do_not_fit_the_requested_type_are_refused_everywhere(tmp_path, capsys):
    tokenizer = with_end_of_text(65_536, tmp_path)
    (tmp_path / "a.txt").write_text("low")
    tokenizer.save(tmp_path / "tok.json")
    for encode in (
        lambda: gm.encode_corpus(TEXTS, tokenizer, out=tmp_path / "out", dtype="uint16", progress=None),
        lambda: tokenizer.encode_array("low", dtype="uint16"),
        lambda: tokenizer.encode_batch(TEXTS, dtype="uint16"),
        lambda: tokenizer.encode_file(tmp_path / "a.txt", dtype="uint16"),
        lambda: tokenizer.encode_array("low", dtype="uint8"),
        lambda: tokenizer.encode_array("low", dtype="int16"),
    ):
        with pytest.raises(gm.OptionError, match=r"cannot represent all ids up to 65536\. Pass uint32"):
            encode()
    names = [str(tmp_path / name) for name in ("a.txt", "tok.json", "out")]
    assert main(["encode", names[0], "-t", names[1], "-o", names[2], "--dtype", "uint16"]) == 2
    assert "uint16 cannot represent all ids up to 65536. Pass uint32" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_row_20_shards_of_uint16_are_not_continued_with_a_tokenizer_that_needs_uint32(tmp_path):
    (tmp_path / "a.txt").write_text("low lower")
    out = tmp_path / "out"
    gm.encode_corpus(tmp_path / "a.txt", with_end_of_text(65_535, tmp_path), out=out, progress=None)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(gm.ShardsMismatchError):
        gm.encode_corpus(tmp_path / "a.txt", with_end_of_text(65_536, tmp_path), out=out, progress=None)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_row_20_every_layout_says_how_many_tokens_a_file_holds():
    """A new layout with a field of 32 bits must set a limit: its header is then checked like that of llm.c."""
    limits = {name: layout.max_tokens for name, layout in LAYOUTS.items()}
    assert limits == dict.fromkeys(LAYOUTS, None) | {"llmc": MOST}
