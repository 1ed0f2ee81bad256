"""Options that decide how data becomes batches: windows over all tokens, or whole documents.

A model takes one of the two kinds: its config inherits from `WindowOptions` or from `DocumentOptions`. This module does
not import torch, so the command line can list options quickly.
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
    """The interface that both kinds of data share."""

    LENGTH: ClassVar[str]
    """Name of the option that sets the length of a sequence."""
    DATA_FREE: ClassVar[frozenset[str]]
    """Data options that may change when a run is resumed."""
    DATA_BEFORE: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Values of data options in runs saved before the option existed, where they differ from the default."""
    DIVISION_CHANGES_STEPS: ClassVar[bool]
    """Whether a different division of a step into micro-batches and devices changes its sequences."""

    @property
    def sequence_length(self) -> int:
        """Maximum number of tokens per sequence."""
        return int(getattr(self, self.LENGTH))

    @property
    def varying_lengths(self) -> bool:
        """Whether batches differ in width."""
        return False

    @property
    def prompt_of_samples(self) -> str:
        """Prompt of the samples that are generated during training."""
        return ""

    def open_data(self, data: TrainSources, *, split: str = "train", progress: Any = None) -> TrainingData:
        """Return the opened data, ready to be cut into batches.

        Args:
            data: The data, as in `gm.lm.train`.
            split: Split of token shards.
            progress: How to report progress, as in `gm.lm.train`.

        Raises:
            OptionError: An option does not fit the data.
            FileNotFoundError: There is no such file or folder.
            ShardsFormatError: The shards are damaged.

        Examples:
            ```python
            data = gm.lm.GPTConfig(context_length=128).open_data("shards/")
            ```
        """
        raise NotImplementedError

    def for_evaluation(self, run: Path, data: Any) -> Self:
        """Return the options for evaluating a run on other data.

        Args:
            run: Folder of the run.
            data: The data to evaluate on.

        Raises:
            TypeError: `data` is neither a path nor `gm.Shards`.

        Examples:
            ```python
            options = config.for_evaluation(Path("run"), "other_shards/")
            ```
        """
        return self


