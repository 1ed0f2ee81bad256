from __future__ import annotations

import collections
import json

import pytest
import torch

import gristmill as gm
from gristmill.errors import CheckpointError, OptionError
from gristmill.lm.models.generation import end_of_text_id, generate, stream_text
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.models.registry import build_model
from gristmill.lm.models.sampling import token_probabilities
from gristmill.lm.training.checkpoint import write_checkpoint
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.use.generation import generate_text, load_for_generation

torch.set_num_threads(1)

CONFIG = GPTConfig(vocab_size=70, context_length=16, num_layers=2, num_heads=2, d_model=16)


@pytest.fixture(scope="module")
def model():
    """A model whose next token depends on all previous tokens."""
    torch.manual_seed(0)
    model = GPT(CONFIG).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def ids_of(model, prompt=(1, 2, 3), **options):
    return list(generate(model, prompt, **{"max_tokens": 12, "seed": 0, **options}))


class Scripted(gm.lm.Model):
    """A model that generates the ids of a list, whatever the input."""

    sizes = CONFIG

    def __init__(self, ids):
        super().__init__(self.sizes)
        self.embedding = torch.nn.Embedding(1, 1)
        self.ids, self.modes = iter(ids), []

    def forward(self, tokens_BT):
        self.modes.append((self.training, torch.is_grad_enabled()))
        logits = torch.zeros(*tokens_BT.shape, CONFIG.vocab_size)
        logits[:, -1, next(self.ids)] = 5.0
        return logits


# Ids


@pytest.mark.parametrize("num_tokens", [12, 100], ids=["within the context", "far beyond it"])
@pytest.mark.parametrize(
    "options",
    [{"temperature": 0}, {}, {"temperature": 0.5, "top_k": 5}, {"top_p": 0.8}],
    ids=["greedy", "sampled", "top_k", "top_p"],
)
def test_the_same_ids_with_and_without_a_cache(model, options, num_tokens):
    with_cache, without = (ids_of(model, max_tokens=num_tokens, use_cache=use, **options) for use in (True, False))
    assert with_cache == without
    assert len(with_cache) == num_tokens
    assert len(set(with_cache)) > 1 or "top_k" in options or options == {"temperature": 0}


def test_temperature_0_takes_the_likeliest_token_each_time(model):
    ids = [1, 2, 3]
    for id in generate(model, ids, max_tokens=10, temperature=0):
        assert id == model(torch.tensor([ids]))[0, -1].argmax()
        ids = [*ids, id]


def test_beyond_the_context_the_model_continues_from_the_last_half_of_it(model):
    prompt = list(range(1, 15))
    ids = [*prompt, *ids_of(model, prompt, max_tokens=5, temperature=0)]
    for position in range(14, 19):
        window = ids[:position] if position <= 16 else ids[9:position]  # 17 are too many: 8 are kept
        assert ids[position] == model(torch.tensor([window]))[0, -1].argmax()


def test_a_prompt_longer_than_the_context_is_cut_to_its_last_half(model):
    prompt = [number % 70 for number in range(100)]
    assert ids_of(model, prompt, max_tokens=3) == ids_of(model, prompt[-8:], max_tokens=3)


def test_a_context_of_one_token_generates_too():
    model = GPT(GPTConfig(vocab_size=10, context_length=1, num_layers=1, num_heads=1, d_model=4))
    assert ids_of(model, use_cache=True) == ids_of(model, use_cache=False)


def test_a_seed_gives_the_same_ids_and_no_seed_gives_others(model):
    assert ids_of(model, seed=7) == ids_of(model, seed=7) != ids_of(model, seed=8)
    assert len({tuple(ids_of(model, seed=None)) for _ in range(5)}) > 1


def test_generation_leaves_the_generator_of_torch_alone(model):
    state = torch.get_rng_state()
    ids_of(model)
    ids_of(model, seed=None)
    assert torch.equal(torch.get_rng_state(), state)


