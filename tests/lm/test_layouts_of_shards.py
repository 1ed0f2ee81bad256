"""Training on token files of every layout, including those of other programs."""

import json
import warnings

import numpy as np
import pytest

import gristmill as gm
from gristmill.shards import LAYOUTS
from lm.tiny_runs import VOCAB_SIZE, build_folder, texts, tokenizer, train

MAPPED = [name for name in LAYOUTS if not LAYOUTS[name].converts]


def train_and_val(tmp_path, layout, *, manifest=True):
    folder = tmp_path / layout
    build_folder(folder, texts(60), layout=layout, tokenizer=tokenizer(), val_texts=texts(20, 1), position="after")
    if not manifest:  # as another program would leave the folder
        (folder / "manifest.json").unlink()
        (folder / "tokenizer.json").unlink()
    return folder


def losses(run):
    return [json.loads(line).get("loss") for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("layout", [name for name in MAPPED if name != "gristmill"])
def test_the_same_ids_in_another_layout_train_the_same_model(layout, tmp_path):
    train(train_and_val(tmp_path, "gristmill"), tmp_path / "expected", max_steps=4, val_check_interval=2)
    result = train(train_and_val(tmp_path, layout), tmp_path / "run", max_steps=4, val_check_interval=2)
    assert losses(tmp_path / "run") == losses(tmp_path / "expected")
    assert result.bits_per_byte is not None


@pytest.mark.parametrize("layout", ["nanogpt", "llmc", "megatron", "datatrove"])
def test_a_folder_of_another_program_trains_with_its_largest_id_as_the_vocabulary(layout, tmp_path):
    folder = train_and_val(tmp_path, layout, manifest=False)
    largest = max(int(np.asarray(gm.Shards(folder, split=split).tokens).max()) for split in ("train", "val"))
    with pytest.warns(gm.FormatWarning, match=rf"Using vocab_size={largest + 1},.* Pass vocab_size=") as warned:
        result = train(folder, tmp_path / "run", max_steps=2, val_check_interval=2)
    assert len(warned) == 1
    assert json.loads((tmp_path / "run" / "config.json").read_text())["vocab_size"] == largest + 1
    assert result.bits_per_byte is None


def test_a_folder_of_another_program_trains_with_the_vocabulary_that_is_asked_for_or_of_the_tokenizer(tmp_path):
    folder = train_and_val(tmp_path, "nanogpt", manifest=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", gm.FormatWarning)
        train(folder, tmp_path / "asked", max_steps=1, vocab_size=512)
        train(gm.Shards(folder, tokenizer=tokenizer()), tmp_path / "given", max_steps=1)
    sizes = [json.loads((tmp_path / run / "config.json").read_text())["vocab_size"] for run in ("asked", "given")]
    assert sizes == [512, VOCAB_SIZE]
    assert gm.Tokenizer.load(tmp_path / "given" / "tokenizer.json").fingerprint == tokenizer().fingerprint


@pytest.mark.filterwarnings("ignore::gristmill.FormatWarning")
def test_a_model_of_a_folder_of_another_program_writes_text_with_the_tokenizer_that_is_passed(tmp_path):
    folder = train_and_val(tmp_path, "nanogpt", manifest=False)
    train(folder, tmp_path / "run", max_steps=1)
    with pytest.raises(gm.CheckpointError, match="Pass tokenizer="):
        gm.lm.generate(tmp_path / "run", "low", device="cpu")
    text = gm.lm.generate(tmp_path / "run", "low", max_tokens=5, seed=0, device="cpu", tokenizer=tokenizer())
    assert isinstance(text, str)
    assert gm.lm.evaluate(tmp_path / "run", folder, device="cpu").num_tokens > 0
