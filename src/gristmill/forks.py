"""Locks that a forked process must not inherit.

A fork copies only the thread that calls it. A lock that another thread held at that moment stays locked in the child,
which waits forever when it needs the lock. Modules with a lock of their own replace it in the child.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable


def call_in_forked_child(renew: Callable[[], None]) -> None:
    """Call `renew` in every process that is forked from this one, where the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)


def hold_during_forks(lock: threading.Lock) -> None:
    """Let forks wait for `lock`, which no thread may hold for long. It is open in the child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def _renew_cached_properties() -> None:
    """Replace the lock of each cached property. Python 3.11 holds it while the value is computed, for all instances.

    Without this, a process forked while another thread builds any encoder could never build one.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != __package__:
            continue
        for kind in list(vars(module).values()):
            if isinstance(kind, type) and kind.__module__ == name:
                for attribute in vars(kind).values():
                    if isinstance(attribute, functools.cached_property):
                        attribute.lock = threading.RLock()  # type: ignore[attr-defined]  # in no type stub


if sys.version_info < (3, 12):
    call_in_forked_child(_renew_cached_properties)
