"""Check what a run on a GPU promises besides speed, and record the results.

auto batch size     batch_size="auto" for the 124M model: the size that is found, and the memory of a step with it
16-mixed            losses of a short run, compared with bf16-mixed
resume              a run that is stopped and resumed has the bytes of one that is not (deterministic=True)
fsdp, compiled      losses of a short run on one device, compared with a plain one
out of memory       the advice of the error
checkpoints         the time that a checkpoint of the 124M model costs the run, at one per 1,000 steps

python benchmarks/check_lm_gpu.py                    results/lm_gpu_checks.{md,json}
python benchmarks/check_lm_gpu.py --quick            tiny models on a CPU; writes nothing
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import gristmill as gm
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from gristmill.errors import TrainingError
from gristmill.lm.training.run import Run
from gristmill.sample_corpus import write_sample_corpus
from results_folder import RESULTS
from to_loss import train_until

Check = Callable[[Path, dict[str, Any]], tuple[bool, str]]

SMALL = {"num_layers": 4, "num_heads": 4, "d_model": 512, "context_length": 256, "batch_size": 32}
LARGE = {"num_layers": 12, "num_heads": 6, "d_model": 768, "context_length": 1024, "tie_embeddings": True}
TINY = {"num_layers": 1, "num_heads": 2, "d_model": 32, "d_ff": 64, "context_length": 32, "batch_size": 2}
QUIET = {"val_check_interval": 0, "checkpoint_interval": 0, "log_interval": 1}
CHECKPOINT_INTERVAL = 1000  # steps, of the bar
MAX_STALL = 0.01


def losses_of(folder: Path, shards: Path, **options: Any) -> list[float]:
    """Train, and return the losses of all steps."""
    gm.lm.train(shards, out=folder, progress=None, **{**QUIET, **options})
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [record["loss"] for record in records if record["kind"] == "train"]


def messages_of(folder: Path) -> list[str]:
    """Return the messages of a run."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record["message"] for line in lines if (record := json.loads(line))["kind"] == "event"]


def check_auto_batch(folder: Path, sizes: dict[str, Any]) -> tuple[bool, str]:
    """Find a batch size, and train with it."""
    options = {**sizes["large"], "batch_size": "auto", "global_batch_size": sizes["global"], "max_steps": 2}
    losses = losses_of(folder / "auto", folder / "shards", **options)
    found = next(message for message in messages_of(folder / "auto") if "batch_size auto" in message)
    memory = torch.cuda.max_memory_reserved() / 1e9 if torch.cuda.is_available() else 0.0
    return len(losses) == 2, f"{found} {memory:.0f} GB reserved."


def check_float16(folder: Path, sizes: dict[str, Any]) -> tuple[bool, str]:
    """Compare 16-mixed with bf16-mixed."""
    half = "16-mixed" if torch.cuda.is_available() else "32"  # CPUs have no 16-mixed
    found = {
        precision: losses_of(folder / precision, folder / "shards", **sizes["small"], precision=precision, max_steps=60)
        for precision in (half, "bf16-mixed")
    }
    ends = {name: statistics.fmean(losses[-10:]) for name, losses in found.items()}
    is_close = abs(ends[half] - ends["bf16-mixed"]) < 0.1 and found[half][0] > ends[half]
    return is_close, ", ".join(f"{name}: {found[name][0]:.3f} → {end:.3f}" for name, end in ends.items())


def check_resume(folder: Path, sizes: dict[str, Any]) -> tuple[bool, str]:
    """Compare a run that was resumed with one that was not, with and without 8-bit floats."""
    outcomes = []
    for float8 in ("off", "all") if torch.cuda.is_available() else ("off",):
        options = {**sizes["small"], "deterministic": True, "float8": float8}
        whole, parts = folder / f"whole-{float8}", folder / f"parts-{float8}"
        losses_of(parts, folder / "shards", **options, max_steps=10, schedule="constant")
        losses_of(whole, folder / "shards", **options, max_steps=20, schedule="constant")
        losses_of(parts, folder / "shards", max_steps=20, resume="auto")
        outcomes.append(weights_of(whole) == weights_of(parts))
    return all(outcomes), "weights after 20 steps are byte-identical" if all(outcomes) else f"identical: {outcomes}"


def weights_of(folder: Path) -> bytes:
    """Return the bytes of the weights of the last checkpoint."""
    last = max((folder / "checkpoints").iterdir(), key=lambda path: path.name)
    return (last / "model.safetensors").read_bytes()


def check_fsdp(folder: Path, sizes: dict[str, Any]) -> tuple[bool, str]:
    """Compare fsdp, compiled, with a plain run."""
    options = {**sizes["small"], "max_steps": 20}
    plain = losses_of(folder / "plain", folder / "shards", **options)
    sharded = losses_of(folder / "fsdp", folder / "shards", **options, strategy="fsdp", compile_model=True)
    largest = max(abs(a - b) for a, b in zip(plain, sharded, strict=True))
    return largest < 0.05, f"largest difference of a loss {largest:.4f}"


