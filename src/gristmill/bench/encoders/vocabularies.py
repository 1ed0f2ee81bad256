"""The vocabularies of the comparison, in the two formats that the systems read.

    trained   trained with gristmill on the corpus itself, with the gpt2 pattern
    gpt2      from gpt2_vocab.json and gpt2_merges.txt in the folder named by GRISTMILL_DATA
    cl100k    from the ranks inside the package bpe-openai

The files are written without gristmill: its reading of them is part of what is compared.
"""

from __future__ import annotations

import base64
import gzip
import importlib.resources
import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.bench.corpora import data_file
from gristmill.bench.rivals import byte_of_letter
from gristmill.errors import CorpusError, EarlyStopWarning, OptionError
from gristmill.publish import publish
from gristmill.train import train_tokenizer

NAMES = ("trained", "gpt2", "cl100k")
SPECIAL = "<|endoftext|>"
SPECIALS = {
    "gpt2": {SPECIAL: 50256},
    "cl100k": {
        SPECIAL: 100257,
        "<|fim_prefix|>": 100258,
        "<|fim_middle|>": 100259,
        "<|fim_suffix|>": 100260,
        "<|endofprompt|>": 100276,
    },
}
# The spelling of published tokenizer.json files, by which other systems select their fast paths.
CL100K_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}

Ranks = dict[bytes, int]
Merges = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class VocabularyFiles:
    """One vocabulary on disk."""

    name: str
    pattern: str  # "gpt2" or "cl100k"
    folder: Path
    special_tokens: dict[str, int]

    @property
    def tiktoken(self) -> Path:
        """The ranks in base64, without pattern and specials."""
        return self.folder / "vocabulary.tiktoken"

    @property
    def huggingface(self) -> Path:
        """The tokenizer.json."""
        return self.folder / "tokenizer.json"

    @property
    def description(self) -> Path:
        """The file that `load` takes."""
        return self.folder / "vocabulary.json"

    @property
    def end_of_text(self) -> int:
        """The id of `<|endoftext|>`."""
        return self.special_tokens[SPECIAL]

    @classmethod
    def load(cls, description: str) -> VocabularyFiles:
        """Return the vocabulary that `prepare` wrote."""
        about = json.loads(Path(description).read_text(encoding="utf-8"))
        return cls(about["name"], about["pattern"], Path(description).parent, about["special_tokens"])

    def ranks(self) -> Ranks:
        """Return the bytes of every token with its rank, which is its id."""
        lines = self.tiktoken.read_bytes().splitlines()
        return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}


def prepare(name: str, folder: Path, *, corpus: Path | None = None, vocab_size: int = 0) -> VocabularyFiles:
    """Write the files of a vocabulary into `folder`.

    Args:
        name: One of `NAMES`.
        folder: Existing folder.
        corpus: For "trained": the text to train on.
        vocab_size: For "trained": number of tokens including `<|endoftext|>`.

    Raises:
        CorpusError: The corpus has no pair to merge.
        OptionError: The vocabulary is not available, or the corpus is too small for it.
    """
    if name == "trained":
        if corpus is None:
            raise OptionError("vocabulary 'trained' needs a corpus to train on. Pass corpus=.")
        ranks, merges = _trained(corpus, vocab_size)
        files = VocabularyFiles(name, "gpt2", folder, {SPECIAL: len(ranks)})
    else:
        ranks, merges = _gpt2() if name == "gpt2" else _cl100k()
        files = VocabularyFiles(name, name, folder, dict(SPECIALS[name]))
    lines = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    about = {"name": name, "pattern": files.pattern, "special_tokens": files.special_tokens}
    texts = {
        files.tiktoken: lines,
        files.huggingface: json.dumps(_tokenizer_json(files, ranks, merges), ensure_ascii=False),
        files.description: json.dumps(about),
    }
    for path, text in texts.items():
        with publish(path, durable=False) as file:
            file.write(text.encode())
    return files


