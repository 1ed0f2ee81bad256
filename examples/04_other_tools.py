"""Export a tokenizer to the formats of other tools, and load each file again with the same ids. Takes a second."""

import tempfile
from pathlib import Path

import gristmill as gm
from gristmill.sample_corpus import stories

TEXT = "Once upon a time, a small dog found 3 red apples."


def main() -> None:
    tales = stories(seed=0)
    corpus = [next(tales) for _ in range(500)]
    tok = gm.train_tokenizer(iter(corpus), vocab_size=1_000, special_tokens=["<|endoftext|>"])
    with tempfile.TemporaryDirectory() as folder:
        for format, name in (
            ("gristmill", "tok.json"),
            ("huggingface", "hf"),
            ("gpt2", "gpt2"),
            ("minbpe", "tok.model"),
        ):
            files = tok.export(Path(folder, name), format=format)
            again = gm.Tokenizer.load(Path(folder, name), format=format)
            assert again.encode(TEXT) == tok.encode(TEXT)
            print(f"{format:12} {', '.join(path.name for path in files)}")


if __name__ == "__main__":
    main()
