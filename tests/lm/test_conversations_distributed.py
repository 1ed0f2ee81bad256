"""Fine-tuning on several devices: two processes on a CPU take the same steps as one with the doubled batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from lm.chats import tokenizer, turns, write_lines
from lm.tiny_runs import records, tensors, texts

OPTIONS = {
    **{"conversations": True, "context_length": 64, "num_layers": 2, "num_heads": 2, "d_model": 32, "device": "cpu"},
    **{"max_steps": 8, "log_interval": 1, "checkpoint_interval": 8, "val_check_interval": 8, "val_fraction": 0.2},
    "log": "csv",
}
SCRIPT = textwrap.dedent("""
    import json, sys
    sys.path[:0] = json.loads(sys.argv[1])
    import gristmill as gm
    if __name__ == "__main__":
        gm.lm.train(sys.argv[2], out=sys.argv[3], progress=None, **json.loads(sys.argv[4]))
""")


def start(folder, chats, out, **options):
    """Train in a subprocess, which starts the others, as the command line does."""
    (folder / "script.py").write_text(SCRIPT)
    environment = {key: value for key, value in os.environ.items() if key not in ("LOCAL_RANK", "RANK", "WORLD_SIZE")}
    paths = json.dumps([path for path in sys.path if path])
    arguments = [paths, str(chats), str(out), json.dumps({**OPTIONS, **options})]
    process = subprocess.run(
        [sys.executable, str(folder / "script.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr[-3000:]


def test_two_ranks_weigh_every_response_token_as_one_does(tmp_path):
    tokenizer().save(tmp_path / "tokenizer.json")
    # Responses of 1 to 20 words: a mean over ranks would give their tokens very different weights.
    words = [text.split() for text in texts(40)]
    rows = [{"messages": turns("and?", " ".join((one * 2)[: 1 + 19 * (i % 2)]))} for i, one in enumerate(words)]
    chats = write_lines(tmp_path / "chats.jsonl", rows)
    common = {"tokenizer": str(tmp_path / "tokenizer.json")}
    start(tmp_path, chats, tmp_path / "one", batch_size=2, **common)
    start(tmp_path, chats, tmp_path / "two", batch_size=1, devices=2, strategy="ddp", **common)
    losses = [[record["loss"] for record in records(tmp_path / run, "train")] for run in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], abs=2e-5)
    validated = [[record["loss"] for record in records(tmp_path / run, "val")] for run in ("one", "two")]
    assert validated[0] == pytest.approx(validated[1], abs=1e-4)
    one, two = tensors(tmp_path / "one", 8), tensors(tmp_path / "two", 8)
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-3, rtol=1e-2)
    # Only the first process logs.
    lines = (tmp_path / "two" / "csv" / "metrics.csv").read_text().splitlines()
    assert len(lines) == 1 + len(losses[1]) + len(validated[1])
