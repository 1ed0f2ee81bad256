"""The options that decide how data becomes batches: windows over all tokens, or whole documents.

A model takes one of the two kinds: its config inherits from `WindowOptions` or from `DocumentOptions`. This module
imports no torch, so that the command line can list options at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill.errors import OptionError
from gristmill.lm.option_types import Count, CountOrNone, Share

if TYPE_CHECKING:
    from typing import Self

    from gristmill.lm.data.mixture import TrainSources
    from gristmill.lm.data.training_data import TrainingData

__all__ = ["DataOptions", "DocumentOptions", "WindowOptions"]

TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What both kinds of data have."""

    LENGTH: ClassVar[str]  # the name of the option for the length of a sequence
    DATA_FREE: ClassVar[frozenset[str]]  # options that may change when a run is resumed
    # What an option was in runs that were saved before it existed, where that is not its default.
    DATA_BEFORE: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    # Whether another division of a step into micro-batches and devices is another step.
    DIVISION_CHANGES_STEPS: ClassVar[bool]

    @property
    def sequence_length(self) -> int:
        """The tokens that a sequence can have."""
        return int(getattr(self, self.LENGTH))

    @property
    def varying_lengths(self) -> bool:
        """Whether batches differ in width."""
        return False

    @property
    def prompt_of_samples(self) -> str:
        """What the samples that are written during training begin with."""
        return ""

    def open_data(self, data: TrainSources, *, split: str = "train", progress: Any = None) -> TrainingData:
        """The data, ready to be cut into batches."""
        raise NotImplementedError

    def for_evaluation(self, run: Path, data: Any) -> Self:
        """The options for evaluating a run on other data."""
        return self


@dataclass(frozen=True, kw_only=True)
class WindowOptions(DataOptions):
    """For models that read windows of `context_length` tokens, across documents, from token shards."""

    context_length: Count = 256
    """Context length in tokens."""
    document_mask: bool = False
    """Keep attention inside a document."""
    shift_windows: bool = True
    """Begin the windows of every epoch but the first at another offset, so that contexts differ between epochs."""
    sample_prompt: str = "Once upon a time"
    """Prompt of the samples that are written during training."""
    conversations: bool = False
    """Fine-tune on conversations of JSON lines: the loss is that of the responses."""
    chat_template: str | None = None
    """Jinja file that makes text of a conversation, or plain or chatml. None: that of init_from, or plain."""
    tokenizer: str | None = None
    """Tokenizer of conversations, or of a corpus of text. None: that of init_from, or a new one for a corpus."""
    val_fraction: Share = 0.01
    """Share of the conversations to keep for validation."""

    LENGTH: ClassVar[str] = "context_length"
    # That conversations are the same tokens is compared by their fingerprint.
    DATA_FREE: ClassVar[frozenset[str]] = frozenset({"sample_prompt", "chat_template", "tokenizer"})
    DATA_BEFORE: ClassVar[Mapping[str, Any]] = MappingProxyType({"shift_windows": False})
    DIVISION_CHANGES_STEPS: ClassVar[bool] = False

    @property
    def prompt_of_samples(self) -> str:
        """`sample_prompt`."""
        return self.sample_prompt

    def open_data(self, data: TrainSources, *, split: str = "train", progress: Any = None) -> TrainingData:
        """The shards, or a mixture of several, ready to be cut into windows; or conversations, packed into rows."""
        if self.conversations:
            from gristmill.lm.data.conversations import open_conversations

            return open_conversations(data, self)
        from gristmill.lm.data.mixed_data import open_mixture
        from gristmill.lm.data.mixture import find_mixture
        from gristmill.lm.data.window_data import open_windows

        self._check_without_conversations()
        mixture = find_mixture(data)
        return open_windows(data, self, split=split) if mixture is None else open_mixture(mixture, self, split=split)

    def _check_without_conversations(self) -> None:
        """Raise `OptionError` for options of conversations, which shards have no use for."""
        for name in ("chat_template", "tokenizer", "val_fraction"):
            value, default = getattr(self, name), getattr(WindowOptions, name)
            if value != default:
                raise OptionError(
                    f"{name}={value!r} is for conversations=True, and token shards were made with theirs. Leave it "
                    f"out, or pass conversations=True with JSON lines."
                )

    def for_evaluation(self, run: Path, data: Any) -> Self:
        """The options for evaluating a run on other data: conversations with its own tokenizer and template."""
        from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE
        from gristmill.lm.data.training_data import is_shards

        plain = dataclasses.replace(
            self, conversations=False, chat_template=None, tokenizer=None, val_fraction=WindowOptions.val_fraction
        )
        if not self.conversations or is_shards(data):
            return plain
        return dataclasses.replace(
            self, tokenizer=str(run / TOKENIZER_FILE), chat_template=str(run / CHAT_TEMPLATE_FILE)
        )


