"""Work on threads with results in order: reading inputs ahead, and mapping a function over many items.

If the system allows fewer threads than requested, these do the work; if it allows none, the calling thread does. All
threads are daemons, so an interpreter that exits does not wait for them.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from gristmill.corpus.batches import Batch, Cut, Mark, Spans
from gristmill.corpus.formats import read_batches
from gristmill.corpus.inputs import FoundFiles, Input
from gristmill.corpus.options import Reading
from gristmill.corpus.skipped import without_skip_advice
from gristmill.errors import CorpusError, DamagedInputError
from gristmill.trace import span

NUM_BATCHES_AHEAD = 2
# How long to wait for a thread to stop. It checks after every batch, so only a hanging read takes longer. Such a thread
# is a daemon and does not keep the process alive.
PATIENCE_SECONDS = 1.0
# The usual stack of a thread, and room for its first objects.
THREAD_BYTES = (8 << 20) + (2 << 20)
# Longest wait: some libraries, such as polars, install a handler of Ctrl-C that does not interrupt a wait.
POLL_SECONDS = 0.2

OnSkip = Callable[[int, Exception], None]

Item = TypeVar("Item")
Result = TypeVar("Result")
Place = TypeVar("Place")

# Items in progress in addition to one per thread, so that no thread waits while the caller handles earlier results.
NUM_AHEAD = 3


def read_files(
    files: FoundFiles,
    reading: Reading,
    *,
    cut: Cut,
    first: int = 0,
    mark: Mark = Mark(),  # noqa: B008
    num_readers: int,
    on_skip: OnSkip | None = None,
) -> Generator[tuple[int, Batch], None, None]:
    """Yield (index of the input, batch) for all batches from `mark` of input `first` on, in order.

    With on_error="skip", an input that cannot be read yields no batch, and `on_skip` receives its index and the error.
    Closing the generator stops the threads.
    """
    places = ((index, mark if index == first else Mark(), None) for index in range(first, len(files.inputs)))
    return read_places(files, places, reading, cut=cut, num_readers=num_readers, on_skip=on_skip)


def read_places(
    files: FoundFiles,
    places: Iterable[tuple[int, Mark, Mark | None]],
    reading: Reading,
    *,
    cut: Cut,
    num_readers: int,
    on_skip: OnSkip | None = None,
) -> Generator[tuple[int, Batch], None, None]:
    """Same as `read_files` for stretches of inputs: (index of the input, begin, end or None for the end)."""
    coming = iter(places)
    waiting: deque[tuple[int, Mark, Mark | None]] = deque()
    readers: deque[_Reader] = deque()
    try:
        while True:
            while len(readers) < num_readers:
                waiting.extend(islice(coming, 1 - len(waiting)))
                if not waiting:
                    break
                index, mark, end = waiting[0]
                reader = _Reader(index, files.inputs[index], reading, cut, mark, end)
                if not reader.start() and readers:
                    break  # try again when a reader has ended
                readers.append(reader)
                waiting.popleft()
            if not readers:
                return
            for batch in readers[0]:
                yield readers[0].index, batch
            done = readers.popleft()
            if done.skipped is not None and on_skip is not None:
                on_skip(done.index, done.skipped)
    finally:
        for reader in readers:
            reader.stop()
        for reader in readers:
            reader.join()


def start_thread(thread: threading.Thread) -> bool:
    """Start `thread`. Returns False if the system allows no more threads, or has no memory for one.

    Python waits forever for a thread that has a stack but no memory for its first objects. So this takes the memory
    of both, and gives it back, before it starts the thread.
    """
    try:
        mmap.mmap(-1, THREAD_BYTES).close()
        thread.start()
    except (RuntimeError, OSError, MemoryError):
        return False
    return True


class _Reader:
    """A thread that reads one input ahead, and its batches. Without a thread, the caller reads."""

    def __init__(
        self, index: int, input: Input, reading: Reading, cut: Cut, mark: Mark, end: Mark | None = None
    ) -> None:
        self.index = index
        self.skipped: Exception | None = None
        self._read = (input, reading, cut, mark, end)
        self._ready: deque[Batch] = deque()
        self._error: BaseException | None = None
        self._has_ended = self._is_stopped = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        """Start the thread. Returns False if the system allows no more threads."""
        thread = threading.Thread(target=self._run, name=f"gristmill-read-{self.index}", daemon=True)
        if start_thread(thread):
            self._thread = thread
        return self._thread is not None

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches as they arrive, then raise the error of the thread if it failed."""
        if self._thread is None:
            if self._is_usable():
                yield from self._batches()
            return
        while True:
            with self._changed:
                while not self._changed.wait_for(lambda: self._ready or self._has_ended, POLL_SECONDS):
                    pass
                batch = self._ready.popleft() if self._ready else None
                self._changed.notify()
            if batch is None:
                break
            yield batch
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ask the thread to stop."""
        with self._changed:
            self._is_stopped = True
            self._ready.clear()
            self._changed.notify()

    def join(self) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)

    def _run(self) -> None:
        try:
            if self._is_usable():
                self._put_all()
        except BaseException as error:  # raised again in __iter__
            self._error = error
            if self._read[1].on_error == "skip" and isinstance(error, DamagedInputError):
                self._error = without_skip_advice(error)
        with self._changed:
            self._has_ended = True
            self._changed.notify()

    def _is_usable(self) -> bool:
        """Return False for an input to skip. This requires reading all of it, unless reading starts in its middle.

        An input that an earlier run began to read was found usable then.
        """
        input, reading, cut, mark, end = self._read
        if reading.on_error != "skip" or mark != Mark():
            return True
        try:
            for batch in read_batches(input, reading, cut=cut, end=end):
                if self._is_stopped:
                    return False
                batch.spans()
        except (CorpusError, OSError) as error:
            self.skipped = without_skip_advice(error)
            return False
        return True

    def _batches(self) -> Generator[Batch, None, None]:
        input, reading, cut, mark, end = self._read
        return read_batches(input, reading, cut=cut, mark=mark, end=end)

    def _put_all(self) -> None:
        batches = self._batches()
        try:
            while True:
                with span("read batch"):
                    batch = next(batches, None)
                if batch is None:
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopped or len(self._ready) < NUM_BATCHES_AHEAD)
                    if self._is_stopped:
                        return
                    self._ready.append(batch)
                    self._changed.notify()
        finally:
            batches.close()


class Crew(Generic[Item, Result]):
    """Up to `num_threads` threads that call `work(item)` for submitted items, as many as could be started."""

    def __init__(self, work: Callable[[Item], Result], *, num_threads: int, name: str) -> None:
        self._work, self._num_threads, self._name = work, num_threads, name
        self._tasks: SimpleQueue[tuple[Future[Result], Item] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, item: Item) -> Future[Result]:
        """Return the future result. It is already complete if no thread could be started."""
        future: Future[Result] = Future()
        if len(self._threads) < self._num_threads:
            name = f"gristmill-{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            if start_thread(thread):
                self._threads.append(thread)
            else:
                self._num_threads = len(self._threads)
        if self._threads:
            self._tasks.put((future, item))
        else:
            self._do(future, item)
        return future

    def close(self, patience: float | None = None) -> None:
        """Stop the threads after their current items. Items that no thread has begun are dropped.

        patience: seconds to wait for all threads. They are daemons, so a hanging one does not keep the process alive.
        """
        self._num_threads = 0
        with contextlib.suppress(Empty):
            while True:
                self._tasks.get_nowait()
        for _ in self._threads:
            self._tasks.put(None)
        deadline = None if patience is None else time.monotonic() + patience
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._do(*task)
            del task  # the item may have megabytes

    def _do(self, future: Future[Result], item: Item) -> None:
        try:
            future.set_result(self._work(item))
        except BaseException as error:  # raised again by `_result`
            future.set_exception(error)
            del future  # breaks a reference cycle: future -> error -> traceback -> this frame


def map_in_order(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    num_threads: int,
    cancel: Callable[[], object] | None = None,
    patience: float | None = None,
    name: str = "work",
) -> Generator[Result, None, None]:
    """Yield `work(item)` of every item, in order, while threads work on the next items.

    At most `num_threads` + NUM_AHEAD items are in progress, however slow the caller is. When the iterator is closed or
    an item fails, `cancel` is called, which should stop long work, and the threads are stopped. `patience` limits the
    seconds to wait for them. `name` is that of the threads.
    """
    crew = Crew(work, num_threads=num_threads, name=name)
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(crew.submit(item))
            del item  # it may have megabytes, and the thread owns it now
            while len(pending) >= num_threads + NUM_AHEAD or (pending and pending[0].done()):
                yield _result(pending.popleft())
        while pending:
            yield _result(pending.popleft())
    except BaseException:
        if cancel is not None:
            cancel()
        raise
    finally:
        crew.close(patience)


def find_documents(
    batches: Iterable[tuple[Place, Batch]], *, num_threads: int
) -> Generator[tuple[Place, Batch, Spans], None, None]:
    """Yield the batches with their documents, in order. Threads extract the documents."""

    def find(item: tuple[Place, Batch]) -> tuple[Place, Batch, Spans]:
        place, batch = item
        with span("find documents", bytes=batch.num_bytes):
            return place, batch, batch.spans()

    return map_in_order(find, batches, num_threads=num_threads, name="find")


def _result(future: Future[Result]) -> Result:
    """Wait for the result in a way that Ctrl-C can interrupt."""
    if not future.done():
        with span("wait for threads"):
            while not future.done():
                wait([future], POLL_SECONDS)
    return future.result()
