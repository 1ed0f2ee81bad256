from __future__ import annotations

import errno
import io
import json
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gristmill.errors import CheckpointError, OptionError
from gristmill.lm import functional as plain

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def close(ours, theirs, tolerance=1e-5):
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


# Layers


def test_linear_is_that_of_torch():
    x, weight = torch.randn(2, 3, 8), torch.randn(5, 8)
    close(plain.linear(x, weight), F.linear(x, weight))


def test_embedding_is_that_of_torch():
    ids, weight = torch.randint(50, (2, 7)), torch.randn(50, 8)
    close(plain.embedding(ids, weight), F.embedding(ids, weight))


def test_rmsnorm_is_that_of_torch():
    x, weight = torch.randn(2, 3, 8) * 5, torch.randn(8)
    close(plain.rmsnorm(x, weight, eps=1e-5), F.rms_norm(x, (8,), weight, 1e-5))


def test_rmsnorm_of_large_float16_numbers_does_not_overflow():
    normed = plain.rmsnorm(torch.full((4,), 1000.0, dtype=torch.float16), torch.ones(4))
    assert normed.dtype == torch.float16
    close(normed.float(), torch.ones(4), 1e-3)


def test_silu_is_that_of_torch():
    x = torch.linspace(-20, 20, 101)
    close(plain.silu(x), F.silu(x))


def test_swiglu_gates_by_the_first_matrix():
    x, w1, w2, w3 = torch.randn(3, 8), torch.randn(16, 8), torch.randn(8, 16), torch.randn(16, 8)
    close(plain.swiglu(x, w1, w2, w3), F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2), 1e-4)


def test_rope_turns_neighbours_by_the_angle_of_the_position():
    x, positions, theta = torch.randn(5, 8), torch.tensor([0, 3, 1, 100, 7]), 500.0
    as_complex = torch.view_as_complex(x.view(5, 4, 2))
    angles = positions[:, None] * theta ** -(torch.arange(4) / 4)
    turned = torch.view_as_real(as_complex * torch.polar(torch.ones_like(angles), angles)).flatten(1)
    close(plain.rope(x, positions, theta=theta), turned)


def test_rope_takes_positions_of_their_own_for_each_sequence():
    x, positions = torch.randn(2, 3, 5, 8), torch.randint(1000, (2, 1, 5))
    rotated = plain.rope(x, positions)
    for b in range(2):
        for h in range(3):
            close(rotated[b, h], plain.rope(x[b, h], positions[b, 0]))


def test_rope_makes_scores_depend_on_the_distance_alone():
    q, k = torch.randn(1, 16), torch.randn(1, 16)

    def score(at_q, at_k):
        return plain.rope(q, torch.tensor([at_q])) @ plain.rope(k, torch.tensor([at_k])).T

    close(score(3, 1), score(103, 101), 1e-4)
    assert not torch.allclose(score(3, 1), score(4, 1), atol=1e-3)


# Attention


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_is_that_of_torch(dim):
    x = torch.randn(4, 5, 6)
    close(plain.softmax(x, dim), F.softmax(x, dim))


def test_softmax_and_cross_entropy_are_stable_for_logits_times_1000():
    logits, targets = torch.randn(4, 9) * 1000, torch.randint(9, (4,))
    close(plain.softmax(logits), F.softmax(logits, -1))
    close(plain.cross_entropy(logits, targets), F.cross_entropy(logits, targets))
    assert plain.softmax(logits).isfinite().all()


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_that_of_torch(masked):
    q, k, v = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    mask = torch.rand(5, 7) < 0.5
    mask[:, 0] = True
    mask = mask if masked else None
    close(plain.scaled_dot_product_attention(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask))


@pytest.mark.parametrize("num_heads", [1, 4])
def test_multihead_attention_without_rope_is_that_of_torch(num_heads):
    x, (q, k, v, output) = torch.randn(2, 6, 16), torch.randn(4, 16, 16) / 4
    reference = nn.MultiheadAttention(16, num_heads, bias=False, batch_first=True)
    reference.load_state_dict({"in_proj_weight": torch.cat((q, k, v)), "out_proj.weight": output})
    seen = torch.ones(6, 6, dtype=torch.bool).triu(1)
    expected = reference(x, x, x, attn_mask=seen, need_weights=False)[0].detach()
    close(plain.multihead_self_attention(x, q, k, v, output, num_heads=num_heads), expected)


