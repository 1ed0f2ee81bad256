"""batch_size="auto" for runs that shard weights, gradients and moments over devices."""

from __future__ import annotations

import pytest
import torch

import gristmill as gm
from gristmill.errors import TrainingError
from gristmill.lm.models.registry import build_model
from gristmill.lm.training import auto_batch
from lm.launched_world import train_on_two

ACTIVATIONS = 30_000  # bytes of each sequence
TRIALS = {"per_device": 64, "sequence_length": 16, "device": torch.device("cuda"), "autocast": None}


@pytest.fixture
def model():
    return build_model(gm.lm.GPTConfig(vocab_size=128, num_layers=8, d_model=64, num_heads=2), seed=0)


def size_of(model):
    return sum(parameter.nbytes for parameter in model.parameters())


@pytest.fixture
def gpu(monkeypatch, model):
    """The parts of a GPU that a trial uses: its memory, and the peak of a step."""

    class GPU:
        num_bytes = 5 * size_of(model)

        def peak(self, step, size, model, device):
            peak = 2 * size_of(model) + size * ACTIVATIONS
            return peak if peak <= self.num_bytes else None

    gpu = GPU()
    monkeypatch.setattr(auto_batch, "_peak_bytes", gpu.peak)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (gpu.num_bytes, gpu.num_bytes))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    return gpu


def largest(model, gpu, num_parts):
    """The oracle: 16 bytes per parameter divided by the number of parts, plus the gathered layers of a step."""
    layer = size_of(model.blocks[0])
    together = 0 if num_parts == 1 else 2 * (size_of(model) - 8 * layer + 2 * layer)
    free = 0.9 * gpu.num_bytes - 4 * size_of(model) / num_parts - together
    physical = gpu.num_bytes - 2 * size_of(model)
    return max(size for size in (1, 2, 4, 8, 16, 32, 64) if size * ACTIVATIONS <= min(free, physical))


@pytest.mark.parametrize("num_parts", [1, 2, 8])
def test_a_divided_model_leaves_room_for_more_sequences(model, gpu, num_parts):
    found = auto_batch.find_batch_size(model, **TRIALS, num_parts=num_parts)
    assert found == largest(model, gpu, num_parts)
    assert num_parts == 1 or found > largest(model, gpu, 1)


def test_a_divided_run_without_a_size_that_fits_is_not_advised_to_divide_the_model(model, gpu):
    gpu.num_bytes = size_of(model)
    with pytest.raises(TrainingError, match="Pass a number, such as batch_size=1") as divided:
        auto_batch.find_batch_size(model, **TRIALS, num_parts=8)
    assert "on several devices" not in str(divided.value)
    with pytest.raises(TrainingError, match="strategy='fsdp' on several devices"):
        auto_batch.find_batch_size(model, **TRIALS)


def test_a_run_with_fsdp_divides_the_model_among_all_of_its_devices(tiny_shards, tmp_path):
    note = """
        from gristmill.lm.training import set_up
        def find(*_, num_parts, **__):
            Path(sys.argv[0]).with_name(f"parts-{rank}").write_text(str(num_parts))
            return 2
        set_up.find_batch_size = find
    """
    train_on_two(tmp_path, tiny_shards, {tmp_path / "run": "fsdp"}, before=note, batch_size="auto", max_steps=1)
    assert [(tmp_path / f"parts-{rank}").read_text() for rank in (0, 1)] == ["2", "2"]
