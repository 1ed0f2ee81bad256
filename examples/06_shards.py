"""Encode a folder of compressed JSON lines into token shards, and build training batches from them. Takes a second."""

import json
import tempfile
from pathlib import Path

import numpy as np

import gristmill as gm
from gristmill.sample_corpus import write_sample_corpus

END = "<|endoftext|>"
CONTEXT = 256

try:
    from compression import zstd  # Python 3.14
except ImportError:
    from backports import zstd  # pip install 'gristmill[data]'


def write_json_lines(folder: Path, texts: list[str], num_files: int) -> None:
    """Write a folder of .jsonl.zst files, a common form of a corpus."""
    folder.mkdir()
    for part in range(num_files):
        lines = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts[part::num_files]))
        (folder / f"part-{part}.jsonl.zst").write_bytes(zstd.compress(lines.encode()))


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_sample_corpus(folder / "stories.txt", size=5_000_000, seed=0)
        stories = (folder / "stories.txt").read_text(encoding="utf-8").split(END)[:-1]
        write_json_lines(folder / "corpus", [story.strip() for story in stories], num_files=4)

        tok = gm.train_tokenizer(folder / "corpus", vocab_size=4_000, special_tokens=[END])
        run = gm.encode_corpus(folder / "corpus", tok, out=folder / "shards", val_fraction=0.01, shard_tokens=500_000)
        print(f"{run.num_documents:,} documents, {run.num_tokens:,} tokens, {run.manifest.dtype}")

        train, val = gm.Shards(folder / "shards"), gm.Shards(folder / "shards", split="val")
        for shards in (train, val):
            # Bits per byte = bits per token x tokens / source_bytes; they compare models with different tokenizers.
            ratio = shards.source_bytes / shards.num_tokens
            names = [path.name for path in shards.paths]
            print(f"{shards.split}: {len(shards):,} documents, {ratio:.3f} bytes per token, in {names}")
        print("a document:", val.decode(0)[:70], "…")

        tokens = np.memmap(train.paths[0], dtype=train.dtype, mode="r")  # as simple training loops read it
        assert np.array_equal(tokens, train.tokens[: len(tokens)])
        # B windows of T tokens, and the next token for each position.
        starts = np.random.default_rng(0).integers(0, len(tokens) - CONTEXT, size=8)
        x_BT = np.stack([tokens[i : i + CONTEXT] for i in starts])
        y_BT = np.stack([tokens[i + 1 : i + CONTEXT + 1] for i in starts])
        print("a batch:", x_BT.shape, "to predict:", y_BT.shape)


if __name__ == "__main__":
    main()