def test_multihead_attention_with_rope_turns_queries_and_keys_but_not_values():
    x, (q, k, v, output) = torch.randn(2, 6, 16), torch.randn(4, 16, 16) / 4

    def heads(weight):
        return F.linear(x, weight).view(2, 6, 4, 4).transpose(1, 2)

    positions = torch.arange(6)
    mixed = F.scaled_dot_product_attention(
        plain.rope(heads(q), positions), plain.rope(heads(k), positions), heads(v), is_causal=True
    )
    expected = F.linear(mixed.transpose(1, 2).flatten(2), output)
    close(plain.multihead_self_attention(x, q, k, v, output, num_heads=4, theta=10_000.0), expected)
    shifted = (positions + 50).expand(2, 6)
    ours = plain.multihead_self_attention(x, q, k, v, output, num_heads=4, theta=10_000.0, positions=shifted)
    close(ours, expected, 1e-4)


# The model


def lm_weights(num_layers=2, vocab_size=40, d_model=16, d_ff=24):
    shapes = {"token_embeddings.weight": (vocab_size, d_model), "lm_head.weight": (vocab_size, d_model)}
    for i in range(num_layers):
        shapes |= {f"layers.{i}.attn.{name}_proj.weight": (d_model, d_model) for name in ("q", "k", "v", "output")}
        shapes |= {f"layers.{i}.ffn.{name}.weight": (d_ff, d_model) for name in ("w1", "w3")}
        shapes |= {f"layers.{i}.ffn.w2.weight": (d_model, d_ff)}
    weights = {name: torch.randn(shape) / 4 for name, shape in shapes.items()}
    norms = [f"layers.{i}.ln{j}.weight" for i in range(num_layers) for j in (1, 2)] + ["ln_final.weight"]
    return weights | {name: torch.rand(d_model) + 0.5 for name in norms}


def test_language_model_reads_as_many_layers_as_there_are():
    tokens = torch.randint(40, (2, 6))
    logits = [plain.transformer_lm(lm_weights(n), tokens, num_heads=2) for n in (0, 1, 11)]
    assert [tuple(each.shape) for each in logits] == [(2, 6, 40)] * 3


def test_language_model_is_causal():
    weights, tokens = lm_weights(), torch.randint(40, (1, 8))
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 40
    before, after = (plain.transformer_lm(weights, each, num_heads=2) for each in (tokens, changed))
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_language_model_without_a_head_uses_its_embedding():
    weights, tokens = lm_weights(), torch.randint(40, (1, 8))
    tied = {name: weight for name, weight in weights.items() if name != "lm_head.weight"}
    weights["lm_head.weight"] = weights["token_embeddings.weight"]
    assert torch.equal(
        plain.transformer_lm(tied, tokens, num_heads=2), plain.transformer_lm(weights, tokens, num_heads=2)
    )


def test_cross_entropy_is_that_of_torch_for_any_number_of_dimensions():
    logits, targets = torch.randn(2, 3, 9), torch.randint(9, (2, 3))
    close(plain.cross_entropy(logits, targets), F.cross_entropy(logits.flatten(0, 1), targets.flatten()))


# Its training


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int64])
def test_batches_are_windows_and_what_follows_them(dtype):
    x, y = plain.get_batch(np.arange(1000, dtype=dtype), 16, 32)
    assert (x.dtype, tuple(x.shape)) == (torch.int64, (16, 32))
    assert torch.equal(x[:, 1:], y[:, :-1])
    assert torch.equal(y, x + 1)


def test_every_window_occurs_equally_often_the_last_one_too():
    x, y = plain.get_batch(np.arange(10), 20_000, 7)
    counts = torch.bincount(x[:, 0])
    assert len(counts) == 3
    assert y.max() == 9
    assert (counts - 20_000 / 3).abs().max() < 4 * math.sqrt(20_000 * 2 / 9)


