"""Ragged: rows of ids of different lengths."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import gristmill as gm
from gristmill import Ragged

ROWS = [[1, 2, 3], [], [4], [5, 6]]


@pytest.fixture
def rows():
    return Ragged(np.array([1, 2, 3, 4, 5, 6], np.uint16), np.array([0, 3, 3, 4, 6]))


def test_it_is_a_sequence_of_rows(rows):
    assert len(rows) == 4
    assert rows.tolist() == ROWS
    assert [row.tolist() for row in rows] == ROWS
    assert [rows[i].tolist() for i in range(-4, 4)] == ROWS * 2
    assert rows.lengths.tolist() == [3, 0, 1, 2]
    for i in (4, -5):
        with pytest.raises(IndexError, match=f"row {i} is out of range: there are 4 rows"):
            rows[i]
    with pytest.raises(TypeError):
        rows["a"]


def test_a_row_is_a_view_and_a_slice_is_a_ragged(rows):
    assert np.shares_memory(rows[0], rows.ids)
    assert rows[1:].tolist() == ROWS[1:]
    assert rows[::-1].tolist() == ROWS[::-1]
    assert rows[9:].tolist() == []


def test_no_rows_at_all():
    empty = Ragged(np.empty(0, np.uint16), np.zeros(1, np.int64))
    assert len(empty) == 0
    assert empty.tolist() == list(empty) == []
    ids, mask = empty.padded(0, length=3)
    assert ids.shape == mask.shape == (0, 3)
    assert empty.padded(0)[0].shape == (0, 0)


def test_truncated_cuts_at_the_right_or_the_left(rows):
    assert rows.truncated(2).tolist() == [[1, 2], [], [4], [5, 6]]
    assert rows.truncated(2, side="left").tolist() == [[2, 3], [], [4], [5, 6]]
    assert rows.truncated(3) == rows
    assert rows.truncated(10**30) == rows
    assert rows.truncated(2).ids.dtype == np.uint16


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2", None, True])
def test_an_invalid_length_is_an_option_error(rows, bad):
    with pytest.raises(gm.OptionError, match="max_tokens="):
        rows.truncated(bad)


def test_padded_at_the_right_and_the_left(rows):
    ids, mask = rows.padded(9)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 9], [4, 9, 9], [5, 6, 9]]
    assert mask.tolist() == [[True] * 3, [False] * 3, [True, False, False], [True, True, False]]
    ids, mask = rows.padded(9, side="left", length=4)
    assert ids.tolist() == [[9, 1, 2, 3], [9, 9, 9, 9], [9, 9, 9, 4], [9, 9, 5, 6]]
    assert mask.sum(1).tolist() == [3, 0, 1, 2]
    assert ids.dtype == np.uint16
    assert rows.padded(-100, dtype="int64")[0].min() == -100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 2}, r"length=2 is too small: row 0 has 3 ids.*truncated\(2\)"),
        ({"side": "top"}, "side='top' is not known. Pass 'right' or 'left'"),
        ({"pad_id": -100}, "dtype=uint16 cannot represent pad_id=-100"),
        ({"pad_id": 70_000}, "cannot represent pad_id=70000"),
        ({"dtype": "float32"}, "dtype=float32 cannot represent"),
    ],
)
def test_impossible_padding_is_refused(rows, arguments, message):
    with pytest.raises(gm.OptionError, match=message):
        rows.padded(**({"pad_id": 0} | arguments))


@pytest.mark.parametrize(
    ("ids", "offsets"),
    [
        ([1, 2], np.array([0, 2])),
        (np.array([1, 2]), [0, 2]),
        (np.array([[1, 2]]), np.array([0, 2])),
        (np.array([1, 2]), np.array([0.0, 2.0])),
        (np.array([1, 2]), np.array([], int)),
        (np.array([1, 2]), np.array([0, 1])),
        (np.array([1, 2]), np.array([1, 2])),
        (np.array([1, 2]), np.array([0, 3, 2])),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(ids, offsets):
    with pytest.raises(gm.OptionError):
        Ragged(ids, offsets)


def test_it_is_frozen_equal_by_value_and_picklable(rows):
    with pytest.raises(AttributeError):
        rows.ids = None
    for twin in (pickle.loads(pickle.dumps(rows)), copy.copy(rows), copy.deepcopy(rows)):
        assert twin == rows
    assert rows != rows[1:]
    assert rows != ROWS
    with pytest.raises(TypeError, match="unhashable"):
        hash(rows)


@pytest.mark.parametrize("value", [1.5, "x", None, True])
def test_padding_takes_whole_numbers_only(value):
    rows = Ragged(np.array([5, 6, 7]), np.array([0, 1, 3]))
    with pytest.raises(gm.OptionError, match=r"pad_id=.* Pass an int"):
        rows.padded(value)
    if value is not None:
        with pytest.raises(gm.OptionError, match=r"length=.* Pass an int"):
            rows.padded(0, length=value)
