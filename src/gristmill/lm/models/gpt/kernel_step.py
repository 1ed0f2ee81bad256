"""KernelStep: the loss of a GPT and its gradients, computed with the kernels of `gristmill.lm.kernels`.

    embedding -> block -> … -> block -> final norm, head, loss

The model has the same weights and the same arithmetic as without kernels; only rounding differs. Fewer passes over
memory make a step faster than torch.compile does, without compiling anything. With `float8`, products are computed in
8-bit floats, which does change the arithmetic:

    head      the logits, and both products of their gradient
    blocks    also the queries, keys and values, and the feed-forward layers: the result and the gradient of the input
    all       also the gradients of these weights

The product after attention stays in bfloat16: it is too small to gain more than its conversions cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gristmill.errors import OptionError
from gristmill.lm.data.batch import Batch
from gristmill.lm.kernels.launching import is_interpreted, on_device_of
from gristmill.lm.kernels.rope import Heads
from gristmill.lm.kernels.scales import Scales
from gristmill.lm.kernels.weight_copies import WeightCopies
from gristmill.lm.models.gpt.attention import attend, causal_view
from gristmill.lm.models.gpt.kernel_blocks import KernelBlock, block_with_kernels
from gristmill.lm.models.gpt.kernel_head import (
    KernelHead,
    Tape,
    embedded,
    head_loss_with_kernels,
    logit_gradient_site,
)
from gristmill.lm.models.gpt.kernel_linear import Float8Sites, KernelLinear
from gristmill.lm.models.gpt.options import FLOAT8_MULTIPLE

if TYPE_CHECKING:
    from gristmill.lm.models.gpt.network import GPT, Block

__all__ = ["KernelStep"]

# Products of a block in 8-bit floats, and the kind of their input (see scales.py).
INPUTS = {"qkv": "activation", "gate_up": "activation", "down": "product"}


def check_device(device: torch.device) -> None:
    """Raise `OptionError` unless kernels can run on this device."""
    if device.type != "cuda" and not is_interpreted():
        raise OptionError(
            f"the kernels of a GPT run on NVIDIA GPUs, but this batch is on device {device.type!r}. Move the model and "
            f"the batch to a GPU, as with model.cuda(), or do not call use_kernels."
        )


class KernelStep:
    """Computes the loss of a model with kernels, which must be on its device by the first call of `loss`."""

    def __init__(
        self,
        model: GPT,
        *,
        float8: str = "off",
        is_deterministic: bool = False,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        """is_deterministic: add the gradient of the embedding in a fixed order.

        dtype: of the activations and of the copies of the weights.
        """
        self._model, self.float8, self._dtype = model, float8, dtype
        self._is_deterministic = is_deterministic
        self.copies = WeightCopies((), dtype=dtype)
        self.scales: Scales | None = None
        self._saved_scales: dict[str, Any] | None = None
        # Of 8-bit floats only in training: validation measures the weights, not the rounding of a step.
        self._parts: dict[bool, tuple[list[KernelBlock], KernelHead, Heads]] = {}
        self._parameters: Sequence[Tensor] = ()
        self._follow_parameters()

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """Return None: a copy of a model has no kernels until `use_kernels` is called on it."""

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross-entropy in nats over the targets that are not -100."""
        model, num_tokens = self._model, batch.inputs_BT.shape[1]
        ids_N, targets_N = batch.inputs_BT.flatten(), batch.targets_BT.flatten()
        is_training = model.training and torch.is_grad_enabled()
        uses_float8 = self.float8 != "off" and is_training
        check_device(ids_N.device)
        # Triton launches kernels on the current device.
        with on_device_of(ids_N), torch.autocast(ids_N.device.type, enabled=False):
            if uses_float8:
                self._check_float8(batch)
                self.opened(batch)
            # subtle: outside of training, weights may be exchanged through `.data`, for an average of weights, and
            # their versions do not show it.
            self.refresh(all=not is_training)
            blocks, head, heads = self._built(uses_float8)
            self.copies.forget_float8()
            if uses_float8 and self.scales is not None:
                self.scales.fit_weights([self.copies[self._weight(name)] for name in self.scales.weights])
            tape = Tape()
            view = causal_view(model.cos_TK, model.sin_TK, 0, num_tokens)

            def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                return attend(q, k, v, view, dropout=0.0)

            table = model.embedding.weight
            stream_ND = embedded(ids_N, table, self.copies, tape, is_deterministic=self._is_deterministic)
            delta_ND = None
            for block in blocks:
                stream_ND, delta_ND = block_with_kernels(block, stream_ND, delta_ND, heads, num_tokens, attention)
            assert delta_ND is not None  # a model has at least one layer
            return head_loss_with_kernels(head, stream_ND, delta_ND, targets_N, tape if model.head is None else None)

    def opened(self, batch: Batch) -> Batch:
        """Create the scales of 8-bit floats if there are none yet, and return the batch."""
        if self.float8 != "off" and self.scales is None:
            self._open_scales(batch.targets_BT.device, num_targets=batch.targets_BT.numel())
        return batch

    def refresh(self, *, all: bool = False) -> None:
        """Make the copies of weights that have changed; with `all`, those of all weights."""
        self._follow_parameters()
        self.copies.refresh(all=all)

    def _follow_parameters(self) -> None:
        """Use the parameters that the model has now. `load_state_dict(assign=True)`, for example, replaces them."""
        now = list(self._model.parameters())
        if len(now) != len(self._parameters) or any(a is not b for a, b in zip(now, self._parameters, strict=True)):
            self._parameters = now
            self._parts.clear()
            self.copies.follow(weight for weight in now if weight.dim() == 2)

    def changed(self) -> list[Tensor]:
        """Return the tensors that a pass changes: the largest numbers of the tensors in 8-bit floats."""
        return [] if self.scales is None else [self.scales.largest()]

    def after_update(self) -> None:
        """After the weights were updated: compute the scales of the next step, and forget copies of old weights."""
        self.copies.forget()
        if self.scales is not None:
            self.scales.update()

    @property
    def needs_calibration(self) -> bool:
        """Whether 8-bit floats still have their first scales, which are guesses."""
        has_scales = self._saved_scales is not None if self.scales is None else self.scales.is_calibrated
        return self.float8 != "off" and not has_scales

    def largest(self) -> Tensor | None:
        """Return the largest numbers of this step, of which all processes need the maximum."""
        return None if self.scales is None else self.scales.largest()

    def state(self) -> dict[str, Any]:
        """Return the scales, for a checkpoint; empty without 8-bit floats."""
        return dict(self._saved_scales or {}) if self.scales is None else self.scales.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`; `CheckpointError` if a scale is missing."""
        Scales.check(state, self._kinds())
        # The first loss opens the scales, on the device where the model is then.
        self._saved_scales, self.scales = state or None, None
        self._parts.clear()
        self.copies.forget()

    # Parts

    def _check_float8(self, batch: Batch) -> None:
        if batch.num_tokens % FLOAT8_MULTIPLE:
            sequences, length = batch.inputs_BT.shape
            raise OptionError(
                f"float8={self.float8!r} needs a multiple of {FLOAT8_MULTIPLE} tokens per micro-batch, but this one "
                f"has {sequences} x {length} = {batch.num_tokens}. Pass other sizes, or float8='off'."
            )

    def _kinds(self) -> dict[str, str]:
        """Return the kind of each tensor that is converted to 8-bit floats, by its name."""
        if self.float8 == "off":
            return {}
        kinds = {"head.input": "activation", "head.weight": "weight"}
        if self.float8 == "head":
            return kinds
        for layer in range(self._model.config.num_layers):
            for name, kind in INPUTS.items():
                kinds |= {f"{layer}.{name}.input": kind, f"{layer}.{name}.weight": "weight"}
                kinds[f"{layer}.{name}.gradient"] = "gradient"
        return kinds

    def _weight(self, name: str) -> Tensor:
        """Return the weight of a tensor of `_kinds`, such as "0.gate_up.weight"."""
        if name == "head.weight":
            return self._model.head_weight
        layer, part, _ = name.split(".")
        block = self._model.blocks[int(layer)]
        owner = block.attention if part == "qkv" else block.feed_forward
        weight: Tensor = getattr(owner, part).weight
        return weight

    def _open_scales(self, device: torch.device, *, num_targets: int) -> None:
        self.scales = Scales(self._kinds(), device=device, num_targets=num_targets)
        if self._saved_scales is not None:
            self.scales.load_state(self._saved_scales)

    def _built(self, uses_float8: bool) -> tuple[list[KernelBlock], KernelHead, Heads]:
        if uses_float8 not in self._parts:
            model = self._model
            blocks = [self._block(block, layer, uses_float8) for layer, block in enumerate(model.blocks)]  # type: ignore[arg-type]
            self._parts[uses_float8] = blocks, self._head(uses_float8), self._heads()
        return self._parts[uses_float8]

    def _heads(self) -> Heads:
        c, model = self._model.config, self._model
        # The tables of `rope_tables` have each angle twice, and negate the first sine.
        cos_TK, sin_TK = model.cos_TK[:, ::2].contiguous(), -model.sin_TK[:, ::2].contiguous()
        return Heads(c.num_heads, c.kv_heads, c.head_dim, cos_TK, sin_TK, c.norm_eps)

    def _block(self, block: Block, layer: int, uses_float8: bool) -> KernelBlock:
        attention, feed_forward = block.attention, block.feed_forward
        q_norm, k_norm = attention.q_norm, attention.k_norm
        sites = {name: self._sites(f"{layer}.{name}") if uses_float8 else None for name in INPUTS}
        return KernelBlock(
            attention_norm_D=block.attention_norm.weight,
            qkv=KernelLinear(attention.qkv.weight, self.copies, sites["qkv"]),
            norm_K2=None if q_norm is None or k_norm is None else (q_norm.weight, k_norm.weight),
            output=KernelLinear(attention.output.weight, self.copies),
            feed_forward_norm_D=block.feed_forward_norm.weight,
            gate_up=KernelLinear(feed_forward.gate_up.weight, self.copies, sites["gate_up"]),
            down=KernelLinear(feed_forward.down.weight, self.copies, sites["down"]),
            eps=self._model.config.norm_eps,
        )

    def _sites(self, name: str) -> Float8Sites | None:
        if self.float8 == "head":
            return None
        assert self.scales is not None
        x, weight, gradient = (self.scales[f"{name}.{part}"] for part in ("input", "weight", "gradient"))
        return Float8Sites(x, weight, gradient, in_weight_gradient=self.float8 == "all")

    def _head(self, uses_float8: bool) -> KernelHead:
        model, sites = self._model, None
        if uses_float8:
            assert self.scales is not None
            gradient = logit_gradient_site(model.embedding.weight.device)
            sites = Float8Sites(self.scales["head.input"], self.scales["head.weight"], gradient, True)
        return KernelHead(
            norm_D=model.final_norm.weight,
            weight_VD=model.head_weight,
            copies=self.copies,
            sites=sites,
            eps=model.config.norm_eps,
            vocab_size=model.config.required_vocab_size,
            num_parts=model.config.loss_parts,
        )
