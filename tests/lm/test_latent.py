"""Texts from latents of a run folder."""

from __future__ import annotations

import json
import math

import pytest
import torch

import gristmill as gm
from gristmill.errors import CheckpointError, OptionError
from gristmill.lm.models.registry import build_model
from gristmill.lm.models.vae.network import SequenceVAE
from gristmill.lm.models.vae.texts import between, encoded, reconstructed, spherical, texts_from_prior
from gristmill.lm.training.checkpoint import write_checkpoint
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.use.generation import generate_text, load_for_generation
from gristmill.lm.use.latent import (
    encode_texts,
    interpolate_texts,
    load_vae,
    reconstruct_texts,
    sample_texts,
)

torch.set_num_threads(1)

END = "<|endoftext|>"
TEXTS = ["the cat sat on the mat.", "a dog ran home.", "the old bird saw a fox under the tree."]


@pytest.fixture(scope="module")
def tokenizer():
    return gm.train_tokenizer([" ".join(TEXTS)], vocab_size=280, special_tokens=[END], progress=None)


VAE = {"model": "vae", "max_sequence_length": 24, "latent_dim": 8}
GPT = {"model": "gpt", "context_length": 24}


def write_run(folder, tokenizer, model=VAE, *, fingerprint="its own", train=None, **options):
    """Return a run folder; `train` may train its model first."""
    folder.mkdir()
    tokenizer.save(folder / "tokenizer.json")
    sizes = {"vocab_size": tokenizer.vocab_size, "num_layers": 1, "num_heads": 2, "d_model": 32}
    config = TrainConfig.from_options({**model, **sizes, **options})
    (folder / "config.json").write_text(json.dumps(config.to_json()), encoding="utf-8")
    built = build_model(config.model)
    if train is not None:
        train(built)
    fingerprint = tokenizer.fingerprint if fingerprint == "its own" else fingerprint
    state = {"step": 1, "shards": {"tokenizer_fingerprint": fingerprint}, "val_loss": None}
    write_checkpoint(folder, state, {"model.safetensors": dict(built.state_dict())})
    return folder


@pytest.fixture(scope="module")
def run(tokenizer, tmp_path_factory):
    """A run whose model has memorized the three texts."""
    from gristmill.lm.models.vae.texts import _padded, _sequence

    def train(model):
        torch.manual_seed(0)
        batch = _padded([_sequence(model, tokenizer, text) for text in TEXTS])
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
        for _ in range(300):
            optimizer.zero_grad()
            model.train().loss(batch, {"kl_weight": 0.01})[0].backward()
            optimizer.step()

    return write_run(tmp_path_factory.mktemp("vae") / "run", tokenizer, train=train, word_dropout=0.3)


def test_a_text_comes_back_from_its_latent(run):
    assert reconstruct_texts(run, TEXTS, device="cpu") == TEXTS
    assert reconstruct_texts(run, [], device="cpu") == []


def test_interpolations_are_texts_and_their_ends_are_the_reconstructions(run):
    found = interpolate_texts(run, TEXTS[0], TEXTS[1], num_texts=7, device="cpu")
    assert len(found) == 7
    assert (found[0], found[-1]) == (TEXTS[0], TEXTS[1])
    assert interpolate_texts(run, TEXTS[0], TEXTS[0], num_texts=2, device="cpu") == [TEXTS[0]] * 2


def test_samples_depend_on_the_seed_alone_and_differ_from_each_other(run):
    state = torch.get_rng_state()
    one, same, other = (sample_texts(run, 5, seed=seed, device="cpu") for seed in (0, 0, 1))
    assert one == same != other
    assert len(one) == 5
    assert torch.equal(torch.get_rng_state(), state)
    assert sample_texts(run, 2, device="cpu", max_tokens=0) == ["", ""]
    greedy = {text for seed in range(4) for text in sample_texts(run, 3, seed=seed, temperature=0.0, device="cpu")}
    assert len(greedy) > 1, "the latent decides, not only the choice of tokens"


def test_more_texts_than_are_done_at_once_are_all_there(run, monkeypatch):
    model, tokenizer = load_vae(run, device="cpu")
    whole = encoded(model, tokenizer, TEXTS * 3)
    monkeypatch.setattr("gristmill.lm.models.vae.texts.TEXTS_AT_ONCE", 2)
    for one, other in zip(encoded(model, tokenizer, TEXTS * 3), whole, strict=True):
        torch.testing.assert_close(one, other)
    assert reconstructed(model, tokenizer, TEXTS * 3) == TEXTS * 3
    assert len(texts_from_prior(model, tokenizer, num_texts=5, seed=0)) == 5


def test_the_posterior_of_texts_is_that_of_the_model_with_the_end_of_the_document(run, tokenizer):
    mu_NZ, logvar_NZ = encode_texts(run, TEXTS, device="cpu")
    assert mu_NZ.shape == logvar_NZ.shape == (3, 8)
    model, _ = load_vae(run, device="cpu")
    ids = torch.tensor([[*tokenizer.encode(TEXTS[1]), tokenizer.special_tokens[END]]])
    with torch.no_grad():
        alone, _ = model.encode(gm.lm.Batch(ids, ids))
    torch.testing.assert_close(mu_NZ[1], alone[0], atol=1e-5, rtol=1e-5)
    assert not model.training


def test_a_text_longer_than_the_context_is_truncated(run):
    long = " ".join(TEXTS * 5)
    assert encode_texts(run, [long], device="cpu")[0].isfinite().all()
    (found,) = reconstruct_texts(run, [long], device="cpu")
    assert len(found) < len(long)


