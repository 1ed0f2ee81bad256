"""Output of the processes of a launcher when one of them has exited."""

from __future__ import annotations

import json
import sys

import pytest

from gristmill.lm.training.processes import reports_for_machine
from lm.launched_world import of_torchrun, outcomes, start_world

# The command line; the process of the last rank is killed in the middle of the run.
SCRIPT = """
import json, os, signal, sys
sys.path[:0] = json.loads(sys.argv.pop(1))
from gristmill.cli import main
from gristmill.lm.training.run import Run
def end_step(run, *arguments, real=Run.end_step):
    real(run, *arguments)
    if run.step == 6 and os.environ["RANK"] == "2":
        os.kill(os.getpid(), signal.SIGKILL)
Run.end_step = end_step
sys.exit(main())
"""
FLAGS = "--context-length 16 --num-layers 1 --num-heads 2 --d-model 32 --batch-size 2 --max-steps 20 --device cpu"


def test_one_process_of_a_machine_prints_that_another_one_is_gone(tiny_shards, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    paths = json.dumps([path for path in sys.path if path])
    arguments = [str(script), paths, "train-model", str(tiny_shards), "-o", str(tmp_path / "run"), *FLAGS.split()]
    (first, _, said), (second, _, silent), _ = outcomes(start_world(arguments, 3, of_torchrun))
    assert (first, second) == (1, 1)
    assert "gristmill: error: the process of rank 2 (of 0 to 2) has ended or does not answer" in said, said[-3000:]
    assert "gristmill: error" not in silent


@pytest.mark.parametrize(
    ("silent", "speakers"),
    [({7}, [0, 4]), ({0}, [1, 4]), ({0, 1, 4}, [2, 5]), ({4, 5, 6, 7}, [0]), (set(), [0, 4])],
)
def test_the_lowest_rank_that_is_left_on_each_machine_speaks_for_it(silent, speakers):
    left = [rank for rank in range(8) if rank not in silent]
    assert [rank for rank in left if reports_for_machine(rank, 4, silent)] == speakers
