"""The sequence VAE in other precisions, compiled, and on a GPU: the same loss, and no synchronization."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from gristmill.lm.models.vae import network as vae_module
from lm.tiny_vae import (
    CONFIG,
    OF_VECTORS,
    SWITCHES,
    Z,
    batch_of,
    loss_of,
    make,
    vectors_of,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_bfloat16_autocast_leaves_the_posterior_in_float32():
    model, batch = make(std=0.0), batch_of(12, 5, 9)
    expected, _ = loss_of(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        loss, stats = loss_of(model, batch)
        nats_B = model.reconstruction_nats(batch, stats["z"])
    assert {value.dtype for value in stats.values()} == {torch.float32} == {nats_B.dtype}
    assert loss.item() == pytest.approx(expected.item(), rel=0.02)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(
    "switches",
    [
        {"latent_injection": "embedding"},
        {**SWITCHES, "word_dropout": 0.0},
        {"free_bits": 1.0, "free_bits_mode": "dimension", "tie_embeddings": True},
    ],
)
def test_the_loss_compiles_in_one_graph_and_is_the_same(switches, autocast):
    torch._dynamo.reset()
    model = make(**switches).train()
    batch, results = batch_of(12, 5, 9), []
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for loss_of_batch in (model.loss, torch.compile(model.loss, fullgraph=True, backend="aot_eager")):
        model.load_state_dict(state)
        model.zero_grad()
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss, stats = loss_of_batch(batch, {"kl_weight": torch.tensor(0.5)})
        loss.backward()
        results.append([loss.detach(), *stats.values(), *(p.grad for p in model.parameters()), *model.buffers()])
    tolerance = 5e-2 if autocast else 1e-5
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("config", [dataclasses.replace(CONFIG, word_dropout=0.5), OF_VECTORS])
def test_word_dropout_and_vectors_compile_in_one_graph(config):
    torch._dynamo.reset()
    model = make(config).train()
    batch = batch_of(12, 5) if config.embedding_dim is None else vectors_of(12, 5)
    loss, _ = torch.compile(model.loss, fullgraph=True, backend="aot_eager")(batch, {"kl_weight": torch.tensor(1.0)})
    loss.backward()
    assert loss.isfinite()


def test_another_kl_weight_does_not_compile_again():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    model, batch = make().train(), batch_of(12, 5)
    compiled = torch.compile(model.loss, backend=counter)
    losses = [compiled(batch, {"kl_weight": torch.tensor(weight)})[0].item() for weight in (0.0, 0.3, 0.7, 1.0)]
    assert counter.frame_count == 1
    assert len(set(losses)) == 4


def test_nothing_in_a_step_waits_for_the_device(monkeypatch):
    model, batch = make(**SWITCHES).train(), batch_of(12, 5)
    for name in ("item", "tolist", "__bool__", "__float__", "__int__", "cpu", "numpy", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, lambda *_, name=name: pytest.fail(f"{name} waits"))
    loss, _ = model.loss(batch, {"kl_weight": torch.tensor(0.5)})
    loss.backward()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("config", [dataclasses.replace(CONFIG, **SWITCHES), OF_VECTORS])
def test_on_a_gpu_nothing_waits_and_the_loss_is_that_of_the_cpu(config, dtype):
    model = make(config).train()
    batch = batch_of(12, 5, 9) if config.embedding_dim is None else vectors_of(12, 5, 9)
    z_BZ = torch.randn(3, Z)
    expected_B = model.reconstruction_nats(batch, z_BZ)
    model, batch, z_BZ, weight = model.cuda(), batch.to("cuda"), z_BZ.cuda(), torch.tensor(0.5, device="cuda")
    model.loss(batch, {"kl_weight": weight})[0].backward()  # the first call loads kernels, which waits
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", dtype):
            loss, stats = model.loss(batch, {"kl_weight": weight})
        loss.backward()
        found_B = model.reconstruction_nats(batch, z_BZ)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert {value.dtype for value in stats.values()} == {torch.float32}
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    torch.testing.assert_close(found_B.cpu(), expected_B, atol=1e-2, rtol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("switches", [{}, {**SWITCHES, "word_dropout": 0.0}])
def test_on_a_gpu_the_compiled_loss_is_the_same(switches):
    torch._dynamo.reset()
    model, batch = make(**switches).cuda().train(), batch_of(12, 5, 9).to("cuda")
    with torch.no_grad():
        model.posterior.linear.bias[Z:] = -20  # almost no noise, because compiled code draws other numbers
    schedule = {"kl_weight": torch.tensor(0.5, device="cuda")}
    eager, _ = model.loss(batch, schedule)
    compiled, _ = torch.compile(model.loss, fullgraph=True)(batch, schedule)
    compiled.backward()
    torch.testing.assert_close(compiled, eager, atol=2e-2, rtol=2e-2)


def test_the_latent_is_drawn_by_the_generator_of_torch_and_looking_at_it_draws_nothing():
    model, batch = make(**SWITCHES).train(), batch_of(12, 5)
    assert torch.equal(loss_of(model, batch, seed=1)[1]["z"], loss_of(model, batch, seed=1)[1]["z"])
    assert not torch.equal(loss_of(model, batch, seed=1)[1]["z"], loss_of(model, batch, seed=2)[1]["z"])
    state = torch.get_rng_state()
    buffers = {name: value.clone() for name, value in model.state_dict().items()}
    model.reconstruction_nats(batch, torch.randn(2, Z, generator=torch.Generator()))
    model.generate(torch.zeros(2, Z), max_tokens=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, buffers[name]) for name, value in model.state_dict().items())
    assert model.training


def test_nats_computed_in_parts_are_the_same(monkeypatch):
    model, batch = make(), batch_of(12, 5, 9)
    z_BZ = torch.randn(3, Z)
    whole = model.reconstruction_nats(batch, z_BZ)
    monkeypatch.setattr(vae_module, "TOKENS_AT_ONCE", 7)
    torch.testing.assert_close(model.reconstruction_nats(batch, z_BZ), whole)
