"""Guard: run a reader, and report what no file may cause.

A file may cause a result, a Gristmill error or an OSError. Anything else is a finding: another exception, a message
that is no help, execution of code, a file opened or changed outside the folder, much more memory than the file is
large. Crashes and hangs are found by the parent of the process (fuzzing.py).
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gristmill import GristmillError

ALLOWED = (GristmillError, OSError)
MAX_MESSAGE = 20_000
ADDRESS_SPACE = 4 << 30  # above what the process has: a larger allocation raises MemoryError, which is a finding

_EXECUTES = frozenset(
    [
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "os.fork",
        "subprocess.Popen",
        "pickle.find_class",
        "marshal.loads",
        "ctypes.dlopen",
        "code.__new__",
        "sys.unraisablehook",
        "socket.connect",
        "socket.bind",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "urllib.Request",
    ]
)
_IN_IMPORTS = frozenset(("ctypes.dlopen", "marshal.loads", "code.__new__"))
_CHANGES = frozenset(
    [
        "os.mkdir",
        "os.remove",
        "os.rmdir",
        "os.rename",
        "os.link",
        "os.symlink",
        "os.chmod",
        "os.chown",
        "os.truncate",
        "os.utime",
        "shutil.rmtree",
        "shutil.move",
        "shutil.copytree",
        "shutil.copyfile",
    ]
)
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Guard:
    """Watches the calls of this process. There is no way to remove an audit hook, so there is one per process."""

    _active: Guard | None = None
    _is_hooked = False

    def __init__(
        self, sandbox: Path, *, max_growth: int, executes: frozenset[str] = frozenset(), limit_memory: bool = True
    ) -> None:
        self._max_growth = max_growth
        self._sandbox = os.path.realpath(sandbox)
        self._prefix = self._sandbox + os.sep  # no link leads out of the folder, because readers cannot make any
        self._executes = executes
        self._violations: list[str] = []
        # Python, packages and Gristmill itself may be read at any time, by late imports.
        roots = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), str(Path(__file__).parents[3])}
        roots |= {"/proc", "/sys", "/usr", "/lib", "/dev/null", "/dev/urandom", "/etc/ld.so.cache"}
        self._readable = tuple(os.path.realpath(root) for root in roots)
        if limit_memory:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE, resource.RLIM_INFINITY))
        if not Guard._is_hooked:
            sys.addaudithook(_hook)
            Guard._is_hooked = True

    def call(self, reader: Callable[[Path], object], folder: Path) -> tuple[str, str | None]:
        """Return the outcome, "result" or the name of an allowed error, and what is wrong, if anything."""
        self._violations.clear()
        _reset_peak()
        before = _peak_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Guard._active = self
            try:
                reader(folder)
                raised = None
            except BaseException as error:
                raised = error
            finally:
                Guard._active = None
        outcome, finding = "result", None
        if raised is not None:
            outcome = type(raised).__name__
            finding = _about(raised) if isinstance(raised, ALLOWED) else _trace(raised)
        if (grown := _peak_bytes() - before) > self._max_growth:
            finding = finding or f"resident memory grew by {grown:,} bytes"
        if self._violations:
            finding = "\n".join(dict.fromkeys([*self._violations, finding or ""])).strip()
        return outcome, finding

    def check(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record a violation. An exception would be raised in the reader, which might handle it."""
        if event == "open":
            self._check_open(*arguments)
        elif event in ("exec", "compile"):
            if event not in self._executes and not _is_import():
                name = getattr(arguments[0], "co_filename", arguments[-1])
                self._violations.append(f"audit event {event} of {name!r:.200}\n{_stack()}")
        elif event in _CHANGES:
            for path in arguments:
                if isinstance(path, str | bytes | os.PathLike) and not self._is_inside(path):
                    self._violations.append(f"audit event {event} of {path!r:.200}\n{_stack()}")
        elif event in _EXECUTES and event not in self._executes and not (event in _IN_IMPORTS and _is_import()):
            self._violations.append(f"audit event {event} {arguments!r:.200}\n{_stack()}")

    def _check_open(self, path: Any, mode: Any, flags: int) -> None:
        if isinstance(path, int) or self._is_inside(path):
            return
        if flags & _WRITE_FLAGS or (isinstance(mode, str) and set(mode) & set("wax+")):
            if os.path.realpath(os.fsdecode(path)) != "/dev/null":
                self._violations.append(f"opened for writing: {path!r:.200}\n{_stack()}")
        elif not os.path.realpath(os.fsdecode(path)).startswith(self._readable):
            self._violations.append(f"opened: {path!r:.200}\n{_stack()}")

    def _is_inside(self, path: Any) -> bool:
        text = os.fspath(path)
        if isinstance(text, str) and text.startswith(self._prefix) and ".." not in text:
            return True
        try:
            # The folder is resolved, and not the file: a reader may look at a link, and must not follow it.
            # A relative path may be relative to a descriptor, as in shutil.rmtree.
            given = Path(os.fsdecode(path))
            if not given.is_absolute() and ".." not in given.parts:
                return True
            name = Path(os.path.realpath(given.parent), given.name)
        except ValueError:  # a NUL byte: no such file
            return True
        return name.is_relative_to(self._sandbox)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    guard = Guard._active
    if guard is not None:
        Guard._active = None  # what the check itself does is no event
        try:
            guard.check(event, arguments)
        finally:
            Guard._active = guard


def _stack() -> str:
    return "".join(traceback.format_stack(sys._getframe(4), limit=5)).rstrip()


def _is_import() -> bool:
    """Return whether code of modules is run, by the frames of this thread: imports, dataclasses and type hints."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib") or name.endswith(
            ("/dataclasses.py", "/collections/__init__.py", "/typing.py")
        ):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _about(error: BaseException) -> str | None:
    """Return what is wrong with the message of an allowed error."""
    message = str(error)
    if not message.strip():
        return f"no message: {_trace(error)}"
    if len(message) > MAX_MESSAGE:
        return f"a message of {len(message):,} characters: {message[:300]}"
    return None


def _trace(error: BaseException) -> str:
    lines = traceback.format_exception(error, limit=-6)
    return "".join(lines)[-3000:].encode("utf-8", "backslashreplace").decode()


def _reset_peak() -> None:
    """Lower the peak of resident memory to what is resident now, where the system allows it."""
    with contextlib.suppress(OSError):
        descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
        os.write(descriptor, b"5")
        os.close(descriptor)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
