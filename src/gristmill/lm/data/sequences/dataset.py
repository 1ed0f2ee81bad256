"""SequenceDataset: the batches of a run over whole sequences, as a pure function of step and rank.

Shapes: N sequences in all, B per micro-batch of one rank, U per micro-batch of all ranks, padded to T.
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

    With `use_dynamic_padding`, sequences of similar length are batched together and padded to one of `num_buckets`
    widths, which `choose_bounds` selects for the least padding. Without it, all are padded to max_sequence_length.

    An epoch has every sequence at most once, and omits fewer sequences than one micro-batch of all ranks has (see
    order.py). Epochs follow each other without a gap.

    Every micro-batch is full: the remainder of num_sequences / (world_size * batch_size) is omitted from that epoch.
    The seed chooses different sequences in each epoch, each equally often. This corresponds to `drop_last=True` of
    torch's DataLoader. There is no `drop_last=False`: its smaller last batch would make a compiled model compile again,
    and would give its few sequences more weight. Validation omits nothing; it pads its last batch with rows that do not
    count.

    A batch depends only on the arguments of `batch`, not on the workers that read it or on earlier calls. In a
    micro-step, the batches of all ranks have the same shape.

    Args:
        source: The sequences, such as `train` of `open_sequences`. Only their lengths are read at first.
        max_sequence_length: Maximum tokens per sequence, as passed to `open_sequences`.
        batch_size: Sequences per micro-batch of one rank.
        seed: Seed of the order.
        use_dynamic_padding: Pad to similar lengths instead of max_sequence_length.
        num_buckets: Number of different widths with use_dynamic_padding.
        device: Device of the batches.
        num_workers: Processes that read and pad batches in advance, at most one per core. 0: a thread.
        pin_memory: Put batches for a GPU in page-locked memory first, from which the GPU copies asynchronously.
        prefetch_factor: Batches that each worker prepares in advance.
        vocab_size: Check that ids are below this number. None: no check, and the model fails on a larger id.

    Attributes:
        messages: Messages for the user.

    Raises:
        OptionError: An option is out of range, or a sequence is longer than `max_sequence_length`.
        TrainingError: There is no sequence.

    Examples:
        ```python
        data = gm.lm.open_sequences("stories.parquet", tokenizer="tokenizer.json")
        with gm.lm.SequenceDataset(
            data.train, max_sequence_length=1000, batch_size=32, seed=0, use_dynamic_padding=True
        ) as dataset:
            print(dataset.steps_per_epoch(), dataset.padding_waste(), dataset.tokens_in_step(100))
            batch = dataset.batch(step=100)
            for batch in dataset.validation_batches(num_sequences=100):
                ...
            dataset.close()
        ```
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
        """Read the lengths of all sequences, but no sequence."""
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
        # The thread or workers that prepare batches in advance, for one (rank, world_size).
        self._ahead: tuple[tuple[int, int], _ThreadLoader | WorkerLoader] | None = None

    # Sizes

    @property
    def num_sequences(self) -> int:
        """Number of sequences, N."""
        return self._order.num_sequences

    @property
    def batch_size(self) -> int:
        """Sequences per micro-batch of one rank."""
        return self._batch_size

    @property
    def bounds(self) -> list[int]:
        """The widths that batches can have."""
        return list(self._bounds)

    @property
    def num_workers(self) -> int:
        """Number of worker processes, at most the number of cores."""
        return self._num_workers

    def steps_per_epoch(self, *, world_size: int = 1, num_micro_steps: int = 1) -> float:
        """Return the number of steps per epoch.

        Args:
            world_size: Number of ranks.
            num_micro_steps: Micro-batches per step and rank.

        Raises:
            TrainingError: There are fewer sequences than one micro-batch of all ranks needs.
        """
        return self._order.num_units(world_size * self._batch_size) / num_micro_steps

    def tokens_in_step(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> tuple[int, int]:
        """Return (tokens without padding, slots with padding) of all ranks and micro-batches, without reading data.

        Args:
            step: Step, counted from 0.
            world_size: Number of ranks.
            num_micro_steps: Micro-batches per step and rank.

        Raises:
            TrainingError: There are fewer sequences than one micro-batch of all ranks needs.
        """
        unit_size = world_size * self._batch_size
        units = [self._order.unit(step * num_micro_steps + i, unit_size) for i in range(num_micro_steps)]
        return sum(unit.num_tokens for unit in units), sum(unit.width * unit_size for unit in units)

    def padding_waste(self, world_size: int = 1) -> float:
        """Return the share of padding in the slots of an epoch.

        Args:
            world_size: Number of ranks.

        Raises:
            TrainingError: There are fewer sequences than one micro-batch of all ranks needs.
        """
        num_tokens, num_slots = self._order.epoch_slots(0, world_size * self._batch_size)
        return 1 - num_tokens / num_slots

    # Batches

    def batch(
        self, step: int, *, rank: int = 0, world_size: int = 1, micro_step: int = 0, num_micro_steps: int = 1
    ) -> Batch:
        """Return micro-batch `micro_step` of `step` for this rank, on the device.

        The rows of all ranks together are the same for the same world_size * batch_size.

        Args:
            step: Step, counted from 0.
            rank: This process.
            world_size: Number of ranks.
            micro_step: Micro-batch within the step, counted from 0.
            num_micro_steps: Micro-batches per step and rank.

        Raises:
            OptionError: An argument is out of range.
            TrainingError: An id is not below `vocab_size`, a worker died, or there are too few sequences for a batch.
        """
        check_within("rank", rank, world_size, "world_size")
        check_within("micro_step", micro_step, num_micro_steps, "num_micro_steps")
        if step < 0:
            raise OptionError(f"step must be >= 0, got {step}.")
        self._order.num_units(world_size * self._batch_size)  # raises here instead of in a thread
        place = step * num_micro_steps + micro_step
        return self._loader(rank, world_size).take(place).batch(self._device)

    @property
    def num_val_batches(self) -> int:
        """Number of batches of `validation_batches()` on one rank."""
        return -(-self.num_sequences // self._batch_size)

    def validation_batches(
        self,
        num_batches: int | None = None,
        *,
        num_sequences: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> Iterator[Batch]:
        """Yield a fixed subset of the sequences, each once, independent of the seed.

        The subset is spread evenly over all sequences and is the same for every world size; each rank gets its share.
        All ranks get the same number of batches of the same shapes; surplus rows have only targets of -100. A mean over
        sequences must therefore weight each batch by the targets that count, which can be none on some rank.

        Args:
            num_batches: Size of the subset in batches of `batch_size`, so it depends on the batch size.
            num_sequences: Size of the subset in sequences, which gives the same subset for every batch size. None,
                without `num_batches`: all sequences.
            rank: This process.
            world_size: Number of ranks.

        Raises:
            OptionError: An argument is out of range, or both sizes are given.
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

    # Prefetching

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
            num_rows=self._batch_size,
            max_width=max(self._bounds),
            num_workers=self._num_workers,
            prefetch_factor=self._prefetch_factor,
            device=self._device,
            pin_memory=self._pin_memory,
            vocab_size=self._vocab_size,
        )

    def close(self) -> None:
        """Stop the prefetching thread or workers. The next call of `batch` starts them again."""
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
            raise OptionError(f"num_workers must be >= 0, got {number}. Pass 0 to use a thread instead of processes.")
        cores = usable_cores()
        if number > cores:
            self.messages.append(f"num_workers={number} is more than the {cores} cores: using {cores} workers.")
        return min(number, cores)


class _ThreadLoader:
    """A loader whose `take(i)` returns make(i), computed in advance by a thread."""

    def __init__(self, make: Callable[[int], Padded], device: torch.device) -> None:
        initializer = None
        if device.type == "cuda":
            # A new thread starts on device 0 and would allocate memory there, even if this rank has another device.
            index = torch.cuda.current_device() if device.index is None else device.index
            initializer = partial(torch.cuda.set_device, index)
        self._ahead = ReadAhead(make, initializer=initializer)
        self.close = self._ahead.close

    def take(self, number: int) -> Padded:
        return self._ahead.take(number, 1)


def _find_bounds(source: SequenceSource, max_sequence_length: int, num_buckets: int | None) -> list[int]:
    if not source.num_sequences:
        raise TrainingError("there are no sequences: every document is empty. Pass documents with text.")
    longest = int(source.lengths_N.max())
    if longest > max_sequence_length:
        raise OptionError(
            f"max_sequence_length={max_sequence_length}, but a sequence has {longest:,} tokens. "
            f"Pass the max_sequence_length with which the sequences were opened."
        )
    if num_buckets is None:
        return [max_sequence_length]
    return choose_bounds(source.lengths_N, num_buckets=num_buckets, longest=max_sequence_length)