def test_generation_stops_before_the_stop_id():
    assert ids_of(Scripted([5, 6, 9, 7]), temperature=0, stop_id=9) == [5, 6]
    assert ids_of(Scripted([9]), temperature=0, stop_id=9) == []
    assert ids_of(Scripted(range(12)), temperature=0) == list(range(12))


def test_ids_come_as_soon_as_they_are_chosen():
    scripted = Scripted([5, 6])
    ids = generate(scripted, [1], max_tokens=100, temperature=0)
    assert next(ids) == 5
    assert len(scripted.modes) == 1, "nothing is computed ahead"
    assert next(ids) == 6


def test_a_model_in_training_generates_without_gradients_and_stays_in_training_mode():
    scripted = Scripted([5, 6, 9])
    ids = generate(scripted, [1], max_tokens=5, temperature=0, stop_id=9)
    next(ids)
    ids.close()
    assert scripted.modes == [(False, False)]
    assert scripted.training
    assert torch.is_grad_enabled()


def test_under_autocast_the_cache_has_its_type(model):
    with torch.autocast("cpu", torch.bfloat16):
        assert len(ids_of(model, max_tokens=30)) == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [70]}, "has the id 70, but the ids of the model are 0 to 69"),
        ({"prompt": [-1]}, "has the id -1"),
        ({"prompt": [1.5]}, "an id of the prompt=1.5 is of type float"),
        ({"max_tokens": -1}, "max_tokens must be >= 0, got -1"),
        ({"temperature": -0.1}, "temperature must be >= 0, got -0.1"),
        ({"temperature": float("nan")}, "temperature must be >= 0, got nan"),
        ({"top_k": 0}, "top_k must be >= 1, got 0"),
        ({"top_p": 0.0}, "top_p must be > 0 and <= 1, got 0.0"),
        ({"top_p": 1.1}, "top_p must be > 0 and <= 1, got 1.1"),
        ({"seed": "a"}, "seed='a' is of type str"),
        ({"seed": 2**70}, "seed must be >= 0 and < 2"),
    ],
)
def test_invalid_arguments_are_refused_before_the_first_id(model, options, message):
    arguments = {"prompt": [1], "max_tokens": 3, **options}
    with pytest.raises(OptionError, match=message):
        generate(model, arguments.pop("prompt"), **arguments)


# Probabilities: 0.1, 0.4, 0.2, 0.3

LOGITS = torch.tensor([0.1, 0.4, 0.2, 0.3]).log() + 50


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.1, 0.4, 0.2, 0.3]),
        ({"temperature": 0}, [0, 1, 0, 0]),
        ({"temperature": 0.5}, [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        ({"temperature": 1e-300}, [0, 1, 0, 0]),
        ({"top_k": 1}, [0, 1, 0, 0]),
        ({"top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 99}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 0.3}, [0, 1, 0, 0]),
        ({"top_p": 0.41}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.69}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.71}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_p": 1.0}, [0.1, 0.4, 0.2, 0.3]),
        # Of the three tokens that top_k keeps (4/9, 3/9, 2/9), two have a total probability above 3/4.
        ({"top_k": 3, "top_p": 0.75}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 3, "top_p": 0.8}, [0, 4 / 9, 2 / 9, 3 / 9]),
    ],
)
def test_probabilities_of_a_small_distribution_are_exact(options, expected):
    found = token_probabilities(LOGITS, **options)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32), atol=1e-6, rtol=1e-6)


def test_top_k_keeps_exactly_k_of_equal_tokens():
    assert token_probabilities(torch.zeros(5), top_k=2).tolist() == [0.5, 0.5, 0, 0, 0]


def test_logits_times_1000_give_probabilities():
    assert token_probabilities(LOGITS * 1000, top_p=0.9, top_k=3).isfinite().all()


def test_tokens_are_chosen_as_often_as_their_probabilities_say():
    class Fixed(Scripted):
        def forward(self, tokens_BT):
            return torch.full((1, 1, 70), -torch.inf).index_copy(2, torch.arange(4), LOGITS.view(1, 1, 4))

    counts = collections.Counter(ids_of(Fixed([]), max_tokens=4000))
    for id, probability in enumerate([0.1, 0.4, 0.2, 0.3]):
        assert abs(counts[id] / 4000 - probability) < 0.03
    assert set(ids_of(Fixed([]), max_tokens=200, top_k=2)) == {1, 3}
    assert set(ids_of(Fixed([]), max_tokens=200, top_p=0.71)) == {1, 2, 3}


