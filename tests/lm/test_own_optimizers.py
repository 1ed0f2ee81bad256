"""Optimizers registered by users: saved and resumed bit-exactly with any kind of state."""

import copy
import json

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

import gristmill as gm
from gristmill.lm.training.optimizers import OPTIMIZERS, Optimizers, build_optimizer, register_optimizer

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def optimizers(monkeypatch):
    """The registry, restored after each test."""
    monkeypatch.setattr(OPTIMIZERS, "_entries", dict(OPTIMIZERS._entries))
    return OPTIMIZERS


class Counting(torch.optim.Optimizer):
    """Keeps a number besides its tensor, and a number that changes in its group."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "num_steps": 0, "range": (0.5, 2.0), "note": None})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["num_steps"] += 1
            group["range"] = (0.5, 2.0 + group["num_steps"])
            for weight in group["params"]:
                state = self.state[weight]
                state["count"] = state.get("count", 0) + 1
                state["mean"] = state.get("mean", torch.zeros(())) * 0.9 + weight.grad.mean()
                weight -= group["lr"] / group["num_steps"] / state["count"] * group["range"][1] * state["mean"].sign()


BUILDS = {
    "sgd": lambda model, *, lr: torch.optim.SGD(model.parameters(), lr=lr),
    "sgd-momentum": lambda model, *, lr: torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True),
    "adam": lambda model, *, lr, betas, eps: torch.optim.Adam(model.parameters(), lr=lr, betas=betas, eps=eps),
    "amsgrad": lambda model, **_: torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True),
    "rmsprop": lambda model, *, lr: torch.optim.RMSprop(model.parameters(), lr=lr, momentum=0.5, centered=True),
    "adagrad": lambda model, *, lr: torch.optim.Adagrad(model.parameters(), lr=lr),
    "nadam": lambda model, *, lr: torch.optim.NAdam(model.parameters(), lr=lr),
    "adafactor": lambda model, *, lr: torch.optim.Adafactor(model.parameters(), lr=lr),
    "rprop": lambda model, *, lr: torch.optim.Rprop(model.parameters(), lr=lr),
    "counting": lambda model, *, lr: Counting(model.parameters(), lr=lr),
    "two": lambda model, *, lr: [
        torch.optim.SGD(model[0].parameters(), lr=lr, momentum=0.9),
        Counting(model[2].parameters(), lr=10 * lr),
    ],
}


def new(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))
    return model, build_optimizer(model, name, lr=0.05, weight_decay=0.1)


def train(model, optimizers, steps):
    for step in steps:
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        nn.functional.mse_loss(model(inputs), inputs.flip(1)).backward()
        optimizers.set_learning_rate(1 / (1 + step))
        optimizers.step()
        optimizers.zero_grad()


@pytest.mark.parametrize("name", BUILDS)
def test_training_resumes_to_the_bit_from_tensors_and_json(name):
    register_optimizer(name, BUILDS[name])
    whole, optimizers = new(name)
    train(whole, optimizers, range(8))

    first, optimizers = new(name)
    train(first, optimizers, range(4))
    tensors, values = optimizers.state_tensors()
    file, text = save({key: tensor.clone() for key, tensor in tensors.items()}), json.dumps(values, allow_nan=False)

    second, again = new(name)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    again.load_state_tensors(load(file), json.loads(text))
    assert again.state_tensors()[1] == json.loads(text)
    train(second, again, range(4, 8))
    for key, weight in whole.state_dict().items():
        assert torch.equal(second.state_dict()[key], weight)
    assert again.name == name


def test_the_schedule_moves_the_learning_rate_of_every_optimizer():
    register_optimizer("two", BUILDS["two"])
    _, optimizers = new("two")
    optimizers.set_learning_rate(0.5)
    assert [o.param_groups[0]["lr"] for o in optimizers.torch_optimizers] == [0.025, 0.25]
    assert optimizers.learning_rate == 0.025


def test_a_builder_may_use_a_built_in_optimizer():
    def build(model, *, lr, weight_decay):
        return build_optimizer(model, "adamw", lr=lr / 2, weight_decay=weight_decay)

    register_optimizer("half", build)
    _, optimizers = new("half")
    assert isinstance(optimizers, Optimizers) and optimizers.learning_rate == 0.025


def test_a_builder_gets_only_the_options_it_names():
    given = {}

    def build(model, *, lr, betas=None, **others):
        given.update(others, lr=lr, betas=betas)
        return torch.optim.SGD(model.parameters(), lr=lr)

    register_optimizer("curious", build)
    new("curious")
    assert given["lr"] == 0.05 and given["betas"] == (0.9, 0.95) and given["weight_decay"] == 0.1 and given["eps"]


def test_state_that_no_checkpoint_can_hold_is_named():
    class Listing(torch.optim.SGD):
        def step(self, closure=None):
            for weight in self.param_groups[0]["params"]:
                self.state[weight]["history"] = [1, 2]

    register_optimizer("listing", lambda model, *, lr: Listing(model.parameters(), lr=lr))
    model, optimizers = new("listing")
    train(model, optimizers, [0])
    with pytest.raises(
        gm.TrainingError, match=r"optimizer 'listing' keeps 'history', a list.*tensors and finite numbers"
    ):
        optimizers.state_tensors()


def test_groups_that_do_not_fit_change_nothing():
    register_optimizer("counting", BUILDS["counting"])
    model, optimizers = new("counting")
    train(model, optimizers, [0])
    tensors, values = optimizers.state_tensors()
    before = json.dumps(values)
    with pytest.raises(gm.CheckpointError, match="has 0 groups of optimizer 'counting', but this run has 1"):
        optimizers.load_state_tensors(tensors, {**values, "groups": []})
    assert json.dumps(optimizers.state_tensors()[1]) == before


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda model: {}, "optimizer 'odd' returned a dict. Return a torch.optim.Optimizer"),
        (lambda model: None, "returned a NoneType"),
        (
            lambda model: torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1),
            "has 2 parameters that are not the model's",
        ),
    ],
)
def test_a_builder_that_builds_something_else_is_named(build, message):
    register_optimizer("odd", build)
    with pytest.raises(gm.OptionError, match=message):
        new("odd")


def test_names_are_checked(optimizers):
    register_optimizer("mine", BUILDS["sgd"])
    register_optimizer("mine", BUILDS["sgd"])
    for name in ("mine", "adamw", "muon"):
        with pytest.raises(gm.OptionError, match=f"optimizer '{name}' already exists.*overwrite=True"):
            register_optimizer(name, BUILDS["adam"])
    with pytest.raises(gm.OptionError, match="name='My Own' is not a valid name of an optimizer"):
        register_optimizer("My Own", BUILDS["adam"])
    with pytest.raises(
        gm.OptionError, match=r"name='lion' is not valid.*'muon', 'mine', or add your own with register_opt"
    ):
        new("lion")
    register_optimizer("mine", BUILDS["adam"], overwrite=True)
    assert optimizers["mine"] is BUILDS["adam"]


def test_names_are_known_without_torch():
    from scripts import run_script

    answer = run_script(
        """
        import sys
        from gristmill.lm.training.registries import OPTIMIZERS, SCHEDULES
        assert "adamw" in OPTIMIZERS and list(SCHEDULES) == ["cosine", "wsd", "constant"]
        assert "torch" not in sys.modules
        """
    )
    assert answer.returncode == 0, answer.stderr
