"""`Ray`: the machines of a Ray cluster as executor, or a cluster that is started on this machine.

Only the fields of a call are sent to a worker, and only sizes, checksums and small statistics come back. Tasks write
their results to files in the work folder, because Ray's object store loses the objects of a process that dies.
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

# How long the size of the cluster is cached. Asking for it is one request to the head node.
SIZE_SECONDS = 2.0
# How long cancelled tasks may take to end before their processes are killed.
PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ray(Executor):
    """The workers of a Ray cluster. Each task takes one CPU of the cluster and runs one thread.

    `work_folder` must be a folder or URL that this machine and all machines of the cluster can access, and so must the
    inputs. By default, `num_workers` is the number of CPUs of the cluster, and follows it as the cluster grows. A task
    whose worker or machine dies runs again elsewhere. Every machine needs the same version of Gristmill. `open()`
    connects to the cluster.

    Examples:
        ```python
        executor = gm.Ray(address="auto", work_folder="s3://bucket/work")
        gm.encode_corpus("s3://bucket/corpus/", "tokenizer.json", out="s3://bucket/shards", executor=executor)
        ```
    """

    name: ClassVar[str] = "ray"
    """Name of the executor."""
    address: str | None = None
    """"auto" for the cluster of this machine, "HOST:6379", or "ray://HOST:10001" from a machine outside the cluster.

    Default: the cluster that this process is connected to, else the one in RAY_ADDRESS, else a new cluster on this
    machine, which ends with the job.
    """

    def __post_init__(self) -> None:
        Executor.__post_init__(self)
        if self.address is not None:
            check_address(self.address)
        check_shared(self.work_folder)

    @contextmanager
    def open(self) -> Iterator[Workers]:
        """Connect to the cluster, or start one, and disconnect when the block ends.

        Yields:
            The running workers.
        """
        ray = load_package("ray", needed_by="executor='ray'")
        with connected(ray, self.address, self.num_workers):
            workers = RayWorkers(ray, self.num_workers)
            try:
                yield workers
            finally:
                workers.close()


class RayWorkers(Workers):
    """Ray tasks that run calls.

    Ray's own retries (`max_retries`) are off: the driver retries, so that every attempt is counted, shown and limited
    in the same way for all executors.
    """

    def __init__(self, ray: Any, num_workers: int | None) -> None:
        self._ray = ray
        self._limit = num_workers
        self._task = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_portable_task())
        self._next_ticket = 0
        self._waiting: deque[tuple[int, Call]] = deque()  # calls not submitted to Ray yet
        self._under_way: dict[Any, int] = {}  # tickets by Ray object reference
        self._cancelled: dict[Any, float] = {}  # time of cancelling, by reference: tasks that may still run
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
                f"the Ray cluster has other machines ({some}), which cannot access the temporary folder of this one. "
                f"Pass a work_folder that all of them can access: a folder of a shared file system, or a URL such as "
                f"s3://bucket/work."
            )

    def close(self) -> None:
        """Interrupt the running tasks like Ctrl-C, and kill the processes of tasks that do not end."""
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
        """Kill the processes of cancelled tasks that have not ended in time: each takes a CPU of the cluster."""
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
    """Return the function that Ray sends to the workers whole, so that one without Gristmill can report that."""

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
    """Whether the worker, its machine or the connection failed, and not the task."""
    if isinstance(error, exceptions.RayTaskError):
        # An interrupt for an earlier task of the same worker may arrive late and end this one.
        return isinstance(error.cause, exceptions.TaskCancelledError | KeyboardInterrupt | SystemExit)
    return not isinstance(error, exceptions.RuntimeEnvSetupError)


def _described(error: Any) -> WorkerError:
    name = type(getattr(error, "cause", None) or error).__name__
    text = " ".join(str(error).split())[:600]
    return WorkerError(f"{text} (Ray's {name}). If memory ran out, pass a smaller num_workers or part_bytes.")


@contextmanager
def _connection() -> Iterator[None]:
    """Convert an error of the connection to the cluster to a WorkerError."""
    try:
        yield
    except (ConnectionError, RuntimeError) as error:
        if isinstance(error, WorkerError):
            raise
        reason = " ".join(str(error).split())[:300]
        raise WorkerError(
            f"the connection to the Ray cluster was lost ({reason}). Finished parts are kept: run the command again."
        ) from error
