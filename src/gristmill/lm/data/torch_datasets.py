"""Windows of a TokenDataset as torch datasets: `WindowMap` by number, `WindowStream` in shuffled order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from gristmill.arguments import check_whole_number
from gristmill.errors import OptionError
from gristmill.lm.data.token_dataset import Form, TokenDataset, check_positive, check_within

__all__ = ["WindowMap", "WindowStream"]

FORMS = ("huggingface", "pairs")


class WindowMap(Dataset[Any]):
    """The windows of a dataset by number, in text order, in one of two forms."""

    def __init__(self, dataset: TokenDataset, form: Form) -> None:
        """See `TokenDataset.to_map_dataset`."""
        self._dataset, self._form = dataset, _checked_form(form)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        """Return the window with this number."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several windows, read at once."""
        return self._dataset.items(self._dataset.starts_of(indices), self._form)


class WindowStream(IterableDataset[Any]):
    """The windows of a dataset in its shuffled order, divided among processes and DataLoader workers.

    An iteration is a pure function of the dataset and the epoch. Windows are distributed in rows of
    `dataset.batch_size`, in turn to ranks and on each rank in turn to workers, in the order in which a DataLoader takes
    batches from its workers. torchdata's StatefulDataLoader calls `state_dict` and `load_state_dict` in every worker.
    """

    def __init__(
        self, dataset: TokenDataset, form: Form, *, num_epochs: int | None, rank: int, world_size: int, skip: int
    ) -> None:
        """See `TokenDataset.to_iterable_dataset`."""
        check_within("rank", rank, check_positive("world_size", world_size), "world_size")
        if check_whole_number("skip", skip) < 0:
            raise OptionError(f"skip must be >= 0, got {skip}.")
        self._dataset, self._form = dataset, _checked_form(form)
        self._num_epochs = None if num_epochs is None else check_positive("num_epochs", num_epochs)
        self._rank, self._world_size, self._skip = rank, world_size, skip
        # In shared memory, so that persistent workers see changes of the epoch.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._num_given = 0  # windows yielded by this process in the current iteration
        self._resumes = False

    def set_epoch(self, epoch: int) -> None:
        """Start the next iteration with this epoch.

        The Hugging Face Trainer and Accelerate call it before each epoch.
        """
        if check_whole_number("epoch", epoch) < 0:
            raise OptionError(f"epoch must be >= 0, got {epoch}.")
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        """Return the number of windows per iteration on this rank, over all workers."""
        first, end = self._range()
        if end is None:
            raise TypeError("the stream is endless and has no length. Pass num_epochs to limit it.")
        size = self._dataset.batch_size
        rows, rest = divmod(max(0, end - first), size * self._world_size)
        return rows * size + max(0, min(size, rest - self._rank * size))

    def __iter__(self) -> Iterator[Any]:
        """Yield the windows of this rank and worker; after `load_state_dict`, the remaining ones."""
        if not self._resumes:
            self._num_given = 0
        self._resumes = False
        worker = get_worker_info()
        num_workers, number = (1, 0) if worker is None else (worker.num_workers, worker.id)
        size = self._dataset.batch_size
        begin, end = self._range()
        row, done = divmod(self._num_given, size)
        while True:
            first = begin + ((row * num_workers + number) * self._world_size + self._rank) * size
            count = size if end is None else min(size, end - first)
            if count <= done:
                break
            for item in self._dataset.items(self._dataset.starts_from(first + done, count - done), self._form):
                self._num_given += 1
                yield item
            row, done = row + 1, 0
        self._num_given = 0

    def _range(self) -> tuple[int, int | None]:
        """Return the places of the shuffled order that an iteration covers, over all ranks."""
        epoch, each = int(self._epoch), self._dataset.num_windows
        end = None if self._num_epochs is None else (epoch + self._num_epochs) * each
        return max(epoch * each, self._skip), end

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the iteration in this process."""
        return {"epoch": int(self._epoch), "num_given": self._num_given, **self._what_decides()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state` in the next iteration; `OptionError` if it belongs to another dataset."""
        for name, value in self._what_decides().items():
            if state.get(name) != value:
                raise OptionError(
                    f"the state belongs to another dataset: {name} was {state.get(name)} and is now {value}. "
                    f"Open the dataset with the same arguments."
                )
        self.set_epoch(state["epoch"])
        self._num_given, self._resumes = int(state["num_given"]), True

    def _what_decides(self) -> dict[str, Any]:
        return {**self._dataset.what_decides, "world_size": self._world_size, "skip": self._skip}


def _checked_form(form: Any) -> Form:
    if form not in FORMS:
        raise OptionError(f"form={form!r} is not valid. Pass one of {', '.join(map(repr, FORMS))}.")
    checked: Form = form
    return checked
