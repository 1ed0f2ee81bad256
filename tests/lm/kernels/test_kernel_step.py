"""The whole step with kernels, compared with the same GPT in plain torch.

A plausible loss proves little: products of NaN once came with the right loss. So the gradient of every weight is
compared by its direction (cosine) and its norm.
"""

import copy
import math

import pytest
import torch

import gristmill as gm
from gristmill.lm.data.batch import Batch
from gristmill.lm.models.gpt import kernel_step
from gristmill.lm.models.gpt.kernel_step import KernelStep
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from lm.kernels.comparing import cosine, relative

SIZES = {"vocab_size": 40, "context_length": 16, "num_layers": 1, "num_heads": 2, "d_model": 32}
MODELS = {
    "tied": {"tie_embeddings": True},
    "untied, norm of queries, grouped heads": {"tie_embeddings": False, "qk_norm": True, "num_kv_heads": 1},
    "two layers, 3 parts of the loss": {"num_layers": 2, "loss_parts": 3},
}
# Cosine of the gradient of each matrix in a model of this size, where sums have few terms.
LEAST_COSINE = {"head": 0.997, "blocks": 0.985, "all": 0.985}


def new_model(device, **options):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**{**SIZES, **options})).to(device)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.05)
    return model


def new_batch(device, *, num_sequences=2, num_tokens=16, seed=1):
    torch.manual_seed(seed)
    tokens = torch.randint(SIZES["vocab_size"], (num_sequences, num_tokens + 1), device=device)
    targets = tokens[:, 1:].clone()
    targets[0, :3] = -100
    return Batch(tokens[:, :-1].contiguous(), targets)


def gradients(model):
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


