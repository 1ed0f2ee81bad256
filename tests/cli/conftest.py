"""Fixtures that run the command line in this process or in a subprocess."""

import os
import subprocess
import sys

import pytest

from gristmill.cli import main
from gristmill.sample_corpus import write_sample_corpus


@pytest.fixture
def gristmill(capsys):
    """Run a command in this process: (exit code, stdout, stderr)."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def gristmill_process():
    """Start a command in a subprocess, which is killed at the end of the test."""
    started = []

    def start(*arguments, **environment):
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys; from gristmill.cli import main; sys.exit(main())",
                *map(str, arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "COLUMNS": "80", **environment},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="session")
def stories_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "stories.txt"
    write_sample_corpus(path, 300_000, 0)
    return path


@pytest.fixture(scope="session")
def tokenizer_path(stories_path, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tok.json"
    assert (
        main(["train-tokenizer", str(stories_path), "--vocab-size", "1000", "-o", str(path), "--progress", "none"]) == 0
    )
    return path
