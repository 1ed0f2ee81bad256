"""Grouped-query attention, norms of queries and keys, sliding windows and document masks of the GPT.

The oracle is `gristmill.lm.functional`, which knows nothing of kernels, caches and blocks.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import gristmill as gm
from gristmill.errors import CheckpointError, OptionError
from gristmill.lm import functional as plain
from gristmill.lm.data.identity import json_checksum
from gristmill.lm.models.gpt import attention, network
from gristmill.lm.models.gpt.block_mask import block_mask, can_use_blocks
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.muon import Muon, orthogonalized
from gristmill.lm.training.optimizers import build_optimizer
from lm.tiny_runs import tensors, train

torch.set_num_threads(1)

CONFIG = GPTConfig(vocab_size=70, context_length=16, num_layers=2, num_heads=4, d_model=32)
DOCUMENTS = torch.tensor([[0] * 5 + [1] + [2] * 10, [7] * 10 + [3] * 6])

# Every combination of key heads, norms and windows: shorter than the context, of one token, and as long as it.
OPTIONS = [
    {"num_kv_heads": heads, "qk_norm": norm, "sliding_window": window}
    for heads, norm, window in itertools.product((None, 1, 2), (False, True), (None, 1, 5, 16))
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def make(**changes):
    """A model with weights large enough that attention matters."""
    model = GPT(dataclasses.replace(CONFIG, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def tokens(batch_size=2, length=16):
    return torch.randint(70, (batch_size, length))


def plain_logits(model, tokens_BT, document_ids_BT=None):
    """The logits of the plain functions, computed from the parameters of the model."""
    c, own = model.config, dict(model.named_parameters())
    weights = {
        "token_embeddings.weight": own["embedding.weight"][: c.vocab_size],
        "lm_head.weight": model.head_weight[: c.vocab_size],
        "ln_final.weight": own["final_norm.weight"],
    }
    for i in range(c.num_layers):
        ours, theirs = f"blocks.{i}.", f"layers.{i}."
        width = c.d_model // c.num_heads
        rows = [
            number * width for number in (c.num_heads, c.num_kv_heads or c.num_heads, c.num_kv_heads or c.num_heads)
        ]
        parts = own[ours + "attention.qkv.weight"].split(rows)
        weights |= {f"{theirs}attn.{name}_proj.weight": part for name, part in zip("qkv", parts, strict=True)}
        gate, up = own[ours + "feed_forward.gate_up.weight"].chunk(2)
        names = {
            "attn.output_proj": "attention.output",
            "ln1": "attention_norm",
            "ln2": "feed_forward_norm",
            "ffn.w2": "feed_forward.down",
        }
        if c.qk_norm:
            names |= {"attn.q_norm": "attention.q_norm", "attn.k_norm": "attention.k_norm"}
        weights |= {f"{theirs}{new}.weight": own[f"{ours}{old}.weight"] for new, old in names.items()}
        weights |= {theirs + "ffn.w1.weight": gate, theirs + "ffn.w3.weight": up}
    return plain.transformer_lm(
        weights,
        tokens_BT,
        num_heads=c.num_heads,
        num_kv_heads=c.num_kv_heads,
        sliding_window=c.sliding_window,
        document_ids=document_ids_BT,
    )


def gradients(model, logits):
    model.zero_grad()
    targets = torch.randint(70, logits.shape[:2], generator=torch.Generator().manual_seed(1))
    plain.cross_entropy(logits, targets).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("masked", [False, True], ids=["windows", "documents"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_logits_and_gradients_are_those_of_the_plain_functions(options, masked):
    model, tokens_BT = make(**options), tokens()
    ids = DOCUMENTS if masked else None
    logits, expected = model(tokens_BT, document_ids_BT=ids), plain_logits(model, tokens_BT, ids)
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)
    torch.testing.assert_close(gradients(model, logits), gradients(model, expected), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("cuts", [[1] * 16, [3, 1, 7, 5]], ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_tokens_read_in_parts_with_a_cache_have_the_plain_logits(options, cuts):
    model, tokens_BT = make(**options), tokens()
    cache = model.new_cache(2, "cpu", torch.float32)
    parts = torch.cat([model(part, cache=cache) for part in tokens_BT.split(cuts, dim=1)], dim=1)
    torch.testing.assert_close(parts, plain_logits(model, tokens_BT), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("masked", [False, True], ids=["windows", "documents"])
def test_repeated_heads_of_keys_are_the_same_model_where_no_kernel_shares_them(masked, monkeypatch):
    monkeypatch.setattr(attention, "_shares_heads", lambda *_: False)
    model, tokens_BT, ids = make(num_kv_heads=2), tokens(), DOCUMENTS if masked else None
    logits, expected = model(tokens_BT, document_ids_BT=ids), plain_logits(model, tokens_BT, ids)
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)
    torch.testing.assert_close(gradients(model, logits), gradients(model, expected), atol=2e-4, rtol=2e-4)


def test_a_window_of_one_layer_hides_all_tokens_before_it():
    model, tokens_BT = make(num_layers=1, sliding_window=4), tokens(1)
    before = model(tokens_BT)
    changed = tokens_BT.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 70
    moved = (model(changed) - before).abs().amax(-1)[0] > 1e-4
    assert moved.nonzero().flatten().tolist() == [5, 6, 7, 8], "a token is seen by itself and the three after it"


def test_norms_of_queries_and_keys_make_attention_blind_to_their_size():
    for qk_norm in (False, True):
        model, tokens_BT = make(qk_norm=qk_norm), tokens()
        before = model(tokens_BT)
        with torch.no_grad():
            for block in model.blocks:
                block.attention.qkv.weight[:64] *= 10.0
        assert torch.allclose(model(tokens_BT), before, atol=1e-2) == qk_norm


def test_a_cache_holds_only_the_heads_of_keys_and_values():
    whole, shared = (make(num_kv_heads=number).new_cache(2, "cpu", torch.float32) for number in (None, 1))
    assert whole.keys_LBHSK.nbytes == 4 * shared.keys_LBHSK.nbytes


def test_weights_of_an_option_exist_only_while_it_is_on():
    without, with_norm = set(make().state_dict()), set(make(qk_norm=True).state_dict())
    ends = {name.partition("attention.")[2] for name in with_norm - without}
    assert ends == {"q_norm.weight", "k_norm.weight"}
    assert make(num_kv_heads=1).state_dict()["blocks.0.attention.qkv.weight"].shape == (32 + 8 + 8, 32)


def test_as_many_heads_of_keys_as_of_queries_are_the_same_model():
    states = []
    for number in (None, 4):
        torch.manual_seed(5)
        states.append(GPT(dataclasses.replace(CONFIG, num_kv_heads=number)).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_norms_of_queries_and_keys_draw_no_other_weights():
    states = []
    for qk_norm in (False, True):
        torch.manual_seed(5)
        states.append(GPT(dataclasses.replace(CONFIG, qk_norm=qk_norm)).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert states[1]["blocks.0.attention.q_norm.weight"].tolist() == [1.0] * 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_kv_heads": 3}, "num_heads=4 is not a multiple of num_kv_heads=3.*divides 4"),
        ({"num_kv_heads": 8}, "num_heads=4 is not a multiple of num_kv_heads=8"),
        ({"num_kv_heads": 0}, "num_kv_heads must be >= 1, got 0"),
        ({"sliding_window": 0}, "sliding_window must be >= 1, got 0"),
        ({"qk_norm": "yes"}, "qk_norm='yes' is of type str"),
    ],
)
def test_options_that_make_no_attention_are_refused(changes, message):
    with pytest.raises(OptionError, match=message):
        dataclasses.replace(CONFIG, **changes)


def test_options_are_flat_and_a_config_without_them_has_their_defaults():
    config = TrainConfig.from_options({"num_heads": 4, "num_kv_heads": 2, "qk-norm": True, "sliding-window": 64})
    assert (config.model.num_kv_heads, config.model.qk_norm, config.model.sliding_window) == (2, True, 64)
    saved = config.to_json()
    old = {name: value for name, value in saved.items() if name not in ("num_kv_heads", "qk_norm", "sliding_window")}
    assert TrainConfig.from_options(old).model == GPTConfig(num_heads=4)


def test_operations_per_token_count_a_window_and_the_smaller_matrices():
    def flops(**changes):
        return GPT(dataclasses.replace(CONFIG, **changes)).flops_per_token(16)

    assert flops() - flops(sliding_window=4) == 12 * 2 * 32 * (16 - 4)
    assert flops(sliding_window=100) == flops()
    assert flops() - flops(num_kv_heads=1) == 6 * 2 * 32 * 2 * (32 - 8)


# Masks by blocks, as on a GPU


def random_documents(batch_size, length, seed=0):
    """Ids of documents of very different lengths, as the data gives them: 0, 0, 1, 1, 1, 2, ..."""
    starts = torch.rand(batch_size, length, generator=torch.Generator().manual_seed(seed)) < 0.006
    return starts.cumsum(1)


def dense(num_tokens, sliding_window, ids):
    t, s = torch.arange(num_tokens)[:, None], torch.arange(num_tokens)
    seen = (s <= t) & (t - s < (sliding_window or num_tokens))
    return seen[None] if ids is None else seen & (ids[:, :, None] == ids[:, None])


def by_blocks(num_tokens, sliding_window, ids):
    """For every pair of tokens: whether its block is computed, and whether it is computed without a mask."""
    mask = block_mask(num_tokens, torch.device("cpu"), sliding_window=sliding_window, document_ids_BT=ids)
    whole = torch.zeros(mask.full_kv_indices.shape, dtype=torch.bool)
    some = torch.zeros_like(whole)
    for place, numbers, indices in (
        (some, mask.kv_num_blocks, mask.kv_indices),
        (whole, mask.full_kv_num_blocks, mask.full_kv_indices),
    ):
        is_counted = torch.arange(indices.shape[-1]) < numbers[..., None]
        place.scatter_(-1, indices.long(), is_counted)
    assert not (some & whole).any()
    wide = [each[:, 0].repeat_interleave(128, 1).repeat_interleave(128, 2) for each in (some | whole, whole)]
    return [each[:, :num_tokens, :num_tokens] for each in wide]


@pytest.mark.parametrize("window", [None, 1, 100, 128, 129, 300])
@pytest.mark.parametrize("length", [5, 128, 640, 1000])
def test_blocks_cover_all_that_is_seen_and_whole_blocks_nothing_else(length, window):
    for ids in (None, random_documents(3, length), torch.tensor([[0, 1]]).repeat(2, length)[:, :length]):
        expected = dense(length, window, ids)
        computed, whole = by_blocks(length, window, ids)
        assert not (expected & ~computed).any(), "an allowed pair is in a skipped block"
        assert not (whole & ~expected).any(), "a masked pair is in a block without a mask"


def test_blocks_are_those_that_torch_finds_with_the_whole_mask():
    length, ids = 640, random_documents(3, 640)
    mask = block_mask(length, torch.device("cpu"), sliding_window=None, document_ids_BT=ids)
    theirs = create_block_mask(
        lambda b, h, t, s: (s <= t) & (ids[b, t] == ids[b, s]), 3, None, length, length, device="cpu"
    )
    assert torch.equal(mask.kv_num_blocks, theirs.kv_num_blocks)
    assert torch.equal(mask.full_kv_num_blocks, theirs.full_kv_num_blocks)
    assert torch.equal(mask.to_dense(), theirs.to_dense())
    assert mask.sparsity() > 60, "most blocks are skipped"


@pytest.fixture
def blocks_everywhere(monkeypatch):
    monkeypatch.setattr(network, "can_use_blocks", lambda *_, has_dropout, **__: not has_dropout)


# torch has the backward pass of FlexAttention only on a GPU, so gradients are tested there.


@torch.no_grad()
@pytest.mark.parametrize("masked", [False, True], ids=["windows", "documents"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_attention_by_blocks_has_the_plain_logits(options, masked, blocks_everywhere):
    model, tokens_BT = make(**options), tokens()
    ids = DOCUMENTS if masked else None
    logits, expected = model(tokens_BT, document_ids_BT=ids), plain_logits(model, tokens_BT, ids)
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 2, "sliding_window": 5, "qk_norm": True}], ids=str)
def test_attention_by_blocks_compiles_in_one_graph(options, blocks_everywhere):
    torch._dynamo.reset()
    model, tokens_BT = make(**options), tokens()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    logits, expected = compiled(tokens_BT, document_ids_BT=DOCUMENTS), plain_logits(model, tokens_BT, DOCUMENTS)
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("length", [256, 300])
@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 2, "sliding_window": 70, "qk_norm": True}], ids=str)
def test_on_a_gpu_logits_and_gradients_with_documents_are_the_plain_ones(options, length, compiled):
    torch._dynamo.reset()
    model = make(**options, context_length=300, d_model=64).cuda()
    tokens_BT, ids = tokens(3, length).cuda(), random_documents(3, length).cuda()
    forward = torch.compile(model) if compiled else model
    logits, expected = forward(tokens_BT, document_ids_BT=ids).cpu(), plain_logits(model, tokens_BT, ids).cpu()
    torch.testing.assert_close(logits, expected, atol=5e-3, rtol=5e-3)
    torch.testing.assert_close(gradients(model, logits), gradients(model, expected), atol=5e-3, rtol=5e-3)


def test_blocks_are_for_cuda_without_dropout():
    assert not can_use_blocks(torch.device("cpu"), head_dim=64, has_dropout=False)
    assert not can_use_blocks(torch.device("cuda"), head_dim=64, has_dropout=True)
    assert not can_use_blocks(torch.device("cuda"), head_dim=8, has_dropout=False)


def test_dropout_with_documents_still_trains(blocks_everywhere):
    model = make(dropout=0.5).train()
    losses = [model(tokens(), document_ids_BT=DOCUMENTS).sum().item() for _ in range(2)]
    assert losses[0] != losses[1]


# Muon


def test_muon_takes_queries_keys_and_values_of_different_sizes_apart():
    torch.manual_seed(3)
    stacked = torch.nn.Parameter(torch.zeros(48, 32))
    stacked.grad = torch.randn(48, 32)
    parts = stacked.grad.split((32, 8, 8))
    Muon([{"params": [stacked], "num_stacked": (32, 8, 8)}], lr=1.0).step()
    expected = torch.cat([-orthogonalized(part[None])[0] * max(1, len(part) / 32) ** 0.5 for part in parts])
    torch.testing.assert_close(stacked.data, expected)


def test_muon_gets_the_rows_of_each_matrix_from_the_model():
    model = make(num_kv_heads=2)
    assert model.stacked_weights()["blocks.0.attention.qkv.weight"] == (32, 16, 16)
    optimizers = build_optimizer(model, "muon", lr=1e-3).torch_optimizers
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    assert [group["num_stacked"] for group in groups if "num_stacked" in group] == [1, 2, (32, 16, 16)]


def test_rows_that_do_not_add_up_are_refused():
    class Wrong(GPT):
        def stacked_weights(self):
            return {"blocks.0.attention.qkv.weight": (32, 32)}

    with pytest.raises(OptionError, match=r"has 96 rows, but the parts \(32, 32\) have 64"):
        build_optimizer(Wrong(CONFIG), "muon", lr=1e-3)


# Runs

ATTENTION = {"num_heads": 4, "num_kv_heads": 2, "qk_norm": True, "sliding_window": 6, "document_mask": True}
SHORT = {"max_steps": 8, "checkpoint_interval": 4, "val_check_interval": 4, "log_interval": 1}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_with_all_of_it_resumes_bit_exactly_and_writes_text(optimizer, tiny_shards, tmp_path):
    options = {**ATTENTION, **SHORT, "optimizer": optimizer, "dropout": 0.1}
    train(tiny_shards, tmp_path / "whole", **options)
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    shutil.rmtree(tmp_path / "broken/checkpoints/step-000008")
    gm.lm.train(tiny_shards, out=tmp_path / "broken", resume=True, progress=None)
    whole, broken = tensors(tmp_path / "whole", 8), tensors(tmp_path / "broken", 8)
    assert all(torch.equal(whole[name], broken[name]) for name in whole)
    texts = [gm.lm.generate(tmp_path / run, "the cat", max_tokens=30, seed=0) for run in ("whole", "broken")]
    assert texts[0] == texts[1]


def test_a_run_from_before_these_options_existed_resumes(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "whole", **SHORT)
    run = tmp_path / "old"
    shutil.copytree(tmp_path / "whole", run)
    shutil.rmtree(run / "checkpoints/step-000008")
    new = {"num_kv_heads", "qk_norm", "sliding_window", "activation_checkpointing"}
    for path in (run / "config.json", *run.glob("checkpoints/*/state.json")):
        content = json.loads(path.read_text())
        for options in (content, content.get("config", {})):
            for name in new & options.keys():
                del options[name]
        if content.pop("checksum", None) is not None:
            content["checksum"] = json_checksum(content)
        path.write_text(json.dumps(content))
    gm.lm.train(tiny_shards, out=run, resume=True, progress=None)
    whole, resumed = tensors(tmp_path / "whole", 8), tensors(run, 8)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_resumed_run_keeps_its_window(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", **SHORT, sliding_window=6)
    with pytest.raises(CheckpointError, match="sliding_window was 6 and is now 7"):
        gm.lm.train(tiny_shards, out=tmp_path / "run", resume=True, progress=None, sliding_window=7, max_steps=12)