# Text


@pytest.fixture(scope="module")
def tokenizer():
    return gm.train_tokenizer(["low low lower né"] * 3, vocab_size=262, special_tokens=["<|endoftext|>"], progress=None)


def test_text_comes_in_whole_characters_and_ends_with_the_document(tokenizer):
    eot = tokenizer.special_tokens["<|endoftext|>"]

    class Writer(Scripted):
        sizes = GPTConfig(vocab_size=262, context_length=16, num_layers=1, num_heads=1, d_model=4)

        def forward(self, tokens_BT):
            return torch.nn.functional.one_hot(torch.tensor([[next(self.ids)]]), 262) * 5.0

    script = [*b"\xc3", *b"\xa9", *tokenizer.encode(" low"), *b"\xe2\x82", eot, *b"never"]
    parts = list(stream_text(Writer(script), tokenizer, "né", temperature=0))
    assert "".join(parts) == "é low\ufffd"
    assert parts[0] == "é"


def test_an_empty_prompt_begins_a_document(tokenizer):
    seen = []

    class Listener(Scripted):
        sizes = GPTConfig(vocab_size=262, context_length=16, num_layers=1, num_heads=1, d_model=4)

        def forward(self, tokens_BT):
            seen.append(tokens_BT.tolist())
            return torch.zeros(1, 1, 262)

    list(stream_text(Listener([]), tokenizer, "", max_tokens=1))
    assert seen == [[[tokenizer.special_tokens["<|endoftext|>"]]]]
    with pytest.raises(OptionError, match="the prompt is empty"):
        stream_text(Listener([]), gm.Tokenizer([]), "")
    assert end_of_text_id(gm.Tokenizer([])) is None


def test_a_special_token_in_a_prompt_is_its_id(tokenizer):
    seen = []

    class Listener(Scripted):
        sizes = GPTConfig(vocab_size=262, context_length=16, num_layers=1, num_heads=1, d_model=4)

        def forward(self, tokens_BT):
            seen.append(tokens_BT[0].tolist())
            return torch.zeros(1, tokens_BT.shape[1], 262)

    list(stream_text(Listener([]), tokenizer, "low<|endoftext|>a", max_tokens=1))
    end = tokenizer.special_tokens["<|endoftext|>"]
    assert seen == [[*tokenizer.encode("low"), end, *tokenizer.encode("a")]]


def test_probabilities_of_several_rows_are_those_of_each_row():
    logits_NV = torch.randn(4, 20, generator=torch.Generator().manual_seed(0))
    for options in ({}, {"temperature": 0}, {"top_k": 3}, {"top_p": 0.5}, {"top_k": 9, "top_p": 0.7}):
        together = token_probabilities(logits_NV, **options)
        assert torch.equal(together, torch.stack([token_probabilities(row_V, **options) for row_V in logits_NV]))


# Runs


def write_run(folder, tokenizer, *, vocab_size=None, steps=(5, 10), losses=(1.0, 2.0), fingerprint=...):
    """A run folder with random weights: one checkpoint per step, each with another seed."""
    folder.mkdir()
    tokenizer.save(folder / "tokenizer.json")
    sizes = {"num_layers": 1, "num_heads": 2, "d_model": 16, "context_length": 32, "max_steps": 10}
    config = TrainConfig.from_options({"vocab_size": vocab_size or tokenizer.vocab_size, **sizes})
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    for step, loss in zip(steps, losses, strict=True):
        model = build_model(config.model, seed=step)
        shards = {"tokenizer_fingerprint": tokenizer.fingerprint if fingerprint is ... else fingerprint}
        state = {"step": step, "shards": shards, "val_loss": loss}
        write_checkpoint(folder, state, {"model.safetensors": model.state_dict()})
    return folder


