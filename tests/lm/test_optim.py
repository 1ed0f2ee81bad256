"""Optimizers: parameter groups, Muon compared with its definition, and bit-exact restoring of the state."""

import copy
import json

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

import gristmill as gm
from gristmill.lm.training.muon import Muon, orthogonalized
from gristmill.lm.training.optimizers import build_optimizer
from scripts import run_script

torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.qkv = nn.Linear(8, 24, bias=False)
        self.output = nn.Linear(24, 8)
        self.again = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = x + self.output(torch.tanh(self.qkv(x)))
        return self.head(self.norm(x + self.again(x)))


class StackedModel(Model):
    def stacked_weights(self):
        return {"qkv.weight": 3}


def new_model(kind=Model):
    torch.manual_seed(0)
    return kind()


def new_optimizers(model, name, **options):
    return build_optimizer(model, name, **{"lr": 1e-2, "weight_decay": 0.1, **options})


def train(model, optimizers, steps):
    for step in steps:
        tokens = torch.randint(0, 11, (4, 6), generator=torch.Generator().manual_seed(step))
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
        loss.backward()
        optimizers.set_learning_rate(1 / (1 + step))
        optimizers.step()
        optimizers.zero_grad()
    return loss.item()


def names_in(model, group):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)] for parameter in group["params"]}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


# Groups


def test_weight_decay_is_for_matrices_except_embeddings():
    model = new_model()
    optimizers = new_optimizers(model, "adamw")
    (adamw,) = optimizers.torch_optimizers
    decayed, plain = adamw.param_groups
    assert names_in(model, decayed) == {"qkv.weight", "output.weight", "again.weight", "head.weight"}
    assert decayed["weight_decay"] == 0.1 and plain["weight_decay"] == 0
    assert names_in(model, plain) == {"embedding.weight", "output.bias", "again.bias", "norm.weight", "norm.bias"}
    assert optimizers.num_decayed() == (8 * 24 * 2 + 64 + 88, 88 + 8 * 4)


def test_muon_takes_the_matrices_inside_the_model():
    model = new_model()
    adamw, muon = new_optimizers(model, "muon", muon_lr=0.5).torch_optimizers
    assert isinstance(muon, Muon)
    (hidden,) = muon.param_groups
    assert names_in(model, hidden) == {"qkv.weight", "output.weight", "again.weight"}
    assert hidden["lr"] == 0.5 and hidden["weight_decay"] == 0.1
    assert names_in(model, adamw.param_groups[0]) == {"head.weight"}
    assert adamw.param_groups[0]["lr"] == 1e-2


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_every_parameter_has_one_optimizer(name):
    model = new_model()
    held = [
        p for o in new_optimizers(model, name).torch_optimizers for group in o.param_groups for p in group["params"]
    ]
    assert sorted(map(id, held)) == sorted(map(id, model.parameters()))


def test_a_tied_embedding_has_no_decay_and_is_taken_once():
    model = new_model()
    model.head.weight = model.embedding.weight
    decayed, plain = new_optimizers(model, "adamw").torch_optimizers[0].param_groups
    assert "embedding.weight" in names_in(model, plain)
    assert "head.weight" not in names_in(model, decayed)


def test_frozen_parameters_are_left_alone():
    model = new_model()
    model.qkv.requires_grad_(False)
    before = model.qkv.weight.clone()
    train(model, new_optimizers(model, "muon"), range(2))
    assert torch.equal(model.qkv.weight, before)


def test_the_learning_rate_scales_every_group():
    optimizers = new_optimizers(new_model(), "muon", lr=0.01, muon_lr=0.5)
    for scale in (0.1, 0.5, 1.0):  # relative to the initial learning rate, not the previous one
        optimizers.set_learning_rate(scale)
        assert [o.param_groups[0]["lr"] for o in optimizers.torch_optimizers] == [0.01 * scale, 0.5 * scale]
        assert optimizers.learning_rate == 0.01 * scale


def test_fused_where_the_device_has_it():
    model = new_model()
    assert new_optimizers(model, "adamw").torch_optimizers[0].defaults["fused"] is True
    assert not new_optimizers(model, "adamw", fused=False).torch_optimizers[0].defaults["fused"]


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_training_makes_the_loss_smaller(name):
    model = new_model()
    optimizers = new_optimizers(model, name)
    first = train(model, optimizers, [0])
    for _ in range(30):
        last = train(model, optimizers, [0])
    assert last < first / 2


# Muon


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (24, 8), (8, 24), (1, 5)])
def test_orthogonalized_keeps_the_directions_and_brings_the_singular_values_near_one(rows, columns):
    generator = torch.Generator().manual_seed(0)
    u, _, vt = torch.linalg.svd(torch.randn(3, rows, columns, generator=generator).double(), full_matrices=False)
    values = torch.logspace(-1.5, 0, min(rows, columns), dtype=torch.float64)
    found = u.mT @ orthogonalized((100 * u * values @ vt).float()).double() @ vt.mT
    expected = values / torch.linalg.vector_norm(values)
    for _ in range(5):
        expected = 3.4445 * expected - 4.7750 * expected**3 + 2.0315 * expected**5
    assert expected.min() > 0.6 and expected.max() < 1.3
    torch.testing.assert_close(found, torch.diag(expected).expand_as(found), rtol=0, atol=1e-4)


