"""Time to the same loss: the baseline script against runs of the trainer, on the same tokens.

The baseline (lm_baseline.py) trains with AdamW and a cosine schedule, once per learning rate; the best final held-out
loss is the goal. Runs of Gristmill have the same number of parameters and read the same windows in the same order. The
time to the goal is that of the training steps. Compilation, warm-up and evaluation are not counted for either side.
Losses are means over the same held-out windows, computed by plain torch in bfloat16 from the float32 weights.

    Baselines -> goal -> each ingredient alone, for all tokens -> recipes, planned for a part of the tokens
"""

from __future__ import annotations

import contextlib
import gc
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import gristmill as gm
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from gristmill.lm.data.batch import Batch
from gristmill.lm.data.token_dataset import TokenDataset
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.devices import launch
from gristmill.lm.training.run import Run
from gristmill.lm.training.schedules import learning_rate
from gristmill.lm.training.trainer import train_steps
from gristmill.sample_corpus import write_sample_corpus
from lm_baseline import Baseline

END = "<|endoftext|>"
NUM_LOOKS = 12  # evaluations of a run
WARM_UP = 0.04  # of the steps of the baseline


@dataclass(frozen=True)
class Contest:
    """A model size with its data, and the options of its runs."""

    name: str
    model: GPTConfig
    baseline_heads: int
    batch_size: int
    shards: Path
    num_tokens: int
    num_held_out: int  # windows of the held-out loss
    device: str = "cuda"

    @property
    def num_steps(self) -> int:
        """Steps of the baseline."""
        return self.num_tokens // (self.batch_size * self.model.context_length)

    def windows(self, split: str, *, seed: int = 0) -> TokenDataset:
        """The windows of a split, in the order of the trainer."""
        return TokenDataset(
            gm.Shards(self.shards, split=split),
            context_length=self.model.context_length,
            batch_size=self.batch_size,
            seed=seed,
            device=self.device,
        )


@dataclass
class Curve:
    """The held-out losses of a run, with the seconds of training until then."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def seconds_to(self, goal: float) -> float | None:
        """Return the seconds of training until the first evaluation with a loss of at most `goal`."""
        return next((s for s, loss in zip(self.seconds, self.losses, strict=True) if loss <= goal), None)

    @property
    def milliseconds_per_step(self) -> float:
        """Mean over the run."""
        return 1e3 * self.seconds[-1] / self.steps[-1]


def make_shards(folder: Path, *, sample_bytes: int, texts: list[Path], vocab_size: int) -> Path:
    """Write a corpus of sample stories and of these texts as token shards, with a tokenizer trained on it."""
    shards = folder / "shards"
    if shards.exists():
        return shards
    folder.mkdir(parents=True, exist_ok=True)
    stories = folder / "stories.txt"
    write_sample_corpus(stories, size=sample_bytes, seed=0)
    corpus = [stories, *texts]
    tok = gm.train_tokenizer(corpus, vocab_size=vocab_size, special_tokens=[END], progress=None)
    gm.encode_corpus(corpus, tok, out=shards, val_fraction=0.02, progress=None)
    return shards


# Evaluation


@torch.no_grad()
def held_out_loss(contest: Contest, loss_of: Callable[[Batch], torch.Tensor]) -> float:
    """Return the mean loss of the held-out windows."""
    total = torch.zeros((), device=contest.device, dtype=torch.float64)
    num_targets = 0
    with contextlib.closing(contest.windows("val")) as windows, torch.autocast(contest.device, torch.bfloat16):
        for batch in windows.validation_batches(num_sequences=contest.num_held_out):
            count = int((batch.targets_BT >= 0).sum())
            total += loss_of(batch).double() * count
            num_targets += count
    return float(total) / num_targets


def plain_loss(contest: Contest, model: nn.Module) -> float:
    """Return the held-out loss of the weights of a run, computed without kernels and 8-bit floats."""
    assert isinstance(model, GPT)
    plain = GPT(model.config).to(contest.device).eval()
    plain.load_state_dict(model.state_dict())
    return held_out_loss(contest, lambda batch: plain.loss(batch, {})[0])


def looks(num_steps: int, *, first: float) -> list[int]:
    """Return the steps at which to evaluate, from a fraction of the run on."""
    steps = np.linspace(max(1, round(first * num_steps)), num_steps, NUM_LOOKS).round()
    return sorted({int(step) for step in steps})


def followed(
    curve: Curve, contest: Contest, steps: list[int], train_to: Any, evaluate: Any, goal: float | None
) -> Curve:
    """Train in turns until the goal is reached, and record the losses."""
    seconds = 0.0
    for step in steps:
        synchronize(contest.device)
        begin = time.perf_counter()
        train_to(step)
        synchronize(contest.device)
        seconds += time.perf_counter() - begin
        loss = evaluate()
        curve.steps.append(step)
        curve.seconds.append(seconds)
        curve.losses.append(loss)
        print(f"  {curve.name}: step {step:,}, {seconds:.2f} s, held-out loss {loss:.4f}", flush=True)
        if goal is not None and loss <= goal:
            break
    return curve


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


# The baseline


def baseline_curve(contest: Contest, *, peak: float, num_looks: int = 1) -> Curve:
    """Train the baseline as its authors do: fused AdamW, weight decay for matrices, clipping, cosine to a tenth."""
    torch.manual_seed(0)
    c, total = contest.model, contest.num_steps
    model: nn.Module = Baseline(
        vocab_size=c.padded_vocab_size,
        context_length=c.context_length,
        num_layers=c.num_layers,
        num_heads=contest.baseline_heads,
        d_model=c.d_model,
        tie_embeddings=c.tie_embeddings,
    ).to(contest.device)
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=contest.device == "cuda")
    compiled = torch.compile(model) if contest.device == "cuda" else model
    windows = contest.windows("train")
    state = {"step": 0}

    def forward_backward(number: int) -> None:
        batch = windows.batch(number)
        with torch.autocast(contest.device, torch.bfloat16):
            loss = compiled(batch.inputs_BT, batch.targets_BT)
        loss.backward()

    def train_to(end: int) -> None:
        for number in range(state["step"], end):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(number, peak=peak, warmup_steps=int(WARM_UP * total), total_steps=total)
            forward_backward(number)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        state["step"] = end

    def evaluate() -> float:
        model.eval()
        loss = held_out_loss(contest, lambda batch: masked_loss(model, batch))
        model.train()
        return loss

    for number in range(3):  # compilation
        forward_backward(number)
    optimizer.zero_grad(set_to_none=True)
    steps = [round(total * (i + 1) / num_looks) for i in range(num_looks)]
    with contextlib.closing(windows):
        curve = Curve(f"baseline, learning rate {peak:g}", {"learning_rate": peak})
        followed(curve, contest, steps, train_to, evaluate, None)
    torch.compiler.reset()
    free()
    return curve


def masked_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the loss of the baseline. torch ignores targets of -100, which the baseline passes to it."""
    loss: torch.Tensor = model(batch.inputs_BT, batch.targets_BT)
    return loss


