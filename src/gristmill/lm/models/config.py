"""ModelConfig: the torch-free description of a model: its options, data, schedule and statistics.

A config is a frozen dataclass. Every field is a keyword of `gm.lm.train` and a flag of `gristmill train-model`; the
text below the field is its help text. The base class of the config decides which data the model takes:

    WindowModelConfig     windows of `context_length` tokens over all documents of token shards
    DocumentModelConfig   whole documents of shards or Parquet files, one sequence per document
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
    """The options of a model. Inherit from `WindowModelConfig` or `DocumentModelConfig` for your own model.

    Constructing a config checks the types and ranges of all options, then calls `check`.

    Raises:
        OptionError: An option has a wrong type, is out of range, or does not fit another one.

    Examples:
        ```python
        @dataclass(frozen=True, kw_only=True)
        class MyConfig(gm.lm.WindowModelConfig):
            width: int = 64
            \"\"\"Width of the hidden layer.\"\"\"
            penalty: float = 0.1
            \"\"\"Weight of the penalty.\"\"\"

            STATISTICS = {"penalty": "token"}

            def check(self) -> None:
                if self.width % 8:
                    raise gm.OptionError(f"width={self.width} is not a multiple of 8. Pass a multiple of 8.")

            def schedule(self, step: int, *, total_steps: int) -> dict[str, float]:
                return {"penalty": self.penalty * step / total_steps}
        ```
    """

    vocab_size: Count | None = None
    """Vocabulary size. None: that of the tokenizer of the data."""

    name: ClassVar[str] = ""
    """Name of the model, set by `register_model`."""
    RUN_DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    """Defaults of run options that differ for this model, such as {"batch_size": 4}."""
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Sets of options by the name of the preset."""
    STATISTICS: ClassVar[Mapping[str, Averaging]] = {}
    """Statistics that `loss` reports besides the loss, each averaged per "token" or per "sequence"."""
    FREE_OPTIONS: ClassVar[frozenset[str]] = frozenset()
    """Options that may change when a run is resumed, in addition to those of the data."""
    WARMUPS: ClassVar[frozenset[str]] = frozenset()
    """Options that count steps from the start of the run. They keep their value when a resumed run becomes longer."""
    SIZES: ClassVar[frozenset[str]] = frozenset()
    """Options that determine the shapes of the weights. A run with `init_from` takes them from the other run."""
    BEFORE: ClassVar[Mapping[str, Any]] = {}
    """Values of options in runs saved before the option existed, where they differ from the default."""
    HAS_PERPLEXITY: ClassVar[bool] = True
    """Whether exp(loss) is the perplexity, because the loss is the cross-entropy of the tokens in nats."""
    HAS_LATENTS: ClassVar[bool] = False
    """Whether texts are decoded from latents. `write` then samples, reconstructs and interpolates texts, and does not
    continue a prompt."""

    def __post_init__(self) -> None:
        check_options(self)
        self.check()

    def check(self) -> None:
        """Raise `OptionError` for options that do not fit together.

        Types and ranges are already checked.

        Examples:
            ```python
            def check(self) -> None:
                if self.d_model % self.num_heads:
                    raise gm.OptionError("d_model must be a multiple of num_heads.")
            ```
        """

    def sizes(self) -> dict[str, Any]:
        """Return the options that determine the shapes of the weights, with computed values instead of None.

        Examples:
            >>> from gristmill.lm import GPTConfig
            >>> GPTConfig(num_heads=8).sizes()["num_kv_heads"]
            8
        """
        return {name: getattr(self, name) for name in self.SIZES}

    def settled(self, data: TrainingData, *, max_steps: int) -> Self:
        """Return the config with all values filled in that depend on the data and on the length of the run.

        Args:
            data: The opened data of the run.
            max_steps: Steps of the run.

        Raises:
            OptionError: An option does not fit the data.

        Examples:
            ```python
            data = config.open_data("shards/")
            config = config.settled(data, max_steps=1000)
            ```
        """
        return dataclasses.replace(self, vocab_size=self.settled_vocab_size(data))

    def settled_vocab_size(self, data: TrainingData) -> int | None:
        """Return `vocab_size`, or that of the data if it is None; None for data of vectors.

        Args:
            data: The opened data of the run.

        Raises:
            VocabSizeError: `vocab_size` is too small for the ids of the data.

        Examples:
            ```python
            config.settled_vocab_size(config.open_data("shards/"))
            ```
        """
        needed = data.vocab_size
        if needed is None:
            return None
        if self.vocab_size is not None and self.vocab_size < needed:
            has = "the data has ids up to" if data.tokenizer is None else f"the tokenizer of the {data.noun} has"
            number = f"{needed - 1:,}" if data.tokenizer is None else f"{needed:,} tokens"
            raise VocabSizeError(
                f"vocab_size={self.vocab_size} is too small: {has} {number}. "
                f"Pass vocab_size >= {needed}, or leave it out."
            )
        return self.vocab_size or needed

    @property
    def required_vocab_size(self) -> int:
        """`vocab_size`, which must be known when a model is built; `OptionError` if it is None."""
        if self.vocab_size is None:
            raise OptionError("vocab_size is not set. Pass vocab_size, the number of tokens of the tokenizer.")
        return self.vocab_size

    def schedule(self, step: int, *, total_steps: int) -> dict[str, float]:
        """Return numbers that change from step to step, such as the weight of a loss term.

        `loss` receives them as tensors.

        Args:
            step: Step, counted from 0.
            total_steps: Steps of the run.

        Examples:
            >>> from gristmill.lm import VAEConfig
            >>> VAEConfig(kl_warmup_steps=10).schedule(5, total_steps=100)
            {'kl_weight': 0.5}
        """
        return {}

    @classmethod
    def options_of_huggingface(cls, config: Mapping[str, Any], source: str) -> dict[str, Any]:
        """Return the options of a model with the sizes in the config.json of a transformers model.

        Args:
            config: Content of config.json.
            source: Path of that file, for messages.

        Raises:
            OptionError: This model cannot start from a transformers model.
            CheckpointError: No model of this kind can have these sizes.

        Examples:
            ```python
            options = gm.lm.GPTConfig.options_of_huggingface(json.load(open("llama/config.json")), "llama/config.json")
            ```
        """
        raise OptionError(
            f"model={cls.name!r} cannot start from a transformers model ({source}). Pass the folder of a run."
        )

    def num_masked_pairs(self, *, batch_size: int) -> int:
        """Return the number of token pairs in the attention masks of a step, or 0 if the model builds no mask per pair.

        Args:
            batch_size: Sequences per micro-batch.

        Examples:
            >>> from gristmill.lm import GPTConfig
            >>> GPTConfig(context_length=8, document_mask=True).num_masked_pairs(batch_size=2)
            128
        """
        return 0

    def start_messages(self, *, batch_size: int) -> list[str]:
        """Return messages for the user, shown before the first step.

        Args:
            batch_size: Sequences per micro-batch.

        Examples:
            >>> from gristmill.lm import GPTConfig
            >>> GPTConfig().start_messages(batch_size=8)
            []
        """
        return []


