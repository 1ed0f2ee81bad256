"""Row 11: SIGKILL at random times, then the same command again, for every command that takes long."""

from __future__ import annotations

import contextlib
import importlib.util
import random

import pytest

from faults.kill_inputs import make_inputs
from faults.kill_play import Stage, play, private_folder
from faults.kill_runners import WarmRunner, warm_modules
from faults.kills import SCENARIOS, Scenario
from faults.rows.fault import Fault

FAULT = Fault(
    row=11,
    injected="SIGKILL of all processes of a command at random times: `train-tokenizer` with a memory limit, "
    "`encode` in every layout and on processes, `train-model` (gpt and vae). 8 kills for each of them here, 50 in "
    "`make soak`",
    promise="The same command again leaves the bytes of an undisturbed run, and no other file, lock or process. What "
    "is visible at any time is complete",
    undetectable="Whether a killed `train-tokenizer` or `count-words` has written its output: if it has, the same "
    "command again exits with 1 and refuses to replace it without `--overwrite`",
    see_also=("tests/faults/test_encode_corpus_killed.py", "tests/lm/test_resume.py"),
)

NUM_KILLS = 8
SHORT_FORM = {"num_kills": NUM_KILLS, "num_undisturbed": 1, "share_finished": 0.3}
SHORT = [one for one in SCENARIOS if one.short and not one.on_cluster]
WITH_TORCH = [one for one in SHORT if "torch" in one.needs]
OTHERS = [one for one in SHORT if "torch" not in one.needs]


@pytest.fixture(scope="module")
def folder():
    with private_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def inputs(folder):
    return make_inputs(folder / "in", num_bytes=60_000, num_words=150_000, steps=12, plot_frequency=0)


@pytest.fixture(scope="module")
def warm():
    with contextlib.closing(WarmRunner((*warm_modules(*OTHERS), "faults.small_batches"))) as runner:
        yield runner


def skip_without(*scenarios: Scenario) -> None:
    for name in {name for one in scenarios for name in one.needs}:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize("one", OTHERS, ids=lambda one: one.name)
def test_row_11_the_same_command_again_leaves_the_same_files(one, folder, inputs, warm):
    skip_without(one)
    stage = Stage(folder / one.name.replace(", ", "-"), warm, inputs)
    result = play(one, stage, seed=random.Random(one.name).randrange(1000), **SHORT_FORM)
    assert result.is_good, result
    assert result.num_kills == NUM_KILLS


def test_row_11_a_training_that_is_killed_resumes_to_the_same_weights(folder, inputs):
    skip_without(*WITH_TORCH)
    with contextlib.closing(WarmRunner(warm_modules(*WITH_TORCH))) as runner:
        for one in WITH_TORCH:
            result = play(one, Stage(folder / one.name.replace(", ", "-"), runner, inputs), seed=1, **SHORT_FORM)
            assert result.is_good, result
            assert result.num_kills == NUM_KILLS
