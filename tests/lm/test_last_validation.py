"""Validations of a run: always at the last step, never lost to a signal, compared only on the same subset."""

import json
import os
import shutil
import signal
from contextlib import contextmanager

import pytest

from gristmill.lm.training import validation as validating
from gristmill.lm.training.checkpoint import find_checkpoint, list_checkpoints, read_state, update_state
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.use.evaluation import evaluate
from lm.tiny_runs import Crash, assert_same_run, crash_at, records, train


def subset_validations(run):
    """Return the step and loss of each validation on the subset."""
    return [(record["step"], record["loss"]) for record in records(run, "val") if not record["full"]]


# (max_steps, val_check_interval, checkpoint_interval): a checkpoint at the last step or not, a validation due or not.
LENGTHS = [(12, 5, 4), (12, 5, 6), (12, 5, 12), (12, 4, 4), (12, 5, 7), (10, 3, 1000)]


@pytest.mark.parametrize(("max_steps", "val_check_interval", "checkpoint_interval"), LENGTHS)
def test_the_last_step_is_validated_on_the_subset_and_can_be_the_best(
    tiny_shards, tmp_path, max_steps, val_check_interval, checkpoint_interval
):
    run = tmp_path / "run"
    intervals = {"val_check_interval": val_check_interval, "checkpoint_interval": checkpoint_interval}
    train(tiny_shards, run, max_steps=max_steps, **intervals)
    found = subset_validations(run)
    due = [step for step in range(1, max_steps + 1) if step % val_check_interval == 0 or step == max_steps]
    assert [step for step, _ in found] == due
    best_step = min(found, key=lambda each: each[1])[0]
    assert best_step == max_steps  # such a short run improves until its end
    assert find_checkpoint(run, "best").name == f"step-{max_steps:06d}"
    assert read_state(find_checkpoint(run, "best"))["val_loss"] == found[-1][1]
    full = [record["loss"] for record in records(run, "val") if record["full"]]
    assert evaluate(run, tiny_shards, device="cpu").loss == pytest.approx(full[-1])


def test_the_last_step_of_the_quickstart_preset_is_the_best_when_it_ends_early(tiny_shards, tmp_path):
    config = TrainConfig.from_options({"max_steps": 500}, preset="quickstart")
    assert config.max_steps == 500
    # The intervals of the preset, scaled to a run of 1/50 of its length.
    small = {
        name: value if isinstance(value := getattr(config, name), float) else max(1, value // 50)
        for name in ("val_check_interval", "checkpoint_interval")
    }
    train(tiny_shards, tmp_path / "run", max_steps=10, **small)
    assert subset_validations(tmp_path / "run")[-1][0] == 10
    assert find_checkpoint(tmp_path / "run", "best").name == "step-000010"


def test_a_last_step_that_is_worse_is_not_the_best(tiny_shards, tmp_path, monkeypatch):
    with changed_losses(monkeypatch, {12: 9.0}):
        train(tiny_shards, tmp_path / "run", max_steps=12, val_check_interval=5, checkpoint_interval=12)
    assert find_checkpoint(tmp_path / "run", "best").name == "step-000010"
    assert read_state(find_checkpoint(tmp_path / "run", "latest"))["val_loss"] == 9.0


@contextmanager
def changed_losses(monkeypatch, losses):
    """Make validations return these losses at these steps."""
    validate = validating.Validation._validate

    def changed(self, step, num_sequences, stopped):
        record = validate(self, step, num_sequences, stopped)
        return record | {"loss": losses.get(step, record["loss"])} if record else None

    with monkeypatch.context() as patch:
        patch.setattr(validating.Validation, "_validate", changed)
        yield


# A signal during a validation


class Terminated(Exception):
    """Raised by SIGTERM in these tests."""


@contextmanager
def terminated_in_validation(monkeypatch, number):
    """Send SIGTERM after the first batch of this validation, counted from 0."""
    mean_loss, calls = validating.mean_loss, []

    def interrupted(module, batches, **options):
        calls.append(None)

        def signalled():
            for index, batch in enumerate(batches):
                if index == 1 and len(calls) == number + 1:
                    os.kill(os.getpid(), signal.SIGTERM)
                yield batch

        return mean_loss(module, signalled(), **options)

    def terminate(*_):
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(validating, "mean_loss", interrupted)
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


RUN = {"max_steps": 12, "val_check_interval": 4, "checkpoint_interval": 6, "log_interval": 2, "keep": 5}
# The validations of steps 4, 8 and 12 on the subset, then on the whole split.
PLACES = {0: 4, 1: 8, 2: 12, 3: 12}


@pytest.mark.parametrize("number", PLACES)
def test_a_validation_that_a_signal_interrupted_is_made_up(tiny_shards, tmp_path, monkeypatch, number):
    options = {**RUN, "sample_interval": 4, "sample_tokens": 4}
    train(tiny_shards, tmp_path / "whole", **options)
    with terminated_in_validation(monkeypatch, number), pytest.raises(Terminated):
        train(tiny_shards, tmp_path / "broken", **options)
    assert list_checkpoints(tmp_path / "broken")[-1].name == f"step-{PLACES[number]:06d}"
    assert len(records(tmp_path / "broken", "val")) == number
    train(tiny_shards, tmp_path / "broken", resume=True, **options)
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 12)
    for which in ("best", "latest"):
        one, other = (find_checkpoint(tmp_path / run, which) for run in ("whole", "broken"))
        assert one.name == other.name
        assert losses_in(one) == losses_in(other)


