"""Runs of the trainer whose step is computed with kernels."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
import torch

import gristmill as gm
from gristmill.lm.kernels import embedding, float8
from gristmill.lm.models.gpt.network import GPT
from gristmill.lm.models.registry import build_model
from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training import kernels, set_up, trainer
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.triton_adamw import TritonAdamW
from gristmill.report.records import read_records
from gristmill.report.summary import summarise
from lm.kernels.comparing import relative
from lm.tiny_runs import Crash, assert_same_run, crash_at, records, tensors, train

GPU = torch.device("cuda")
COMPILES = kernels.why_not_compiled


@pytest.fixture(autouse=True)
def kernels_on_every_device(monkeypatch):
    use_kernels_on_every_device(monkeypatch)


def use_kernels_on_every_device(patch):
    """Let runs on a CPU use kernels as on an H100. The interpreter runs them."""
    if not torch.cuda.is_available():
        decide, check = kernels._why_not, kernels._check_float8
        patch.setattr(kernels, "_why_not", lambda config, model, device: decide(config, model, GPU))
        patch.setattr(kernels, "_check_float8", lambda config, device: check(config, GPU))
        patch.setattr(kernels, "why_not_compiled", lambda device, uses_float8: None)
        pretend(patch, "NVIDIA H100", (9, 0))


def pretend(monkeypatch, name, capability):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: name)


SHORT = {
    "num_layers": 1,
    "batch_size": 1,
    "max_steps": 4,
    "checkpoint_interval": 2,
    "log_interval": 1,
    "precision": "bf16-mixed",
    "deterministic": True,
    "device": "auto",
}


def run(shards, out, **options):
    return train(shards, out, **{**SHORT, **options})


def losses(folder):
    return [record["loss"] for record in records(folder, "train")]


def messages(folder):
    return [record["message"] for record in records(folder, "event")]


def scales(folder, step):
    return checkpoints.read_state(folder / "checkpoints" / f"step-{step:06d}").get("float8")


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """A run of 4 steps of two micro-batches with all products in 8-bit floats, never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        use_kernels_on_every_device(patch)
        run(shards, folder, float8="all", gradient_accumulation_steps=2)
    return folder


# Learning


@pytest.mark.parametrize(("optimizer", "float8"), [("adamw", "off"), ("adamw", "all"), ("muon", "head")])
def test_a_run_with_kernels_learns_what_a_plain_one_learns(shards, tmp_path, optimizer, float8):
    options = {
        "optimizer": optimizer,
        "learning_rate": 1e-2,
        "max_steps": 5,
        "warmup_steps": 0,
        "checkpoint_interval": 5,
    }
    run(shards, tmp_path / "plain", **options, kernels="plain")
    run(shards, tmp_path / "kernels", **options, float8=float8)
    plain, found = losses(tmp_path / "plain"), losses(tmp_path / "kernels")
    assert plain[-1] < plain[0] - 0.1
    assert found == pytest.approx(plain, abs=0.01 if float8 == "off" else 0.05)


def test_two_micro_batches_are_one_batch_of_both(shards, tmp_path):
    for batch_size, number in ((2, 1), (1, 2)):
        run(shards, tmp_path / f"{number}", batch_size=batch_size, gradient_accumulation_steps=number, max_steps=2)
    one, other = (tensors(tmp_path / name, 2, "optimizer.safetensors") for name in "12")
    for name, moment in one.items():
        assert relative(other[name], moment) < 0.02, name


def test_a_learning_rate_that_makes_weights_infinite_stops_the_run(shards, tmp_path):
    with pytest.raises(gm.NotFiniteError):
        run(
            shards,
            tmp_path / "run",
            learning_rate=1e38,
            float8="all",
            warmup_steps=0,
            checkpoint_interval=0,
            clip_norm=0,
        )


# Whether kernels are used


def test_a_run_with_kernels_says_so(shards, tmp_path):
    run(shards, tmp_path / "off", max_steps=1, compile_model=True)
    run(shards, tmp_path / "all", max_steps=1, float8="all")
    assert (
        "Triton kernels compute the training step, so compile_model has no effect. kernels='plain' turns them off."
        in messages(tmp_path / "off")
    )
    assert (
        "Triton kernels compute the training step, with products in 8-bit floats (float8='all'). kernels='plain' turns "
        "them off." in messages(tmp_path / "all")
    )


def test_plain_turns_kernels_off(shards, tmp_path, monkeypatch):
    monkeypatch.setattr(GPT, "use_kernels", None)
    run(shards, tmp_path / "run", kernels="plain", max_steps=1)
    assert not [message for message in messages(tmp_path / "run") if "Triton" in message]