@dataclass(frozen=True, kw_only=True)
class WindowModelConfig(WindowOptions, ModelConfig):
    """The options of a model that is trained on windows of tokens.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, kw_only=True)
        ... class MyConfig(WindowModelConfig):
        ...     width: Count = 64
        >>> MyConfig(context_length=128).sequence_length
        128
    """


@dataclass(frozen=True, kw_only=True)
class DocumentModelConfig(DocumentOptions, ModelConfig):
    """The options of a model that is trained on whole documents.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, kw_only=True)
        ... class MyConfig(DocumentModelConfig):
        ...     width: Count = 64
        >>> MyConfig(max_sequence_length=500).sequence_length
        500
    """


def steps_of(interval: int | float, max_steps: int, *, least: int = 1) -> int:
    """Return a number of steps: an int is used as it is, a float is a share of the run."""
    if isinstance(interval, int):
        return interval
    return max(least, round(interval * max_steps)) if interval else 0


def check_heads(d_model: int, num_heads: int) -> None:
    """Raise `OptionError` unless `d_model` divides into heads of equal, even size."""
    if d_model % num_heads:
        raise OptionError(
            f"d_model={d_model} is not a multiple of num_heads={num_heads}. Pass a d_model that num_heads divides."
        )
    if (d_model // num_heads) % 2:
        raise OptionError(
            f"d_model={d_model} and num_heads={num_heads} give heads of size {d_model // num_heads}, and rotary "
            f"positions need an even size. Pass a d_model that is a multiple of 2 * num_heads."
        )
