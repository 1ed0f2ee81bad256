"""Train the sequence VAE of train_optimized.py without its optimizations, for comparison.

Settings of a typical script: one sequence at a time, in float32, padded to the maximum length. The posterior is
measured every 20 steps over a window of 100 and plotted every 500. The whole validation split is evaluated every 5 % of
the run, three checkpoints are kept, and a line is logged every 10 steps.

    python train_with_collapse_detection.py stories.parquet

DATA, the output and all options are those of train_optimized.py. benchmarks/bench_vae.py measures the steps from this
script to that one.
"""

import sys

from train_optimized import SMALL, train

UNOPTIMIZED = ["--model", "vae", "--batch_size", "1", "--gradient_accumulation_steps", "1", "--num_workers", "2"]
UNOPTIMIZED += ["--no-pin_memory", "--precision", "32", "--val_check_interval", "0.05", "--limit_val_batches", "1.0"]
UNOPTIMIZED += ["--update_frequency", "20", "--window_size", "100", "--plot_frequency", "500", "--keep", "3"]
UNOPTIMIZED += ["--log_interval", "10"]

if __name__ == "__main__":
    sys.exit(train(UNOPTIMIZED, "train_with_collapse_detection", for_sample=SMALL))
