"""Fabric is imported without torchmetrics and its imports, with no visible side effect."""

import sys
import types

import pytest

from scripts import run_script

IMPORT = """
    import sys
    import gristmill.lm.training.trainer
    print([name for name in ("torchmetrics", "transformers", "matplotlib") if name in sys.modules])
    from lightning_fabric.utilities.imports import _TORCHMETRICS_GREATER_EQUAL_1_0_0
    print(_TORCHMETRICS_GREATER_EQUAL_1_0_0)
"""

COMMAND = """
    import sys
    from gristmill.cli import main
    SMALL = "--d-model 16 --num-layers 1 --num-heads 1 --context-length 16 --batch-size 2".split()
    assert main(["train-model", sys.argv[1], "-o", sys.argv[2], "--dry-run", "--device", "cpu", *SMALL]) == 0
    print([name for name in ("torchmetrics", "transformers", "matplotlib") if name in sys.modules])
"""


def test_training_loads_neither_torchmetrics_nor_what_it_imports_and_fabric_knows_its_version():
    answer = run_script(IMPORT)
    assert answer.stdout.splitlines() == ["[]", "True"], answer.stderr[-2000:]


def test_the_command_does_not_load_them_either(tiny_shards, tmp_path):
    answer = run_script(COMMAND, tiny_shards, tmp_path / "run")
    assert answer.stdout.splitlines()[-1] == "[]", answer.stderr[-2000:]


def test_the_real_package_is_found_afterwards(monkeypatch):
    from gristmill.lm.training.fabric import _version_alone

    monkeypatch.delitem(sys.modules, "torchmetrics", raising=False)
    with _version_alone("torchmetrics"):
        assert sys.modules["torchmetrics"].__version__ and not hasattr(sys.modules["torchmetrics"], "Metric")
    assert "torchmetrics" not in sys.modules


def test_a_package_that_was_imported_before_stays_and_one_that_is_missing_stays_missing(monkeypatch):
    from gristmill.lm.training.fabric import _version_alone

    real = types.ModuleType("torchmetrics")
    monkeypatch.setitem(sys.modules, "torchmetrics", real)
    with _version_alone("torchmetrics"):
        assert sys.modules["torchmetrics"] is real
    assert sys.modules["torchmetrics"] is real
    with _version_alone("no-such-package"), pytest.raises(ImportError):
        __import__("no-such-package")
