"""ConversationData: conversations from JSON lines, packed into rows, with the assistant's responses as targets.

A row holds several conversations, and `document_ids_BT` separates them: a token attends only to its own conversation.
All conversations are kept in memory as ids.

Shapes: B rows of T tokens per micro-batch.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from gristmill._core import Xxh64
from gristmill.encode import Ragged, as_tokenizer
from gristmill.errors import CorpusError, OptionError
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.data.chat_template import ChatTemplate, EncodedChat, WrittenChat
from gristmill.lm.data.conversation_files import Conversation, read_conversations
from gristmill.lm.data.packing import packed
from gristmill.lm.data.permutation import permuted
from gristmill.lm.data.token_dataset import check_within, size_of_subset
from gristmill.lm.data.training_data import Dataset, check_is_no_run, is_shards
from gristmill.shards import Shards

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.data.mixture import TrainSources
    from gristmill.lm.data.options import WindowOptions

__all__ = ["ConversationData", "ConversationDataset", "Conversations", "open_conversations"]

CHUNK = 1024  # conversations encoded at once


@dataclass(frozen=True)
class Conversations:
    """The conversations of a split: all ids, which of them are targets, and the offset of each conversation."""

    ids: NDArray[np.uint32]
    is_target: NDArray[np.bool_]
    offsets: NDArray[np.int64]  # one more than the number of conversations

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of inputs per conversation. Its last token is only a target."""
        return np.diff(self.offsets) - 1


def open_conversations(data: TrainSources, options: WindowOptions) -> ConversationData:
    """Return the conversations in the JSON lines at `data`, encoded with the tokenizer and the chat template."""
    paths = _paths(data)
    if options.tokenizer is None:
        raise OptionError(
            "conversations=True needs the tokenizer of the model, but init_from names no run that has one. Pass "
            "init_from='run', the folder of the run to start from, or tokenizer='tokenizer.json'."
        )
    tokenizer = as_tokenizer(options.tokenizer)
    return ConversationData(paths, tokenizer, ChatTemplate.load(options.chat_template or "plain", tokenizer), options)


def _paths(data: TrainSources) -> list[str | os.PathLike[str]]:
    """Return the files, folders and globs of JSON lines; raise an error for other kinds of data."""
    given = data if isinstance(data, list | tuple) else [data]
    if not given:
        raise OptionError("data is empty. With conversations=True, pass the path of JSON lines.")
    paths: list[str | os.PathLike[str]] = []
    for each in given:
        if isinstance(each, Shards) or not isinstance(each, str | os.PathLike):
            raise TypeError(
                f"data is of type {type(each).__name__}, but conversations=True reads JSON lines. Pass their path, or "
                f"a list of paths."
            )
        check_is_no_run(each)
        if is_shards(each):
            raise OptionError(
                f"{each}: the folder holds token shards, but conversations=True reads JSON lines. Pass the path of "
                f"JSON lines, or leave out conversations=True."
            )
        paths.append(each)
    return paths


class ConversationData:
    """Conversations, packed into rows of `context_length` tokens."""

    noun = "conversations"
    embedding_dim: int | None = None
    uses_workers = False
    even_batches = False  # rows have very different numbers of targets
    no_validation = "no conversation was chosen for validation. Pass a larger val_fraction."

    def __init__(
        self,
        data: Sequence[str | os.PathLike[str]],
        tokenizer: Tokenizer,
        template: ChatTemplate,
        options: WindowOptions,
    ) -> None:
        """Read and encode all conversations."""
        self.tokenizer: Tokenizer | None = tokenizer
        self.vocab_size: int | None = tokenizer.vocab_size
        self.template, self.chat_template = template, template.source
        self._length = options.context_length
        reader = _Reader(template, max_tokens=options.context_length + 1, val_fraction=options.val_fraction)
        self._splits = reader.read(data)
        self._rows = {split: packed(found.lengths, self._length) for split, found in self._splits.items()}
        train = self._splits["train"]
        if not len(train.lengths):
            shown = ", ".join(map(str, data))
            raise CorpusError(f"{shown}: no conversations to train on. {reader.why_none()}")
        self.num_tokens = int(train.lengths.sum())
        self.messages = reader.messages(train, options)
        self.identity = {
            "tokenizer_fingerprint": tokenizer.fingerprint,
            "num_tokens": self.num_tokens,
            "fingerprint": _fingerprint(self._splits.values()),
            "noun": self.noun,
        }

    @property
    def tokens_per_sequence(self) -> float:
        """Mean number of tokens per row, without padding."""
        return self.num_tokens / len(self._rows["train"])

    def open_dataset(
        self, split: str, *, batch_size: int, seed: int, device: torch.device, vocab_size: int | None
    ) -> ConversationDataset | None:
        """Return the rows of a split; None if it has no conversations."""
        if split not in self._rows or not len(self._rows[split]):
            return None
        return ConversationDataset(
            self._splits[split],
            self._rows[split],
            context_length=self._length,
            batch_size=batch_size,
            seed=seed,
            device=device,
        )

    def start_messages(self, dataset: Dataset, *, world_size: int) -> list[str]:
        """Return the share of padding."""
        num_slots = len(self._rows["train"]) * self._length
        return [f"padding: {1 - self.num_tokens / num_slots:.1%} of the positions in a batch."]

    def bits_per_byte(self, loss: float, split: str) -> float | None:
        """Return None: the loss covers responses only."""
        return None


