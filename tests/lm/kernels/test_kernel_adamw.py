"""AdamW of many weights in one launch, and the copies it writes."""

import math

import pytest
import torch

from gristmill.lm.kernels.adamw import GRADIENT, adamw, plain_adamw
from gristmill.lm.kernels.tables import BLOCK, MISSING, TensorTable, are_aligned

OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
SIZES = [1, 7, BLOCK - 1, BLOCK, BLOCK + 5]


class Weights:
    def __init__(self, sizes, device):
        self.weights = [torch.randn(size, device=device) for size in sizes]
        self.grads = [torch.randn(size, device=device) for size in sizes]
        self.first = [torch.randn(size, device=device) * 0.1 for size in sizes]
        self.second = [torch.rand(size, device=device) for size in sizes]
        self.copies = [None if number % 2 else weight.bfloat16() for number, weight in enumerate(self.weights)]
        self.table = TensorTable([self.weights, self.grads, self.first, self.second, self.copies])

    def tensors(self):
        copies = [copy for copy in self.copies if copy is not None]
        return [x.clone() for x in (*self.weights, *self.first, *self.second, *copies)]

    def step(self, step, *, clip=1.0, skip=0.0, **options):
        device = self.weights[0].device
        adamw(
            self.table,
            torch.full((len(self.weights),), float(step), device=device),
            clip=torch.tensor(clip, device=device),
            skip=torch.tensor(skip, device=device),
            **{**OPTIONS, **options},
        )

    def plain_step(self, step, *, clip=1.0, **options):
        for number, weight in enumerate(self.weights):
            moments = self.first[number], self.second[number]
            plain_adamw(weight, self.grads[number], moments, step=step, clip=clip, **{**OPTIONS, **options})
            if self.copies[number] is not None:
                self.copies[number].copy_(weight)


def both(sizes, device):
    torch.manual_seed(1)
    one = Weights(sizes, device)
    torch.manual_seed(1)
    return one, Weights(sizes, device)


@pytest.mark.parametrize("step", [1, 4, 100_000])
def test_all_sizes_moments_and_copies_are_those_of_plain_torch(device, step):
    found, plain = both(SIZES, device)
    found.step(step, clip=0.5)
    plain.plain_step(step, clip=0.5)
    for one, other in zip(found.tensors(), plain.tensors(), strict=True):
        tolerance = {"atol": 1e-6, "rtol": 1e-5} if one.dtype == torch.float32 else {"atol": 0, "rtol": 2**-7}
        torch.testing.assert_close(one, other, **tolerance)


def test_a_copy_is_the_rounded_weight(device):
    found, _ = both(SIZES, device)
    found.step(3)
    for weight, copy in zip(found.weights, found.copies, strict=True):
        assert copy is None or torch.equal(copy, weight.bfloat16())


@pytest.mark.parametrize("options", [{"betas": (0.0, 0.0)}, {"weight_decay": 0.0}, {"lr": 0.0}, {"eps": 1e-2}])
def test_extreme_options(device, options):
    found, plain = both([7], device)
    found.step(2, **options)
    plain.plain_step(2, **options)
    for one, other in zip(found.tensors(), plain.tensors(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=2**-7 if one.dtype == torch.bfloat16 else 1e-5)


def test_the_plain_update_is_that_of_torchs_adamw(device):
    weight, grad = torch.randn(9, device=device), torch.randn(9, device=device)
    parameter = weight.clone().requires_grad_()
    optimizer = torch.optim.AdamW([parameter], **OPTIONS)
    moments = torch.zeros_like(weight), torch.zeros_like(weight)
    for step in (1, 2, 3):
        parameter.grad = grad * step
        optimizer.step()
        plain_adamw(weight, grad * step, moments, step=step, **OPTIONS)
    torch.testing.assert_close(weight, parameter.detach(), atol=1e-6, rtol=1e-5)


def test_a_skipped_step_changes_nothing_even_if_gradients_are_nan(device):
    found, _ = both(SIZES, device)
    before = found.tensors()
    for grad in found.grads:
        grad.fill_(math.nan)
    found.step(1, skip=1.0, clip=math.nan)
    assert all(torch.equal(one, other) for one, other in zip(before, found.tensors(), strict=True))


def test_a_table_follows_gradients_at_new_addresses(device):
    found, plain = both([7, 9], device)
    found.step(1)
    plain.plain_step(1)
    for one in (found, plain):
        one.grads = [grad * 2 for grad in one.grads]
    found.table.set_column(GRADIENT, found.grads)
    found.step(2)
    plain.plain_step(2)
    torch.testing.assert_close(found.weights, plain.weights, atol=1e-6, rtol=1e-5)


def test_a_table_has_distances_and_one_line_per_block(device):
    weights = [torch.zeros(BLOCK + 1, device=device), torch.zeros(3, device=device)]
    table = TensorTable([weights, [None, weights[1]]])
    distance = (weights[1].data_ptr() - weights[0].data_ptr()) // 4
    assert table.places.tolist() == [[0, MISSING, BLOCK + 1], [distance, distance, 3]]
    assert table.programs.tolist() == [[0, 0], [0, BLOCK], [1, 0]]


def test_only_contiguous_tensors_at_16_bytes_are_aligned(device):
    x = torch.zeros(64, device=device)
    assert are_aligned([x, x[4:]])
    assert not are_aligned([x, x[1:]])
    assert not are_aligned([x.view(8, 8).t()])
