"""A gradient that is not finite changes no weight. The run stops, and all remaining checkpoints are good."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import gristmill.lm.training.run as run_module
from gristmill import NotFiniteError
from gristmill.lm.models.gpt.network import GPT
from gristmill.lm.training.checkpoint import list_checkpoints
from gristmill.lm.training.optimizers import Optimizers, build_optimizer
from gristmill.lm.training.weight_updates import WeightUpdates, are_finite
from lm.tiny_runs import assert_same_run, tensors, train
from scripts import run_script

torch.set_num_threads(1)

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def poison(monkeypatch, step, value=math.nan):
    """Make the gradient of a training step not finite, without changing its loss."""
    real, calls = GPT.loss, []

    def loss(self, batch, schedule):
        found, stats = real(self, batch, schedule)
        if self.training:
            calls.append(1)
            if len(calls) == step:
                found.register_hook(lambda gradient: gradient * value)
        return found, stats

    monkeypatch.setattr(GPT, "loss", loss)


OPTIONS = {"keep": 1, "checkpoint_interval": 5, "val_check_interval": 0, "log_interval": 4}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("step", "value", "optimizer", "left", "waits"),
    [
        (1, math.nan, "adamw", None, True),
        (1, math.nan, "muon", None, False),
        (7, math.nan, "muon", 5, False),
        (8, math.inf, "adamw", 5, False),
        (10, math.nan, "adamw", 5, True),
        (10, math.nan, "adamw", 5, False),
        (20, math.nan, "adamw", 15, True),
        (20, -math.inf, "muon", 15, False),
    ],
)
def test_a_gradient_that_is_not_finite_stops_the_run_and_leaves_a_good_checkpoint(
    tiny_shards, tmp_path, monkeypatch, step, value, optimizer, left, waits, device
):
    options = {**OPTIONS, "optimizer": optimizer, "device": device, "deterministic": True}
    train(tiny_shards, tmp_path / "whole", **{**options, "keep": 10})
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "WeightUpdates", lambda *a, **k: WeightUpdates(*a, **k, waits=waits))
        poison(patched, step, value)
        with pytest.raises(NotFiniteError, match=f"^the gradient norm of step {step} is NaN or infinite"):
            train(tiny_shards, tmp_path / "run", **options)
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == ([f"step-{left:06d}"] if left else [])
    if left:
        for file in ("model.safetensors", "optimizer.safetensors"):
            kept, expected = tensors(tmp_path / "run", left, file), tensors(tmp_path / "whole", left, file)
            assert kept.keys() == expected.keys()
            assert all(torch.equal(kept[name], expected[name]) for name in kept)
    train(tiny_shards, tmp_path / "run", resume="auto", **options)
    assert_same_run(tmp_path / "whole", tmp_path / "run", 20)


def test_on_a_cpu_the_run_stops_at_the_step_and_not_at_the_next_record(tiny_shards, tmp_path, monkeypatch):
    poison(monkeypatch, 3)
    real, taken = WeightUpdates.update, []
    monkeypatch.setattr(WeightUpdates, "update", lambda self: (taken.append(1), real(self))[1])
    with pytest.raises(NotFiniteError, match="No checkpoint was saved yet"):
        train(tiny_shards, tmp_path / "run", **{**OPTIONS, "log_interval": 20})
    assert len(taken) == 3


def test_weights_that_are_not_finite_are_never_saved(tiny_shards, tmp_path, monkeypatch):
    real, taken = Optimizers.step, []

    def step(self):
        real(self)
        taken.append(1)
        if len(taken) == 10:
            with torch.no_grad():
                self.torch_optimizers[0].param_groups[0]["params"][0][0, 0] = math.inf

    monkeypatch.setattr(Optimizers, "step", step)
    with pytest.raises(NotFiniteError, match=r"^a weight after step 10 is NaN or inf.*step-000005 is the last good"):
        train(tiny_shards, tmp_path / "run", **OPTIONS)
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == ["step-000005"]


# The update itself


def setting(device, name, *, waits, scaler=None, build=build_optimizer):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 4)).to(device)
    fabric = SimpleNamespace(
        device=torch.device(device), strategy=SimpleNamespace(precision=SimpleNamespace(scaler=scaler))
    )
    optimizers = build(model, name, lr=0.1)
    return model, optimizers, WeightUpdates(fabric, optimizers, model, clip_norm=1.0, waits=waits)


def step(model, updates, factor=1.0, scaler=None):
    device = next(model.parameters()).device
    loss = model(torch.ones(2, 4, device=device)).pow(2).sum()
    (loss if scaler is None else scaler.scale(loss)).backward()
    for parameter in model.parameters():
        parameter.grad *= factor
    return updates.update().item()


def copied(model, optimizers):
    named = {**model.state_dict(), **optimizers.state_tensors()[0]}
    return {name: tensor.detach().clone() for name, tensor in named.items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_after_a_bad_gradient_nothing_changes_any_more(device, name, bad, waits):
    model, optimizers, updates = setting(device, name, waits=waits)
    assert all(math.isfinite(step(model, updates)) for _ in range(3))
    before = copied(model, optimizers)
    assert math.isnan(step(model, updates, bad))
    assert math.isnan(step(model, updates))
    assert same(copied(model, optimizers), before)
    assert updates.has_failed == waits
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_check_that_waits_and_one_that_does_not_give_the_same_weights(name):
    found = []
    for waits in (True, False):
        model, optimizers, updates = setting("cpu", name, waits=waits)
        norms = [step(model, updates) for _ in range(5)]
        found.append((norms, copied(model, optimizers)))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("waits", [True, False])
def test_with_a_loss_scale_a_few_bad_steps_are_skipped_and_the_run_continues(name, waits):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    model, optimizers, updates = setting("cpu", name, waits=waits, scaler=scaler)
    assert math.isfinite(step(model, updates, scaler=scaler))
    before = copied(model, optimizers)
    assert [step(model, updates, math.inf, scaler) for _ in range(3)] == [math.inf] * 3
    assert step(model, updates, math.nan, scaler) == math.inf
    assert same(copied(model, optimizers), before)
    assert scaler.get_scale() == 2.0**6
    assert math.isfinite(step(model, updates, scaler=scaler))
    assert not same(copied(model, optimizers), before)


def test_with_a_loss_scale_a_bad_gradient_of_one_optimizer_skips_the_step_of_all():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    model, optimizers, updates = setting("cpu", "muon", waits=None, scaler=scaler)
    step(model, updates, scaler=scaler)
    before = copied(model, optimizers)
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    model[0].weight.grad[0, 0] = math.inf  # a weight that Muon optimizes
    updates.update()
    assert same(copied(model, optimizers), before)


@pytest.mark.parametrize("scale", [2.0**16, 2.0**120])
def test_a_loss_scale_that_shrinks_to_nothing_stops_the_run(scale):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    model, _, updates = setting("cpu", "adamw", waits=None, scaler=scaler)
    norms = [step(model, updates, math.nan, scaler) for _ in range(110)]
    assert norms.index(next(filter(math.isnan, norms))) == min(math.log2(scale), 99)
    assert updates.has_failed


def test_an_optimizer_that_knows_no_guard_is_checked_by_the_host():
    def build(model, name, lr):
        return Optimizers(name, [torch.optim.SGD(model.parameters(), lr=lr)], dict(model.named_parameters()))

    for device in DEVICES:
        model, optimizers, updates = setting(device, "mine", waits=None, build=build)
        step(model, updates)
        before = copied(model, optimizers)
        assert math.isnan(step(model, updates, math.nan)) and updates.has_failed
        assert same(copied(model, optimizers), before)


def test_sharded_weights_are_left_alone_too(tmp_path):
    answer = run_script(
        """
        import sys, torch, math
        from types import SimpleNamespace
        from torch import nn
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from gristmill.lm.training.optimizers import build_optimizer
        from gristmill.lm.training.weight_updates import WeightUpdates, are_finite
        torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meet", rank=0, world_size=1)
        model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        optimizers = build_optimizer(model, lr=0.1)
        fabric = SimpleNamespace(device=torch.device("cpu"), strategy=SimpleNamespace(precision=None))
        updates = WeightUpdates(fabric, optimizers, model, clip_norm=1.0, waits=False)
        copies = []
        for factor in (1.0, 1.0, math.nan, 1.0):
            (model(torch.ones(2, 4)).pow(2).sum() * factor).backward()
            norm = updates.update().item()
            copies.append([parameter.full_tensor().clone() for parameter in model.parameters()])
            assert math.isfinite(norm) == (len(copies) < 3), norm
        equal = [all(map(torch.equal, *pair)) for pair in zip(copies, copies[1:])]
        assert equal == [False, True, True], equal
        assert are_finite([*model.state_dict().values(), torch.ones(3)])
        torch.distributed.destroy_process_group()
        """,
        tmp_path,
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_number_among_many_is_found(bad):
    good = [torch.ones(100, 3), torch.arange(4), torch.tensor(2.0), torch.full((5,), 3e38)]
    assert are_finite(good)
    for index in (0, 2, 3):
        damaged = [tensor.clone() for tensor in good]
        damaged[index].view(-1)[-1] = bad
        assert not are_finite(damaged)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("scaled", [False, True])
def test_on_a_gpu_nothing_waits_for_the_device(name, scaled):
    scaler = torch.amp.GradScaler("cuda") if scaled else None
    model, _, updates = setting("cuda", name, waits=None, scaler=scaler)
    step(model, updates, scaler=scaler)
    loss = model(torch.ones(2, 4, device="cuda")).sum()
    (loss if scaler is None else scaler.scale(loss)).backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        updates.update()
    finally:
        torch.cuda.set_sync_debug_mode("default")
