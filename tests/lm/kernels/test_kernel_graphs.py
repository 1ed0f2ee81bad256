"""Steps with kernels that are replayed from CUDA graphs. Without a GPU, a stand-in records the step."""

import pytest
import torch

from gristmill.lm.training import graphs, kernels
from gristmill.lm.training import run as run_module
from lm.test_graphed_step import Recorded
from lm.tiny_runs import Crash, assert_same_run, crash_at, records, train

SHORT = {
    **{"max_steps": 4, "checkpoint_interval": 2, "log_interval": 1, "d_model": 32, "d_ff": 48},
    **{
        "num_layers": 1,
        "num_heads": 2,
        "context_length": 16,
        "batch_size": 1,
        "precision": "bf16-mixed",
    },
}


@pytest.fixture(autouse=True)
def graphs_on_every_device(monkeypatch):
    """Let runs use kernels and graphs on a CPU too. Returns the stand-ins for CUDA."""
    made = []
    if torch.cuda.is_available():
        return made
    monkeypatch.setattr(kernels, "_why_not", lambda config, model, device: model.why_no_kernels())
    monkeypatch.setattr(kernels, "_check_float8", lambda config, device: None)
    of_config = graphs.graphed_step

    def graphed_step(config, model, *others, **more):
        made.append(Recorded(model))
        return of_config(config, model, *others, **more, capture=made[-1])

    monkeypatch.setattr(run_module, "graphed_step", graphed_step)
    monkeypatch.setattr(
        run_module, "why_no_graphs", lambda config, *_, **__: None if config.cuda_graphs == "auto" else "off"
    )
    return made


@pytest.mark.parametrize(
    ("optimizer", "float8", "options"),
    [("adamw", "off", {}), ("adamw", "all", {}), ("muon", "blocks", {"gradient_accumulation_steps": 2})],
)
def test_a_run_replayed_from_graphs_equals_one_without_and_resumes_bit_exactly(
    shards, tmp_path, graphs_on_every_device, optimizer, float8, options
):
    options = {**SHORT, **options, "optimizer": optimizer, "float8": float8, "device": "auto"}
    train(shards, tmp_path / "plain", cuda_graphs="off", **options)
    train(shards, tmp_path / "whole", **options)
    if not torch.cuda.is_available():  # on a GPU, gradients of the embedding are added in any order
        assert graphs_on_every_device[-1].num_replays == 4 * options.get("gradient_accumulation_steps", 1)
        assert_same_run(tmp_path / "plain", tmp_path / "whole", 4)
    assert any("CUDA graphs replay" in event["message"] for event in records(tmp_path / "whole", "event"))
    with pytest.raises(Crash):
        train(shards, tmp_path / "parts", progress=crash_at(3), **options)
    train(shards, tmp_path / "parts", resume="auto", **options)
    if not torch.cuda.is_available():
        assert_same_run(tmp_path / "whole", tmp_path / "parts", 4)
    losses = [[record["loss"] for record in records(tmp_path / name, "train")] for name in ("plain", "whole", "parts")]
    assert losses[1] == pytest.approx(losses[0], rel=2e-3) and losses[2] == pytest.approx(losses[0], rel=2e-3)
