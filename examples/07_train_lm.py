"""Train a language model from text: tokenizer, shards, training, a story, a report. Takes half a minute.

`make quickstart` does the same with ten times the text and more steps, and writes better stories.
"""

import tempfile
from pathlib import Path

import gristmill as gm
from gristmill.report import write_report
from gristmill.sample_corpus import write_sample_corpus

END = "<|endoftext|>"


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_sample_corpus(folder / "stories.txt", size=5_000_000, seed=0)
        tok = gm.train_tokenizer(folder / "stories.txt", vocab_size=1_000, special_tokens=[END])
        gm.encode_corpus(folder / "stories.txt", tok, out=folder / "shards", val_fraction=0.02)

        result = gm.lm.train(
            folder / "shards",
            out=folder / "run",
            num_layers=2,
            num_heads=2,
            d_model=64,
            tie_embeddings=True,
            context_length=64,
            batch_size=16,
            max_steps=150,
            learning_rate=6e-3,
            limit_val_batches=4,
            sample_interval=50,
            sample_tokens=30,
        )
        print(f"{result.num_parameters:,} parameters, {result.num_tokens:,} tokens in {result.seconds:.0f} s")
        print(f"validation: loss {result.val_loss:.3f}, {result.bits_per_byte:.3f} bits per byte")

        story = gm.lm.generate(folder / "run", "Once upon a time", max_tokens=60, seed=0)
        print(f"Once upon a time{story}")

        page = write_report(folder / "run")
        plots = sorted(path.name for path in (page.parent / "plots").iterdir())
        print(f"report: {page.name}, {page.stat().st_size / 1e3:.0f} kB, and {', '.join(plots)}")


if __name__ == "__main__":
    main()
