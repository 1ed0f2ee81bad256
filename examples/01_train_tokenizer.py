"""Train a tokenizer on a generated corpus, and encode a text with it. Takes a second."""

import tempfile
from pathlib import Path

import gristmill as gm
from gristmill.sample_corpus import write_sample_corpus


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "stories.txt")
        write_sample_corpus(corpus, size=5_000_000, seed=0)

        tok = gm.train_tokenizer(corpus, vocab_size=4_000, special_tokens=["<|endoftext|>"])
        print(f"{tok.vocab_size:,} tokens; the first merges are {tok.merges[:3]}")

        text = "Once upon a time, a small dog found 3 red apples."
        ids = tok.encode(text)
        print(f"{len(text)} characters -> {len(ids)} ids")
        print(" ".join(f"[{tok.decode([id])}]" for id in ids))
        assert tok.decode(ids) == text


if __name__ == "__main__":
    main()