def test_the_arc_keeps_the_length_of_latents_and_without_an_arc_the_line_is_straight():
    a, b = torch.randn(2, 16)
    a, b = a / a.norm(), b / b.norm()
    arc = spherical(a, b, 9)
    torch.testing.assert_close(arc.norm(dim=1), torch.ones(9))
    steps = (arc[1:] * arc[:-1]).sum(1).clamp(-1, 1).arccos()
    torch.testing.assert_close(steps, steps[:1].expand(8), atol=1e-3, rtol=0)
    torch.testing.assert_close(torch.stack([arc[0], arc[-1]]), torch.stack([a, b]))
    zero = torch.zeros(16)
    for other in (a, 2 * a, -a, zero):
        straight = spherical(a, other, 3)
        torch.testing.assert_close(straight, torch.stack([a, (a + other) / 2, other]))
    assert spherical(zero, zero, 3).isfinite().all()


def test_rows_that_no_token_has_are_never_chosen(tmp_path, tokenizer):
    run = write_run(tmp_path / "run", tokenizer, vocab_size=1000)
    model, _ = load_vae(run, device="cpu")
    rows = model.generate(torch.randn(4, 8), max_tokens=24, temperature=9.0, seed=0)
    assert max(id for row in rows for id in row) < tokenizer.vocab_size


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda *loaded: texts_from_prior(*loaded, num_texts=0), "num_texts must be >= 1, got 0"),
        (lambda *loaded: between(*loaded, "a", "b", num_texts=1), "num_texts must be >= 2, got 1: an interpolation"),
        (lambda *loaded: texts_from_prior(*loaded, seed=-1), "seed must be >= 0 and < 2[*]{2}6[34], got -1"),
        (lambda *loaded: texts_from_prior(*loaded, temperature=-1.0), "temperature must be >= 0, got -1.0"),
        (lambda *loaded: texts_from_prior(*loaded, max_tokens=-1), "max_tokens must be >= 0, got -1"),
        (lambda *loaded: reconstructed(*loaded, "one text"), "texts is a str"),
    ],
)
def test_invalid_arguments_are_refused(run, call, message):
    with pytest.raises(OptionError, match=message):
        call(*load_vae(run, device="cpu"))


def test_an_empty_text_without_an_end_of_documents_is_refused(tmp_path):
    bare = gm.train_tokenizer([" ".join(TEXTS)], vocab_size=260, progress=None, special_tokens=())
    run = write_run(tmp_path / "run", bare)
    with pytest.raises(OptionError, match="a text is empty"):
        reconstruct_texts(run, [""], device="cpu")
    assert len(reconstruct_texts(run, ["a"], device="cpu")) == 1


# Runs without texts


def test_a_gpt_has_no_latents_and_a_vae_does_not_continue_a_prompt(tmp_path, tokenizer, run):
    gpt = write_run(tmp_path / "gpt", tokenizer, GPT)
    with pytest.raises(CheckpointError, match=r"the model is a GPT, which has no latents\. Call gm.lm.generate"):
        load_vae(gpt, device="cpu")
    with pytest.raises(OptionError, match=r"a VAE generates whole texts from latents"):
        generate_text(run, "Once", device="cpu")
    with pytest.raises(OptionError, match=r"cannot continue a prompt\. Call gm\.lm\.sample_texts"):
        list(gm.lm.stream_text(*load_for_generation(run, device="cpu"), "Once"))


def test_a_run_on_vectors_or_on_ids_without_a_tokenizer_is_reported(tmp_path, tokenizer):
    vectors = write_run(tmp_path / "vectors", tokenizer, vocab_size=None, embedding_dim=4)
    with pytest.raises(CheckpointError, match="the model was trained on vectors"):
        sample_texts(vectors, device="cpu")
    ids = write_run(tmp_path / "ids", tokenizer, fingerprint=None)
    (ids / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"the run does not store their tokenizer.* Pass tokenizer="):
        sample_texts(ids, device="cpu")
    assert len(sample_texts(ids, device="cpu", tokenizer=tokenizer)) == 4


def test_the_old_name_of_num_texts_is_deprecated(run):
    with pytest.warns(DeprecationWarning, match=r"num= is deprecated. Pass num_texts="):
        assert len(sample_texts(run, num=2, device="cpu")) == 2
    with pytest.warns(DeprecationWarning, match=r"num= is deprecated. Pass num_texts="):
        assert len(interpolate_texts(run, "a", "b", num=3, device="cpu")) == 3


def test_a_foreign_tokenizer_no_run_and_no_checkpoint_are_reported(tmp_path, tokenizer):
    run = write_run(tmp_path / "run", tokenizer, fingerprint="0" * 64)
    with pytest.raises(CheckpointError, match="not the one that the model was trained with"):
        sample_texts(run, device="cpu")
    with pytest.raises(CheckpointError, match="no such folder"):
        sample_texts(tmp_path / "nowhere")
    small = write_run(tmp_path / "small", tokenizer, vocab_size=257)
    with pytest.raises(CheckpointError, match="but the model has 257"):
        sample_texts(small, device="cpu")


def test_a_model_from_a_config_has_all_its_switches():
    options = {"word_dropout": 0.2, "batch_norm_mu": 0.5, "free_bits": 1.5, "free_bits_mode": "dimension"}
    config = TrainConfig.from_options({"model": "vae", "vocab_size": 50, "latent_injection": "embedding", **options})
    model = build_model(config.model)
    assert isinstance(model, SequenceVAE)
    assert {name: getattr(model.config, name) for name in options} == options
    assert model.config.max_sequence_length == config.model.max_sequence_length
    assert math.isfinite(model.flops_per_token(100))
