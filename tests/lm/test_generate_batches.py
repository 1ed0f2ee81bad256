"""Batched generation: same ids as one text at a time, and text up to a stop string."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import gristmill as gm
from gristmill.errors import NotFiniteError, OptionError
from gristmill.lm.models.generation import continued, generate, stream_text
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.models.requests import TextRequest
from gristmill.lm.models.rows import Choice, OneByOne, Row, write_rows
from gristmill.lm.models.sampling import check_sampling, chosen, chosen_by, draw, new_dice, token_probabilities
from gristmill.lm.models.stop_strings import StopSearch
from gristmill.lm.use.generation import generate_text, load_for_generation
from lm.test_generate import Scripted, write_run

torch.set_num_threads(1)

SIZES = {"vocab_size": 70, "context_length": 16, "num_layers": 2, "num_heads": 4, "d_model": 16}
GREEDY, SAMPLED = Choice(0.0, None, None), Choice(1.0, None, None)


def random_gpt(**options):
    """A model whose next token depends on all previous tokens."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(**{**SIZES, **options})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.fixture(scope="module")
def model():
    return random_gpt()


def rows_of(lengths, num_tokens, seed=0):
    shape = random.Random(seed)
    prompts = [[shape.randrange(70) for _ in range(length)] for length in lengths]
    return [Row(ids, new_dice(seed + number), num_tokens) for number, ids in enumerate(prompts)]


def written(reader, rows, choice=SAMPLED, **options):
    found = {id(row): [] for row in rows}
    for row, token in write_rows(reader, rows, choice, **options):
        found[id(row)].append(token)
    return list(found.values())


def one_at_a_time(model, lengths, num_tokens, choice=SAMPLED, **options):
    return [
        written(OneByOne(model, use_cache=True), [row], choice, **options)[0] for row in rows_of(lengths, num_tokens)
    ]


def at_once(model, lengths, num_tokens, choice=SAMPLED, max_rows=None, runs_ahead=False, **options):
    rows = rows_of(lengths, num_tokens)
    longest = max(lengths) + num_tokens
    reader = model.new_row_reader(
        use_cache=True, max_rows=max_rows, num_rows=len(rows), longest=longest, use_graphs=True
    )
    reader.runs_ahead = runs_ahead or reader.runs_ahead
    return written(reader, rows, choice, **options)


# Rows


@pytest.mark.parametrize("num_tokens", [6, 40], ids=["within the context", "beyond it"])
@pytest.mark.parametrize("choice", [GREEDY, SAMPLED, Choice(0.7, 5, None), Choice(1.0, None, 0.8), Choice(0.9, 9, 0.5)])
def test_rows_of_any_lengths_get_the_ids_that_each_gets_alone(model, choice, num_tokens):
    lengths = [3, 1, 9, 16, 3, 15, 8]
    assert at_once(model, lengths, num_tokens, choice) == one_at_a_time(model, lengths, num_tokens, choice)


@pytest.mark.parametrize(
    "options",
    [{"num_kv_heads": 2}, {"qk_norm": True}, {"sliding_window": 5}, {"tie_embeddings": True}, {"context_length": 1}],
    ids=str,
)
def test_every_kind_of_gpt_writes_in_rows_what_it_writes_alone(options):
    model = random_gpt(**options)
    lengths = [1, 4, 7] if "context_length" not in options else [1, 1, 1]
    found = at_once(model, lengths, 30)
    assert found == one_at_a_time(model, lengths, 30)
    prompts = [row.prompt_ids for row in rows_of(lengths, 30)]
    without_cache = [
        list(generate(model, ids, max_tokens=30, seed=n, use_cache=False)) for n, ids in enumerate(prompts)
    ]
    assert found == without_cache


