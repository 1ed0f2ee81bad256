"""Publish: an existing file is replaced completely or not at all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import gristmill as gm
from gristmill import Tokenizer
from gristmill.publish import publish

SMALL, LARGE = Tokenizer([]), Tokenizer([(b"a", b"b")])


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_save_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "tok.json"
    SMALL.save(path)
    before = path.read_bytes()
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:

            def fail(*_):
                raise OSError(5, "Input/output error")

            patch.setattr(os if name == "fsync" else Path, name, fail)
            with pytest.raises(OSError, match="Input/output error"):
                LARGE.save(path)
        assert path.read_bytes() == before
        assert names_in(tmp_path) == ["tok.json"]


@pytest.mark.parametrize("number", [0, 1])
def test_an_error_of_the_disk_names_the_file_or_the_folder(number, tmp_path, monkeypatch):
    """The first fsync is for the file, the second for the folder. The system's error names neither."""
    fsync, calls = os.fsync, []

    def fail_once(descriptor):
        calls.append(descriptor)
        if len(calls) == number + 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_once)
    with pytest.raises(OSError, match="Input/output error") as error:
        SMALL.save(tmp_path / "tok.json")
    assert error.value.errno == errno.EIO
    assert error.value.filename == [str(tmp_path / "tok.json"), str(tmp_path)][number]


def test_ctrl_c_in_the_middle_of_a_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), publish(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["file"]


def test_ctrl_c_right_after_the_temporary_file_was_created_leaves_nothing(tmp_path, monkeypatch):
    create = os.open

    def create_and_interrupt(*arguments):
        os.close(create(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr("gristmill.publish.os.open", create_and_interrupt)
    with pytest.raises(KeyboardInterrupt), publish(tmp_path / "file"):
        pass
    assert names_in(tmp_path) == []


def test_readers_see_the_old_or_the_new_file_and_never_a_part(tmp_path):
    path = tmp_path / "tok.json"
    SMALL.save(path)
    done = threading.Event()

    def save_in_turn():
        for _ in range(50):
            LARGE.save(path)
            SMALL.save(path)
        done.set()

    writer = threading.Thread(target=save_in_turn)
    writer.start()
    while not done.is_set():
        assert Tokenizer.load(path) in (SMALL, LARGE)
    writer.join()


def test_two_threads_that_save_to_one_path_do_not_disturb_each_other(tmp_path):
    threads = [
        threading.Thread(target=lambda tok=tok: [tok.save(tmp_path / "tok.json") for _ in range(30)])
        for tok in (SMALL, LARGE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Tokenizer.load(tmp_path / "tok.json") in (SMALL, LARGE)
    assert names_in(tmp_path) == ["tok.json"]


def test_a_symbolic_link_is_replaced_and_its_target_is_not_touched(tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "tok.json").symlink_to(tmp_path / "precious")
    SMALL.save(tmp_path / "tok.json")
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (tmp_path / "tok.json").is_symlink()
    assert Tokenizer.load(tmp_path / "tok.json") == SMALL


def test_overwrite_false_refuses_files_and_links_even_broken_ones(tmp_path):
    SMALL.save(tmp_path / "new.json", overwrite=False)
    (tmp_path / "link.json").symlink_to(tmp_path / "nowhere")
    for name in ("new.json", "link.json"):
        with pytest.raises(FileExistsError, match=name):
            LARGE.save(tmp_path / name, overwrite=False)
    assert Tokenizer.load(tmp_path / "new.json") == SMALL
    assert names_in(tmp_path) == ["link.json", "new.json"]


def test_a_folder_a_missing_folder_and_a_device_are_refused(tmp_path):
    with pytest.raises(IsADirectoryError):
        SMALL.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        SMALL.save(tmp_path / "missing" / "tok.json")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="device or pipe"):
        SMALL.save(tmp_path / "pipe")
    assert names_in(tmp_path) == ["pipe"]


def test_the_mode_of_the_old_file_is_kept(tmp_path):
    SMALL.save(tmp_path / "tok.json")
    (tmp_path / "tok.json").chmod(0o600)
    LARGE.save(tmp_path / "tok.json")
    assert (tmp_path / "tok.json").stat().st_mode & 0o777 == 0o600


def test_a_name_of_255_bytes_can_be_saved(tmp_path):
    for name in ("x" * 255, "é" * 127):
        SMALL.save(tmp_path / name)
        assert Tokenizer.load(tmp_path / name) == SMALL


def test_a_limit_on_the_size_of_files_is_an_os_error_that_leaves_the_old_file(tmp_path):
    path = tmp_path / "words.gmw"
    gm.Words.from_counts({"a": 1}).save(path)
    before = path.read_bytes()
    code = (
        "import resource, sys, gristmill as gm\n"
        "words = gm.Words.from_counts({str(i): 1 for i in range(10_000)})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "words.save(sys.argv[1])"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "OSError: [Errno 27] File too large" in run.stderr
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["words.gmw"]


def test_a_process_killed_at_random_times_leaves_a_whole_file(tmp_path):
    path = tmp_path / "tok.json"
    SMALL.save(path)
    code = (
        "import sys, gristmill as gm; a, b = gm.Tokenizer([]), gm.Tokenizer([(b'a', b'b')])\n"
        "print('go', flush=True)\n"
        "while True: a.save(sys.argv[1]); b.save(sys.argv[1])"
    )
    for delay in (0.001, 0.01, 0.05):
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert Tokenizer.load(path) in (SMALL, LARGE)


def killed_while_writing(path: Path) -> str:
    """Kill a process in the middle of a write, and return the name of the file that it leaves."""
    child = os.fork()
    if child == 0:
        with publish(path) as file:
            file.write(b"part")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (name,) = [name for name in names_in(path.parent) if name.startswith(f".{path.name}.tmp.")]
    return name


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_temporary_file_of_a_killed_process_is_removed_by_the_next_write_to_the_same_name(tmp_path, monkeypatch):
    left = killed_while_writing(tmp_path / "tok.json")
    (tmp_path / left.replace("tok", "other")).write_bytes(b"of another file")
    monkeypatch.setattr("gristmill.publish._abandoned", {})  # as in a new process
    SMALL.save(tmp_path / "tok.json")
    assert names_in(tmp_path) == [left.replace("tok", "other"), "tok.json"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_temporary_file_that_is_being_written_is_never_taken_for_abandoned(tmp_path, monkeypatch):
    for pid in (os.getpid(), 2**22 + 1):  # another thread of this process, and a process of another machine
        monkeypatch.setattr("gristmill.publish.os.getpid", lambda pid=pid: pid)
        with publish(tmp_path / "tok.json") as file:
            monkeypatch.setattr("gristmill.publish._abandoned", {})
            SMALL.save(tmp_path / "tok.json")
            file.write(b"whole")
        assert (tmp_path / "tok.json").read_bytes() == b"whole"
        assert names_in(tmp_path) == ["tok.json"]


def test_links_and_files_of_running_processes_stay_although_they_are_named_like_abandoned_ones(tmp_path):
    (tmp_path / f".tok.json.tmp.{os.getppid()}.12").write_bytes(b"of a version without locks")
    (tmp_path / ".tok.json.tmp.4194305.13").symlink_to(tmp_path / "nowhere")
    before = names_in(tmp_path)
    SMALL.save(tmp_path / "tok.json")
    assert names_in(tmp_path) == [*before, "tok.json"]
