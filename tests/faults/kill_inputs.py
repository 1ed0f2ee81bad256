"""The corpora, tokenizer and shards of the commands that are killed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import gristmill as gm
from gristmill.corpus.packages import load_zstd
from gristmill.sample_corpus import write_sample_corpus

EOT = "<|endoftext|>"


@dataclass(frozen=True)
class Inputs:
    """`names` are the values of the placeholders in command lines."""

    names: dict[str, str]


def make_inputs(folder: Path, *, num_bytes: int, num_words: int, steps: int = 24, plot_frequency: int = 1000) -> Inputs:
    """Write the inputs. `num_bytes` is the size of each corpus, `num_words` the number of words to count.

    steps, plot_frequency: of a training. A plot takes longer than a short training.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_sample_corpus(folder / "stories.txt", size=num_bytes, seed=0, overwrite=True)
    stories = [story for story in (folder / "stories.txt").read_text().split(EOT) if story.strip()]
    lines = "".join(json.dumps({"id": i, "text": f"{i}{text}"}) + "\n" for i, text in enumerate(stories))
    (folder / "lines.jsonl.zst").write_bytes(load_zstd().compress(lines.encode()))
    _write_parquet(folder / "table.parquet", [f"{text}{i}" for i, text in enumerate(stories)])
    source = random.Random(0)
    words = [f"{source.randrange(1 << 44):x}" for _ in range(num_words)]
    (folder / "words.txt").write_text(" ".join(words))
    tokenizer = gm.train_tokenizer(stories[:50], vocab_size=400, special_tokens=[EOT], progress=None)
    tokenizer.save(folder / "tok.json")
    few = [story[:300] for story in stories[:60]]
    gm.encode_corpus(few, tokenizer, out=folder / "shards", val_fraction=0.2, progress=None, overwrite=True)
    return Inputs(
        {
            "text": str(folder / "stories.txt"),
            "lines": str(folder / "lines.jsonl.zst"),
            "parquet": str(folder / "table.parquet"),
            "words": str(folder / "words.txt"),
            "tokenizer": str(folder / "tok.json"),
            "shards": str(folder / "shards"),
            "shard_tokens": str(max(1000, num_bytes // 10)),
            "part_size": str(num_bytes // 3),
            "seconds": "0.02",
            "steps": str(steps),
            "plot_frequency": str(plot_frequency),
        }
    )


def _write_parquet(path: Path, texts: list[str]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:  # the scenarios that need the file are skipped
        return
    pq.write_table(pa.table({"text": texts}), path, row_group_size=max(1, len(texts) // 10))
