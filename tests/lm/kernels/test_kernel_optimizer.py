"""TritonAdamW, compared with torch's AdamW."""

import copy
import math

import pytest
import torch
from torch import nn

import gristmill as gm
from gristmill.lm.kernels.weight_copies import WeightCopies
from gristmill.lm.training.optimizers import build_optimizer
from gristmill.lm.training.triton_adamw import TritonAdamW

OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.hidden = nn.Linear(16, 7)
        self.unused = nn.Parameter(torch.ones(5))


def new_model(device):
    torch.manual_seed(0)
    return Model().to(device)


def gradients(model, step):
    generator = torch.Generator().manual_seed(step)
    for name, weight in model.named_parameters():
        weight.grad = None if name == "unused" else torch.randn(weight.shape, generator=generator).to(weight.device)


def new_pair(device, *, fused=None):
    one, other = new_model(device), new_model(device)
    groups = [
        [{"params": model.hidden.parameters()}, {"params": [model.embedding.weight, model.unused]}]
        for model in (one, other)
    ]
    for kinds in groups:
        kinds[1]["weight_decay"] = 0.0
    copies = WeightCopies([one.hidden.weight, one.embedding.weight])
    copies.refresh()
    return (one, TritonAdamW(groups[0], copies=copies, **OPTIONS)), (
        other,
        torch.optim.AdamW(groups[1], fused=fused, **OPTIONS),
    )


def assert_same(one, other):
    (model, optimizer), (plain, plain_optimizer) = one, other
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), atol=1e-6, rtol=1e-5)
    found, expected = optimizer.state_dict()["state"], plain_optimizer.state_dict()["state"]
    assert found.keys() == expected.keys()
    for number, state in expected.items():
        assert found[number].keys() == state.keys()
        for name, tensor in state.items():
            torch.testing.assert_close(found[number][name], tensor, atol=1e-6, rtol=1e-5, check_device=False)


@pytest.mark.parametrize("fused", [None, True])
def test_weights_and_state_after_several_steps_are_those_of_torch(device, fused):
    one, other = new_pair(device, fused=fused)
    for step in range(4):
        for model, optimizer in (one, other):
            gradients(model, step)
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 / (1 + step)
            optimizer.step()
    assert_same(one, other)
    assert one[0].unused.tolist() == [1] * 5


def test_clipping_in_the_kernel_is_that_of_clipped_gradients(device):
    one, other = new_pair(device)
    for step in range(2):
        for model, _ in (one, other):
            gradients(model, step)
        norm = torch.nn.utils.clip_grad_norm_(other[0].parameters(), 0.5)
        one[1].clip = (0.5 / (norm + 1e-6)).clamp(max=1.0)
        for _, optimizer in (one, other):
            optimizer.step()
    assert_same(one, other)


def test_a_skipped_step_leaves_weights_state_and_copies_unchanged(device):
    (model, optimizer), _ = new_pair(device)
    gradients(model, 0)
    optimizer.step()
    before, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()["state"])
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, math.nan)
    model.unused.grad = None
    optimizer.found_inf = torch.ones((), device=device)
    optimizer.step()
    torch.testing.assert_close(model.state_dict(), before, atol=0, rtol=0)
    torch.testing.assert_close(optimizer.state_dict()["state"], state, atol=0, rtol=0)
    del optimizer.found_inf
    optimizer._copies.refresh()
    assert torch.equal(optimizer._copies[model.hidden.weight], model.hidden.weight.bfloat16())


def test_a_skipped_step_makes_no_copy_valid_that_was_older_than_its_weight(device):
    (model, optimizer), _ = new_pair(device)
    with torch.no_grad():
        model.hidden.weight.add_(1)
    gradients(model, 0)
    optimizer.found_inf = torch.ones((), device=device)
    optimizer.step()
    optimizer._copies.refresh()
    assert torch.equal(optimizer._copies[model.hidden.weight], model.hidden.weight.bfloat16())


def test_a_step_writes_the_copies_of_its_weights(device):
    (model, optimizer), _ = new_pair(device)
    gradients(model, 0)
    optimizer.step()
    for weight in (model.hidden.weight, model.embedding.weight):
        assert torch.equal(optimizer._copies[weight], weight.bfloat16())
    before = optimizer._copies[model.hidden.weight].data_ptr()
    optimizer._copies.forget()
    optimizer._copies.refresh()
    assert optimizer._copies[model.hidden.weight].data_ptr() == before


def test_torch_sees_that_weights_have_changed(device):
    (model, optimizer), _ = new_pair(device)
    gradients(model, 0)
    before = model.hidden.weight._version
    optimizer.step()
    assert model.hidden.weight._version > before


def unaligned(grad):
    return torch.cat([grad.new_zeros(1), grad.flatten()])[1:].view(grad.shape)


def transposed(grad):
    return grad.t().contiguous().t() if grad.dim() == 2 else grad


def expanded(grad):
    return grad.mean().expand(grad.shape)


@pytest.mark.parametrize("layout", [unaligned, transposed, expanded])
def test_gradients_may_have_any_place_and_strides(device, layout):
    one, other = new_pair(device)
    for step in range(2):
        for model, optimizer in (one, other):
            gradients(model, step)
            for weight in model.parameters():
                if weight.grad is not None:
                    grad = layout(weight.grad)
                    weight.grad = grad if model is one[0] else grad.contiguous().clone()
            optimizer.step()
    assert_same(one, other)


