"""GPT: a decoder-only transformer. Read after attention.py: feed-forward, block, model.

Pre-norm RMSNorm, rotary positions, SwiGLU, no biases. What is done for speed, and why it is exact:

* q, k and v are one matrix, gate and up another: fewer, larger products. The same numbers.
* Embedding and head have rows up to a multiple of 128, which the matrix units of a GPU want. The columns of logits that
  belong to no token are cut off before anything sees them: they get no probability and no gradient, and stay zero.
* Under bfloat16 autocast the residual stream is bfloat16 too, unless `float32_residual`; norms and loss are computed in
  float32 inside their kernels.

`gristmill.lm.functional` is the same model as plain functions, and the oracle of the tests.

Shapes: B sequences, T tokens each, S tokens that are attended to, D d_model, H heads of K numbers, F d_ff, V tokens of
the vocabulary, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, cast

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
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.models.linear_cross_entropy import linear_cross_entropy
from gristmill.lm.models.model import Model
from gristmill.lm.models.rows import OneByOne, RowReader

__all__ = ["GPT", "GPTConfig"]

INIT_STD = 0.02
STREAM_WEIGHTS = ("attention.output.weight", "feed_forward.down.weight")  # what a block adds to the stream comes of


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate x) * up x)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.d_model, 2 * config.feed_forward_width, bias=False)
        self.down = nn.Linear(config.feed_forward_width, config.d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Each token by itself."""
        gate_BTF, up_BTF = self.gate_up(x_BTD).chunk(2, dim=-1)
        return cast(Tensor, self.down(F.silu(gate_BTF) * up_BTF))


