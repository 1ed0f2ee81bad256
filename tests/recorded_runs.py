"""Made-up folders of training runs, for the tests of the report."""

import json
import math
import random

STORY = "there was a little girl named Lily. She loved to play in the park.\n\nOne day, she saw a big dog."


def write_run(folder, *, num_records=200, stride=10, max_steps=None, num_vals=8, num_samples=3, seed=0, **fields):
    """Write a run with plausible curves; `fields` replace those of every training record."""
    folder.mkdir(parents=True, exist_ok=True)
    last = num_records * stride
    write_json(folder / "config.json", config(max_steps or last))
    write_json(folder / "machine.json", {"device": "cpu", "name": "Some CPU", "threads": 2, "torch": "2.11.0"})
    records = [
        *(train_record(step, last, random.Random(f"{seed} {step}")) | fields for step in steps(num_records, stride)),
        *(val_record(last * i // num_vals, last, full=i == num_vals) for i in range(1, num_vals + 1)),
        *(sample_record(last * i // num_samples) for i in range(1, num_samples + 1)),
        {"kind": "event", "step": last, "message": f"checkpoint written: checkpoints/step-{last:06}"},
    ]
    write_lines(folder / "metrics.jsonl", sorted(records, key=lambda record: record["step"]))
    return folder


def steps(num_records, stride):
    return range(stride, (num_records + 1) * stride, stride)


def config(max_steps):
    return {
        "model": "gpt",
        "vocab_size": 4000,
        "num_layers": 4,
        "max_steps": max_steps,
        "learning_rate": 3e-3,
        "clip_norm": 1.0,
        "tie_embeddings": True,
        "d_ff": None,
        "sample_prompt": "Once upon a time",
    }


def curve(step, last):
    return 1.4 + 6.9 * math.exp(-6 * step / last) * (1 - 0.3 * step / last)


def train_record(step, last, noise):
    return {
        "kind": "train",
        "step": step,
        "loss": curve(step, last) + noise.gauss(0, 0.06),
        "lr": 3e-3 * min(1.0, step / (0.05 * last)) * (0.55 + 0.45 * math.cos(math.pi * step / last)),
        "grad_norm": math.exp(noise.gauss(-0.8, 0.3)) + 3 * math.exp(-12 * step / last),
        "tokens": step * 4096,
        "tokens_per_second": 41_000 + noise.gauss(0, 900),
        "mfu": 0.31 + noise.gauss(0, 0.004),
        "mfu_matmul": 0.44 + noise.gauss(0, 0.004),
        "data_wait": abs(noise.gauss(0.004, 0.002)),
        "memory_bytes": 812_000_000 + min(step, 200) * 10_000,
        "seconds": step * 0.1,
    }


def val_record(step, last, *, full):
    loss = curve(step, last) + 0.02
    return {
        "kind": "val",
        "step": step,
        "loss": loss,
        "bits_per_byte": loss / math.log(2) / 3.6,
        "num_tokens": 65_536,
        "full": full,
        "seconds": 1.5,
    }


def posterior_record(step, **fields):
    """Return a record of the posterior monitor; `alarms` are pairs such as ("raised", "collapse")."""
    latent = [0.5 / (1 + dimension) for dimension in range(fields.pop("latent_dim", 16))]
    alarms = [
        {"kind": kind, "change": change, "step": step, "message": f"{kind} is {change}: pass --free_bits 4."}
        for change, kind in fields.pop("alarms", [])
    ]
    return {
        "kind": "posterior",
        "step": step,
        "num_samples": 200,
        "kl": sum(latent),
        "kl_per_dimension": latent,
        "active_units": 7,
        "active_units_strict": 2,
        "mutual_information": 1.234,
        "mutual_information_limit": math.log(200),
        "aggregated_kl": 0.4,
        "aggregated_kl_floor": 0.2,
        "kl_share": 0.03,
        "kl_weight": 1.0,
        "gap_shuffled": 2.0 if step % 100 == 0 else None,
        "gap_prior": 3.0 if step % 100 == 0 else None,
        "alarms": alarms,
        **fields,
    }


def sample_record(step):
    return {"kind": "sample", "step": step, "prompt": "Once upon a time", "text": f"Once upon a time, {STORY}"}


def write_json(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
