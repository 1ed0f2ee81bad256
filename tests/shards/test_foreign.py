"""Folders of nanoGPT, llm.c, Megatron-LM and datatrove without a manifest, written here byte by byte."""

import itertools
import pickle
import struct

import numpy as np
import pytest

import gristmill as gm
from gristmill.shards import Shards, verify_shards
from shards.builder import END_OF_TEXT, train

TOKENIZER = train()
EOT = TOKENIZER.special_tokens[END_OF_TEXT]
TEXTS = ["low lower", "", "newest", "wider widest low"]
VAL_TEXTS = ["newer", "low"]


def rows(texts, *, before=False):
    """The ids of each document with its mark."""
    ids = [TOKENIZER.encode(text) for text in texts]
    return [[EOT, *row] if before else [*row, EOT] for row in ids]


def flat(documents):
    return list(itertools.chain.from_iterable(documents))


def write_nanogpt(folder):
    for name, texts in (("train.bin", TEXTS), ("val.bin", VAL_TEXTS)):
        np.array(flat(rows(texts)), "<u2").tofile(folder / name)
    # As nanoGPT's prepare.py leaves it beside them; unpickling it would run its content.
    (folder / "meta.pkl").write_bytes(b"cos\nsystem\n(S'touch unpickled'\ntR.")


def write_llmc(folder):
    for name, texts in (("val_000000", VAL_TEXTS), ("train_000001", TEXTS[:2]), ("train_000002", TEXTS[2:])):
        ids = flat(rows(texts, before=True))
        header = struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253)
        (folder / f"tales_{name}.bin").write_bytes(header + struct.pack(f"<{len(ids)}H", *ids))


def write_megatron(folder):
    """Like `preprocess_data.py`, with one sequence per document, or two for the first one."""
    for name, texts in (("tales_text_document", TEXTS), ("tales-valid_text_document", VAL_TEXTS)):
        documents = rows(texts)
        head, *rest = documents
        sequences = [head[:1], head[1:], *rest]
        ids = flat(sequences)
        (folder / f"{name}.bin").write_bytes(struct.pack(f"<{len(ids)}i", *ids))
        begins = [0, *itertools.accumulate(map(len, sequences))][:-1]
        indices = [0, *range(2, len(sequences) + 1)]
        index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, len(sequences), len(indices))
        index += struct.pack(f"<{len(sequences)}i", *map(len, sequences))
        index += struct.pack(f"<{len(sequences)}q", *(4 * begin for begin in begins))
        index += struct.pack(f"<{len(indices)}q", *indices)
        (folder / f"{name}.idx").write_bytes(index)


def write_datatrove(folder):
    for name, texts in (("00000_tales.ds", TEXTS[:1]), ("00001_tales.ds", TEXTS[1:]), ("00000_val.ds", VAL_TEXTS)):
        documents = rows(texts)
        ids, ends = flat(documents), list(itertools.accumulate(map(len, documents)))
        (folder / name).write_bytes(struct.pack(f"<{len(ids)}H", *ids))
        (folder / f"{name}.index").write_bytes(struct.pack(f"<{len(ends)}Q", *ends))
        (folder / f"{name}.metadata").write_text(f"tok.json|2\n{len(ids)}\n{len(ids)} T")


WRITERS = {
    "nanogpt": write_nanogpt,
    "llmc": write_llmc,
    "megatron": write_megatron,
    "datatrove": write_datatrove,
}
INDEXED = ("megatron", "datatrove")


@pytest.fixture(params=WRITERS)
def layout(request):
    return request.param


@pytest.fixture
def folder(layout, tmp_path):
    WRITERS[layout](tmp_path)
    return tmp_path


def test_the_layout_is_recognized_and_the_tokens_are_those_of_the_files(folder, layout):
    shards = Shards(folder)
    assert (shards.layout, shards.split, shards.splits) == (layout, "train", shards.splits)
    assert sorted(shards.splits) == ["train", "val"]
    assert shards.tokens[:].tolist() == flat(rows(TEXTS, before=layout == "llmc"))
    val = shards.other_split("val")
    assert np.asarray(val.tokens).tolist() == flat(rows(VAL_TEXTS, before=layout == "llmc"))


def test_the_documents_come_back_as_text_with_the_tokenizer(folder, layout, tmp_path):
    path = tmp_path / "tok" / "tokenizer.json"
    path.parent.mkdir()
    TOKENIZER.save(path)
    for tokenizer in (TOKENIZER, path, str(path)):
        shards = Shards(folder, tokenizer=tokenizer)
        assert [shards.decode(i) for i in range(len(shards))] == TEXTS
        assert [document.tolist() for document in shards] == rows(TEXTS, before=layout == "llmc")
        assert shards.vocab_size == TOKENIZER.vocab_size
    again = pickle.loads(pickle.dumps(shards))
    assert again.decode(3) == TEXTS[3]
    assert again.other_split("val").decode(0) == VAL_TEXTS[0]


def test_without_a_tokenizer_an_index_still_gives_documents(folder, layout):
    shards = Shards(folder)
    if layout in INDEXED:
        assert [document.tolist() for document in shards] == rows(TEXTS)
    else:
        with pytest.raises(gm.ShardsFormatError, match=r"do not record where documents end.*Pass tokenizer="):
            len(shards)


def test_what_only_a_manifest_states_is_an_error_that_says_so(folder, layout):
    shards = Shards(folder)
    assert not shards.has_manifest
    assert shards.vocab_size is None
    assert shards.end_of_text is None
    assert shards.tokenizer_fingerprint is None
    with pytest.raises(
        gm.ShardsFormatError, match=rf"these {layout} files were written by another program.*a manifest"
    ):
        shards.manifest  # noqa: B018
    with pytest.raises(gm.ShardsFormatError, match=r"do not include a tokenizer.*Pass tokenizer="):
        shards.tokenizer  # noqa: B018
    with pytest.raises(gm.ShardsFormatError, match="bytes of their texts"):
        shards.source_bytes  # noqa: B018
    with pytest.raises(gm.OptionError, match=r"split='test'.*splits: 'train', 'val'|splits: 'val', 'train'"):
        Shards(folder, split="test")