def plain_step(model, batch, *, dtype=torch.float32, factor=1.0):
    kernels, model._kernels = model._kernels, None
    model.zero_grad()
    with torch.autocast(batch.inputs_BT.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss, _ = model.loss(batch, {})
    (loss * factor).backward()
    found = gradients(model)
    model.zero_grad()
    model._kernels = kernels
    return loss.detach(), found


def step(model, kernels, batch, *, factor=1.0):
    model.zero_grad()
    loss = kernels.loss(batch)
    (loss * factor).backward()
    found = gradients(model)
    model.zero_grad()
    return loss.detach(), found


def calibrated(model, float8, batch):
    kernels = KernelStep(model, float8=float8)
    while kernels.needs_calibration:
        step(model, kernels, batch)
        kernels.after_update()
    return kernels


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_in_float32_every_gradient_of_half_the_loss_is_nearly_that_of_the_plain_model(device, options):
    model, batch = new_model(device, **options), new_batch(device)
    expected = plain_step(model, batch, factor=0.5)
    found = step(model, KernelStep(model, dtype=torch.float32), batch, factor=0.5)
    assert float(found[0]) == pytest.approx(float(expected[0]), abs=2e-5)
    for name, grad in expected[1].items():
        assert relative(found[1][name], grad) < 1e-4, name


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_in_bfloat16_every_gradient_has_the_direction_and_norm_of_exact_arithmetic(device, options):
    model, batch = new_model(device, **options), new_batch(device)
    loss, exact = plain_step(model, batch)
    _, plain = plain_step(model, batch, dtype=torch.bfloat16)
    found_loss, found = step(model, KernelStep(model), batch)
    assert float(found_loss) == pytest.approx(float(loss), abs=0.02)
    for name, grad in exact.items():
        assert cosine(found[name], grad) >= 0.9998, name
        assert relative(found[name], grad) < 2 * relative(plain[name], grad) + 1e-3, name


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("float8", ["head", "blocks", "all"])
def test_with_8_bit_floats_every_gradient_is_finite_and_keeps_its_direction(device, options, float8):
    model, batch = new_model(device, **options), new_batch(device)
    loss, plain = plain_step(model, batch)
    kernels = calibrated(model, float8, batch)
    found_loss, found = step(model, kernels, batch)
    assert float(found_loss) == pytest.approx(float(loss), abs=0.05)
    for name, grad in plain.items():
        assert found[name].isfinite().all(), name
        assert cosine(found[name], grad) >= LEAST_COSINE[float8], name
        assert float(found[name].norm() / grad.norm()) == pytest.approx(1, abs=0.1), name


def test_padding_rows_of_the_tables_get_no_gradient(device):
    model, batch = new_model(device, tie_embeddings=False), new_batch(device)
    with torch.no_grad():
        model.head.weight[SIZES["vocab_size"] :] = 0
    for float8 in ("off", "all"):
        _, found = step(model, calibrated(model, float8, batch), batch)
        for name in ("embedding.weight", "head.weight"):
            assert found[name][SIZES["vocab_size"] :].abs().max() == 0


@pytest.mark.parametrize("num_tokens", [1, 5])
def test_sequences_of_any_length_have_their_gradient(device, num_tokens):
    model, batch = new_model(device), new_batch(device, num_sequences=3, num_tokens=num_tokens)
    expected = plain_step(model, batch)
    found = step(model, KernelStep(model, dtype=torch.float32), batch)
    assert float(found[0]) == pytest.approx(float(expected[0]), abs=2e-5)
    for name, grad in expected[1].items():
        assert relative(found[1][name], grad) < 1e-4 or grad.norm() < 1e-6, name


def test_gradients_of_micro_batches_add_up_even_if_both_forward_passes_come_first(device):
    model = new_model(device)
    kernels = KernelStep(model, dtype=torch.float32)
    batches = [new_batch(device, seed=seed) for seed in (1, 2)]
    each = [step(model, kernels, batch)[1] for batch in batches]
    losses = [kernels.loss(batch) for batch in batches]
    for loss in losses:
        loss.backward()
    for name, weight in model.named_parameters():
        assert relative(weight.grad, each[0][name] + each[1][name]) < 1e-5, name


@pytest.mark.parametrize("float8", ["off", "all"])
def test_a_deterministic_step_has_the_same_bits_twice(device, float8):
    found = []
    for _ in range(2):
        model, batch = new_model(device), new_batch(device, num_sequences=4)
        kernels = model.use_kernels(float8=float8, is_deterministic=True)
        found.append(step(model, kernels, batch))
    assert torch.equal(found[0][0], found[1][0])
    assert [name for name, grad in found[0][1].items() if not torch.equal(grad, found[1][1][name])] == []


def test_a_batch_without_targets_has_a_loss_of_zero_and_no_gradient(device):
    model, batch = new_model(device), new_batch(device)
    batch.targets_BT.fill_(-100)
    loss, found = step(model, KernelStep(model), batch)
    assert loss == 0
    assert all(grad.abs().max() == 0 for grad in found.values())


# 8-bit floats


def test_validation_and_passes_without_gradients_use_no_8_bit_floats(device):
    model, batch = new_model(device), new_batch(device)
    wide = KernelStep(model).loss(batch).detach()
    kernels = calibrated(model, "all", batch)
    before = kernels.scales.largest().clone()
    assert kernels.loss(batch).detach() != wide  # the comparison below can fail
    kernels.after_update()
    with torch.no_grad():
        assert torch.equal(kernels.loss(batch), wide)
    model.eval()
    loss = kernels.loss(batch)
    assert torch.equal(loss.detach(), wide)
    loss.backward()
    assert torch.equal(kernels.scales.largest(), before)
    model.train()
    assert kernels.loss(batch).detach() != wide


@pytest.mark.parametrize(
    "name", ["embedding.weight", "blocks.0.attention_norm.weight", "blocks.0.attention.qkv.weight", "final_norm.weight"]
)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_weight_is_not_hidden_by_8_bit_floats(device, name, bad):
    model, batch = new_model(device), new_batch(device)
    kernels = calibrated(model, "all", batch)
    with torch.no_grad():
        model.get_parameter(name).flatten()[int(batch.inputs_BT[0, 0]) * 32 if "embedding" in name else 3] = bad
    loss, found = step(model, kernels, batch)
    norm = torch.nn.utils.get_total_norm(found.values())
    assert not loss.isfinite() and not norm.isfinite()


def test_a_target_outside_of_the_vocabulary_makes_the_loss_nan(device):
    model, batch = new_model(device), new_batch(device)
    batch.targets_BT[1, 2] = SIZES["vocab_size"]
    assert KernelStep(model).loss(batch).isnan()


def test_scales_that_are_found_do_not_change_when_nothing_changes(device):
    model, batch = new_model(device), new_batch(device)
    kernels = calibrated(model, "all", batch)
    before = kernels.state()
    step(model, kernels, batch)
    kernels.after_update()
    assert kernels.state() == pytest.approx(before, rel=0.2)
    assert set(before) == {"head.input", "head.weight"} | {
        f"0.{name}.{part}" for name in ("qkv", "gate_up", "down") for part in ("input", "weight", "gradient")
    }


def test_a_step_with_restored_scales_has_the_same_bits(device):
    model, batch = new_model(device), new_batch(device)
    kernels = calibrated(model, "all", batch)
    state = kernels.state()
    one = step(model, kernels, batch)
    other = KernelStep(model, float8="all", is_deterministic=True)
    other.load_state(state)
    assert other.state() == state and not other.needs_calibration
    again = step(model, other, batch)
    assert torch.equal(one[0], again[0])
    assert torch.equal(one[1]["blocks.0.feed_forward.down.weight"], again[1]["blocks.0.feed_forward.down.weight"])


def test_scales_are_restored_even_after_the_first_step(device):
    model, batch = new_model(device), new_batch(device)
    kernels = calibrated(model, "all", batch)
    state, loss = kernels.state(), kernels.loss(batch).detach()
    kernels.largest().fill_(1e-3)
    kernels.after_update()
    assert not torch.equal(kernels.loss(batch).detach(), loss)
    kernels.load_state(state)
    assert kernels.state() == state
    assert torch.equal(kernels.loss(batch).detach(), loss)


def test_missing_scales_are_an_error_except_where_none_are_used(device):
    model = new_model(device)
    KernelStep(model).load_state({})
    head = calibrated(model, "head", new_batch(device)).state()
    for float8, state in (("head", {}), ("all", head), ("blocks", head)):
        with pytest.raises(gm.CheckpointError, match="no valid scale of"):
            KernelStep(model, float8=float8).load_state(state)


def test_a_number_of_tokens_that_8_bit_products_cannot_take_is_an_error(device):
    model = new_model(device)
    kernels = model.use_kernels(float8="head")
    with pytest.raises(
        gm.OptionError, match=r"float8='head' needs a multiple of 16 tokens per micro-batch.*3 x 5 = 15"
    ):
        kernels.loss(new_batch(device, num_sequences=3, num_tokens=5))
    model.eval()
    assert kernels.loss(new_batch(device, num_sequences=3, num_tokens=5)).isfinite()


# Copies of weights


def plain_step_of_sgd(model):
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def load(model):
    model.load_state_dict({name: weight * 0.5 for name, weight in model.state_dict().items()})


def change_in_place(model):
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)