@pytest.mark.parametrize("max_rows", [1, 2, 3, 8])
def test_rows_wait_until_others_have_ended(model, max_rows):
    lengths = [2, 5, 1, 9, 4, 4, 12]
    stop_id = one_at_a_time(model, lengths, 30)[1][4]  # some rows end early, each at a different step
    found = at_once(model, lengths, 30, max_rows=max_rows, stop_id=stop_id)
    alone = one_at_a_time(model, lengths, 30, stop_id=stop_id)
    assert found == alone
    assert len({len(row) for row in alone}) > 1


@pytest.mark.parametrize("max_rows", [1, 3, 8])
@pytest.mark.parametrize("choice", [GREEDY, SAMPLED])
def test_a_device_that_runs_ahead_gives_the_same_ids(max_rows, choice):
    """The behaviour of a GPU on a CPU: steps of fixed sizes with padding rows, and ids read many steps later."""
    model = random_gpt(context_length=200, sliding_window=60)
    lengths = [2, 50, 1, 9, 140, 4, 12]
    stop_id = one_at_a_time(model, lengths, 90)[1][4]
    found = at_once(model, lengths, 90, choice, max_rows=max_rows, runs_ahead=True, stop_id=stop_id)
    assert found == one_at_a_time(model, lengths, 90, choice, stop_id=stop_id)


def test_rows_that_are_closed_from_outside_leave_the_others_alone(model):
    rows = rows_of([3, 5, 2], 20)
    reader = model.new_row_reader(use_cache=True, max_rows=3, num_rows=3, longest=30, use_graphs=True)
    found = {id(row): [] for row in rows}
    for row, token in write_rows(reader, rows, SAMPLED):
        found[id(row)].append(token)
        row.is_open = row is not rows[0] or len(found[id(row)]) < 4
    alone = one_at_a_time(model, [3, 5, 2], 20)
    assert list(found.values()) == [alone[0][:4], alone[1], alone[2]]


def test_a_prompt_that_several_rows_share_is_read_once(model, monkeypatch):
    seen = []
    stream = GPT.stream
    monkeypatch.setattr(
        GPT, "stream", lambda self, tokens_BT, **rest: seen.append(tokens_BT.shape) or stream(self, tokens_BT, **rest)
    )
    rows = [Row([1, 2, 3], new_dice(number), 3) for number in range(4)]
    reader = model.new_row_reader(use_cache=True, max_rows=4, num_rows=4, longest=6, use_graphs=True)
    assert len({tuple(ids) for ids in written(reader, rows)}) == 4
    assert seen[0] == (1, 3)


def test_rows_without_tokens_are_never_read(model):
    assert at_once(model, [3, 2], 0) == [[], []]


def test_logits_that_are_not_finite_are_an_error_of_the_row_that_is_open(model):
    broken = random_gpt()
    with torch.no_grad():
        broken.head.weight.fill_(torch.nan)
    with pytest.raises(NotFiniteError, match="logits of the model are not finite"):
        at_once(broken, [3, 2], 5)
    with pytest.raises(NotFiniteError, match="logits of the model are not finite"):
        list(generate(broken, [1], max_tokens=3))


def test_memory_that_was_never_written_does_not_reach_the_logits(model, monkeypatch):
    """Masked values are multiplied by 0, and 0 times NaN is NaN: fresh memory must not be read."""
    expected = at_once(model, [2, 9], 6)
    empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *arguments: empty(*arguments).fill_(torch.nan))
    assert at_once(model, [2, 9], 6) == expected


# The choice of a token