def settled(model="gpt", **options):
    sizes = {"context_length": 16, "num_layers": 1, "num_heads": 2, "d_model": 32}
    given = {"batch_size": 1, "max_steps": 1, "precision": "bf16-mixed", "float8": "all", **sizes, **options}
    config = TrainConfig.from_options({"model": model, "vocab_size": 300, **given}, source="test")
    return config, build_model(config.model, seed=0)


def refusal(device=GPU, **options):
    with pytest.raises(gm.OptionError) as error:
        kernels.use_kernels(*settled(**options), device)
    return str(error.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kernels": "plain"}, "kernels='plain'"),
        ({"precision": "32"}, "precision='32', and kernels need 'bf16-mixed'"),
        ({"precision": "16-mixed"}, "precision='16-mixed', and kernels need 'bf16-mixed'"),
        ({"strategy": "fsdp"}, "strategy='fsdp'"),
        ({"activation_checkpointing": True}, "activation_checkpointing=True"),
        ({"dropout": 0.1}, "dropout=0.1"),
        ({"d_model": 24}, "heads have a size of 12, and kernels need a power of 2 from 16 to 256"),
    ],
)
def test_8_bit_floats_without_kernels_are_an_error_with_the_reason(options, reason):
    message = refusal(**options)
    assert message == (
        f"float8='all' needs the Triton kernels of a model, which this run cannot use: {reason}. Change that, or pass "
        f"float8='off'."
    )


def test_other_reasons_against_kernels_only_turn_them_off():
    assert kernels.use_kernels(*settled(dropout=0.1, float8="off"), GPU) is None
    assert kernels.use_kernels(*settled(float8="off"), GPU) is not None


@pytest.mark.parametrize(
    ("options", "number"),
    [({"d_model": 24}, 1), ({}, 0), ({"dropout": 0.1, "d_model": 24}, 0), ({"kernels": "plain", "d_model": 24}, 0)],
)
def test_a_size_of_heads_that_turns_kernels_off_is_reported(options, number):
    found = []
    kernels.use_kernels(*settled(**options, float8="off"), GPU, notify=found.append)
    assert len(found) == number
    assert all("heads have a size of 12, and kernels need a power of 2 from 16 to 256" in text for text in found)


def test_a_run_reports_the_size_of_its_heads_once(shards, tmp_path):
    run(shards, tmp_path / "run", max_steps=1, d_model=24, num_heads=2, batch_size="auto")
    assert [message for message in messages(tmp_path / "run") if "kernels" in message] == [
        "no Triton kernels: heads have a size of 12, and kernels need a power of 2 from 16 to 256. The run continues "
        "with plain torch, more slowly."
    ]


def test_a_cpu_has_no_kernels(shards, tmp_path, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(gm.OptionError, match=r"runs on device 'cpu', and kernels need an NVIDIA GPU.*float8='off'"):
        run(shards, tmp_path / "run", float8="head", device="cpu")
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_vae_has_no_kernels(shards, tmp_path):
    with pytest.raises(gm.OptionError, match=r"model='vae' has no kernels\. Change that, or pass float8='off'"):
        gm.lm.train(shards, out=tmp_path / "run", model="vae", float8="all", precision="bf16-mixed", progress=None)


def test_without_triton_a_run_is_plain_and_8_bit_floats_are_an_error(monkeypatch):
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: None)
    assert kernels.use_kernels(*settled(float8="off"), GPU) is None
    assert "Triton is not installed" in refusal()


def test_a_gpu_without_8_bit_products_is_an_error_that_names_it(monkeypatch):
    pretend(monkeypatch, "NVIDIA A100-SXM4-80GB", (8, 0))
    assert "8.9 or newer, such as L4, RTX 4090 or H100, but NVIDIA A100-SXM4-80GB has 8.0." in refusal()
    assert kernels.use_kernels(*settled(float8="off"), GPU) is not None


def test_a_gpu_without_8_bit_products_compiles_no_conversion_to_them(monkeypatch):
    pretend(monkeypatch, "NVIDIA A100-SXM4-80GB", (8, 0))
    monkeypatch.setattr(kernels, "why_not_compiled", lambda device, uses_float8: "Triton cannot compile them here")
    assert "but NVIDIA A100-SXM4-80GB has 8.0." in refusal()


def test_a_run_that_ends_with_an_error_does_not_announce_that_it_continues(monkeypatch):
    monkeypatch.setattr(kernels, "why_not_compiled", lambda device, uses_float8: "Triton cannot compile them here")
    found = []
    with pytest.raises(gm.OptionError, match="Triton cannot compile them here"):
        kernels.use_kernels(*settled(), GPU, notify=found.append)
    assert found == []
    assert kernels.use_kernels(*settled(float8="off"), GPU, notify=found.append) is None
    assert found == [
        "no Triton kernels: Triton cannot compile them here. The run continues with plain torch, more slowly."
    ]


