"""A timeline of a run in the trace-event format of Chrome and Perfetto: which thread did what, and when.

`recording` is on for the whole process. Python code marks its work with `span`; the native core records its own threads
and delivers them with `add_native`. Every thread appends to its own row, so recording takes no lock. While nothing is
recorded, `span` costs one comparison with None.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import platform
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeAlias, TypeVar

from gristmill import _core
from gristmill.errors import FormatError, OptionError
from gristmill.forks import call_in_forked_child
from gristmill.publish import publish
from gristmill.small_files import read_small_file
from gristmill.version import __version__

__all__ = ["Recording", "add_native", "add_task", "current", "memory_since", "recording", "span", "spanned"]

# Later spans of a row are dropped and counted. Perfetto opens files of a few hundred megabytes.
MAX_SPANS_PER_ROW = 500_000
MEMORY_INTERVAL_SECONDS = 0.05
FORMAT = "gristmill trace 1"
# A trace begins with these bytes. Any other file must not be replaced.
_OPENING = '{"otherData": {"format": ' + json.dumps(FORMAT)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# (name, begin and end in nanoseconds of time.perf_counter_ns, arguments)
Span: TypeAlias = tuple[str, int, int, dict[str, Any] | None]
# A span of the core: (name, unit of the amount, begin and end in nanoseconds of its clock, amount)
NativeSpan: TypeAlias = tuple[str, str | None, int, int, int]


@dataclass(slots=True, eq=False)
class Row:
    """The spans of one thread, in the order in which they ended. Only that thread appends."""

    tid: int
    name: str
    thread: threading.Thread | None = None
    spans: list[Span] = field(default_factory=list)
    num_dropped: int = 0
    native: dict[int, Row] = field(default_factory=dict)  # the core's threads that worked for this one, by number

    def add(self, span: Span) -> None:
        """Append a span, or count it as dropped."""
        if len(self.spans) < MAX_SPANS_PER_ROW:
            self.spans.append(span)
        else:
            self.num_dropped += 1


@dataclass(frozen=True, slots=True)
class Task:
    """A task that ran elsewhere: in another process, or on another machine."""

    name: str
    node: str
    worker: str
    began: float  # time.time() of its machine
    seconds: float
    num_bytes: int


class _MemoryFile:
    """The file in which Linux reports the memory of this process. It stays open: opening costs nine times a read."""

    def __init__(self) -> None:
        self._descriptor = -1
        with contextlib.suppress(OSError, AttributeError):
            self._page_bytes = os.sysconf("SC_PAGE_SIZE")
            self._descriptor = os.open("/proc/self/statm", os.O_RDONLY)
            weakref.finalize(self, os.close, self._descriptor)

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def resident_bytes(self) -> int | None:
        """Return the resident memory, or None if the system does not report it."""
        if not self.is_open:
            return None
        try:
            return int(os.pread(self._descriptor, 256, 0).split()[1]) * self._page_bytes
        except (OSError, ValueError, IndexError):
            return None


class Recording:
    """What `recording` has recorded so far.

    Attributes:
        path: The file to write when the `with` block ends. None for no file.
        pid: The process that records.
        is_saved: Whether the file is written.

    Examples:
        >>> with recording() as trace:
        ...     with span("work"):
        ...         pass
        >>> [event["name"] for event in trace.events() if event["ph"] == "X"]
        ['work']
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._began = time.perf_counter_ns()
        self._wall_began = time.time()
        self.pid = os.getpid()
        self.is_saved = False
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._local = threading.local()
        self._tasks: list[Task] = []
        self._memory: list[tuple[int, int]] = []
        self._memory_file = _MemoryFile()
        self._done = threading.Event()
        self._sampler: threading.Thread | None = None
        # Both clocks are CLOCK_MONOTONIC on Linux, so the times of the core need no conversion. Other systems may have
        # two clocks that differ by a constant.
        ahead = time.perf_counter_ns() - _core.steady_nanoseconds()
        self._core_offset = 0 if abs(ahead) < 1_000_000 else ahead

    @property
    def num_spans(self) -> int:
        """Number of spans recorded so far."""
        return sum(len(row.spans) for row in self._rows) + len(self._tasks)

    @property
    def num_dropped(self) -> int:
        """Number of spans that did not fit."""
        return sum(row.num_dropped for row in self._rows)

    def row(self) -> Row:
        """Return the row of the calling thread."""
        row: Row | None = getattr(self._local, "row", None)
        if row is None:
            thread = threading.current_thread()
            is_main = thread is threading.main_thread()
            row = self._local.row = self._new_row("main" if is_main else _role(thread.name), thread)
        return row

    def native_row(self, member: int) -> Row:
        """Return the row of a thread of the core that works for the calling thread, which is number 0 itself."""
        own = self.row()
        if member == 0:
            return own
        if member not in own.native:
            with self._lock:
                own.native[member] = Row(len(self._rows) + 1, f"{own.name} · core {member}")
                self._rows.append(own.native[member])
        return own.native[member]

    def add_native(self, member: int, spans: list[NativeSpan], num_dropped: int) -> None:
        """Add spans of the core to a row of the calling thread."""
        row = self.native_row(member)
        for name, unit, begin, end, amount in spans:
            # A call that began during an earlier recording, on another thread, may end during this one.
            if begin + self._core_offset >= self._began:
                args = {unit: amount} if unit is not None else None
                row.add((name, begin + self._core_offset, end + self._core_offset, args))
        row.num_dropped += num_dropped

    def add_task(self, task: Task) -> None:
        """Add a task that ran in another process."""
        self._tasks.append(task)

    def memory_since(self, began: float) -> tuple[tuple[float, int], ...]:
        """Return (seconds since `began`, a time.perf_counter(); resident bytes): the last sample before, up to now."""
        self._sample()
        begin = int(began * 1e9)
        samples = sorted(self._memory)
        before = [(0.0, size) for now, size in samples if now < begin][-1:]
        return (*before, *(((now - begin) / 1e9, size) for now, size in samples if now >= begin))

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the trace."""
        yield {"ph": "M", "name": "process_name", "pid": self.pid, "tid": 0, "args": {"name": "gristmill"}}
        for row in self._rows:
            yield from _row_names(self.pid, row.tid, row.name)
            for name, begin, end, args in _outer_first(row.spans):
                yield _span_event(self.pid, row.tid, name, begin - self._began, end - self._began, args)
        for now, size in sorted(self._memory):
            values = {"MB": round(size / 1e6, 3)}
            yield _event("C", "resident memory", self.pid, 0, ts=_micros(now - self._began), args=values)
        yield from self._task_events()

    def write(self, file: IO[bytes]) -> None:
        """Write the trace as JSON, one event per line."""
        about = {
            "version": __version__,
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._wall_began)),
            "machine": platform.machine(),
            "dropped_spans": self.num_dropped,
        }
        file.write(f'{_OPENING}, {json.dumps(about)[1:]}, "displayTimeUnit": "ms", "traceEvents": [\n'.encode())
        for number, event in enumerate(self.events()):
            file.write((",\n" * (number > 0) + json.dumps(event, separators=(",", ":"))).encode())
        file.write(b"\n]}\n")

    def start(self) -> None:
        """Start to sample the memory of this process."""
        if not self._memory_file.is_open:
            return
        self._sample()
        self._sampler = threading.Thread(target=self._keep_sampling, name="gristmill-memory", daemon=True)
        with contextlib.suppress(RuntimeError):  # the system allows no more threads
            self._sampler.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._done.set()
        if self._sampler is not None and self._sampler.is_alive():
            self._sampler.join()
            self._sample()

    def _keep_sampling(self) -> None:
        while not self._done.wait(MEMORY_INTERVAL_SECONDS):
            self._sample()

    def _sample(self) -> None:
        size = self._memory_file.resident_bytes()
        if size is not None:
            self._memory.append((time.perf_counter_ns(), size))

    def _new_row(self, role: str, thread: threading.Thread) -> Row:
        """Return a row for a new thread: one of the same role whose thread has ended, or another one.

        Without this, a corpus of 10,000 files would have a row for each of its readers, of which a few run at a time.
        """
        with self._lock:
            same = [row for row in self._rows if row.name.partition(" ")[0] == role and row.thread is not None]
            for row in same:
                if row.thread is not None and not row.thread.is_alive():
                    row.thread = thread
                    return row
            row = Row(len(self._rows) + 1, role if role == "main" else f"{role} {len(same)}", thread)
            self._rows.append(row)
            return row

    def _task_events(self) -> Iterator[dict[str, Any]]:
        """Yield one process per worker, in the order in which the workers began."""
        pids: dict[tuple[str, str], int] = {}
        here = platform.node()
        for task in sorted(self._tasks, key=lambda task: task.began):
            place = (task.node, task.worker)
            if place not in pids:
                pids[place] = self._pid_of(task, here, set(pids.values()))
                where = f"worker {task.worker}" + f" on {task.node}" * bool(task.node)
                yield _event("M", "process_name", pids[place], 0, args={"name": where})
                yield from _row_names(pids[place], 1, "tasks")
            begin = int(max(0.0, task.began - self._wall_began) * 1e9)  # the clocks of two machines may differ
            end = begin + int(task.seconds * 1e9)
            yield _span_event(pids[place], 1, task.name, begin, end, {"bytes": task.num_bytes})

    def _pid_of(self, task: Task, here: str, taken: set[int]) -> int:
        """Return the process id of a worker on this machine, or a free number for others."""
        taken |= {self.pid, 0}
        pid = int(task.worker) if task.worker.isdecimal() and task.node in ("", here) else 0
        return pid if pid not in taken else max(1_000_000_000, max(taken) + 1)


_current: Recording | None = None
_changing = threading.Lock()


def _forget_the_parent() -> None:
    """Record nothing in a forked process: its rows would grow without end, and only the parent writes the trace."""
    global _current, _changing
    _current, _changing = None, threading.Lock()
    _core.set_recording(False)


call_in_forked_child(_forget_the_parent)


def current() -> Recording | None:
    """Return the recording in progress, or None."""
    return _current


@contextlib.contextmanager
def recording(path: str | os.PathLike[str] | None = None) -> Iterator[Recording]:
    """Record what each thread does in the `with` block, and write it to `path` as a trace.

    Open the file in https://ui.perfetto.dev or in chrome://tracing; both work locally. The trace has one row per
    thread of Python and of the native core, one per worker process of an executor, and the memory of this process over
    time. The profiles of runs inside the block have `memory` samples. The file is written even if the block fails or is
    interrupted, with what was recorded until then.

    Args:
        path: The file to write. An earlier trace there is replaced, any other file is refused. None writes no file.

    Yields:
        The recording.

    Raises:
        OptionError: Another recording is in progress in this process.
        FileExistsError: `path` exists and is not a trace.
        OSError: The file cannot be written.

    Examples:
        >>> import json, tempfile
        >>> import gristmill as gm
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with gm.recording(f"{folder}/trace.json"):
        ...         tok = gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None)
        ...     trace = json.loads(Path(folder, "trace.json").read_text())
        >>> {event["name"] for event in trace["traceEvents"]} >= {"count", "join", "setup", "merge"}
        True
    """
    global _current
    target = None if path is None else Path(path)
    if target is not None:
        check_target(target)
    recorded = Recording(target)
    with _changing:
        if _current is not None:
            raise OptionError("another recording is in progress in this process. End it first: recordings do not nest.")
        _current = recorded
    try:
        _core.set_recording(True)
        recorded.start()
        yield recorded
    except BaseException as error:
        _end(recorded)
        try:
            _save(recorded)
        except OSError as lost:  # the error of the block matters more
            error.add_note(f"The trace could not be written: {lost}")
        raise
    _end(recorded)
    _save(recorded)


def _end(recorded: Recording) -> None:
    global _current
    _core.set_recording(False)
    _current = None
    recorded.stop()


def _save(recorded: Recording) -> None:
    # A process forked from this one has a copy of the recording, and must not write it.
    if recorded.path is not None and recorded.pid == os.getpid():
        check_target(recorded.path)
        with publish(recorded.path) as file:
            recorded.write(file)
        recorded.is_saved = True


def check_target(path: Path) -> None:
    """Raise an error if a trace cannot be written to `path`, or would replace a file that is not a trace."""
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "The folder of the trace does not exist. Create it first", str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "No permission to write the trace to this folder", str(folder))
    try:
        head = read_small_file(path, what="a trace", max_bytes=1 << 62, error=FormatError, first_bytes=len(_OPENING))
    except FileNotFoundError:
        return
    except FormatError:  # a pipe or device, which the system could wait for
        head = b""
    if head != _OPENING.encode():
        raise FileExistsError(
            errno.EEXIST, "Already exists and is not a trace of Gristmill. Pass another name for the trace", str(path)
        )


class _NoSpan:
    """A span while nothing is recorded."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