def test_orthogonalized_of_nothing_is_nothing():
    assert torch.equal(orthogonalized(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


@pytest.mark.parametrize(("rows", "columns"), [(6, 6), (12, 3), (3, 12)])
def test_a_muon_step_by_its_definition(rows, columns):
    generator = torch.Generator().manual_seed(1)
    weights = [nn.Parameter(torch.randn(rows, columns, generator=generator)) for _ in range(3)]
    expected = [weight.detach().clone() for weight in weights]
    momenta = [torch.zeros(rows, columns) for _ in weights]
    muon = Muon(weights, lr=0.1, momentum=0.9, weight_decay=0.5)
    for _ in range(3):
        for number, weight in enumerate(weights):
            gradient = torch.randn(rows, columns, generator=generator)
            weight.grad = gradient.clone()
            momenta[number] = 0.9 * momenta[number] + 0.1 * gradient
            ahead = 0.9 * momenta[number] + 0.1 * gradient
            update = orthogonalized(ahead[None])[0] * max(1, rows / columns) ** 0.5
            expected[number] = expected[number] * (1 - 0.1 * 0.5) - 0.1 * update
        muon.step()
    for weight, other in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.detach(), other, rtol=1e-5, atol=1e-5)


def test_stacked_matrices_are_made_orthogonal_each_for_itself():
    gradient = torch.randn(12, 4, generator=torch.Generator().manual_seed(2))
    whole = nn.Parameter(torch.zeros(12, 4))
    parts = [nn.Parameter(torch.zeros(4, 4)) for _ in range(3)]
    whole.grad = gradient.clone()
    for part, piece in zip(parts, gradient.chunk(3), strict=True):
        part.grad = piece.clone()
    Muon([{"params": [whole], "num_stacked": 3}], lr=1.0).step()
    Muon(parts, lr=1.0).step()
    torch.testing.assert_close(whole.detach(), torch.cat([part.detach() for part in parts]))


def test_a_model_says_which_weights_are_stacked():
    model = new_model(StackedModel)
    muon = new_optimizers(model, "muon").torch_optimizers[1]
    assert [(group["num_stacked"], names_in(model, group)) for group in muon.param_groups] == [
        (1, {"output.weight", "again.weight"}),
        (3, {"qkv.weight"}),
    ]


def test_muon_leaves_weights_without_a_gradient_alone():
    with_gradient, without = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3, 3))
    with_gradient.grad = torch.randn(3, 3)
    muon = Muon([with_gradient, without], weight_decay=0.5)
    muon.step()
    assert torch.equal(without, torch.ones(3, 3)) and not torch.equal(with_gradient, torch.ones(3, 3))
    assert without not in muon.state


# State


@pytest.mark.parametrize("kind", [Model, StackedModel])
@pytest.mark.parametrize(("name", "fused"), [("adamw", True), ("adamw", False), ("muon", True)])
def test_training_resumes_bit_exactly_from_saved_tensors(name, fused, kind):
    whole = new_model(kind)
    train(whole, new_optimizers(whole, name, fused=fused), range(8))

    first = new_model(kind)
    optimizers = new_optimizers(first, name, fused=fused)
    train(first, optimizers, range(4))
    tensors, values = optimizers.state_tensors()
    file, text = save(tensors), json.dumps(values)
    weights = copy.deepcopy(first.state_dict())

    second = new_model(kind)
    second.load_state_dict(weights)
    again = new_optimizers(second, name, fused=fused)
    again.load_state_tensors(load(file), json.loads(text))
    assert_equal(again.state_tensors()[0], load(file))
    assert again.state_tensors()[1] == json.loads(text)
    assert again.learning_rate == optimizers.learning_rate
    train(second, again, range(4, 8))
    assert_equal(second.state_dict(), whole.state_dict())


def test_state_is_named_after_the_parameters():
    model = new_model()
    optimizers = new_optimizers(model, "muon")
    assert optimizers.state_tensors()[0] == {}
    train(model, optimizers, [0])
    tensors, values = optimizers.state_tensors()
    assert {"qkv.weight.momentum", "head.weight.exp_avg", "head.weight.exp_avg_sq", "norm.bias.step"} <= tensors.keys()
    assert len(tensors) == 3 + 3 * 6
    assert values == {"optimizer": "muon", "learning_rate_scale": 1.0}


def test_loading_the_state_before_the_first_step_forgets_what_was_there():
    model = new_model()
    optimizers = new_optimizers(model, "adamw")
    train(model, optimizers, [0])
    optimizers.load_state_tensors(*new_optimizers(new_model(), "adamw").state_tensors())
    assert optimizers.state_tensors()[0] == {}