def test_a_gpu_without_bfloat16_has_no_kernels(monkeypatch):
    pretend(monkeypatch, "Tesla T4", (7, 5))
    assert kernels.use_kernels(*settled(float8="off"), GPU) is None
    assert "Tesla T4 has compute capability 7.5, and kernels need 8.0 or newer" in refusal()


def test_a_gpu_of_amd_has_no_kernels(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert kernels.use_kernels(*settled(float8="off"), GPU) is None
    assert "a GPU of AMD" in refusal()


def test_a_micro_batch_that_8_bit_products_cannot_take_is_an_error_before_the_run():
    assert "batch_size=3 x context_length=20 is not one" in refusal(batch_size=3, context_length=20)
    assert kernels.use_kernels(*settled(batch_size=4, context_length=20), GPU) is not None


def test_an_automatic_batch_size_is_an_error_before_its_first_trial_if_one_sequence_cannot_be_tried():
    assert "batch_size='auto' with float8='all' needs a context_length that is a multiple of 16, but it is 20" in (
        refusal(batch_size="auto", context_length=20)
    )
    assert kernels.use_kernels(*settled(batch_size="auto", context_length=32), GPU) is not None


def test_an_automatic_batch_size_that_cannot_be_tried_leaves_no_run(shards, tmp_path, monkeypatch):
    monkeypatch.setattr(set_up, "find_batch_size", None)
    with pytest.raises(gm.OptionError, match="Change context_length, or pass a number as batch_size"):
        run(shards, tmp_path / "run", float8="all", batch_size="auto", context_length=20)
    assert not (tmp_path / "run" / "config.json").exists()


def test_an_unknown_value_is_an_error_that_lists_the_known_ones():
    with pytest.raises(gm.OptionError, match="'off', 'head', 'blocks'"):
        TrainConfig(float8="e4m3")
    with pytest.raises(gm.OptionError, match="'auto'"):
        TrainConfig(kernels="triton")


def test_a_dry_run_uses_the_kernels_of_the_run(shards, monkeypatch):
    used = []
    use = GPT.use_kernels
    monkeypatch.setattr(GPT, "use_kernels", lambda self, **options: used.append(options) or use(self, **options))
    plan = gm.lm.plan(shards, **{**SHORT, "context_length": 16, "num_heads": 2, "d_model": 32, "float8": "all"})
    assert used == [{"float8": "all", "is_deterministic": True}]
    assert plan.step_seconds > 0


# Resuming


def test_a_run_resumed_in_its_middle_is_bit_exact_with_8_bit_floats(shards, whole, tmp_path):
    options = {"float8": "all", "gradient_accumulation_steps": 2}
    with pytest.raises(Crash):
        run(shards, tmp_path / "run", progress=crash_at(3), **options)
    run(shards, tmp_path / "run", resume=True, **options)
    assert_same_run(whole, tmp_path / "run", 4)
    assert scales(whole, 4) == scales(tmp_path / "run", 4)


class OnThreeDevices:
    """A run that believes that it has three devices, as far as `_fix_order_of_sums` sees."""

    def __init__(self, run):
        self._run = run
        self.fabric = SimpleNamespace(world_size=3, backward=run.fabric.backward)

    def __getattr__(self, name):
        return getattr(self._run, name)


def test_the_pass_that_fixes_the_order_of_sums_changes_no_scale(shards, whole, tmp_path, monkeypatch):
    """Its loss is not divided by the number of micro-batches, so its gradients are greater than those of a step."""
    passes, fix = [], trainer._fix_order_of_sums
    monkeypatch.setattr(trainer, "_fix_order_of_sums", lambda run: passes.append(run.step) or fix(OnThreeDevices(run)))
    options = {"float8": "all", "gradient_accumulation_steps": 2}
    with pytest.raises(Crash):
        run(shards, tmp_path / "run", progress=crash_at(3), **options)
    run(shards, tmp_path / "run", resume=True, **options)
    assert passes == [0, 2]
    assert_same_run(whole, tmp_path / "run", 4)
    assert scales(whole, 4) == scales(tmp_path / "run", 4)


def test_a_checkpoint_has_the_scale_of_every_tensor(whole):
    found = scales(whole, 2)
    assert len(found) == 2 + 3 * 3
    assert all(0 < scale < 1e12 for scale in found.values())
    assert found != scales(whole, 4)


def test_a_run_without_8_bit_floats_saves_no_scales(shards, tmp_path):
    run(shards, tmp_path / "run", max_steps=1)
    assert scales(tmp_path / "run", 1) is None


def stopped(shards, out, **options):
    with pytest.raises(Crash):
        run(shards, out, progress=crash_at(3), **options)
    return out


@pytest.mark.parametrize(("before", "now"), [("off", "all"), ("head", "all"), ("all", "head"), ("all", "off")])
def test_a_run_may_resume_with_other_8_bit_floats_and_finds_new_scales(shards, tmp_path, before, now):
    folder = stopped(shards, tmp_path / "run", float8=before)
    run(shards, folder, float8=now, resume=True)
    assert len(losses(folder)) == 4
    assert any(f"float8 was {before!r} and is now {now!r}" in message for message in messages(folder))
    assert len(scales(folder, 4) or ()) == {"off": 0, "head": 2, "all": 11}[now]


@pytest.mark.parametrize("begins_with", ["auto", "plain"])
def test_a_run_may_resume_with_or_without_kernels(shards, tmp_path, begins_with):
    folder = stopped(shards, tmp_path / "run", kernels=begins_with)
    other = "plain" if begins_with == "auto" else "auto"
    run(shards, folder, kernels=other, resume=True)
    assert any(f"kernels was {begins_with!r} and is now {other!r}" in message for message in messages(folder))
    assert len(losses(folder)) == 4


def test_a_checkpoint_that_has_lost_its_scales_is_damaged(shards, tmp_path):
    folder = stopped(shards, tmp_path / "run", float8="all")
    checkpoints.update_state(folder / "checkpoints" / "step-000002", {"float8": {}})
    with pytest.raises(gm.CheckpointError, match=r"no valid scale of 'head\.input'"):
        run(shards, folder, float8="all", resume=True)


def test_a_run_with_kernels_has_their_optimizer(shards, tmp_path, monkeypatch):
    steps = []
    step = TritonAdamW.step
    monkeypatch.setattr(TritonAdamW, "step", lambda self, closure=None: steps.append(1) or step(self))
    run(shards, tmp_path / "run", max_steps=2)
    assert len(steps) == 2


# MFU


@pytest.mark.parametrize(("float8", "relative_to"), [("off", "bf16-mixed"), ("head", "float8")])
def test_the_mfu_is_relative_to_the_peak_of_8_bit_products_and_the_run_says_so(
    shards, tmp_path, monkeypatch, float8, relative_to
):
    asked = []
    peak = set_up.device_peak
    monkeypatch.setattr(set_up, "device_peak", lambda name, precision: asked.append(precision) or peak(name, precision))
    result = run(shards, tmp_path / "run", max_steps=1, float8=float8)
    machine = json.loads((tmp_path / "run" / "machine.json").read_text())
    assert (machine["float8"], machine["mfu_relative_to"]) == (float8, relative_to)
    assert asked == [relative_to] == [result.mfu_relative_to]
    shown = dict(dataclasses.replace(result, mfu=0.3).rows())["MFU"]
    assert ("8-bit peak" in shown) is (float8 != "off")
    figures = {figure.name: figure.note for figure in summarise(read_records(tmp_path / "run")).figures}
    assert "MFU" not in figures or ("8-bit" in figures["MFU"]) is (float8 != "off")


def test_a_run_whose_kernels_cannot_be_compiled_says_so_and_uses_plain_torch(tiny_shards, tmp_path, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.\nMore of it")

    monkeypatch.setattr(embedding, "add_embedding_gradient", fails)
    monkeypatch.setattr(kernels, "why_not_compiled", COMPILES.__wrapped__)
    train(tiny_shards, tmp_path / "run", **SHORT)
    with pytest.raises(gm.OptionError, match="Failed to find C compiler"):
        train(tiny_shards, tmp_path / "small", **SHORT, float8="all")
    messages = [event["message"] for event in records(tmp_path / "run", "event") if "Triton" in event["message"]]
    assert len(messages) == 1
    assert messages[0].startswith("no Triton kernels: Triton cannot compile them here (RuntimeError: Failed to find C")


def test_a_working_compiler_is_no_reason_against_kernels(device):
    assert COMPILES.__wrapped__(device, True) is None


def test_wrong_bytes_of_8_bit_floats_are_a_reason_against_kernels(device, monkeypatch):
    plain = float8.quantized

    def wrong(*args, **options):
        straight, turned = plain(*args, **options)
        turned.view(torch.uint8)[1] = 0
        return straight, turned

    monkeypatch.setattr(float8, "quantized", wrong)
    assert COMPILES.__wrapped__(device, False) is None
    assert COMPILES.__wrapped__(device, True) == "a kernel of Triton returned a wrong result"