_NO_SPAN = _NoSpan()


class _OpenSpan:
    """A span of the calling thread that ends with its `with` block."""

    __slots__ = ("_args", "_begin", "_name", "_row")

    def __init__(self, row: Row, name: str, args: dict[str, Any] | None) -> None:
        self._row, self._name, self._args = row, name, args

    def __enter__(self) -> None:
        self._begin = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        self._row.add((self._name, self._begin, time.perf_counter_ns(), self._args))


def span(name: str, **args: Any) -> _NoSpan | _OpenSpan:
    """Return a context whose duration becomes a span of the calling thread; it does nothing while nothing is recorded.

    args: numbers and strings to show with the span.
    """
    if _current is None:
        return _NO_SPAN
    return _OpenSpan(_current.row(), name, args or None)


def spanned(name: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Return a decorator that makes each call of a function a span."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def recorded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with span(name):
                return function(*args, **kwargs)

        return recorded

    return decorate


def add_native(member: int, spans: list[NativeSpan], num_dropped: int) -> None:
    """Add spans of the core to a row. Called by the core, on the thread that called it."""
    if _current is not None:
        _current.add_native(member, spans, num_dropped)


def add_task(name: str, *, node: str, worker: str, began: float, seconds: float, num_bytes: int) -> None:
    """Add a task that another process or machine has run. began: time.time() of its machine."""
    if _current is not None:
        _current.add_task(Task(name, node, worker, began, seconds, num_bytes))


def memory_since(began: float) -> tuple[tuple[float, int], ...]:
    """Return the memory samples since `began`, a time.perf_counter(); none while nothing is recorded."""
    return () if _current is None else _current.memory_since(began)


def _role(thread_name: str) -> str:
    """Return the role of a thread, from its name.

    >>> _role("gristmill-read-17"), _role("gristmill-batches_0"), _role("Thread-3 (_read)")
    ('read', 'batches', 'Thread')
    """
    name = thread_name.removeprefix("gristmill-").partition(" ")[0]
    return re.sub(r"[-_]\d+$", "", name) or "thread"


def _outer_first(spans: list[Span]) -> list[Span]:
    """Return the spans by begin; of spans that begin together, the one that contains the others comes first."""
    return sorted(spans, key=lambda span: (span[1], -span[2]))


def _micros(nanoseconds: int) -> float:
    """Return microseconds, rounded down to eighths, which a float represents exactly.

    Viewers compute the end of a span as ts + dur, and cut the sum to nanoseconds. With inexact numbers, adjacent spans
    would overlap by a nanosecond, and a viewer would show one inside the other.

    >>> _micros(1999), _micros(2000)
    (1.875, 2.0)
    """
    return nanoseconds // 125 / 8


def _event(kind: str, name: str, pid: int, tid: int, **rest: Any) -> dict[str, Any]:
    return {"ph": kind, "name": name, "pid": pid, "tid": tid, **rest}


def _span_event(pid: int, tid: int, name: str, begin: int, end: int, args: dict[str, Any] | None) -> dict[str, Any]:
    shown = {"args": args} if args else {}
    ts = _micros(begin)
    return _event("X", name, pid, tid, cat="gristmill", ts=ts, dur=_micros(end) - ts, **shown)


def _row_names(pid: int, tid: int, name: str) -> Iterator[dict[str, Any]]:
    yield _event("M", "thread_name", pid, tid, args={"name": name})
    yield _event("M", "thread_sort_index", pid, tid, args={"sort_index": tid})