@pytest.mark.parametrize("change", [plain_step_of_sgd, load, change_in_place])
def test_the_loss_is_that_of_changed_weights(device, change):
    model, batch = new_model(device), new_batch(device)
    kernels = model.use_kernels()
    kernels.loss(batch)
    change(model)
    assert torch.equal(kernels.loss(batch), KernelStep(model).loss(batch))


def test_the_loss_of_a_copied_model_is_that_of_its_own_weights(device):
    model, batch = new_model(device), new_batch(device)
    model.use_kernels()
    model.loss(batch, {})
    other = copy.deepcopy(model)
    change_in_place(other)
    expected = float(KernelStep(other).loss(batch).detach())
    assert float(other.loss(batch, {})[0].detach()) == pytest.approx(expected, rel=5e-4)
    assert float(model.loss(batch, {})[0].detach()) != pytest.approx(expected, rel=2e-3)


# Where kernels are used


def test_documents_that_are_masked_use_the_plain_step(device):
    model, batch = new_model(device), new_batch(device)
    model.use_kernels()
    masked = Batch(batch.inputs_BT, batch.targets_BT, document_ids_BT=torch.zeros_like(batch.inputs_BT))
    loss, _ = model.loss(masked, {})
    assert float(loss.detach()) == pytest.approx(float(plain_step(model, batch)[0]), abs=1e-5)


def test_too_many_tokens_are_the_same_error_as_without_kernels(device):
    model = new_model(device)
    model.use_kernels()
    with pytest.raises(gm.OptionError, match="17 tokens are more than context_length=16"):
        model.loss(new_batch(device, num_tokens=17), {})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dropout": 0.1}, "dropout=0.1"),
        ({"float32_residual": True}, "float32_residual=True"),
        ({"document_mask": True}, "document_mask=True"),
        ({"sliding_window": 8}, "sliding_window=8"),
        ({"d_model": 24}, "heads have a size of 12"),
        ({"d_model": 96}, "heads have a size of 48"),
        ({"d_model": 16}, "heads have a size of 8"),
    ],
)
def test_options_that_kernels_do_not_support_are_named(options, reason):
    model = GPT(GPTConfig(**{**SIZES, **options}))
    assert reason in model.why_no_kernels()
    with pytest.raises(gm.OptionError, match=reason):
        model.use_kernels()


