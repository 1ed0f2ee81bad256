"""`Ray`: the machines of a Ray cluster, or one that is started on this machine.

Only the fields of a call travel to a worker, and only sizes, checksums and small figures travel back: what tasks make
is in files of the work folder, because Ray's object store loses what a process owned that has died.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from typing import Any, ClassVar

from gristmill.errors import OptionError, WorkerError
from gristmill.executors.calls import Call
from gristmill.executors.executor import Executor, Finished, Workers, check_shared
from gristmill.executors.process_worker import unpack_outcome
from gristmill.executors.ray_connection import check_address, connected
from gristmill.packages import load_package
from gristmill.pretokenize.worker import unpack_error
from gristmill.version import __version__

# How long the size of the cluster counts as known. It is one question to its head.
SIZE_SECONDS = 2.0
# How long tasks that nobody wants any more may take to end before their processes are killed.
PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ray(Executor):
    """The workers of a Ray cluster; each task takes one CPU of it, and one thread.

    address: "auto" for the cluster that this machine belongs to, "HOST:6379", or "ray://HOST:10001" from a machine
        outside it. Default: the cluster that this process is connected to, the one that RAY_ADDRESS names, or else a
        cluster on this machine alone, which ends with the job.
    num_workers: how many tasks run at the same time. Default: as many as the cluster has CPUs, also while it grows.
    work_folder: a folder or URL that all machines of the cluster see, and so do this one and its inputs.

    A task whose worker or machine dies runs again elsewhere. Gristmill must be installed on every machine, in the same
    version.
    """

    name: ClassVar[str] = "ray"
    address: str | None = None

    def __post_init__(self) -> None:
        Executor.__post_init__(self)
        if self.address is not None:
            check_address(self.address)
        check_shared(self.work_folder)

    @contextmanager
    def open(self) -> Iterator[Workers]:
        ray = load_package("ray", needed_by="executor='ray'")
        with connected(ray, self.address, self.num_workers):
            workers = RayWorkers(ray, self.num_workers)
            try:
                yield workers
            finally:
                workers.close()


class RayWorkers(Workers):
    """Tasks of Ray that perform calls.

    Ray could run tasks again by itself (`max_retries`). It does not here: the driver does, so that every attempt is
    counted, shown and limited, whatever the executor.
    """

    def __init__(self, ray: Any, num_workers: int | None) -> None:
        self._ray = ray
        self._limit = num_workers
        self._task = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_portable_task())
        self._next_ticket = 0
        self._waiting: deque[tuple[int, Call]] = deque()  # calls that Ray does not have yet
        self._under_way: dict[Any, int] = {}  # tickets, by the reference that Ray gave
        self._cancelled: dict[Any, float] = {}  # when, by reference: tasks that may not have ended yet
        self._num_cpus = 1
        self._asked_at = float("-inf")

    @property
    def num_workers(self) -> int:
        if time.monotonic() > self._asked_at + SIZE_SECONDS:
            with _connection():
                self._num_cpus = max(1, int(self._ray.cluster_resources().get("CPU", 0)))
            self._asked_at = time.monotonic()
        return min(self._num_cpus, self._limit or self._num_cpus)

    def submit(self, call: Call) -> int:
        check_shared(call.folder)
        ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        self._waiting.append((ticket, call))
        self._give_out_calls()
        return ticket

    def wait(self, seconds: float) -> list[Finished]:
        self._kill_cancelled()
        references = list(self._under_way)
        if not references:
            time.sleep(seconds)
            return []
        with _connection():
            ready, _ = self._ray.wait(references, num_returns=1, timeout=seconds)
            if ready:
                ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
            finished = [self._finished(reference) for reference in ready]
        self._give_out_calls()
        return finished

    def cancel(self, ticket: int) -> None:
        self._waiting = deque(pair for pair in self._waiting if pair[0] != ticket)
        for reference in [reference for reference, its in self._under_way.items() if its == ticket]:
            del self._under_way[reference]
            self._cancelled[reference] = time.monotonic()
            self._end(reference, force=False)
        self._give_out_calls()

    def check_on_this_machine(self) -> None:
        with _connection():
            names = {node["NodeManagerHostname"] for node in self._ray.nodes() if node["Alive"]}
        others = sorted(names - {socket.gethostname()})
        if others:
            some = ", ".join(others[:3]) + ", …" * (len(others) > 3)
            raise OptionError(
                f"the Ray cluster has other machines ({some}), which do not see the temporary folder of this one. Pass "
                f"a work_folder that all of them see: a folder of a shared file system, or a URL such as "
                f"s3://bucket/work."
            )

    def close(self) -> None:
        """End the tasks that are under way, in the way of Ctrl-C; those that do not, by killing their processes."""
        self._waiting.clear()
        for ticket in list(self._under_way.values()):
            self.cancel(ticket)
        left = list(self._cancelled)
        if not left:
            return
        with suppress(Exception):  # the cluster is gone
            _, left = self._ray.wait(left, num_returns=len(left), timeout=PATIENCE_SECONDS)
        for reference in left:
            self._end(reference, force=True)

    def _kill_cancelled(self) -> None:
        """Kill the processes of cancelled tasks that had the time to end: each takes a CPU of the cluster."""
        now = time.monotonic()
        for reference in [one for one, when in self._cancelled.items() if now > when + PATIENCE_SECONDS]:
            del self._cancelled[reference]
            self._end(reference, force=True)

    def _give_out_calls(self) -> None:
        while self._waiting and (self._limit is None or len(self._under_way) < self._limit):
            ticket, call = self._waiting.popleft()
            with _connection():
                reference = self._task.options(name=call.name).remote(__version__, astuple(call))
            self._under_way[reference] = ticket

    def _finished(self, reference: Any) -> Finished:
        ticket = self._under_way.pop(reference)
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return Finished(ticket, error=_described(error), worker_died=_has_died(self._ray.exceptions, error))
        if "error" in answer:
            return Finished(ticket, error=unpack_error(*answer["error"]), node=answer["node"])
        if "missing" in answer:
            return Finished(ticket, error=WorkerError(_missing(answer["node"], answer["missing"])))
        return Finished(ticket, outcome=unpack_outcome(answer["outcome"]))

    def _end(self, reference: Any, *, force: bool) -> None:
        with suppress(Exception):  # it has ended, or the cluster is gone
            self._ray.cancel(reference, force=force)


def _portable_task() -> Any:
    """The function that Ray sends to the workers whole, so that one without Gristmill can report that."""

    def task(version: str, fields: tuple[Any, ...]) -> dict[str, Any]:
        import socket

        try:
            from gristmill.executors.ray_worker import answer
        except ImportError as error:
            return {"missing": f"{type(error).__name__}: {error}", "node": socket.gethostname()}
        return answer(version, fields)

    return task


def _missing(node: str, reason: str) -> str:
    return (
        f"a worker on the node {node} cannot import Gristmill {__version__} ({reason}). Install the same version with "
        f"`pip install 'gristmill[ray]=={__version__}'` on every machine of the cluster, or in its image."
    )


def _has_died(exceptions: Any, error: Any) -> bool:
    """Whether the worker, its machine or the connection to it is at fault, and not the task."""
    if isinstance(error, exceptions.RayTaskError):
        # What ended an earlier task of the same worker may come too late, and end this one.
        return isinstance(error.cause, exceptions.TaskCancelledError | KeyboardInterrupt | SystemExit)
    return not isinstance(error, exceptions.RuntimeEnvSetupError)


def _described(error: Any) -> WorkerError:
    name = type(getattr(error, "cause", None) or error).__name__
    text = " ".join(str(error).split())[:600]
    return WorkerError(f"{text} (Ray's {name}). If memory is short, pass a smaller num_workers or part_bytes.")


@contextmanager
def _connection() -> Iterator[None]:
    """An error of the connection to the cluster, worded."""
    try:
        yield
    except (ConnectionError, RuntimeError) as error:
        if isinstance(error, WorkerError):
            raise
        reason = " ".join(str(error).split())[:300]
        raise WorkerError(
            f"the connection to the Ray cluster was lost ({reason}). Finished parts are kept: run the same again."
        ) from error
