"""Evaluate: perplexity, the statistics of a model, and what is shown and written of them."""

import json
import math

import pytest

import gristmill as gm
from gristmill.cli import main
from gristmill.lm.use.evaluation import Evaluation, evaluate
from gristmill.report.records import read_records
from gristmill.report.summary import epochs, num_parameters
from lm.tiny_runs import train


@pytest.fixture(scope="module")
def trained(tiny_shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("perplexity") / "run"
    return folder, train(tiny_shards, folder)


def evaluation(loss=1.5, **stats):
    numbers = {"bits_per_byte": 0.5, "num_tokens": 10, "full": True, "seconds": 2.0}
    return Evaluation(loss=loss, stats=stats, has_perplexity="kl" not in stats, **numbers)


def test_perplexity_is_the_exponential_of_the_loss(trained, tiny_shards):
    found = evaluate(trained[0], tiny_shards)
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    assert ("perplexity", f"{math.exp(found.loss):,.2f}") in found.rows()
    assert f"perplexity={found.perplexity:.2f}" in repr(found)
    assert found.stats == {} and found.kl is None and found.reconstruction is None


def test_a_loss_with_a_kl_part_is_a_bound_and_has_no_perplexity():
    found = evaluation(reconstruction=1.25, kl=4.0)
    assert found.perplexity is None
    assert (found.reconstruction, found.kl) == (1.25, 4.0)
    names = dict(found.rows())
    assert "perplexity" not in names
    assert (names["reconstruction"], names["KL"]) == ("1.2500", "4.0000 nats per sequence")


def test_statistics_of_any_name_are_shown():
    assert ("balance loss", "0.2500") in evaluation(balance_loss=0.25).rows()
    assert "balance loss" in evaluation(balance_loss=0.25)._repr_html_()


def test_a_loss_beyond_what_exp_can_hold_has_an_infinite_perplexity_and_is_null_in_json():
    found = evaluation(loss=1e4)
    assert found.perplexity == math.inf
    assert found.to_json()["perplexity"] is None


def test_json_holds_what_the_table_does():
    assert evaluation(loss=0.0, kl=3.0).to_json() == {
        "loss": 0.0,
        "perplexity": None,
        "kl": 3.0,
        "bits_per_byte": 0.5,
        "num_tokens": 10,
        "full": True,
        "seconds": 2.0,
    }


def test_an_evaluation_can_be_a_key():
    assert hash(evaluation(kl=1.0)) == hash(evaluation(kl=1.0))


def test_the_command_writes_perplexity_in_its_table_and_in_json(trained, tiny_shards, capsys):
    command = ["evaluate", str(trained[0]), str(tiny_shards), "--device", "cpu"]
    assert main(command) == 0
    assert "perplexity" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["split"] == "val"
    assert content["perplexity"] == pytest.approx(math.exp(content["loss"]))


def test_a_run_records_its_parameters_and_the_size_of_its_data_for_the_report(trained, tiny_shards):
    folder, result = trained
    recorded = read_records(folder)
    assert num_parameters(recorded) == result.num_parameters
    assert epochs(recorded) == pytest.approx(result.num_tokens / gm.Shards(tiny_shards).num_tokens)
