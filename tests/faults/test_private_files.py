"""Temporary files are private: only their owner can access them, and a planted file or link is never written to.

Final files have the permissions that the umask gives, as files of other programs do. The tests use umask 0, with which
every file would be open to all.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys

import pytest

import gristmill as gm
from faults.broken_runs import OPTIONS
from gristmill.publish import create_private, publish, usual_mode
from shards.shard_corpora import small_batches, write_text


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_file_that_is_being_written_is_private_and_has_the_permissions_of_the_umask_in_the_end(tmp_path, umask):
    with publish(tmp_path / "new") as file:
        file.write(b"secret")
        file.flush()
        (temporary,) = tmp_path.iterdir()
        assert mode_of(temporary) == 0o600
    assert mode_of(tmp_path / "new") == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_the_replacement_of_a_private_file_is_private_at_all_times(mode, tmp_path, no_umask):
    (tmp_path / "old").write_bytes(b"secret")
    (tmp_path / "old").chmod(mode)
    with publish(tmp_path / "old") as file:
        (temporary,) = (path for path in tmp_path.iterdir() if path.name != "old")
        assert mode_of(temporary) == 0o600
        file.write(b"new secret")
    assert mode_of(tmp_path / "old") == mode


def test_a_file_system_without_unnamed_files_has_the_same_permissions(tmp_path, umask, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE")
    assert usual_mode(tmp_path) == 0o666 & ~umask
    assert os.umask(umask) == umask  # and the umask is as before


def test_a_file_system_without_permissions_is_written_to(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    gm.Tokenizer([]).save(tmp_path / "tok.json")
    assert gm.Tokenizer.load(tmp_path / "tok.json") == gm.Tokenizer([])


def test_the_names_of_temporary_files_differ_every_time(tmp_path):
    names = set()
    for _ in range(20):
        with publish(tmp_path / "a"):
            names |= {path.name for path in tmp_path.iterdir() if path.name != "a"}
    assert len(names) == 20
    assert all(re.fullmatch(rf"\.a\.tmp\.{os.getpid()}\.\d+", name) for name in names)


@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link", "file"])
def test_what_is_planted_under_the_temporary_name_is_not_written_to(kind, tmp_path, monkeypatch):
    precious, planted = tmp_path / "precious", tmp_path / ".new.tmp.1.2"
    precious.write_bytes(b"precious")
    match kind:
        case "link":
            planted.symlink_to(precious)
        case "dangling link":
            planted.symlink_to(tmp_path / "nowhere")
        case "hard link":
            planted.hardlink_to(precious)
        case _:
            planted.write_bytes(b"planted")
    monkeypatch.setattr("gristmill.publish.temporary_name", lambda _: planted)
    with pytest.raises(FileExistsError), publish(tmp_path / "new") as file:
        file.write(b"secret")
    with pytest.raises(FileExistsError):
        create_private(precious)
    assert precious.read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists() and not (tmp_path / "new").exists()


@pytest.mark.parametrize("format", ["gristmill", "parquet", "llmc"])
def test_the_parts_of_shards_are_private_and_the_shards_are_not(format, tok, corpus, tmp_path, no_umask, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    out, seen = tmp_path / "out", set()

    def look(*_):
        seen.update((path.name, mode_of(path)) for path in out.iterdir() if path.name.endswith(".part"))

    options = {**OPTIONS, "format": format, "progress": look}
    gm.encode_corpus(corpus, tok, out=out, **options)
    assert seen and {mode for _, mode in seen} == {0o600}
    assert {mode_of(path) for path in out.iterdir()} == {0o666}


def test_a_link_planted_as_a_part_is_not_written_to(tok, corpus, tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "out").mkdir()
    for name in (".train-00000.bin.part", ".train-00000.bin.ends.part", ".manifest.json.tmp.1.2"):
        (tmp_path / "out" / name).symlink_to(tmp_path / "precious")
    try:
        gm.encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    except OSError as error:
        assert "other files" in str(error)
    assert (tmp_path / "precious").read_bytes() == b"precious"


TRACED = """
import sys
import gristmill as gm
from gristmill.cli import main

large, small, work = sys.argv[1:]
gm.count_words(large, memory_limit=32 << 20, min_frequency=2, progress=None)  # spills
gm.count_words(small, executor=gm.Processes(num_workers=1), progress=None)  # a job in the temporary folder
gm.encode_corpus(small, gm.Tokenizer([]), out=f"{work}/out", end_of_text=None, progress=None)
gm.Tokenizer([]).save(f"{work}/tok.json")
sys.exit(main(["count", "-t", f"{work}/tok.json"]))  # a copy of stdin
"""
# openat(AT_FDCWD, "/tmp/gristmill-4pz", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600) = 3
CREATED = re.compile(r'openat\([^,]+, "(?P<path>[^"]+)", (?P<flags>[A-Z_|0-9]*O_CREAT[A-Z_|0-9]*), (?P<mode>0\d+)\)')
MADE = re.compile(r'mkdir(at)?\((?:[^,"]+, )?"(?P<path>[^"]+)", (?P<mode>0\d+)\) = 0')


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_everything_in_the_shared_temporary_folder_is_private_exclusive_and_unpredictable(tmp_path):
    """Another local user may have planted a link with any name that can be guessed."""
    shared, log = tmp_path / "shared", tmp_path / "log"
    shared.mkdir(mode=0o777)
    (tmp_path / "work").mkdir()
    large = write_text(tmp_path / "large.txt", [b"word%xyz other%x" % (i, i) for i in range(600_000)])
    small = write_text(tmp_path / "small.txt", [b"one small document"])
    command = [sys.executable, "-c", TRACED, str(large), str(small), str(tmp_path / "work")]
    trace = ["strace", "-f", "-qq", "-o", str(log), "-e", "trace=openat,open,creat,mkdir,mkdirat"]
    run = subprocess.run(
        [*trace, "sh", "-c", 'umask 0; exec "$@"', "sh", *command],
        env={**os.environ, "TMPDIR": str(shared)},
        stdin=small.open("rb"),
        capture_output=True,
        text=True,
        check=False,
    )
    if "ptrace" in run.stderr and "not permitted" in run.stderr:
        pytest.skip("this system does not allow ptrace")
    assert run.returncode == 0, run.stderr
    text = log.read_text()
    folders = {found["path"]: found["mode"] for found in MADE.finditer(text) if found["path"].startswith(f"{shared}/")}
    private = {
        path for path, mode in folders.items() if mode == "0700" and path.count("/") == str(shared).count("/") + 1
    }
    files = [found for found in CREATED.finditer(text) if found["path"].startswith(f"{shared}/")]
    direct = [found for found in files if not any(found["path"].startswith(f"{folder}/") for folder in private)]
    assert private and len(direct) >= 2, text[-2000:]
    for found in direct:
        assert "O_EXCL" in found["flags"] and found["mode"] == "0600", found.group()
    visible = [path for path in folders if path.rpartition("/")[0] == str(shared)]
    assert set(visible) <= private
    for path in [*visible, *(found["path"] for found in direct)]:
        assert re.search(r"[A-Za-z0-9_]{6,8}$", path), path  # random, as mkstemp and mkdtemp choose it
    assert list(shared.iterdir()) == []
