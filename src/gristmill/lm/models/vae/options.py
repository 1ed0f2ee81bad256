"""VAEConfig: the options and presets of the sequence VAE."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gristmill.errors import OptionError
from gristmill.lm.models.config import Averaging, DocumentModelConfig, check_heads, steps_of
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.models.vae.kl_schedule import kl_weight
from gristmill.lm.option_types import Count, CountOrNone, NotNegative, Positive, Share, Steps

if TYPE_CHECKING:
    from typing import Self

    from gristmill.lm.data.training_data import TrainingData

__all__ = ["VAEConfig"]

MIN_BATCH_NORM_ROWS = 16  # sequences per micro-batch

# The settings that users expect under these names. `bf16-mixed` is better on every GPU that supports it, and such small
# batches use only a fraction of a GPU.
FAST: dict[str, Any] = {
    "batch_size": 4,
    "num_workers": 8,
    "pin_memory": True,
    "gradient_accumulation_steps": 2,
    "max_sequence_length": 1000,
    "precision": "16-mixed",
    "use_dynamic_padding": True,
}


@dataclass(frozen=True, kw_only=True)
class VAEConfig(DocumentModelConfig):
    """The options of a sequence VAE.

    Raises:
        OptionError: An option has a wrong type, is out of range, or does not fit another one.

    Examples:
        >>> VAEConfig(vocab_size=300, max_sequence_length=64, num_layers=2, num_heads=2, d_model=32).num_encoder_layers
        2
    """

    num_layers: Count = 4
    """Layers of the decoder."""
    encoder_layers: Count | None = None
    """Layers of the encoder. None: as many as the decoder."""
    num_heads: Count = 4
    """Attention heads per layer."""
    d_model: Count = 256
    """Model width."""
    d_ff: Count | None = None
    """Width of the feed-forward layers. None: 8/3 of d_model, rounded up to a multiple of 64."""
    rope_theta: Positive = 10_000.0
    """Base of the rotary position embedding."""
    tie_embeddings: bool = False
    """Use the embedding as the output head too. Saves parameters."""
    dropout: Share = 0.0
    """Dropout probability in training."""
    norm_eps: Positive = 1e-5
    """Epsilon of the norms."""
    float32_residual: bool = False
    """Keep the residual stream in float32 under bf16-mixed. Slower, and rarely better."""

    latent_dim: Count = 32
    """Latent dimensions per sequence."""
    encoder_shortcut: bool = True
    """Feed the pooled embeddings to the posterior directly, in addition to the encoder. Prevents collapse in the first
    steps."""
    latent_injection: Literal["memory", "embedding"] = "memory"
    """How the decoder gets the latent: as positions before the sequence, or added to every token."""
    memory_tokens: Count = 4
    """Number of positions before the sequence that hold the latent."""

    kl_weight: NotNegative = 1.0
    """Maximum weight of the KL term. 1 gives the ELBO, less a beta-VAE."""
    kl_schedule: Literal["constant", "linear", "cyclical"] = "linear"
    """Schedule of the KL weight: constant, one linear rise, or one rise per cycle."""
    kl_warmup_steps: Steps = 0.1
    """Steps over which the KL weight rises (linear), or their share of the run."""
    kl_cycles: Count = 4
    """Number of cycles in the run (cyclical). The weight rises in the first half of each."""
    free_bits: NotNegative = 0.25
    """Nats of KL that are not penalized. 0: all are penalized."""
    free_bits_mode: Literal["total", "dimension"] = "dimension"
    """Whether free_bits are per sequence or per latent dimension."""
    word_dropout: Share = 0.0
    """Share of the decoder's inputs to hide, which forces it to use the latent."""
    batch_norm_mu: NotNegative = 0.0
    """Scale of a batch norm on mu, which keeps the KL above 0 (typically 0.5). 0: no batch norm."""
    bag_of_words_weight: NotNegative | None = None
    """Weight of predicting the words of a sequence from its latent alone. None: 1, or 0 for vectors."""

    disable_metrics_monitoring: bool = False
    """Do not monitor the posterior for collapse. Saves memory and time."""
    fast_detection: bool = False
    """Monitor less often: every 200 steps with plots every 2,000, unless these are set."""
    update_frequency: Count | None = None
    """Steps between updates of the monitor. None: 100."""
    plot_frequency: CountOrNone | None = None
    """Steps between plots of the posterior. 0: no plots. None: 1000."""
    window_size: Count | None = None
    """Number of recent steps whose posteriors the monitor evaluates. None: 50."""
    loss_parts: int = field(default=4, metadata={"option": False})
    """Number of parts in which the loss computes the logits, to save memory. 0: all logits at once."""

    name: ClassVar[str] = "vae"
    """Name of the model."""
    RUN_DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "batch_size": 4,
        "gradient_accumulation_steps": 2,
        "limit_val_batches": 0.1,
    }
    """Defaults of run options that differ for this model."""
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "vae-fast": {**FAST, "fast_detection": True},
        "vae-max-performance": {**FAST, "disable_metrics_monitoring": True, "compile_model": True},
        "vae-low-memory": {
            "batch_size": 2,
            "num_workers": 4,
            "max_sequence_length": 500,
            "precision": "16-mixed",
            "fast_detection": True,
            "use_dynamic_padding": True,
        },
        "vae-debug": {
            "batch_size": 1,
            "num_workers": 2,
            "max_sequence_length": 100,
            "precision": "32",
            "fast_detection": True,
            "bag_of_words_weight": 3.0,  # 100 tokens have about a third of the words of a typical sequence
        },
    }
    """Sets of options by the name of the preset."""
    STATISTICS: ClassVar[Mapping[str, Averaging]] = {"reconstruction": "token", "kl": "sequence"}
    """Statistics that `loss` reports besides the loss."""
    FREE_OPTIONS: ClassVar[frozenset[str]] = frozenset(
        {"disable_metrics_monitoring", "fast_detection", "update_frequency", "plot_frequency", "window_size"}
    )
    """Options that may change when a run is resumed."""
    WARMUPS: ClassVar[frozenset[str]] = frozenset({"kl_warmup_steps"})
    """Options that count steps from the start of the run."""
    BEFORE: ClassVar[Mapping[str, Any]] = {"encoder_shortcut": False}
    """Values of options in runs saved before the option existed."""
    HAS_PERPLEXITY: ClassVar[bool] = False
    """False: the loss is a bound, not the cross-entropy of the tokens."""
    HAS_LATENTS: ClassVar[bool] = True
    """True: texts are decoded from latents."""

    def check(self) -> None:
        """Raise `OptionError` for options that do not fit together."""
        check_heads(self.d_model, self.num_heads)
        if self.embedding_dim is None:
            return
        if self.vocab_size is not None:
            raise OptionError(
                f"vocab_size={self.vocab_size} and embedding_dim={self.embedding_dim} cannot be combined. Pass "
                f"vocab_size for sequences of tokens, or embedding_dim for sequences of vectors."
            )
        if self.bag_of_words_weight:
            raise OptionError(
                "bag_of_words_weight applies to tokens, and the data are vectors. Pass bag_of_words_weight=0."
            )
        if self.tie_embeddings:
            raise OptionError("tie_embeddings applies to tokens, and the data are vectors. Pass tie_embeddings=False.")

    def settled(self, data: TrainingData, *, max_steps: int) -> Self:
        """Return the config with the vocabulary or the vector size of the data, and with frequencies in steps."""
        usual = {"update_frequency": 100, "plot_frequency": 1000, "window_size": 50}
        usual |= {"update_frequency": 200, "plot_frequency": 2000} if self.fast_detection else {}
        given = {name: getattr(self, name) for name in usual if getattr(self, name) is not None}
        return dataclasses.replace(
            self,
            vocab_size=self.settled_vocab_size(data),
            embedding_dim=self.settled_embedding_dim(data),
            bag_of_words_weight=self._settled_bag_of_words(data),
            kl_warmup_steps=steps_of(self.kl_warmup_steps, max_steps, least=0),
            **{**usual, **given},
        )

    def _settled_bag_of_words(self, data: TrainingData) -> float:
        if self.bag_of_words_weight is not None:
            return self.bag_of_words_weight
        return 1.0 if data.embedding_dim is None else 0.0

    def schedule(self, step: int, *, total_steps: int) -> dict[str, float]:
        """Return the weight of the KL term."""
        weight = kl_weight(
            step,
            peak=self.kl_weight,
            shape=self.kl_schedule,
            warmup_steps=int(self.kl_warmup_steps),
            total_steps=total_steps,
            num_cycles=self.kl_cycles,
        )
        return {"kl_weight": weight}

    def start_messages(self, *, batch_size: int) -> list[str]:
        """Return a warning if batches are too small for `batch_norm_mu`."""
        if not self.batch_norm_mu or batch_size >= MIN_BATCH_NORM_ROWS:
            return []
        return [
            f"batch_norm_mu: batch_size={batch_size} is too small for a reliable mean. Pass batch_size >= "
            f"{MIN_BATCH_NORM_ROWS}, with fewer gradient_accumulation_steps."
        ]

    @property
    def num_encoder_layers(self) -> int:
        """`encoder_layers`, or its default."""
        return self.num_layers if self.encoder_layers is None else self.encoder_layers

    @property
    def num_memory(self) -> int:
        """Number of positions before the sequence that hold the latent."""
        return self.memory_tokens if self.latent_injection == "memory" else 0

    @property
    def blocks(self) -> GPTConfig:
        """The GPTConfig of the layers and of the other parts that a GPT has too."""
        return GPTConfig(
            vocab_size=1 if self.vocab_size is None else self.vocab_size,
            context_length=self.max_sequence_length + self.num_memory,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            d_model=self.d_model,
            d_ff=self.d_ff,
            rope_theta=self.rope_theta,
            tie_embeddings=self.tie_embeddings,
            dropout=self.dropout,
            norm_eps=self.norm_eps,
            float32_residual=self.float32_residual,
            loss_parts=self.loss_parts,
        )
