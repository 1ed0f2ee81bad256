"""compat.huggingface without transformers: the calls of a training script, compared with the `tokenizers` library."""

from __future__ import annotations

import json
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import gristmill as gm
from gristmill.compat.huggingface import BatchEncoding
from gristmill.compat.huggingface import StandInTokenizerFast as PreTrainedTokenizerFast
from texts import STORY, random_story

END = "<|endoftext|>"
TEXTS = ["the miller ground", "rye", "", f"héllo 😀{END}"]


@pytest.fixture(scope="module")
def tok():
    return gm.train_tokenizer([STORY, random_story(1, 2000)], vocab_size=500, special_tokens=[END, "<pad>"])


@pytest.fixture
def tokenizer(tok):
    return PreTrainedTokenizerFast(tok, eos_token=END, bos_token=END, pad_token="<pad>")


def ids_of(tok, text):
    return tok.encode(text, allowed_special="all")


def test_one_text_gives_flat_lists(tok, tokenizer):
    encoding = tokenizer(TEXTS[3])
    assert encoding.input_ids == encoding["input_ids"] == ids_of(tok, TEXTS[3])
    assert encoding.attention_mask == [1] * len(encoding.input_ids)
    assert set(encoding) == {"input_ids", "attention_mask"}
    assert tokenizer.encode(TEXTS[3]) == encoding.input_ids
    assert tokenizer(TEXTS[3], return_attention_mask=False).keys() == {"input_ids"}


def test_several_texts_give_lists_of_lists(tok, tokenizer):
    batch = tokenizer(TEXTS)
    assert batch.input_ids == [ids_of(tok, text) for text in TEXTS]
    assert list(map(len, batch.attention_mask)) == list(map(len, batch.input_ids))
    assert tokenizer([]).input_ids == []


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("padding", [True, "longest", "max_length"])
def test_padding(tok, tokenizer, side, padding):
    tokenizer.padding_side = side
    batch = tokenizer(TEXTS, padding=padding, max_length=30)
    rows = [ids_of(tok, text) for text in TEXTS]
    width = 30 if padding == "max_length" else max(map(len, rows))
    for ids, mask, row in zip(batch.input_ids, batch.attention_mask, rows, strict=True):
        pads = [tokenizer.pad_token_id] * (width - len(row))
        assert ids == (row + pads if side == "right" else pads + row)
        ones, zeros = [1] * len(row), [0] * len(pads)
        assert mask == (ones + zeros if side == "right" else zeros + ones)


def test_padding_to_a_multiple(tokenizer):
    for padding, options in ((True, {}), ("max_length", {"max_length": 30})):
        batch = tokenizer(TEXTS, padding=padding, pad_to_multiple_of=8, return_tensors="np", **options)
        assert batch.input_ids.shape[1] % 8 == 0


@pytest.mark.parametrize("side", ["right", "left"])
def test_truncation(tok, tokenizer, side):
    tokenizer.truncation_side = side
    whole = ids_of(tok, TEXTS[0])
    kept = whole[:2] if side == "right" else whole[-2:]
    assert tokenizer(TEXTS[0], truncation=True, max_length=2).input_ids == kept
    assert tokenizer([TEXTS[0]], max_length=2).input_ids == [kept]
    assert tokenizer(TEXTS[0], truncation=False, max_length=2).input_ids == whole
    assert tokenizer(TEXTS[0], truncation=True).input_ids == whole
    tokenizer.model_max_length = 2
    assert tokenizer(TEXTS[0], truncation=True).input_ids == kept
    assert tokenizer(TEXTS[0], truncation=True, return_offsets_mapping=True).input_ids == kept


def test_arrays(tok, tokenizer):
    batch = tokenizer(TEXTS, padding=True, return_tensors="np")
    assert batch.input_ids.dtype == batch.attention_mask.dtype == np.int64
    assert batch.input_ids.tolist() == tokenizer(TEXTS, padding=True).input_ids
    assert tokenizer(TEXTS[0], return_tensors="np").input_ids.tolist() == [ids_of(tok, TEXTS[0])]
    with pytest.raises(ValueError, match="different lengths"):
        tokenizer(TEXTS, return_tensors="np")


