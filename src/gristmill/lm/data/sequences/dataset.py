"""SequenceDataset: the batches of a run over whole sequences, as a pure function of step and rank.

Shapes: N sequences in all, B in a micro-batch of one rank, U in one of all ranks, padded to T.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType

import torch

from gristmill.arguments import check_whole_number, usable_cores
from gristmill.errors import OptionError, TrainingError
from gristmill.lm.data.batch import Batch
from gristmill.lm.data.read_ahead import ReadAhead
from gristmill.lm.data.sequences.buckets import choose_bounds
from gristmill.lm.data.sequences.loader import Padded, Task, WorkerLoader, padded
from gristmill.lm.data.sequences.order import Order
from gristmill.lm.data.sequences.source import SequenceSource
from gristmill.lm.data.token_dataset import check_positive, check_seed, check_within, size_of_subset

__all__ = ["SequenceDataset"]


class SequenceDataset:
    """Batches of whole sequences, one per document.

    With `use_dynamic_padding` sequences of about the same length go together, and are padded to one of `num_buckets`
    widths: `choose_bounds` finds those with the least padding. Without it, all are padded to max_sequence_length.

    An epoch has every sequence at most once, and all but fewer than one micro-batch of all ranks: order.py shows how.
    Epochs follow each other without a gap.

    Every micro-batch is full: there is no shorter one at the end of an epoch. The remainder of num_sequences /
    (world_size * batch_size) is left out of that epoch; the seed chooses which sequences, others in each epoch, each
    equally often. This is `drop_last=True` of torch's DataLoader. There is no `drop_last=False`: its last batch has
    another shape, which a compiled model compiles once more, and each of its few sequences counts for more than others
    do. Validation leaves nothing out: it fills its last batch with rows that do not count.

    A batch depends on the arguments of `batch` alone, not on the workers that read it or on what was asked for before.
    In a micro-step all ranks have batches of one shape.

        data = open_sequences("stories.parquet", tokenizer="tokenizer.json")
        dataset = SequenceDataset(data.train, max_sequence_length=1000, batch_size=32, seed=0, use_dynamic_padding=True)
        batch = dataset.batch(step=100)
    """

    def __init__(
        self,
        source: SequenceSource,
        *,
        max_sequence_length: int,
        batch_size: int,
        seed: int,
        use_dynamic_padding: bool = False,
        num_buckets: int = 16,
        device: torch.device | str = "cpu",
        num_workers: int = 0,
        pin_memory: bool = True,
        prefetch_factor: int = 2,
        vocab_size: int | None = None,
    ) -> None:
        """Looks at the lengths; no sequence is read yet.

        num_workers: processes that read and pad batches ahead; 0: a thread does it.
        pin_memory: batches for a GPU lie in page-locked memory first, from which it copies without waiting.
        prefetch_factor: batches that each worker is ahead.
        vocab_size: a batch with an id that is not below it is a `TrainingError` that names the file and the token.
            None: nothing is checked, and the model fails as it may.
        """
        self.messages: list[str] = []
        self._source = source
        self._batch_size = check_positive("batch_size", batch_size)
        self._device = torch.device(device)
        self._num_workers = self._check_workers(num_workers)
        self._prefetch_factor = check_positive("prefetch_factor", prefetch_factor)
        self._vocab_size = None if vocab_size is None else check_positive("vocab_size", vocab_size)
        self._pin_memory = bool(pin_memory) and self._device.type == "cuda"
        self._bounds = _find_bounds(
            source,
            check_positive("max_sequence_length", max_sequence_length),
            check_positive("num_buckets", num_buckets) if use_dynamic_padding else None,
        )
        self._order = Order(source.lengths_N, self._bounds, seed=check_seed(seed))
        # What makes the batches of a rank among so many, before they are asked for: a thread or workers.
        self._ahead: tuple[tuple[int, int], _ThreadLoader | WorkerLoader] | None = None

    # What it holds

    @property
    def num_sequences(self) -> int:
        """N."""
        return self._order.num_sequences

    @property
    def batch_size(self) -> int:
        """The sequences in a micro-batch of one rank."""
        return self._batch_size

    @property
    def bounds(self) -> list[int]:
        """The widths that batches may have."""
        return list(self._bounds)

    @property
    def num_workers(self) -> int:
        """The processes that read: no more than there are cores."""
        return self._num_workers

    def steps_per_epoch(self, *, world_size: int = 1, num_micro_steps: int = 1) -> float:
        """The steps in which every sequence comes once, but for those left out."""
        return self._order.num_units(world_size * self._batch_size) / num_micro_steps

    def tokens_in_step(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> tuple[int, int]:
        """(tokens without padding, slots with padding) of all ranks and micro-batches. Nothing is read for it."""
        unit_size = world_size * self._batch_size
        units = [self._order.unit(step * num_micro_steps + i, unit_size) for i in range(num_micro_steps)]
        return sum(unit.num_tokens for unit in units), sum(unit.width * unit_size for unit in units)

    def padding_waste(self, world_size: int = 1) -> float:
        """The share of the slots of an epoch that are padding."""
        num_tokens, num_slots = self._order.epoch_slots(0, world_size * self._batch_size)
        return 1 - num_tokens / num_slots

    # Batches

    def batch(
        self, step: int, *, rank: int = 0, world_size: int = 1, micro_step: int = 0, num_micro_steps: int = 1
    ) -> Batch:
        """The micro-batch number `micro_step` of `step` on this rank, on the device.

        Rows of all ranks together are the same for the same world_size * batch_size.
        """
        check_within("rank", rank, world_size, "world_size")
        check_within("micro_step", micro_step, num_micro_steps, "num_micro_steps")
        if step < 0:
            raise OptionError(f"step={step} is negative. Steps are counted from 0.")
        self._order.num_units(world_size * self._batch_size)  # an error here, not in a thread
        place = step * num_micro_steps + micro_step
        return self._loader(rank, world_size).take(place).batch(self._device)

    @property
    def num_val_batches(self) -> int:
        """The batches of `validation_batches()` on one rank."""
        return -(-self.num_sequences // self._batch_size)

    def validation_batches(
        self,
        num_batches: int | None = None,
        *,
        num_sequences: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> Iterator[Batch]:
        """A fixed subset of `num_sequences` sequences, each once, whatever the seed; without a number, all sequences.

        `num_batches` is num_batches * batch_size sequences, so another batch size takes others. The same
        `num_sequences` is the same subset for every batch size.

        They lie evenly over all sequences and are the same for every world size: each rank takes its share. All ranks
        get the same number of batches, of the same shapes: rows that are left over have only targets of -100. A mean
        over the sequences therefore weighs each batch by what counts in it, which can be nothing on some rank.
        """
        check_within("rank", rank, world_size, "world_size")
        wanted = size_of_subset(self.num_sequences, self._batch_size, num_batches, num_sequences)
        share = slice(rank * self._batch_size, (rank + 1) * self._batch_size)
        for sequences_U, width in self._order.validation_units(wanted, world_size * self._batch_size):
            yield self._made(Task(sequences_U[share], width)).batch(self._device)

    def _task(self, rank: int, world_size: int, place: int) -> Task:
        unit = self._order.unit(place, world_size * self._batch_size)
        return Task(unit.of_rank(rank, self._batch_size), unit.width)

    def _made(self, task: Task) -> Padded:
        made = padded(self._source, task, vocab_size=self._vocab_size)
        return made.pin_memory() if self._pin_memory else made

    # Who reads ahead

    def _loader(self, rank: int, world_size: int) -> _ThreadLoader | WorkerLoader:
        if self._ahead is None or self._ahead[0] != (rank, world_size):
            self.close()
            self._ahead = (rank, world_size), self._new_loader(rank, world_size)
        return self._ahead[1]

    def _new_loader(self, rank: int, world_size: int) -> _ThreadLoader | WorkerLoader:
        task = partial(self._task, rank, world_size)
        if not self._num_workers:
            return _ThreadLoader(lambda place: self._made(task(place)), self._device)
        return WorkerLoader(
            self._source,
            task,
            num_workers=self._num_workers,
            prefetch_factor=self._prefetch_factor,
            pin_memory=self._pin_memory,
            vocab_size=self._vocab_size,
        )

    def close(self) -> None:
        """End the thread or the workers that read ahead; asking for another batch starts them again."""
        if self._ahead is not None:
            self._ahead[1].close()

    def __enter__(self) -> SequenceDataset:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<SequenceDataset: {self.num_sequences:,} sequences, {self._batch_size:,} in a batch, "
            f"padded to {', '.join(map(str, self._bounds))}>"
        )

    def _check_workers(self, num_workers: int) -> int:
        number = check_whole_number("num_workers", num_workers)
        if number < 0:
            raise OptionError(f"num_workers={number} is negative. Pass 0 for a thread, or the number of processes.")
        cores = usable_cores()
        if number > cores:
            self.messages.append(f"num_workers={number} is more than the {cores} cores here: {cores} workers read.")
        return min(number, cores)


class _ThreadLoader:
    """`take(i)` is make(i), made by a thread of this process."""

    def __init__(self, make: Callable[[int], Padded], device: torch.device) -> None:
        initializer = None
        if device.type == "cuda":
            # A new thread is on device 0 and would take memory there, whichever device this rank has.
            index = torch.cuda.current_device() if device.index is None else device.index
            initializer = partial(torch.cuda.set_device, index)
        self._ahead = ReadAhead(make, initializer=initializer)
        self.close = self._ahead.close

    def take(self, number: int) -> Padded:
        return self._ahead.take(number, 1)


def _find_bounds(source: SequenceSource, max_sequence_length: int, num_buckets: int | None) -> list[int]:
    if not source.num_sequences:
        raise TrainingError("there is no sequence: every document is empty. Pass documents with text.")
    longest = int(source.lengths_N.max())
    if longest > max_sequence_length:
        raise OptionError(
            f"max_sequence_length={max_sequence_length}, but a sequence has {longest:,} tokens. "
            f"Pass the max_sequence_length with which the sequences were opened."
        )
    if num_buckets is None:
        return [max_sequence_length]
    return choose_bounds(source.lengths_N, num_buckets=num_buckets, longest=max_sequence_length)
