"""TrainResult: the numbers of a run, and the table that shows them."""

import math

import pytest

from gristmill.lm.training.meters import Reading
from gristmill.lm.training.result import result_of
from lm.tiny_runs import train

VAL = {"kind": "val", "step": 20, "loss": 2.0, "bits_per_byte": 1.5, "num_tokens": 99, "full": True, "seconds": 0.1}


def reading(mfu, mfu_matmul):
    return Reading(
        loss=2.5,
        stats={},
        grad_norm=1.0,
        grad_norm_max=2.0,
        first_bad_step=None,
        tokens_per_second=1234.0,
        padding=0.0,
        mfu=mfu,
        mfu_matmul=mfu_matmul,
        data_wait=0.0,
        seconds=4000.0,
    )


@pytest.fixture(scope="module")
def folder(tiny_shards, tmp_path_factory):
    run = tmp_path_factory.mktemp("result") / "run"
    train(tiny_shards, run, max_steps=2, warmup_steps=0)
    return run


def result(folder, *, val=VAL, readings=(), has_perplexity=True, **more):
    numbers = {"num_steps": 20, "num_tokens": 1280, "num_parameters": 42_000, "memory_bytes": 383_000_000}
    numbers |= {"seconds": 4000.0, "has_perplexity": has_perplexity}
    return result_of(folder, readings=readings, full_validations=[val], **numbers, **more)


def test_the_summary_shows_parameters_perplexity_throughput_memory_and_time(folder):
    rows = dict(result(folder, readings=[reading(None, None)]).rows())
    assert rows["parameters"] == "42,000"
    assert rows["perplexity"] == f"{math.exp(2.0):.4g}"
    assert rows["tokens/s"] == "1,234"
    assert rows["memory"] == "383 MB"
    assert rows["time"] == "1 h 6 min"
    assert "MFU" not in rows


def test_a_model_with_a_kl_has_its_statistics_and_no_perplexity(folder):
    found = result(folder, val={**VAL, "reconstruction": 1.5, "kl": 0.25}, has_perplexity=False)
    assert (found.val_stats, found.val_kl, found.perplexity) == ({"reconstruction": 1.5, "kl": 0.25}, 0.25, None)
    rows = dict(found.rows())
    assert (rows["validation KL"], rows["validation reconstruction"]) == ("0.2500", "1.5000")
    assert "perplexity" not in rows


@pytest.mark.parametrize("loss", [None, math.nan])
def test_a_loss_that_is_not_a_number_has_no_perplexity(folder, loss):
    assert result(folder, val={**VAL, "loss": loss}).perplexity is None


def test_a_loss_too_great_for_a_float_does_not_end_the_run(folder):
    assert result(folder, val={**VAL, "loss": 1e4}).perplexity == math.inf


def test_warnings_are_the_last_rows(folder):
    rows = result(folder, warnings=("the posterior collapsed.", "another")).rows()
    assert rows[-2:] == [("warning", "the posterior collapsed."), ("warning", "another")]


def test_readings_without_a_plausible_share_do_not_count_as_zero(folder):
    readings = [reading(None, None), reading(None, 0.5), reading(None, None), reading(0.2, 0.7)]
    found = result(folder, readings=readings)
    assert (found.mfu, found.mfu_matmul) == (0.2, pytest.approx(0.6))
    assert dict(found.rows())["MFU"] == "20% of the device's peak, 60% of a matrix product measured here"
