"""The benchmark of a training step compares models of the documented sizes."""

from pathlib import Path

import pytest
import torch

from gristmill.lm.models.gpt.network import GPT
from gristmill.lm.training.presets import all_presets


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return pytest.importorskip("bench_lm")


@pytest.mark.parametrize(("shape", "preset"), [("124m", "gpt2-124m"), ("17m", "tinystories-17m")])
def test_the_shapes_of_the_benchmark_are_those_of_the_presets(bench, shape, preset):
    options, config = all_presets()[preset], bench.SHAPES[shape].ours
    sizes = ("context_length", "num_layers", "num_heads", "d_model")
    assert {name: getattr(config, name) for name in sizes} == {name: options[name] for name in sizes}
    assert config.tie_embeddings == options.get("tie_embeddings", False)
    assert bench.SHAPES[shape].batch_size == options["batch_size"]


@pytest.mark.parametrize("shape", ["124m", "17m"])
def test_the_baseline_has_no_biases_and_as_many_parameters_within_two_percent(bench, shape):
    contest = bench.SHAPES[shape]
    config = contest.ours
    with torch.device("meta"):
        baseline, ours = bench.new_baseline(contest), GPT(config)
    assert not [name for name, _ in baseline.named_parameters() if name.endswith("bias")]
    num_baseline, num_ours = (sum(p.numel() for p in model.parameters()) for model in (baseline, ours))
    assert num_baseline == pytest.approx(num_ours, rel=0.02)
