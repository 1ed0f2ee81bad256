"""The pictures of README and docs are those that the code draws now, and their plain copies of algorithms are right."""

import random
import sys
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import gristmill as gm
from gristmill import reference

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import draw_pictures  # noqa: E402
from gristmill import _core  # noqa: E402
from pictures import cuts, rounds, svg, symbol_array  # noqa: E402

TRAINS_A_MODEL = {"how/run-folder", "how/resuming"}
DRAWN_BY_HAND = {draw_pictures.IMAGES / name for name in ("logo.svg", "favicon.svg")}
DRAWN_BY_CODE = sorted(set(draw_pictures.IMAGES.rglob("*.svg")) - DRAWN_BY_HAND)


@pytest.mark.parametrize("name", sorted(draw_pictures.PICTURES))
def test_the_committed_picture_is_what_the_code_draws(name):
    if name in TRAINS_A_MODEL:
        pytest.importorskip("torch")
    for path, content in draw_pictures.draw(name).items():
        assert path.read_text(encoding="utf-8") == content, f"{path.name} is out of date: run `make plots`"


def test_no_picture_is_left_that_nothing_draws():
    stems = [draw_pictures.IMAGES / name for name in draw_pictures.PICTURES]
    drawn = {stem.with_name(f"{stem.name}-{theme}.svg") for stem in stems for theme in svg.THEMES}
    assert set(DRAWN_BY_CODE) == drawn


@pytest.mark.parametrize("path", DRAWN_BY_CODE, ids=lambda path: path.stem)
def test_the_picture_is_well_formed_and_says_what_it_shows(path):
    root = ET.fromstring(path.read_text(encoding="utf-8"))
    names = [element.tag.rpartition("}")[2] for element in root]
    assert names[:2] == ["title", "desc"]
    assert all(len(root[i].text) > 4 for i in range(2))
    assert not {"script", "image", "foreignObject"} & set(names)


def random_words(seed):
    source = random.Random(seed)
    return {
        bytes(source.choices(b"abcd", k=source.randint(1, 9))): source.randint(1, 20)
        for _ in range(source.randint(1, 30))
    }


@pytest.mark.parametrize("seed", range(20))
def test_the_drawn_symbol_array_learns_the_merges_of_the_core(seed):
    words = random_words(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gm.EarlyStopWarning)
        tok = gm.train_tokenizer(gm.Words.from_counts(words), vocab_size=257 + 15, progress=None)
    assert symbol_array.learn(words, 15)[: len(tok.merges)] == tok.merges


@pytest.mark.parametrize("seed", range(20))
def test_the_drawn_rounds_learn_the_merges_of_the_sequential_loop(seed):
    words = random_words(seed)
    merges, done = rounds.learn_in_rounds(words, 15)
    assert merges == reference.learn_merges(words, 15)
    assert sum(each.kept for each in done) == len(merges)


def test_some_drawn_rounds_make_several_merges():
    assert max(each.kept for each in rounds.learn_in_rounds(random_words(3), 15)[1]) > 1


@pytest.mark.parametrize("block_bytes", [1, 2, 5, 24, 1000])
def test_the_drawn_blocks_cover_the_text_once_and_cut_no_piece(block_bytes):
    found = cuts.block_stretches(_core.find_cuts(cuts.TEXT, "gpt2").tolist(), len(cuts.TEXT), block_bytes)
    assert b"".join(cuts.TEXT[begin:end] for begin, end in found) == cuts.TEXT
    pieces = [piece for begin, end in found for piece in reference.pretokenize(cuts.TEXT[begin:end])]
    assert pieces == list(reference.pretokenize(cuts.TEXT))


def test_a_drawing_that_leaves_the_picture_is_an_error():
    picture = svg.Picture("t", "d", width=100)
    with pytest.raises(ValueError, match="right of the width 100"):
        picture.text(10, 10, "x" * 50)
