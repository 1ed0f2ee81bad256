"""Several devices: two processes on a CPU take the same steps as one with the doubled batch."""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch

from lm.tiny_runs import assert_same_run, records, tensors, train

SCRIPT = textwrap.dedent("""
    import json, sys
    sys.path[:0] = json.loads(sys.argv[1])
    from lm.tiny_runs import train
    if __name__ == "__main__":
        train(sys.argv[2], sys.argv[3], **json.loads(sys.argv[4]))
""")

OPTIONS = {"max_steps": 8, "log_interval": 1, "checkpoint_interval": 4, "val_check_interval": 4}


def train_on_two(folder, shards, out, **options):
    """Train in a process of its own, which starts the second one, as a command would."""
    (folder / "script.py").write_text(SCRIPT)
    environment = {key: value for key, value in os.environ.items() if key not in ("LOCAL_RANK", "RANK", "WORLD_SIZE")}
    paths = json.dumps([path for path in sys.path if path])
    process = subprocess.run(
        [
            sys.executable,
            str(folder / "script.py"),
            paths,
            str(shards),
            str(out),
            json.dumps({"devices": 2, **options}),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process


def losses(run, kind="train"):
    return [record["loss"] for record in records(run, kind)]


def test_two_ranks_take_the_steps_of_one_with_the_doubled_batch(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "one", batch_size=8, **OPTIONS)
    train_on_two(tmp_path, tiny_shards, tmp_path / "two", batch_size=4, strategy="ddp", **OPTIONS)
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=2e-5)
    full = [[r["loss"] for r in records(tmp_path / run, "val") if r["full"]] for run in ("one", "two")]
    assert full[0] == pytest.approx(full[1], abs=1e-4)
    one, two = tensors(tmp_path / "one", 8), tensors(tmp_path / "two", 8)
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-3, rtol=1e-2)


def drop_last_checkpoint(run, copy):
    """The run as it was before its last checkpoint."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints/step-000008")


def test_two_ranks_go_on_to_the_bit_with_accumulation_and_dropout(tiny_shards, tmp_path):
    options = {**OPTIONS, "strategy": "ddp", "gradient_accumulation_steps": 2, "dropout": 0.2}
    train_on_two(tmp_path, tiny_shards, tmp_path / "whole", **options)
    drop_last_checkpoint(tmp_path / "whole", tmp_path / "broken")
    train_on_two(tmp_path, tiny_shards, tmp_path / "broken", resume="auto", **options)
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 8)


def test_weights_in_parts_train_as_whole_ones_do_and_go_on(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "one", batch_size=8, **OPTIONS)
    options = {**OPTIONS, "batch_size": 4, "strategy": "fsdp"}
    train_on_two(tmp_path, tiny_shards, tmp_path / "two", **options)
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    drop_last_checkpoint(tmp_path / "two", tmp_path / "broken")
    train_on_two(tmp_path, tiny_shards, tmp_path / "broken", resume="auto", **options)
    assert_same_run(tmp_path / "two", tmp_path / "broken", 8)


VAE = {
    **{"model": "vae", "context_length": 256, "max_sequence_length": 40, "latent_dim": 4, "use_dynamic_padding": True},
    **{"num_buckets": 2, "word_dropout": 0.2, "batch_norm_mu": 0.5, "update_frequency": 2, "window_size": 2},
    "plot_frequency": 0,
}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_of_a_vae_go_on_to_the_bit(tiny_shards, tmp_path, strategy):
    options = {**OPTIONS, **VAE, "strategy": strategy, "gradient_accumulation_steps": 2}
    train_on_two(tmp_path, tiny_shards, tmp_path / "whole", **options)
    drop_last_checkpoint(tmp_path / "whole", tmp_path / "broken")
    train_on_two(tmp_path, tiny_shards, tmp_path / "broken", resume="auto", **options)
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 8)
    posteriors = records(tmp_path / "whole", "posterior")
    assert [record["step"] for record in posteriors] == [2, 4, 6, 8]
    assert posteriors == records(tmp_path / "broken", "posterior")
