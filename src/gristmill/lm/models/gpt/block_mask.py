"""Attention masks by blocks of 128 x 128 tokens for FlexAttention, which never store T x T numbers.

A block of token pairs is skipped, computed as a whole, or computed and then masked pair by pair.

Shapes: B sequences, T tokens per sequence in N blocks, H heads of size K, G heads of keys and values.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

__all__ = ["block_attention", "block_mask", "blocks_to_compute", "can_use_blocks"]

BLOCK = 128
MIN_HEAD_DIM = 16  # required by the kernels
HAS_TRITON = importlib.util.find_spec("triton") is not None


def can_use_blocks(device: torch.device, *, head_dim: int, has_dropout: bool) -> bool:
    """Whether FlexAttention has a kernel here: on CUDA, and without dropout, which it does not support."""
    return device.type == "cuda" and HAS_TRITON and head_dim >= MIN_HEAD_DIM and not has_dropout


def block_attention(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, mask: BlockMask) -> Tensor:
    """Return softmax(q kT / sqrt(K)) v over the tokens that `mask` allows."""
    is_shared = q_BHTK.shape[1] != k_BGTK.shape[1]
    is_plain = torch.compiler.is_compiling() or not q_BHTK.is_cuda  # compiled with the model, or no kernel
    attend = _plain_attention() if is_plain else _compiled_attention()
    return cast(Tensor, attend(q_BHTK, k_BGTK, v_BGTK, block_mask=mask, enable_gqa=is_shared))


@functools.cache
def _compiled_attention() -> Any:
    """Return FlexAttention as a kernel. Without torch.compile, it would store all T x T scores."""
    return torch.compile(_plain_attention())


def _plain_attention() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention


def block_mask(
    num_tokens: int, device: torch.device, *, sliding_window: int | None, document_ids_BT: Tensor | None
) -> BlockMask:
    """Return the mask of tokens that attend to earlier tokens in their window and document."""
    from torch.nn.attention.flex_attention import BlockMask

    ids = None if document_ids_BT is None else _in_whole_blocks(document_ids_BT)
    partial, full = blocks_to_compute(num_tokens, device, sliding_window=sliding_window, document_ids_BT=ids)
    return BlockMask.from_kv_blocks(
        *_numbered(partial),
        *_numbered(full),
        BLOCK_SIZE=BLOCK,
        mask_mod=_mask_rule(sliding_window, ids),
        seq_lengths=(num_tokens, num_tokens),
    )


def _in_whole_blocks(document_ids_BT: Tensor) -> Tensor:
    """Return the ids, padded to a whole number of blocks by repeating the last one."""
    num_tokens = document_ids_BT.shape[1]
    columns = torch.arange(_num_blocks(num_tokens) * BLOCK, device=document_ids_BT.device)
    return document_ids_BT[:, columns.clamp(max=num_tokens - 1)]


def _num_blocks(num_tokens: int) -> int:
    return (num_tokens + BLOCK - 1) // BLOCK


def _mask_rule(sliding_window: int | None, document_ids_BT: Tensor | None) -> Callable[..., Tensor]:
    """Return the function that tells FlexAttention whether token t of sequence b attends to token s."""

    def attends(b: Tensor, head: Tensor, t: Tensor, s: Tensor) -> Tensor:
        seen = s <= t
        if sliding_window is not None:
            seen = seen & (t - s < sliding_window)
        if document_ids_BT is not None:
            seen = seen & (document_ids_BT[b, t] == document_ids_BT[b, s])
        return seen

    return attends


def blocks_to_compute(
    num_tokens: int, device: torch.device, *, sliding_window: int | None, document_ids_BT: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return (partial, full), B x 1 x N x N each: blocks to mask pair by pair, and blocks in which all pairs attend.

    Computed from the smallest and largest id of each block: if the ranges do not overlap, no document is common. B is 1
    without documents; document ids must be padded to whole blocks.
    """
    numbers_N = torch.arange(_num_blocks(num_tokens), device=device)
    t_N1, s_N = numbers_N[:, None], numbers_N
    distance_NN = (t_N1 - s_N) * BLOCK  # between first tokens; for other pairs, up to BLOCK - 1 more or less
    some, full = (t_N1 >= s_N)[None], ((t_N1 > s_N) & ((t_N1 + 1) * BLOCK <= num_tokens))[None]
    if sliding_window is not None:
        some, full = (
            some & (distance_NN - BLOCK + 1 < sliding_window),
            full & (distance_NN + BLOCK - 1 < sliding_window),
        )
    if document_ids_BT is not None:
        low_BN, high_BN = torch.unflatten(document_ids_BT, 1, (-1, BLOCK)).aminmax(dim=2)
        some = some & (low_BN[:, :, None] <= high_BN[:, None]) & (low_BN[:, None] <= high_BN[:, :, None])
        # Each block has one document, and both have the same.
        full = full & (low_BN[:, :, None] == high_BN[:, None]) & (low_BN[:, None] == high_BN[:, :, None])
        full = full & (low_BN == high_BN)[:, None]
    return (some & ~full)[:, None], full[:, None]


def _numbered(blocks_B1NN: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of blocks per row, and their column numbers, selected columns first."""
    order = blocks_B1NN.int().argsort(dim=-1, descending=True, stable=True)
    return blocks_B1NN.sum(-1, dtype=torch.int32), order.int()
