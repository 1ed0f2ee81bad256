"""The gradient of the embedding: the gradients of all tokens, added to the rows of their ids.

The kernel adds them with atomic operations, in any order, so the last bits of a sum differ between two runs. With
`is_deterministic`, torch sorts the ids first, which is slower.

Shapes: N tokens, D d_model, V rows of the embedding.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["add_embedding_gradient", "plain_embedding_gradient"]

TOKENS = 4  # per program


def plain_embedding_gradient(grad_ND: Tensor, ids_N: Tensor, num_rows: int) -> Tensor:
    """Return the gradient of the embedding, float32."""
    gradient: Tensor = torch.ops.aten.embedding_dense_backward(grad_ND.float(), ids_N, num_rows, -1, False)
    return gradient


def add_embedding_gradient(grad_VD: Tensor, grad_ND: Tensor, ids_N: Tensor, *, is_deterministic: bool) -> Tensor:
    """Add the gradient of the embedding to `grad_VD`, and return it."""
    if is_deterministic:
        return grad_VD.add_(plain_embedding_gradient(grad_ND, ids_N, len(grad_VD)))
    num_tokens, width = grad_ND.shape
    _add[(triton.cdiv(num_tokens, TOKENS),)](
        grad_VD, grad_ND, ids_N, num_tokens, width, triton.next_power_of_2(width), TOKENS, num_warps=4
    )
    return grad_VD


@triton.jit
def _add(rows_ptr, grad_ptr, ids_ptr, num_tokens, WIDTH: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    column = tl.arange(0, BLOCK)
    inside = (token < num_tokens)[:, None] & (column < WIDTH)[None, :]
    id = tl.load(ids_ptr + token, mask=token < num_tokens, other=0).to(tl.int64)
    grad = tl.load(grad_ptr + token[:, None] * WIDTH + column[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.atomic_add(rows_ptr + id[:, None] * WIDTH + column[None, :], grad, mask=inside, sem="relaxed")