def test_torch_is_imported_only_for_its_tensors(tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    tokenizer(TEXTS, padding=True, return_tensors="np")
    with pytest.raises(ImportError):
        tokenizer(TEXTS, padding=True, return_tensors="pt")
    fake = types.SimpleNamespace(from_numpy=lambda array: ("tensor", array.tolist()))
    monkeypatch.setitem(sys.modules, "torch", fake)
    assert tokenizer("rye", return_tensors="pt").input_ids == ("tensor", [tokenizer("rye").input_ids])


def test_offsets_are_those_of_characters(tok, tokenizer):
    batch = tokenizer(TEXTS, return_offsets_mapping=True)
    assert batch.input_ids == tokenizer(TEXTS).input_ids
    for text, spans, ids in zip(TEXTS, batch.offset_mapping, batch.input_ids, strict=True):
        if text.isascii():
            assert [text[begin:end] for begin, end in spans] == [tok.decode([id]) for id in ids]
    padded = tokenizer(TEXTS, return_offsets_mapping=True, padding=True, return_tensors="np")
    assert padded.offset_mapping.shape == (*padded.input_ids.shape, 2)
    assert padded.offset_mapping[2].tolist() == [[0, 0]] * padded.input_ids.shape[1]


def test_decoding(tok, tokenizer):
    ids = tokenizer(TEXTS[3]).input_ids
    for form in (ids, np.array(ids), tuple(ids)):
        assert tokenizer.decode(form) == TEXTS[3]
    assert tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) == "héllo 😀"
    assert tokenizer.decode(tokenizer.eos_token_id) == END
    batch = tokenizer(TEXTS, padding=True, return_tensors="np").input_ids
    assert tokenizer.batch_decode(batch, skip_special_tokens=True) == [text.replace(END, "") for text in TEXTS]


def test_roles_are_set_by_token_or_by_id(tok):
    tokenizer = PreTrainedTokenizerFast(tok)
    assert tokenizer.pad_token is tokenizer.pad_token_id is None
    with pytest.raises(ValueError, match="padding needs a pad token"):
        tokenizer(TEXTS, padding=True)
    assert tokenizer(["rye", "rye"], padding=True).input_ids
    tokenizer.eos_token = END
    tokenizer.pad_token = tokenizer.eos_token
    assert tokenizer.pad_token_id == tok.special_tokens[END]
    tokenizer.pad_token_id = tok.special_tokens["<pad>"]
    assert tokenizer.pad_token == "<pad>"
    tokenizer.pad_token = None
    assert tokenizer.pad_token_id is None
    with pytest.raises(gm.SpecialTokenError, match="add_special_tokens"):
        tokenizer.pad_token = "[PAD]"


def test_new_special_tokens_get_the_next_ids(tok, tokenizer):
    before = tokenizer.encode(STORY)
    added = tokenizer.add_special_tokens({"pad_token": "[PAD]", "additional_special_tokens": ["<|user|>", END]})
    assert added == 2
    assert (tokenizer.pad_token_id, len(tokenizer)) == (500, 502)
    assert tokenizer.encode("<|user|>") == [501]
    assert tokenizer.encode(STORY) == before
    with pytest.raises(ValueError, match="not a role"):
        tokenizer.add_special_tokens({"pda_token": "x"})


def test_the_vocabulary_is_written_in_the_alphabet_of_gpt2(tok, tokenizer):
    vocab = tokenizer.get_vocab()
    assert len(vocab) == len(tokenizer) == 500
    assert tokenizer.vocab_size == 500
    assert vocab[END] == tokenizer.convert_tokens_to_ids(END) == tok.special_tokens[END]
    tokens = tokenizer.tokenize(f" the mill{END}")
    assert tokens[-1] == END
    assert tokens[0].startswith("Ġ")
    assert tokenizer.convert_tokens_to_ids(tokens) == tokenizer.encode(f" the mill{END}")
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode(f" the mill{END}"), skip_special_tokens=True) == tokens[:-1]
    assert tokenizer.convert_ids_to_tokens(vocab[END]) == END
    assert tokenizer.convert_tokens_to_ids("certainly not a token") is None
    assert tokenizer.all_special_ids == list(tok.special_tokens.values())


def test_unsupported_arguments_are_errors(tokenizer):
    for options, message in (
        ({"text_pair": "b"}, "pairs of texts"),
        ({"padding": "shortest"}, "padding must be .*, got 'shortest'"),
        ({"truncation": "only_second"}, "truncation must be .*, got 'only_second'"),
        ({"return_tensors": "tf"}, "return_tensors must be .*, got 'tf'"),
        ({"padding": "max_length"}, "needs max_length"),
        ({"padding": "max_length", "max_length": 1}, "more than max_length=1"),
    ):
        with pytest.raises(ValueError, match=message):
            tokenizer("the miller", **options)
    with pytest.raises(TypeError):
        tokenizer([1, 2])
    with pytest.raises(FileNotFoundError, match="tokenizer_object='gpt2': there is no such file or folder"):
        PreTrainedTokenizerFast("gpt2")
    with pytest.raises(TypeError, match="tokenizer_object is of type int"):
        PreTrainedTokenizerFast(3)
    with pytest.raises(ValueError, match=r"pass exactly one of .*, got neither\."):
        PreTrainedTokenizerFast()
    with pytest.raises(ValueError, match=r"pass exactly one of .*, got both\."):
        PreTrainedTokenizerFast("tok.json", tokenizer_file="tok.json")


