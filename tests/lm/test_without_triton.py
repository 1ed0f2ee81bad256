"""Training on a CPU works without Triton, which only the kernels of a GPU need, and never imports it."""

import subprocess
import sys

import pytest

from lm.tiny_runs import TINY

TRAIN = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec


def find_others(finder, name, *arguments):
    return None if name.split(".")[0] == "triton" else find(name, *arguments)


if sys.argv[1] == "missing":
    PathFinder.find_spec = classmethod(find_others)
import gristmill as gm

dir(gm.lm)
assert "triton" not in sys.modules
gm.lm.GPT, gm.lm.SequenceVAE, gm.lm.TrainConfig  # imported when they are first used
from gristmill.lm.training import triton_adamw, trainer
from gristmill.lm.models.gpt import network

result = gm.lm.train(sys.argv[2], out=sys.argv[3], progress=None, **eval(sys.argv[4]))
print(result.num_steps, [name for name in sys.modules if "lm.kernels." in name or "gpt.kernel" in name])
"""


@pytest.mark.parametrize("state", ["missing", "installed"])
def test_a_run_on_a_cpu_imports_no_kernels(tiny_shards, tmp_path, state):
    options = {**TINY, "max_steps": 1, "val_check_interval": 0}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, state, str(tiny_shards), str(tmp_path / "run"), repr(options)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["1", "[]"], done.stderr