def test_a_parameter_that_gets_its_first_gradient_later(device):
    one, other = new_pair(device)
    for step in range(4):
        for model, optimizer in (one, other):
            gradients(model, step)
            model.unused.grad = torch.ones_like(model.unused) if step in (1, 3) else None
            optimizer.step()
    assert_same(one, other)


def test_weights_that_have_moved_are_updated_where_they_are(device):
    """`model.to` keeps the parameters and replaces their memory."""
    one, other = new_pair(device)
    held = []
    for step in range(2):
        for model, optimizer in (one, other):
            gradients(model, step)
            optimizer.step()
        for weight in one[0].parameters():
            held.append(weight.data)
            weight.data = weight.data.clone()
    assert_same(one, other)


@pytest.mark.parametrize("begins_with_triton", [True, False])
def test_the_state_of_one_continues_in_the_other(device, begins_with_triton):
    pairs = new_pair(device)
    (model, optimizer), (plain, plain_optimizer) = pairs if begins_with_triton else pairs[::-1]
    for step in range(2):
        gradients(model, step)
        optimizer.step()
    plain.load_state_dict(model.state_dict())
    plain_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for step in (2, 3):
        for both, each in ((model, optimizer), (plain, plain_optimizer)):
            gradients(both, step)
            each.step()
    assert_same(*((model, optimizer), (plain, plain_optimizer))[:: 1 if begins_with_triton else -1])


def test_loading_a_state_in_mid_run_replaces_moments_and_steps(device):
    (model, optimizer), _ = new_pair(device)
    gradients(model, 0)
    optimizer.step()
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    results = []
    for _ in range(2):
        model.load_state_dict(weights)
        optimizer.load_state_dict(copy.deepcopy(state))
        for step in (1, 2):
            gradients(model, step)
            optimizer.step()
        results.append(copy.deepcopy(model.state_dict()))
    torch.testing.assert_close(*results, atol=0, rtol=0)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_saved_tensors_have_the_same_names_and_shapes_with_and_without_kernels(device, name):
    found = []
    for has_copies in (True, False):
        model = new_model(device)
        copies = WeightCopies([model.hidden.weight, model.embedding.weight]) if has_copies else None
        optimizers = build_optimizer(model, name, lr=1e-2, weight_decay=0.1, copies=copies)
        gradients(model, 0)
        optimizers.step()
        tensors, numbers = optimizers.state_tensors()
        found.append((optimizers, tensors, numbers))
    (one, tensors, numbers), (other, plain_tensors, plain_numbers) = found
    assert isinstance(one.torch_optimizers[0], TritonAdamW) and not isinstance(other.torch_optimizers[0], TritonAdamW)
    assert {key: x.shape for key, x in tensors.items()} == {key: x.shape for key, x in plain_tensors.items()}
    one.load_state_tensors(plain_tensors, plain_numbers)
    other.load_state_tensors(tensors, numbers)


def test_a_closure_is_called_with_gradients(device):
    (model, optimizer), _ = new_pair(device)

    def closure():
        loss = model.hidden(torch.ones(1, 16, device=device)).sum()
        loss.backward()
        return float(loss)

    before = model.hidden.bias.detach().clone()
    assert optimizer.step(closure) is not None
    assert not torch.equal(model.hidden.bias, before)


def test_gradients_are_divided_by_the_scale_of_a_grad_scaler(device):
    ours, theirs = (torch.nn.Parameter(torch.ones(4, device=device)) for _ in range(2))
    ours.grad, theirs.grad = torch.full_like(ours, 1e-9 * 1024), torch.full_like(theirs, 1e-9)
    kernel, plain = (
        TritonAdamW([ours], lr=0.1),
        torch.optim.AdamW([theirs], lr=0.1, betas=(0.9, 0.95), weight_decay=0.1),
    )
    kernel.grad_scale = torch.tensor(1024.0, device=device)
    kernel.step()
    plain.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("beta2", [0.95, 0.999, 0.99999])
def test_the_first_steps_correct_the_bias_of_moments_exactly(device, beta2):
    ours, theirs = (torch.nn.Parameter(torch.ones(4, device=device)) for _ in range(2))
    options = {"lr": 0.5, "betas": (0.9, beta2), "weight_decay": 0.0}
    optimizers = TritonAdamW([ours], **options), torch.optim.AdamW([theirs], **options)
    for number in range(3):
        for weight, optimizer in zip((ours, theirs), optimizers, strict=True):
            weight.grad = torch.full_like(weight, 0.1 * number + 0.1)
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_replaced_moments_are_used(device):
    weight = torch.nn.Parameter(torch.ones(4, device=device))
    optimizer = TritonAdamW([weight], lr=0.1)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    optimizer.state[weight]["exp_avg"] = torch.full_like(weight, -5.0)
    optimizer.step()
    torch.testing.assert_close(optimizer.state[weight]["exp_avg"], torch.full_like(weight, -4.4))


def test_a_weight_that_is_not_aligned_is_an_error(device):
    weight = torch.nn.Parameter(torch.ones(5, device=device)[1:])
    weight.grad = torch.ones_like(weight)
    with pytest.raises(gm.OptionError, match="16 bytes"):
        TritonAdamW([weight]).step()
