"""mean_loss and the trials of batch_size="auto": they work for every model."""

from types import MappingProxyType

import pytest
import torch

from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.training import auto_batch
from gristmill.lm.training.losses import LossModule, mean_loss
from lm.tiny_vae import make

torch.set_num_threads(1)


class Counting(torch.nn.Module):
    """A model whose loss is the mean of its targets, with statistics per token and per sequence."""

    STATS = MappingProxyType({"squares": "token", "lengths": "sequence"})

    def __init__(self):
        super().__init__()
        self.schedules = []

    def loss(self, batch, schedule):
        self.schedules.append(schedule)
        counted_BT = batch.targets_BT != IGNORED
        tokens = batch.targets_BT[counted_BT].float()
        lengths_B = counted_BT.sum(1)
        return tokens.mean(), {
            "squares": (tokens**2).mean(),
            "lengths": lengths_B[lengths_B > 0].float().mean(),
            "ignored": torch.tensor(1.0),
        }


def batch_of(*sequences, width=5):
    targets_BT = torch.full((len(sequences), width), IGNORED)
    for row, sequence in enumerate(sequences):
        targets_BT[row, : len(sequence)] = torch.tensor(sequence, dtype=torch.int64)
    return Batch(targets_BT.clamp_min(0), targets_BT)


SEQUENCES = [[1, 2, 3], [4], [5, 6, 7, 8, 9], [10, 11]]


@pytest.mark.parametrize("cuts", [[4], [1, 3], [2, 2], [1, 1, 1, 1], [3, 0, 1]])
def test_any_statistic_that_a_model_declares_is_averaged_per_token_or_per_sequence(cuts):
    model, rest, batches = Counting(), list(SEQUENCES), []
    for size in cuts:
        batches.append(batch_of(*rest[:size], []))  # with a padding row
        rest = rest[size:]
    found = mean_loss(LossModule(model), batches, stats=model.STATS)
    tokens = [token for sequence in SEQUENCES for token in sequence]
    assert found.num_tokens == len(tokens)
    assert found.loss == pytest.approx(sum(tokens) / len(tokens))
    assert found.stats == pytest.approx({"squares": sum(t * t for t in tokens) / len(tokens), "lengths": 11 / 4})
    assert all(schedule == {} for schedule in model.schedules)


def test_without_statistics_there_are_none():
    found = mean_loss(LossModule(Counting()), [batch_of(*SEQUENCES)])
    assert found.stats == {}


def test_the_loss_of_a_vae_is_its_bound_with_a_kl_weight_of_one():
    model = make()
    averages = model.config.STATISTICS
    batch = Batch(*(torch.randint(70, (3, 12)),) * 2)
    found = mean_loss(LossModule(model), [batch], stats=averages, seed=5)
    assert averages == {"reconstruction": "token", "kl": "sequence"}
    assert found.loss == pytest.approx(found.stats["reconstruction"] + found.stats["kl"] * 3 / 36, rel=1e-5)


class FakeMemory:
    """The parts of a GPU allocator that batch_size="auto" uses."""

    def __init__(self, monkeypatch):
        self.peak = 0
        monkeypatch.setattr(auto_batch, "_peak_bytes", self.try_size)
        monkeypatch.setattr(auto_batch, "_usable_bytes", lambda *_: 50)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)

    def try_size(self, step, size, model, device):
        self.peak = max(self.peak, 10 * size)
        return 10 * size

    def reset(self, device=None):
        self.peak = 0


@pytest.mark.parametrize("raises", [False, True])
def test_a_trial_of_batch_sizes_does_not_count_as_the_peak_of_the_run(monkeypatch, raises):
    memory = FakeMemory(monkeypatch)
    if raises:
        monkeypatch.setattr(auto_batch, "_usable_bytes", lambda *_: 5)
    options = {"per_device": 8, "sequence_length": 4, "device": torch.device("cuda"), "autocast": None}
    if raises:
        with pytest.raises(RuntimeError, match="a single sequence does not fit"):
            auto_batch.find_batch_size(Counting(), **options)
    else:
        assert auto_batch.find_batch_size(Counting(), **options) == 4
    assert memory.peak == 0
