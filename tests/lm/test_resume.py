"""A run that is interrupted and resumed is bit-exactly the same as an uninterrupted one."""

import functools
import json
import os
import random
import subprocess
import sys
import time

import pytest
import torch

import gristmill as gm
import gristmill.lm.training.trainer
from gristmill import CheckpointError
from gristmill.lm.training import checkpoint as checkpoints
from lm.tiny_runs import Crash, assert_same_run, build_shards, crash_at, records, tensors, train
from shards.builder import build_folder

CASES = {
    "plain": {},
    "dropout": {"dropout": 0.2},
    "accumulation": {"gradient_accumulation_steps": 2, "dropout": 0.1},
    "bf16": {"precision": "bf16-mixed", "dropout": 0.1, "gradient_accumulation_steps": 2},
    "muon": {"optimizer": "muon", "dropout": 0.1},
    "muon-bf16-tied": {"optimizer": "muon", "precision": "bf16-mixed", "tie_embeddings": True, "schedule": "wsd"},
    "document-mask": {"document_mask": True, "sample_interval": 5, "sample_tokens": 8},
}


def assert_broken_run_is_the_same(shards, folder, **options):
    """Compare 20 steps with about 13, a crash, and a resume from step 10 (which is between two records)."""
    train(shards, folder / "whole", **options)
    with pytest.raises(Crash):
        train(shards, folder / "broken", progress=crash_at(12), **options)
    assert (folder / "broken/checkpoints/step-000010").is_dir()
    assert not (folder / "broken/checkpoints/step-000020").exists()
    assert records(folder / "broken", "train")[-1]["step"] == 12
    result = train(shards, folder / "broken", resume="auto", **options)
    assert result.num_steps == 20
    assert_same_run(folder / "whole", folder / "broken", 20)


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
@pytest.mark.parametrize("case", CASES)
def test_20_steps_are_10_a_crash_and_10_more(tiny_shards, tmp_path, case, device):
    assert_broken_run_is_the_same(tiny_shards, tmp_path, device=device, deterministic=device == "cuda", **CASES[case])


# Users run Inductor, which takes a minute to compile even this model.
BACKENDS = ["aot_eager", *(["inductor"] if os.environ.get("GRISTMILL_SLOW_TESTS") else [])]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", ["32", "bf16-mixed"])
def test_20_compiled_steps_are_10_a_crash_and_10_more(tiny_shards, tmp_path, monkeypatch, backend, precision):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    options = {"dropout": 0.1, "gradient_accumulation_steps": 2, "precision": precision}
    try:
        assert_broken_run_is_the_same(tiny_shards, tmp_path, compile_model=True, **options)
    finally:
        torch.compiler.reset()


def test_a_run_may_be_broken_off_many_times(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "whole", checkpoint_interval=3, log_interval=1, dropout=0.1)
    for step in (4, 7, 8, 14, 19):
        with pytest.raises(Crash):
            train(
                tiny_shards,
                tmp_path / "broken",
                checkpoint_interval=3,
                log_interval=1,
                dropout=0.1,
                progress=crash_at(step),
                resume="auto",
            )
    train(tiny_shards, tmp_path / "broken", checkpoint_interval=3, log_interval=1, dropout=0.1, resume="auto")
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 20)


