"""The corpora, tokenizers and shards that all kinds share, made once per run from its seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import gristmill as gm
from gristmill.corpus.packages import load_zstd
from gristmill.sample_corpus import SEPARATOR, stories

SPECIALS = [SEPARATOR, "<|pad|>"]
NUM_STORIES = 4_000
NUM_WORDS = 600_000  # distinct: their table is larger than the smallest memory limit, so that counting spills


def make_inputs(folder: Path, seed: int) -> None:
    """Write stories in three formats, a text of many distinct words, two tokenizers and a folder of shards."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True)
    texts = list(islice(stories(seed), NUM_STORIES))
    (folder / "stories.txt").write_text("".join(text + SEPARATOR for text in texts), encoding="utf-8")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "stories.jsonl.zst").write_bytes(load_zstd().compress(lines.encode()))
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), folder / "stories.parquet", row_group_size=100)
    write_words(folder / "words.txt", seed)
    for size in (2_000, 600):
        tokenizer = gm.train_tokenizer(texts, vocab_size=size, special_tokens=SPECIALS, progress=None)
        tokenizer.save(folder / f"{size}.json")
    gm.encode_corpus(texts, tokenizer, out=folder / "shards", val_fraction=0.05, shard_tokens=200_000, progress=None)


def write_words(path: Path, seed: int) -> None:
    source = random.Random(seed)
    words = [f"{source.getrandbits(48):012x}" for _ in range(NUM_WORDS)]
    endless = stories(seed)
    with path.open("w", encoding="utf-8") as file:
        for begin in range(0, NUM_WORDS, 200):
            file.write(f"{next(endless)} {' '.join(words[begin : begin + 200])}\n")


def mixed_texts(number: int, seed: int) -> list[str]:
    """Return short texts: stories, special tokens spelled out, characters of all kinds, long runs, empty texts."""
    source, endless = random.Random(seed), stories(seed)
    alphabet = "ab '\n\t.,0123éß漢字かな한국🙂👩‍👩‍👧\u200b\u0301\u202e\x00"
    makers: list[Callable[[], str]] = [
        lambda: next(endless),
        lambda: next(endless)[: source.randrange(200)] + source.choice(SPECIALS) + "more" + SPECIALS[0] * 2,
        lambda: "".join(source.choice(alphabet) for _ in range(source.randrange(300))),
        lambda: source.choice(["a", " ", "\n", "ab", "'s", "字"]) * source.randrange(200),
        lambda: "",
    ]
    return [source.choices(makers, weights=[6, 2, 3, 1, 1])[0]() for _ in range(number)]
