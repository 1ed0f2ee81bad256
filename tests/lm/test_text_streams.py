"""Streams of texts generated at once: the end of each, errors, threads, and subclasses of the GPT."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import gristmill as gm
from gristmill.errors import NotFiniteError, OptionError
from gristmill.lm.models.generation import continued, stream_text
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.models.requests import TextRequest
from gristmill.lm.models.rows import Choice, Row, write_rows
from gristmill.lm.models.sampling import new_dice

torch.set_num_threads(1)

END, BROKEN = 256, ord("~")
CONFIG = GPTConfig(vocab_size=257, context_length=64, num_layers=1, num_heads=1, d_model=8)


@pytest.fixture(scope="module")
def tokenizer():
    return gm.train_tokenizer(["ab"], vocab_size=257, special_tokens=["<|endoftext|>"], progress=None)


class Counter(GPT):
    """Continues "a" with "bcd…" endlessly and "x" with "yz" and the end of text; counts its steps."""

    def __init__(self):
        super().__init__(CONFIG)
        self.num_steps = 0

    def new_row_reader(self, **options):
        return _CountingRows(self, options["max_rows"] or options["num_rows"])


class _CountingRows:
    device, runs_ahead = torch.device("cpu"), False

    def __init__(self, model, max_rows):
        self.model, self.max_rows = model, max_rows

    def _logits(self, ids):
        following = [END if id == ord("z") else id + 1 for id in ids]
        logits = torch.nn.functional.one_hot(torch.tensor(following), 257) * 5.0
        logits[[id == BROKEN for id in ids]] = torch.nan
        return logits

    def start(self, windows):
        return self._logits([window[-1] for window in windows])

    def step(self, ids_B, draws_B, choice):
        self.model.num_steps += 1
        return choice.ids(self._logits(ids_B.tolist()), draws_B)

    def keep(self, rows):
        pass

    def close(self):
        pass


def streams_of(model, tokenizer, *prompts, **options):
    return list(continued(model, tokenizer, TextRequest(prompts=prompts, temperature=0, **options)))


def test_a_text_that_the_model_ends_is_complete_before_the_others_are(tokenizer):
    model = Counter()
    first, other = streams_of(model, tokenizer, "x", "A", max_tokens=20)
    assert "".join(first) == "yz"
    assert model.num_steps < 5
    assert "".join(other) == "BCDEFGHIJKLMNOPQRSTU"


def test_a_stream_that_is_dropped_half_way_gives_the_model_its_mode_back(tokenizer):
    model = Counter().train()
    stream = stream_text(model, tokenizer, "A", temperature=0)
    assert next(stream) == "B"
    assert not model.training
    del stream
    assert model.training


def test_the_mode_is_back_when_a_stop_string_ends_the_last_text(tokenizer):
    model = Counter().train()
    streams = streams_of(model, tokenizer, "A", "K", stop=("E", "O"))
    assert ["".join(stream) for stream in streams] == ["BCD", "LMN"]
    assert model.training
    assert [stream.num_tokens for stream in streams] == [4, 4]


def test_an_error_reaches_every_text_that_is_not_complete(tokenizer):
    first, second, complete = streams_of(Counter(), tokenizer, "A", "{", "x")
    assert "".join(complete) == "yz"
    for stream in (first, second):
        with pytest.raises(NotFiniteError):
            list(stream)


def test_threads_may_read_a_text_each(tokenizer):
    prompts = ["ABCDEFGH"[i % 8] for i in range(16)]
    expected = ["".join(each) for each in streams_of(Counter(), tokenizer, *prompts, max_tokens=40)]
    streams = streams_of(Counter(), tokenizer, *prompts, max_tokens=40)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map("".join, streams)) == expected


class Negated(GPT):
    def forward(self, tokens_BT, **options):
        return -super().forward(tokens_BT, **options)


class Shifted(GPT):
    def stream(self, tokens_BT, **options):
        return super().stream(tokens_BT, **options).roll(1, -1)


@pytest.mark.parametrize("kind", [Negated, Shifted])
def test_a_gpt_that_computes_something_else_writes_what_it_computes(kind):
    torch.manual_seed(0)
    model = kind(CONFIG)
    rows = [Row([1, 2, 3], new_dice(0), 10), Row([4], new_dice(1), 10)]
    reader = model.new_row_reader(use_cache=True, max_rows=2, num_rows=2, longest=13, use_graphs=False)
    texts = {id(row): list(row.prompt_ids) for row in rows}
    for row, token in write_rows(reader, rows, Choice(0.0, None, None)):
        assert token == model(torch.tensor([texts[id(row)]]))[0, -1].argmax()
        texts[id(row)].append(token)


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"top_k": 0}, {"top_p": 0.0}])
def test_a_choice_that_makes_no_sense_cannot_be_made(options):
    with pytest.raises(OptionError, match=next(iter(options))):
        Choice(**{"temperature": 1.0, "top_k": None, "top_p": None, **options})


@pytest.mark.parametrize("stop", [5, b"x", {"a": 1}])
def test_a_stop_that_is_no_string_is_refused_in_words(stop, tokenizer):
    with pytest.raises(OptionError, match=r"stop=.* is of type (int|bytes|dict)\. Pass a str or a list of str"):
        stream_text(Counter(), tokenizer, "x", stop=stop)