def test_pad_makes_a_batch_of_encodings(tokenizer):
    rows = [tokenizer(text) for text in TEXTS]
    assert tokenizer.pad(rows).data == tokenizer(TEXTS, padding=True).data
    assert tokenizer.pad(tokenizer(TEXTS), return_tensors="np").input_ids.shape[0] == len(TEXTS)


def test_encodings_and_tokenizers_can_be_pickled(tokenizer):
    batch = tokenizer(TEXTS)
    copy = pickle.loads(pickle.dumps(batch))
    assert isinstance(copy, BatchEncoding)
    assert copy.input_ids == batch.input_ids
    assert not hasattr(copy, "labels")
    assert pickle.loads(pickle.dumps(tokenizer))(TEXTS, padding=True) == tokenizer(TEXTS, padding=True)


def test_tensors_move_to_a_device():
    tensor = types.SimpleNamespace(to=lambda device: f"on {device}")
    assert BatchEncoding({"input_ids": tensor}).to("cuda").input_ids == "on cuda"


def test_saved_files_are_read_by_tokenizers_and_by_us(tok, tokenizer, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer.model_max_length = 512
    files = tokenizer.save_pretrained(tmp_path / "saved")
    assert sorted(map(str, (tmp_path / "saved").iterdir())) == sorted(files)
    assert [Path(file).name for file in files] == ["tokenizer_config.json", "tokenizer.json"]
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
    for text in [*TEXTS, STORY]:
        assert theirs.encode(text).ids == tokenizer(text).input_ids
    ours = PreTrainedTokenizerFast.from_pretrained(tmp_path / "saved")
    assert ours(TEXTS, padding=True).data == tokenizer(TEXTS, padding=True).data
    assert (ours.eos_token, ours.bos_token_id, ours.model_max_length) == (END, tok.special_tokens[END], 512)
    config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text("utf-8"))
    assert config["pad_token"] == "<pad>"


def test_a_folder_without_files_is_an_error(tmp_path):
    with pytest.raises(gm.TokenizerFormatError, match="has no tokenizer file"):
        PreTrainedTokenizerFast.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing is downloaded"):
        PreTrainedTokenizerFast.from_pretrained(tmp_path / "missing")


@pytest.mark.parametrize("name", ["tokenizer.json", "mill.json", "mill.model"])
def test_a_folder_with_a_tokenizer_of_any_format_is_read(tok, name, tmp_path):
    tok.export(tmp_path / name, format="minbpe" if name.endswith(".model") else "gristmill")
    ours = PreTrainedTokenizerFast.from_pretrained(tmp_path, eos_token=END)
    assert ours(TEXTS).input_ids == PreTrainedTokenizerFast(tok)(TEXTS).input_ids
    assert ours.eos_token_id == tok.special_tokens[END]


@pytest.mark.parametrize("text", [None, 3, b"rye"])
def test_an_object_that_is_not_a_text_is_a_type_error(tokenizer, text):
    with pytest.raises(TypeError, match=rf"text must be a str or a list of str, got {type(text).__name__}"):
        tokenizer(text)


@pytest.mark.parametrize("max_length", ["3", 1.5, 0, -1])
def test_an_invalid_length_is_named(tokenizer, max_length):
    with pytest.raises(gm.OptionError, match=r"max_length(=| must be >= 1)"):
        tokenizer("rye", max_length=max_length)
    with pytest.raises(gm.OptionError, match="max_length="):
        tokenizer("rye", padding="max_length", max_length=max_length)


def test_a_multiple_that_is_not_a_number_is_named(tokenizer):
    with pytest.raises(gm.OptionError, match="pad_to_multiple_of='8' is of type str"):
        tokenizer("rye", padding=True, pad_to_multiple_of="8")


@pytest.mark.parametrize("name", ["padding_side", "truncation_side"])
def test_an_invalid_side_is_refused_when_it_is_set(tok, tokenizer, name):
    with pytest.raises(gm.OptionError, match=f"{name}='zz' is not valid"):
        setattr(tokenizer, name, "zz")
    with pytest.raises(gm.OptionError, match=f"{name}='zz' is not valid"):
        PreTrainedTokenizerFast(tok, **{name: "zz"})
    setattr(tokenizer, name, "left")
    assert getattr(tokenizer, name) == "left"
