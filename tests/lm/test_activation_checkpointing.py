"""activation_checkpointing: training is identical, with each layer recomputed in the backward pass."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from torch import nn

import gristmill as gm
from gristmill.errors import OptionError
from gristmill.lm.data.batch import Batch
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.models.model import Model
from gristmill.lm.models.vae.network import SequenceVAE
from gristmill.lm.models.vae.options import VAEConfig
from gristmill.lm.training.advice import out_of_memory
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.set_up import recompute_blocks
from lm.launched_world import train_on_two
from lm.test_distributed import losses
from lm.tiny_runs import records, tensors, train

torch.set_num_threads(1)

OPTIONS = {"max_steps": 8, "log_interval": 1, "checkpoint_interval": 4, "val_check_interval": 4}


def gpt(**changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": 70, "context_length": 32, "num_layers": 3, "num_heads": 4, "d_model": 32}
    return GPT(GPTConfig(**{**sizes, **changes}))


def vae(**changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": 70, "max_sequence_length": 32, "num_layers": 2, "num_heads": 2, "d_model": 32}
    return SequenceVAE(VAEConfig(**{**sizes, **changes}))


def a_batch():
    tokens_BT = torch.randint(70, (2, 32), generator=torch.Generator().manual_seed(1))
    return Batch(tokens_BT, tokens_BT.roll(-1, 1))


def stepped(loss_of, model):
    """Return the loss, its gradients, and the state of the generator afterwards."""
    torch.manual_seed(7)
    model.zero_grad()
    loss, _ = loss_of(a_batch(), {})
    after_forward = torch.get_rng_state()
    loss.backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    return {"loss": loss.detach(), "generator": after_forward, **found}


def kept_bytes(model):
    """Return the size of the tensors that the graph of a loss keeps for the backward pass."""
    sizes = {}

    def count(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        graph = model.loss(a_batch(), {})
    del graph
    return sum(sizes.values())


@pytest.mark.parametrize("make", [gpt, vae])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_loss_and_gradients_are_the_same_bits_on_a_cpu(make, dropout):
    usual, recomputing = make(dropout=dropout), make(dropout=dropout)
    recompute_blocks(recomputing)
    expected, found = stepped(usual.loss, usual), stepped(recomputing.loss, recomputing)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("options", [{"qk_norm": True, "num_kv_heads": 2}, {"sliding_window": 5}], ids=str)
def test_other_kinds_of_attention_are_recomputed_too(options):
    usual, recomputing = gpt(**options), gpt(**options)
    recompute_blocks(recomputing)
    expected, found = stepped(usual.loss, usual), stepped(recomputing.loss, recomputing)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_compiled_model_has_the_gradients_to_rounding(dropout):
    torch._dynamo.reset()
    usual, recomputing = gpt(dropout=dropout), gpt(dropout=dropout)
    recompute_blocks(recomputing)
    compiled = torch.compile(recomputing.loss, backend="aot_eager")
    expected, found = stepped(usual.loss, usual), stepped(compiled, recomputing)
    for name in expected.keys() - {"generator"}:
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-4)


# The VAE has as many layers in its encoder, and its decoder reads four positions more.
@pytest.mark.parametrize(("make", "input_positions"), [(gpt, 32), (vae, 32 + 36)])
def test_a_layer_keeps_only_its_input_for_the_backward_pass(make, input_positions):
    sizes = []
    for num_layers in (1, 5):
        model = make(num_layers=num_layers)
        recompute_blocks(model)
        sizes.append(kept_bytes(model))
    assert sizes[1] - sizes[0] == 4 * (2 * input_positions * 32 * 4), "4 layers, 2 sequences, 32 float32 each"


def test_names_and_weights_stay_as_they_are():
    model = gpt()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    recompute_blocks(model)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_in_evaluation_nothing_is_recomputed_and_a_cache_works():
    model = gpt().eval()
    tokens_BT = a_batch().inputs_BT
    expected = model(tokens_BT)
    recompute_blocks(model)
    calls = []
    model.blocks[0].feed_forward.register_forward_hook(lambda *_: calls.append(1))
    cache = model.new_cache(2, "cpu", torch.float32)
    parts = torch.cat([model(part, cache=cache) for part in tokens_BT.split((3, 1, 28), dim=1)], dim=1)
    torch.testing.assert_close(parts, expected, atol=1e-5, rtol=1e-5)
    assert len(calls) == 3


class Flat(Model):
    """A model without a list of layers."""

    def __init__(self):
        super().__init__(None)
        self.linear = nn.Linear(2, 2)


def test_a_model_without_layers_is_refused():
    with pytest.raises(OptionError, match="Flat has no layers under the names in SHARDED_UNITS, 'blocks'"):
        recompute_blocks(Flat())


def test_it_is_advised_when_memory_runs_out_unless_it_is_on():
    config = TrainConfig.from_options({"num_layers": 2})
    assert "activation_checkpointing=True" in out_of_memory(config)
    assert "activation_checkpointing" not in out_of_memory(dataclasses.replace(config, activation_checkpointing=True))


# Runs


def test_a_run_is_the_same_bits_with_and_without_it(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "usual", dropout=0.2, **OPTIONS)
    train(tiny_shards, tmp_path / "recomputed", dropout=0.2, activation_checkpointing=True, **OPTIONS)
    usual, recomputed = tensors(tmp_path / "usual", 8), tensors(tmp_path / "recomputed", 8)
    assert all(torch.equal(usual[name], recomputed[name]) for name in usual)
    assert losses(tmp_path / "usual", "val") == losses(tmp_path / "recomputed", "val")
    saved = json.loads((tmp_path / "recomputed/config.json").read_text())
    assert saved["activation_checkpointing"] is True


def test_it_may_be_switched_on_when_a_run_is_resumed(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "parts", **{**OPTIONS, "max_steps": 4, "schedule": "constant"})
    train(tiny_shards, tmp_path / "parts", resume="auto", max_steps=8, activation_checkpointing=True)
    events = [record for record in records(tmp_path / "parts", "event") if "activation_checkpointing" in str(record)]
    assert events, "the change is recorded"


def test_two_ranks_take_the_steps_of_one(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "one", batch_size=8, **OPTIONS)
    runs = {tmp_path / strategy: strategy for strategy in ("ddp", "fsdp")}
    train_on_two(tmp_path, tiny_shards, runs, **OPTIONS, batch_size=4, activation_checkpointing=True)
    for run in runs:
        assert losses(run) == pytest.approx(losses(tmp_path / "one"), abs=2e-5)


def test_generation_from_such_a_run_needs_nothing_else(tiny_shards, tmp_path):
    options = {**OPTIONS, "sample_interval": 4, "sample_tokens": 5}
    train(tiny_shards, tmp_path / "run", activation_checkpointing=True, **options)
    assert records(tmp_path / "run", "sample")
    assert gm.lm.generate(tmp_path / "run", "the cat", max_tokens=5, seed=0)
