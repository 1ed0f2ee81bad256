"""TokenDataset: the batches of a run as a pure function of step and rank, and windows for other training loops.

Shapes: B sequences per micro-batch, T tokens per sequence.
"""

from __future__ import annotations

import mmap
import operator
import os
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from gristmill.arguments import check_whole_number
from gristmill.errors import OptionError, TrainingError
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.data.document_ids import changes_of_document
from gristmill.lm.data.read_ahead import ReadAhead
from gristmill.lm.data.token_source import ArrayTokens, JoinedTokens, TokenFiles, TokenSource
from gristmill.lm.data.window_batches import DeviceTokens, HostTokens
from gristmill.lm.data.window_order import BatchOrder, MixedOrder, Order, WindowOrder, check_weights, shares_of
from gristmill.shards.shards import Shards

if TYPE_CHECKING:
    from gristmill.lm.data.torch_datasets import WindowMap, WindowStream

__all__ = ["TokenDataset", "validation_shards"]

# Share of the device's memory that tokens may use with keep_on_device="auto". The rest is for the model.
DEVICE_SHARE = 0.1

Form: TypeAlias = Literal["huggingface", "pairs"]


class TokenDataset(Dataset[dict[str, Tensor]]):
    """Batches of windows over all tokens of a split, and a dataset for other training loops.

    Window w is tokens[w T : w T + T + 1] of the split, across shard boundaries: T inputs, and as targets the same
    tokens shifted by one. So every token but the first is a target once, and fewer than T tokens at the end are unused.

    The windows of an epoch come in an order shuffled by `seed`, each exactly once over all ranks, micro-batches and
    steps. Every epoch has a different order. Epochs follow each other without a gap: the last step of an epoch takes
    its missing windows from the next epoch, so no step is short and no window is dropped. (With torch's
    `drop_last=True` the last windows would be dropped; with False the last batch would be smaller.)

    With `document_mask`, a batch contains the document of each token, so that attention can stay inside a document. The
    targets are the same with and without it: the last token of a document still predicts the first token of the next.
    That is how a model learns an end-of-text token before documents, and how to start a document after one.

    For `torch.utils.data.DataLoader` and the Hugging Face Trainer the dataset has a length and items: `dataset[i]` is
    window i in text order, {"input_ids", "labels"}. Both hold the same T tokens, because transformers models shift the
    labels themselves. `to_map_dataset("pairs")` gives (inputs, targets) with shifted targets, and `to_iterable_dataset`
    gives windows in the shuffled order of `batch`.

    Args:
        shards: Shards, or an array of ids such as np.memmap("train.bin", np.uint16), or a list of these to mix. Nothing
            is read yet. A shard that is truncated while in use raises `InputChangedError`; a truncated memory map ends
            the process with SIGBUS.
        context_length: Tokens per window, T.
        batch_size: Windows per micro-batch of one rank.
        seed: Seed of the order.
        weights: Share of the sequences that each source of a list gets; None: in proportion to their sizes. The shares
            hold in every 1,000 sequences. Each source gives all its windows once before it repeats one.
        shift_windows: Start the windows of every epoch after the first at an offset below `context_length`, chosen by
            `seed`, so that contexts differ between epochs.
        document_mask: Add the document of each token to the batches.
        device: Device of the batches.
        keep_on_device: Copy all tokens to the device once. "auto" does so on a GPU if they use at most a tenth of its
            memory. Otherwise they are read from their files.
        prefetch: Prepare the next batches in a thread while the model computes, in page-locked memory for a GPU.
        vocab_size: Check that ids are below this number. A larger id raises a `TrainingError` that names the file and
            the token. None: no check, and the model fails on a larger id, on a GPU by a CUDA assertion.

    Raises:
        OptionError: An option is out of range.
        TrainingError: There are too few tokens for one window.
        TypeError: `shards` is neither shards nor an array.

    Examples:
        >>> dataset = TokenDataset(np.arange(100, dtype=np.uint16), context_length=8, batch_size=2)
        >>> dataset.num_windows, dataset.tokens_per_step(world_size=2), dataset.epoch(6)
        (12, 32, 1.0)
        >>> dataset.batch(step=100).inputs_BT.shape
        torch.Size([2, 8])
        >>> dataset[0]["input_ids"].tolist()
        [0, 1, 2, 3, 4, 5, 6, 7]
        >>> len(list(dataset.validation_batches(num_sequences=4)))
        2
        >>> inputs, targets = dataset.to_map_dataset("pairs")[0]
        >>> len(list(dataset.to_iterable_dataset()))
        12
        >>> starts = dataset.starts_of([0, 1])
        >>> starts.tolist(), len(dataset.items(starts, "pairs")), dataset.tokens_in_step(0)
        ([0, 8], 2, (16, 16))
        >>> len(dataset.starts_from(0, 3))
        3
        >>> dataset.close()
    """

    def __init__(
        self,
        shards: Shards | NDArray[Any] | Sequence[Shards | NDArray[Any]],
        *,
        context_length: int,
        batch_size: int = 32,
        seed: int = 0,
        weights: Sequence[float] | None = None,
        shift_windows: bool = True,
        document_mask: bool = False,
        device: torch.device | str = "cpu",
        keep_on_device: bool | Literal["auto"] = "auto",
        prefetch: bool = True,
        vocab_size: int | None = None,
    ) -> None:
        """Open the sources. Nothing is read yet."""
        self._arguments: dict[str, Any] = {
            "context_length": check_positive("context_length", context_length),
            "batch_size": check_positive("batch_size", batch_size),
            "seed": check_seed(seed),
            "shift_windows": bool(shift_windows),
            "document_mask": bool(document_mask),
            "device": torch.device(device),
            "keep_on_device": _check_keep(keep_on_device),
            "prefetch": bool(prefetch),
            "vocab_size": None if vocab_size is None else check_positive("vocab_size", vocab_size),
        }
        self._shards = shards
        self._sources: list[Any] = list(shards) if _are_several(shards) else [shards]
        self._parts = [_source(source, document_mask) for source in self._sources]
        self._context_length = context_length
        self._device = torch.device(device)
        self._arguments["weights"] = _checked_weights(weights, self._parts)
        self._tokens = self._parts[0] if len(self._parts) == 1 else JoinedTokens(self._parts)
        self._order = self._new_order()
        self._batches = BatchOrder(self._order, self._arguments["batch_size"])
        self._ahead: tuple[int, ReadAhead[Batch]] | None = None  # the stride in windows, and the thread for it

    def _new_order(self) -> Order:
        length, seed, shift = (self._arguments[name] for name in ("context_length", "seed", "shift_windows"))
        sizes = [tokens.begins[-1] for tokens in self._parts]
        for size in sizes:
            check_enough_tokens(size, length)
        if len(sizes) == 1:
            return WindowOrder(sizes[0], length, seed=seed, shift=shift)
        weights = self._arguments["weights"] or [(size - 1) // length for size in sizes]
        return MixedOrder(sizes, length, shares=shares_of(weights), seed=seed, shift=shift)

    # Sizes

    @property
    def num_windows(self) -> int:
        """Windows per epoch, of all sources together."""
        return self._order.num_windows

    @property
    def num_sequences(self) -> int:
        """The same as `num_windows`: a window is a sequence of a batch."""
        return self.num_windows

    @property
    def bounds(self) -> list[int]:
        """The lengths that batches can have: one."""
        return [self._context_length]

    @property
    def context_length(self) -> int:
        """Inputs per window."""
        return self._context_length

    @property
    def batch_size(self) -> int:
        """Sequences per micro-batch of one rank."""
        size: int = self._arguments["batch_size"]
        return size

    @property
    def seed(self) -> int:
        """Seed of the order."""
        number: int = self._arguments["seed"]
        return number

    @property
    def what_decides(self) -> dict[str, Any]:
        """Everything that determines the shuffled order of windows, as JSON values.

        The content of the shards is not read.
        """
        shares = self._order.shares if isinstance(self._order, MixedOrder) else None
        return {
            **{name: self._arguments[name] for name in ("seed", "context_length", "batch_size", "shift_windows")},
            "num_windows": self.num_windows,
            "shares": shares,
        }

    def tokens_per_step(self, *, world_size: int = 1, num_micro_steps: int = 1) -> int:
        """Return the number of inputs in all micro-batches of all ranks of a step.

        Args:
            world_size: Number of ranks.
            num_micro_steps: Micro-batches per step and rank.
        """
        return self.batch_size * world_size * num_micro_steps * self._context_length

    def tokens_in_step(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> tuple[int, int]:
        """Return (tokens, tokens with padding) of a step. Both are the same: windows have no padding.

        Args:
            step: Step, counted from 0. All steps have the same number.
            world_size: Number of ranks.
            num_micro_steps: Micro-batches per step and rank.
        """
        number = self.tokens_per_step(world_size=world_size, num_micro_steps=num_micro_steps)
        return number, number

    @property
    def num_val_batches(self) -> int:
        """Number of batches of `validation_batches()` on one rank."""
        return -(-self.num_windows // self.batch_size)

    def epoch(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> float:
        """Return the number of passes over all windows before `step`: 1.5 is the middle of the second.

        Args:
            step: Step, counted from 0.
            world_size: Number of ranks.
            num_micro_steps: Micro-batches per step and rank.
        """
        windows_per_step = self.batch_size * world_size * num_micro_steps
        return step * windows_per_step / self.num_windows

    # Batches

    def batch(
        self, step: int, *, rank: int = 0, world_size: int = 1, micro_step: int = 0, num_micro_steps: int = 1
    ) -> Batch:
        """Return micro-batch `micro_step` of `step` for this rank, on the device.

        It depends on the arguments only. The windows of a step do not depend on how they are divided among ranks and
        micro-batches, as long as batch_size * world_size * num_micro_steps is the same.

        Args:
            step: Step, counted from 0.
            rank: This process.
            world_size: Number of ranks.
            micro_step: Micro-batch within the step, counted from 0.
            num_micro_steps: Micro-batches per step and rank.

        Raises:
            OptionError: An argument is out of range.
            TrainingError: An id is not below `vocab_size`.
            InputChangedError: A shard changed while in use.
        """
        check_within("rank", rank, world_size, "world_size")
        check_within("micro_step", micro_step, num_micro_steps, "num_micro_steps")
        if step < 0:
            raise OptionError(f"step must be >= 0, got {step}.")
        stride = world_size * self.batch_size
        first = (step * num_micro_steps + micro_step) * stride + rank * self.batch_size
        if self._on_device is not None:
            return self._on_device.batch(self._batches.starts(first, stride))
        if not self._arguments["prefetch"]:
            return self._moved(_batch_from(self._batches, self._on_host, stride, first))
        return self._moved(self._reading_ahead(stride).take(first, stride))

    def validation_batches(
        self,
        num_batches: int | None = None,
        *,
        num_sequences: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> Iterator[Batch]:
        """Yield a fixed subset of the windows in a fixed order, independent of the seed.

        The subset is spread evenly over the split and is the same for every world size; each rank gets its share. All
        ranks get the same number of batches of one shape; surplus rows have only targets of -100. A mean over windows
        must therefore weight each batch by `batch.num_targets`, which can be 0 on some rank.

        Args:
            num_batches: Size of the subset in batches of `batch_size`, so it depends on the batch size.
            num_sequences: Size of the subset in windows, which gives the same subset for every batch size. None,
                without `num_batches`: all windows.
            rank: This process.
            world_size: Number of ranks.

        Raises:
            OptionError: An argument is out of range, or both sizes are given.
        """
        check_within("rank", rank, world_size, "world_size")
        wanted = size_of_subset(self.num_windows, self.batch_size, num_batches, num_sequences)
        for first in range(0, wanted, world_size * self.batch_size):
            begin = first + rank * self.batch_size
            chosen = np.arange(begin, max(begin, min(begin + self.batch_size, wanted)), dtype=np.int64)
            yield self._padded(chosen * self.num_windows // wanted)

    def _padded(self, windows: NDArray[np.int64]) -> Batch:
        """Return these windows, padded with ignored rows to the batch size.

        Another shape would make a compiled model compile again.
        """
        windows_B = np.zeros(self.batch_size, np.int64)
        windows_B[: len(windows)] = windows
        source = self._on_host if self._on_device is None else self._on_device
        batch = source.batch(self._order.in_text_order(windows_B))
        batch.targets_BT[len(windows) :] = IGNORED
        return self._moved(batch)

    def _moved(self, batch: Batch) -> Batch:
        return batch.to(self._device, non_blocking=self._device.type == "cuda")

    # Single windows, for other training loops

    def __len__(self) -> int:
        return self.num_windows

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Return {"input_ids", "labels"} of window `index` in text order, on the CPU."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Tensor]]:
        """Return several windows, read at once. Torch's DataLoader calls it once per batch."""
        items: list[dict[str, Tensor]] = self.items(self.starts_of(indices), "huggingface")
        return items

    def to_map_dataset(self, form: Form = "pairs") -> WindowMap:
        """Return the windows as a `torch.utils.data.Dataset`.

        Args:
            form: Form of the items. "huggingface": {"input_ids", "labels"}, both the same T tokens, because
                transformers models shift the labels; with `document_mask` also "document_ids". "pairs": (inputs,
                targets), the targets shifted by one token as in nanoGPT; with `document_mask` (inputs, targets,
                document_ids).

        Raises:
            OptionError: `form` is not valid.
        """
        from gristmill.lm.data.torch_datasets import WindowMap

        return WindowMap(self, form)

    def to_iterable_dataset(
        self,
        form: Form = "huggingface",
        *,
        num_epochs: int | None = 1,
        rank: int = 0,
        world_size: int = 1,
        skip: int = 0,
    ) -> WindowStream:
        """Return the windows in the shuffled order of `batch`, as a `torch.utils.data.IterableDataset`.

        Pass this dataset's batch_size to the DataLoader to get the batches of `batch`, for any number of workers.
        Another batch size gives the same windows in other batches.

        Args:
            form: Form of the items, as in `to_map_dataset`.
            num_epochs: Epochs per iteration. None: endless. `set_epoch` of the result sets the first epoch.
            rank: This process.
            world_size: Number of processes. Each gets its share; together they get every window once. Leave `rank` and
                `world_size` out where the training loop divides the data itself, as the Hugging Face Trainer does.
            skip: Number of windows that earlier training has used, counted from the start of epoch 0 over all
                processes.

        Raises:
            OptionError: An argument is out of range.
        """
        from gristmill.lm.data.torch_datasets import WindowStream

        return WindowStream(self, form, num_epochs=num_epochs, rank=rank, world_size=world_size, skip=skip)

    def starts_of(self, indices: Sequence[int]) -> NDArray[np.int64]:
        """Return the positions of the first tokens of windows, by their numbers in text order.

        Args:
            indices: Numbers of windows.

        Raises:
            IndexError: There is no window with this number.
        """
        return self._order.in_text_order(np.array([self._checked_index(index) for index in indices], np.int64))

    def _checked_index(self, index: Any) -> int:
        number = operator.index(index)
        if not 0 <= number < self.num_windows:
            raise IndexError(f"there is no window {number}. Pass a number from 0 to {self.num_windows - 1:,}.")
        return number

    def starts_from(self, first: int, number: int) -> NDArray[np.int64]:
        """Return the positions of the first tokens of consecutive windows in the shuffled order.

        Args:
            first: First place in the shuffled order.
            number: Number of windows.
        """
        return self._order.starts(np.arange(first, first + number))

    def items(self, starts_B: NDArray[np.int64], form: Form) -> list[Any]:
        """Return the windows that start at these tokens, on the CPU.

        Args:
            starts_B: Positions of their first tokens.
            form: Form of the items, as in `to_map_dataset`.

        Raises:
            TrainingError: An id is not below `vocab_size`.
            InputChangedError: A shard changed while in use.
        """
        # Copies, so that tensors of different items share no memory and pickling an item sends only that item.
        windows_BS = torch.from_numpy(self._on_host.windows(starts_B).astype(np.int64))
        ids_BT = self._on_host.document_ids(starts_B)
        documents = [{}] * len(starts_B) if ids_BT is None else [{"document_ids": ids_T.clone()} for ids_T in ids_BT]
        rows = list(zip(windows_BS, documents, strict=True))
        if form == "pairs":
            return [(row[:-1].clone(), row[1:].clone(), *extra.values()) for row, extra in rows]
        return [{"input_ids": row[:-1].clone(), "labels": row[:-1].clone(), **extra} for row, extra in rows]

    # Location of the tokens

    @property
    def tokens_on_device(self) -> bool:
        """Whether all tokens are kept on the device."""
        keep = self._arguments["keep_on_device"]
        if keep != "auto":
            return bool(keep)
        if self._device.type != "cuda":  # in main memory, the page cache serves as the copy
            return False
        num_bytes = self._tokens.begins[-1] * self._tokens.dtype.itemsize
        return num_bytes <= DEVICE_SHARE * torch.cuda.get_device_properties(self._device).total_memory

    @cached_property
    def _on_device(self) -> DeviceTokens | None:
        if not self.tokens_on_device:
            return None
        return DeviceTokens(
            self._tokens,
            context_length=self._context_length,
            changes_D=self._changes_D,
            vocab_size=self._arguments["vocab_size"],
            device=self._device,
        )

    @cached_property
    def _on_host(self) -> HostTokens:
        return HostTokens(
            self._tokens,
            context_length=self._context_length,
            changes_D=self._changes_D,
            vocab_size=self._arguments["vocab_size"],
            pin_memory=self._device.type == "cuda",
        )

    @cached_property
    def _changes_D(self) -> NDArray[np.int64] | None:
        if not self._arguments["document_mask"]:
            return None
        bases = np.cumsum([0, *(tokens.begins[-1] for tokens in self._parts)])
        changes = [changes_of_document(source.document_ends) for source in self._sources]
        return np.concatenate([base + change for base, change in zip(bases, changes, strict=False)])

    # Prefetching

    def _reading_ahead(self, stride: int) -> ReadAhead[Batch]:
        if self._ahead is None or self._ahead[0] != stride:
            self.close()
            self._ahead = stride, self._new_read_ahead(stride)
        return self._ahead[1]

    def _new_read_ahead(self, stride: int) -> ReadAhead[Batch]:
        initializer = None
        if self._device.type == "cuda":
            # A new thread starts on device 0 and would allocate memory there, even if this rank has another device.
            index = torch.cuda.current_device() if self._device.index is None else self._device.index
            initializer = partial(torch.cuda.set_device, index)
        return ReadAhead(partial(_batch_from, self._batches, self._on_host, stride), initializer=initializer)

    def close(self) -> None:
        """Stop the prefetching thread. The next call of `batch` starts it again."""
        if self._ahead is not None:
            self._ahead[1].close()

    def __enter__(self) -> TokenDataset:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        sources = [_to_send(source) for source in self._sources]
        return _received, (sources, _are_several(self._shards), self._arguments)

    def __repr__(self) -> str:
        return (
            f"<TokenDataset: {self.num_windows:,} windows of {self._context_length:,} tokens, "
            f"{self.batch_size:,} in a batch>"
        )


def validation_shards(folder: str | os.PathLike[str]) -> Shards | None:
    """Return the split "val" of a folder of shards, or None if it has no such split."""
    shards = Shards(folder)
    return shards.other_split("val") if "val" in shards.splits else None


def _batch_from(order: BatchOrder, tokens: HostTokens, stride: int, first: int) -> Batch:
    return tokens.batch(order.starts(first, stride))


def _are_several(shards: Any) -> bool:
    """Whether it is a list of sources. A list of anything else, such as ids, is rejected as a whole."""
    return isinstance(shards, list | tuple) and all(isinstance(source, Shards | np.ndarray) for source in shards)


def _to_send(source: Shards | NDArray[Any]) -> Any:
    """Return the picklable form of a source: for a memory map of a whole file its path, not its content."""
    if isinstance(source, np.memmap) and isinstance(source.base, mmap.mmap) and source.filename is not None:
        place = {"dtype": source.dtype, "mode": "r", "offset": source.offset, "shape": source.shape}
        return partial(np.memmap, source.filename, **place)
    return source


def _received(sources: list[Any], is_list: bool, arguments: dict[str, Any]) -> TokenDataset:
    opened = [source() if isinstance(source, partial) else source for source in sources]
    return TokenDataset(opened if is_list else opened[0], **arguments)


def _checked_weights(weights: Sequence[float] | None, parts: list[TokenSource]) -> list[float] | None:
    if not parts:
        raise OptionError("shards is an empty list. Pass gristmill.Shards(folder), or several of them.")
    return None if weights is None else check_weights(weights, len(parts))


def _source(shards: Shards | NDArray[Any], document_mask: bool) -> TokenSource:
    if isinstance(shards, Shards):
        return TokenFiles(shards.tokens)
    if not isinstance(shards, np.ndarray):
        raise TypeError(
            f"shards is of type {type(shards).__name__}. Pass gristmill.Shards(folder), or an array of ids such as "
            f"np.memmap('train.bin', np.uint16)."
        )
    if document_mask:
        raise OptionError(
            "document_mask=True needs the ends of documents, which an array of ids does not have. "
            "Pass gristmill.Shards(folder), or document_mask=False."
        )
    return ArrayTokens(shards)


def check_enough_tokens(num_tokens: int, context_length: int) -> None:
    """Raise `TrainingError` if there are too few tokens for one window."""
    if num_tokens <= context_length:
        shorter = f"Pass context_length <= {num_tokens - 1:,}, or encode" if num_tokens > 1 else "Encode"
        raise TrainingError(
            f"there are {num_tokens:,} tokens, and one window of context_length={context_length:,} needs "
            f"{context_length + 1:,}. {shorter} more text."
        )


def size_of_subset(total: int, batch_size: int, num_batches: int | None, num_sequences: int | None) -> int:
    """Return how many of `total` sequences a validation uses; all of them if no number is given."""
    if num_batches is not None and num_sequences is not None:
        raise OptionError(
            f"num_batches={num_batches} and num_sequences={num_sequences} both give the size of the subset. Pass one."
        )
    if num_batches is not None:
        return min(total, check_positive("num_batches", num_batches) * batch_size)
    return total if num_sequences is None else min(total, check_positive("num_sequences", num_sequences))


def check_positive(name: str, value: Any) -> int:
    """Return `value` if it is a whole number of at least 1."""
    number = check_whole_number(name, value)
    if number < 1:
        raise OptionError(f"{name} must be >= 1, got {number}.")
    return number


def check_within(name: str, value: int, count: int, count_name: str) -> None:
    """Raise `OptionError` unless 0 <= value < count."""
    if not 0 <= value < count:
        raise OptionError(f"{name} must be >= 0 and < {count_name}={count}, got {value}.")


def check_seed(seed: Any) -> int:
    """Return `seed` if it is a whole number from 0 to 2**64 - 1."""
    number = check_whole_number("seed", seed)
    if not 0 <= number < 2**64:
        raise OptionError(f"seed must be >= 0 and < 2**64, got {number}.")
    return number


def _check_keep(keep: Any) -> bool | Literal["auto"]:
    if keep == "auto":
        return "auto"
    if not isinstance(keep, bool):
        raise OptionError(f"keep_on_device={keep!r} is not valid. Pass 'auto', True or False.")
    return keep
