"""GPT: a decoder-only transformer. Read after attention.py: feed-forward layer, block, model.

Pre-norm RMSNorm, rotary positions, SwiGLU, no biases. Optimizations, and why they are exact:

* q, k and v share one matrix, gate and up another: fewer, larger products with the same numbers.
* Embedding and head are padded to a multiple of 128 rows, which suits the matrix units of GPUs. The logits of padding
rows are cut off first, so these rows get no probability and no gradient, and stay zero.
* Under bfloat16 autocast the residual stream is bfloat16 too, unless `float32_residual`; norms and loss are computed in
float32 inside their kernels.

`gristmill.lm.functional` is the same model as plain functions. The tests compare against it.

Shapes: B sequences, T tokens per sequence, S attended tokens, D d_model, H heads of size K, F d_ff, V vocabulary size,
L layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gristmill.errors import OptionError
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.models.foreign import ForeignModel
from gristmill.lm.models.gpt import llama, llama_weights
from gristmill.lm.models.gpt.attention import Attention, RMSNorm, View, causal_view, rope_tables
from gristmill.lm.models.gpt.block_mask import can_use_blocks
from gristmill.lm.models.gpt.cache import Cache, LayerCache, LayerRowCache
from gristmill.lm.models.gpt.options import FLOAT8_MULTIPLE, GPTConfig
from gristmill.lm.models.linear_cross_entropy import linear_cross_entropy
from gristmill.lm.models.model import Kernels, Model
from gristmill.lm.models.rows import OneByOne, RowReader
from gristmill.packages import load_package

if TYPE_CHECKING:
    from gristmill.lm.models.gpt.kernel_step import KernelStep

__all__ = ["GPT", "GPTConfig"]

INIT_STD = 0.02
STREAM_WEIGHTS = ("attention.output.weight", "feed_forward.down.weight")  # they write into the residual stream


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate x) * up x)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.d_model, 2 * config.feed_forward_width, bias=False)
        self.down = nn.Linear(config.feed_forward_width, config.d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Transform each token separately."""
        gate_BTF, up_BTF = self.gate_up(x_BTD).chunk(2, dim=-1)
        return cast(Tensor, self.down(F.silu(gate_BTF) * up_BTF))


