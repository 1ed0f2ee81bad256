"""Kinds: files of runs and models: records, configs, checkpoints, weights. Some readers import torch."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

import gristmill as gm
from faults.mutated.kind import Kind
from faults.mutated.tokenizer_kinds import small_tokenizer
from recorded_runs import posterior_record, write_run

# Records of a run, as reports and pages read them


def make_metrics(root: Path) -> None:
    write_run(root / "gpt", num_records=6, num_vals=2, num_samples=1)
    write_run(root / "vae", num_records=3, num_vals=1, num_samples=1)
    alarms = [("raised", "collapse")]
    records = [posterior_record(step, latent_dim=3, alarms=alarms if step == 20 else []) for step in (10, 20, 30)]
    with (root / "vae/metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def report(folder: Path) -> None:
    """Everything in a report except the plots."""
    from gristmill.report.page import markdown_page
    from gristmill.report.plots import all_plots
    from gristmill.report.records import read_records
    from gristmill.report.summary import summarise

    records = read_records(folder)
    markdown_page(summarise(records), all_plots(records), "plots").encode()


def compare(folder: Path) -> None:
    from gristmill.report.records import read_records
    from gristmill.report.summary import summarise

    summarise(read_records(folder))


def take_up_records(folder: Path) -> None:
    """What a resumed run does with its records."""
    from gristmill.lm.training.records import MetricsFile

    before = (folder / "metrics.jsonl").read_bytes()
    MetricsFile(folder, up_to_step=25).close()
    (folder / "metrics.jsonl").write_bytes(before)


def view(folder: Path) -> None:
    """What the page of runs shows: a snapshot, and the status."""
    from gristmill.view.artefacts import Artefact
    from gristmill.view.replies import to_json
    from gristmill.view.runs import FollowedRun, _details

    run = FollowedRun(0, Artefact("run", folder))
    run.poll(look_at_state=True)
    event = run.event_after(None)
    to_json(event[1]) if event else None
    to_json(run.window(0, 1e9))
    to_json(_details([("run", run.records())]))


def figures(folder: Path) -> None:
    from gristmill.posterior.drawing import read_figures

    list(read_figures(folder / "metrics.jsonl"))


# Description, config and lock of a run


def make_description(root: Path) -> None:
    from gristmill.lm.training.config import TrainConfig

    for name, preset in (("gpt", "quickstart"), ("vae", None)):
        write_run(root / name, num_records=2, num_vals=1, num_samples=1)
        options: dict[str, Any] = {"model": "vae"} if name == "vae" else {}
        config = TrainConfig.from_options(options, preset=preset) if preset else TrainConfig.from_options(options)
        (root / name / "config.json").write_text(json.dumps(config.to_json(), indent=1))


def load_config(folder: Path) -> None:
    from gristmill.lm.training.config import load_config

    config = load_config(folder)
    json.dumps(config.to_json())
    repr(config)


def make_locks(root: Path) -> None:
    for name, pid in (("here", 1), ("other", 99_999_999)):
        (root / name).mkdir()
        content = {"pid": pid, "host": "localhost", "since": "2026-01-01 00:00:00 +0000", "world": "8 processes"}
        (root / name / ".lock").write_text(json.dumps(content))


def look_at_lock(folder: Path) -> None:
    from gristmill.lm.training import run_lock

    run_lock.where_trained(folder)
    str(run_lock.in_use(folder, run_lock._holder(folder / ".lock")))


def make_train_configs(root: Path) -> None:
    (root / "yaml").mkdir()
    text = "model: gpt\nnum_layers: 4\nlearning_rate: 1e-3\nmax_steps: 1_000\nbeta2: 0.95\ntie_embeddings: true\n"
    (root / "yaml/c.yaml").write_text(
        text + "# a comment\nsample_prompt: 'Once upon'\nwarmup_steps: 0.02\nkeep: &a 3\n"
    )
    (root / "json").mkdir()
    content = {"model": "vae", "latent_dim": 8, "batch_size": 4, "epochs": 2.5, "free_bits": 0.1}
    (root / "json/c.yaml").write_text(json.dumps(content))


def read_config(folder: Path) -> None:
    from gristmill.lm.training.config import TrainConfig, read_config

    options = read_config(folder / "c.yaml")
    TrainConfig.from_options(options, source="c.yaml")


# Checkpoints

SIZES = {"context_length": 8, "num_layers": 1, "num_heads": 1, "d_model": 8, "d_ff": 8, "vocab_size": 290}


def make_checkpoints(root: Path) -> None:
    import torch

    from gristmill.lm.models.registry import build_model
    from gristmill.lm.training.checkpoint import write_checkpoint
    from gristmill.lm.training.config import TrainConfig

    torch.set_num_threads(1)
    for name, options in (("one", {}), ("two", {"tie_embeddings": False})):
        (root / name).mkdir()
        config = TrainConfig.from_options({**SIZES, **options})
        (root / name / "config.json").write_text(json.dumps(config.to_json()))
        small_tokenizer().save(root / name / "tokenizer.json")
        for step in (1, 2):
            model = build_model(config.model)
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, 0, 0.1)
            state = {"step": step, "val_loss": 2.0, "val_sequences": 3, "config": config.to_json(), "shards": {}}
            moments = {"moments.0": torch.zeros(3), "steps": torch.tensor(step)}
            files = {"model.safetensors": model.state_dict(), "optimizer.safetensors": moments}
            write_checkpoint(root / name, {**state, "val_loss": float(step)}, files)


def load_model(folder: Path) -> None:
    from gristmill.lm.training.checkpoint import find_checkpoint, load_model

    for which in ("best", "latest"):
        find_checkpoint(folder, which)
    load_model(folder)


def load_optimizer(folder: Path) -> None:
    from gristmill.lm.training.checkpoint import list_checkpoints, read_state, read_tensors

    for checkpoint in list_checkpoints(folder):
        read_tensors(checkpoint, "optimizer.safetensors", read_state(checkpoint))


def prune(folder: Path) -> None:
    from gristmill.lm.training.checkpoint import prune

    prune(folder, keep=1)


def seal_checkpoints(folder: Path) -> None:
    for checkpoint in (folder / "checkpoints").iterdir():
        with suppress(Exception):
            seal_state(checkpoint)


def seal_state(folder: Path) -> None:
    """Make the checksums in state.json match the files and its content."""
    from gristmill.lm.data.identity import json_checksum

    state = json.loads((folder / "state.json").read_bytes())
    state.pop("checksum", None)
    with suppress(Exception):
        for name, entry in state["files"].items():
            data = (folder / name).read_bytes()
            entry |= {"bytes": len(data), "xxh64": xxhash.xxh64_hexdigest(data)}
    (folder / "state.json").write_text(json.dumps({**state, "checksum": json_checksum(state)}, indent=1))


FIRST, SECOND = "model.part-00001-of-00002.safetensors", "model.part-00002-of-00002.safetensors"
INDEX = {
    "files": [FIRST, SECOND],
    "tensors": {
        "weight": {"dtype": "F32", "shape": [5, 3], "parts": [[0, 0, 3], [1, 3, 5]]},
        "scalar": {"dtype": "I64", "shape": [], "parts": [[1, 0, 1]]},
        "empty": {"dtype": "BF16", "shape": [0, 4], "parts": [[0, 0, 0]]},
    },
}


def make_parts(root: Path) -> None:
    import torch
    from safetensors.torch import save_file

    weight = torch.arange(15.0).reshape(5, 3)
    folder = root / "run/checkpoints/step-000001"
    folder.mkdir(parents=True)
    save_file({"weight": weight[:3].clone(), "empty": torch.zeros(0, 4).bfloat16()}, folder / FIRST)
    save_file({"weight": weight[3:].clone(), "scalar": torch.tensor(7)}, folder / SECOND)
    (folder / "model.parts.json").write_text(json.dumps(INDEX))
    files = {path.name: {} for path in sorted(folder.iterdir())}
    state = {"format": "gristmill-checkpoint", "version": 2, "step": 1, "val_loss": None, "files": files}
    (folder / "state.json").write_text(json.dumps(state))
    seal_state(folder)


def read_parts(folder: Path) -> None:
    from gristmill.lm.training.checkpoint import list_checkpoints, read_state, read_tensors

    for checkpoint in list_checkpoints(folder):
        read_tensors(checkpoint, "model.safetensors", read_state(checkpoint))


def merge_parts(folder: Path) -> None:
    from gristmill.lm.training.checkpoint import list_checkpoints, merge_model

    for checkpoint in list_checkpoints(folder):
        merge_model(checkpoint)


# Folders of Hugging Face models, which Gristmill writes and reads


def make_models(root: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    (root / ".runs").mkdir()
    make_checkpoints(root / ".runs")
    for name in ("one", "two"):
        tokenizer = root / ".runs" / name / "tokenizer.json"
        gm.lm.export(root / ".runs" / name, root / name, format="huggingface", tokenizer=tokenizer)
    (root / "index").mkdir()
    weights = {}
    for path in (root / "one").iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, root / "index")
        else:
            weights = load_file(path)
    names = sorted(weights)
    half = len(names) // 2
    files = {"model-00001-of-00002.safetensors": names[:half], "model-00002-of-00002.safetensors": names[half:]}
    for file, inside in files.items():
        save_file({each: weights[each].to(torch.bfloat16) for each in inside}, root / "index" / file)
    places = {each: file for file, inside in files.items() for each in inside}
    content = {"metadata": {"total_size": 1000}, "weight_map": places}
    (root / "index/model.safetensors.index.json").write_text(json.dumps(content))
    shutil.rmtree(root / ".runs")


def start_from(folder: Path) -> None:
    """The options, the tokenizer and the weights that a new run takes from a folder."""
    from gristmill.lm.models.registry import build_model
    from gristmill.lm.training.base_run import with_base
    from gristmill.lm.training.checkpoint import load_weights
    from gristmill.lm.training.config import TrainConfig
    from gristmill.lm.training.pretrained import check_pretrained, is_pretrained, read_tensors, tokenizer_difference

    if not is_pretrained(folder):
        return
    config = TrainConfig.from_options(with_base({"init_from": str(folder), "conversations": True}))
    check_pretrained(config)
    tokenizer_difference(folder, small_tokenizer())
    model = build_model(config.model)
    load_weights(model, type(model).weights_of_huggingface(config.model, read_tensors(folder), str(folder)), folder)


def make_plain_checkpoints(root: Path) -> None:
    import torch

    from gristmill.lm.functional import AdamW, save_checkpoint

    (root / "plain").mkdir()
    model = torch.nn.Linear(2, 2)
    optimizer = AdamW(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    save_checkpoint(model, optimizer, 7, root / "plain/c.safetensors")


def load_plain_checkpoint(folder: Path) -> None:
    import torch

    from gristmill.lm.functional import AdamW, load_checkpoint

    model = torch.nn.Linear(2, 2)
    load_checkpoint(folder / "c.safetensors", model, AdamW(model.parameters()))


def make_cache(root: Path) -> None:
    from gristmill.lm.data.sequences.cache import find_or_make

    def make(folder: Path) -> dict[str, Any]:
        (folder / "data.bin").write_bytes(b"0123456789")
        return {"num_sequences": 3, "columns": ["a", "b"]}

    find_or_make(root / "cache", {"data": "x"}, make, keep_unfinished=False)


def find_in_cache(folder: Path) -> None:
    from gristmill.lm.data.sequences.cache import find_or_make

    def make(folder: Path) -> dict[str, Any]:
        (folder / "data.bin").write_bytes(b"0123456789")
        return {"num_sequences": 3, "columns": ["a", "b"]}

    find_or_make(folder, {"data": "x"}, make, keep_unfinished=False)


def seal_cache(folder: Path) -> None:
    (path,) = folder.glob("*/meta.json")
    content = json.loads(path.read_bytes())
    content.pop("checksum", None)
    checksum = hashlib.sha256(json.dumps(content, indent=1, sort_keys=True).encode("ascii")).hexdigest()
    path.write_text(json.dumps({**content, "checksum": checksum}, indent=1, sort_keys=True))


def _is_of_checkpoint(name: str) -> bool:
    return name.startswith(("checkpoints/", "config"))


KINDS = [
    Kind("run-metrics", make_metrics, [report, report, compare, take_up_records, view, view, figures]),
    Kind(
        "run-description",
        make_description,
        [load_config, load_config, report, view],
        mutated=lambda name: name != "metrics.jsonl",
    ),
    Kind("run-lock", make_locks, [look_at_lock]),
    Kind(
        "run-checkpoint",
        make_checkpoints,
        [load_model, load_model, load_optimizer, prune],
        seal_checkpoints,
        mutated=_is_of_checkpoint,
        writes=True,
    ),
    Kind("run-parts", make_parts, [read_parts, read_parts, merge_parts], seal_checkpoints, writes=True),
    Kind("train-config", make_train_configs, [read_config]),
    Kind("model-folder", make_models, [start_from]),
    Kind("plain-checkpoint", make_plain_checkpoints, [load_plain_checkpoint]),
    Kind("sequence-cache", make_cache, [find_in_cache], seal_cache, writes=True),
]
