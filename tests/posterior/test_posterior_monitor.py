"""The monitor: its metrics, that it never waits or changes anything, and that it resumes."""

import json
import math
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import gristmill
from gristmill import CheckpointError, OptionError
from gristmill.posterior import PosteriorMetricsMonitor
from gristmill.posterior.estimates import kl_per_dimension, mutual_information
from posterior.posteriors import batches, gaussian_posteriors, quiet_monitor, squared

WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique")


class Operations(TorchDispatchMode):
    """The names of all operations in its block."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def feed(monitor, posteriors, *, first=1, **options):
    for step, (mu, logvar, z) in enumerate(posteriors, start=first):
        monitor.update(mu, logvar, z, step=step, **options)
    return monitor.flush()


def test_figures_are_those_of_the_posteriors_of_the_last_steps():
    steps = list(batches(40))
    found = feed(quiet_monitor(20, 0, 5, gap_interval=0), steps, reconstruction=30.0, kl_weight=0.5)
    assert [metrics.step for metrics in found] == [20, 40]
    mu, logvar, z = (torch.cat(parts) for parts in zip(*steps[35:], strict=True))
    last = found[-1]
    kl = kl_per_dimension(mu, logvar)
    assert last.num_samples == 20
    assert last.kl_per_dimension == pytest.approx(kl.tolist())
    assert last.kl == pytest.approx(kl.sum().item())
    assert last.mutual_information == pytest.approx(mutual_information(mu, logvar, z).item())
    assert last.mutual_information_limit == math.log(20)
    assert last.aggregated_kl == pytest.approx(last.kl - last.mutual_information)
    assert last.kl_share == pytest.approx(0.5 * last.kl / (30 + 0.5 * last.kl))
    assert (last.active_units, last.active_units_strict) == (3, 3)
    assert (last.gap_shuffled, last.gap_prior) == (None, None)


def test_of_many_posteriors_only_the_latest_are_kept():
    steps = list(batches(20, batch_size=7))
    found = feed(quiet_monitor(20, 0, 20, max_samples=30), steps)
    mu, logvar, z = (torch.cat(parts)[-30:] for parts in zip(*steps, strict=True))
    assert found[0].num_samples == 30
    assert found[0].mutual_information == pytest.approx(mutual_information(mu, logvar, z).item())


@pytest.mark.parametrize(("update_frequency", "window_size"), [(10, 3), (10, 10), (4, 9), (1, 5), (7, 1)])
def test_calling_it_only_when_it_wants_to_be_called_changes_nothing(update_frequency, window_size):
    always, wanted = (quiet_monitor(update_frequency, 0, window_size, gap_interval=2) for _ in range(2))
    for step, (mu, logvar, _) in enumerate(batches(40), start=1):
        always.update(mu, logvar, step=step, reconstruct=squared)
        if wanted.wants(step):
            wanted.update(mu, logvar, step=step, reconstruct=squared)
    always.flush(), wanted.flush()
    assert always.history and always.history == wanted.history


def test_steps_are_counted_by_the_monitor_unless_the_caller_numbers_them():
    counted, numbered = (quiet_monitor(5, 0, 3) for _ in range(2))
    for mu, logvar, z in batches(15):
        counted.update(mu, logvar, z)
    counted.flush()
    feed(numbered, batches(15))
    assert counted.history == numbered.history


def test_reconstruction_per_token_is_converted_to_reconstruction_per_sequence():
    a_sequence, a_token = (quiet_monitor(5, 0, 5) for _ in range(2))
    feed(a_sequence, batches(5), reconstruction=torch.tensor(45.0))
    feed(a_token, batches(5), reconstruction=torch.tensor(3.0), num_tokens=torch.tensor(60))  # of 4 sequences
    assert a_sequence.history[0].kl_share == pytest.approx(a_token.history[0].kl_share)


def test_gaps_are_the_extra_nats_of_wrong_latents_and_none_keeps_its_own():
    seen = []

    def reconstruct(z):
        seen.append(z)
        return (z - mu_of_batch[0]).square().sum(1)

    mu_of_batch = []
    monitor = quiet_monitor(2, 0, 2, gap_interval=2)
    for mu, logvar, z in batches(8, batch_size=5):
        mu_of_batch[:] = [mu]
        monitor.update(mu, logvar, z, reconstruct=reconstruct)
    monitor.flush()
    assert [metrics.gap_shuffled is None for metrics in monitor.history] == [True, False, True, False]
    assert len(seen) == 6  # it is expensive, and called only when due
    true, shuffled, prior = seen[3:]
    assert not (true == shuffled).all(1).any()
    assert sorted(true.tolist()) == sorted(shuffled.tolist())
    last = monitor.history[-1]
    nats = [(z - mu).square().sum(1).mean().item() for z in (true, shuffled, prior)]
    assert last.gap_shuffled == pytest.approx(nats[1] - nats[0], rel=1e-4)
    assert last.gap_prior == pytest.approx(nats[2] - nats[0], rel=1e-4)


def test_a_batch_of_one_sequence_is_shuffled_with_the_one_before():
    seen = []
    monitor = quiet_monitor(2, 0, 2, gap_interval=1)
    steps = list(batches(2, batch_size=1))
    for mu, logvar, z in steps:
        monitor.update(mu, logvar, z, reconstruct=lambda z: seen.append(z) or squared(z))
    assert torch.equal(seen[1], steps[0][2])
    alone = quiet_monitor(1, 0, 1, gap_interval=1)
    alone.update(*steps[0], reconstruct=squared)
    assert alone.flush()[0].gap_shuffled is None
    assert alone.history[0].gap_prior is not None


def test_update_asks_for_no_number_of_the_device():
    monitor = quiet_monitor(4, 0, 3, gap_interval=1)
    with Operations() as operations:
        for mu, logvar, _ in batches(8):
            monitor.update(
                mu, logvar, reconstruction=mu.mean(), kl_weight=torch.tensor(0.5), reconstruct=squared, num_tokens=9
            )
    assert "mm" in operations.names
    assert not [name for name in operations.names if name in WAITING]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_update_never_waits_for_the_gpu_and_figures_are_those_of_the_cpu():
    on_gpu, on_cpu = (quiet_monitor(4, 0, 3, gap_interval=1) for _ in range(2))
    feed(on_cpu, batches(40), reconstruct=squared)
    steps = [[x.cuda() for x in step] for step in batches(40)]
    weight = torch.tensor(1.0, device="cuda")
    on_gpu.update(*steps[0], reconstruct=squared)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in steps[1:]:
            on_gpu.update(*step, reconstruct=squared, kl_weight=weight)
            on_gpu.poll()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    on_gpu.close()
    assert len(on_gpu.history) == 10
    for gpu, cpu in zip(on_gpu.history, on_cpu.history, strict=True):
        assert gpu.mutual_information == pytest.approx(cpu.mutual_information, abs=1e-6)
        assert gpu.kl_per_dimension == pytest.approx(cpu.kl_per_dimension, abs=1e-6)
        assert gpu.gap_shuffled == pytest.approx(cpu.gap_shuffled, abs=1e-4)


def test_no_random_number_gradient_or_weight_of_the_training_is_touched():
    weight = torch.nn.Parameter(torch.ones(3))
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    monitor = quiet_monitor(2, 0, 2, gap_interval=1)
    for mu, logvar, _ in batches(6):
        monitor.update(mu * weight, logvar * weight, reconstruct=lambda z: squared(z * weight))
    monitor.close()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]
    assert weight.grad is None and torch.equal(weight, torch.ones(3))
    assert len(monitor.history) == 3


def test_training_with_and_without_it_is_bit_exact():
    def trained(monitor):
        torch.manual_seed(0)
        encoder, decoder = torch.nn.Linear(6, 4), torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(2, 6))
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)
        for _ in range(30):
            x = torch.randn(8, 6)
            mu, logvar = encoder(x).chunk(2, dim=1)
            z = mu + torch.exp(logvar / 2) * torch.randn_like(mu)
            loss = (decoder(z) - x).square().sum(1).mean() + kl_per_dimension(mu, logvar).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if monitor is not None:
                monitor.update(mu, logvar, None, reconstruction=loss)
        return torch.cat([parameter.detach().flatten() for parameter in encoder.parameters()])

    assert torch.equal(trained(None), trained(quiet_monitor(5, 0, 3)))


@pytest.mark.parametrize("stop", range(1, 25))
def test_a_run_that_was_resumed_has_the_same_figures_and_alarms(stop):
    def update(monitor, steps, first):
        for step, (mu, logvar, _) in enumerate(steps, start=first):
            alive = step < 8 or step > 16
            mu, logvar = (mu, logvar) if alive else (0 * mu, 0 * logvar)
            monitor.update(mu, logvar, step=step, reconstruct=squared, kl_weight=min(1.0, step / 6))
        monitor.close()
        return monitor.history

    options = {"update_frequency": 2, "window_size": 3, "gap_interval": 2, "plot_frequency": 0, "max_samples": 20}
    steps = list(batches(25, batch_size=8))
    whole = update(quiet_monitor(**options), steps, 1)
    assert {change.change for metrics in whole for change in metrics.alarms} == {"raised", "cleared"}

    before, after = quiet_monitor(**options), quiet_monitor(**options)
    first = update(before, steps[:stop], 1)
    tensors, numbers = before.state_tensors()
    after.load_state_tensors(
        {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(numbers))
    )
    assert after.alarms == before.alarms
    assert first + update(after, steps[stop:], stop + 1) == whole


def test_poll_gives_every_look_once_and_history_keeps_all():
    monitor = quiet_monitor(2, 0, 2)
    polled = []
    for mu, logvar, z in batches(7):
        monitor.update(mu, logvar, z)
        polled += monitor.poll()
    assert [metrics.step for metrics in polled] == [2, 4, 6]
    assert polled == list(monitor.history) and monitor.flush() == []


def test_a_record_is_json_also_where_a_figure_is_not_a_number():
    monitor = quiet_monitor(1, 0, 1)
    monitor.update(torch.tensor([[math.nan, 1.0]] * 3), torch.zeros(3, 2))
    record = json.loads(json.dumps(monitor.flush()[0].to_record(), allow_nan=False))
    assert (record["kind"], record["step"], record["num_samples"]) == ("posterior", 1, 3)
    assert record["kl"] is None and record["kl_per_dimension"] == [None, 0.5]
    assert record == monitor.history[0].to_record()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_posteriors_of_any_float_are_taken(dtype):
    monitor = quiet_monitor(1, 0, 1, gap_interval=1)
    mu, logvar, _ = gaussian_posteriors(64, 4, spread=1.0, width=0.5)
    monitor.update(mu.to(dtype), logvar.to(dtype), reconstruct=squared)
    assert monitor.flush()[0].kl == pytest.approx(kl_per_dimension(mu, logvar).sum().item(), rel=0.02)


def test_it_works_where_training_runs_in_inference_mode_or_with_another_default_type():
    monitor = quiet_monitor(2, 0, 2)
    with torch.inference_mode():
        monitor.update(torch.randn(4, 2), torch.zeros(4, 2))
    torch.set_default_dtype(torch.float64)
    try:
        monitor.update(torch.randn(4, 2), torch.zeros(4, 2))
    finally:
        torch.set_default_dtype(torch.float32)
    assert monitor.flush()[0].num_samples == 8


def test_an_empty_batch_is_no_step_to_look_at():
    monitor = quiet_monitor(1, 0, 1)
    monitor.update(torch.zeros(0, 3), torch.zeros(0, 3))
    assert monitor.flush() == []


def test_arguments_that_do_not_fit_are_errors_that_say_what_to_pass():
    monitor = quiet_monitor(1, 0)
    with pytest.raises(
        gristmill.OptionError, match=r"mu must be floats, B x Z, .* got torch.float32 of shape \(2, 3, 4\)"
    ):
        monitor.update(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4))
    with pytest.raises(gristmill.OptionError, match=r"logvar must have the shape of mu, \(2, 3\), got \(2, 4\)"):
        monitor.update(torch.zeros(2, 3), torch.zeros(2, 4))
    monitor.update(torch.zeros(2, 3), torch.zeros(2, 3), step=7)
    with pytest.raises(gristmill.OptionError, match="step must be > 7, the last step, got 7"):
        monitor.update(torch.zeros(2, 3), torch.zeros(2, 3), step=7)
    with pytest.raises(gristmill.OptionError, match="update_frequency must be >= 1, got 0"):
        PosteriorMetricsMonitor(update_frequency=0)


def test_verbose_prints_one_line_per_measurement_on_stderr(capsys):
    monitor = PosteriorMetricsMonitor(2, 0, 2, verbose=True)
    for mu, logvar, z in batches(4):
        monitor.update(mu, logvar, z)
    monitor.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[1] for line in err.splitlines()] == [" step 2", " step 4"]
    assert "MI " in err and "of at most 2.08" in err and "3 of 3 units active" in err


def test_importing_the_package_needs_no_torch():
    code = "import sys, gristmill.posterior, gristmill.posterior.draw; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.parametrize("bad", ["one mu", "all mu", "logvar"])
def test_a_posterior_that_is_not_finite_has_a_separate_alarm(bad):
    monitor = quiet_monitor(2, 0, 2)
    for mu, logvar, z in batches(6, batch_size=16):
        mu, logvar = mu.clone(), logvar.clone()
        if bad == "one mu":
            mu[0, 0] = torch.nan
        elif bad == "all mu":
            mu[:] = torch.nan
        else:
            logvar[0] = torch.inf
        monitor.update(mu, logvar, z)
    monitor.flush()
    assert [alarm.kind for alarm in monitor.alarms] == ["not_finite"]
    assert "a lower learning rate" in monitor.alarms[0].message


@pytest.mark.parametrize(
    ("mu", "logvar", "z"),
    [
        (np.zeros((4, 2)), torch.zeros(4, 2), None),
        (torch.zeros(4, 2), None, None),
        (torch.zeros(()), torch.zeros(()), None),
        (torch.zeros(4, 0), torch.zeros(4, 0), None),
        (torch.zeros(4, 2), torch.zeros(4, 2), [1, 2]),
    ],
)
def test_tensors_that_are_not_a_posterior_are_refused_with_a_message(mu, logvar, z):
    with pytest.raises(OptionError, match="B x Z"):
        quiet_monitor(1, 0, 1).update(mu, logvar, z)


def test_invalid_numbers_are_refused():
    for options in ({"update_frequency": 1.5}, {"window_size": "a"}, {"update_frequency": True}):
        with pytest.raises(OptionError):
            PosteriorMetricsMonitor(**options)
    with pytest.raises(CheckpointError, match="alarms, step, window"):
        quiet_monitor(1, 0, 1).load_state_tensors({}, {})


def test_the_last_step_is_looked_at_whatever_the_frequency():
    steps = list(batches(37))
    monitor = quiet_monitor(20, 0, 5, last_step=37)
    found = feed(monitor, steps, reconstruct=squared)
    assert [metrics.step for metrics in found] == [20, 37]
    mu, logvar, z = (torch.cat(parts) for parts in zip(*steps[32:], strict=True))
    assert found[-1].num_samples == 20
    assert found[-1].mutual_information == pytest.approx(mutual_information(mu, logvar, z).item())
    assert found[0].gap_shuffled is None and found[-1].gap_shuffled is not None
    assert [step for step in range(1, 38) if not monitor.wants(step)] == [*range(1, 16), *range(21, 33)]


def test_a_run_shorter_than_the_window_is_looked_at_once_with_all_it_has():
    found = feed(quiet_monitor(100, 0, 50, last_step=7), batches(7))
    assert [(metrics.step, metrics.num_samples) for metrics in found] == [(7, 28)]


def test_the_only_look_of_a_short_run_raises_its_alarm():
    collapsed = [(torch.zeros(4, 3), torch.zeros(4, 3), torch.randn(4, 3)) for _ in range(10)]
    monitor = quiet_monitor(100, 0, 50, last_step=10)
    feed(monitor, collapsed)
    assert [alarm.kind for alarm in monitor.alarms] == ["collapse"]
    assert monitor.messages == [monitor.alarms[0].message]


def test_a_last_step_below_one_is_refused():
    with pytest.raises(OptionError, match=r"last_step must be >= 1, got 0"):
        PosteriorMetricsMonitor(last_step=0)


@pytest.mark.parametrize(
    ("advice", "words"), [({}, "free bits of 0.25 nats"), ({"advice": "options"}, "free_bits=0.25")]
)
def test_alarms_advise_in_general_terms_unless_options_are_asked_for(advice, words):
    messages = []
    monitor = PosteriorMetricsMonitor(update_frequency=5, window_size=5, tell=messages.append, **advice)
    for step in range(1, 21):
        monitor.update(torch.full((8, 4), 1e-3), torch.zeros(8, 4), step=step)
    monitor.flush()
    (message,) = messages
    assert message.startswith("posterior collapse") and words in message


def test_advice_of_another_kind_is_refused():
    with pytest.raises(OptionError, match=r"advice must be one of .*, got 'flags'"):
        PosteriorMetricsMonitor(advice="flags")