class ConversationDataset:
    """Batches of rows as a pure function of step and rank. Every row occurs once per epoch, in shuffled order."""

    def __init__(
        self,
        conversations: Conversations,
        rows: Ragged,
        *,
        context_length: int,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """`rows` has the numbers of the conversations in each row."""
        self._conversations, self._rows = conversations, rows
        self._length, self._batch_size, self._seed = context_length, batch_size, seed
        self._device = torch.device(device)
        num_targets = np.add.reduceat(conversations.is_target, conversations.offsets[:-1], dtype=np.int64)
        self._row_targets = np.add.reduceat(num_targets[rows.ids], rows.offsets[:-1])
        self._row_tokens = np.add.reduceat(conversations.lengths[rows.ids], rows.offsets[:-1])

    @property
    def num_sequences(self) -> int:
        """Rows per epoch."""
        return len(self._rows)

    def batch(
        self, step: int, *, rank: int = 0, world_size: int = 1, micro_step: int = 0, num_micro_steps: int = 1
    ) -> Batch:
        """Return micro-batch `micro_step` of `step` for this rank, on the device.

        The rows of a step do not depend on how they are divided among ranks and micro-batches.
        """
        check_within("rank", rank, world_size, "world_size")
        check_within("micro_step", micro_step, num_micro_steps, "num_micro_steps")
        first = ((step * num_micro_steps + micro_step) * world_size + rank) * self._batch_size
        return self._moved(self._made(self._chosen(first, self._batch_size)))

    def tokens_in_step(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> tuple[int, int]:
        """Return (tokens, tokens with padding) of all micro-batches of all ranks in a step."""
        rows = self._rows_of_step(step, world_size * num_micro_steps)
        return int(self._row_tokens[rows].sum()), len(rows) * self._length

    def targets_in_step(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> int:
        """Return the number of response tokens in all micro-batches of all ranks in a step."""
        return int(self._row_targets[self._rows_of_step(step, world_size * num_micro_steps)].sum())

    def validation_batches(
        self, num_batches: int | None = None, *, num_sequences: int | None = None, rank: int = 0, world_size: int = 1
    ) -> Iterator[Batch]:
        """Yield a fixed subset of rows in a fixed order, spread evenly over the split; without a number, all rows.

        All ranks get the same number of batches of one shape; surplus rows have only targets of -100.
        """
        check_within("rank", rank, world_size, "world_size")
        wanted = size_of_subset(self.num_sequences, self._batch_size, num_batches, num_sequences)
        for first in range(0, wanted, world_size * self._batch_size):
            begin = first + rank * self._batch_size
            chosen = np.arange(begin, max(begin, min(begin + self._batch_size, wanted)), dtype=np.int64)
            yield self._moved(self._made(chosen * self.num_sequences // wanted))

    def close(self) -> None:
        """Do nothing: there is no prefetching."""

    def _rows_of_step(self, step: int, num_batches: int) -> NDArray[np.int64]:
        size = num_batches * self._batch_size
        return self._chosen(step * size, size)

    def _chosen(self, first: int, number: int) -> NDArray[np.int64]:
        """Return the rows from place `first` of the endless sequence: epoch 0, shuffled, then epoch 1, and so on."""
        epochs, places = np.divmod(np.arange(first, first + number), self.num_sequences)
        rows = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            rows[here] = permuted(places[here], self.num_sequences, seed=self._seed, epoch=epoch)
        return rows

    def _made(self, rows: NDArray[np.int64]) -> Batch:
        """Return these rows, padded with empty rows to the batch size."""
        shape = (self._batch_size, self._length)
        inputs_BT, documents_BT = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        targets_BT = np.full(shape, IGNORED, np.int64)
        for number, row in enumerate(rows.tolist()):
            self._fill(row, inputs_BT[number], targets_BT[number], documents_BT[number])
        return Batch(*map(torch.from_numpy, (inputs_BT, targets_BT, documents_BT)))

    def _fill(
        self, row: int, inputs_T: NDArray[np.int64], targets_T: NDArray[np.int64], documents_T: NDArray[np.int64]
    ) -> None:
        """Write the conversations of a row. Padding gets its own document id."""
        ids, is_target, offsets = self._conversations.ids, self._conversations.is_target, self._conversations.offsets
        begin = 0
        for number, item in enumerate(self._rows[row].tolist()):
            first, last = int(offsets[item]), int(offsets[item + 1]) - 1
            end = begin + last - first
            following = slice(first + 1, last + 1)
            inputs_T[begin:end] = ids[first:last]
            targets_T[begin:end] = np.where(is_target[following], ids[following].astype(np.int64), IGNORED)
            documents_T[begin:] = number
            begin = end
        documents_T[begin:] = len(self._rows[row])

    def _moved(self, batch: Batch) -> Batch:
        if self._device.type != "cuda":
            return batch.to(self._device)
        return batch.pin_memory().to(self._device, non_blocking=True)


class _Reader:
    """Reads and encodes conversations, and counts those that are truncated or skipped."""

    def __init__(self, template: ChatTemplate, *, max_tokens: int, val_fraction: float) -> None:
        self._template, self._max_tokens, self._val_fraction = template, max_tokens, val_fraction
        self._num_read = self._num_cut = self._num_skipped = self._num_crossing = self._num_val = 0

    def read(self, data: Sequence[str | os.PathLike[str]]) -> dict[str, Conversations]:
        """Return the conversations for training and for validation."""
        splits: dict[str, list[EncodedChat]] = {"train": [], "val": []}
        chats = read_conversations(data)
        while chunk := list(itertools.islice(chats, CHUNK)):
            encoded = self._template.encode_written([self._written(chat) for chat in chunk])
            for chat, found in zip(chunk, encoded, strict=True):
                self._num_read += 1
                if (kept := self._kept(found)) is not None:
                    splits["val" if self._is_val(chat) else "train"].append(kept)
        self._num_val = len(splits["val"])
        return {split: _joined(found) for split, found in splits.items()}

    def _written(self, chat: Conversation) -> WrittenChat:
        try:
            return self._template.write(chat.messages)
        except OptionError as error:
            raise CorpusError(f"{chat.place}: {error}") from None

    def _kept(self, chat: EncodedChat) -> EncodedChat | None:
        """Return the conversation, truncated if it is too long; None if nothing to train on remains."""
        is_cut = len(chat.ids) > self._max_tokens
        ids, is_trained = chat.ids[: self._max_tokens], chat.is_trained[: self._max_tokens].copy()
        is_trained[:1] = False  # the first token has no context, so it is not a target
        if not is_trained.any():
            self._num_skipped += 1
            return None
        self._num_cut += is_cut
        self._num_crossing += chat.crosses
        return EncodedChat(ids.astype(np.uint32), is_trained, chat.crosses)

    def _is_val(self, chat: Conversation) -> bool:
        """Decide by a hash of the messages, so that duplicates are in the same split with every template."""
        digest = Xxh64()
        for message in chat.messages:
            digest.update(f"{message['role']}\0{message['content']}\0".encode())
        return int(digest.hexdigest(), 16) < self._val_fraction * 2**64

    def messages(self, train: Conversations, options: WindowOptions) -> list[str]:
        """Return messages about the conversations for the user."""
        num_targets = int(train.is_target.sum())
        found = [
            f"{_count(len(train.lengths))} to train on, {self._num_val:,} for validation; the loss is computed on the "
            f"responses, {num_targets / len(train.ids):.0%} of the tokens."
        ]
        limit = f"context_length={options.context_length}"
        if self._num_cut:
            found.append(f"truncated to {limit}: {_count(self._num_cut)}.")
        if self._num_skipped:
            found.append(f"skipped, because no response starts within {limit}: {_count(self._num_skipped)}.")
        if self._num_crossing:
            found.append(
                f"in {_count(self._num_crossing)} a token spans the start of a response, which cannot happen in a "
                f"prompt. A chat_template whose prompt ends with a newline or a special token avoids that."
            )
        if unknown := self._template.unknown_specials():
            found.append(
                f"{self._template.name} writes {', '.join(unknown)}, which is not a special token of the tokenizer "
                f"and is encoded as plain text."
            )
        return found

    def why_none(self) -> str:
        """Explain why no conversation is left to train on, and what to do."""
        if not self._num_read:
            return "The files are empty. Pass JSON lines with conversations."
        if self._num_val:
            return f"All {self._num_val:,} were chosen for validation. Pass a smaller val_fraction."
        return f"No response starts within {self._max_tokens - 1:,} tokens. Pass a larger context_length."


def _count(number: int) -> str:
    return f"{number:,} conversation{'s' * (number != 1)}"


def _joined(chats: list[EncodedChat]) -> Conversations:
    lengths = np.array([len(chat.ids) for chat in chats], np.int64)
    return Conversations(
        np.concatenate([np.empty(0, np.uint32), *(chat.ids for chat in chats)]).astype(np.uint32, copy=False),
        np.concatenate([np.empty(0, np.bool_), *(chat.is_trained for chat in chats)]),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
    )


def _fingerprint(splits: Any) -> str:
    digest = Xxh64()
    for found in splits:
        for array in (found.ids, found.is_target, found.offsets):
            digest.update(np.ascontiguousarray(array).view(np.uint8))
    return digest.hexdigest()
