"""The sequence VAE: its loss against closed forms, attention, options against collapse, sizes."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch.nn import functional as F

from gristmill.errors import OptionError
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.models.registry import MODELS
from gristmill.lm.models.vae.network import BatchNormMu, SequenceVAE, VAEConfig, kl_divergence, pooled, with_free_bits
from gristmill.lm.training.optimizers import build_optimizer
from lm.tiny_vae import (
    CONFIG,
    INJECTIONS,
    OF_VECTORS,
    SWITCHES,
    E,
    T,
    V,
    Z,
    batch_of,
    loss_of,
    make,
    rows_of,
    vectors_of,
    wider,
    with_empty_row,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


# The loss


@pytest.mark.parametrize("injection", INJECTIONS)
@pytest.mark.parametrize("kind", ["tokens", "vectors"])
def test_loss_is_reconstruction_and_weighted_kl_over_the_number_of_targets(injection, kind):
    config, batch = (CONFIG, batch_of(12, 5, 9)) if kind == "tokens" else (OF_VECTORS, vectors_of(12, 5, 9))
    model = make(config, latent_injection=injection)
    for kl_weight in (0.0, 0.5, torch.tensor(1.0)):
        loss, stats = loss_of(model, batch, kl_weight)
        nats_B = model.reconstruction_nats(batch, stats["z"])
        posterior = torch.distributions.Normal(stats["mu"], (stats["logvar"] / 2).exp())
        kl_B = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum(1)
        torch.testing.assert_close(loss, (nats_B.sum() + kl_weight * kl_B.sum()) / 26)
        torch.testing.assert_close(stats["reconstruction"], nats_B.sum() / 26)
        torch.testing.assert_close(stats["kl"], kl_B.mean())
        assert torch.equal(stats["loss"], loss)
    assert not any(value.requires_grad for value in stats.values())
    assert set(VAEConfig.STATISTICS) < set(stats)


def test_a_token_costs_what_the_decoder_step_by_step_says_of_it():
    model, batch = make(), batch_of(6)
    z_BZ = torch.randn(1, Z)
    seen = []
    x_BTD = model.starts(1)
    for t in range(6):
        logits_V = model.logits(model.decoded(x_BTD, z_BZ)[0, -1])
        seen.append(-logits_V.log_softmax(-1)[batch.targets_BT[0, t]])
        x_BTD = torch.cat([x_BTD, model.embedding(batch.inputs_BT[:, t : t + 1])], dim=1)
    torch.testing.assert_close(model.reconstruction_nats(batch, z_BZ)[0], torch.stack(seen).sum())


def test_vectors_cost_the_nats_of_a_gaussian_of_variance_1():
    model, batch = make(OF_VECTORS), vectors_of(4)
    z_BZ = torch.randn(1, Z)
    with torch.no_grad():
        model.head.weight.zero_()  # it predicts the bias of the head for every input
    gaussian = torch.distributions.Normal(model.head.bias, torch.ones(E))
    torch.testing.assert_close(
        model.reconstruction_nats(batch, z_BZ)[0], -gaussian.log_prob(batch.vectors_BTE[0]).sum()
    )


def test_without_a_kl_weight_the_loss_is_the_bound_itself():
    model, batch = make(), batch_of(12, 5)
    torch.manual_seed(3)
    loss, _ = model.loss(batch, {})
    assert torch.equal(loss, loss_of(model, batch, 1.0, seed=3)[0])


@pytest.mark.parametrize("switches", [{}, SWITCHES, {**SWITCHES, "free_bits_mode": "dimension"}])
def test_evaluation_uses_no_switch_but_the_norm_of_mu(switches):
    model, batch = make(**switches), batch_of(12, 5, 9)
    loss, stats = loss_of(model, batch)
    nats = model.reconstruction_nats(batch, stats["z"]).sum() + kl_divergence(stats["mu"], stats["logvar"]).sum()
    torch.testing.assert_close(loss, nats / 26)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", ["tokens", "vectors"])
@pytest.mark.parametrize("mode", ["total", "dimension"])
def test_a_row_of_nothing_but_padding_counts_for_nothing(kind, mode, training):
    switches = {**SWITCHES, "word_dropout": 0.0, "free_bits_mode": mode}
    config, batch = (CONFIG, batch_of(12, 5, 9)) if kind == "tokens" else (OF_VECTORS, vectors_of(12, 5, 9))
    if kind == "vectors":
        switches["bag_of_words_weight"] = 0.0
    model = make(config, **switches).train(training)
    with torch.no_grad():
        model.posterior.linear.bias[Z:] = -20  # almost no noise, because more rows draw other numbers
    plain, filled = (loss_of(model, each)[1] for each in (batch, with_empty_row(batch)))
    for name in ("loss", "reconstruction", "kl"):
        torch.testing.assert_close(filled[name], plain[name], atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(filled["mu"][:3], plain["mu"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "config", [dataclasses.replace(CONFIG, **SWITCHES), dataclasses.replace(CONFIG, loss_parts=0), OF_VECTORS]
)
@pytest.mark.parametrize("mode", ["total", "dimension"])
def test_a_batch_of_nothing_but_padding_has_the_loss_0_and_no_gradient_but_0(config, mode):
    model = make(config, free_bits=1.0, free_bits_mode=mode).train()
    batch = batch_of(5, 3) if config.embedding_dim is None else vectors_of(5, 3)
    batch.targets_BT.fill_(IGNORED)
    loss, stats = loss_of(model, batch)
    loss.backward()
    assert loss.item() == stats["kl"].item() == 0
    assert all(value.isfinite().all() for value in stats.values())
    assert all((p.grad == 0).all() for p in model.parameters() if p.grad is not None)
    assert all(value.isfinite().all() for value in model.state_dict().values())


# Attention


@pytest.mark.parametrize("injection", INJECTIONS)
@pytest.mark.parametrize("kind", ["tokens", "vectors"])
def test_a_row_comes_out_the_same_however_far_it_is_padded_and_whatever_the_others_are(injection, kind):
    config, batch = (CONFIG, batch_of(3, 8, 1)) if kind == "tokens" else (OF_VECTORS, vectors_of(3, 8, 1))
    model = make(config, latent_injection=injection)
    mu_BZ, logvar_BZ = model.encode(batch)
    nats_B = model.reconstruction_nats(batch, mu_BZ)
    for other, rows in ((wider(batch, T), [0, 1, 2]), (rows_of(batch, 0), [0]), (rows_of(batch, 2, 0), [2, 0])):
        mu, logvar = model.encode(other)
        torch.testing.assert_close(mu, mu_BZ[rows], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logvar, logvar_BZ[rows], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(model.reconstruction_nats(other, mu), nats_B[rows], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("injection", INJECTIONS)
def test_the_content_of_padding_has_no_effect(injection):
    model, batch = make(latent_injection=injection), batch_of(7, 4)
    garbage = torch.where(batch.targets_BT == IGNORED, 33, batch.inputs_BT)
    for one, other in zip(model.encode(batch), model.encode(Batch(garbage, batch.targets_BT)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    z_BZ = torch.randn(2, Z)
    found = [model.reconstruction_nats(Batch(inputs, batch.targets_BT), z_BZ) for inputs in (batch.inputs_BT, garbage)]
    torch.testing.assert_close(*found, atol=1e-5, rtol=0)


def test_the_encoder_sees_every_token_and_the_decoder_only_those_before():
    model, batch = make(), batch_of(9)
    mu_BZ, _ = model.encode(batch)
    z_BZ = torch.randn(1, Z)
    before = model.decoded(model._shifted(model._embedded(batch)), z_BZ)
    for position in range(9):
        changed = batch.inputs_BT.clone()
        changed[:, position] = (changed[:, position] + 1) % V
        other = Batch(changed, changed)
        assert not torch.allclose(model.encode(other)[0], mu_BZ, atol=1e-4), "the encoder is not causal"
        after = model.decoded(model._shifted(model._embedded(other)), z_BZ)
        torch.testing.assert_close(after[:, : position + 1], before[:, : position + 1], atol=1e-6, rtol=0)
        assert position == 8 or not torch.allclose(after[:, position + 1], before[:, position + 1], atol=1e-4)


@pytest.mark.parametrize("injection", INJECTIONS)
def test_every_token_and_already_the_first_depends_on_the_latent(injection):
    model, batch = make(latent_injection=injection), batch_of(9)
    x_BTD = model._shifted(model._embedded(batch))
    one, other = (model.decoded(x_BTD, torch.randn(1, Z)) for _ in range(2))
    assert ((one - other).abs().amax(-1) > 1e-3).all()


# The posterior at the start


def test_an_untrained_posterior_is_spread_enough_not_to_be_taken_for_a_collapsed_one():
    model = SequenceVAE(
        VAEConfig(vocab_size=500, max_sequence_length=200, num_layers=2, num_heads=4, d_model=64)
    ).eval()
    # As in texts of one language, a few tokens occur everywhere.
    frequencies_V = 1 / torch.arange(1, 501, dtype=torch.float64)
    for length in (1, 20, 200):
        tokens_BT = torch.multinomial(frequencies_V, 64 * length, replacement=True).view(64, length)
        mu_BZ, logvar_BZ = model.encode(Batch(tokens_BT, tokens_BT))
        assert 0.1 < mu_BZ.var(0).mean() < 1.2, length
        assert mu_BZ.var(0).min() > 0.03
        assert logvar_BZ.abs().mean() < 0.3


@pytest.mark.parametrize("injection", INJECTIONS)
def test_at_the_start_tokens_are_equally_likely_and_a_latent_is_heard_beside_embeddings(injection):
    config = VAEConfig(
        vocab_size=1000, max_sequence_length=16, num_layers=2, num_heads=4, d_model=128, latent_injection=injection
    )
    model = SequenceVAE(config).eval()
    tokens_BT = torch.randint(1000, (8, 16))
    stats = loss_of(model, Batch(tokens_BT, tokens_BT))[1]
    assert stats["reconstruction"].item() == pytest.approx(math.log(1000), rel=0.02)
    injected = model.latent(torch.randn(50, 32)) - model.latent(torch.zeros(50, 32))
    loudness = 5 if injection == "memory" else 1
    assert injected.std().item() == pytest.approx(loudness * model.embedding.weight[:1000].std().item(), rel=0.1)
    for name, parameter in model.named_parameters():
        if name.endswith(("output.weight", "down.weight")):
            assert parameter.std().item() == pytest.approx(0.02 / 2, rel=0.1), name


def test_a_step_of_adam_does_not_carry_the_posteriors_away_from_the_prior():
    config = VAEConfig(vocab_size=500, max_sequence_length=32, num_layers=1, num_heads=4, d_model=256)
    model = SequenceVAE(config).train()
    tokens_BT = torch.randint(500, (32, 32))
    batch = Batch(tokens_BT, tokens_BT)
    before_BZ, _ = model.encode(batch)
    optimizer = torch.optim.AdamW(model.posterior.parameters(), lr=1e-3)
    loss_of(model, batch, 0.0)[0].backward()
    optimizer.step()
    moved_BZ = (model.encode(batch)[0] - before_BZ).abs()
    assert 1e-4 < moved_BZ.max() < 0.1  # by lr * sqrt(2 D) at most, not by lr * 2 D


def test_pooling_is_that_of_the_tokens_alone():
    x_BTD, real_BT = torch.randn(3, 5, 8), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0] * 5]).bool()
    found = pooled(x_BTD, real_BT)
    for row, length in ((0, 3), (1, 5)):
        tokens_TD = x_BTD[row, :length]
        expected = [F.layer_norm(each, (8,)) for each in (tokens_TD.mean(0), tokens_TD.amax(0))]
        torch.testing.assert_close(found[row], torch.cat(expected) / 4)
        assert found[row].norm().item() == pytest.approx(1, abs=1e-3)
    assert (found[2] == 0).all()


# The switches


def test_free_bits_of_a_sequence_and_of_a_dimension_are_what_they_say():
    kl_BZ = torch.tensor([[0.1, 3.0], [0.3, 0.2], [9.0, 9.0]], requires_grad=True)
    real_B = torch.tensor([True, True, False])
    total = with_free_bits(kl_BZ, real_B, 1.0, "total")
    assert total.item() == pytest.approx(3.1 + 1.0)  # the second sequence has 0.5, which is free
    (gradient,) = torch.autograd.grad(total, kl_BZ)
    assert gradient.tolist() == [[1, 1], [0, 0], [0, 0]]
    dimension = with_free_bits(kl_BZ, real_B, 1.0, "dimension")
    assert dimension.item() == pytest.approx(2 * (1.0 + 1.6))  # the means are 0.2, which is free, and 1.6
    (gradient,) = torch.autograd.grad(dimension, kl_BZ)
    assert gradient.tolist() == [[0, 1], [0, 1], [0, 0]]


@pytest.mark.parametrize("mode", ["total", "dimension"])
def test_free_bits_raise_the_loss_in_training_but_not_the_reported_kl(mode):
    plain, free = (make(free_bits=number, free_bits_mode=mode).train() for number in (0.0, 100.0))
    free.load_state_dict(plain.state_dict())
    batch = batch_of(12, 5)
    (low, stats), (high, other) = loss_of(plain, batch), loss_of(free, batch)
    floor = 100.0 * (1 if mode == "total" else Z)
    assert torch.equal(stats["kl"], other["kl"])
    torch.testing.assert_close(high - low, (2 * floor - 2 * stats["kl"]) / 17)


def test_word_dropout_hides_inputs_of_the_decoder_in_training_only():
    model = make(word_dropout=0.5)
    batch = batch_of(12, 12)
    x_BTD = model._embedded(batch)
    assert torch.equal(model._shifted(x_BTD)[:, 1:], x_BTD[:, :-1])
    shifted = model.train()._shifted(x_BTD)
    is_unknown = (shifted == model.unknown_D).all(-1)
    assert 4 < is_unknown.sum() < 18
    assert not is_unknown[:, 0].any(), "the start is no word"
    assert torch.equal(shifted[:, 1:][~is_unknown[:, 1:]], x_BTD[:, :-1][~is_unknown[:, 1:]])
    mu_BZ, _ = model.encode(batch)
    assert torch.equal(mu_BZ, model.eval().encode(batch)[0]), "the encoder sees all words"
    loss_of(model.train(), batch)[0].backward()
    assert model.unknown_D.grad.abs().sum() > 0


def test_word_dropout_hides_vectors_too():
    model = make(OF_VECTORS, word_dropout=0.9).train()
    shifted = model._shifted(model._embedded(vectors_of(12, 12)))
    assert (shifted == model.unknown_D).all(-1).float().mean() > 0.5


def test_batch_norm_gives_every_dimension_the_deviation_and_does_not_see_padding():
    model = make(batch_norm_mu=0.5).train()
    batch = with_empty_row(batch_of(*[12] * 20))
    mu_BZ, _ = model.encode(batch)
    torch.testing.assert_close(mu_BZ[:20].mean(0), torch.zeros(Z), atol=1e-5, rtol=0)
    torch.testing.assert_close(mu_BZ[:20].std(0, unbiased=False), torch.full((Z,), 0.5), atol=1e-3, rtol=0)
    # KL is then at least scale^2 / 2 in every dimension, for any encoder.
    assert (kl_divergence(mu_BZ, torch.zeros_like(mu_BZ))[:20].mean(0) > 0.124).all()


def test_batch_norm_is_that_of_torch_and_its_statistics_are_stored():
    config = dataclasses.replace(CONFIG, batch_norm_mu=0.5)
    ours, theirs = BatchNormMu(config), torch.nn.BatchNorm1d(Z, affine=False)
    for _ in range(3):
        mu_BZ = torch.randn(5, Z) * 2 + 1
        torch.testing.assert_close(ours(mu_BZ, torch.ones(5).bool()), theirs(mu_BZ) / 2)
    torch.testing.assert_close(ours.running_mean_Z, theirs.running_mean)
    torch.testing.assert_close(ours.running_var_Z, theirs.running_var)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(mu_BZ, torch.ones(5).bool()), theirs(mu_BZ) / 2)
    state = SequenceVAE(config).state_dict()
    assert {"posterior.batch_norm.running_mean_Z", "posterior.batch_norm.running_var_Z"} < set(state)


def test_batch_norm_of_a_single_row_goes_by_the_running_statistics_and_moves_them():
    norm = BatchNormMu(dataclasses.replace(CONFIG, batch_norm_mu=1.0))
    rows = torch.randn(2000, Z) * 3 + 5
    for row_Z in rows:
        mu_1Z = norm(row_Z[None], torch.ones(1).bool())
        assert mu_1Z.isfinite().all()
    assert ((norm.running_mean_Z - 5).abs() < 3).all()
    assert (norm.running_var_Z > 2).all()
    before = norm.running_mean_Z.clone()
    norm(rows[:1], torch.zeros(1).bool())
    assert torch.equal(norm.running_mean_Z, before), "padding moves nothing"


def test_the_bag_of_words_is_the_cross_entropy_of_all_tokens_under_one_distribution():
    model, batch = make(bag_of_words_weight=0.7), batch_of(12, 5)
    plain, _ = loss_of(model, batch)
    loss, stats = loss_of(model.train(), batch)
    counts_V = torch.bincount(batch.targets_BT[batch.targets_BT != IGNORED], minlength=V) + 0.1
    logits_BV = model.bag_of_words.head(stats["z"])[:, :V] + (counts_V / counts_V.sum()).log()
    logits_BVT = logits_BV[..., None].expand(-1, -1, 12)
    nats = F.cross_entropy(logits_BVT, batch.targets_BT, reduction="sum", ignore_index=IGNORED)
    torch.testing.assert_close(loss - plain, 0.7 * nats / 17)


def test_what_is_switched_off_has_no_parameters_that_devices_would_wait_for():
    for switches in ({}, SWITCHES, {"latent_injection": "embedding"}, {"tie_embeddings": True}):
        model = make(**switches).train()
        loss_of(model, batch_of(12, 5))[0].backward()
        assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    model = make(OF_VECTORS, word_dropout=0.1).train()
    loss_of(model, vectors_of(12, 5))[0].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


# Padding of the vocabulary


def test_rows_of_no_token_get_no_probability_no_gradient_and_stay_zero():
    model = SequenceVAE(dataclasses.replace(CONFIG, bag_of_words_weight=0.1)).train()
    optimizer = build_optimizer(model, lr=0.01)
    for _ in range(3):
        loss_of(model, batch_of(12, 5))[0].backward()
        optimizer.step()
        optimizer.zero_grad()
    for weight in (model.embedding.weight, model.head.weight, model.bag_of_words.head.weight):
        assert weight.shape[0] == 128
        assert (weight[V:] == 0).all()
    ids = model.generate(torch.randn(4, Z), max_tokens=T, temperature=5.0, seed=0)
    assert max(id for row in ids for id in row) < V


# Sizes


def test_operations_per_token_count_both_stacks_and_the_head():
    for tied in (False, True):
        model = make(tie_embeddings=tied, encoder_layers=3)
        d, f, layers = 16, model.config.blocks.feed_forward_width, 5
        multiplied = layers * (4 * d * d + 3 * d * f) + V * d + (2 * layers + 2) * d
        assert model.flops_per_token(10) == 6 * multiplied + 12 * layers * d * 10
    assert model.flops_per_token() == model.flops_per_token(T)
    assert (len(model.encoder_blocks), len(model.decoder_blocks)) == (3, 2)


def test_more_tokens_than_the_longest_sequence_are_refused():
    with pytest.raises(OptionError, match="13 tokens are more than max_sequence_length=12"):
        make().loss(batch_of(13), {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be >= 1, got 0"),
        ({"embedding_dim": 3}, "vocab_size=70 and embedding_dim=3"),
        ({"vocab_size": None, "embedding_dim": 0}, "embedding_dim must be >= 1, got 0"),
        ({"vocab_size": None, "embedding_dim": 3, "bag_of_words_weight": 1.0}, "bag_of_words_weight applies to tokens"),
        ({"vocab_size": None, "embedding_dim": 3, "tie_embeddings": True}, "tie_embeddings applies to tokens"),
        ({"num_heads": 3}, "d_model=16 is not a multiple of num_heads=3"),
        ({"latent_dim": 0}, "latent_dim must be >= 1, got 0"),
        ({"memory_tokens": 0}, "memory_tokens must be >= 1, got 0"),
        ({"encoder_layers": 0}, "encoder_layers must be >= 1, got 0"),
        ({"max_sequence_length": 0}, "max_sequence_length must be >= 1, got 0"),
        ({"latent_injection": "cross"}, "latent_injection='cross' is not valid. Pass one of 'memory', 'embedding'"),
        ({"free_bits_mode": "all"}, "free_bits_mode='all' is not valid"),
        ({"word_dropout": 1.0}, "word_dropout must be >= 0 and < 1, got 1.0"),
        ({"free_bits": -1.0}, "free_bits must be >= 0, got -1.0"),
        ({"batch_norm_mu": math.nan}, "batch_norm_mu must be >= 0, got nan"),
    ],
)
def test_sizes_that_make_no_model_are_refused(changes, message):
    with pytest.raises(OptionError, match=message):
        VAEConfig(**{**dataclasses.asdict(CONFIG), **changes})


def test_a_model_needs_a_vocabulary_or_vectors():
    with pytest.raises(OptionError, match="Pass vocab_size for sequences of tokens, or embedding_dim"):
        SequenceVAE(dataclasses.replace(CONFIG, vocab_size=None))


def test_the_registry_makes_it_by_name_from_a_dict():
    entry = MODELS["vae"]
    model = entry.network_class()(entry.config(**dataclasses.asdict(CONFIG)))
    assert isinstance(model, SequenceVAE)
    assert model.config == CONFIG


def test_the_same_seed_gives_the_same_model():
    states = []
    for _ in range(2):
        torch.manual_seed(5)
        states.append(SequenceVAE(dataclasses.replace(CONFIG, **SWITCHES)).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not any("cos" in name or "sin" in name for name in states[0]), "tables are computed again, not stored"