class Block(nn.Module):
    """One layer: attention, then feed-forward, each with a norm before it and a residual connection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config)
        self.attention = Attention(config)
        self.feed_forward_norm = RMSNorm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = _dropout(config)

    def forward(self, x_BTD: Tensor, view: View, layer_cache: LayerCache | LayerRowCache | None) -> Tensor:
        """Return the residual stream after this layer."""
        x_BTD = x_BTD + self.dropout(self.attention(self.attention_norm(x_BTD), view, layer_cache))
        return cast(Tensor, x_BTD + self.dropout(self.feed_forward(self.feed_forward_norm(x_BTD))))


def _dropout(config: GPTConfig) -> nn.Module:
    return nn.Dropout(config.dropout) if config.dropout > 0 else nn.Identity()


def to_stream(x_BTD: Tensor, config: GPTConfig) -> Tensor:
    """Return `x` in the dtype of the residual stream. Never float16, whose range the stream can exceed."""
    if config.float32_residual or not torch.is_autocast_enabled(x_BTD.device.type):
        return x_BTD
    return x_BTD.bfloat16() if torch.get_autocast_dtype(x_BTD.device.type) == torch.bfloat16 else x_BTD


def head_loss(x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, config: GPTConfig) -> Tensor:
    """Return the mean cross-entropy in nats of logits `x @ weight.T`.

    Targets of -100 are ignored; without any other target, the result is 0.
    """
    kind = x_ND.device.type
    is_float16 = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.float16
    # The loss in parts computes gradients before the loss can be scaled, and float16 would lose small gradients.
    if config.loss_parts > 0 and not is_float16:
        return linear_cross_entropy(
            x_ND, weight_VD, targets_N, vocab_size=config.required_vocab_size, num_parts=config.loss_parts
        )
    logits_NV = F.linear(x_ND, weight_VD)[:, : config.vocab_size]
    nats = F.cross_entropy(logits_NV.float(), targets_N, ignore_index=IGNORED, reduction="sum")
    return nats / (targets_N != IGNORED).sum().clamp(min=1)


def stacked_in_blocks(model: nn.Module, config: GPTConfig) -> dict[str, int | tuple[int, ...]]:
    """Return the weights of the blocks that consist of several stacked matrices, by name.

    The value is the number of matrices of equal size, or the number of rows of each where the sizes differ.
    """
    qkv = 3 if config.kv_heads == config.num_heads else config.qkv_rows
    parts: dict[str, int | tuple[int, ...]] = {"attention.qkv.weight": qkv, "feed_forward.gate_up.weight": 2}
    return {
        name: number
        for name, _ in model.named_parameters()
        for ending, number in parts.items()
        if name.endswith(ending)
    }


def _foreign_part(model: nn.Module) -> str | None:
    """Return the name of the first submodule that kernels would not compute as it is, or None."""
    known = {Block, Attention, FeedForward, RMSNorm, nn.Linear, nn.Embedding, nn.Identity, nn.Dropout, nn.ModuleList}
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    for name, module in model.named_modules():
        is_own = module is model or type(module) in known  # adapters and parametrizations change the type
        if not is_own or "forward" in vars(module) or any(getattr(module, each) for each in hooks):
            return name or type(model).__name__
    return None


class GPT(Model):
    """A decoder-only transformer.

    Weights are drawn from torch's global generator: every matrix from a normal distribution with standard deviation
    0.02, except the matrices that write into the residual stream (attention.output, feed_forward.down), which use 0.02
    / sqrt(2 L) so that the stream does not grow with depth, or start at 0 with `output_init="zero"`. Norms start at 1,
    padding rows of embedding and head at 0.

    Args:
        config: The options of the model, with `vocab_size` set.

    Attributes:
        config: The options of the model.
        embedding: Token embedding, padded_vocab_size x D.
        dropout: Dropout after the embedding.
        blocks: The layers.
        final_norm: Norm before the head.
        head: Output head, or None with `tie_embeddings`.
        cos_TK: Cosines of the rotary positions.
        sin_TK: Sines of the rotary positions.

    Raises:
        OptionError: `vocab_size` is not set.

    Examples:
        >>> model = GPT(GPTConfig(vocab_size=300, context_length=8, num_layers=2, num_heads=2, d_model=16))
        >>> tokens_BT = torch.randint(300, (4, 9))
        >>> model(tokens_BT[:, :8]).shape
        torch.Size([4, 8, 300])
        >>> loss, stats = model.loss(Batch(tokens_BT[:, :8], tokens_BT[:, 1:]), {})
        >>> loss.backward()
        >>> model.stream(tokens_BT[:, :8]).shape
        torch.Size([4, 8, 16])
        >>> model.flops_per_token()
        81504
        >>> model.initialise()
    """

    EXPORTS: ClassVar[tuple[str, ...]] = ("huggingface", "gguf")
    """Formats of `gm.lm.export` that `exported` supports."""

    config: GPTConfig
    cos_TK: Tensor
    sin_TK: Tensor

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.padded_vocab_size, config.d_model)
        self.dropout = _dropout(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = RMSNorm(config)
        # A tied model has no head: with a second name, checkpoints and optimizers would process the same weight twice.
        self.head = None if config.tie_embeddings else nn.Linear(config.d_model, config.padded_vocab_size, bias=False)
        cos_TK, sin_TK = rope_tables(config)
        self.register_buffer("cos_TK", cos_TK, persistent=False)
        self.register_buffer("sin_TK", sin_TK, persistent=False)
        self._kernels: KernelStep | None = None
        self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw all parameters again from torch's global generator."""
        residual_std = INIT_STD / math.sqrt(2 * self.config.num_layers) if self.config.output_init == "scaled" else 0.0
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                nn.init.ones_(parameter)
                continue
            nn.init.normal_(parameter, std=residual_std if name.endswith(STREAM_WEIGHTS) else INIT_STD)
        self.embedding.weight[self.config.vocab_size :] = 0
        self.head_weight[self.config.vocab_size :] = 0

    @property
    def head_weight(self) -> Tensor:
        """Matrix from the residual stream to the logits: the head, or the embedding if they are tied."""
        return self.embedding.weight if self.head is None else self.head.weight

    def forward(
        self, tokens_BT: Tensor, *, document_ids_BT: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the logits of the token after each of `tokens_BT`: B x T x vocab_size.

        Args:
            tokens_BT: Token ids.
            document_ids_BT: Document of each token. A token attends only to earlier tokens of the same document.
                Positions are not reset: rotary attention depends on distances only, so a document gets the logits it
                would get alone.
            cache: Keys and values of the tokens before `tokens_BT`, to which those of `tokens_BT` are appended.

        Raises:
            OptionError: There are more tokens than `context_length`, or both `document_ids_BT` and a cache.
        """
        logits_BTV = F.linear(self.stream(tokens_BT, document_ids_BT=document_ids_BT, cache=cache), self.head_weight)
        return logits_BTV[..., : self.config.vocab_size]

    def stream(self, tokens_BT: Tensor, *, document_ids_BT: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Return the input of the head: B x T x D.

        Args:
            tokens_BT: Token ids.
            document_ids_BT: As in `forward`.
            cache: As in `forward`.

        Raises:
            OptionError: As in `forward`.
        """
        view = self._view(tokens_BT, document_ids_BT, cache)
        x_BTD = self.dropout(to_stream(self.embedding(tokens_BT), self.config))
        for index, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, view, None if cache is None else cache.layer(index))
        if cache is not None:
            cache.length += tokens_BT.shape[1]
        return cast(Tensor, self.final_norm(x_BTD))

    def loss(self, batch: Batch, schedule: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean cross-entropy in nats over the targets that are not -100, and the statistics.

        Computed in float32 and in parts, so the logits of all tokens are never in memory at once
        (`linear_cross_entropy`).

        Args:
            batch: The micro-batch.
            schedule: Not used by this model.

        Raises:
            OptionError: The sequences are longer than `context_length`.
        """
        if self._kernels is not None and batch.document_ids_BT is None:
            self._check_length(0, batch.inputs_BT.shape[1])
            loss = self._kernels.loss(batch)
        else:
            x_ND = self.stream(batch.inputs_BT, document_ids_BT=batch.document_ids_BT).flatten(0, 1)
            loss = head_loss(x_ND, self.head_weight, batch.targets_BT.flatten(), self.config)
        return loss, {"loss": loss.detach()}

    def why_no_kernels(self) -> str | None:
        """Return why the training step of this model cannot use Triton kernels; None if it can.

        Returns:
            The first option or size that rules them out, for a message.

        Examples:
            >>> config = GPTConfig(vocab_size=300, context_length=8, num_layers=2, num_heads=2, d_model=16)
            >>> GPT(config).why_no_kernels()
            'heads have a size of 8, and kernels need a power of 2 from 16 to 256'
        """
        c, own, foreign = self.config, type(self), _foreign_part(self)
        window = c.sliding_window is not None and c.sliding_window < c.context_length
        reasons = {
            f"{own.__name__} overrides a method of GPT": any(
                getattr(own, name) is not getattr(GPT, name) for name in ("forward", "stream", "loss")
            ),
            f"{foreign} is not a part of a GPT, or has a hook": foreign is not None,
            f"dropout={c.dropout}": c.dropout > 0,
            "float32_residual=True": c.float32_residual,
            "document_mask=True": c.document_mask,
            "conversations=True": c.conversations,
            f"sliding_window={c.sliding_window}": window,
        }
        return next((reason for reason, applies in reasons.items() if applies), c.unsupported_heads)

    def use_kernels(self, *, float8: str = "off", is_deterministic: bool = False) -> Kernels:
        """Compute `loss` with Triton kernels from now on, and return their state.

        Args:
            float8: Products in 8-bit floats: "off", "head", "blocks" or "all".
            is_deterministic: Add all gradients in a fixed order.

        Returns:
            The state of the kernels. Call its `after_update` after every step of an optimizer.

        Raises:
            OptionError: An option of the model rules out kernels, or its sizes rule out 8-bit floats.
            MissingPackageError: Triton is not installed.

        Modules that are replaced, and hooks that are added, after this call have no effect on `loss`. A copy of the
        model (`copy.deepcopy`) has no kernels. In training, change weights in place or by an optimizer, not through
        `.data`.

        Examples:
            ```python
            model = gm.lm.GPT(config).cuda()
            kernels = model.use_kernels(float8="all")
            loss, _ = model.loss(batch, {})
            loss.backward()
            optimizer.step()
            kernels.after_update()
            ```
        """
        if (reason := self.why_no_kernels()) is not None:
            raise OptionError(f"the kernels of a GPT cannot be used: {reason}.")
        load_package("triton", needed_by="use_kernels")
        size = self.config.feed_forward_width  # d_model is a multiple, because the size of a head is one
        if float8 != "off" and size % FLOAT8_MULTIPLE:
            raise OptionError(
                f"float8={float8!r} needs a d_ff that is a multiple of {FLOAT8_MULTIPLE}, but it is {size}. Change "
                f"d_ff, or pass float8='off'."
            )
        from gristmill.lm.models.gpt.kernel_step import KernelStep  # needs Triton

        self._kernels = KernelStep(self, float8=float8, is_deterministic=is_deterministic)
        return self._kernels

    def stacked_weights(self) -> dict[str, int | tuple[int, ...]]:
        """Return the weights that consist of several stacked matrices, which Muon handles separately."""
        return stacked_in_blocks(self, self.config)

    def new_row_reader(
        self, *, use_cache: bool, max_rows: int | None, num_rows: int, longest: int, use_graphs: bool
    ) -> RowReader:
        """Return an object that generates several texts at once, with a cache."""
        # A subclass may compute something that the cached steps do not implement.
        is_own = any(
            getattr(type(self), name) is not getattr(GPT, name) for name in ("forward", "stream", "new_reader")
        )
        if is_own or not use_cache:
            return OneByOne(self, use_cache=use_cache)
        from gristmill.lm.models.gpt.decoding import GPTRows

        return GPTRows(self, max_rows=max_rows, num_rows=num_rows, longest=longest, use_graphs=use_graphs)

    def use_bfloat16(self) -> None:
        """Convert the weights to bfloat16 for text generation. The tables of rotary positions stay in float32."""
        for parameter in self.parameters():
            parameter.data = parameter.data.bfloat16()

    def new_cache(self, batch_size: int, device: torch.device | str, dtype: torch.dtype) -> Cache:
        """Return an empty cache.

        Args:
            batch_size: Number of sequences.
            device: Device of the cache.
            dtype: Dtype of the activations, bfloat16 under autocast.

        Raises:
            RuntimeError: The device has too little memory.

        Examples:
            >>> model = GPT(GPTConfig(vocab_size=300, context_length=8, num_layers=1, num_heads=2, d_model=16))
            >>> cache = model.new_cache(1, "cpu", torch.float32)
            >>> model(torch.tensor([[1, 2, 3]]), cache=cache).shape, cache.length
            (torch.Size([1, 3, 300]), 3)
        """
        c = self.config
        shape = (c.num_layers, batch_size, c.kv_heads, c.context_length, c.head_dim)
        return Cache(torch.empty(shape, device=device, dtype=dtype), torch.empty(shape, device=device, dtype=dtype))

    def exported(self, format: str, *, vocab_size: int) -> ForeignModel:
        """Return the model as a Llama-family model of transformers or llama.cpp."""
        weights = self.state_dict()
        if format == "gguf":
            config = llama.gguf_config(self.config, vocab_size=vocab_size)
            return ForeignModel(config, llama_weights.gguf_weights(self.config, weights, vocab_size=vocab_size))
        config = llama.huggingface_config(self.config, vocab_size=vocab_size)
        return ForeignModel(config, llama_weights.huggingface_weights(self.config, weights, vocab_size=vocab_size))

    @classmethod
    def weights_of_huggingface(cls, config: GPTConfig, tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
        """Return the weights of a Llama, Mistral or Qwen3 model of the same sizes, under the names of this model."""
        return llama_weights.weights_of_huggingface(config, tensors, source)

    def flops_per_token(self, context_length: int | None = None) -> int:
        """Return the floating-point operations per token, forward and backward: 6 N + 12 L D T.

        MFU is computed from this number. N counts the parameters used in matrix products: all except the embedding,
        which is only a lookup (a tied embedding is also the head, and counts), and except padding rows. Attention is
        counted as if every token attended to all T, as in published figures, although causal kernels do half of that
        work. With `sliding_window`, T is at most its size.

        Args:
            context_length: T. None: that of the config.
        """
        c = self.config
        length = c.context_length if context_length is None else context_length
        length = length if c.sliding_window is None else min(length, c.sliding_window)
        table = c.padded_vocab_size * c.d_model
        num_multiplied = (
            self.num_parameters - table * (1 if self.head is None else 2) + c.required_vocab_size * c.d_model
        )
        return 6 * num_multiplied + 12 * c.num_layers * c.d_model * length

    def _view(self, tokens_BT: Tensor, document_ids_BT: Tensor | None, cache: Cache | None) -> View:
        begin = 0 if cache is None else cache.length
        num_tokens = tokens_BT.shape[1]
        self._check_length(begin, num_tokens)
        if document_ids_BT is not None and cache is not None:
            raise OptionError(
                "document_ids_BT and cache cannot be used together. Omit document_ids_BT when you pass cache."
            )
        c = self.config
        has_dropout = self.training and c.dropout > 0
        return causal_view(
            self.cos_TK,
            self.sin_TK,
            begin,
            num_tokens,
            sliding_window=c.sliding_window,
            document_ids_BT=document_ids_BT,
            by_blocks=cache is None and can_use_blocks(tokens_BT.device, head_dim=c.head_dim, has_dropout=has_dropout),
        )

    def _check_length(self, begin: int, num_tokens: int) -> None:
        if begin + num_tokens > self.config.context_length:
            held = f" after {begin:,} in the cache" if begin else ""
            raise OptionError(
                f"{num_tokens:,} tokens{held} are more than context_length={self.config.context_length:,}. Pass fewer, "
                f"or train with a longer context_length."
            )
