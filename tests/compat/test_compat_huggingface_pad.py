"""`pad` of the stand-in, key by key; compared with transformers' `pad` where it is installed."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import gristmill as gm
from gristmill.compat.huggingface import StandInTokenizerFast

END, PAD = "<|endoftext|>", "<pad>"
TOK = gm.Tokenizer([(b"h", b"i")], special_tokens=[END, PAD])


@pytest.fixture
def tokenizer():
    return StandInTokenizerFast(TOK, eos_token=END, pad_token=PAD)


def rows(**columns):
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


IDS = [[1, 2, 3], [4]]


def test_labels_of_a_text_are_kept(tokenizer):
    """A version that only handles input_ids drops them, and the loss silently disappears."""
    batch = tokenizer.pad(rows(input_ids=IDS, labels=[1, 0]), return_tensors="np")
    assert batch.labels.tolist() == [1, 0]
    assert batch.input_ids.tolist() == [[1, 2, 3], [4, 258, 258]]


def test_labels_of_tokens_are_passed_on_and_not_padded(tokenizer):
    batch = tokenizer.pad(rows(input_ids=IDS, labels=IDS))
    assert batch.labels == IDS
    with pytest.raises(gm.OptionError, match=r"'labels' has rows of different lengths.*-100"):
        tokenizer.pad(rows(input_ids=IDS, labels=IDS), return_tensors="np")


def test_a_given_attention_mask_is_extended_and_not_replaced(tokenizer):
    encodings = rows(input_ids=IDS, attention_mask=[[1, 0, 1], [0]])
    assert tokenizer.pad(encodings).attention_mask == [[1, 0, 1], [0, 0, 0]]
    assert tokenizer.pad(encodings, padding_side="left").attention_mask == [[1, 0, 1], [0, 0, 0]]
    assert tokenizer.pad(rows(input_ids=IDS, attention_mask=[[1, 1, 1], [1]]), padding_side="left").attention_mask == [
        [1, 1, 1],
        [0, 0, 1],
    ]
    assert encodings == rows(input_ids=IDS, attention_mask=[[1, 0, 1], [0]])  # the caller's encodings are unchanged


def test_type_ids_and_the_mask_of_special_tokens_are_padded(tokenizer):
    batch = tokenizer.pad(rows(input_ids=IDS, token_type_ids=[[0, 1, 1], [1]], special_tokens_mask=[[0, 0, 1], [0]]))
    assert batch.token_type_ids == [[0, 1, 1], [1, 0, 0]]
    assert batch.special_tokens_mask == [[0, 0, 1], [0, 1, 1]]


def test_one_encoding_is_padded_to_a_length(tokenizer):
    batch = tokenizer.pad({"input_ids": [1, 2], "labels": 7}, padding="max_length", max_length=4)
    assert batch.data == {"input_ids": [1, 2, 258, 258], "labels": 7, "attention_mask": [1, 1, 0, 0]}


def test_arrays_stay_arrays(tokenizer):
    batch = tokenizer.pad([{"input_ids": np.array(ids), "labels": 0.5} for ids in IDS])
    assert isinstance(batch.input_ids, np.ndarray)
    assert batch.labels.tolist() == [0.5, 0.5]


def test_what_does_not_make_a_batch_is_named(tokenizer):
    for encodings, message in (
        ([{"labels": 1}], "no 'input_ids'"),
        ([{"input_ids": [1], "labels": 1}, {"input_ids": [1]}], "encoding 1 has no 'labels'"),
        ({"input_ids": IDS, "labels": [1]}, "'labels' must have one entry for each of the 2"),
    ):
        with pytest.raises(gm.OptionError, match=message):
            tokenizer.pad(encodings)
    with pytest.raises(gm.OptionError, match="'name' has values that are not numbers"):
        tokenizer.pad(rows(input_ids=IDS, name=["a", "b"]), return_tensors="np")
    with pytest.raises(TypeError, match="encoding 0 must be a dict with 'input_ids', got list"):
        tokenizer.pad(IDS)


MASKS, TYPES, SPECIALS = [[1, 0, 1], [1]], [[0, 0, 1], [1]], [[0, 1, 0], [0]]
CASES = {
    "ids": rows(input_ids=IDS),
    "columns": {"input_ids": IDS, "labels": [3, 4]},
    "labels of texts": rows(input_ids=IDS, labels=[1, 0]),
    "labels that are floats": rows(input_ids=IDS, labels=[0.5, 1.5]),
    "labels of equal length": rows(input_ids=IDS, labels=[[1, 2], [3, 4]]),
    "a mask": rows(input_ids=IDS, attention_mask=MASKS),
    "all": rows(input_ids=IDS, attention_mask=MASKS, token_type_ids=TYPES, special_tokens_mask=SPECIALS, idx=[8, 9]),
    "one": {"input_ids": [1, 2, 3], "attention_mask": [1, 1, 0], "labels": [4]},
    "arrays": [{"input_ids": np.array(ids), "labels": np.array(1)} for ids in IDS],
    "an empty text": rows(input_ids=[[], [5, 6]], labels=[1, 2]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_tensors": "np"},
        {"return_tensors": "pt"},
        {"padding": False},
        {"padding": "max_length", "max_length": 5},
        {"pad_to_multiple_of": 4, "return_tensors": "np"},
        {"padding_side": "left"},
        {"return_attention_mask": False},
    ],
    ids=str,
)
def test_every_key_is_what_transformers_makes_of_it(tokenizer, case, options):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=TOK.to_huggingface(),
        eos_token=END,
        pad_token=PAD,
        model_input_names=["input_ids", "attention_mask"],
    )
    try:
        expected = theirs.pad(copy.deepcopy(CASES[case]), **options)
    except ValueError:
        expected = None
    if expected is None or any(str(getattr(value, "dtype", "")) == "object" for value in expected.values()):
        with pytest.raises(
            gm.OptionError, match="rows of different lengths"
        ):  # transformers makes arrays of arrays for "np"
            tokenizer.pad(CASES[case], **options)
        return
    found = tokenizer.pad(CASES[case], **options)
    assert set(found) == set(expected)
    for key, value in expected.items():
        assert type(found[key]) is type(value)
        if hasattr(value, "dtype"):
            assert found[key].dtype == value.dtype
        assert np.array_equal(np.asarray(found[key], object), np.asarray(value, object))