@dataclass(frozen=True, kw_only=True)
class DocumentOptions(DataOptions):
    """For models that read whole documents, one sequence each, from token shards or Parquet files."""

    max_sequence_length: Count = 1000
    """Longest sequence in tokens. Longer documents are cut."""
    embedding_dim: Count | None = None
    """Size of a vector, for sequences of vectors. None: as in the data."""
    tokenizer: str | None = None
    """Tokenizer for a text column of Parquet files."""
    text_column: str | None = None
    """Column of texts in Parquet files. None: 'text' if there is one, otherwise 'tokens'."""
    tokens_column: str | None = None
    """Column of token ids in Parquet files."""
    embedding_columns: str | None = None
    """Columns of vectors in Parquet files: 'a', or 'a,b' to join two."""
    val_fraction: Share = 0.01
    """Share of the documents of Parquet files to keep for validation."""
    cache_dir: str | None = None
    """Folder for the cache made from Parquet files. None: the user's cache folder."""
    use_dynamic_padding: bool = False
    """Pad to the longest of similar lengths instead of max_sequence_length."""
    num_buckets: Count = 16
    """Number of lengths to pad to, with use_dynamic_padding."""
    num_workers: CountOrNone = 8
    """Processes that prepare batches from Parquet files. 0: a thread."""
    pin_memory: bool = True
    """Copy batches to the GPU from page-locked memory."""
    prefetch_factor: Count = 2
    """Batches that each process prepares ahead."""

    LENGTH: ClassVar[str] = "max_sequence_length"
    # Where the data lies and how it is read. That it is the same data is compared by its fingerprint.
    DATA_FREE: ClassVar[frozenset[str]] = frozenset(
        {
            *("tokenizer", "text_column", "tokens_column", "embedding_columns", "cache_dir"),
            *("num_workers", "pin_memory", "prefetch_factor"),
        }
    )
    # The sequences of a step are drawn by what one micro-batch of all devices holds.
    DIVISION_CHANGES_STEPS: ClassVar[bool] = True

    @property
    def varying_lengths(self) -> bool:
        """Whether batches differ in width."""
        return self.use_dynamic_padding

    def open_data(self, data: TrainSources, *, split: str = "train", progress: Any = None) -> TrainingData:
        """The documents, of all splits."""
        from gristmill.lm.data.document_data import open_documents
        from gristmill.lm.data.mixture import find_mixture

        if (mixture := find_mixture(data)) is not None:
            raise OptionError(
                f"{' and '.join(map(str, mixture.names))}: mixtures are for models that read windows of tokens, and "
                f"this model reads whole documents of one folder. Put all documents into one: encode_corpus() takes "
                f"several inputs."
            )
        return open_documents(data, self, progress=progress)

    def for_evaluation(self, run: Path, data: Any) -> Self:
        """The options for evaluating a run on other data: Parquet is read as in training, shards as they are."""
        from gristmill.lm.data.training_data import is_shards

        reading: dict[str, Any] = {}
        if is_shards(data):
            columns = ("tokenizer", "text_column", "tokens_column", "embedding_columns")
            reading = {**dict.fromkeys(columns), "val_fraction": DocumentOptions.val_fraction}
        elif (run / TOKENIZER_FILE).exists():
            reading = {"tokenizer": str(run / TOKENIZER_FILE)}
        return dataclasses.replace(self, **reading)

    def settled_embedding_dim(self, data: TrainingData) -> int | None:
        """The size of the vectors of the data; `OptionError` if another one was asked for."""
        if self.embedding_dim not in (None, data.embedding_dim):
            there = "tokens" if data.embedding_dim is None else f"vectors of {data.embedding_dim} numbers"
            raise OptionError(f"embedding_dim={self.embedding_dim}, and the data has {there}. Leave it out.")
        return data.embedding_dim