@dataclass(frozen=True, kw_only=True)
class WindowOptions(DataOptions):
    """Options of models that read windows of `context_length` tokens, across documents, from token shards."""

    context_length: Count = 256
    """Context length in tokens."""
    document_mask: bool = False
    """Restrict attention to tokens of the same document."""
    shift_windows: bool = True
    """Start the windows of every epoch after the first at another offset, so that contexts differ between epochs."""
    sample_prompt: str = "Once upon a time"
    """Prompt of the samples that are generated during training."""
    conversations: bool = False
    """Fine-tune on conversations in JSON lines. Only responses count in the loss."""
    chat_template: str | None = None
    """Jinja file that converts a conversation to text, or plain or chatml. None: that of init_from, or plain."""
    tokenizer: str | None = None
    """Tokenizer for conversations or for a text corpus. None: that of init_from, or a new one for a corpus."""
    val_fraction: Share = 0.01
    """Share of the conversations held out for validation."""

    LENGTH: ClassVar[str] = "context_length"
    """Name of the option that sets the length of a sequence."""
    DATA_FREE: ClassVar[frozenset[str]] = frozenset({"sample_prompt", "chat_template", "tokenizer"})
    """Data options that may change when a run is resumed. A fingerprint checks that conversations give the same
    tokens."""
    DATA_BEFORE: ClassVar[Mapping[str, Any]] = MappingProxyType({"shift_windows": False})
    """Values of data options in runs saved before the option existed, where they differ from the default."""
    DIVISION_CHANGES_STEPS: ClassVar[bool] = False
    """Whether a different division of a step into micro-batches and devices changes its sequences."""

    @property
    def prompt_of_samples(self) -> str:
        """`sample_prompt`."""
        return self.sample_prompt

    def open_data(self, data: TrainSources, *, split: str = "train", progress: Any = None) -> TrainingData:
        """Return the opened shards, a mixture of several, or conversations packed into rows."""
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
        """Raise `OptionError` for options of conversations, which token shards do not use."""
        for name in ("chat_template", "tokenizer", "val_fraction"):
            value, default = getattr(self, name), getattr(WindowOptions, name)
            if value != default:
                raise OptionError(
                    f"{name}={value!r} applies to conversations only, and the data are token shards. Leave it "
                    f"out, or pass conversations=True with JSON lines."
                )

    def for_evaluation(self, run: Path, data: Any) -> Self:
        """Return the options for evaluating a run on other data.

        Conversations use the tokenizer and template of the run.
        """
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
    """Options of models that read whole documents, one sequence per document, from token shards or Parquet files."""

    max_sequence_length: Count = 1000
    """Maximum sequence length in tokens. Longer documents are truncated."""
    embedding_dim: Count | None = None
    """Size of a vector, for sequences of vectors. None: that of the data."""
    tokenizer: str | None = None
    """Tokenizer for a text column of Parquet files."""
    text_column: str | None = None
    """Text column of Parquet files. None: 'text' if it exists, otherwise a column of token ids."""
    tokens_column: str | None = None
    """Column of token ids in Parquet files. None: 'tokens' or 'input_ids'."""
    embedding_columns: str | None = None
    """Vector columns of Parquet files: 'a', or 'a,b' to concatenate two."""
    val_fraction: Share = 0.01
    """Share of the documents of Parquet files held out for validation."""
    cache_dir: str | None = None
    """Folder for the cache made from Parquet files. None: the user's cache folder."""
    use_dynamic_padding: bool = False
    """Group sequences of similar length and pad each batch to its group's width, not to max_sequence_length."""
    num_buckets: Count = 16
    """Number of different widths with use_dynamic_padding."""
    num_workers: CountOrNone = 8
    """Processes that prepare batches from Parquet files. 0: a thread."""
    pin_memory: bool = True
    """Copy batches to the GPU from page-locked memory."""
    prefetch_factor: Count = 2
    """Batches that each process prepares in advance."""

    LENGTH: ClassVar[str] = "max_sequence_length"
    """Name of the option that sets the length of a sequence."""
    DATA_FREE: ClassVar[frozenset[str]] = frozenset(
        {
            *("tokenizer", "text_column", "tokens_column", "embedding_columns", "cache_dir"),
            *("num_workers", "pin_memory", "prefetch_factor"),
        }
    )
    """Data options that may change when a run is resumed: the location of the data and how it is read. A fingerprint
    checks that the data is the same."""
    DIVISION_CHANGES_STEPS: ClassVar[bool] = True
    """Whether a different division of a step into micro-batches and devices changes its sequences. True here:
    sequences are drawn per micro-batch of all devices."""

    @property
    def varying_lengths(self) -> bool:
        """Whether batches differ in width."""
        return self.use_dynamic_padding

    def open_data(self, data: TrainSources, *, split: str = "train", progress: Any = None) -> TrainingData:
        """Return the opened documents of all splits."""
        from gristmill.lm.data.document_data import open_documents
        from gristmill.lm.data.mixture import find_mixture

        if (mixture := find_mixture(data)) is not None:
            raise OptionError(
                f"{' and '.join(map(str, mixture.names))}: this model reads whole documents of one folder, and "
                f"mixtures are for models that read windows of tokens. Put all documents into one folder: "
                f"encode_corpus() takes several inputs."
            )
        return open_documents(data, self, progress=progress)

    def for_evaluation(self, run: Path, data: Any) -> Self:
        """Return the options for evaluating a run on other data. Parquet files are read as in training."""
        from gristmill.lm.data.training_data import is_shards

        reading: dict[str, Any] = {}
        if is_shards(data):
            columns = ("tokenizer", "text_column", "tokens_column", "embedding_columns")
            reading = {**dict.fromkeys(columns), "val_fraction": DocumentOptions.val_fraction}
        elif (run / TOKENIZER_FILE).exists():
            reading = {"tokenizer": str(run / TOKENIZER_FILE)}
        return dataclasses.replace(self, **reading)

    def settled_embedding_dim(self, data: TrainingData) -> int | None:
        """Return the size of the vectors of the data, or None for tokens.

        Args:
            data: The opened data of the run.

        Raises:
            OptionError: `embedding_dim` differs from the data.

        Examples:
            ```python
            config.settled_embedding_dim(config.open_data("vectors.parquet"))
            ```
        """
        if self.embedding_dim not in (None, data.embedding_dim):
            there = "tokens" if data.embedding_dim is None else f"vectors of {data.embedding_dim} numbers"
            raise OptionError(f"embedding_dim={self.embedding_dim}, but the data has {there}. Leave embedding_dim out.")
        return data.embedding_dim