# Runs of the trainer


def our_curve(
    name: str, contest: Contest, options: dict[str, Any], *, share: float = 1.0, goal: float | None = None
) -> Curve:
    """Train with the trainer for a share of the steps of the baseline, until the goal is reached."""
    with run_of(contest, options, num_steps=3) as run:
        train_until(run, 3)  # kernels are compiled here
    num_steps = round(share * contest.num_steps * contest.batch_size / options.get("batch_size", contest.batch_size))
    with run_of(contest, options, num_steps=num_steps) as run:
        if options.get("compile_model"):
            compile_step(run)
        steps = [num_steps] if goal is None else looks(num_steps, first=0.5)
        return followed(
            Curve(name, {**options, "share": share}),
            contest,
            steps,
            lambda step: train_until(run, step),
            lambda: plain_loss(contest, run.model),
            goal,
        )


def compile_step(run: Run) -> None:
    """Run forward and backward once, and drop the gradients."""
    loss, _ = run.module(dict(vars(run.dataset.batch(0))), {})
    run.fabric.backward(loss)
    run.module.zero_grad(set_to_none=True)


@contextlib.contextmanager
def run_of(contest: Contest, options: dict[str, Any], *, num_steps: int) -> Iterator[Run]:
    """Open a run, which writes no checkpoint."""
    fixed = {
        **{"batch_size": contest.batch_size, "max_steps": num_steps, "device": contest.device},
        **{"val_check_interval": 0, "checkpoint_interval": 0, "sample_interval": 0, "compile_model": False},
        **{"precision": "bf16-mixed", "warmup_steps": WARM_UP},
    }
    sizes = {
        name: getattr(contest.model, name)
        for name in ("context_length", "num_layers", "num_heads", "d_model", "d_ff", "tie_embeddings")
    }
    with tempfile.TemporaryDirectory() as folder:
        fabric, config = launch(TrainConfig.from_options({**fixed, **sizes, **options}))
        data = config.model.open_data(contest.shards)
        with contextlib.closing(Run(fabric, config, data, Path(folder))) as run:
            for name in ("save", "validate"):  # they are not a part of the time to a loss
                setattr(run, name, lambda: None)
            yield run
        del run  # and its tensors
    free()


def train_until(run: Run, step: int) -> None:
    """Train to a step of the run without changing its schedule."""
    run.should_stop = lambda: run.step >= step  # type: ignore[method-assign]
    train_steps(run)