def oracle(logits_V, share, **options):
    """Return the id at `share` of the CDF, computed from the definition, one token at a time."""
    total, target = 0.0, share
    probabilities = token_probabilities(logits_V, **options).double()
    probabilities /= probabilities.sum()
    for id, probability in enumerate(probabilities.tolist()):
        total += probability
        if total > target:
            return id
    return int(probabilities.nonzero()[-1])


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("top_k", [None, 1, 7, 64, 500])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.5, 0.97, 1.0])
def test_chosen_ids_are_those_of_the_definition_ties_included(temperature, top_k, top_p):
    dice = torch.Generator().manual_seed(1)
    logits_NV = torch.randn(12, 64, generator=dice) * 3
    logits_NV[4:8] = logits_NV[4:8].round()  # many ties
    logits_NV[8] = 0.0
    logits_NV[9, ::2] = -torch.inf
    logits_NV[10] *= -0.0
    draws_N = draw(new_dice(3), (12,))
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    found = chosen_by(logits_NV, draws_N, **options).tolist()
    assert found == [oracle(row_V, share, **options) for row_V, share in zip(logits_NV, draws_N.tolist(), strict=True)]


def test_a_draw_at_either_end_chooses_a_token_that_is_allowed():
    logits_V = torch.tensor([-torch.inf, 0.0, 0.0, -torch.inf])
    for share, expected in ((0.0, 1), (1 - 2**-32, 2)):
        assert int(chosen_by(logits_V, torch.tensor(share, dtype=torch.float64))) == expected


def test_draws_do_not_depend_on_how_many_are_taken_at_once():
    whole = draw(new_dice(5), (40,))
    dice = new_dice(5)
    assert torch.equal(torch.cat([draw(dice, (length,)) for length in (1, 16, 3, 20)]), whole)
    assert whole.min() >= 0 and whole.max() < 1


def test_ids_of_bfloat16_logits_are_those_of_the_same_numbers_in_float32():
    logits_NV = torch.randn(5, 300, generator=torch.Generator().manual_seed(0)).bfloat16()
    draws_N = draw(new_dice(0), (5,))
    assert torch.equal(chosen_by(logits_NV, draws_N, top_p=0.9), chosen_by(logits_NV.float(), draws_N, top_p=0.9))
    assert chosen(logits_NV[:0], new_dice(0), top_k=None, top_p=None).tolist() == []


# Stop strings


def stopped_text(text, stop):
    """Return the text up to the stop string that ends first, found character by character."""
    for end in range(len(text) + 1):
        found = [each for each in stop if text[:end].endswith(each)]
        if found:
            return text[: end - max(map(len, found))]
    return text


def test_a_stop_string_is_found_whatever_the_parts_and_no_part_of_it_is_shown():
    dice = random.Random(0)
    for _ in range(500):
        text = "".join(dice.choices("ab", k=dice.randrange(20)))
        stop = ["".join(dice.choices("ab", k=dice.randrange(1, 6))) for _ in range(dice.randrange(1, 4))]
        expected = stopped_text(text, stop)
        cuts = sorted(dice.choices(range(len(text) + 1), k=4))
        search, shown = StopSearch(stop), ""
        for begin, end in itertools.pairwise([0, *cuts, len(text)]):
            shown += search.push(text[begin:end])
            assert expected.startswith(shown)
        assert shown + search.finish() == expected
        assert search.is_over == (expected != text or any(text.endswith(each) for each in stop))


def test_text_is_shown_as_soon_as_it_cannot_begin_a_stop_string():
    search = StopSearch(["\n\n"])
    assert [search.push(part) for part in ("a", "\n", "b", "\n", "\nc")] == ["a", "", "\nb", "", ""]


@pytest.fixture(scope="module")
def tokenizer():
    return gm.train_tokenizer(["low low lower né"] * 3, vocab_size=262, special_tokens=["<|endoftext|>"], progress=None)


class Writer(Scripted):
    """A model that generates the ids of a list."""

    sizes = GPTConfig(vocab_size=262, context_length=16, num_layers=1, num_heads=1, d_model=4)

    def forward(self, tokens_BT):
        return torch.nn.functional.one_hot(torch.tensor([[next(self.ids)]]), 262) * 5.0


def test_a_stop_string_across_tokens_ends_the_text_and_the_model(tokenizer):
    script = iter(b"one END two")
    stream = stream_text(Writer(script), tokenizer, "x", temperature=0, stop=["END", "two"])
    parts = list(stream)
    assert "".join(parts) == "one "
    assert next(script) == ord(" ")  # nothing after the stop string was computed
    assert stream.num_tokens == len("one END")


