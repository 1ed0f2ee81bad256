"""The inputs of the posterior: the pooled stream of the encoder and the pooled embeddings."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from tests.lm.tiny_vae import CONFIG, OF_VECTORS, T, V, Z, batch_of, make, vectors_of, wider, with_empty_row

from gristmill.lm.data.batch import Batch
from gristmill.lm.models.vae.network import SequenceVAE, pooled

KINDS = [(CONFIG, batch_of), (OF_VECTORS, vectors_of)]


def spread(mu_BZ):
    """The variance of mu over the sequences, averaged over the dimensions."""
    return mu_BZ.var(0).mean().item()


def forget_sequences(model):
    """Give every sequence the same stream, as an encoder does after large first steps."""
    with torch.no_grad():
        model.encoder_norm.weight.zero_()


@pytest.mark.parametrize(("config", "new"), KINDS, ids=["tokens", "vectors"])
def test_the_posterior_is_the_sum_of_both_ways(config, new):
    model, batch = make(config), new(12, 5)
    shortcut = model.posterior.shortcut
    mu_BZ, logvar_BZ = model.encode(batch)
    added_BY = shortcut(pooled(model._embedded(batch), batch.targets_BT != -100))
    with torch.no_grad():
        shortcut.weight.zero_()
    without_BY = torch.cat(model.encode(batch), dim=1)
    torch.testing.assert_close(torch.cat([mu_BZ, logvar_BZ], dim=1), without_BY + added_BY)


@pytest.mark.parametrize(("config", "new"), KINDS, ids=["tokens", "vectors"])
def test_an_encoder_that_forgets_its_sequences_leaves_the_latents_different(config, new):
    batch = new(*[12] * 40)
    with_shortcut, without = make(config), make(config, encoder_shortcut=False)
    for model in (with_shortcut, without):
        forget_sequences(model)
    assert spread(with_shortcut.encode(batch)[0]) > 0.1
    assert spread(without.encode(batch)[0]) < 1e-6


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("config", "new"), KINDS, ids=["tokens", "vectors"])
def test_a_row_has_the_same_posterior_alone_and_among_others_however_far_it_is_padded(config, new, training):
    model, batch = make(config).train(training), new(12, 5, 1, 9)
    together = torch.cat(model.encode(batch), dim=1)
    for row, length in enumerate((12, 5, 1, 9)):
        vectors = None if batch.vectors_BTE is None else batch.vectors_BTE[row : row + 1, :length]
        alone = Batch(
            batch.inputs_BT[row : row + 1, :length], batch.targets_BT[row : row + 1, :length], vectors_BTE=vectors
        )
        torch.testing.assert_close(torch.cat(model.encode(alone), dim=1), together[row : row + 1])
        padded = torch.cat(model.encode(wider(alone, T)), dim=1)
        torch.testing.assert_close(padded, together[row : row + 1])


def test_a_single_row_and_a_row_of_padding_are_finite():
    model = make().train()
    for batch in (batch_of(7), batch_of(1), with_empty_row(batch_of(7))):
        loss, stats = model.loss(batch, {"kl_weight": 1.0})
        loss.backward()
        assert loss.isfinite() and stats["mu"].isfinite().all() and stats["logvar"].isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_the_shortcut_trains_only_its_own_matrix():
    model, batch = make(), batch_of(12, 9)
    forget_sequences(model)
    model.encoder_norm.weight.requires_grad_(False)
    mu_BZ, logvar_BZ = model.encode(batch)
    (mu_BZ.sum() + logvar_BZ.sum()).backward()
    assert model.posterior.shortcut.weight.grad.abs().max() > 0
    assert model.embedding.weight.grad is None or model.embedding.weight.grad.abs().max() == 0


@pytest.mark.parametrize("encoder_shortcut", [False, True])
def test_means_have_variance_1_over_random_sequences_at_the_start_with_and_without_the_shortcut(encoder_shortcut):
    torch.manual_seed(0)
    sizes = {"d_model": 64, "latent_dim": 64, "max_sequence_length": 16, "encoder_shortcut": encoder_shortcut}
    model = SequenceVAE(dataclasses.replace(CONFIG, **sizes)).eval()
    tokens_BT = torch.randint(V, (200, 16))
    mu_BZ, logvar_BZ = model.encode(Batch(tokens_BT, tokens_BT))
    assert mu_BZ.square().mean().item() == pytest.approx(1, rel=0.2)
    assert math.sqrt(logvar_BZ.square().mean().item()) == pytest.approx(0.1, rel=0.2)


def test_without_the_shortcut_there_is_no_weight_of_it():
    assert not [name for name in make(encoder_shortcut=False).state_dict() if "shortcut" in name]
    assert make().state_dict()["posterior.shortcut.weight"].shape == (2 * Z, 2 * CONFIG.d_model)
    assert "posterior.shortcut.weight" in make().stacked_weights()
    assert "posterior.shortcut.weight" not in make(encoder_shortcut=False).stacked_weights()


@pytest.mark.parametrize("batch_size", [1, 4])
def test_latents_stay_different_through_the_first_steps_whatever_the_batch(batch_size):
    """In twenty steps of AdamW, at the learning rate of the presets, an encoder alone forgets its sequences."""
    found = {}
    for encoder_shortcut in (False, True):
        torch.manual_seed(0)
        sizes = {"d_model": 64, "latent_dim": 8, "max_sequence_length": 24, "num_heads": 4, "num_layers": 3}
        config = dataclasses.replace(
            CONFIG, vocab_size=300, bag_of_words_weight=1.0, encoder_shortcut=encoder_shortcut, **sizes
        )
        model = SequenceVAE(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
        # Token frequencies like those of words: a few make up most of every sequence.
        frequencies_V = 1 / torch.arange(1.0, 301)
        sequences = frequencies_V.expand(64, -1).multinomial(24 * 21, replacement=True).view(64, 21, 24)
        for step in range(20):
            tokens_BT = sequences[:batch_size, step]
            loss, _ = model.loss(Batch(tokens_BT, tokens_BT), {"kl_weight": 0.1})
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        fresh_BT = sequences[:, 20]
        found[encoder_shortcut] = spread(model.eval().encode(Batch(fresh_BT, fresh_BT))[0])
    assert found[True] > 0.1
    assert found[False] < found[True] / 2