def test_a_run_writes_the_same_text_for_the_same_seed(tmp_path, tokenizer):
    run = write_run(tmp_path / "run", tokenizer)
    texts = [generate_text(run, "low", max_tokens=40, seed=seed, device="cpu") for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    assert gm.lm.generate(str(run), "low", max_tokens=40, seed=0, device="cpu") == texts[0]


def test_the_best_checkpoint_is_taken_unless_another_is_asked_for(tmp_path, tokenizer):
    run = write_run(tmp_path / "run", tokenizer)
    names = ("best", "latest", "step-000005")
    best, latest, named = (load_for_generation(run, which=name, device="cpu")[0].head.weight for name in names)
    assert torch.equal(best, named)
    assert not torch.equal(best, latest)


def test_ids_that_no_token_has_are_never_chosen(tmp_path, tokenizer):
    run = write_run(tmp_path / "run", tokenizer, vocab_size=1000)
    model, loaded = load_for_generation(run, device="cpu")
    assert loaded == tokenizer
    assert not model.training
    assert max(generate(model, [1], max_tokens=300, seed=0)) < tokenizer.vocab_size


def test_no_run_and_no_checkpoint_are_reported(tmp_path, tokenizer):
    with pytest.raises(CheckpointError, match="no such folder"):
        load_for_generation(tmp_path / "nowhere")
    run = write_run(tmp_path / "run", tokenizer, steps=(), losses=())
    with pytest.raises(CheckpointError, match="no checkpoint"):
        load_for_generation(run)
    with pytest.raises(CheckpointError):
        load_for_generation(tmp_path)


def test_a_tokenizer_that_the_model_was_not_trained_with_is_refused(tmp_path, tokenizer):
    run = write_run(tmp_path / "run", tokenizer)
    gm.Tokenizer([], special_tokens=["<|endoftext|>"]).save(run / "tokenizer.json")
    with pytest.raises(CheckpointError, match="not the one that the model was trained with"):
        load_for_generation(run)
    (run / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot read the tokenizer"):
        load_for_generation(run)
    (run / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="cannot read the tokenizer"):
        load_for_generation(run)


def test_a_model_with_fewer_tokens_than_the_tokenizer_is_refused(tmp_path, tokenizer):
    run = write_run(tmp_path / "run", tokenizer, vocab_size=200)
    with pytest.raises(CheckpointError, match="the tokenizer has 262 tokens, but the model has 200"):
        load_for_generation(run)


def test_a_run_on_ids_without_a_tokenizer_asks_for_it_and_takes_it(tmp_path, tokenizer):
    run = write_run(tmp_path / "run", tokenizer, fingerprint=None)
    path = (run / "tokenizer.json").rename(tmp_path / "elsewhere.json")
    with pytest.raises(CheckpointError, match=r"does not store their tokenizer\. Pass tokenizer="):
        generate_text(run, "low", device="cpu")
    texts = [
        generate_text(run, "low", max_tokens=9, seed=0, device="cpu", tokenizer=given) for given in (tokenizer, path)
    ]
    assert texts[0] == texts[1] != ""


def test_a_model_that_saw_only_the_first_ids_of_a_tokenizer_writes_with_those(tmp_path, tokenizer):
    run = write_run(tmp_path / "run", tokenizer, fingerprint=None, vocab_size=200)
    model, _ = load_for_generation(run, device="cpu", tokenizer=tokenizer)
    assert max(generate(model, [1], max_tokens=300, seed=0)) < 200


def test_a_given_tokenizer_must_be_the_one_that_the_checkpoint_records(tmp_path, tokenizer):
    run = write_run(tmp_path / "run", tokenizer)
    (run / "tokenizer.json").unlink()
    assert load_for_generation(run, device="cpu", tokenizer=tokenizer)[1] == tokenizer
    other = gm.Tokenizer([], special_tokens=["<|endoftext|>"])
    with pytest.raises(CheckpointError, match=r"not the one that the model was trained with.* or none\."):
        load_for_generation(run, device="cpu", tokenizer=other)
