"""Train a language model on a Ray cluster: Ray Train starts the processes, and each calls `gm.lm.train` unchanged.

    python examples/ray_train.py shards -o run --workers 2                      # on this machine
    python examples/ray_train.py /shared/shards -o /shared/run --workers 16 --gpu --address auto

Each worker is one process, with one GPU under --gpu. The shards and the run folder must be on a file system that all
machines can access. When a worker or a machine is lost, Ray Train restarts all workers, and the run resumes from its
last checkpoint.
"""

import argparse
import sys
from pathlib import Path
from typing import Any


def train(options: dict[str, Any]) -> None:
    """Train in one worker. `gm.lm.train` reads rank and address from the environment."""
    import gristmill as gm

    gm.lm.train(options["shards"], out=options["out"], config=options["config"], resume="auto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", help="folder written by `gristmill encode`")
    parser.add_argument("-o", "--out", required=True, help="folder of the run")
    parser.add_argument("--config", help="YAML file with options of gm.lm.train")
    parser.add_argument("--workers", type=int, default=2, help="number of processes")
    parser.add_argument("--gpu", action="store_true", help="one GPU per process")
    parser.add_argument("--address", help="of the Ray cluster, or 'auto'; default: start a cluster on this machine")
    if len(sys.argv) == 1:
        parser.print_help()
        return
    arguments = parser.parse_args()

    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    # Paths must be absolute, because workers have other current folders.
    shards, out = Path(arguments.shards).resolve(), Path(arguments.out).resolve()
    config = arguments.config and str(Path(arguments.config).resolve())
    ray.init(address=arguments.address or "local")
    TorchTrainer(
        train,
        train_loop_config={"shards": str(shards), "out": str(out), "config": config},
        scaling_config=ScalingConfig(num_workers=arguments.workers, use_gpu=arguments.gpu),
        run_config=RunConfig(storage_path=str(out.parent / "ray"), failure_config=FailureConfig(max_failures=3)),
    ).fit()


if __name__ == "__main__":
    main()