def test_a_made_up_validation_can_be_the_best(tiny_shards, tmp_path, monkeypatch):
    better = {8: 0.5, 12: 0.7}
    with changed_losses(monkeypatch, better):
        train(tiny_shards, tmp_path / "whole", **RUN)
        with terminated_in_validation(monkeypatch, 1), pytest.raises(Terminated):
            train(tiny_shards, tmp_path / "broken", **RUN)
        train(tiny_shards, tmp_path / "broken", resume=True, **RUN)
    assert find_checkpoint(tmp_path / "whole", "best").name == "step-000008"
    assert find_checkpoint(tmp_path / "broken", "best").name == "step-000008"
    assert losses_in(find_checkpoint(tmp_path / "broken", "latest"))["best_val_loss"] == 0.5


def losses_in(checkpoint):
    state = read_state(checkpoint)
    return {name: state[name] for name in ("val_loss", "best_val_loss", "val_sequences")}


# The fixed subset


@pytest.fixture
def broken(tiny_shards, tmp_path):
    """A run that crashed after the checkpoint of step 10, which was validated on 2 batches of 4 sequences."""
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "broken", progress=crash_at(12))
    return tmp_path / "broken"


def test_another_micro_batch_validates_on_the_same_sequences(tiny_shards, broken, tmp_path):
    train(tiny_shards, tmp_path / "whole")
    train(tiny_shards, broken, resume=True, batch_size=2, gradient_accumulation_steps=2)
    whole, other = subset_validations(tmp_path / "whole"), subset_validations(broken)
    assert [step for step, _ in whole] == [step for step, _ in other] == [10, 20]
    assert whole[0] == other[0]
    assert other[1][1] == pytest.approx(whole[1][1], abs=2e-3)
    counted = [[record["num_tokens"] for record in records(run, "val")] for run in (tmp_path / "whole", broken)]
    assert counted[0] == counted[1]


def test_a_run_of_an_older_version_keeps_its_subset_with_another_micro_batch(tiny_shards, broken):
    folder = find_checkpoint(broken, "latest")
    state = read_state(folder)
    del state["val_sequences"]  # older versions did not save it
    write_state(folder, state)
    train(tiny_shards, broken, resume=True, batch_size=2, gradient_accumulation_steps=2)
    assert read_state(find_checkpoint(broken, "latest"))["val_sequences"] == 8


def write_state(folder, state):
    """Write the state with a correct checksum."""
    (folder / "state.json").write_text(json.dumps(state))
    from gristmill.lm.training.checkpoint import json_checksum

    (folder / "state.json").write_text(json.dumps({**state, "checksum": json_checksum(state)}))


def test_with_another_subset_the_best_is_chosen_among_its_own_losses(tiny_shards, broken, tmp_path):
    # The loss on the first subset is lower than any later loss on the second one.
    update_state(find_checkpoint(broken, "latest"), {"val_loss": 0.01, "best_val_loss": 0.01})
    shutil.copytree(broken, tmp_path / "same")
    train(tiny_shards, tmp_path / "same", resume=True)
    assert find_checkpoint(tmp_path / "same", "best").name == "step-000010"

    train(tiny_shards, broken, resume=True, limit_val_batches=3)
    found = subset_validations(broken)
    assert [step for step, _ in found] == [10, 10, 20]  # step 10 is validated on the new subset too
    best = min(found[1:], key=lambda each: each[1])
    assert find_checkpoint(broken, "best").name == f"step-{best[0]:06d}"
    assert read_state(find_checkpoint(broken, "latest"))["best_val_loss"] == best[1]
    reported = " ".join(record["message"] for record in records(broken, "event"))
    assert "limit_val_batches was 2 and is now 3: the best checkpoint is chosen again from this step on" in reported


def test_another_limit_that_means_the_same_sequences_changes_nothing(tiny_shards, broken, tmp_path):
    train(tiny_shards, tmp_path / "whole")
    half = {"batch_size": 2, "gradient_accumulation_steps": 2}
    train(tiny_shards, broken, resume=True, limit_val_batches=4, **half)
    assert [step for step, _ in subset_validations(broken)] == [10, 20]
