"""Time text generation with one prompt and with many, in alternation with an older version of the package.

Each version runs in a separate process that answers one request at a time, so that both alternate on the same machine.
Weights are random, and every text has the maximum number of tokens: speed does not depend on the training of a model.
Results are written to results/generate_DEVICE.{md,json}.

    python benchmarks/bench_generate.py --old OTHER_CHECKOUT/src --before ITS_COMMIT
    python benchmarks/bench_generate.py --old OTHER_CHECKOUT/src --device cpu --shapes quickstart --rounds 5
    python benchmarks/bench_generate.py --quick          a smoke test that writes nothing
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from results_folder import RESULTS

# As in the presets "tinystories-17m" and "gpt2-124m", and a small one for CPUs.
SHAPES: dict[str, dict[str, Any]] = {
    "17m": {
        "vocab_size": 10_000,
        "context_length": 256,
        "num_layers": 4,
        "num_heads": 16,
        "d_model": 512,
        "d_ff": 1344,
    },
    "124m": {
        "vocab_size": 50_257,
        "context_length": 1024,
        "num_layers": 12,
        "num_heads": 6,
        "d_model": 768,
        "d_ff": 2048,
        "tie_embeddings": True,
    },
    "quickstart": {
        "vocab_size": 4096,
        "context_length": 128,
        "num_layers": 4,
        "num_heads": 4,
        "d_model": 128,
        "tie_embeddings": True,
    },
    "quick": {"vocab_size": 300, "context_length": 32, "num_layers": 1, "num_heads": 2, "d_model": 16},
}


def serve() -> None:
    """Answer requests from stdin with the seconds for generating texts. Works with both versions of the package."""
    import torch

    from gristmill.lm.models import generation
    from gristmill.lm.models.gpt.network import GPT, GPTConfig

    models: dict[str, GPT] = {}
    for line in sys.stdin:
        request = json.loads(line)
        shape, device, num_texts = request["shape"], request["device"], request["num_texts"]
        key = f"{shape} {request['precision']}"
        if key not in models:
            torch.manual_seed(0)
            models[key] = GPT(GPTConfig(**SHAPES[shape])).to(device).eval()
            if request["precision"] == "bf16":
                models[key].use_bfloat16()
        model = models[key]
        prompts = [list(range(1, 9 + number % 8)) for number in range(num_texts)]
        options = {"temperature": 0.8, "top_k": request["top_k"], "top_p": request["top_p"]}
        began = time.perf_counter()
        if num_texts == 1:
            ids = generation.generate(model, prompts[0], max_tokens=request["max_tokens"], seed=0, **options)
            rows = [list(ids)]
        else:
            from gristmill.lm.models.rows import Choice, Row
            from gristmill.lm.models.sampling import new_dice

            texts = [Row(ids, new_dice(number), request["max_tokens"]) for number, ids in enumerate(prompts)]
            longest = max(len(row.prompt_ids) for row in texts) + request["max_tokens"]
            written = generation.write_ids(
                model,
                texts,
                Choice(**options),
                num_rows=num_texts,
                longest=longest,
                stop_id=None,
                batch_size=None,
                use_cache=True,
            )
            found: dict[int, list[int]] = {id(row): [] for row in texts}
            for row, token in written:
                found[id(row)].append(token)
            rows = list(found.values())
        seconds = time.perf_counter() - began
        assert {len(row) for row in rows} == {request["max_tokens"]}
        print(json.dumps({"seconds": seconds, "first": rows[0][:8]}), flush=True)


class Side:
    """A version of the package in a separate process."""

    def __init__(self, source: str) -> None:
        path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )

    def ask(self, request: dict[str, object]) -> float:
        """Return the seconds for a request."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline())["seconds"])


def cases(shape: str, device: str, many: int) -> list[tuple[str, str, dict[str, object]]]:
    """Yield (name, side, request) of each case of a shape."""
    request = {"shape": shape, "device": device, "max_tokens": 200, "num_texts": 1, "top_k": None, "top_p": None}
    if shape == "quick":
        request["max_tokens"] = 20
    fast = {**request, "precision": "bf16" if device == "cuda" else "32"}
    exact = {**request, "precision": "32"}
    found: list[tuple[str, str, dict[str, object]]] = [
        ("one prompt, before", "old", exact),
        ("one prompt, float32", "new", exact),
        (f"{many} prompts, float32", "new", {**exact, "num_texts": many}),
    ]
    if device == "cuda":
        found.append(("one prompt, bf16", "new", fast))
        found.append((f"{many} prompts, bf16", "new", {**fast, "num_texts": many}))
        found.append(
            (
                f"{many} prompts, bf16, top_k=50, top_p=0.95",
                "new",
                {**fast, "num_texts": many, "top_k": 50, "top_p": 0.95},
            )
        )
        found.append((f"{many} prompts, bf16, top_p=0.95", "new", {**fast, "num_texts": many, "top_p": 0.95}))
    else:
        found.append(("one prompt, top_k=50, before", "old", {**exact, "top_k": 50}))
        found.append(("one prompt, top_k=50", "new", {**exact, "top_k": 50}))
    return found


def main() -> None:
    """Run the contest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--old", help="src folder of the older version; without it, only this version is timed")
    parser.add_argument("--before", default="-", help="the commit of the older version, for the results")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--shapes", default="17m,124m")
    parser.add_argument("--many", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tiny model on a CPU; writes nothing")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the folder of the results")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    if arguments.quick:
        arguments.device, arguments.shapes, arguments.many, arguments.rounds = "cpu", "quick", 4, 2
    sides = {"new": Side(str(Path(__file__).resolve().parent.parent / "src"))}
    if arguments.old:
        sides["old"] = Side(arguments.old)
    rows, data = [], {}
    for shape in arguments.shapes.split(","):
        found = [case for case in cases(shape, arguments.device, arguments.many) if case[1] in sides]
        seconds: dict[str, list[float]] = {name: [] for name, _, _ in found}
        for number in range(arguments.rounds + 1):
            for name, side, request in found:
                taken = sides[side].ask(request)
                if number > 0:  # the first round loads kernels
                    seconds[name].append(taken)
        first = None
        for name, _, request in found:
            num_tokens = int(str(request["num_texts"])) * int(str(request["max_tokens"]))
            middle = statistics.median(seconds[name])
            rate, spread = num_tokens / middle, (num_tokens / max(seconds[name]), num_tokens / min(seconds[name]))
            first = first or rate
            rows.append(
                [f"{shape}: {name}", f"{rate:,.0f}", f"{spread[0]:,.0f}–{spread[1]:,.0f}", f"{rate / first:.1f}x"]
            )
            data[f"{shape}: {name}"] = {"seconds": seconds[name], "tokens": num_tokens}
    table = markdown_table(["200 tokens after a prompt of 8 to 15", "tokens/s", "min–max", "of the first"], rows)
    print(table, flush=True)
    if arguments.quick:
        return
    about = describe_run(["torch"]) | {"before": arguments.before}
    if arguments.device == "cuda":
        import torch

        about = {"GPU": torch.cuda.get_device_name(), **about}
    title = f"Text generation, {arguments.device.upper()}"
    write_result(
        f"generate_{arguments.device}", title=title, about=about, body=table, data=data, folder=arguments.output
    )


if __name__ == "__main__":
    main()
