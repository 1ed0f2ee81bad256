"""The attention of the GPT: rotary positions, attention, and attention masks.

Shapes: B sequences, T tokens per sequence, S attended tokens, D d_model, H heads of size K, G heads of keys and values,
A heads of queries and keys or of all three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gristmill.lm.models.gpt.block_mask import block_attention, block_mask

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

    from gristmill.lm.models.gpt.cache import LayerCache, LayerRowCache
    from gristmill.lm.models.gpt.options import GPTConfig

__all__ = ["Attention", "RMSNorm", "View", "attend", "causal_mask", "causal_view", "rope_tables", "rotate"]


def rope_tables(config: GPTConfig) -> tuple[Tensor, Tensor]:
    """Return (cos, sin) per position and number of a head, in the form that `rotate` takes.

    Pair i is rotated by position * theta^(-2i/K). The numbers of a pair are neighbours (the interleaved form), so each
    angle occurs twice, and the first sine is negated.
    """
    pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64, device="cpu") / config.head_dim
    positions = torch.arange(config.context_length, dtype=torch.float64, device="cpu")
    angles_TK = torch.outer(positions, config.rope_theta**-pairs).repeat_interleave(2, dim=1)
    signs_K = torch.tensor([-1.0, 1.0], dtype=torch.float64, device="cpu").repeat(config.head_dim // 2)
    return angles_TK.cos().float(), (angles_TK.sin() * signs_K).float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return `x` with each pair of neighbours (a, b) rotated to (a cos - b sin, b cos + a sin)."""
    neighbours = torch.unflatten(x, -1, (-1, 2)).flip(-1).flatten(-2)
    return (x * cos + neighbours * sin).type_as(x)


class RMSNorm(nn.Module):
    """x / root-mean-square(x) * weight, over the last dimension, of size d_model or `width`."""

    def __init__(self, config: GPTConfig, width: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.d_model if width is None else width))
        self.eps = config.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm in the dtype of `x`.

        With a float32 weight, torch would convert a bfloat16 stream to float32.
        """
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Causal multi-head self-attention with rotary positions.

    Keys and values may have fewer heads (G) than queries; each is then shared by H / G neighbouring query heads.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.num_kv_heads = config.kv_heads
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.d_model, sum(config.qkv_rows), bias=False)
        self.q_norm = RMSNorm(config, config.head_dim) if config.qk_norm else None
        self.k_norm = RMSNorm(config, config.head_dim) if config.qk_norm else None
        self.output = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, x_BTD: Tensor, view: View, layer_cache: LayerCache | LayerRowCache | None) -> Tensor:
        """Return the attention output of each token."""
        q_BHTK, k_BGSK, v_BGSK = self._queries_keys_values(x_BTD, view)
        if layer_cache is not None:
            k_BGSK, v_BGSK = layer_cache.append(k_BGSK, v_BGSK)
        mixed_BHTK = attend(q_BHTK, k_BGSK, v_BGSK, view, dropout=self.dropout if self.training else 0.0)
        return cast(Tensor, self.output(mixed_BHTK.transpose(1, 2).flatten(2)))

    def _queries_keys_values(self, x_BTD: Tensor, view: View) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values. Queries and keys are rotated together, which saves an operation."""
        h, g = self.num_heads, self.num_kv_heads
        all_BT1AK = self.qkv(x_BTD).unflatten(-1, (1, h + 2 * g, -1))
        qk_BT1AK, v_BT1GK = all_BT1AK.split((h + g, g), dim=3)
        if self.q_norm is not None and self.k_norm is not None:
            q_BT1HK, k_BT1GK = qk_BT1AK.split((h, g), dim=3)
            qk_BT1AK = torch.cat([self.q_norm(q_BT1HK), self.k_norm(k_BT1GK)], dim=3)
        q_BT1HK, k_BT1GK = rotate(qk_BT1AK, view.cos_T11K, view.sin_T11K).split_with_sizes((h, g), dim=3)
        q_BHTK, k_BGTK, v_BGTK = (each.squeeze(2).transpose(1, 2) for each in (q_BT1HK, k_BT1GK, v_BT1GK))
        return q_BHTK, k_BGTK, v_BGTK


