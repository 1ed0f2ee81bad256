"""The benchmarks of the training step, with tiny models on the CPU."""

import math
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path.append(str(BENCHMARKS))

import float8_gate  # noqa: E402
import to_loss  # noqa: E402


def run(script, *options):
    command = [sys.executable, str(BENCHMARKS / script), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_contest_for_a_loss_runs_all_recipes_after_the_baseline():
    out = run("bench_lm.py", "--to-loss", "quick", "--rates", "1e-2,3e-2")
    names = [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("| ")]
    assert names[-6:] == ["baseline, learning rate 0.01", "baseline, learning rate 0.03", *to_loss.RECIPES]


def test_the_seconds_to_a_goal_are_those_of_the_first_evaluation_that_reaches_it():
    curve = to_loss.Curve("a run", steps=[1, 2, 3], seconds=[1.0, 2.5, 4.0], losses=[3.0, 2.0, 1.0])
    assert curve.seconds_to(2.0) == 2.5 and curve.seconds_to(2.5) == 2.5 and curve.seconds_to(0.5) is None
    assert curve.milliseconds_per_step == pytest.approx(4e3 / 3)


def test_runs_are_evaluated_at_their_last_step():
    assert to_loss.looks(366, first=0.5)[-1] == 366 and to_loss.looks(3, first=0.5) == [2, 3]


def test_the_interval_of_a_mean_is_that_of_students_distribution():
    mean, low, high = float8_gate.interval([0.0, 0.02])
    assert (mean, low, high) == pytest.approx((0.01, 0.01 - 12.706 * 0.01, 0.01 + 12.706 * 0.01))
    assert float8_gate.interval([0.5]) == (0.5, -math.inf, math.inf)  # a single pair proves nothing


def runs(differences, name="float8 all"):
    for seed, of_rates in enumerate(differences):
        for rate, difference in zip(float8_gate.LEARNING_RATES, of_rates, strict=True):
            run = {"seed": seed, "learning_rate": rate}
            yield {**run, "arithmetic": float8_gate.REFERENCE, "loss": 4.0}
            yield {**run, "arithmetic": name, "loss": 4.0 + difference}


def test_pairs_of_one_seed_are_one_sample():
    found = float8_gate.differences(list(runs([(0.01, 0.03), (-0.02, 0.0)])), "float8 all")
    assert float8_gate.means_of_seeds(found) == pytest.approx([0.02, -0.01])
    assert list(found) == list(float8_gate.LEARNING_RATES)


@pytest.mark.parametrize(("of_seeds", "has_passed"), [((0.001, 0.002, 0.0), True), ((0.001, 0.04, 0.0), False)])
def test_the_gate_is_passed_only_if_the_whole_interval_is_below_the_limit(capsys, of_seeds, has_passed):
    float8_gate.report(list(runs([(each, each) for each in of_seeds])), Namespace(quick=True))
    last = capsys.readouterr().out.splitlines()[-1]
    assert "all, by seed" in last and ("not passed" not in last) is has_passed
