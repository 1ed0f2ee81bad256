"""Work that several threads do at once and that comes back in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# So that no thread waits while the results before its own are put away.
NUM_AHEAD = 3


def map_in_order(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    num_threads: int,
    cancel: Callable[[], object] | None = None,
) -> Generator[Result, None, None]:
    """Yield `work(item)` of every item, in order, while threads work on those that follow.

    A few items more than there are threads are under way, however slow the caller is. When the iterator is closed or
    an item fails, `cancel` is called, which is to end work that would still take long, and all threads have ended.
    """
    pool = ThreadPoolExecutor(num_threads, "gristmill-work")
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            del item  # it may be megabytes, and is the thread's now
            while len(pending) >= num_threads + NUM_AHEAD or (pending and pending[0].done()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BaseException:
        if cancel is not None:
            cancel()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