def test_it_is_shown_without_reading_tokens_or_a_tokenizer(folder, layout):
    for shards in (Shards(folder), Shards(folder, tokenizer=TOKENIZER)):
        assert f"layout '{layout}'" in repr(shards)
        assert f"<td>{layout}</td>" in shards._repr_html_()


def test_there_is_nothing_to_verify_it_against(folder, layout):
    with pytest.raises(gm.ShardsFormatError, match=rf"{layout} files of another program.*no manifest"):
        verify_shards(folder)


def test_a_file_cut_short_is_an_error_that_names_it(folder, layout):
    path = Shards(folder).paths[-1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(gm.ShardsFormatError, match=path.name):
        Shards(folder)


def test_a_file_cut_short_after_opening_is_an_error_and_not_a_bus_error(folder):
    shards = Shards(folder)
    shards.paths[0].write_bytes(shards.paths[0].read_bytes()[:-4])
    with pytest.raises(gm.ShardsFormatError, match="bytes"):
        shards.tokens[:]


def test_a_pickle_is_never_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_nanogpt(tmp_path)
    Shards(tmp_path).tokens[:]
    assert not (tmp_path / "unpickled").exists()


def test_uint32_files_of_llmc_are_recognized_by_their_magic(tmp_path):
    header = struct.pack("<256i", 20240801, 7, 2, *[0] * 253)
    (tmp_path / "big_train_000001.bin").write_bytes(header + struct.pack("<2I", 70_000, 5))
    assert Shards(tmp_path).tokens[:].tolist() == [70_000, 5]


def test_datatrove_files_without_an_index_are_as_wide_as_their_metadata_states(tmp_path):
    (tmp_path / "a.ds").write_bytes(struct.pack("<2I", 70_000, 5))
    with pytest.raises(gm.ShardsFormatError, match=r"a\.ds\.metadata.*2 or 4 bytes"):
        Shards(tmp_path)
    (tmp_path / "a.ds.metadata").write_text("gpt2|4\n2\n2 T")
    assert Shards(tmp_path).tokens[:].tolist() == [70_000, 5]


def test_files_of_two_widths_are_not_read_as_one(tmp_path):
    for name, code, width in (("a", 8, "H"), ("b", 4, "i")):
        (tmp_path / f"{name}.bin").write_bytes(struct.pack(f"<{width}", 1))
        index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQiqqq", 1, code, 1, 2, 1, 0, 0, 1)
        (tmp_path / f"{name}.idx").write_bytes(index)
    with pytest.raises(gm.ShardsFormatError, match=r"a\.bin and b\.bin do not belong together"):
        Shards(tmp_path)


@pytest.mark.parametrize(
    ("begin", "data", "message"),
    [
        (9, struct.pack("<Q", 2), "version 2"),
        (17, b"\x07", "dtype code 7"),
        (18, struct.pack("<Q", 2**62), "header counts"),
        (26, struct.pack("<Q", 0), "header counts"),
    ],
)
def test_a_forged_megatron_index_is_refused(begin, data, message, tmp_path):
    write_megatron(tmp_path)
    path = tmp_path / "tales_text_document.idx"
    whole = bytearray(path.read_bytes())
    whole[begin : begin + len(data)] = data
    path.write_bytes(whole)
    with pytest.raises(gm.ShardsFormatError, match=message):
        Shards(tmp_path)


def test_megatron_document_indices_that_lead_nowhere_are_an_error(tmp_path):
    write_megatron(tmp_path)
    path = tmp_path / "tales_text_document.idx"
    path.write_bytes(path.read_bytes()[:-8] + struct.pack("<q", 2**40))
    with pytest.raises(gm.ShardsFormatError, match="document indices"):
        Shards(tmp_path)[0]


def test_a_negative_length_in_a_megatron_index_is_refused_when_it_is_opened(tmp_path):
    (tmp_path / "a.bin").write_bytes(struct.pack("<3i", 1, 2, 3))
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, 2, 3) + struct.pack("<2i2q3q", -1, 4, 0, -4, 0, 1, 2)
    (tmp_path / "a.idx").write_bytes(index)
    for read in (Shards, verify_shards):
        with pytest.raises(gm.ShardsFormatError, match=r"a\.idx: sequence 0 has the negative length -1"):
            read(tmp_path)


def test_a_damaged_index_of_another_program_is_not_referred_to_verify(tmp_path):
    (tmp_path / "a.ds").write_bytes(struct.pack("<4H", 1, 2, 3, 4))
    (tmp_path / "a.ds.index").write_bytes(struct.pack("<3Q", 3, 2, 4))
    with pytest.raises(gm.ShardsFormatError) as caught:
        Shards(tmp_path)[1]
    assert "verify" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (struct.pack("<256i", 20240520, 2, 0, *[0] * 253), "version 2.*reads version 1"),
        (struct.pack("<256i", 20240801, 1, 0, *[0] * 253), "version 1.*reads version 7"),
        (struct.pack("<3i", 20240520, 1, 0), "1,024 bytes, but this file has 12"),
    ],
)
def test_a_file_of_llmc_with_another_header_is_refused_with_what_is_wrong(tmp_path, data, message):
    (tmp_path / "tales_train_000001.bin").write_bytes(data)
    with pytest.raises(gm.ShardsFormatError, match=message):
        Shards(tmp_path)
