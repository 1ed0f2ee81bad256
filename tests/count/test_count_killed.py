"""A count in parts that was killed: the parts in the temporary folder."""

from __future__ import annotations

import os
import signal
import tempfile

import pytest

import gristmill as gm
from gristmill.count import distributed

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def count(corpus):
    return gm.count_words(corpus, executor=gm.Local(num_workers=1, part_bytes=1000), progress=None)


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "a.txt").write_text("one two three " * 500)
    return tmp_path / "a.txt"


def in_a_child(run) -> None:
    child = os.fork()
    if child == 0:
        try:
            run()
        finally:
            os._exit(1)
    os.waitpid(child, 0)


def killed_with_parts(corpus, monkeypatch) -> None:
    """Count in a process that is killed when it has counted all parts."""

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(distributed, "finish_count", die)
        in_a_child(lambda: count(corpus))


def test_the_parts_of_a_killed_count_are_removed_by_the_next_one(corpus, monkeypatch):
    temporary = corpus.parent / "tmp"
    killed_with_parts(corpus, monkeypatch)
    (left,) = temporary.iterdir()
    assert (left / "count" / "job.json").exists()
    assert dict(count(corpus).items()) == dict(gm.count_words(corpus, progress=None).items())
    assert list(temporary.iterdir()) == []


def test_the_parts_of_a_running_count_and_other_folders_stay(corpus, monkeypatch):
    temporary = corpus.parent / "tmp"
    (temporary / "gristmill-notes" / "count").mkdir(parents=True)
    (temporary / "gristmill-notes" / "count" / "notes.txt").touch()
    seen = []
    finish = distributed.finish_count

    def finish_after_another(*arguments):
        if not seen:
            seen.append(sorted(path.name for path in temporary.iterdir()))
            in_a_child(lambda: count(corpus))
            seen.append(sorted(path.name for path in temporary.iterdir()))
        return finish(*arguments)

    monkeypatch.setattr(distributed, "finish_count", finish_after_another)
    count(corpus)
    assert seen[0] == seen[1] and len(seen[0]) == 2
    assert [path.name for path in temporary.iterdir()] == ["gristmill-notes"]
