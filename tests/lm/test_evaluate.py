"""Evaluate: loss and bits per byte of a checkpoint."""

import math

import pytest
import torch

import gristmill as gm
from gristmill import CheckpointError, OptionError
from gristmill.lm.data.token_dataset import TokenDataset
from gristmill.lm.data.window_data import WindowData
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.training.checkpoint import load_model
from gristmill.lm.training.losses import mean_loss
from gristmill.lm.use.evaluation import evaluate
from lm.tiny_runs import build_shards, records, train


@pytest.fixture(scope="module")
def run(tiny_shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    train(tiny_shards, folder)
    return folder


def test_it_gives_the_loss_that_the_run_recorded_at_its_end(run, tiny_shards):
    last = records(run, "val")[-1]
    found = evaluate(run, tiny_shards, which="latest")
    assert found.full
    assert (found.loss, found.num_tokens) == (pytest.approx(last["loss"], abs=1e-6), last["num_tokens"])
    assert found.bits_per_byte == pytest.approx(last["bits_per_byte"], abs=1e-6)


def test_the_loss_is_the_mean_over_every_target_whatever_the_batch_size(run, tiny_shards):
    shards = gm.Shards(tiny_shards, split="val")
    model, config = load_model(run, which="latest")
    tokens = torch.from_numpy(shards.tokens[:].astype("int64"))
    losses = []
    for begin in range(0, len(tokens) - config.model.context_length, config.model.context_length):
        window = tokens[begin : begin + config.model.context_length + 1]
        with torch.no_grad():
            logits = model(window[None, :-1])[0]
        losses += torch.nn.functional.cross_entropy(logits, window[1:], reduction="none").tolist()
    for batch_size in (1, 3, 7):
        found = evaluate(run, tiny_shards, which="latest", batch_size=batch_size)
        assert found.num_tokens == len(losses)
        assert found.loss == pytest.approx(sum(losses) / len(losses), abs=1e-5)


def test_bits_per_byte_are_those_of_the_texts(tiny_shards):
    shards = gm.Shards(tiny_shards, split="val")
    bits = 2.0 / math.log(2) * shards.num_tokens
    assert WindowData(shards, GPTConfig()).bits_per_byte(2.0, "val") == pytest.approx(bits / shards.source_bytes)


def test_the_subset_is_the_same_each_time(run, tiny_shards):
    one, other = (evaluate(run, tiny_shards, limit_batches=2) for _ in range(2))
    assert (one.loss, one.full, one.num_tokens) == (other.loss, False, 2 * 4 * 16)


def test_the_module_is_back_in_its_mode_and_a_stop_gives_nothing(run, tiny_shards):
    from gristmill.lm.training.losses import LossModule

    model, _ = load_model(run)
    module = LossModule(model).train()
    dataset = TokenDataset(gm.Shards(tiny_shards), context_length=16, batch_size=4, seed=0)
    assert mean_loss(module, dataset.validation_batches(2), stopped=lambda: True) is None
    assert module.training
    assert mean_loss(module, []) is None


def test_shards_of_another_tokenizer_are_refused(run, tmp_path):
    from shards.builder import build_folder

    build_folder(tmp_path / "other", ["low lower " * 30] * 9, val_texts=["low lower " * 30])
    with pytest.raises(CheckpointError, match=r"the tokenizer is different .* Encode the text with .*tokenizer.json"):
        evaluate(run, tmp_path / "other")


def test_other_shards_of_the_same_tokenizer_are_fine(run, tmp_path):
    assert evaluate(run, build_shards(tmp_path / "more", seed=9), split="train").loss > 0


def test_an_unknown_precision_or_checkpoint_is_refused(run, tiny_shards):
    with pytest.raises(OptionError, match="precision='8' is not known"):
        evaluate(run, tiny_shards, precision="8")
    with pytest.raises(CheckpointError, match="no checkpoint 'step-1'"):
        evaluate(run, tiny_shards, which="step-1")
    assert evaluate(run, tiny_shards, precision="bf16-mixed", device="cpu").loss > 0
