"""--executor, --workers, --address, --work-folder and --part-size."""

import dataclasses
import os
import re

import pytest

from gristmill.cli import encode, main
from gristmill.cli.executors import (
    ExecutorOptions,
    parts_beside,
    remove_dead_parts,
    remove_parts,
    task_rows,
    task_tables,
)
from gristmill.executors import Local, Processes
from gristmill.executors.work_folder import open_work_folder
from gristmill.lock import create_and_lock
from gristmill.profile import TaskTime

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
        (["--executor", "procesess"], "--executor 'procesess' is not valid. Did you mean 'processes'? Pass one of"),
        (["--address", "auto"], "--address needs --executor ray, but --executor is local. Pass --executor ray."),
        (["--executor", "processes", "--address", "auto"], "--executor is processes. Pass --executor ray."),
        (["--workers", "4"], "--workers needs --executor processes or ray. Pass --executor processes, or --threads 4"),
        (["--executor", "ray", "--threads", "4"], "each worker of --executor ray has one thread. Pass --workers 4."),
        (["--executor", "processes", "--work-folder", "memory://w"], "is in the memory of this process"),
        (["--work-folder", ""], "--work-folder is empty"),
        (["--part-size", "large"], "--part-size 'large' is not a size"),
        (["--executor", "processes", "--workers", "0"], "--workers must be 1 to 100,000, got 0."),
        (["--executor", "processes", "--part-size", "0"], "--part-size must be >= 1, got 0."),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(gristmill, command, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # has no corpus: the options are checked first
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


@pytest.fixture(scope="module")
def words_path(stories_path, tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "words.gmw"
    assert main(["count-words", str(stories_path), "-o", str(path), "--progress", "none"]) == 0
    return path


@pytest.mark.parametrize("options", [["--executor", "processes"], ["--work-folder", "w"], ["--part-size", "1M"]])
def test_counted_words_are_not_read_by_an_executor(gristmill, words_path, tmp_path, options):
    for command in (["count-words"], ["train-tokenizer", "--vocab-size", "300"]):
        code, out, err = gristmill(command[0], words_path, *command[1:], "-o", tmp_path / "new.gmw", *options)
        assert (code, out) == (2, "")
        assert "holds word counts. Omit these options." in err


@pytest.mark.parametrize("place", ["path", "file", "memory"])
def test_a_work_folder_anywhere_gives_the_same_words(gristmill, stories_path, words_path, tmp_path, place):
    work = {"path": f"{tmp_path}/work", "file": f"file://{tmp_path}/work", "memory": "memory://words/work"}[place]
    options = ["--work-folder", work, "--part-size", "100k", "--threads", "2", "--progress", "none", "--profile"]
    code, out, err = gristmill("count-words", stories_path, "-o", tmp_path / "words.gmw", *options)
    assert (code, err) == (0, "")
    assert re.search(r"tasks +3 count, 3 merge\n", out)
    assert re.search(r"seconds per task +tasks +min +median +max", out)
    assert (tmp_path / "words.gmw").read_bytes() == words_path.read_bytes()
    assert open_work_folder(work).names() == []


def test_tables_show_machines_workers_retries_and_the_slowest_tasks():
    def task(number, node, worker, seconds, **changes):
        fields = {"stage": "encode", "num_bytes": 10**6, "attempts": 1, "is_reused": False} | changes
        return TaskTime(number=number, node=node, worker=worker, seconds=seconds, **fields)

    tasks = [
        task(0, "a", "1", 1.0),
        task(1, "b", "1", 9.0, attempts=3),
        task(2, "b", "2", 2.0),
        task(3, "b", "2", 0.0, is_reused=True),
        task(0, "a", "1", 0.5, stage="assemble"),
    ]
    assert task_rows(tasks) == [("tasks", "4 encode, 1 assemble; 1 reused from an earlier run; 2 retries")]
    text = task_tables(tasks, with_times=True)
    nodes, stages = text.strip("\n").split("\n\n")
    assert [line.split()[:5] for line in nodes.splitlines()[1:]] == [
        ["a", "1", "2", "0", "0"],
        ["b", "2", "2", "1", "2"],
    ]
    assert "1 (9.00 s, b), 2 (2.00 s, b), 0 (1.00 s, a)" in stages
    assert task_rows([]) == [] and task_tables([], with_times=True) == ""
    assert task_tables(tasks[:1], with_times=False) == ""  # one worker needs no table


def test_the_parts_of_a_run_that_was_killed_after_its_output_are_removed_and_others_stay(tmp_path):
    output = tmp_path / "words.gmw"
    parts = parts_beside(output)
    removing, locked, done, newer = (parts / f"count-{digit * 16}" for digit in "0123")
    for job in (removing, locked, done, newer):
        job.mkdir(parents=True)
        (job / "count-00000.ok").touch()
    (done / "job.json").touch()
    remove_dead_parts(output)
    assert len(list(parts.iterdir())) == 4  # without an output, a run in another process may be about to begin
    output.touch()
    (newer / "job.json").touch()
    os.utime(newer / "job.json", ns=(0, output.stat().st_mtime_ns + 1))
    descriptor, _ = create_and_lock(locked)
    remove_dead_parts(output)
    os.close(descriptor)
    assert sorted(parts.iterdir()) == [locked, newer]
    (newer / "job.json").unlink()
    remove_dead_parts(output)
    assert sorted(tmp_path.iterdir()) == [output]
