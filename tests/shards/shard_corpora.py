"""Corpora, a tokenizer and an oracle that the tests of encoding share."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import numpy as np

from gristmill import Tokenizer, train_tokenizer
from gristmill.corpus import batches
from texts import random_story, random_text

EOT = "<|endoftext|>"


def small_batches(monkeypatch, num_bytes=256, min_stretch=16):
    """Make batches so small that documents span many of them."""
    monkeypatch.setattr(batches, "BATCH_BYTES", num_bytes)
    monkeypatch.setattr(batches, "MIN_STRETCH_BYTES", min_stretch)


def tokenizer(vocab_size=400, **options) -> Tokenizer:
    specials = options.pop("special_tokens", [EOT, "<|pad|>"])
    return train_tokenizer(
        [random_story(1, 3000)], vocab_size=vocab_size, special_tokens=specials, progress=None, **options
    )


def documents(seed=0, number=40) -> list[bytes]:
    """Documents of all lengths, some of them empty, equal, or not valid UTF-8; none contains a separator."""
    source = random.Random(seed)
    texts = []
    for i in range(number):
        size = source.choice([0, 1, 3, 20, 100, 400])
        text = random_story(seed * 1000 + i, size).encode() if i % 3 else random_text(seed * 1000 + i, size)
        texts.append(text)
    return [*texts, texts[1], texts[2]]


def text_documents(seed=0, number=40) -> list[str]:
    return [text.decode("utf-8", "ignore").replace("\ufeff", "") for text in documents(seed, number)]


def write_text(path: Path, texts) -> Path:
    path.write_bytes(EOT.encode().join(texts) + EOT.encode())
    return path


def write_jsonl(path: Path, texts) -> Path:
    path.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)))
    return path


def expected_ids(texts, tok: Tokenizer, *, eot=EOT, before=False) -> list[list[int]]:
    """The oracle: each document encoded separately, with its mark."""
    mark = [] if eot is None else [tok.special_tokens[eot]]
    return [mark * before + tok.encode(text, disallowed_special=()) + mark * (not before) for text in texts]


def flat(rows) -> list[int]:
    return [id for row in rows for id in row]


def read_shards(folder, split="train", dtype=np.uint16) -> tuple[list[int], list[int]]:
    """(ids, document ends) of Gristmill shards, read by hand."""
    prefix = "shard" if split == "train" else split
    ids, ends = [], []
    for path in sorted(Path(folder).glob(f"{prefix}-*.bin")):
        ends += (np.fromfile(path.with_suffix(".idx"), np.int64) + len(ids)).tolist()
        ids += np.fromfile(path, dtype).tolist()
    return ids, ends


def digest(folder) -> dict[str, str]:
    """Return the SHA-256 of every file in the folder, including hidden ones."""
    files = sorted(path for path in Path(folder).iterdir() if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
