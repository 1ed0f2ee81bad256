"""ModelConfig: what a model declares about itself without torch: its options, its data, its schedule, its statistics.

A config is a frozen dataclass. Every field is a keyword of `gm.lm.train` and a flag of `gristmill train-model`, with
the text below it as help. Which kind of data the model takes is decided by the class that the config inherits from:

    WindowModelConfig     windows of `context_length` tokens over all documents of token shards
    DocumentModelConfig   whole documents of shards or Parquet files, one sequence each
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from gristmill.errors import OptionError, VocabSizeError
from gristmill.lm.data.options import DataOptions, DocumentOptions, WindowOptions
from gristmill.lm.option_types import Count, check_options

if TYPE_CHECKING:
    from typing import Self

    from gristmill.lm.data.training_data import TrainingData

__all__ = ["DocumentModelConfig", "ModelConfig", "WindowModelConfig", "steps_of"]

Averaging: TypeAlias = Literal["token", "sequence"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig(DataOptions):
    """The options of a model. Inherit from `WindowModelConfig` or `DocumentModelConfig` for one of your own."""

    vocab_size: Count | None = None
    """Vocabulary size. None: that of the tokenizer of the data."""

    name: ClassVar[str] = ""  # set by `register_model`
    # Defaults of the run that differ for this model, such as {"batch_size": 4}.
    RUN_DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    # Options that belong together, by the name of the preset.
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    # What `loss` reports besides the loss and is worth recording; each is a mean per token or per sequence.
    STATISTICS: ClassVar[Mapping[str, Averaging]] = {}
    # Options that may change when a run is resumed, beside those of its data.
    FREE_OPTIONS: ClassVar[frozenset[str]] = frozenset()
    # Options that count steps from the start of the run, and stay as they were when a resumed run becomes longer.
    WARMUPS: ClassVar[frozenset[str]] = frozenset()
    # Options that the weights are made for: a run with init_from has those of the other run.
    SIZES: ClassVar[frozenset[str]] = frozenset()
    # What an option was in runs that were saved before it existed, where that is not its default.
    BEFORE: ClassVar[Mapping[str, Any]] = {}
    # Whether exp(loss) is the perplexity: the loss is the cross-entropy of the tokens, in nats.
    HAS_PERPLEXITY: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_options(self)
        self.check()

    def check(self) -> None:
        """Raise `OptionError` for options that do not fit together; their types and ranges are checked already."""

    def sizes(self) -> dict[str, Any]:
        """The options that the weights are made for, with what is computed where they are None."""
        return {name: getattr(self, name) for name in self.SIZES}

    def settled(self, data: TrainingData, *, max_steps: int) -> Self:
        """The config with everything filled in that depends on the data and the length of the run."""
        return dataclasses.replace(self, vocab_size=self.settled_vocab_size(data))

    def settled_vocab_size(self, data: TrainingData) -> int | None:
        """The vocabulary size that was asked for, or that of the data; None for vectors."""
        needed = data.vocab_size
        if needed is None:
            return None
        if self.vocab_size is not None and self.vocab_size < needed:
            has = "there are ids up to" if data.tokenizer is None else f"the tokenizer of the {data.noun} has"
            number = f"{needed - 1:,}" if data.tokenizer is None else f"{needed:,} tokens"
            raise VocabSizeError(
                f"vocab_size={self.vocab_size} is too small: {has} {number}. "
                f"Pass vocab_size >= {needed}, or leave it out."
            )
        return self.vocab_size or needed

    @property
    def required_vocab_size(self) -> int:
        """`vocab_size`, which must be known when a model is built."""
        if self.vocab_size is None:
            raise OptionError("vocab_size is not set. Pass vocab_size, the number of tokens of the tokenizer.")
        return self.vocab_size

    def schedule(self, step: int, *, total_steps: int) -> dict[str, float]:
        """Numbers that change from step to step, which `loss` gets as tensors, such as the weight of a term."""
        return {}

    @classmethod
    def options_of_huggingface(cls, config: Mapping[str, Any], source: str) -> dict[str, Any]:
        """The options of a model with the sizes that config.json of a model of transformers holds.

        source: the path of that file. `CheckpointError` where no such model can have them.
        """
        raise OptionError(
            f"model={cls.name!r} cannot start from a model of transformers ({source}). Pass the folder of a run."
        )

    def num_masked_pairs(self, *, batch_size: int) -> int:
        """Pairs of tokens in the attention mask of a step, where the model makes one with a value per pair; else 0."""
        return 0

    def start_messages(self, *, batch_size: int) -> list[str]:
        """What a person should know before the first step."""
        return []


@dataclass(frozen=True, kw_only=True)
class WindowModelConfig(WindowOptions, ModelConfig):
    """The options of a model that is trained on windows of tokens."""


@dataclass(frozen=True, kw_only=True)
class DocumentModelConfig(DocumentOptions, ModelConfig):
    """The options of a model that is trained on whole documents."""


def steps_of(interval: int | float, max_steps: int, *, least: int = 1) -> int:
    """A number of steps: an int is one, a float is a share of the run."""
    if isinstance(interval, int):
        return interval
    return max(least, round(interval * max_steps)) if interval else 0


def check_heads(d_model: int, num_heads: int) -> None:
    """Raise `OptionError` unless each head gets an equal and even part of `d_model`."""
    if d_model % num_heads:
        raise OptionError(
            f"d_model={d_model} is not a multiple of num_heads={num_heads}. Pass one that each head can take an equal "
            f"part of."
        )
    if (d_model // num_heads) % 2:
        raise OptionError(
            f"d_model={d_model} and num_heads={num_heads} give heads of size {d_model // num_heads}: rotary positions "
            f"need an even one."
        )
