"""compat.minbpe: the classes of minbpe give minbpe's merges, ids and files."""

from __future__ import annotations

import sys
import warnings
from itertools import pairwise

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

import gristmill as gm
from gristmill.compat import minbpe
from gristmill.compat.minbpe import BasicTokenizer, GPT4Tokenizer, OptimizedRegexTokenizer, RegexTokenizer
from gristmill.pretokenize.patterns import resolve_pattern
from texts import STORY, random_story, random_text, texts

PATTERNS = {"basic": "", "gpt2": minbpe.GPT2_SPLIT_PATTERN, "gpt4": minbpe.GPT4_SPLIT_PATTERN, "own": r"\w+|\W"}


class Plain:
    """The oracle: train and encode as minbpe describes them, by recounting everything for every merge."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.merges: dict[tuple[int, int], int] = {}

    def pieces_of(self, text: str) -> list[list[int]]:
        pieces = regex.findall(self.pattern, text) if self.pattern else [text]
        return [list(piece.encode()) for piece in pieces]

    def train(self, text: str, vocab_size: int) -> None:
        pieces = self.pieces_of(text)
        for new_id in range(256, vocab_size):
            counts: dict[tuple[int, int], int] = {}
            for ids in pieces:
                for pair in pairwise(ids):
                    counts[pair] = counts.get(pair, 0) + 1
            if not counts:
                return
            best = max(counts, key=counts.__getitem__)  # the first inserted among the largest
            self.merges[best] = new_id
            pieces = [self.merged(ids, best, new_id) for ids in pieces]

    @staticmethod
    def merged(ids: list[int], pair: tuple[int, int], new_id: int) -> list[int]:
        result: list[int] = []
        i = 0
        while i < len(ids):
            if tuple(ids[i : i + 2]) == pair:
                result.append(new_id)
                i += 2
            else:
                result.append(ids[i])
                i += 1
        return result

    def encode(self, text: str) -> list[int]:
        result: list[int] = []
        for ids in self.pieces_of(text):
            while True:
                known = [pair for pair in pairwise(ids) if pair in self.merges]
                if not known:
                    break
                pair = min(known, key=self.merges.__getitem__)
                ids = self.merged(ids, pair, self.merges[pair])
            result += ids
        return result


def new_tokenizer(kind: str):
    return BasicTokenizer() if kind == "basic" else RegexTokenizer(PATTERNS[kind])


@pytest.mark.parametrize("kind", PATTERNS)
def test_merges_and_ids_are_those_of_the_plain_algorithm(kind):
    text = STORY + random_story(3, 300)
    ours, plain = new_tokenizer(kind), Plain(PATTERNS[kind])
    ours.train(text, 400)
    plain.train(text, 400)
    assert list(ours.merges.items()) == list(plain.merges.items())
    for other in (text, "", "a", "hello world  ", random_text(4, 300, invalid=False).decode()):
        assert ours.encode(other) == plain.encode(other)
        assert ours.decode(ours.encode(other)) == other


@given(text=st.text("ab c", min_size=2, max_size=40))
def test_ties_go_to_the_pair_seen_first_also_where_pairs_overlap(text):
    for kind in ("basic", "gpt4"):
        ours, plain = new_tokenizer(kind), Plain(PATTERNS[kind])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gm.EarlyStopWarning)
            ours.train(text, 256 + 12)
        plain.train(text, 256 + 12)
        assert ours.merges == plain.merges


@given(text=texts)
def test_the_patterns_of_minbpe_have_native_matchers_with_the_same_pieces(text):
    for pattern in (minbpe.GPT2_SPLIT_PATTERN, minbpe.GPT4_SPLIT_PATTERN):
        native = resolve_pattern(pattern)
        assert native.name is not None
        assert regex.findall(native.regex, text) == regex.findall(pattern, text)


def test_example_of_wikipedia():
    tokenizer = BasicTokenizer()
    tokenizer.train("aaabdaaabac", 256 + 3)
    assert tokenizer.encode("aaabdaaabac") == [258, 100, 258, 97, 99]
    assert tokenizer.vocab[258] == b"aaab"
    assert tokenizer.decode([258, 100, 258, 97, 99]) == "aaabdaaabac"


def test_merges_of_basic_go_across_spaces_and_lines():
    tokenizer = BasicTokenizer()
    tokenizer.train("a \n a \n a \n ", 256 + 3)
    assert b"a \n " in tokenizer.vocab.values()


def test_a_text_of_a_megabyte_as_one_piece():
    text = random_story(9, 150_000)
    tokenizer = BasicTokenizer()
    tokenizer.train(text, 300)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_too_small_a_vocabulary_is_a_value_error():
    for tokenizer in (BasicTokenizer(), RegexTokenizer()):
        with pytest.raises(ValueError, match="vocab_size=255 is too small"):
            tokenizer.train("some text", 255)


def test_too_short_a_text_stops_early_with_a_warning():
    for tokenizer in (BasicTokenizer(), RegexTokenizer()):
        with pytest.warns(gm.EarlyStopWarning):
            tokenizer.train("abab", 300)
        assert tokenizer.vocab[max(tokenizer.vocab)] == b"abab"


def test_an_empty_text_is_a_clear_error():
    for tokenizer in (BasicTokenizer(), RegexTokenizer()):
        with pytest.raises(gm.EmptyCorpusError):
            tokenizer.train("", 300)


def test_verbose_prints_one_line_per_merge(capsys):
    tokenizer = RegexTokenizer()
    tokenizer.train("low low low", 258, verbose=True)
    assert capsys.readouterr().out.splitlines() == [
        "merge 1/2: (108, 111) -> 256 (b'lo')",
        "merge 2/2: (256, 119) -> 257 (b'low')",
    ]


@pytest.fixture
def special():
    tokenizer = RegexTokenizer()
    tokenizer.train(STORY, 300)
    tokenizer.register_special_tokens({"<|endoftext|>": 100257, "<|end|>": 100258, "<|end|>more": 100300})
    return tokenizer


def test_special_tokens_are_treated_as_allowed_special_says(special):
    text = "mill<|endoftext|>river<|end|>"
    plain = special.encode_ordinary(text)
    assert special.encode(text, allowed_special="none") == plain
    assert special.decode(plain) == text
    everything = special.encode(text, allowed_special="all")
    assert [id for id in everything if id >= 100257] == [100257, 100258]
    assert special.decode(everything) == text
    only = special.encode(text, allowed_special={"<|end|>", "not a special"})
    assert [id for id in only if id >= 100257] == [100258]
    for rules in ({}, {"allowed_special": "none_raise"}):
        with pytest.raises(ValueError, match="endoftext"):
            special.encode(text, **rules)
    for wrong in ("some", 3, None):
        with pytest.raises(ValueError, match="allowed_special"):
            special.encode(text, allowed_special=wrong)


def test_the_longest_of_overlapping_specials_wins(special):
    assert special.encode("<|end|>more", allowed_special="all") == [100300]


def test_special_tokens_survive_training_and_have_an_inverse(special):
    special.train(STORY, 280)
    assert special.special_tokens["<|end|>"] == 100258
    assert special.inverse_special_tokens[100300] == "<|end|>more"
    assert len(special.vocab) == 280


@pytest.mark.parametrize(
    "wrong", [{"<s>": 97}, {"<s>": 256}, {"<s>": -1}, {"<s>": True}, {"": 300}, {"a": 1000, "b": 1000}]
)
def test_special_tokens_at_impossible_ids_are_refused(wrong):
    tokenizer = RegexTokenizer()
    tokenizer.train("low low low", 257)
    with pytest.raises(gm.SpecialTokenError):
        tokenizer.register_special_tokens(wrong)
    assert tokenizer.special_tokens == {}


def test_unknown_ids_are_a_key_error(special):
    for id in (300, 100259, 10**9, -1):
        with pytest.raises(KeyError):
            special.decode([id])


@pytest.mark.filterwarnings(
    "ignore::gristmill.errors.FormatWarning"
)  # minbpe drops text that a custom pattern does not match
@pytest.mark.parametrize("kind", PATTERNS)
def test_files_come_back_the_same(kind, tmp_path):
    one = new_tokenizer(kind)
    one.train(STORY, 320)
    one.register_special_tokens({"<|endoftext|>": 5000})
    one.save(str(tmp_path / "first"))
    other = new_tokenizer("own")
    other.load(str(tmp_path / "first.model"))
    assert (other.merges, other.pattern, other.special_tokens) == (one.merges, PATTERNS[kind], {"<|endoftext|>": 5000})
    assert other.encode(STORY) == one.encode(STORY)
    other.save(tmp_path / "second")
    for suffix in (".model", ".vocab"):
        assert (tmp_path / f"first{suffix}").read_bytes() == (tmp_path / f"second{suffix}").read_bytes()


def test_model_file_is_laid_out_as_minbpe_has_it(tmp_path):
    tokenizer = RegexTokenizer()
    tokenizer.train("low low low\n", 258)
    tokenizer.register_special_tokens({"<|endoftext|>": 258})
    tokenizer.save(tmp_path / "tok")
    expected = f"minbpe v1\n{minbpe.GPT4_SPLIT_PATTERN}\n1\n<|endoftext|> 258\n108 111\n256 119\n"
    assert (tmp_path / "tok.model").read_text("utf-8") == expected
    vocab = (tmp_path / "tok.vocab").read_text("utf-8").split("\n")
    assert vocab[10] == r"[\u000a] 10"
    assert vocab[256:] == ["[l][o] -> [lo] 256", "[lo][w] -> [low] 257", "[<|endoftext|>] 258", ""]


def test_model_file_of_the_format_is_the_same(tmp_path):
    tokenizer = RegexTokenizer()
    tokenizer.train(STORY, 300)
    tokenizer.save(tmp_path / "tok")
    loaded = gm.Tokenizer.load(tmp_path / "tok.model", format="minbpe")
    assert loaded.encode(STORY) == tokenizer.encode(STORY)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "minbpe v2\n\n0\n",
        "minbpe v1\n",
        "minbpe v1\n\nmany\n",
        "minbpe v1\n\n-1\n",
        "minbpe v1\n\n999999999\n",
        "minbpe v1\n\n1\n<s>\n",
        "minbpe v1\n\n1\n<s> 97\n",
        "minbpe v1\n\n2\n<s> 300\n<s> 301\n",
        "minbpe v1\n\n0\n97\n",
        "minbpe v1\n\n0\n97 98 99\n",
        "minbpe v1\n\n0\n97 256\n",
        "minbpe v1\n\n0\n97 98\n97 98\n",
        "minbpe v1\n\n0\n97 99999999999999999999\n",
        "minbpe v1\n(\n0\n",
    ],
)
def test_damaged_model_files_are_refused_and_change_nothing(content, tmp_path):
    (tmp_path / "bad.model").write_text(content, "utf-8")
    tokenizer = BasicTokenizer()
    with pytest.raises(gm.TokenizerFormatError, match=r"bad\.model"):
        tokenizer.load(tmp_path / "bad.model")
    assert tokenizer.merges == {}


def test_what_minbpe_could_not_read_again_is_not_saved(tmp_path):
    tokenizer = RegexTokenizer()
    tokenizer.register_special_tokens({"<|end of text|>": 300})
    with pytest.raises(gm.TokenizerFormatError, match=r"white space|minbpe"):
        tokenizer.save(tmp_path / "tok")
    assert list(tmp_path.iterdir()) == []


def test_optimized_gives_the_same_merges_whatever_its_options():
    text = STORY + random_story(3, 300)
    plain = RegexTokenizer()
    plain.train(text, 400)
    for options in ({}, {"max_workers": 4, "batch_size": 10}, {"use_batching": False, "min_freq_threshold": 0}):
        with OptimizedRegexTokenizer(**options) as tokenizer:
            tokenizer.train(text, vocab_size=400, verbose=False)
            assert tokenizer.merges == plain.merges
            assert tokenizer.encode(STORY) == plain.encode(STORY)


def test_threshold_of_optimized_is_about_words_not_pairs():
    tokenizer = OptimizedRegexTokenizer(min_freq_threshold=2)
    with pytest.warns(gm.EarlyStopWarning):
        tokenizer.train("ab ab ab xq yq zq", 300)
    assert [tokenizer.vocab[id] for id in tokenizer.merges.values()] == [b" a", b" ab"]


@pytest.fixture(scope="module")
def gpt4():
    pytest.importorskip("bpe_openai")
    return GPT4Tokenizer()


def test_gpt4_gives_the_ids_of_cl100k(gpt4):
    tiktoken = pytest.importorskip("tiktoken")
    enc = tiktoken.Encoding(
        "cl100k",
        pat_str=resolve_pattern("cl100k").regex,
        mergeable_ranks=minbpe._ranks_of_cl100k(),
        special_tokens=minbpe.GPT4_SPECIAL_TOKENS,
    )
    for text in (
        STORY,
        "hello world!!!? (안녕하세요!) lol123 😉",
        "",
        "  \n ",
        random_text(3, 500, invalid=False).decode(),
    ):
        assert gpt4.encode(text) == enc.encode(text)
        assert gpt4.decode(gpt4.encode(text)) == text
    text = "<|endoftext|>Hello world<|fim_suffix|><|endofprompt|>"
    assert gpt4.encode(text, allowed_special="all") == enc.encode(text, allowed_special="all")
    assert gpt4.special_tokens == minbpe.GPT4_SPECIAL_TOKENS


def test_gpt4_is_not_trained_saved_or_loaded_but_shown(gpt4, tmp_path):
    for call in (lambda: gpt4.train("a", 300), lambda: gpt4.save("a"), lambda: gpt4.load("a.model")):
        with pytest.raises(NotImplementedError):
            call()
    gpt4.save_vocab(tmp_path / "gpt4.vocab")
    assert "[ ][ ] -> [  ] 256\n" in (tmp_path / "gpt4.vocab").read_text("utf-8")


def test_gpt4_takes_the_vocabulary_of_tiktoken_where_the_other_package_is_missing(monkeypatch):
    pytest.importorskip("bpe_openai")
    ranks = minbpe._ranks_of_cl100k()
    monkeypatch.setitem(sys.modules, "bpe_openai", None)

    class Fake:
        _mergeable_ranks = ranks

    monkeypatch.setattr(pytest.importorskip("tiktoken"), "get_encoding", lambda name: Fake)
    assert minbpe._ranks_of_cl100k() == ranks


def test_gpt4_names_both_packages_where_neither_has_the_vocabulary(monkeypatch):
    def fail(name):
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    monkeypatch.setattr(pytest.importorskip("tiktoken"), "get_encoding", fail)
    with pytest.raises(FileNotFoundError, match=r"bpe_openai .* tiktoken .* no network"):
        GPT4Tokenizer()


def test_the_advice_for_a_special_in_the_text_is_for_this_encode():
    tokenizer = RegexTokenizer()
    tokenizer.register_special_tokens({"<|fim|>": 300, "<|end|>": 301})
    with pytest.raises(gm.SpecialTokenError, match=r"'<\|end\|>', .*allowed_special='none'") as caught:
        tokenizer.encode("a<|end|>")
    assert "disallowed_special" not in str(caught.value)
    assert tokenizer.encode("a<|end|>", allowed_special={"<|end|>"}) == [97, 301]
