"""Mutated files of every kind give a result or a Gristmill error: the short form of `make fuzz-files`.

A finding names the kind and the number of the file. To read it again, and to keep its folder in build/fuzz/files:

    python tools/fuzz_files.py --files 1 --kind KIND --seed 22 --first NUMBER
"""

import os
import signal
import sys
from pathlib import Path

import pytest

from faults.mutated import fuzzing
from faults.mutated.kind import Inputs, Kind
from faults.mutated.kinds import KIND_NAMES, NEED_TORCH, SLOW
from gristmill import FormatError

FILES = 50
FILES_OF_SLOW = 10
SEED = 22

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory, and times in /proc")


def findings_of(kind, root, files=None):
    files = files or (FILES_OF_SLOW if kind in SLOW else FILES)
    report = fuzzing.fuzz(kind, range(files), seed=SEED, root=root)
    assert report.files >= min(files, 1) and sum(report.outcomes.values()) == report.files
    return [f"file {found['number']}: {found['finding']}" for found in report.findings]


@pytest.mark.parametrize("kind", [kind for kind in KIND_NAMES if kind not in NEED_TORCH])
def test_no_mutated_file_causes_a_foreign_error_a_crash_or_a_hang(kind, tmp_path):
    assert findings_of(kind, tmp_path) == []


def test_no_mutated_checkpoint_or_model_causes_a_foreign_error_a_crash_or_a_hang(tmp_path):
    pytest.importorskip("torch")  # imported once, for the processes of all these kinds
    assert {kind: findings_of(kind, tmp_path) for kind in NEED_TORCH} == {kind: [] for kind in NEED_TORCH}


# The checks can fail


def make(root):
    (root / "folder").mkdir()
    (root / "folder/file").write_text("some text")


def reading(monkeypatch, reader, **options):
    """Return the findings of a reader of a made-up kind. It must accept the unchanged file."""

    def read(folder):
        if (folder / "file").read_bytes() != b"some text":
            reader(folder)

    kind = Kind("made-up", make, [read], **options)
    monkeypatch.setattr(fuzzing, "find_kind", lambda name: kind)


def spin(folder):
    while True:
        pass


def refuse(folder):
    raise FormatError("a file with faults. Write it again.")


@pytest.mark.parametrize(
    "reader, expected",
    [
        (lambda folder: {}["missing"], "KeyError: 'missing'"),
        (lambda folder: sys.exit(3), "SystemExit: 3"),
        (lambda folder: exec("pass"), "audit event exec"),
        (lambda folder: os.system("true"), "audit event os.system"),
        (lambda folder: Path("/etc/passwd").read_bytes(), "opened: '/etc/passwd'"),
        (lambda folder: (folder / "../outside").write_text("x"), "opened for writing"),
        (lambda folder: (folder / "../outside").mkdir(), "audit event os.mkdir"),
        (lambda folder: bytearray(300 << 20), "resident memory grew"),
        (lambda folder: bytes(5 << 30), "MemoryError"),
        (refuse, None),
        (lambda folder: os.kill(os.getpid(), signal.SIGKILL), "signal 9"),
        (spin, "hang"),
    ],
)
def test_the_fuzzer_finds(reader, expected, tmp_path, monkeypatch):
    if reader is spin:
        monkeypatch.setattr(fuzzing, "HANG_SECONDS", 0.5)
    reading(monkeypatch, reader)
    found = findings_of("made-up", tmp_path, files=2)
    if expected is None:
        assert found == []
    else:
        assert found and all(expected in finding for finding in found)


def test_a_file_that_takes_memory_is_found_after_another_that_took_less(tmp_path, monkeypatch):
    sizes = iter([150, 300])
    reading(monkeypatch, lambda folder: bytearray(next(sizes) << 20))
    (found,) = findings_of("made-up", tmp_path, files=2)
    assert "resident memory grew" in found


def test_the_file_that_killed_a_process_is_kept_and_the_others_are_read(tmp_path, monkeypatch):
    def crash(folder):
        if len((folder / "file").read_bytes()) % 3 == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    reading(monkeypatch, crash)
    report = fuzzing.fuzz("made-up", range(60), seed=1, root=tmp_path / "root", kept=tmp_path / "kept")
    crashes = [finding["number"] for finding in report.findings]
    assert 3 < len(crashes) == report.outcomes["crash"]
    kept = [len((tmp_path / f"kept/made-up-{number}/file").read_bytes()) % 3 for number in crashes]
    assert kept == [0] * len(crashes)


def test_the_same_seed_gives_the_same_files(tmp_path):
    seen = []
    for name in ("one", "two"):
        inputs = Inputs(Kind("made-up", make, [spin]), tmp_path / name)
        contents = []
        for number in range(200):
            inputs.prepare(fuzzing.random_of(5, "made-up", number))
            contents.append((inputs.now / "file").read_bytes())
        seen.append(contents)
    assert seen[0] == seen[1] and len(set(seen[0])) > 100
