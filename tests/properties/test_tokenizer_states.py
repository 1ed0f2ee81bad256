"""A Tokenizer through save, load, export, extend, truncate, pickle and from_pretrained in any order.

It keeps its ids, and encodes the same. Every tokenizer that a step returns is compared with what is known of it: its
tokens, and the ids of some texts. Those of Gristmill's layout come from `gristmill.reference`. Each step starts from
any tokenizer of the earlier steps, so that a tokenizer that a later step changes is found too.
"""

from __future__ import annotations

import copy
import pickle
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule

import gristmill as gm
from gristmill import reference
from gristmill.pretokenize.patterns import resolve_pattern
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

PATTERNS = ["gpt2", "cl100k", "o200k", "llama3", "qwen2", "whitespace"]
TIE_BREAKS = ["greatest-bytes", "smallest-ids", "huggingface", "first-seen"]
SPECIALS = [[], ["<s>"], ["<|end|>", "<|end|>2", "<é>"]]
CORPORA = [
    "low lower lowest newest wider it's don't 12345 ",
    "aaaa aaab abab  \n\n  ba ba  éé 東京東京 ",
    "the cat\tsat\r\non the mat, the mat; 2024 2025 " * 2,
]
TEXTS = [
    *CORPORA,
    "lowest<s>aab<|end|>2<|end|><é>é",
    "\x00\x7f  \ufeff \u3000x\U0001f600'S'll",
    "a" * 50 + "\n" * 9,
]


@dataclass(frozen=True)
class Known:
    """What must hold of a tokenizer."""

    tokens: dict[int, bytes]
    specials: dict[str, int]
    pattern: str
    tie_break: str
    merges: list[tuple[bytes, bytes]]
    is_plain: bool
    encoded: list[list[int]]


def known_of(tokenizer: gm.Tokenizer, tie_break: str) -> Known:
    """Return what is known of a new tokenizer. The ids of the texts are those of the plain implementation."""
    specials = tokenizer.special_tokens
    is_plain = tokenizer.parts.vocabulary.is_plain
    encoded = [encoded_plainly(text, tokenizer) if is_plain else encode(text, tokenizer) for text in TEXTS]
    vocab = dict(tokenizer.vocab)
    return Known(vocab, dict(specials), tokenizer.pattern, tie_break, list(tokenizer.merges), is_plain, encoded)


def encoded_plainly(text: str, tokenizer: gm.Tokenizer) -> list[int]:
    return reference.encode(
        text.encode(),
        list(tokenizer.merges),
        pattern=resolve_pattern(tokenizer.pattern).regex,
        special_tokens=list(tokenizer.special_tokens),
    )


def encode(text: str, tokenizer: gm.Tokenizer) -> list[int]:
    return tokenizer.encode(text, allowed_special="all")


def check(tokenizer: gm.Tokenizer, known: Known) -> None:
    """Check that nothing has changed."""
    assert dict(tokenizer.vocab) == known.tokens
    assert tokenizer.special_tokens == known.specials
    assert tokenizer.pattern == known.pattern
    assert tokenizer.merges == known.merges
    assert tokenizer.tie_break == known.tie_break
    assert [encode(text, tokenizer) for text in TEXTS] == known.encoded
    assert [tokenizer.decode(ids) for ids in known.encoded] == TEXTS


