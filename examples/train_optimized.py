"""A sequence VAE, trained with everything that makes it fast, and watched for posterior collapse.

    python examples/train_optimized.py stories.parquet -o run/ --tokenizer tokenizer.json
    python examples/train_optimized.py shards/ -o run/ --batch_size 16 --precision bf16-mixed --compile_model

It is `gristmill train-model --preset vae-fast`; all its options can be given: `--help` lists them. Without any argument
it trains a small model on a sample corpus, half a minute on a CPU. train_with_collapse_detection.py is the same without
what makes it fast, for comparison.
"""

import json
import sys
import tempfile
from pathlib import Path

import gristmill as gm
from gristmill.cli import main as gristmill
from gristmill.sample_corpus import write_sample_corpus

OPTIMIZED = ["--preset", "vae-fast"]

# For a CPU and half a minute: the first words of each story, and all that keeps so small a model from collapsing.
# What the options of the script say goes over it.
SMALL = ["--num_layers", "2", "--num_heads", "2", "--d_model", "64", "--latent_dim", "16", "--learning_rate", "4e-3"]
SMALL += ["--max_sequence_length", "16", "--batch_size", "32", "--gradient_accumulation_steps", "1"]
SMALL += ["--max_steps", "120", "--precision", "auto", "--latent_injection", "embedding", "--word_dropout", "0.9"]
SMALL += ["--free_bits", "0.5", "--free_bits_mode", "dimension", "--kl_schedule", "constant"]
SMALL += ["--update_frequency", "20", "--window_size", "20", "--plot_frequency", "100"]


def train(options: list[str]) -> int:
    """Train as the command line says; without one, on a sample corpus."""
    arguments = sys.argv[1:]
    if arguments:
        return gristmill(["train-model", *options, *arguments])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = write_parquet(folder)
        small = [*SMALL, "--tokenizer", str(folder / "tokenizer.json"), "--cache_dir", str(folder / "cache")]
        status = gristmill(["train-model", *small, *options, str(data), "-o", str(folder / "run")])
        last = json.loads((folder / "run" / "plots" / "posterior.jsonl").read_text().splitlines()[-1])
        print(f"the latents hold {last['mutual_information']:.2f} nats, {last['active_units']} of 16 units are active")
        return status


def write_parquet(folder: Path) -> Path:
    """A Parquet file of stories, one a row, and a tokenizer for it."""
    import pyarrow
    import pyarrow.parquet

    write_sample_corpus(folder / "stories.txt", size=1_000_000, seed=0)
    stories = (folder / "stories.txt").read_text(encoding="utf-8").split("<|endoftext|>")
    texts = [story.strip() for story in stories if story.strip()]
    tok = gm.train_tokenizer(texts, vocab_size=1_000, special_tokens=["<|endoftext|>"], progress=None)
    tok.save(folder / "tokenizer.json")
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), folder / "stories.parquet")
    return folder / "stories.parquet"


if __name__ == "__main__":
    sys.exit(train(OPTIMIZED))