def test_the_same_generator_gives_the_same_batch_and_leaves_the_global_one_alone():
    array = np.arange(1000)
    state = torch.get_rng_state()
    batches = [plain.get_batch(array, 4, 8, generator=torch.Generator().manual_seed(7)) for _ in range(2)]
    assert torch.equal(batches[0][0], batches[1][0])
    assert torch.equal(torch.get_rng_state(), state)


def test_a_memory_map_gives_the_batches_of_its_array(tmp_path):
    np.arange(500, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    mapped = np.memmap(tmp_path / "tokens.bin", dtype=np.uint16, mode="r")
    x, y = plain.get_batch(mapped, 4, 8)
    assert torch.equal(y, x + 1)


@pytest.mark.parametrize("num_tokens", [0, 8])
def test_too_few_tokens_for_one_window_are_refused(num_tokens):
    with pytest.raises(OptionError, match=f"needs at least 9 tokens, and there are {num_tokens}"):
        plain.get_batch(np.zeros(num_tokens, np.uint16), 1, 8)


@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 1e6])
def test_clipping_is_that_of_torch(max_norm):
    ours, theirs = ([torch.zeros(shape, requires_grad=True) for shape in ((3, 4), (5,), (2,))] for _ in range(2))
    for a, b in list(zip(ours, theirs, strict=True))[:2]:  # the last one has no gradient
        a.grad = torch.randn_like(a)
        b.grad = a.grad.clone()
    norm = plain.clip_gradients(ours, max_norm)
    close(norm, torch.nn.utils.clip_grad_norm_(theirs, max_norm))
    for a, b in list(zip(ours, theirs, strict=True))[:2]:
        close(a.grad, b.grad)


def test_clipping_without_gradients_does_nothing():
    assert plain.clip_gradients([torch.zeros(3, requires_grad=True)], 1.0).item() == 0


def test_cosine_schedule_is_that_of_torch_after_the_warm_up():
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20, eta_min=0.1)
    for step in range(5, 25):
        ours = plain.cosine_schedule(step, peak=1.0, final=0.1, warmup_steps=5, total_steps=25)
        assert ours == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-9)
        optimizer.step()
        theirs.step()


def test_cosine_schedule_without_warm_up_begins_at_the_peak():
    assert plain.cosine_schedule(0, peak=1.0, final=0.0, warmup_steps=0, total_steps=0) == 0.0
    assert plain.cosine_schedule(0, peak=1.0, final=0.0, warmup_steps=0, total_steps=9) == 1.0


def train_steps(model, optimizer, num_steps):
    for _ in range(num_steps):
        optimizer.zero_grad()
        x = torch.randn(8, 4)
        F.mse_loss(model(x), x.flip(-1)).backward()
        optimizer.step()


OPTIONS = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def test_adamw_is_that_of_torch():
    models = [nn.Linear(4, 4), nn.Linear(4, 4)]
    models[1].load_state_dict(models[0].state_dict())
    for model, kind in zip(models, (plain.AdamW, torch.optim.AdamW), strict=True):
        torch.manual_seed(1)
        groups = [{"params": [model.weight]}, {"params": [model.bias], "weight_decay": 0.0, "lr": 0.03}]
        train_steps(model, kind(groups, **OPTIONS), 50)
    close(models[0].weight, models[1].weight)
    close(models[0].bias, models[1].bias)


def test_adamw_refuses_numbers_that_make_no_sense():
    with pytest.raises(OptionError, match=r"betas=\(0.9, 1.0\)"):
        plain.AdamW([nn.Parameter(torch.zeros(1))], betas=(0.9, 1.0))


