"""GPTConfig: the options and presets of the GPT."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from gristmill.errors import OptionError
from gristmill.lm.models.config import WindowModelConfig, check_heads
from gristmill.lm.models.gpt import llama
from gristmill.lm.option_types import Count, Positive, Share

__all__ = ["GPTConfig"]

VOCAB_MULTIPLE = 128
FEED_FORWARD_MULTIPLE = 64
KERNEL_HEAD_SIZES = (16, 32, 64, 128, 256)
FLOAT8_MULTIPLE = 16  # of every dimension of a product in 8-bit floats, such as the tokens per micro-batch
# The options with the shortest time to a loss in benchmarks/to_loss.py.
_FASTEST_LEARNING: Mapping[str, Any] = {
    "output_init": "zero",
    "optimizer": "muon",
    "learning_rate": 2e-3,
    "muon_learning_rate": 0.01,
    "schedule": "wsd",
    "decay_fraction": 0.6,
    "final_fraction": 0.0,
    "warmup_steps": 0.04,
}


@dataclass(frozen=True, kw_only=True)
class GPTConfig(WindowModelConfig):
    """The options of a GPT.

    Raises:
        OptionError: An option has a wrong type, is out of range, or does not fit another one.

    Examples:
        >>> GPTConfig(vocab_size=50_257, num_layers=12, num_heads=12, d_model=768).padded_vocab_size
        50304
    """

    num_layers: Count = 4
    """Number of layers."""
    num_heads: Count = 4
    """Attention heads per layer."""
    num_kv_heads: Count | None = None
    """Key and value heads, each shared by num_heads / num_kv_heads query heads. None: num_heads."""
    d_model: Count = 256
    """Model width."""
    d_ff: Count | None = None
    """Width of the feed-forward layers. None: 8/3 of d_model, rounded up to a multiple of 64."""
    rope_theta: Positive = 10_000.0
    """Base of the rotary position embedding."""
    output_init: Literal["scaled", "zero"] = "scaled"
    """Initial weights of the matrices that write into the residual stream. scaled: smaller in deeper models. zero: each
    block starts as the identity."""
    qk_norm: bool = False
    """Normalize queries and keys per head (RMSNorm) before rotary positions. Keeps large models stable."""
    sliding_window: Count | None = None
    """Number of tokens that a token attends to: itself and those just before it. None: all before it."""
    tie_embeddings: bool = False
    """Use the embedding as the output head too. Saves parameters."""
    dropout: Share = 0.0
    """Dropout probability in training."""
    norm_eps: Positive = 1e-5
    """Epsilon of the norms."""
    float32_residual: bool = False
    """Keep the residual stream in float32 under bf16-mixed. Slower, and rarely better."""
    loss_parts: int = field(default=4, metadata={"option": False})
    """Number of parts in which the loss computes the logits, to save memory. 0: all logits at once."""

    name: ClassVar[str] = "gpt"
    """Name of the model."""
    SIZES: ClassVar[frozenset[str]] = frozenset(
        {
            *("vocab_size", "context_length", "num_layers", "num_heads", "num_kv_heads", "d_model", "d_ff"),
            *("rope_theta", "qk_norm", "sliding_window", "tie_embeddings", "norm_eps"),
        }
    )
    """Options that determine the shapes of the weights."""
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quickstart": {
            "context_length": 128,
            "num_layers": 4,
            "num_heads": 4,
            "d_model": 128,
            "tie_embeddings": True,
            "batch_size": 8,
            "max_steps": 1000,
            "optimizer": "muon",
            "learning_rate": 4e-3,
            "muon_learning_rate": 0.012,
            "warmup_steps": 0.05,
            "checkpoint_interval": 250,
            "limit_val_batches": 16,
            "val_check_interval": 200,
            "sample_interval": 200,
        },
        "tinystories-17m": {
            "context_length": 256,
            "num_layers": 4,
            "num_heads": 4,  # heads of size 128, the fastest in attention kernels; as many parameters as 16 of size 32
            "d_model": 512,
            "d_ff": 1344,
            "batch_size": 256,
            "max_tokens": 327_680_000,
            **_FASTEST_LEARNING,
            "compile_model": True,
            "val_check_interval": 500,
            "sample_interval": 500,
        },
        "gpt2-124m": {
            "context_length": 1024,
            "num_layers": 12,
            "num_heads": 6,  # heads of size 128, the fastest in attention kernels; as many parameters as 12 of size 64
            "d_model": 768,
            "tie_embeddings": True,
            "batch_size": 64,
            "global_batch_size": 512,
            "epochs": 1.0,
            **_FASTEST_LEARNING,
            "compile_model": True,
            "val_check_interval": 250,
            "sample_interval": 1000,
        },
    }
    """Sets of options by the name of the preset."""

    def num_masked_pairs(self, *, batch_size: int) -> int:
        """Return the token pairs in attention masks.

        Document masks are one per sequence; the mask of a sliding window is shared by all sequences.
        """
        num_masks = batch_size if self.document_mask or self.conversations else 0
        if num_masks == 0 and self.sliding_window is not None and self.sliding_window < self.context_length:
            num_masks = 1
        return num_masks * self.context_length**2

    def check(self) -> None:
        """Check that heads have equal, even sizes, and that query heads share the key and value heads evenly."""
        check_heads(self.d_model, self.num_heads)
        if self.num_heads % self.kv_heads:
            raise OptionError(
                f"num_heads={self.num_heads} is not a multiple of num_kv_heads={self.kv_heads}, so query heads cannot "
                f"share key and value heads evenly. Pass a num_kv_heads that divides {self.num_heads}."
            )

    @classmethod
    def options_of_huggingface(cls, config: Mapping[str, Any], source: str) -> dict[str, Any]:
        """Return the options of a GPT with the sizes of a Llama, Mistral or Qwen3 model."""
        return llama.options_of_huggingface(config, source)

    def sizes(self) -> dict[str, Any]:
        """Return the options that determine the shapes of the weights, with computed values instead of None."""
        return {**super().sizes(), "d_ff": self.feed_forward_width, "num_kv_heads": self.kv_heads}

    @property
    def feed_forward_width(self) -> int:
        """`d_ff`, or its default."""
        if self.d_ff is not None:
            return self.d_ff
        return math.ceil(8 * self.d_model / 3 / FEED_FORWARD_MULTIPLE) * FEED_FORWARD_MULTIPLE

    @property
    def kv_heads(self) -> int:
        """`num_kv_heads`, or its default."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def qkv_rows(self) -> tuple[int, int, int]:
        """Number of rows of the queries, the keys and the values in their common matrix."""
        return self.num_heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.num_heads

    @property
    def unsupported_heads(self) -> str | None:
        """Why Triton kernels cannot compute heads of this size; None if they can."""
        if self.head_dim in KERNEL_HEAD_SIZES:
            return None
        return f"heads have a size of {self.head_dim}, and kernels need a power of 2 from 16 to 256"

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding and the head: `vocab_size` rounded up to a multiple of 128."""
        return math.ceil(self.required_vocab_size / VOCAB_MULTIPLE) * VOCAB_MULTIPLE
