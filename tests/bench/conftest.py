"""A small corpus, adapters that misbehave, and a cache folder of the test."""

import textwrap

import pytest

from gristmill.cli import main
from gristmill.sample_corpus import write_sample_corpus

TRAINER = """
import os, signal, subprocess, sys, threading
from pathlib import Path
from gristmill.bench.rivals import Follows, TrainJob, merges_digest
from gristmill.bench.rivals import gristmill as ours

JOB, DISTRIBUTION, FOLLOWS, THREADS, TIMED, SLOW = TrainJob, "fake", Follows(), "none", "nothing", False
run, describe = ours.run, ours.describe
"""
ADAPTERS = {
    "equal.py": TRAINER,
    "chatty.py": TRAINER
    + """
def run(job):
    print("progress on standard output", flush=True)
    os.write(1, b"and from a native library\\n")
    return ours.run(job)
""",
    "wrong.py": TRAINER
    + """
def describe(tok):
    return merges_digest(reversed(tok.merges))
""",
    "raising.py": TRAINER
    + """
def run(job):
    raise ValueError("a | b\\nsecond line")
""",
    "segfault.py": TRAINER
    + """
def run(job):
    os.kill(os.getpid(), signal.SIGSEGV)
""",
    "leaving.py": TRAINER
    + """
def run(job):
    os._exit(0)
""",
    "hanging.py": TRAINER
    + """
def run(job):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(os.environ["PID_FILE"]).write_text(f"{os.getpid()} {child.pid}")
    threading.Event().wait()
""",
    "odd_rule.py": TRAINER + "FOLLOWS = Follows(tie_break='nonsense')",
    "incomplete.py": "SLOW = False",
    "needs_more.py": "import no_such_package_anywhere",
    "broken.py": "raise RuntimeError('the native library is too old')",
    "other_ids.py": """
from gristmill.bench.encoders.gristmill import *
from gristmill.bench.encoders import Api, Takes
APIS = {"reversed": Api(Takes.BYTES, lambda tok, text, n: tok.encode_array(text, allowed_special="all")[::-1])}
""",
    "other_files.py": """
import numpy as np
from gristmill.bench.pipelines.gristmill import *
from gristmill.bench.pipelines import Form

def _short(tok, task):
    np.arange(3, dtype=np.uint16).tofile(task.token_file)
    return [task.token_file]

FORMS = {"short": Form("three ids", _short)}
""",
}


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "stories.txt"
    write_sample_corpus(path, 100_000, 0)
    return path


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """Nothing is read from or written to the folders of the user."""
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRISTMILL_DATA", raising=False)


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """A package of adapters that measured processes can import, because they import from the folders of the parent."""
    package = tmp_path / "modules" / "fakes"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for name, text in ADAPTERS.items():
        (package / name).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pids"))
    return tmp_path


@pytest.fixture
def bench(capsys, tmp_path):
    """Run `gristmill bench` in this process: (exit code, stdout, stderr); results go to tmp_path/out."""

    def run(*arguments):
        code = main(["bench", *map(str, arguments), "--output", str(tmp_path / "out")])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