def attend(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, view: View, *, dropout: float) -> Tensor:
    """Return softmax(q kT / sqrt(K)) v over the tokens that `view` allows."""
    if view.blocks is not None:
        return block_attention(q_BHTK, k_BGSK, v_BGSK, view.blocks)
    is_shared = k_BGSK.shape[1] != q_BHTK.shape[1]
    if is_shared and q_BHTK.shape[2] == 1 and dropout == 0:
        # A single token attends to the same keys in all heads, so query heads that share keys become queries of one
        # head.
        q_BGMK = torch.unflatten(q_BHTK.squeeze(2), 1, (k_BGSK.shape[1], -1))
        return F.scaled_dot_product_attention(q_BGMK, k_BGSK, v_BGSK, attn_mask=view.mask).flatten(1, 2)[:, :, None]
    if is_shared and not _shares_heads(q_BHTK, view):
        num_queries = q_BHTK.shape[1] // k_BGSK.shape[1]
        k_BGSK, v_BGSK = (each.repeat_interleave(num_queries, dim=1) for each in (k_BGSK, v_BGSK))
        is_shared = False
    return F.scaled_dot_product_attention(
        q_BHTK,
        k_BGSK,
        v_BGSK,
        attn_mask=view.mask,
        is_causal=view.is_causal,
        dropout_p=dropout,
        enable_gqa=is_shared,
    )


def _shares_heads(q_BHTK: Tensor, view: View) -> bool:
    """Whether torch's kernel for these queries supports several query heads per key head.

    On CUDA only flash attention does, which supports neither masks nor float32. Otherwise torch would use the slow form
    that stores all T x S scores, and repeating keys and values is cheaper.
    """
    if q_BHTK.device.type == "cpu":
        return True
    is_flash = view.mask is None and q_BHTK.dtype in (torch.float16, torch.bfloat16)
    return q_BHTK.device.type == "cuda" and is_flash


@dataclass(frozen=True)
class View:
    """Positions and attention mask of the tokens of one forward pass, the same in every layer."""

    cos_T11K: Tensor
    sin_T11K: Tensor
    # True where a token attends, or numbers to add to the scores. None: `is_causal` alone, for the fastest kernels.
    mask: Tensor | None
    is_causal: bool
    blocks: BlockMask | None = None  # instead of `mask`, for kernels that need no T x T mask


def causal_view(
    cos_TK: Tensor,
    sin_TK: Tensor,
    begin: int,
    num_tokens: int,
    *,
    sliding_window: int | None = None,
    document_ids_BT: Tensor | None = None,
    by_blocks: bool = False,
) -> View:
    """Return the view of `num_tokens` tokens after `begin` tokens in a cache.

    Each token attends to itself and to those before it. This is the only place that decides the form of a mask: none
    where a kernel implements the rule, by blocks where possible (`by_blocks`, and no tokens in a cache), and otherwise
    one truth value per pair of tokens.

    sliding_window: a token attends to at most this many tokens, including itself.
    document_ids_BT: a token attends only to tokens with the same id; not with a cache.
    """
    rows = slice(begin, begin + num_tokens)
    cos_T11K, sin_T11K = cos_TK[rows, None, None], sin_TK[rows, None, None]
    is_cut = sliding_window is not None and begin + num_tokens > sliding_window
    if document_ids_BT is None and not is_cut and (begin == 0 or num_tokens == 1):
        return View(cos_T11K, sin_T11K, None, is_causal=begin == 0)
    if by_blocks and begin == 0:
        window = sliding_window if is_cut else None
        blocks = block_mask(num_tokens, cos_TK.device, sliding_window=window, document_ids_BT=document_ids_BT)
        return View(cos_T11K, sin_T11K, None, is_causal=False, blocks=blocks)
    # Not is_causal: torch would align the first new token with the first token in the cache.
    mask = causal_mask(begin, num_tokens, sliding_window if is_cut else None, cos_TK.device)
    if document_ids_BT is not None:
        same_BTT = document_ids_BT[:, :, None] == document_ids_BT[:, None, :]
        mask = (same_BTT & mask)[:, None]
    return View(cos_T11K, sin_T11K, mask, is_causal=False)


def causal_mask(begin: int, num_tokens: int, sliding_window: int | None, device: torch.device) -> Tensor:
    """Return mask_TS, True where token begin + t attends to token s."""
    mask_TS = torch.ones(num_tokens, begin + num_tokens, dtype=torch.bool, device=device).tril(begin)
    return mask_TS if sliding_window is None else mask_TS.triu(begin - sliding_window + 1)
