"""Work folders: files appear complete or not at all, in local folders and at URLs."""

import os
import threading
import time

import fsspec
import pytest

from gristmill.errors import FormatError, GristmillError, OptionError, RemoteInputError
from gristmill.executors.remote_folder import RemoteWorkFolder
from gristmill.executors.work_folder import LEFTOVER_SECONDS, LocalWorkFolder, open_work_folder


@pytest.fixture(params=["path", "file", "memory"])
def folder(request, tmp_path):
    (tmp_path / "work").mkdir()
    if request.param == "memory":
        yield open_work_folder(f"memory://{tmp_path.name}/work")
        fsspec.filesystem("memory").store.clear()
    else:
        yield open_work_folder(f"{'file://' * (request.param == 'file')}{tmp_path}/work")


def test_a_file_is_there_only_after_its_block(folder):
    with folder.create("a.bin") as file:
        file.write(b"half")
        assert folder.size("a.bin") is None
        file.write(b" whole")
    assert folder.read("a.bin") == b"half whole"
    assert folder.size("a.bin") == 10
    assert folder.names() == ["a.bin"]


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(folder):
    folder.write("a.bin", b"old")

    def fail():
        with folder.create("a.bin") as file:
            file.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert folder.read("a.bin") == b"old"
    assert folder.names() == ["a.bin"]


def test_a_file_is_replaced_by_a_second_copy_of_a_task(folder):
    folder.write("a.bin", b"first")
    folder.write("a.bin", b"second")
    assert folder.read("a.bin") == b"second"
    assert folder.names() == ["a.bin"]


def test_a_range_of_a_file_as_a_local_file(folder):
    folder.write("a.bin", bytes(range(200)))
    for begin, end in [(0, None), (0, 10), (50, 60), (190, 200), (190, 500), (200, None)]:
        with folder.as_local_file("a.bin", begin, end) as (path, first):
            data = path.read_bytes()[first:]
        expected = bytes(range(200))[begin:end]
        assert data[: len(expected)] == expected


def test_a_fetched_range_is_removed_after_use(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = open_work_folder("memory://fetched")
    folder.write("a.bin", b"12345678")
    with folder.as_local_file("a.bin", 2, 5) as (path, begin):
        assert path.read_bytes() == b"345"
        assert begin == 0
        assert [path] == list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
    folder.remove()


def test_what_is_missing(folder):
    assert folder.size("none") is None
    with pytest.raises(FileNotFoundError):
        folder.read("none")
    if isinstance(folder, RemoteWorkFolder):
        with pytest.raises(FileNotFoundError), folder.as_local_file("none"):
            pass
    folder.discard("none")
    folder.remove()
    folder.remove()


def test_a_removed_folder_is_gone_with_all_files(folder):
    folder.write("a.bin", b"1")
    folder.write("b.bin", b"2")
    folder.remove()
    assert folder.size("a.bin") is None
    if isinstance(folder, LocalWorkFolder):
        assert not folder.path.exists()
    else:
        assert folder.names() == []


def test_clear_removes_all_files_and_keeps_the_folder_usable(folder):
    folder.write("a.bin", b"1")
    folder.clear()
    assert folder.names() == []
    folder.write("b.bin", b"2")
    assert folder.names() == ["b.bin"]


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "/etc/passwd", "a\0b", "a\nb", "x" * 201])
def test_a_name_that_could_lead_out_of_the_folder_is_refused(folder, name):
    for use in (folder.read, folder.size, folder.discard, lambda name: folder.write(name, b"")):
        with pytest.raises(FormatError, match="is not the name of a file in a work folder"):
            use(name)


def test_a_file_that_is_too_large_to_read_whole_is_refused(folder):
    folder.write("a.bin", b"12345")
    assert folder.read("a.bin", max_bytes=5) == b"12345"
    with pytest.raises(FormatError, match=r"a\.bin: has"):
        folder.read("a.bin", max_bytes=4)


def test_an_empty_file_is_read(folder):
    folder.write("a.bin", b"")
    assert folder.read("a.bin") == b""
    assert folder.size("a.bin") == 0


def test_a_relative_path_stays_the_same_folder_in_another_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    folder = open_work_folder("work")
    monkeypatch.chdir("/")
    folder.write("a.bin", b"1")
    assert open_work_folder(folder.location).read("a.bin") == b"1"
    assert (tmp_path / "work/a.bin").exists()


def test_temporary_files_of_workers_killed_long_ago_are_removed(tmp_path):
    folder = LocalWorkFolder(tmp_path)
    for name in (".a.bin.tmp.1.2", ".b.bin.tmp.1.3", "c.bin"):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, times=(0, time.time() - LEFTOVER_SECONDS - 60))
    (tmp_path / ".b.bin.tmp.1.3").touch()
    folder.discard_leftovers()
    assert sorted(folder.names()) == [".b.bin.tmp.1.3", "c.bin"]


def test_a_folder_is_removed_while_a_late_worker_still_adds_files(tmp_path):
    folder = LocalWorkFolder(tmp_path / "work")
    folder.path.mkdir()
    stopped = threading.Event()

    def write():
        number = 0
        while not stopped.is_set():
            number += 1
            try:
                folder.write(f"late-{number}", b"")
            except OSError:
                return

    thread = threading.Thread(target=write)
    thread.start()
    folder.remove()
    stopped.set()
    thread.join()
    assert not folder.path.exists()


def test_a_folder_that_was_removed_does_not_come_back(tmp_path):
    folder = LocalWorkFolder(tmp_path / "work")
    with pytest.raises(FileNotFoundError):
        folder.write("late.ok", b"")
    assert not folder.path.exists()


@pytest.mark.parametrize("url", ["http://example.org/work", "simplecache::s3://bucket/work"])
def test_a_url_that_cannot_be_written_is_refused_with_what_to_pass(url):
    with pytest.raises(OptionError, match=r"cannot be written to\. Pass a folder that"):
        open_work_folder(url)


def test_an_unknown_file_system_is_an_error_that_names_the_url():
    with pytest.raises(GristmillError, match=r"nosuch://x/work/job\.json: no file system for this URL"):
        open_work_folder("nosuch://x/work").read("job.json")


def test_a_file_system_that_fails_leaves_no_temporary_object_and_names_the_url(monkeypatch):
    folder = open_work_folder("memory://failing/work")
    folder.write("a.bin", b"1")
    memory = type(fsspec.filesystem("memory"))

    def fail(*_, **__):
        raise RuntimeError("no more room")

    monkeypatch.setattr(memory, "mv", fail)
    with pytest.raises(RemoteInputError, match=r"memory://failing/work/b\.bin: .*: no more room") as caught:
        folder.write("b.bin", b"2")
    assert "skip" not in str(caught.value)
    assert folder.names() == ["a.bin"]
    folder.remove()


def test_a_file_system_that_does_not_replace_files_gets_the_old_one_removed_first(monkeypatch):
    folder = open_work_folder("memory://strict/work")
    system = type(fsspec.filesystem("memory"))
    move = system.mv

    def strict(self, source, target, **options):
        if self.exists(target):
            raise FileExistsError(target)
        return move(self, source, target, **options)

    monkeypatch.setattr(system, "mv", strict)
    folder.write("a.bin", b"first")
    folder.write("a.bin", b"second")
    assert folder.read("a.bin") == b"second"
    folder.remove()
