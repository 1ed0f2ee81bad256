"""Interrupted runs of encode_corpus: killed or stopped, and the files they leave."""

from __future__ import annotations

import os
import signal
import traceback
from pathlib import Path

import pytest

from gristmill import encode_corpus

OPTIONS = {"shard_tokens": 700, "val_fraction": 0.3, "progress": None}


def run_and_die(step: int, run) -> bool:
    """Run in a child that is killed at its n-th step towards the disk; return whether it was killed before its end."""
    child = os.fork()
    if child == 0:
        try:
            _die_at(step)
            run()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _die_at(step: int) -> None:
    """SIGKILL before the n-th call that changes the disk."""
    left = step

    def watched(call):
        def calling(*arguments, **options):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return calling

    for name in ("fsync", "fdatasync", "truncate"):
        setattr(os, name, watched(getattr(os, name)))
    for name in ("replace", "rename", "unlink", "mkdir", "rmdir"):
        setattr(Path, name, watched(getattr(Path, name)))


class Enough(Exception):
    pass


def stop_after(num_tokens):
    def stop(report):
        if report.tokens >= num_tokens:
            raise Enough

    return stop


def unfinished(corpus, tok, out, **options):
    with pytest.raises(Enough):
        encode_corpus(
            corpus, tok, out=out, **{**OPTIONS, "checkpoint_seconds": 0, **options, "progress": stop_after(2000)}
        )
    assert (out / "progress.json").exists()
