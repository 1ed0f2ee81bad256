"""Published vocabularies, loaded with tiktoken and with Gristmill.

cl100k and o200k come with the package `bpe_openai`. GPT-2's `gpt2_vocab.json` and `gpt2_merges.txt` are read from the
folder in the environment variable GRISTMILL_DATA; tests that need them are skipped without it.
"""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import os
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import gristmill as gm
from gristmill import _core
from gristmill.pretokenize.patterns import resolve_pattern
from gristmill.reference import HUGGINGFACE_BYTE_ORDER
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

NAMES = ["gpt2", "cl100k", "o200k"]
# Hugging Face writes the bytes of tokens as printable characters.
CHARACTER_OF = {byte: chr(0x100 + i) for i, byte in enumerate(HUGGINGFACE_BYTE_ORDER[188:])} | {
    byte: chr(byte) for byte in HUGGINGFACE_BYTE_ORDER[:188]
}
BYTE_OF = {character: byte for byte, character in CHARACTER_OF.items()}


def written(token: bytes) -> str:
    """`token` as Hugging Face and GPT-2 write it."""
    return "".join(CHARACTER_OF[byte] for byte in token)


def read(token: str) -> bytes:
    return bytes(BYTE_OF[character] for character in token)


def _gpt2_file(name: str) -> str:
    folder = os.environ.get("GRISTMILL_DATA")
    if not folder or not Path(folder, name).is_file():
        pytest.skip(f"GRISTMILL_DATA names no folder with {name}")
    return Path(folder, name).read_text(encoding="utf-8")


def gpt2_pairs() -> list[tuple[bytes, bytes]]:
    """The merges of GPT-2 in the order of their rank."""
    lines = [line for line in _gpt2_file("gpt2_merges.txt").splitlines() if line and not line.startswith("#version")]
    return [(read(left), read(right)) for left, right in (line.split(" ") for line in lines)]


@cache
def ranks(name: str) -> dict[bytes, int]:
    """Token -> id, without the specials."""
    if name == "gpt2":
        vocab = json.loads(_gpt2_file("gpt2_vocab.json"))
        return {read(token): id for token, id in vocab.items() if token != "<|endoftext|>"}
    package = importlib.util.find_spec("bpe_openai")
    if package is None or package.origin is None:
        pytest.skip("bpe_openai is not installed")
    data = gzip.decompress(Path(package.origin).with_name("data").joinpath(f"{name}_base.tiktoken.gz").read_bytes())
    return {base64.b64decode(token): int(id) for token, id in (line.split() for line in data.splitlines())}


@cache
def encoding(name: str) -> Any:
    """The `tiktoken.Encoding`: its own pattern and specials, with the ranks from here instead of from the network."""
    tiktoken = pytest.importorskip("tiktoken")
    public = pytest.importorskip("tiktoken_ext.openai_public")
    table = ranks(name)
    with pytest.MonkeyPatch.context() as patch:
        for loader in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
            patch.setattr(public, loader, lambda *_, **__: table)
        return tiktoken.Encoding(**getattr(public, "gpt2" if name == "gpt2" else f"{name}_base")())


SPECIALS = {
    "gpt2": {"<|endoftext|>": 50256},
    "cl100k": {
        "<|endoftext|>": 100257,
        "<|fim_prefix|>": 100258,
        "<|fim_middle|>": 100259,
        "<|fim_suffix|>": 100260,
        "<|endofprompt|>": 100276,
    },
    "o200k": {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
}


@cache
def tokenizer(name: str) -> gm.Tokenizer:
    """Gristmill's tokenizer: GPT-2 from its merges, the others from their ranks."""
    vocabulary = (
        Vocabulary.from_pairs(ranks(name), gpt2_pairs(), SPECIALS[name])
        if name == "gpt2"
        else Vocabulary.from_ranks(ranks(name), SPECIALS[name])
    )
    return gm.Tokenizer.from_parts(TokenizerParts(vocabulary, resolve_pattern(name), "greatest-bytes"))


def encoder_of(vocabulary: Vocabulary, pattern: str | None, *, cache_bytes: int = 0) -> _core.Encoder:
    """The native encoder of a vocabulary, such as a tokenizer holds one."""
    return _core.Encoder(
        byte_ids=vocabulary.byte_ids,
        merges=vocabulary.merges,
        other_tokens=list(vocabulary.other_tokens.values()),
        other_ids=list(vocabulary.other_tokens),
        whole_pieces=vocabulary.whole_pieces,
        pattern=pattern,
        special_tokens=[special.encode() for special in vocabulary.special_tokens],
        special_ids=list(vocabulary.special_tokens.values()),
        cache_bytes=cache_bytes,
    )


def encode_by_ranks(piece: bytes, table: dict[bytes, int]) -> list[int]:
    """tiktoken's rule, plainly: of neighbours whose bytes together are a token, those of the lowest id merge first."""
    if piece in table:
        return [table[piece]]
    parts = [bytes([byte]) for byte in piece]
    while len(parts) > 1:
        made = [table.get(left + right, 1 << 32) for left, right in pairwise(parts)]
        best = min(range(len(made)), key=made.__getitem__)
        if made[best] == 1 << 32:
            break
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return [table[part] for part in parts]
