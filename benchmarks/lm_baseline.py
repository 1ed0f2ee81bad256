"""The baseline: GPT-2 in plain torch (bf16 autocast, torch.compile, SDPA, fused AdamW), as it is commonly written.

Learned positions, LayerNorm, GELU, no biases, tied embeddings: 124M parameters at 12 layers, 12 heads, width 768. That
is the default of nanoGPT's train.py: GPT-2 without the biases of its checkpoints, which cost time. The vocabulary is
padded to 50,304 as usual. Tensor names: B sequences, T positions, D width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, d_model: int, num_heads: int, num_layers: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)
        nn.init.normal_(self.out.weight, std=0.02 / math.sqrt(2 * num_layers))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Mix positions."""
        batch, length, width = x_BTD.shape
        q, k, v = (
            part.view(batch, length, self.num_heads, width // self.num_heads).transpose(1, 2)
            for part in self.qkv(x_BTD).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return cast(Tensor, self.out(mixed.transpose(1, 2).reshape(batch, length, width)))


class Block(nn.Module):
    """Attention, then a feed-forward layer four times as wide."""

    def __init__(self, d_model: int, num_heads: int, num_layers: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model, bias=False)
        self.attention = Attention(d_model, num_heads, num_layers)
        self.feed_forward_norm = nn.LayerNorm(d_model, bias=False)
        self.up = nn.Linear(d_model, 4 * d_model, bias=False)
        self.down = nn.Linear(4 * d_model, d_model, bias=False)
        nn.init.normal_(self.down.weight, std=0.02 / math.sqrt(2 * num_layers))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """One layer."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        wide = F.gelu(self.up(self.feed_forward_norm(x_BTD)), approximate="tanh")
        return cast(Tensor, x_BTD + self.down(wide))


class Baseline(nn.Module):
    """GPT-2."""

    def __init__(
        self,
        *,
        vocab_size: int,
        context_length: int,
        num_layers: int,
        num_heads: int,
        d_model: int,
        tie_embeddings: bool = True,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(context_length, d_model)
        self.blocks = nn.ModuleList(Block(d_model, num_heads, num_layers) for _ in range(num_layers))
        self.norm = nn.LayerNorm(d_model, bias=False)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        if tie_embeddings:
            self.head.weight = self.tokens.weight
        else:
            nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Return the mean cross-entropy of the targets."""
        x_BTD = self.tokens(inputs_BT) + self.positions(torch.arange(inputs_BT.shape[1], device=inputs_BT.device))
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits_BTV = self.head(self.norm(x_BTD))
        return F.cross_entropy(logits_BTV.view(-1, logits_BTV.shape[-1]), targets_BT.view(-1))
