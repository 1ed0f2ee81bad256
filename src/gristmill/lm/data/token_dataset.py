"""TokenDataset: the batches of a run as a pure function of step and rank, and windows for loops of other libraries.

Shapes: B sequences in a micro-batch, T tokens each.
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

# What tokens may take of the memory of a device without being asked to: the rest is for the model.
DEVICE_SHARE = 0.1

Form: TypeAlias = Literal["huggingface", "pairs"]


class TokenDataset(Dataset[dict[str, Tensor]]):
    """Batches of packed windows over all tokens of a split; also a dataset for the loops of other libraries.

    Window w is tokens[w T : w T + T + 1] of the split, whatever shard they lie in: T inputs, and as targets the same
    one token further on. So every token but the first is a target once, and fewer than T at the end are left out.

    The windows of an epoch come in an order shuffled by `seed`, each exactly once over all ranks, micro-batches and
    steps; every epoch has another order. Epochs follow each other without a gap: the last step of one takes its
    missing windows from the next, so no step is short and no window is dropped. So neither value of torch's `drop_last`
    describes it: with True the last windows would be left out, with False the last batch would be smaller.

    With `document_mask` a batch holds which document each token belongs to, so that attention can stay inside it. The
    targets are the same with and without: the last token of a document still predicts the first one of the next. That
    is how end-of-text in front of documents is learnt at all, and how end-of-text after them learns to begin one.

        dataset = TokenDataset(gm.Shards("shards/"), context_length=256, batch_size=32, seed=0)
        batch = dataset.batch(step=100)

    For `torch.utils.data.DataLoader` and the Hugging Face Trainer it has a length and items: `dataset[i]` is window i
    in the order of the text, {"input_ids", "labels"}, both the same T tokens, because models of transformers shift the
    labels themselves. `to_map_dataset("pairs")` has (inputs, targets) with targets shifted already, and
    `to_iterable_dataset` gives windows in the shuffled order of `batch`.

        DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
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
        """`shards`, or an array of ids such as np.memmap("train.bin", np.uint16). Nothing is read yet.

        Several of them in a list are mixed: `weights` are their shares of the sequences; without weights, their sizes.
        The shares hold in every 1,000 sequences. Each source gives its own windows once before it repeats one.
        `shift_windows`: the windows of every epoch but the first begin at an offset that `seed` decides, below
        `context_length`, so that a token is not always predicted from the same context.
        `vocab_size`: a batch with an id that is not below it is a `TrainingError` that names the file and the token.
        Without it nothing is checked, and the model fails as it may: on a GPU by an assertion of CUDA.
        A shard that is cut short while it is in use is an `InputChangedError`. Under a map of yours, it is SIGBUS.
        `keep_on_device`: all tokens are copied to the device once; "auto" does so on a GPU where they take at most a
        tenth of its memory. Otherwise they stay in their files, from which a thread makes the next batches while the
        model works on this one (`prefetch`), in page-locked memory for a GPU.
        """
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
        self._ahead: tuple[int, ReadAhead[Batch]] | None = None  # for batches that lie so many windows apart

    def _new_order(self) -> Order:
        length, seed, shift = (self._arguments[name] for name in ("context_length", "seed", "shift_windows"))
        sizes = [tokens.begins[-1] for tokens in self._parts]
        for size in sizes:
            check_enough_tokens(size, length)
        if len(sizes) == 1:
            return WindowOrder(sizes[0], length, seed=seed, shift=shift)
        weights = self._arguments["weights"] or [(size - 1) // length for size in sizes]
        return MixedOrder(sizes, length, shares=shares_of(weights), seed=seed, shift=shift)

    # What it holds

    @property
    def num_windows(self) -> int:
        """The windows of an epoch; of several sources, those of all together."""
        return self._order.num_windows

    @property
    def num_sequences(self) -> int:
        """The same: a window is a sequence of a batch."""
        return self.num_windows

    @property
    def context_length(self) -> int:
        """The inputs of a window."""
        return self._context_length

    @property
    def batch_size(self) -> int:
        """The sequences in a micro-batch of one rank."""
        size: int = self._arguments["batch_size"]
        return size

    @property
    def seed(self) -> int:
        """What decides the order."""
        number: int = self._arguments["seed"]
        return number

    @property
    def what_decides(self) -> dict[str, Any]:
        """What the shuffled order of windows depends on, as JSON has it. The content of the shards is not looked at."""
        shares = self._order.shares if isinstance(self._order, MixedOrder) else None
        return {
            **{name: self._arguments[name] for name in ("seed", "context_length", "batch_size", "shift_windows")},
            "num_windows": self.num_windows,
            "shares": shares,
        }

    def tokens_per_step(self, *, world_size: int = 1, num_micro_steps: int = 1) -> int:
        """The inputs of all micro-batches of all ranks in a step."""
        return self.batch_size * world_size * num_micro_steps * self._context_length

    def tokens_in_step(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> tuple[int, int]:
        """(tokens, the same with padding): every step has as many, and windows have no padding."""
        number = self.tokens_per_step(world_size=world_size, num_micro_steps=num_micro_steps)
        return number, number

    @property
    def num_val_batches(self) -> int:
        """The batches of `validation_batches` on one rank."""
        return -(-self.num_windows // self.batch_size)

    def epoch(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> float:
        """The passes over all windows that lie before `step`: 1.5 is in the middle of the second."""
        windows_per_step = self.batch_size * world_size * num_micro_steps
        return step * windows_per_step / self.num_windows

    # Batches

    def batch(
        self, step: int, *, rank: int = 0, world_size: int = 1, micro_step: int = 0, num_micro_steps: int = 1
    ) -> Batch:
        """The micro-batch number `micro_step` of `step` on this rank, on the device.

        It depends on the arguments alone. The windows of a step are the same however they are divided among ranks and
        micro-batches, as long as batch_size * world_size * num_micro_steps is.
        """
        check_within("rank", rank, world_size, "world_size")
        check_within("micro_step", micro_step, num_micro_steps, "num_micro_steps")
        if step < 0:
            raise OptionError(f"step={step} is negative. Steps are counted from 0.")
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
        """A fixed subset of `num_sequences` windows in a fixed order, whatever the seed; without a number, all windows.

        `num_batches` is num_batches * batch_size windows, so another batch size takes others. The same `num_sequences`
        is the same subset for every batch size.

        The windows lie evenly over the split, and are the same for every world size: each rank takes its share. All
        ranks get the same number of batches, all of one shape: rows that are left over have only targets of -100.
        A mean over the windows therefore weighs each batch by `batch.num_targets`, which can be 0 on some rank.
        """
        check_within("rank", rank, world_size, "world_size")
        wanted = size_of_subset(self.num_windows, self.batch_size, num_batches, num_sequences)
        for first in range(0, wanted, world_size * self.batch_size):
            begin = first + rank * self.batch_size
            chosen = np.arange(begin, max(begin, min(begin + self.batch_size, wanted)), dtype=np.int64)
            yield self._padded(chosen * self.num_windows // wanted)

    def _padded(self, windows: NDArray[np.int64]) -> Batch:
        """These windows, then rows to ignore up to the batch size: another shape would compile the model again."""
        windows_B = np.zeros(self.batch_size, np.int64)
        windows_B[: len(windows)] = windows
        source = self._on_host if self._on_device is None else self._on_device
        batch = source.batch(self._order.in_text_order(windows_B))
        batch.targets_BT[len(windows) :] = IGNORED
        return self._moved(batch)

    def _moved(self, batch: Batch) -> Batch:
        return batch.to(self._device, non_blocking=self._device.type == "cuda")

    # Windows one by one, for the loops of other libraries

    def __len__(self) -> int:
        return self.num_windows

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """{"input_ids", "labels"} of the window with this number, in the order of the text; on the CPU."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Tensor]]:
        """Several windows, read at once: torch's DataLoader asks for those of a batch in this way."""
        items: list[dict[str, Tensor]] = self.items(self.starts_of(indices), "huggingface")
        return items

    def to_map_dataset(self, form: Form = "pairs") -> WindowMap:
        """The same windows as a `torch.utils.data.Dataset` whose items have the given form.

        "huggingface": {"input_ids", "labels"}, both the same T tokens: models of transformers shift the labels. With
        `document_mask` there are "document_ids" too.
        "pairs": (inputs, targets), the targets one token further on, as loops in the manner of nanoGPT take them. With
        `document_mask` it is (inputs, targets, document_ids).
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
        """The windows in the shuffled order of `batch`, as a `torch.utils.data.IterableDataset`.

        num_epochs: how many epochs an iteration takes; None for an endless one. `set_epoch` chooses the first of them.
        rank, world_size: this process and how many there are. Each gets its share; together they get every window once.
            Leave them out where the loop divides the data itself, as the Hugging Face Trainer does.
        skip: how many windows, counted from the start of epoch 0 over all processes, earlier training has had.

        Pass this dataset's batch_size to the DataLoader: the batches are then those of `batch`, whatever the number of
        workers. Another batch size gives the same windows in other batches.
        """
        from gristmill.lm.data.torch_datasets import WindowStream

        return WindowStream(self, form, num_epochs=num_epochs, rank=rank, world_size=world_size, skip=skip)

    def starts_of(self, indices: Sequence[int]) -> NDArray[np.int64]:
        """The first tokens of the windows with these numbers; `IndexError` for a number that no window has."""
        return self._order.in_text_order(np.array([self._checked_index(index) for index in indices], np.int64))

    def _checked_index(self, index: Any) -> int:
        number = operator.index(index)
        if not 0 <= number < self.num_windows:
            raise IndexError(f"there is no window {number}. Windows have the numbers 0 to {self.num_windows - 1:,}.")
        return number

    def starts_from(self, first: int, number: int) -> NDArray[np.int64]:
        """The first tokens of the windows at places `first` to `first + number - 1` of the shuffled order."""
        return self._order.starts(np.arange(first, first + number))

    def items(self, starts_B: NDArray[np.int64], form: Form) -> list[Any]:
        """The windows that begin at these tokens, each on the CPU in the given form."""
        # Copies, so that changing one tensor of an item changes no other, and sending an item sends nothing else.
        windows_BS = torch.from_numpy(self._on_host.windows(starts_B).astype(np.int64))
        ids_BT = self._on_host.document_ids(starts_B)
        documents = [{}] * len(starts_B) if ids_BT is None else [{"document_ids": ids_T.clone()} for ids_T in ids_BT]
        rows = list(zip(windows_BS, documents, strict=True))
        if form == "pairs":
            return [(row[:-1].clone(), row[1:].clone(), *extra.values()) for row, extra in rows]
        return [{"input_ids": row[:-1].clone(), "labels": row[:-1].clone(), **extra} for row, extra in rows]

    # Where the tokens are

    @property
    def tokens_on_device(self) -> bool:
        """True when all tokens are kept on the device."""
        keep = self._arguments["keep_on_device"]
        if keep != "auto":
            return bool(keep)
        if self._device.type != "cuda":  # in main memory the page cache is as good as a copy
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

    # The thread

    def _reading_ahead(self, stride: int) -> ReadAhead[Batch]:
        if self._ahead is None or self._ahead[0] != stride:
            self.close()
            self._ahead = stride, self._new_read_ahead(stride)
        return self._ahead[1]

    def _new_read_ahead(self, stride: int) -> ReadAhead[Batch]:
        initializer = None
        if self._device.type == "cuda":
            # A new thread is on device 0 and would take memory there, whichever device this rank has.
            index = torch.cuda.current_device() if self._device.index is None else self._device.index
            initializer = partial(torch.cuda.set_device, index)
        return ReadAhead(partial(_batch_from, self._batches, self._on_host, stride), initializer=initializer)

    def close(self) -> None:
        """End the thread that reads ahead; asking for another batch starts it again."""
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
    """The split "val" of a folder of shards, or None where there is none."""
    shards = Shards(folder)
    return shards.other_split("val") if "val" in shards.splits else None


def _batch_from(order: BatchOrder, tokens: HostTokens, stride: int, first: int) -> Batch:
    return tokens.batch(order.starts(first, stride))


def _are_several(shards: Any) -> bool:
    """Whether it is a list of sources; a list of anything else, such as ids, is refused as a whole."""
    return isinstance(shards, list | tuple) and all(isinstance(source, Shards | np.ndarray) for source in shards)


def _to_send(source: Shards | NDArray[Any]) -> Any:
    """What is pickled of a source: of a memory map of a whole file the name of the file, not its content."""
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
            f"shards is a {type(shards).__name__}. Pass gristmill.Shards(folder), or an array of ids such as "
            f"np.memmap('train.bin', np.uint16)."
        )
    if document_mask:
        raise OptionError(
            "document_mask=True needs to know where documents end, and an array of ids does not say. "
            "Pass gristmill.Shards(folder), or document_mask=False."
        )
    return ArrayTokens(shards)


def check_enough_tokens(num_tokens: int, context_length: int) -> None:
    """Raise `TrainingError` where there are too few tokens for one window."""
    if num_tokens <= context_length:
        shorter = f"Pass context_length <= {num_tokens - 1:,}, or encode" if num_tokens > 1 else "Encode"
        raise TrainingError(
            f"there are {num_tokens:,} tokens, and one window of context_length={context_length:,} needs "
            f"{context_length + 1:,}. {shorter} more text."
        )


def size_of_subset(total: int, batch_size: int, num_batches: int | None, num_sequences: int | None) -> int:
    """How many of `total` sequences a validation takes: all of them if no number is given."""
    if num_batches is not None and num_sequences is not None:
        raise OptionError(
            f"num_batches={num_batches} and num_sequences={num_sequences} both give the size of the subset. Pass one."
        )
    if num_batches is not None:
        return min(total, check_positive("num_batches", num_batches) * batch_size)
    return total if num_sequences is None else min(total, check_positive("num_sequences", num_sequences))


def check_positive(name: str, value: Any) -> int:
    """`value`, if it is a whole number of at least 1."""
    number = check_whole_number(name, value)
    if number < 1:
        raise OptionError(f"{name}={number} is too small. Pass {name} >= 1.")
    return number


def check_within(name: str, value: int, count: int, count_name: str) -> None:
    """Raise unless `value` is one of 0 … count - 1."""
    if not 0 <= value < count:
        raise OptionError(f"{name}={value} is not among {count_name}={count}. Pass 0 <= {name} < {count_name}.")


def check_seed(seed: Any) -> int:
    """`seed`, if it is one."""
    number = check_whole_number("seed", seed)
    if not 0 <= number < 2**64:
        raise OptionError(f"seed={number} is out of range. Pass 0 <= seed < 2**64.")
    return number


def _check_keep(keep: Any) -> bool | Literal["auto"]:
    if keep == "auto":
        return "auto"
    if not isinstance(keep, bool):
        raise OptionError(f"keep_on_device={keep!r} is not known. Pass 'auto', True or False.")
    return keep