class TokenizerStates(RuleBasedStateMachine):
    tokenizers = Bundle("tokenizers")

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="gristmill-states-"))
        self.all: list[tuple[gm.Tokenizer, Known]] = []
        self.catching = warnings.catch_warnings()
        self.catching.__enter__()
        warnings.simplefilter("ignore")

    def teardown(self):
        try:
            for tokenizer, known in self.all:
                check(tokenizer, known)
        finally:
            self.catching.__exit__(None, None, None)
            shutil.rmtree(self.folder)

    def made(self, tokenizer: gm.Tokenizer, known: Known):
        """Check a tokenizer that must be what is known of it, and keep it."""
        check(tokenizer, known)
        self.all.append((tokenizer, known))
        return tokenizer, known

    # Where tokenizers come from

    @initialize(
        target=tokenizers,
        corpus=st.sampled_from(CORPORA),
        size=st.integers(0, 30),
        pattern=st.sampled_from(PATTERNS),
        specials=st.sampled_from(SPECIALS),
        tie_break=st.sampled_from(TIE_BREAKS),
    )
    def train(self, corpus, size, pattern, specials, tie_break):
        tokenizer = gm.train_tokenizer(
            [corpus],
            vocab_size=256 + len(specials) + size,
            pattern=pattern,
            special_tokens=specials,
            tie_break=tie_break,
            num_threads=1,
            progress=None,
        )
        return self.made(tokenizer, known_of(tokenizer, tie_break))

    @initialize(
        target=tokenizers,
        pattern=st.sampled_from(PATTERNS),
        tokens=st.lists(st.text("ab é\n", min_size=2, max_size=4).map(str.encode), unique=True, max_size=12),
        special=st.integers(300, 2000),
        order=st.randoms(use_true_random=False),
    )
    def take_from_another_tool(self, pattern, tokens, special, order):
        """A table of ranks, with bytes in any order and gaps between the ids."""
        first = [bytes([byte]) for byte in range(256)]
        order.shuffle(first)
        ids = dict(zip([*first, *tokens], [*range(256), *range(256, 290)], strict=False))
        vocabulary = Vocabulary.from_ranks(ids, {"<s>": special})
        parts = TokenizerParts(vocabulary, resolve_pattern(pattern), "smallest-ids", states_tie_break=True)
        tokenizer = gm.Tokenizer.from_parts(parts)
        return self.made(tokenizer, known_of(tokenizer, "smallest-ids"))

    # Steps that keep everything

    @rule(target=tokenizers, given=tokenizers)
    def save_and_load(self, given):
        tokenizer, known = given
        tokenizer.save(self.folder / "t.json")
        return self.made(gm.Tokenizer.load(self.folder / "t.json", tie_break=known.tie_break), known)

    @rule(target=tokenizers, given=tokenizers, format=st.sampled_from(["huggingface", "gpt2", "tiktoken", "minbpe"]))
    def export_and_load(self, given, format):
        tokenizer, known = given
        names = {"huggingface": "h.json", "gpt2": "gpt2", "tiktoken": "t.tiktoken", "minbpe": "t.model"}
        path = self.folder / names[format]
        try:
            tokenizer.export(path, format=format)
        except gm.TokenizerFormatError:  # the format cannot store these ids
            assert not known.is_plain
            return multiple()
        options = {"tie_break": known.tie_break}
        if format in ("gpt2", "tiktoken"):
            options |= {"pattern": known.pattern, "special_tokens": known.specials}
        return self.made(gm.Tokenizer.load(path, **options), known)

    @rule(target=tokenizers, given=tokenizers, legacy=st.booleans())
    def export_a_folder_and_take_it_from_there(self, given, legacy):
        tokenizer, known = given
        folder = self.folder / "folder"
        eos = next(iter(known.specials), None)
        options = {"legacy_merges": legacy} | ({} if eos is None else {"eos_token": eos})
        try:
            tokenizer.export(folder, format="huggingface", **options)
        except gm.TokenizerFormatError:
            return multiple()
        return self.made(gm.Tokenizer.from_pretrained(folder, tie_break=known.tie_break), known)

    @rule(target=tokenizers, given=tokenizers, how=st.sampled_from(["pickle", "copy", "deepcopy"]))
    def copy(self, given, how):
        tokenizer, known = given
        calls = {
            "pickle": lambda: pickle.loads(pickle.dumps(tokenizer)),
            "copy": lambda: copy.copy(tokenizer),
            "deepcopy": lambda: copy.deepcopy(tokenizer),
        }
        return self.made(calls[how](), known)

    # Steps that keep the tokens before a place

    @rule(target=tokenizers, given=tokenizers, part=st.floats(0, 1))
    def truncate(self, given, part):
        tokenizer, known = given
        least = 256 + len(known.specials)
        size = least + round(part * (tokenizer.vocab_size - least))
        if not known.is_plain:
            try:
                tokenizer.truncated(size)
            except (gm.OptionError, gm.VocabSizeError):
                return multiple()
            raise AssertionError("the ids of another tool have been changed")
        smaller = tokenizer.truncated(size)
        kept = size - len(known.specials)
        assert smaller.merges == known.merges[: kept - 256]
        assert {id: smaller.vocab[id] for id in range(kept)} == {id: known.tokens[id] for id in range(kept)}
        assert smaller.special_tokens == {text: kept + i for i, text in enumerate(known.specials)}
        assert smaller.tie_break == known.tie_break
        return self.made(smaller, known_of(smaller, known.tie_break))

    @rule(target=tokenizers, given=tokenizers, corpus=st.sampled_from(CORPORA), more=st.integers(0, 12))
    def extend(self, given, corpus, more):
        tokenizer, known = given
        size = tokenizer.vocab_size + more
        try:
            larger = tokenizer.extended(
                [corpus], vocab_size=size, num_threads=1, progress=None, tie_break=known.tie_break
            )
        except gm.OptionError:  # no merge makes one of its tokens
            assert not known.is_plain
            return multiple()
        assert larger.merges[: len(known.merges)] == known.merges
        learned = {id: token for id, token in known.tokens.items() if id not in known.specials.values()}
        assert {id: larger.vocab[id] for id in learned} == learned
        assert list(larger.special_tokens) == list(known.specials)
        if not known.is_plain:
            assert larger.special_tokens == known.specials
        return self.made(larger, known_of(larger, known.tie_break))


TokenizerStates.TestCase.settings = settings(stateful_step_count=15)
TestTokenizerStates = TokenizerStates.TestCase
