"""Attention masks of T x T pairs that do not fit in the memory of a CPU."""

from __future__ import annotations

import pytest
import torch

import gristmill as gm
from gristmill.errors import TrainingError
from gristmill.lm.models.registry import build_model
from gristmill.lm.training import set_up
from lm.tiny_runs import TINY, train

MASKED = [{"document_mask": True}, {"sliding_window": 8}]


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(set_up, "free_bytes", lambda: 1000)


@pytest.mark.parametrize("options", MASKED)
def test_a_mask_that_does_not_fit_is_refused_before_the_first_step(tiny_shards, tmp_path, little_memory, options):
    message = r"context_length=16 .* pairs of tokens .* free\. Use one of: a shorter context_length, a smaller"
    with pytest.raises(TrainingError, match=message):
        train(tiny_shards, tmp_path / "run", **options)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    with pytest.raises(TrainingError, match=message):
        gm.lm.plan(tiny_shards, **{**TINY, **options})


@pytest.mark.parametrize("options", [{}, {"sliding_window": 16}])
def test_a_model_without_such_a_mask_is_not_refused(tiny_shards, tmp_path, little_memory, options):
    train(tiny_shards, tmp_path / "run", max_steps=1, **options)


@pytest.mark.parametrize("window", [None, 50])
def test_no_more_memory_is_asked_for_than_a_forward_pass_keeps_for_its_masks(window):
    """The oracle is torch itself: the square tensors that it keeps for the backward pass."""
    config = gm.lm.GPTConfig(
        vocab_size=50, context_length=100, num_layers=3, num_heads=2, d_model=32, document_mask=True
    )
    if window is not None:
        config = gm.lm.GPTConfig(**{**vars(config), "document_mask": False, "sliding_window": window})
    kept = {}

    def note(tensor):
        if tensor.shape[-2:] == (100, 100):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    model, tokens = build_model(config, seed=0), torch.zeros(2, 100, dtype=torch.long)
    documents = {} if window else {"document_ids_BT": tokens}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        graph = model(tokens, **documents)
    assert sum(kept.values()) == config.num_masked_pairs(batch_size=2) * 4 * 3
    del graph