def test_a_special_end_of_text_gives_what_a_stop_string_held_back(tokenizer):
    end = tokenizer.special_tokens["<|endoftext|>"]
    assert "".join(stream_text(Writer([*b"a EN", end]), tokenizer, "x", temperature=0, stop="END")) == "a EN"


# Texts of a run


@pytest.fixture(scope="module")
def run(tokenizer, tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("batches") / "run", tokenizer)


PROMPTS = ["low", "", "lower né low low", "n"]


def test_texts_of_several_prompts_are_those_of_each_with_its_seed(run):
    together = gm.lm.generate(run, PROMPTS, num_texts=2, max_tokens=50, seed=3, device="cpu")
    alone = [
        gm.lm.generate(run, prompt, max_tokens=50, seed=3 + number, device="cpu")
        for number, prompt in enumerate(prompt for prompt in PROMPTS for _ in range(2))
    ]
    assert together == alone
    assert len(set(together)) == 8
    assert gm.lm.generate(run, PROMPTS, num_texts=2, max_tokens=50, seed=3, batch_size=3, device="cpu") == alone


def test_one_prompt_gives_a_str_and_several_or_a_number_a_list(run):
    options = {"max_tokens": 3, "seed": 0, "device": "cpu"}
    text = gm.lm.generate(run, "low", **options)
    assert isinstance(text, str)
    assert gm.lm.generate(run, "low", num_texts=1, **options) == [text]
    assert gm.lm.generate(run, ["low"], **options) == [text]


def test_a_stop_string_cuts_each_of_several_texts(run):
    options = {"max_tokens": 60, "seed": 0, "device": "cpu"}
    whole = gm.lm.generate(run, PROMPTS, **options)
    stop = [whole[0][7:9], "o"]
    assert gm.lm.generate(run, PROMPTS, stop=stop, **options) == [stopped_text(text, stop) for text in whole]
    assert gm.lm.generate(run, "low", stop=stop[0], **options) == stopped_text(whole[0], stop[:1])


def test_texts_may_be_read_in_any_order_and_left_unread(run):
    model, tokenizer = load_for_generation(run, device="cpu")
    request = TextRequest(prompts=tuple(PROMPTS), max_tokens=20, seed=1)
    expected = ["".join(stream) for stream in continued(model, tokenizer, request)]
    streams = list(continued(model, tokenizer, request))
    assert next(streams[2])
    assert "".join(streams[3]) == expected[3]
    assert "".join(streams[0]) == expected[0]
    assert model.training is False
    del streams


def test_the_model_has_its_mode_back_after_several_texts(model, tokenizer):
    wide = random_gpt(vocab_size=262).train()
    streams = list(continued(wide, tokenizer, TextRequest(prompts=("a", "b"), max_tokens=3, seed=0)))
    next(streams[0])
    assert not wide.training
    for stream in streams:
        list(stream)
    assert wide.training


def test_a_custom_model_writes_several_texts_too(tokenizer):
    streams = continued(Writer(b"abcdef"), tokenizer, TextRequest(prompts=("x", "y"), max_tokens=3, temperature=0))
    assert ["".join(stream) for stream in streams] == ["abc", "def"]