def _trained(corpus: Path, vocab_size: int) -> tuple[Ranks, Merges]:
    """Train with gristmill. As in tiktoken, a token is made from any pair of tokens with its bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EarlyStopWarning)
        tok = train_tokenizer(
            str(corpus), vocab_size=vocab_size, special_tokens=[SPECIAL], pattern="gpt2", progress=None
        )
    if not tok.merges:
        raise CorpusError(f"{corpus.name}: no pair to merge in this corpus. Pass a larger corpus.")
    if tok.vocab_size < vocab_size:
        raise OptionError(
            f"{corpus.name} is too small for the vocabulary: it gives {tok.vocab_size:,} tokens, and {vocab_size:,} "
            f"are needed. Pass --vocab-size {tok.vocab_size} or less, or a larger corpus."
        )
    ranks = {token: id for id, token in sorted(tok.vocab.items()) if token != SPECIAL.encode()}
    return ranks, list(_recovered_merges(ranks))


def _gpt2() -> tuple[Ranks, Merges]:
    byte = byte_of_letter()

    def spelled(token: str) -> bytes:
        return bytes(byte[letter] for letter in token)

    vocab: dict[str, int] = json.loads(_data_file("gpt2_vocab.json").read_text(encoding="utf-8"))
    ranks = {spelled(token): id for token, id in vocab.items() if token != SPECIAL}
    lines = _data_file("gpt2_merges.txt").read_text(encoding="utf-8").split("\n")
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    return dict(sorted(ranks.items(), key=lambda item: item[1])), [(spelled(a), spelled(b)) for a, b in pairs]


def _data_file(name: str) -> Path:
    found = data_file(name)
    if found is None:
        raise OptionError(
            f"{name}: not found. The gpt2 vocabulary needs gpt2_vocab.json and gpt2_merges.txt (OpenAI's encoder.json "
            "and vocab.bpe) in the folder named by GRISTMILL_DATA. Set it, or pass --vocabulary trained."
        )
    return found


def _cl100k() -> tuple[Ranks, Merges]:
    try:
        packed = importlib.resources.files("bpe_openai.data").joinpath("cl100k_base.tiktoken.gz").read_bytes()
    except ModuleNotFoundError:
        raise OptionError(
            "the cl100k vocabulary is taken from the package bpe-openai, which is not installed. Run: pip install "
            "bpe-openai, or pass --vocabulary trained."
        ) from None
    lines = gzip.decompress(packed).splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    return ranks, list(_recovered_merges(ranks))


def _recovered_merges(ranks: Ranks) -> Iterable[tuple[bytes, bytes]]:
    """Yield the two parts of every token: the tokens that remain of its bytes after all older merges.

    A token that older merges leave in more than two parts has no merge.
    """
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [token[i : i + 1] for i in range(len(token))]
        while len(parts) > 2:
            made = [ranks.get(parts[i] + parts[i + 1], rank) for i in range(len(parts) - 1)]
            oldest = min(made)
            if oldest >= rank:
                break
            first = made.index(oldest)
            parts[first : first + 2] = [parts[first] + parts[first + 1]]
        if len(parts) == 2:
            yield parts[0], parts[1]


def _tokenizer_json(files: VocabularyFiles, ranks: Ranks, merges: Merges) -> dict[str, Any]:
    letter = {byte: letter for letter, byte in byte_of_letter().items()}

    def spelled(token: bytes) -> str:
        return "".join(letter[byte] for byte in token)

    is_gpt2 = files.pattern == "gpt2"
    split = {"type": "Split", "pattern": {"Regex": CL100K_PATTERN}, "behavior": "Removed", "invert": True}
    byte_level = {**BYTE_LEVEL, "use_regex": is_gpt2}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    specials = files.special_tokens
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": token, **flags} for token, id in specials.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level if is_gpt2 else {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": {**BYTE_LEVEL, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            # tiktoken looks up a whole piece before it merges; the merges of gpt2 reach every token.
            "ignore_merges": files.name != "gpt2",
            "vocab": {spelled(token): id for token, id in ranks.items()} | specials,
            "merges": [f"{spelled(left)} {spelled(right)}" for left, right in merges],
        },
    }
