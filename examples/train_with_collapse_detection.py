"""The sequence VAE of train_optimized.py as such scripts usually are: one sequence at a time, in float32, padded to the
longest, its posterior looked at every 20 steps, a validation every 5 % of the run.

    python examples/train_with_collapse_detection.py stories.parquet -o run/ --tokenizer tokenizer.json

It is there to compare with: benchmarks/bench_vae.py goes from here to train_optimized.py, one measure at a time.
"""

import sys

from train_optimized import train

UNOPTIMIZED = ["--model", "vae", "--batch_size", "1", "--num_workers", "2", "--no-pin_memory", "--precision", "32"]
UNOPTIMIZED += ["--update_frequency", "20", "--val_check_interval", "0.05", "--limit_val_batches", "1.0"]

if __name__ == "__main__":
    sys.exit(train(UNOPTIMIZED))