def free() -> None:
    """Give the memory of a run back."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# Results


@dataclass
class Found:
    """The result of a contest."""

    baselines: list[Curve]
    ingredients: list[Curve]
    recipes: list[Curve]

    @property
    def best(self) -> Curve:
        """The baseline with the lowest final loss."""
        return min(self.baselines, key=lambda curve: curve.losses[-1])


def write_report(contest: Contest, found: Found, *, corpus: str, folder: Path, num_parameters: dict[str, int]) -> None:
    """Write results/lm_to_loss_NAME."""
    goal, seconds = found.best.losses[-1], found.best.seconds[-1]
    rows = []
    for curve in [*found.baselines, *found.ingredients, *found.recipes]:
        reached = curve.seconds_to(goal)
        rows.append(
            [
                curve.name,
                f"{curve.steps[-1]:,}",
                f"{curve.milliseconds_per_step:.1f}",
                f"{curve.losses[-1]:.4f}",
                f"{curve.seconds[-1]:.1f}",
                "" if reached is None else f"{reached:.1f}",
                "" if reached is None else f"{reached / seconds:.2f}x",
            ]
        )
    header = ["run", "steps", "ms per step", "held-out loss", "s", "s to the goal", "of the baseline"]
    note = (
        f"\n\nCorpus: {corpus}. {contest.num_tokens:,} tokens in steps of "
        f"{contest.batch_size} x {contest.model.context_length}. Parameters: "
        + ", ".join(f"{name} {number / 1e6:.1f}M" for name, number in num_parameters.items())
        + f". The goal is the lowest final loss of the baseline, {goal:.4f} nats. Rows of single ingredients train on "
        "all tokens; recipes are planned for fewer, and stop at the goal."
    )
    about = describe_run(["torch", "triton", "numpy"])
    if torch.cuda.is_available():
        about = {"GPU": torch.cuda.get_device_name(), **about}
    write_result(
        f"lm_to_loss_{contest.name}",
        title=f"Time to the same loss: {contest.name}",
        about=about,
        body=markdown_table(header, rows) + note,
        data={
            "goal": goal,
            **{
                kind: [vars(curve) for curve in getattr(found, kind)]
                for kind in ("baselines", "ingredients", "recipes")
            },
        },
        folder=folder,
    )
    print(markdown_table(header, rows), flush=True)


def count_parameters(contest: Contest, options: dict[str, Any]) -> dict[str, int]:
    """Return the number of parameters of both models; raise if they differ by more than 2 %."""
    c = contest.model
    with torch.device("meta"):
        baseline = Baseline(
            vocab_size=c.padded_vocab_size,
            context_length=c.context_length,
            num_layers=c.num_layers,
            num_heads=contest.baseline_heads,
            d_model=c.d_model,
            tie_embeddings=c.tie_embeddings,
        )
    counts = {"baseline": sum(p.numel() for p in baseline.parameters())}
    with run_of(contest, options, num_steps=1) as run:
        counts["ours"] = run.model.num_parameters
    if not math.isclose(counts["baseline"], counts["ours"], rel_tol=0.02):
        raise ValueError(f"the models have different numbers of parameters: {counts}")
    return counts


# The contests

MUON = {"optimizer": "muon", "muon_learning_rate": 0.02}
LINEAR = {"schedule": "wsd", "decay_fraction": 0.6, "final_fraction": 0.0}

# The first one has the options of the preset "tinystories-17m".
PRESET = {**MUON, **LINEAR, "learning_rate": 2e-3, "muon_learning_rate": 0.01, "output_init": "zero"}
RECIPES: dict[str, dict[str, Any]] = {
    "preset": PRESET,
    "preset with float8": {**PRESET, "float8": "all"},
    "preset with QK-norm": {**PRESET, "qk_norm": True},
    "preset with twice the learning rates": {**PRESET, "learning_rate": 4e-3, "muon_learning_rate": 0.02},
}


def ingredients(best_rate: float, num_heads: int) -> dict[str, dict[str, Any]]:
    """Return what may differ from the baseline, each alone beside the first row, which has its optimizer."""
    base = {"learning_rate": best_rate}
    return {
        "ours: AdamW, cosine": base,
        "  without kernels, compiled": {**base, "kernels": "plain", "compile_model": True},
        "  as many heads as the baseline": {**base, "num_heads": num_heads},
        "  8-bit floats (all)": {**base, "float8": "all"},
        "  Muon": {**base, **MUON},
        "  linear decay to 0": {**base, **LINEAR},
        "  QK-norm": {**base, "qk_norm": True},
        "  matrices into the stream start at 0": {**base, "output_init": "zero"},
    }


def contest(
    chosen: Contest,
    *,
    corpus: str,
    folder: Path,
    rates: list[float],
    recipes: dict[str, dict[str, Any]],
    share: float,
    with_ingredients: bool,
) -> None:
    """Run a contest and write its report after each run. `share`: part of the tokens for which recipes are planned."""
    if chosen.device == "cuda":
        torch.set_float32_matmul_precision("high")
    counts = count_parameters(chosen, next(iter(recipes.values()), {}))
    found = Found([], [], [])
    for rate in rates:
        found.baselines.append(baseline_curve(chosen, peak=rate))
    best_rate = rates[found.baselines.index(found.best)]
    for name, options in ingredients(best_rate, chosen.baseline_heads).items() if with_ingredients else ():
        found.ingredients.append(our_curve(name, chosen, options))
        write_report(chosen, found, corpus=corpus, folder=folder, num_parameters=counts)
    for name, options in recipes.items():
        goal = found.best.losses[-1]
        found.recipes.append(our_curve(name, chosen, options, share=share, goal=goal))
        write_report(chosen, found, corpus=corpus, folder=folder, num_parameters=counts)