def check_out_of_memory(folder: Path, sizes: dict[str, Any]) -> tuple[bool, str]:
    """Train with a batch that cannot fit."""
    if not torch.cuda.is_available():
        return True, "not checked without a GPU"
    options = {**sizes["large"], "batch_size": 16_384, "max_steps": 1}
    try:
        losses_of(folder / "oom", folder / "shards", **options)
    except TrainingError as error:
        return "batch_size" in str(error), str(error)
    return False, "no error"


def check_checkpoints(folder: Path, sizes: dict[str, Any]) -> tuple[bool, str]:
    """Compare blocks of steps with and without a checkpoint at their start, in turns."""
    number = sizes["block"]
    with opened(folder, sizes) as run:
        train_until(run, 5)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for index in range(2 * sizes["pairs"]):
            saves = index % 2 == 1
            run.saver.writer.wait()
            synchronize()
            begin = time.perf_counter()
            if saves:
                Run.save(run)
            train_until(run, run.step + number)
            synchronize()
            run.saver.writer.wait()  # nearly always done; otherwise the rest of its writing counts as a stall
            seconds[saves].append(time.perf_counter() - begin)
    pairs = zip(seconds[True], seconds[False], strict=True)
    stall = statistics.median(with_it - without for with_it, without in pairs)
    step = statistics.median(seconds[False]) / number
    share = stall / (CHECKPOINT_INTERVAL * step)
    return share <= MAX_STALL, (
        f"{stall:.3f} s per checkpoint, {100 * share:.2f} % of a run with one per {CHECKPOINT_INTERVAL:,} steps of "
        f"{1e3 * step:.1f} ms"
    )


@contextlib.contextmanager
def opened(folder: Path, sizes: dict[str, Any]) -> Iterator[Run]:
    """Open a run of the large model."""
    from gristmill.lm.training.config import TrainConfig
    from gristmill.lm.training.devices import launch

    options = {**QUIET, **sizes["large"], "max_steps": 100_000, "log_interval": 10}
    fabric, config = launch(TrainConfig.from_options(options))
    data = config.model.open_data(folder / "shards")
    (folder / "checkpoints-run").mkdir()
    with contextlib.closing(Run(fabric, config, data, folder / "checkpoints-run")) as run:
        yield run


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


CHECKS: dict[str, Check] = {
    "checkpoints": check_checkpoints,
    "auto batch size": check_auto_batch,
    "16-mixed": check_float16,
    "resume": check_resume,
    "fsdp, compiled": check_fsdp,
    "out of memory": check_out_of_memory,
}


def main() -> None:
    """Run all checks, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny models on a CPU; writes nothing")
    parser.add_argument("--only", help="names of checks, separated by semicolons")
    arguments = parser.parse_args()
    if not arguments.quick and not torch.cuda.is_available():
        parser.error("no GPU found. These checks need one; --quick runs on a CPU.")
    sizes: dict[str, Any] = {
        "small": SMALL,
        "large": {**LARGE, "batch_size": 64},
        "global": 512,
        "block": 60,
        "pairs": 3,
    }
    if arguments.quick:
        sizes = {"small": TINY, "large": TINY, "global": 4, "block": 2, "pairs": 1}
    rows, found = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_sample_corpus(folder / "stories.txt", size=400_000 if arguments.quick else 30_000_000)
        vocab_size = 512 if arguments.quick else 10_000
        tok = gm.train_tokenizer(folder / "stories.txt", vocab_size=vocab_size, progress=None)
        gm.encode_corpus(folder / "stories.txt", tok, out=folder / "shards", progress=None)
        for name, check in CHECKS.items():
            if arguments.only and name not in arguments.only.split(";"):
                continue
            begin = time.perf_counter()
            try:
                is_good, what = check(folder, sizes)
            except Exception as error:
                traceback.print_exc()
                is_good, what = False, f"{type(error).__name__}: {error}"
            seconds = time.perf_counter() - begin
            found[name] = {"passed": is_good, "result": what, "seconds": seconds}
            rows.append([name, "passed" if is_good else "FAILED", what])
            print(f"{name}: {rows[-1][1]} in {seconds:.0f} s: {what}", flush=True)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    if arguments.quick:
        return
    about = describe_run(["torch", "triton", "pytorch-lightning", "numpy"])
    about["GPU"] = torch.cuda.get_device_name()
    table = markdown_table(["check", "outcome", "result"], rows)
    write_result(
        "lm_gpu_checks", title="Runs on a GPU", about=about, body=table, data={"checks": found}, folder=RESULTS
    )


if __name__ == "__main__":
    main()