def test_a_loaded_state_is_a_copy():
    model = new_model()
    optimizers = new_optimizers(model, "adamw")
    train(model, optimizers, [0])
    tensors, values = optimizers.state_tensors()
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    again = new_optimizers(model, "adamw")
    again.load_state_tensors(kept, values)
    train(model, again, [1])
    assert_equal(kept, tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("qkv.weight.step"), "no 'qkv.weight.step': its optimizer state is incomplete"),
        (
            lambda tensors: tensors.update({"x.exp_avg": torch.ones(1)}),
            "state for 'x.exp_avg', which is not in the model",
        ),
        (lambda tensors: tensors.update({"norm.bias.exp_avg": torch.ones(9)}), r"\(9,\), but the model needs .*\(8,\)"),
        (lambda tensors: tensors.update({"norm.bias.exp_avg": torch.ones(8).half()}), "float16"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, message):
    model = new_model()
    optimizers = new_optimizers(model, "adamw")
    train(model, optimizers, range(2))
    tensors, values = optimizers.state_tensors()
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    change(tensors)
    with pytest.raises(gm.CheckpointError, match=message):
        optimizers.load_state_tensors(tensors, values)
    assert_equal(optimizers.state_tensors()[0], before)


def test_the_state_of_another_optimizer_is_refused():
    state = new_optimizers(new_model(), "muon").state_tensors()
    with pytest.raises(gm.CheckpointError, match="the state of optimizer 'muon', but this run uses 'adamw'"):
        new_optimizers(new_model(), "adamw").load_state_tensors(*state)


def test_the_state_of_a_sharded_model_is_saved_and_loaded_whole(tmp_path):
    answer = run_script(
        """
        import sys, torch
        from torch import nn
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from gristmill.lm.training.optimizers import build_optimizer
        torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meet", rank=0, world_size=1)
        mesh = init_device_mesh("cpu", (1,))

        def run(name, state=None, steps=2):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
            fully_shard(model, mesh=mesh)
            optimizers = build_optimizer(model, name, lr=0.1, weight_decay=0.1)
            if state:
                optimizers.load_state_tensors(*state)
            for _ in range(steps):
                model(torch.ones(2, 4)).pow(2).sum().backward()
                optimizers.step()
                optimizers.zero_grad()
            tensors, values = optimizers.state_tensors()
            whole = {n: t.full_tensor() if hasattr(t, "full_tensor") else t.clone() for n, t in tensors.items()}
            return whole, values

        for name, number in (("adamw", 12), ("muon", 8)):
            state = run(name)
            again = run(name, state, steps=0)
            assert len(state[0]) == number and state[1] == again[1]
            assert all(torch.equal(state[0][key], again[0][key]) for key in state[0])
            run(name, state, steps=1)
        torch.distributed.destroy_process_group()
        """,
        tmp_path,
    )
    assert answer.returncode == 0, answer.stderr


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "sgd"}, "name='sgd' is not valid. Pass one of 'adamw', 'muon', or add your own"),
        ({"lr": 0.0}, "lr must be > 0, got 0.0"),
        ({"lr": float("nan")}, "lr must be > 0, got nan"),
        ({"weight_decay": -1.0}, "weight_decay must be >= 0, got -1.0"),
        ({"betas": (0.9, 1.0)}, "betas and momentum must be >= 0 and < 1, got 1.0"),
        ({"eps": -1e-8}, "eps must be > 0, got -1e-08"),
        ({"fused": "yes"}, "fused='yes' is not valid"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(gm.OptionError, match=message):
        new_optimizers(new_model(), **{"name": "adamw", **options})


def test_models_without_anything_to_train():
    with pytest.raises(gm.OptionError, match="no parameters that require a gradient"):
        new_optimizers(nn.ReLU(), "adamw")
    with pytest.raises(gm.OptionError, match="Pass optimizer='adamw'"):
        new_optimizers(nn.LayerNorm(3), "muon")


# On a GPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_training_on_a_gpu_resumes_bit_exactly(name):
    def run(state, weights, steps):
        model = new_model().cuda()
        model.load_state_dict(weights or model.state_dict())
        optimizers = new_optimizers(model, name)
        if state:
            optimizers.load_state_tensors(load(state[0]), state[1])
        for step in steps:
            tokens = torch.randint(0, 11, (4, 6), generator=torch.Generator().manual_seed(step)).cuda()
            nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten()).backward()
            optimizers.step()
            optimizers.zero_grad()
        tensors, values = optimizers.state_tensors()
        return (save(tensors), values), copy.deepcopy(model.state_dict())

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        whole = run(None, None, range(6))
        assert_equal(run(*run(None, None, range(3)), range(3, 6))[1], whole[1])
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_orthogonalized_in_bf16_is_near_that_in_float32():
    matrices = torch.randn(2, 64, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        orthogonalized(matrices.cuda()).float().cpu(), orthogonalized(matrices), rtol=0, atol=0.05
    )
