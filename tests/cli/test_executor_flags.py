"""--executor, --workers, --address, --work-folder and --part-size."""

import dataclasses
import re

import pytest

from gristmill.cli import encode
from gristmill.cli.executors import ExecutorOptions, parts_beside, remove_parts
from gristmill.executors import Local, Processes

COMMANDS = {
    "encode": ["encode", "a.txt", "-t", "tok.json", "-o", "out"],
    "count-words": ["count-words", "a.txt", "-o", "words.gmw"],
    "train-tokenizer": ["train-tokenizer", "a.txt", "--vocab-size", "300", "-o", "tok.json"],
}


def test_without_options_threads_stream_through_the_corpus(tmp_path):
    assert ExecutorOptions().run_options(tmp_path / ".words.gmw.parts") == {"num_threads": None}
    assert ExecutorOptions(threads=3).run_options() == {"num_threads": 3}


def test_options_become_an_executor(tmp_path):
    parts = tmp_path / ".words.gmw.parts"
    assert ExecutorOptions(executor="processes", workers=3).run_options() == {"executor": Processes(num_workers=3)}
    assert ExecutorOptions(executor="processes").run_options(parts) == {"executor": Processes(work_folder=str(parts))}
    with_folder = ExecutorOptions(threads=2, work_folder="w", part_size=1000)
    assert with_folder.run_options(parts) == {"executor": Local(num_workers=2, work_folder="w", part_bytes=1000)}


def test_a_job_that_was_left_beside_the_output_is_finished_by_threads(tmp_path):
    output = tmp_path / "words.gmw"
    parts = parts_beside(output)
    job = parts / "count-0123456789abcdef"
    job.mkdir(parents=True)
    assert ExecutorOptions(threads=2).run_options(parts) == {"executor": Local(num_workers=2, work_folder=str(parts))}
    (job / "job.json").write_bytes(b"{}")
    (parts / "mine.txt").write_bytes(b"")
    remove_parts(output)
    assert [path.name for path in parts.iterdir()] == ["mine.txt"]
    (parts / "mine.txt").unlink()
    remove_parts(output)
    assert not parts.exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--executor", "procesess"], "--executor 'procesess' is not known. Did you mean 'processes'? Pass one of"),
        (["--address", "auto"], "--address is for a Ray cluster, and --executor is local. Pass --executor ray."),
        (["--executor", "processes", "--address", "auto"], "--executor is processes. Pass --executor ray."),
        (["--workers", "4"], "--workers is for --executor processes and ray. Pass --threads 4 for threads"),
        (["--executor", "ray", "--threads", "4"], "each worker of --executor ray has one thread. Pass --workers 4."),
        (["--executor", "processes", "--work-folder", "memory://w"], "is in the memory of this process"),
        (["--work-folder", ""], "--work-folder '' names no folder"),
        (["--part-size", "large"], "--part-size 'large' is not a size"),
        (["--executor", "processes", "--workers", "0"], "--workers 0 is too small. Pass 1 to"),
        (["--executor", "processes", "--part-size", "0"], "--part-size 0 is too small"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(gristmill, command, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where there is no corpus: the options are looked at first
    code, out, err = gristmill(*COMMANDS[command], *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not re.search(r"\w=", err)  # spelled as flags


def test_every_command_has_the_same_options_for_executors(gristmill):
    for command in COMMANDS:
        code, out, _ = gristmill(command, "--help")
        assert code == 0
        for option in ("--threads", "--executor", "--workers", "--address", "--work-folder", "--part-size"):
            assert option in out
    assert {field.name for field in dataclasses.fields(ExecutorOptions)} <= {
        field.name for field in dataclasses.fields(encode.Command)
    }
