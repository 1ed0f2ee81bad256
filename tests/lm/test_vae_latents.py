"""From latents to sequences: generation, decoding, and a tiny model that learns both."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from gristmill.errors import OptionError
from gristmill.lm.data.batch import Batch
from gristmill.lm.models.vae.network import SequenceVAE
from gristmill.lm.training.optimizers import build_optimizer
from lm.tiny_vae import (
    CONFIG,
    INJECTIONS,
    OF_VECTORS,
    SWITCHES,
    E,
    T,
    Z,
    batch_of,
    loss_of,
    make,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("injection", INJECTIONS)
def test_generation_with_a_cache_gives_the_tokens_of_generation_without(injection):
    model = make(latent_injection=injection)
    z_NZ = torch.randn(3, Z)
    found = model.generate(z_NZ, max_tokens=T, temperature=0)
    for z_Z, ids in zip(z_NZ, found, strict=True):
        expected = []
        for _ in range(T):
            inputs = torch.tensor([expected], dtype=torch.int64).reshape(1, -1)
            x_BTD = torch.cat([model.starts(1), model.embedding(inputs)], dim=1)
            expected.append(int(model.logits(model.decoded(x_BTD, z_Z[None])[0, -1]).argmax()))
        assert ids == expected


def test_generation_ends_each_row_at_its_own_stop_and_at_the_longest_sequence():
    model = make()
    z_NZ = torch.randn(8, Z)
    free = model.generate(z_NZ, max_tokens=100, seed=5, temperature=3.0)
    assert {len(row) for row in free} == {T}
    stop_id = free[0][4]
    stopped = model.generate(z_NZ, max_tokens=100, seed=5, temperature=3.0, stop_id=stop_id)
    for row, whole in zip(stopped, free, strict=True):
        end = whole.index(stop_id) if stop_id in whole else T
        assert row == whole[:end], "what becomes of a row does not depend on the others"
    assert [len(row) for row in model.generate(z_NZ, max_tokens=3, seed=0)] == [3] * 8
    assert model.generate(z_NZ[:0], max_tokens=3) == []
    assert model.generate(z_NZ[:1], max_tokens=0) == [[]]


def test_the_same_seed_gives_the_same_tokens():
    model, z_NZ = make(), torch.randn(2, Z)
    one, same, other = (model.generate(z_NZ, max_tokens=T, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("injection", INJECTIONS)
def test_vectors_are_decoded_each_after_those_before_it(injection):
    model = make(OF_VECTORS, latent_injection=injection)
    z_NZ = torch.randn(2, Z)
    found = model.decode_vectors(z_NZ, 5)
    assert found.shape == (2, 5, E)
    targets = torch.zeros(2, 5, dtype=torch.int64)
    # The prediction then equals the sequence, so it costs only the constant.
    nats_B = model.reconstruction_nats(Batch(targets, targets, vectors_BTE=found), z_NZ)
    torch.testing.assert_close(nats_B, torch.full((2,), 5 * E / 2 * math.log(2 * math.pi)), atol=1e-3, rtol=1e-5)


def test_generation_under_autocast_has_a_cache_of_its_type():
    model = make(std=0.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert len(model.generate(torch.randn(2, Z), max_tokens=4, seed=0)) == 2
        assert make(OF_VECTORS).decode_vectors(torch.randn(2, Z), 3).dtype == torch.float32


def test_a_model_of_vectors_makes_no_tokens_and_the_other_way_round():
    with pytest.raises(OptionError, match="generates vectors, not tokens"):
        make(OF_VECTORS).generate(torch.randn(1, Z), max_tokens=3)
    with pytest.raises(OptionError, match="generates tokens, not vectors"):
        make().decode_vectors(torch.randn(1, Z), 3)
    with pytest.raises(OptionError, match=r"length must be 1 to 12, got 13"):
        make(OF_VECTORS).decode_vectors(torch.randn(1, Z), 13)
    with pytest.raises(OptionError, match="takes sequences of vectors, but the batch has no vectors"):
        make(OF_VECTORS).loss(batch_of(3), {})


# Learning


@pytest.mark.parametrize("injection", INJECTIONS)
def test_a_tiny_model_puts_sequences_into_latents_and_takes_them_out_again(injection):
    config = dataclasses.replace(CONFIG, d_model=32, latent_injection=injection, word_dropout=0.5)
    model = SequenceVAE(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.0)
    batch = batch_of(12, 5, 9, 12)
    for step in range(300):
        optimizer.zero_grad()
        loss_of(model, batch, 0.01, seed=step)[0].backward()
        optimizer.step()
    mu_BZ, _ = model.encode(batch)
    ids = model.generate(mu_BZ, max_tokens=T, temperature=0)
    for row, length in enumerate((12, 5, 9, 12)):
        assert ids[row][:length] == batch.inputs_BT[row, :length].tolist()
    shuffled_B = model.reconstruction_nats(batch, mu_BZ.roll(1, 0))
    assert (shuffled_B > model.reconstruction_nats(batch, mu_BZ) + 5).all(), "it asks the latent"


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_every_optimizer_takes_all_parameters(name):
    model = make(**SWITCHES).train()
    optimizer = build_optimizer(model, name, lr=0.01)
    loss_of(model, batch_of(12, 5))[0].backward()
    before = {key: value.clone() for key, value in model.named_parameters()}
    optimizer.step()
    unchanged = [key for key, value in model.named_parameters() if torch.equal(before[key], value)]
    assert unchanged == []
    for key, number in model.stacked_weights().items():
        assert before[key].shape[0] % number == 0