class Block(nn.Module):
    """One layer: attention, then feed-forward, each added to the stream it reads through a norm."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config)
        self.attention = Attention(config)
        self.feed_forward_norm = RMSNorm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = _dropout(config)

    def forward(self, x_BTD: Tensor, view: View, layer_cache: LayerCache | LayerRowCache | None) -> Tensor:
        """The stream with what this layer adds to it."""
        x_BTD = x_BTD + self.dropout(self.attention(self.attention_norm(x_BTD), view, layer_cache))
        return cast(Tensor, x_BTD + self.dropout(self.feed_forward(self.feed_forward_norm(x_BTD))))


def _dropout(config: GPTConfig) -> nn.Module:
    return nn.Dropout(config.dropout) if config.dropout > 0 else nn.Identity()


def to_stream(x_BTD: Tensor, config: GPTConfig) -> Tensor:
    """`x` in the type of the residual stream. Not float16, whose range it may leave."""
    if config.float32_residual or not torch.is_autocast_enabled(x_BTD.device.type):
        return x_BTD
    return x_BTD.bfloat16() if torch.get_autocast_dtype(x_BTD.device.type) == torch.bfloat16 else x_BTD


def head_loss(x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, config: GPTConfig) -> Tensor:
    """The mean cross-entropy in nats of the targets that are not -100, under logits `x @ weight.T`; 0 of no targets."""
    kind = x_ND.device.type
    is_float16 = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.float16
    # In parts, gradients are made before they can be scaled, and float16 would lose the small ones.
    if config.loss_parts > 0 and not is_float16:
        return linear_cross_entropy(
            x_ND, weight_VD, targets_N, vocab_size=config.required_vocab_size, num_parts=config.loss_parts
        )
    logits_NV = F.linear(x_ND, weight_VD)[:, : config.vocab_size]
    nats = F.cross_entropy(logits_NV.float(), targets_N, ignore_index=IGNORED, reduction="sum")
    return nats / (targets_N != IGNORED).sum().clamp(min=1)


def stacked_in_blocks(model: nn.Module, config: GPTConfig) -> dict[str, int | tuple[int, ...]]:
    """The weights in its blocks that are several matrices on top of each other, by name.

    With each, how many matrices of the same size they are, or the rows of each matrix where sizes differ.
    """
    qkv = 3 if config.kv_heads == config.num_heads else config.qkv_rows
    parts: dict[str, int | tuple[int, ...]] = {"attention.qkv.weight": qkv, "feed_forward.gate_up.weight": 2}
    return {
        name: number
        for name, _ in model.named_parameters()
        for ending, number in parts.items()
        if name.endswith(ending)
    }


class GPT(Model):
    """The model.

    Initialised by torch's global generator: every matrix from a normal distribution with deviation 0.02, those that
    write into the residual stream (attention.output, feed_forward.down) with 0.02 / sqrt(2 L), so that the stream does
    not grow with depth; norms 1; the rows of embedding and head that belong to no token 0.

    >>> model = GPT(GPTConfig(vocab_size=300, context_length=8, num_layers=2, num_heads=2, d_model=16))
    >>> tokens_BT = torch.randint(300, (4, 9))
    >>> model(tokens_BT[:, :8]).shape
    torch.Size([4, 8, 300])
    >>> loss, stats = model.loss(Batch(tokens_BT[:, :8], tokens_BT[:, 1:]), {})
    >>> loss.backward()
    """

    EXPORTS: ClassVar[tuple[str, ...]] = ("huggingface", "gguf")

    config: GPTConfig
    cos_TK: Tensor
    sin_TK: Tensor

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.padded_vocab_size, config.d_model)
        self.dropout = _dropout(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = RMSNorm(config)
        # Tied, there is no head: a second name for the same numbers would be a trap for checkpoints and optimizers.
        self.head = None if config.tie_embeddings else nn.Linear(config.d_model, config.padded_vocab_size, bias=False)
        cos_TK, sin_TK = rope_tables(config)
        self.register_buffer("cos_TK", cos_TK, persistent=False)
        self.register_buffer("sin_TK", sin_TK, persistent=False)
        self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw all parameters again."""
        residual_std = INIT_STD / math.sqrt(2 * self.config.num_layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                nn.init.ones_(parameter)
                continue
            nn.init.normal_(parameter, std=residual_std if name.endswith(STREAM_WEIGHTS) else INIT_STD)
        self.embedding.weight[self.config.vocab_size :] = 0
        self.head_weight[self.config.vocab_size :] = 0

    @property
    def head_weight(self) -> Tensor:
        """The matrix from the stream to the logits: that of the head, or of the embedding."""
        return self.embedding.weight if self.head is None else self.head.weight

    def forward(
        self, tokens_BT: Tensor, *, document_ids_BT: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """The logits of the token after each of `tokens_BT`: B x T x vocab_size.

        document_ids_BT: a token sees only earlier tokens with its own id. Positions count through: rotary attention
            depends on distances alone, so a document has the logits it would have by itself.
        cache: `tokens_BT` follow the tokens in it, and are added to it.
        """
        logits_BTV = F.linear(self.stream(tokens_BT, document_ids_BT=document_ids_BT, cache=cache), self.head_weight)
        return logits_BTV[..., : self.config.vocab_size]

    def stream(self, tokens_BT: Tensor, *, document_ids_BT: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """What the head makes logits of: B x T x D. Arguments as in `forward`."""
        view = self._view(tokens_BT, document_ids_BT, cache)
        x_BTD = self.dropout(to_stream(self.embedding(tokens_BT), self.config))
        for index, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, view, None if cache is None else cache.layer(index))
        if cache is not None:
            cache.length += tokens_BT.shape[1]
        return cast(Tensor, self.final_norm(x_BTD))

    def loss(self, batch: Batch, schedule: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean cross-entropy in nats over the targets that are not -100; `schedule` is for models that have one.

        In float32, and in parts: the logits of all tokens are never there at once (`linear_cross_entropy`).
        """
        x_ND = self.stream(batch.inputs_BT, document_ids_BT=batch.document_ids_BT).flatten(0, 1)
        targets_N = batch.targets_BT.flatten()
        loss = head_loss(x_ND, self.head_weight, targets_N, self.config)
        return loss, {"loss": loss.detach()}

    def stacked_weights(self) -> dict[str, int | tuple[int, ...]]:
        """The weights that are several matrices on top of each other, and how many or their rows: Muon splits them."""
        return stacked_in_blocks(self, self.config)

    def new_row_reader(
        self, *, use_cache: bool, max_rows: int | None, num_rows: int, longest: int, use_graphs: bool
    ) -> RowReader:
        """What generates several texts at once, with a cache."""
        # A subclass may compute something else, which the steps with a cache know nothing of.
        is_own = any(
            getattr(type(self), name) is not getattr(GPT, name) for name in ("forward", "stream", "new_reader")
        )
        if is_own or not use_cache:
            return OneByOne(self, use_cache=use_cache)
        from gristmill.lm.models.gpt.decoding import GPTRows

        return GPTRows(self, max_rows=max_rows, num_rows=num_rows, longest=longest, use_graphs=use_graphs)

    def use_bfloat16(self) -> None:
        """Hold the weights in bfloat16, to write text with. The angles of the positions stay in float32."""
        for parameter in self.parameters():
            parameter.data = parameter.data.bfloat16()

    def new_cache(self, batch_size: int, device: torch.device | str, dtype: torch.dtype) -> Cache:
        """An empty cache for `batch_size` sequences; `dtype` is that of the activations, bfloat16 under autocast."""
        c = self.config
        shape = (c.num_layers, batch_size, c.kv_heads, c.context_length, c.head_dim)
        return Cache(torch.empty(shape, device=device, dtype=dtype), torch.empty(shape, device=device, dtype=dtype))

    def exported(self, format: str, *, vocab_size: int) -> ForeignModel:
        """The model as one of the Llama family: of transformers, or of llama.cpp."""
        weights = self.state_dict()
        if format == "gguf":
            config = llama.gguf_config(self.config, vocab_size=vocab_size)
            return ForeignModel(config, llama_weights.gguf_weights(self.config, weights, vocab_size=vocab_size))
        config = llama.huggingface_config(self.config, vocab_size=vocab_size)
        return ForeignModel(config, llama_weights.huggingface_weights(self.config, weights, vocab_size=vocab_size))

    @classmethod
    def weights_of_huggingface(cls, config: GPTConfig, tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
        """The weights of a Llama, Mistral or Qwen3 of the same sizes."""
        return llama_weights.weights_of_huggingface(config, tensors, source)

    def flops_per_token(self, context_length: int | None = None) -> int:
        """Floating-point operations of one token, forward and backward: 6 N + 12 L D T, from which MFU is computed.

        N are the parameters that are multiplied: all but the embedding, which is only looked up (tied, it is also the
        head, and counts), and but the rows of padding, which is work for nothing. Attention is counted as if every
        token saw all T, the convention of published figures, though causal kernels do half of it. With `sliding_window`
        T is at most its size.
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
            raise OptionError("document_ids_BT and a cache exclude each other. Pass one document and its cache.")
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