KILLED = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from lm.tiny_runs import train
print("ready", flush=True)
train(sys.argv[2], sys.argv[3], resume="auto", **json.loads(sys.argv[4]))
"""


def test_a_run_killed_at_random_times_gives_the_same_weights(tiny_shards, tmp_path):
    options = {"max_steps": 60, "checkpoint_interval": 5, "dropout": 0.1, "val_check_interval": 20}
    train(tiny_shards, tmp_path / "whole", **options)
    arguments = [json.dumps(sys.path), str(tiny_shards), str(tmp_path / "killed"), json.dumps(options)]
    dice, kills = random.Random(0), 0
    while kills < 3:
        process = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE)
        process.stdout.readline()
        before = progress_of(tmp_path / "killed")
        wait_for(lambda p=process, b=before: progress_of(tmp_path / "killed") > b or p.poll() is not None)
        time.sleep(dice.uniform(0, 0.2))
        process.kill()
        process.wait()
        process.stdout.close()
        kills += 1
        if progress_of(tmp_path / "killed") >= 60:
            break
    train(tiny_shards, tmp_path / "killed", resume="auto", **options)
    assert_same_run(tmp_path / "whole", tmp_path / "killed", 60)
    assert not list((tmp_path / "killed/checkpoints").glob(".*"))


def progress_of(run):
    found = list((run / "checkpoints").glob("step-*")) if (run / "checkpoints").is_dir() else []
    return max((int(path.name[5:]) for path in found), default=0)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


# Changes that prevent a resume


@pytest.fixture
def broken(tiny_shards, tmp_path):
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "run", progress=crash_at(12))
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"num_layers": 3}, "num_layers was 2 and is now 3"),
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"max_steps": 15}, "max_steps was 20 and is now 15"),
        ({"optimizer": "muon"}, "optimizer was 'adamw' and is now 'muon'"),
        ({"global_batch_size": 8}, "global_batch_size was 4 and is now 8"),
    ],
)
def test_another_config_is_refused_with_the_difference(tiny_shards, broken, options, difference):
    with pytest.raises(CheckpointError, match=f"the run cannot be resumed: .*{difference}"):
        train(tiny_shards, broken, resume="auto", **options)
    train(tiny_shards, broken, resume="auto")


def test_other_shards_are_refused(broken, tmp_path):
    with pytest.raises(CheckpointError, match=r"the shards (held [\d,]+ tokens and now hold|have different content)"):
        train(build_shards(tmp_path / "other", seed=5), broken, resume="auto")


def test_another_tokenizer_is_refused(broken, tmp_path):
    build_folder(tmp_path / "other", ["low lower " * 20] * 50, val_texts=["low lower " * 20])
    with pytest.raises(CheckpointError, match="the tokenizer is different"):
        train(tmp_path / "other", broken, resume="auto", vocab_size=300)


def test_what_does_not_change_the_weights_may_change(tiny_shards, broken, tmp_path):
    train(tiny_shards, broken, resume="auto", keep=5, checkpoint_interval=4, log_interval=5)
    train(tiny_shards, tmp_path / "whole")
    one, other = tensors(broken, 20), tensors(tmp_path / "whole", 20)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_resume_with_another_micro_batch_reports_that_it_is_not_bit_exact(tiny_shards, broken):
    reported = []
    train(tiny_shards, broken, resume="auto", batch_size=2, gradient_accumulation_steps=2, progress=reported.append)
    events = [record["message"] for record in reported if record["kind"] == "event"]
    assert any("equal up to rounding but not bit-exact" in message for message in events)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("optimizer"),
        lambda state: state.update(shards=None),
        lambda state: state.update(config={}),
        lambda state: state["config"].update(batch_size="x"),
        lambda state: state["config"].update(global_batch_size=[]),
        lambda state: state.update(pending={}),
        lambda state: state["pending"].update(steps=[[]]),
        lambda state: state["optimizer"].update(state=[1]),
        lambda state: state["optimizer"].update(learning_rate_scale={}),
        lambda state: state.update(scaler={"x": 1}, val_sequences="x"),
    ],
)
def test_a_forged_state_with_a_correct_checksum_is_refused(tiny_shards, broken, change):
    folder = checkpoints.list_checkpoints(broken)[-1]
    state = checkpoints.read_state(folder)
    change(state)
    checkpoints._write_state(folder / "state.json", state)
    with pytest.raises(gm.GristmillError):  # an option out of range is an OptionError
        train(tiny_shards, broken, resume="auto")


def test_a_damaged_checkpoint_is_named_and_the_one_before_serves(tiny_shards, tmp_path):
    options = {"checkpoint_interval": 5, "log_interval": 1}
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "run", progress=crash_at(12), **options)
    damaged = tmp_path / "run/checkpoints/step-000010/model.safetensors"
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"step-000010/model.safetensors: checksum mismatch.*Remove"):
        train(tiny_shards, tmp_path / "run", resume="auto", **options)
    for path in damaged.parent.iterdir():
        path.unlink()
    damaged.parent.rmdir()
    train(tiny_shards, tmp_path / "run", resume="auto", **options)
    train(tiny_shards, tmp_path / "whole", **options)
    assert_same_run(tmp_path / "whole", tmp_path / "run", 20)


def test_a_finished_run_has_nothing_left_to_do(tiny_shards, tmp_path):
    first = train(tiny_shards, tmp_path / "run")
    before = (tmp_path / "run/metrics.jsonl").read_text()
    again = train(tiny_shards, tmp_path / "run", resume="auto")
    assert (again.num_steps, again.val_loss, again.loss) == (20, first.val_loss, None)
    after = [line for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines() if '"event"' not in line]
    assert after == [line for line in before.splitlines() if '"event"' not in line]


def test_auto_begins_where_there_is_nothing(tiny_shards, tmp_path):
    assert train(tiny_shards, tmp_path / "new/run", resume="auto", max_steps=2).num_steps == 2
