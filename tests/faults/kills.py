"""Commands that are killed at random times and run again: the scenarios.

A scenario is a command line. It runs undisturbed once. Then it runs in fresh folders, is killed with SIGKILL at seeded
random times, and runs again until it is done. Every file that it leaves must be identical to that of the undisturbed
run, and there must be no other file: neither beside the output nor in the temporary folder. No process may remain.

To add a command, add a `Scenario` to `SCENARIOS`. `kill_play.py` plays a scenario. The tests of rows 11 and 27 play a
few kills with processes forked from a warm one (`kill_runners.py`, `warm.py`), and `tools/kill_matrix.py` plays many.
"""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.shards.layouts import LAYOUTS


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A command that is killed and run again. `{text}` and similar are paths of `Inputs`."""

    name: str
    arguments: str
    before: str = ""
    """A command that makes an earlier output, which the killed command replaces."""
    victims: tuple[str, ...] = ("group",)
    """Whom to kill: the "driver" alone or with all its processes ("group"), or a "worker" or a "node" that it uses."""
    needs: tuple[str, ...] = ()
    """Packages without which the scenario is skipped."""
    growing: tuple[str, ...] = ("progress.json",)
    """Visible files that are not complete until the end. All others must be complete whenever the run is killed."""
    refusal: str = ""
    """What the command prints when it finds its complete output, which only `--overwrite` replaces."""
    on_cluster: bool = False
    """Whether it needs a Ray cluster. Its nodes may be killed too."""
    short: bool = True
    """Whether the tests play it."""

    @property
    def command(self) -> str:
        return self.arguments.split()[0]


def _encode(layout: str, corpus: str = "{text} {lines} {parquet}", more: str = "") -> str:
    size = "" if LAYOUTS[layout].shard_tokens is None else " --shard-tokens {shard_tokens}"
    return (
        f"encode {corpus} -t {{tokenizer}} -o out -f {layout} --val-fraction 0.1 --checkpoint-seconds {{seconds}} "
        f"--threads 2 --progress none{size}{more}"
    )


_MODEL = (
    "train-model {shards} -o run --resume --batch-size 4 --num-layers 1 --num-heads 2 --d-model 32 --max-steps {steps} "
    "--checkpoint-interval 4 --val-check-interval 8 --limit-val-batches 2 --log-interval 4 --device cpu --dropout 0.1 "
    "--progress none"
)
_GROWING_RUN = ("metrics.jsonl", "state.json")
_SPILLING = "{words} --memory-limit 34MB --threads 2 --progress none"
_PARTS = "--workers 2 --part-size {part_size} --progress none"
_COMPLETE = "already exists"
# Few nodes, because starting one takes longer than the job.
ON_CLUSTER = ("driver", "driver", "worker", "worker", "worker", "node")

SCENARIOS = (
    Scenario(
        name="train-tokenizer",
        arguments="train-tokenizer {text} --vocab-size 600 -o tok.json --threads 2",
        refusal=_COMPLETE,
        short=False,
    ),
    Scenario(
        name="train-tokenizer, spilling",
        arguments=f"train-tokenizer {_SPILLING} --vocab-size 300 -o tok.json",
        refusal=_COMPLETE,
    ),
    Scenario(
        name="train-tokenizer, replacing",
        arguments="train-tokenizer {text} --vocab-size 600 -o tok.json --overwrite --threads 2",
        before="train-tokenizer {text} --vocab-size 300 -o tok.json --threads 2",
        short=False,
    ),
    Scenario(
        name="count-words, spilling",
        arguments=f"count-words {_SPILLING} -o words.gmw",
        refusal=_COMPLETE,
        short=False,
    ),
    *(Scenario(name=f"encode, {layout}", arguments=_encode(layout), needs=("pyarrow",)) for layout in LAYOUTS),
    Scenario(name="encode, text", arguments=_encode("gristmill", "{text}"), short=False),
    Scenario(name="encode, JSON lines with zstd", arguments=_encode("gristmill", "{lines}"), short=False),
    Scenario(name="encode, Parquet", arguments=_encode("gristmill", "{parquet}"), needs=("pyarrow",), short=False),
    Scenario(
        name="encode, replacing",
        arguments=_encode("npy", "{text}", " --overwrite"),
        before=_encode("npy", "{lines}"),
        growing=("*",),
        short=False,
    ),
    Scenario(
        name="train-model, gpt",
        arguments=f"{_MODEL} --context-length 16 --sample-interval 8 --sample-tokens 4",
        needs=("torch",),
        growing=_GROWING_RUN,
    ),
    Scenario(
        name="train-model, vae",
        arguments=f"{_MODEL} --model vae --max-sequence-length 16 --latent-dim 4 --plot-frequency {{plot_frequency}}",
        needs=("torch",),
        growing=_GROWING_RUN,
    ),
    *(
        Scenario(
            name=f"{command.split()[0]}, {executor}",
            arguments=f"{command} {options} {_PARTS}",
            victims=victims,
            needs=needs,
            refusal="" if command.startswith("encode") else _COMPLETE,
            on_cluster=executor == "Ray",
            short=command.startswith("encode") or (executor == "Ray" and command.startswith("count-words")),
        )
        for executor, options, victims, needs in (
            ("processes", "--executor processes", ("group", "driver", "worker"), ("pyarrow",)),
            ("Ray", "--executor ray --address {cluster}", ON_CLUSTER, ("pyarrow", "ray")),
        )
        for command in (
            "count-words {text} {lines} {parquet} -o words.gmw",
            "train-tokenizer {text} {lines} {parquet} --vocab-size 300 -o tok.json",
            "encode {text} {lines} {parquet} -t {tokenizer} -o out --shard-tokens {shard_tokens} --val-fraction 0.1",
        )
    ),
)


def scenario(name: str) -> Scenario:
    """Return the scenario of this name."""
    return next(one for one in SCENARIOS if one.name == name)