@pytest.mark.parametrize("prompt", ["low", ["low", "n"]])
def test_bfloat16_works_on_a_cpu_with_logits_equal_to_rounding(run, prompt):
    options = {"max_tokens": 5, "temperature": 0, "device": "cpu"}
    assert type(gm.lm.generate(run, prompt, precision="bf16", **options)) is type(
        gm.lm.generate(run, prompt, **options)
    )
    model, _ = load_for_generation(run, device="cpu", precision="bf16")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.cos_TK.dtype == torch.float32
    exact, _ = load_for_generation(run, device="cpu")
    tokens_BT = torch.arange(20)[None]
    torch.testing.assert_close(model(tokens_BT).float(), exact(tokens_BT), atol=0.02, rtol=0.05)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, r"prompt=\[\] contains no prompt"),
        (["low", 3], {}, "prompt=3 is of type int"),
        ("low", {"num_texts": 0}, "num_texts must be >= 1, got 0"),
        ("low", {"stop": ""}, "stop='' is empty"),
        ("low", {"stop": ["a", ""]}, "stop='' is empty"),
        ("low", {"stop": [3]}, "stop=3 is of type int"),
        (None, {}, "prompt=None is of type NoneType. Pass a str or a list of str"),
        ("low", {"precision": "16"}, "precision='16' is not valid. Pass 'auto', 'bf16' or '32'"),
        ("low", {"batch_size": 0}, "batch_size must be >= 1, got 0"),
        (["low", "n"], {"temperature": -1.0}, "temperature must be >= 0, got -1.0"),
        (["low", "n"], {"top_k": 0}, "top_k must be >= 1, got 0"),
        (["low", "n"], {"seed": 2**63 - 1}, "seed must be >= 0 and < 2"),
    ],
)
def test_invalid_arguments_are_refused(run, prompt, options, message):
    with pytest.raises(OptionError, match=message):
        generate_text(run, prompt, device="cpu", **options)


def test_a_long_prompt_among_several_is_cut_with_a_warning(run):
    with pytest.warns(UserWarning, match="Only the last 16 tokens of the prompt are used"):
        gm.lm.generate(run, ["low", "né " * 40], max_tokens=3, seed=0, device="cpu")


def test_an_enormous_number_of_tokens_takes_no_memory_ahead(run):
    model, tokenizer = load_for_generation(run, device="cpu")
    streams = list(continued(model, tokenizer, TextRequest(prompts=("low", "n"), max_tokens=10**15, seed=0)))
    assert next(streams[0])


@pytest.mark.parametrize("batch_size", [None, 3])
def test_texts_that_wait_take_no_memory(run, batch_size):
    model, tokenizer = load_for_generation(run, device="cpu")
    request = {"prompts": ("low", "n"), "max_tokens": 1, "seed": 0, "batch_size": batch_size}
    few = ["".join(stream) for stream in continued(model, tokenizer, TextRequest(**request, num_texts=5))]
    streams = continued(model, tokenizer, TextRequest(**request, num_texts=10**12))
    assert ["".join(next(streams)) for _ in range(5)] == few[:5]


def test_a_text_that_is_not_read_to_its_end_does_not_change_the_others(run):
    model, tokenizer = load_for_generation(run, device="cpu")
    request = TextRequest(prompts=tuple(PROMPTS), max_tokens=5, seed=1, batch_size=1)
    expected = ["".join(stream) for stream in continued(model, tokenizer, request)]
    streams = list(continued(model, tokenizer, request))
    assert next(streams[2])
    streams[2] = None
    assert ["".join(streams[number]) for number in (3, 0, 1)] == [expected[number] for number in (3, 0, 1)]


@pytest.mark.parametrize("name", ["prompt", "stop"])
@pytest.mark.parametrize("value", [3, b"text", {"text": 1}])
def test_what_is_neither_a_text_nor_a_list_of_texts_is_refused(tmp_path, name, value):
    with pytest.raises(
        gm.OptionError, match=rf"{name}=.* is of type {type(value).__name__}. Pass a str or a list of str"
    ):
        gm.lm.generate(tmp_path, **{"prompt": "a", name: value})


@pytest.mark.parametrize(("temperature", "top_p"), [("hot", None), (True, None), (1.0, "0.5")])
def test_what_is_no_number_is_refused_as_temperature_and_top_p(temperature, top_p):
    with pytest.raises(gm.OptionError, match="Pass a number"):
        check_sampling(temperature, None, top_p)
