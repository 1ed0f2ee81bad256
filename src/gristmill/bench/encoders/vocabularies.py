"""The published vocabularies of the comparison, in the two formats that the systems read.

gpt2 is made from gpt2_vocab.json and gpt2_merges.txt, searched for in the folder named by GRISTMILL_DATA and in
../shared/data next to the repository; cl100k from the ranks inside the package bpe-openai. The files are kept in data/
of the repository, which git ignores. Nothing here uses gristmill: its reading of these files is part of what is tested.
"""

import base64
import gzip
import importlib.resources
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.bench.corpora import CACHE, ROOT
from gristmill.bench.rivals import byte_of_letter

NAMES = ("gpt2", "cl100k")
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
    tiktoken: Path  # ranks in base64, without pattern and specials
    huggingface: Path  # tokenizer.json
    special_tokens: dict[str, int]

    def ranks(self) -> Ranks:
        """Return the bytes of every token with its rank, which is its id."""
        lines = self.tiktoken.read_bytes().splitlines()
        return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}


def find(name: str) -> VocabularyFiles:
    """Return the files of that vocabulary; writes them if necessary."""
    files = VocabularyFiles(name, CACHE / f"{name}.tiktoken", CACHE / f"{name}.tokenizer.json", dict(SPECIALS[name]))
    if not (files.tiktoken.exists() and files.huggingface.exists()):
        ranks, merges = _gpt2() if name == "gpt2" else _cl100k()
        _write(files.tiktoken, "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))
        _write(files.huggingface, json.dumps(_tokenizer_json(name, ranks, merges), ensure_ascii=False))
    return files


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
    folders = [Path(os.environ["GRISTMILL_DATA"])] if "GRISTMILL_DATA" in os.environ else []
    folders.append(ROOT.parent / "shared" / "data")
    found = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if found is None:
        raise SystemExit(
            f"{name}: not found. The gpt2 vocabulary needs gpt2_vocab.json and gpt2_merges.txt (OpenAI's encoder.json "
            "and vocab.bpe) in the folder named by GRISTMILL_DATA. Set it, or pass --vocabulary cl100k."
        )
    return found


def _cl100k() -> tuple[Ranks, Merges]:
    packed = importlib.resources.files("bpe_openai.data").joinpath("cl100k_base.tiktoken.gz").read_bytes()
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


def _tokenizer_json(name: str, ranks: Ranks, merges: Merges) -> dict[str, Any]:
    letter = {byte: letter for letter, byte in byte_of_letter().items()}

    def spelled(token: bytes) -> str:
        return "".join(letter[byte] for byte in token)

    split = {"type": "Split", "pattern": {"Regex": CL100K_PATTERN}, "behavior": "Removed", "invert": True}
    byte_level = {**BYTE_LEVEL, "use_regex": name == "gpt2"}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    specials = SPECIALS[name]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": token, **flags} for token, id in specials.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level if name == "gpt2" else {"type": "Sequence", "pretokenizers": [split, byte_level]},
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
            "ignore_merges": name != "gpt2",
            "vocab": {spelled(token): id for token, id in ranks.items()} | specials,
            "merges": [f"{spelled(left)} {spelled(right)}" for left, right in merges],
        },
    }


def _write(path: Path, text: str) -> None:
    """Write under another name and rename, so that an interrupted run leaves no partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.tmp.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