def test_a_window_as_long_as_the_context_is_no_reason_against_kernels():
    assert GPT(GPTConfig(**SIZES, sliding_window=16)).why_no_kernels() is None


@pytest.mark.parametrize("name", ["forward", "stream", "loss"])
def test_a_model_with_its_own_arithmetic_gets_no_kernels(name):
    def own(self, *args, **kwargs):
        return getattr(GPT, name)(self, *args, **kwargs)

    model = type("Mine", (GPT,), {name: own})(GPTConfig(**SIZES))
    assert model.why_no_kernels() == "Mine overrides a method of GPT"


def test_a_width_that_8_bit_products_cannot_take_is_an_error():
    model = GPT(GPTConfig(**SIZES, d_ff=40))
    with pytest.raises(gm.OptionError, match=r"float8='head' needs a d_ff that is a multiple of 16, but it is 40"):
        model.use_kernels(float8="head")
    model.use_kernels()


# The model changes after kernels are in use


def test_replaced_parameters_are_used_by_the_next_loss(device):
    model, batch = new_model(device, num_layers=2), new_batch(device)
    kernels = KernelStep(model, dtype=torch.float32)
    before = float(kernels.loss(batch).detach())
    model.blocks[0].attention_norm.weight = torch.nn.Parameter(torch.full_like(model.final_norm.weight, 5.0))
    assert float(kernels.loss(batch).detach()) == pytest.approx(float(plain_step(model, batch)[0]), rel=1e-4) != before
    state = {name: value * 1.5 for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    assert float(kernels.loss(batch).detach()) == pytest.approx(float(plain_step(model, batch)[0]), rel=1e-4)
    assert all(kernels.copies.has(weight) for weight in model.parameters() if weight.dim() == 2)


def test_weights_exchanged_through_data_are_used_outside_of_training(device):
    model, batch = new_model(device), new_batch(device)
    kernels = KernelStep(model, dtype=torch.float32)
    loss, _ = step(model, kernels, batch)
    model.eval()
    own = [weight.data for weight in model.parameters()]
    for weight in model.parameters():
        weight.data = weight.data * 1.5
    assert float(kernels.loss(batch).detach()) == pytest.approx(float(plain_step(model, batch)[0]), rel=1e-4)
    for weight, data in zip(model.parameters(), own, strict=True):
        weight.data = data
    model.train()
    assert torch.equal(step(model, kernels, batch)[0], loss)


def test_a_copy_of_a_model_has_no_kernels(device):
    model, batch = new_model(device), new_batch(device)
    model.use_kernels()
    copied = copy.deepcopy(model)
    assert copied._kernels is None and model._kernels is not None
    copied.loss(batch, {})[0].backward()
    assert all(weight.grad is None for weight in model.parameters())


class OtherFeedForward(torch.nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return 2 * self.inside(x)


def test_a_model_with_a_foreign_part_or_a_hook_has_no_kernels(device):
    model = new_model(device, num_layers=2)
    assert model.why_no_kernels() is None
    handle = model.blocks[0].register_forward_hook(lambda module, inputs, output: output)
    assert model.why_no_kernels() == "blocks.0 is not a part of a GPT, or has a hook"
    handle.remove()
    model.blocks[1].feed_forward = OtherFeedForward(model.blocks[1].feed_forward)
    assert model.why_no_kernels() == "blocks.1.feed_forward is not a part of a GPT, or has a hook"
    with pytest.raises(gm.OptionError, match=r"blocks\.1\.feed_forward"):
        model.use_kernels()


def test_kernels_on_a_cpu_are_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(kernel_step, "is_interpreted", lambda: False)
    model = new_model(torch.device("cpu"))
    with pytest.raises(gm.OptionError, match="Move the model and the batch to a GPU"):
        KernelStep(model).loss(new_batch(torch.device("cpu")))


def test_no_weight_saturates_while_weights_that_start_at_0_grow(device):
    model, batch = GPT(GPTConfig(**SIZES, output_init="zero")).to(device), new_batch(device)
    kernels = KernelStep(model, float8="all")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(4):
        kernels.loss(batch).backward()
        site = kernels.scales["0.down.weight"]
        small, _ = kernels.copies.float8(model.blocks[0].feed_forward.down.weight, site)
        largest = model.blocks[0].feed_forward.down.weight.abs().max()
        if largest > 0:
            assert small.float().abs().max() <= 448 and float(largest * site.scale) == pytest.approx(440, rel=0.01)
        optimizer.step()
        optimizer.zero_grad()
        kernels.after_update()
    assert largest > 0
