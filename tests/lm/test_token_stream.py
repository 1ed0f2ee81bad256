"""Token streams: the text of `generate`, with the probabilities that each token was chosen with."""

import pytest
import torch

import gristmill as gm
from gristmill.lm.models.gpt.decoding import GPTRows
from gristmill.lm.models.requests import TextRequest
from gristmill.lm.models.sampling import token_probabilities
from gristmill.lm.models.token_stream import TokenStream
from gristmill.lm.use.interruption import Interrupted, interruptible
from lm.tiny_runs import train


@pytest.fixture(scope="module")
def run(tiny_shards, tmp_path_factory):
    out = tmp_path_factory.mktemp("token-stream") / "run"
    train(tiny_shards, out)
    return out


@pytest.fixture(scope="module")
def loaded(run):
    return gm.lm.load_for_generation(run, device="cpu")


def stream_of(loaded, prompt="the cat", **options):
    return TokenStream(*loaded, TextRequest(prompt=prompt, **options))


OPTIONS = [
    {},
    {"temperature": 0},
    {"temperature": 1.3, "top_k": 5},
    {"top_p": 0.7, "max_tokens": 40},  # longer than the context
    {"top_k": 20, "top_p": 0.9, "stop": [" the", "at"]},
    {"stop": ["a"], "temperature": 1.0},
    {"max_tokens": 0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_text_is_that_of_generate(run, loaded, options, seed):
    options = {"max_tokens": 25, **options}
    stream = stream_of(loaded, seed=seed, **{**options, "stop": tuple(options.get("stop", ()))})
    assert stream.reason == ""
    text = "".join([token.text for token in stream]) + stream.rest
    assert text == gm.lm.generate(run, "the cat", seed=seed, device="cpu", **options)
    assert stream.num_tokens <= options["max_tokens"]
    assert stream.reason in ("end of text", "stop string", "max tokens")


def test_bytes_that_end_inside_a_character_are_in_the_rest(run, loaded):
    """A model that is barely trained, at a high temperature, generates invalid UTF-8."""
    options = {"temperature": 50.0, "max_tokens": 30}
    for seed in range(4):
        stream = stream_of(loaded, seed=seed, **options)
        tokens = list(stream)
        text = "".join(token.text for token in tokens) + stream.rest
        assert text == gm.lm.generate(run, "the cat", seed=seed, device="cpu", **options)
        assert text == b"".join(token.data for token in tokens).decode(errors="replace")


@pytest.mark.parametrize(
    "choice", [{"temperature": 0.8}, {"temperature": 1.5, "top_k": 4}, {"temperature": 1.0, "top_p": 0.5}], ids=str
)
def test_probabilities_are_those_of_the_logits_that_the_model_computes(loaded, choice):
    model, tokenizer = loaded
    ids = tokenizer.encode("the cat")
    for token in stream_of(loaded, seed=3, max_tokens=8, **choice):
        logits_V = model.new_reader(use_cache=False).read(list(ids))
        drawn_V, model_V = token_probabilities(logits_V, **choice), token_probabilities(logits_V)
        assert token.probability == pytest.approx(float(drawn_V[token.id]), rel=1e-4)
        assert token.model_probability == pytest.approx(float(model_V[token.id]), rel=1e-4)
        order = logits_V.argsort(descending=True, stable=True).tolist()
        assert order[token.rank - 1] == token.id
        assert [each.id for each in token.alternatives] == order[:10]
        for each in token.alternatives:
            assert each.probability == pytest.approx(float(drawn_V[each.id]), rel=1e-4)
            assert each.model_probability == pytest.approx(float(model_V[each.id]), rel=1e-4)
            assert each.data == tokenizer.decode_bytes([each.id])
        ids.append(token.id)


@pytest.mark.parametrize("options", [{"max_tokens": 40}, {"max_tokens": 9, "top_k": 7}, {"stop": (" the",)}], ids=str)
def test_tokens_that_a_gpu_computes_ahead_keep_their_own_probabilities(loaded, monkeypatch, options):
    """A GPU runs up to 16 steps before the first of their ids is fetched. Here the CPU does."""
    options = {"seed": 2, "max_tokens": 30, **options}
    expected = list(stream_of(loaded, **options))
    made = GPTRows.__init__

    def ahead(self, *arguments, **named):
        made(self, *arguments, **named)
        self.runs_ahead = True

    monkeypatch.setattr(GPTRows, "__init__", ahead)
    found = list(stream_of(loaded, **options))
    assert [token.text for token in found] == [token.text for token in expected]
    for token, other in zip(found, expected, strict=True):
        assert (token.id, token.rank) == (other.id, other.rank)
        assert token.probability == pytest.approx(other.probability, rel=1e-4)
        assert token.id not in (each.id for each in token.alternatives) or token.rank <= 10


def test_temperature_0_draws_the_likeliest_token_with_certainty(loaded):
    stream = stream_of(loaded, max_tokens=6, temperature=0)
    for token in stream:
        assert stream.reason == "", "the text has not ended yet"
        assert (token.rank, token.probability) == (1, 1.0)
        assert [each.probability for each in token.alternatives] == [1.0] + [0.0] * 9


def test_tokens_of_a_stop_string_are_held_back_until_it_is_certain(loaded):
    """The tokens before a stop string have exactly the text before it, whatever the tokens are."""
    whole = "".join(token.text for token in stream_of(loaded, seed=5, max_tokens=40))
    middle = whole[len(whole) // 2 : len(whole) // 2 + 3]
    stream = stream_of(loaded, seed=5, max_tokens=40, stop=(middle,))
    assert "".join(token.text for token in stream) == whole[: whole.index(middle)]
    assert stream.reason == "stop string" and stream.rest == ""
    other = stream_of(loaded, seed=5, max_tokens=40, stop=(whole[-2:] + "never generated",))
    assert "".join(token.text for token in other) == whole


def test_a_closed_stream_restores_the_mode_of_the_model(loaded):
    model, _ = loaded
    model.train()
    stream = stream_of(loaded, max_tokens=10)
    next(stream)
    assert not model.training
    stream.close()
    assert model.training and list(stream) == []
    model.eval()


def test_a_model_of_the_user_without_a_cache_has_probabilities_too(loaded):
    class Bigrams(gm.lm.Model):
        def __init__(self, config):
            super().__init__(config)
            self.table = torch.nn.Embedding(config.vocab_size, config.vocab_size)

        def forward(self, tokens_BT):
            return self.table(tokens_BT)

    _, tokenizer = loaded
    model = Bigrams(gm.lm.WindowModelConfig(vocab_size=tokenizer.vocab_size, context_length=4))
    tokens = list(stream_of((model, tokenizer), prompt="the", seed=0, max_tokens=20))
    expected = "".join(gm.lm.stream_text(model, tokenizer, "the", seed=0, max_tokens=20))
    assert b"".join(token.data for token in tokens).decode(errors="replace") == expected
    model_V = model.table.weight[tokens[0].id].softmax(-1)
    assert tokens[1].model_probability == pytest.approx(float(model_V[tokens[1].id]), rel=1e-4)


def test_wrong_options_raise_before_the_first_token(loaded):
    with pytest.raises(gm.OptionError, match="top_p"):
        stream_of(loaded, top_p=2.0)
    with pytest.raises(gm.OptionError, match="seed"):
        stream_of(loaded, seed=-1)


def test_an_interrupted_model_stops_at_its_next_layer_and_works_afterwards(loaded):
    model, _ = loaded
    tokens_BT = torch.tensor([[1, 2, 3]])
    with pytest.raises(Interrupted), interruptible(model, lambda: True):
        model(tokens_BT)
    assert model(tokens_BT).isfinite().all()
