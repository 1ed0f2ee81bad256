"""The attention of the GPT: rotary positions, and who may attend to whom.

Shapes: B sequences, T tokens each, S tokens that are attended to, D d_model, H heads of K numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from gristmill.lm.models.gpt.cache import LayerCache
    from gristmill.lm.models.gpt.options import GPTConfig

__all__ = ["Attention", "View", "causal_view", "rope_tables", "rotate"]


def rope_tables(config: GPTConfig) -> tuple[Tensor, Tensor]:
    """(cos, sin) of every position and number of a head, in the form `rotate` wants them.

    Pair i turns by position * theta^(-2i/K). Its numbers are neighbours (the interleaved form), so each angle stands
    twice, and the sine of the first has a minus.
    """
    pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64, device="cpu") / config.head_dim
    positions = torch.arange(config.context_length, dtype=torch.float64, device="cpu")
    angles_TK = torch.outer(positions, config.rope_theta**-pairs).repeat_interleave(2, dim=1)
    signs_K = torch.tensor([-1.0, 1.0], dtype=torch.float64, device="cpu").repeat(config.head_dim // 2)
    return angles_TK.cos().float(), (angles_TK.sin() * signs_K).float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` with each pair of neighbours (a, b) turned into (a cos - b sin, b cos + a sin)."""
    neighbours = torch.unflatten(x, -1, (-1, 2)).flip(-1).flatten(-2)
    return (x * cos + neighbours * sin).type_as(x)


class Attention(nn.Module):
    """Causal multi-head self-attention with rotary positions."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model, bias=False)
        self.output = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, x_BTD: Tensor, view: View, layer_cache: LayerCache | None) -> Tensor:
        """What each token gathers from those it sees."""
        qkv_BT3HK = self.qkv(x_BTD).unflatten(-1, (3, self.num_heads, -1))
        qk_BT2HK, v_BT1HK = qkv_BT3HK.split((2, 1), dim=2)
        q_BHTK, k_BHSK = rotate(qk_BT2HK, view.cos_T11K, view.sin_T11K).permute(2, 0, 3, 1, 4).unbind(0)
        v_BHSK = v_BT1HK.squeeze(2).transpose(1, 2)
        if layer_cache is not None:
            k_BHSK, v_BHSK = layer_cache.append(k_BHSK, v_BHSK)
        mixed_BHTK = F.scaled_dot_product_attention(
            q_BHTK,
            k_BHSK,
            v_BHSK,
            attn_mask=view.mask,
            is_causal=view.is_causal,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return cast(Tensor, self.output(mixed_BHTK.transpose(1, 2).flatten(2)))


@dataclass(frozen=True)
class View:
    """What the tokens of one forward pass see: their positions, and who may attend to whom; the same in every layer."""

    cos_T11K: Tensor
    sin_T11K: Tensor
    mask: Tensor | None  # True: attends. None: by `is_causal` alone, the fastest kernels.
    is_causal: bool


def causal_view(cos_TK: Tensor, sin_TK: Tensor, begin: int, num_tokens: int) -> View:
    """The view of `num_tokens` tokens after `begin` others in a cache: each sees those before it, and itself."""
    rows = slice(begin, begin + num_tokens)
    cos_T11K, sin_T11K = cos_TK[rows, None, None], sin_TK[rows, None, None]
    if begin == 0:
        return View(cos_T11K, sin_T11K, None, is_causal=True)
    # One token sees all: no mask. For several, torch's is_causal would align the first with the first in the cache.
    mask_TS = torch.ones(num_tokens, begin + num_tokens, dtype=torch.bool, device=cos_TK.device).tril(begin)
    return View(cos_T11K, sin_T11K, None if num_tokens == 1 else mask_TS, is_causal=False)
