"""Without the extras, a feature that needs one reports it in one line; everything else works, including `--help`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gristmill.errors import GristmillError, MissingPackageError
from gristmill.packages import EXTRAS, load_package

BLOCKER = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {[*EXTRAS, "isal"]!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def without_extras(code, *arguments):
    """Run code in a process in which no optional package can be imported."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKER + code, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def command(*arguments):
    return without_extras("from gristmill.cli import main; sys.exit(main(sys.argv[1:]))", *arguments)


def message(needed_by, package, extra):
    return f"{needed_by} needs {package}, which is not installed. Install it with: pip install 'gristmill[{extra}]'"


@pytest.mark.parametrize("name", ["train-model", "evaluate", "generate", "export-model", "report", "encode", "verify"])
def test_help_needs_no_extra(name):
    done = command(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--help" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (["train-model", "shards", "-o", "run"], "torch", "train"),
        (["evaluate", "run", "shards"], "torch", "train"),
        (["generate", "run"], "torch", "train"),
        (["export-model", "run", "-f", "huggingface", "-o", "folder"], "torch", "train"),
        (["report", "run"], "matplotlib", "report"),
    ],
)
def test_a_command_names_its_extra_in_one_line(arguments, package, extra):
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gristmill: error: {message('gristmill ' + arguments[0], package, extra)}\n"


def test_a_yaml_config_names_its_extra_in_one_line(tmp_path):
    (tmp_path / "options.yaml").write_text("max_steps: 1\n")
    done = command("train-model", "shards", "-o", "run", "--config", tmp_path / "options.yaml")
    assert done.returncode != 0
    assert done.stderr == f"gristmill: error: {message('reading a YAML file', 'PyYAML', 'train')}\n"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("gm.lm.train", message("gm.lm.train", "torch", "train")),
        ("gm.lm.generate", message("gm.lm.generate", "torch", "train")),
        ("gm.lm.evaluate", message("gm.lm.evaluate", "torch", "train")),
        (
            "gm.posterior.PosteriorMetricsMonitor",
            message("gm.posterior.PosteriorMetricsMonitor", "torch", "train"),
        ),
        ("gm.report.write_report('run')", message("gm.report.write_report", "matplotlib", "report")),
        ("gm.count_words('a.parquet')", message("a Parquet or Arrow file", "pyarrow", "data")),
        ("gm.count_words('s3://bucket/a.txt')", message("a URL", "fsspec", "data")),
        pytest.param(
            "gm.count_words('a.txt.zst')",
            message("a .zst file", "backports.zstd", "data"),
            marks=pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python has zstd"),
        ),
        (
            "gm.encode_corpus(['a'], gm.train_tokenizer(['a b'], vocab_size=257, progress=None), out='shards', "
            "format='parquet', progress=None)",
            message("format='parquet'", "pyarrow", "data"),
        ),
    ],
)
def test_python_names_the_extra_in_one_line(expression, expected, tmp_path):
    for name in ("a.parquet", "a.txt.zst"):
        (tmp_path / name).write_bytes(b"x")
    code = f"""
import os, gristmill as gm
os.chdir(sys.argv[1])
try:
    {expression}
except gm.MissingPackageError as error:
    print(error)
"""
    done = without_extras(code, tmp_path)
    assert done.stdout == f"{expected}\n", done.stderr


def test_the_subpackages_and_what_needs_no_torch_are_there():
    done = without_extras(
        "import gristmill as gm; print(gm.lm.TrainConfig(max_steps=3).max_steps, len(dir(gm.lm)) > 20, gm.posterior, "
        "gm.report.write_report, gm.reference)"
    )
    assert done.stdout.startswith("3 True <module"), done.stderr


def test_a_package_that_is_there_but_broken_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "trackio.py").write_text("raise ImportError('its library is of another version', name='trackio')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trackio", raising=False)
    with pytest.raises(MissingPackageError, match=r"cannot be imported \(its library is of another version\)"):
        load_package("trackio", needed_by="log='trackio'")


def test_a_missing_package_is_an_import_error_and_one_of_ours():
    assert issubclass(MissingPackageError, ImportError) and issubclass(MissingPackageError, GristmillError)


def test_an_import_that_fails_for_another_reason_is_shown_as_it_is():
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        load_package("no_such_module_anywhere", needed_by="a test")
