"""The health of a VAE at the end of a run: no collapse by default, and a verdict even for the shortest run."""

import json

import pytest
import torch

from gristmill.lm.data.batch import IGNORED
from gristmill.lm.models.vae.health import health_of
from gristmill.lm.models.vae.network import BagOfWords
from gristmill.lm.models.vae.options import VAEConfig
from gristmill.posterior import Alarm
from lm.tiny_runs import Crash, assert_same_run, build_shards, crash_at, records, train
from lm.tiny_vae import V
from posterior.posteriors import metrics

VAE = {"model": "vae", "context_length": 256, "max_sequence_length": 40, "latent_dim": 6, "plot_frequency": 0}
COLLAPSE = Alarm("collapse", 150, "posterior collapse: nothing is left.")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return build_shards(tmp_path_factory.mktemp("health") / "shards", number=300)


def test_a_run_too_short_for_a_look_ends_with_one_and_with_a_picture(shards, tmp_path):
    train(shards, tmp_path / "run", **{**VAE, "plot_frequency": 1000})
    assert [record["step"] for record in records(tmp_path / "run", "posterior")] == [20]
    assert (tmp_path / "run" / "plots" / "posterior.png").stat().st_size > 1000


def test_the_only_look_of_a_short_run_names_a_collapse(shards, tmp_path):
    # A weight of 50 collapses the posterior to the prior within a few steps.
    forced = {"kl_weight": 50.0, "kl_schedule": "constant", "free_bits": 0.0, "bag_of_words_weight": 0.0}
    train(shards, tmp_path / "run", **VAE, **forced, learning_rate=2e-2, max_steps=60)
    assert [record["step"] for record in records(tmp_path / "run", "posterior")] == [60]
    events = [record["message"] for record in records(tmp_path / "run", "event")]
    assert [message for message in events if message.startswith("posterior collapse")]


def test_a_resumed_run_makes_its_last_look_once_and_the_same(shards, tmp_path):
    options = {**VAE, "update_frequency": 8, "window_size": 6}
    train(shards, tmp_path / "whole", **options)
    with pytest.raises(Crash):
        train(shards, tmp_path / "broken", progress=crash_at(16), **options)
    train(shards, tmp_path / "broken", resume="auto", **options)
    train(shards, tmp_path / "broken", resume="auto", **options)  # there is nothing left to do
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 20)
    posteriors = records(tmp_path / "whole", "posterior")
    assert [record["step"] for record in posteriors] == [8, 16, 20]
    assert posteriors == records(tmp_path / "broken", "posterior")


def test_defaults_take_the_bag_of_words_for_tokens(shards, tmp_path):
    train(shards, tmp_path / "run", **VAE, max_steps=2)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    names = ("bag_of_words_weight", "free_bits", "free_bits_mode")
    assert [config[name] for name in names] == [1.0, 0.25, "dimension"]


def bag(**options):
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "max_sequence_length": 8, "num_layers": 1, "num_heads": 2, "d_model": 16, "latent_dim": 3}
    config = VAEConfig(**sizes, bag_of_words_weight=1.0, **options)
    return BagOfWords(config)


def test_latents_that_are_all_the_same_learn_nothing_from_the_frequencies_of_words():
    # Each row has the same words: their frequencies are counted, so there is nothing left for the latents.
    words = bag()
    torch.nn.init.zeros_(words.head.bias)
    targets_BT = torch.tensor([[1, 1, 1, 1, 2, 2, 3, IGNORED]]).expand(64, -1)
    z_BZ = torch.zeros(64, 3, requires_grad=True)
    for _ in range(50):
        words(z_BZ, targets_BT)
    (gradient_BZ,) = torch.autograd.grad(words(z_BZ, targets_BT), z_BZ)
    assert gradient_BZ.abs().max() < 0.02 * words.head.weight.abs().sum(0).max()
    own_BT = torch.where(torch.arange(64)[:, None] % 2 == 0, 1, 2).expand(-1, 8)
    (gradient_BZ,) = torch.autograd.grad(words(z_BZ, own_BT), z_BZ)
    assert gradient_BZ.abs().max() > 0.02 * words.head.weight.abs().sum(0).max()


def test_the_nats_of_a_bag_are_those_of_counted_frequencies_where_the_latent_is_empty():
    words = bag()
    torch.nn.init.zeros_(words.head.bias)
    targets_BT = torch.tensor([[1, 1, 1, 2]])
    nats = words(torch.zeros(1, 3), targets_BT)
    total = 4 + 0.1 * V
    expected = -3 * torch.log(torch.tensor(3.1 / total)) - torch.log(torch.tensor(1.1 / total))
    assert nats.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("val_kl", "alarms", "warnings"),
    [
        (0.02, (), ["posterior collapse: the KL on the validation split is 0.02 nats"]),
        (7.3, (), []),
        (None, (), []),
        (0.02, (COLLAPSE,), ["posterior collapse: nothing is left."]),
        (7.3, (COLLAPSE,), ["posterior collapse: nothing is left."]),
    ],
)
def test_a_verdict_is_by_the_kl_of_the_validation_and_by_the_alarms(val_kl, alarms, warnings):
    found = health_of(val_kl, alarms=alarms)
    assert len(found.warnings) == len(warnings) and found.is_good == (not warnings)
    assert all(message.startswith(begin) for message, begin in zip(found.warnings, warnings, strict=True))
    assert found.verdict.count("\n") == 0


def test_a_good_verdict_has_the_figures_of_the_last_look():
    assert health_of(6.1, last=metrics(300)).verdict.startswith("no alarm: step 300: KL 6.00, MI 4.00")