@pytest.mark.parametrize("kind", [plain.AdamW, torch.optim.AdamW])
@pytest.mark.parametrize("to", ["path", "file"])
def test_training_resumes_exactly_from_a_checkpoint(kind, to, tmp_path):
    model = nn.Linear(4, 4)
    optimizer = kind(model.parameters(), **OPTIONS)
    train_steps(model, optimizer, 5)
    out = tmp_path / "checkpoint" if to == "path" else io.BytesIO()
    plain.save_checkpoint(model, optimizer, 5, out)
    torch.manual_seed(2)
    train_steps(model, optimizer, 5)

    other = nn.Linear(4, 4)
    resumed = kind(other.parameters(), lr=1.0)
    if to == "file":
        out.seek(0)
    assert plain.load_checkpoint(out, other, resumed) == 5
    assert resumed.param_groups[0]["betas"] == (0.9, 0.95)
    torch.manual_seed(2)
    train_steps(other, resumed, 5)
    assert torch.equal(model.weight, other.weight)
    assert torch.equal(model.bias, other.bias)


def test_a_checkpoint_of_tied_weights_and_before_the_first_step(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

    model, other = Tied(), Tied()
    plain.save_checkpoint(model, plain.AdamW(model.parameters()), 0, str(tmp_path / "tied"))
    assert plain.load_checkpoint(tmp_path / "tied", other, plain.AdamW(other.parameters())) == 0
    assert other.a.weight is other.b.weight
    assert torch.equal(other.a.weight, model.a.weight)


def test_a_checkpoint_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    model = nn.Linear(4, 4)
    optimizer, path = plain.AdamW(model.parameters()), tmp_path / "checkpoint"
    plain.save_checkpoint(model, optimizer, 1, path)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        plain.save_checkpoint(model, optimizer, 2, path)
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]
    assert plain.load_checkpoint(path, model, optimizer) == 1


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"\xff" * 100])
def test_what_is_not_a_checkpoint_is_refused(content, tmp_path):
    model = nn.Linear(4, 4)
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(CheckpointError, match="not a checkpoint, or is damaged"):
        plain.load_checkpoint(tmp_path / "checkpoint", model, plain.AdamW(model.parameters()))


def test_a_pickle_is_refused_and_not_read(tmp_path):
    model = nn.Linear(4, 4)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        plain.load_checkpoint(tmp_path / "model.pt", model, plain.AdamW(model.parameters()))


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    from safetensors.torch import save_file

    model = nn.Linear(4, 4)
    save_file({"a": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(CheckpointError, match="not a checkpoint of save_checkpoint"):
        plain.load_checkpoint(tmp_path / "foreign", model, plain.AdamW(model.parameters()))


@pytest.mark.parametrize("metadata", ["null", "{}"])
def test_a_safetensors_file_without_metadata_is_refused(metadata):
    header = f'{{"__metadata__": {metadata}}}'.encode()
    model = nn.Linear(4, 4)
    file = io.BytesIO(len(header).to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match="not a checkpoint of save_checkpoint"):
        plain.load_checkpoint(file, model, plain.AdamW(model.parameters()))


@pytest.mark.parametrize("other", [nn.Linear(4, 5), nn.Sequential(nn.Linear(4, 4))], ids=["shape", "names"])
def test_a_checkpoint_of_another_model_is_refused(other):
    model, file = nn.Linear(4, 4), io.BytesIO()
    plain.save_checkpoint(model, plain.AdamW(model.parameters()), 1, file)
    file.seek(0)
    with pytest.raises(CheckpointError, match="does not fit this model"):
        plain.load_checkpoint(file, other, plain.AdamW(other.parameters()))


def test_a_checkpoint_with_a_damaged_record_is_refused():
    from safetensors.torch import save

    model, good = nn.Linear(4, 4), io.BytesIO()
    optimizer = plain.AdamW(model.parameters())
    train_steps(model, optimizer, 1)
    plain.save_checkpoint(model, optimizer, 1, good)
    tensors = {f"model.{name}": tensor.clone() for name, tensor in model.state_dict().items()}
    for record in ("[]", "{", json.dumps({"numbers": {}, "param_groups": 3})):
        metadata = {"format": plain.CHECKPOINT_FORMAT, "iteration": "1", "optimizer": record}
        with pytest.raises(CheckpointError):
            plain.load_checkpoint(io.BytesIO(save(tensors, metadata)), model, optimizer)
