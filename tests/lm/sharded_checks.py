"""What test_sharded.py runs in several processes: each check takes a folder and returns what the test is to judge.

    python -m lm.sharded_checks FOLDER RANK WORLD_SIZE

Every process writes what its checks returned to answer-RANK.json.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

SHAPES = {"tall": (10, 4), "wide": (4, 10), "stacked": (12, 4), "uneven": (12, 6), "single": (1, 5), "again": (10, 4)}
STACKED = {"stacked": 3, "uneven": (8, 2, 2)}
STEPS = 3


class Matrices(nn.Module):
    """Weights of several shapes, some with fewer rows than processes, with a vector and a buffer."""

    def __init__(self):
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        self.vector = nn.Parameter(torch.zeros(7))
        self.register_buffer("count", torch.tensor([3, 4]))

    def stacked_weights(self):
        return STACKED

    def forward(self):
        return sum(parameter.sum() for parameter in self.parameters())


def new_model(mesh=None):
    from torch.distributed.fsdp import fully_shard

    model = Matrices()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
    return model if mesh is None else fully_shard(model, mesh=mesh)


def set_gradients(model, step, bad=None):
    """Set the same gradients in every process, sharded like the weights. That of weight `bad` ends with NaN."""
    from gristmill.lm.training.checkpoint import divided_like

    for number, (name, parameter) in enumerate(model.named_parameters()):
        gradient = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1000 * step + number))
        if name == bad:
            gradient.view(-1)[-1] = math.nan
        parameter.grad = divided_like(parameter, gradient)


def new_optimizers(model, name="muon"):
    from gristmill.lm.training.optimizers import build_optimizer

    return build_optimizer(model, name, lr=0.01, weight_decay=0.1)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def after_steps(model, name="muon", *, alone=False):
    """Return weights and optimizer state after some steps. `alone`: as in a single process."""
    optimizers = new_optimizers(model, name)
    if alone:
        optimizers.torch_optimizers[-1]._sharing = None
    for step in range(STEPS):
        set_gradients(model, step)
        optimizers.step()
    return optimizers, all_tensors(model, optimizers)


def all_tensors(model, optimizers):
    tensors = {**model.state_dict(), **optimizers.state_tensors()[0]}
    return {name: whole(tensor.detach()).clone() for name, tensor in tensors.items()}


def difference(one, other):
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


def are_equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def are_the_same_in_all_processes(tensors):
    flat = torch.cat([tensor.double().flatten() for tensor in tensors.values()])
    others = [torch.empty_like(flat) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(others, flat)
    return all(torch.equal(flat, other) for other in others)


# Muon


def check_muon(folder, mesh):
    _, alone = after_steps(new_model(), alone=True)
    _, replicated = after_steps(new_model())
    sharded, in_parts = after_steps(new_model(mesh))
    momentum = sharded.state_tensors()[0]["tall.momentum"]
    return {
        "replicated": difference(alone, replicated),
        "replicated is the same": are_the_same_in_all_processes(replicated),
        "sharded": difference(alone, in_parts),
        "rows of momentum": momentum.to_local().shape[0],
    }


def check_not_finite(folder, mesh):
    """A NaN in the last row of a weight, which is on one process, makes all processes skip the step."""
    from gristmill.lm.training.weight_updates import WeightUpdates, are_finite

    answers = {}
    for waits in (True, False):
        model = new_model(mesh)
        optimizers, _ = after_steps(model)
        fabric = SimpleNamespace(device=torch.device("cpu"), strategy=SimpleNamespace(precision=None))
        updates = WeightUpdates(fabric, optimizers, model, clip_norm=1.0, waits=waits)
        before = all_tensors(model, optimizers)
        set_gradients(model, 9, bad="tall")
        norm = float(updates.update())
        answers[f"left alone, waits={waits}"] = math.isnan(norm) and are_equal(before, all_tensors(model, optimizers))
    model = new_model(mesh)
    gradients = [torch.randn(4, generator=torch.Generator().manual_seed(0))]
    set_gradients(model, 0)
    plain = new_model()
    set_gradients(plain, 0)
    norms = [whole(nn.utils.clip_grad_norm_(each.parameters(), 1.0)) for each in (model, plain)]
    answers["norm"] = float((norms[0] - norms[1]).abs())
    answers["clipped"] = difference(
        *({n: whole(p.grad) for n, p in each.named_parameters()} for each in (model, plain))
    )
    with torch.no_grad():
        model.tall.to_local()[-1:] = math.inf if torch.distributed.get_rank() == 1 else 1.0
    answers["are_finite"] = are_finite([*gradients, *model.parameters()])
    return answers


# Checkpoints


def files_of(model, optimizers):
    from gristmill.lm.training.saving import _copies

    tensors, numbers = optimizers.state_tensors()
    return {"step": 0, "optimizer": numbers}, {
        "model.safetensors": _copies(model.state_dict()),
        "optimizer.safetensors": _copies(tensors),
    }


def save(writer, step, model, optimizers, **more):
    state, files = files_of(model, optimizers)
    writer.write({**state, "step": step, "val_loss": None, **more}, files)


def error_of(function):
    """Return the kind and message of the error that a function raises, and whether only the first process shows it."""
    try:
        function()
    except Exception as error:
        return [type(error).__name__, str(error), getattr(error, "is_shown_by_first", False)]
    return None


def check_checkpoint(folder, mesh):
    """Save a checkpoint, and read it with this number of processes. The test reads it with other numbers."""
    from safetensors.torch import save_file

    from gristmill.lm.training import sharded
    from gristmill.lm.training.checkpoint import list_checkpoints, read_state

    size, run = torch.distributed.get_world_size(), folder / f"saved-by-{torch.distributed.get_world_size()}"
    if is_first():
        run.mkdir()
    torch.distributed.barrier()
    model = new_model(mesh)
    optimizers, expected = after_steps(model)
    writer = sharded.ShardedWriter(run, keep=1)
    for step, loss in ((1, 1.0), (2, 2.0), (3, 3.0)):
        save(writer, step, model, optimizers, val_loss=loss)
    set_gradients(model, 50)
    optimizers.step()  # while it is written
    writer.close()
    torch.distributed.barrier()
    if is_first():
        save_file(expected, folder / f"expected-{size}.safetensors")
    names = [path.name for path in list_checkpoints(run)]
    answers = {"kept": names, "files": sorted(path.name for path in (run / "checkpoints" / names[-1]).iterdir())}
    for number in range(2, size + 1):
        there = folder / f"saved-by-{number}/checkpoints/step-000003"
        answers[f"read from {number}"] = restored(there, read_state(there), mesh, number)
    one = folder / "saved-by-1/checkpoints/step-000003"
    answers["read from 1"] = restored(one, read_state(one), mesh, 1)
    return answers


def restored(there, state, mesh, number):
    """Return whether a new model has exactly the saved weights and state."""
    from safetensors.torch import load_file

    from gristmill.lm.training import sharded

    model = new_model(mesh)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.count.zero_()
    optimizers = new_optimizers(model)
    sharded.load_weights(model, there, state)
    optimizers.load_state_tensors(sharded.load_optimizer(model, there, state), state["optimizer"])
    return are_equal(all_tensors(model, optimizers), load_file(there.parents[2] / f"expected-{number}.safetensors"))


def check_failures(folder, mesh):
    from gristmill.lm.training import sharded
    from gristmill.lm.training.checkpoint import list_checkpoints, read_state

    size, run = torch.distributed.get_world_size(), folder / f"failed-by-{torch.distributed.get_world_size()}"
    if is_first():
        run.mkdir()
    torch.distributed.barrier()
    model = new_model(mesh)
    optimizers, _ = after_steps(model)
    writer = sharded.ShardedWriter(run, keep=2)
    new = new_model(mesh)
    save(writer, 0, new, new_optimizers(new))
    writer.wait()
    before = run / "checkpoints/step-000000"
    answers = {"before a step": sorted(sharded.load_optimizer(new, before, read_state(before)))}
    save(writer, 1, model, optimizers)
    writer.wait()
    with full_disk(sharded, when=torch.distributed.get_rank() == size - 1):
        save(writer, 2, model, optimizers)
        answers["full disk"] = error_of(writer.wait)
    with full_disk(sharded, when=is_first()):
        save(writer, 2, model, optimizers)
        answers["full disk of the first"] = error_of(writer.wait)
    with torch.no_grad():
        if torch.distributed.get_rank() == size - 1:
            model.stacked.to_local()[-1:] = math.nan
    save(writer, 3, model, optimizers)
    answers["not finite"] = error_of(writer.close)
    torch.distributed.barrier()
    answers["there"] = sorted(path.name for path in (run / "checkpoints").iterdir())
    there = list_checkpoints(run)[-1]
    read_state(there)
    torch.distributed.barrier()
    part = there / f"model.part-{size:05d}-of-{size:05d}.safetensors"
    if is_first():
        data = bytearray(part.read_bytes())
        data[-1] ^= 1
        part.write_bytes(data)
    torch.distributed.barrier()
    answers["damaged"] = error_of(lambda: sharded.load_weights(model, there, read_state(there)))
    return answers


@contextlib.contextmanager
def full_disk(module, *, when):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    real = module.write_tensors
    if when:
        module.write_tensors = fail
    try:
        yield
    finally:
        module.write_tensors = real


# Precision


def check_bf16(folder, mesh):
    """Compare a GPT sharded as in a run with the same GPT unsharded: both in bf16-mixed, on the same batches."""
    from gristmill.lm.data.batch import Batch
    from gristmill.lm.models.gpt.network import GPT, GPTConfig
    from gristmill.lm.training.devices import _shard
    from gristmill.lm.training.losses import LossModule

    config = GPTConfig(vocab_size=64, context_length=16, num_layers=2, num_heads=2, d_model=32)
    tokens = torch.randint(64, (4, 17), generator=torch.Generator().manual_seed(5))
    fields = [vars(Batch(part[:, :-1], part[:, 1:])) for part in tokens.split(2)]
    seen, curves = {}, []
    for is_sharded in (False, True):
        torch.manual_seed(0)
        module = LossModule(GPT(config))
        if is_sharded:
            module = _shard(module, {"data_parallel": mesh}, is_bf16=True)
            block = module.model.blocks[0]
            block.attention.register_forward_pre_hook(
                lambda layer, inputs: seen.update({"in a block": str(layer.qkv.weight.dtype)})
            )
        optimizers = new_optimizers(module.model, "adamw")
        optimizers.set_learning_rate(1.0)
        curve = []
        for _ in range(8):
            for micro_step in range(2):
                if is_sharded:
                    module.set_requires_gradient_sync(micro_step == 1)
                with torch.autocast("cpu", torch.bfloat16):
                    loss, _ = module(fields[micro_step], {})
                loss.backward()
            optimizers.step()
            optimizers.zero_grad()
            curve.append(float(loss))
        curves.append(curve)
        seen["loss"] = str(loss.dtype)
        kept = {*module.model.parameters(), *optimizers.state_tensors()[0].values()}
        seen["kept"] = sorted({str(tensor.dtype) for tensor in kept})
    return {**seen, "curves": curves}


def is_first():
    return torch.distributed.get_rank() == 0


def main(folder, rank, size):
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet-{size}", rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,))
    checks = (check_muon, check_not_finite, check_checkpoint, check_failures, check_bf16)
    answers = {check.__name__.removeprefix("check_"): check(folder, mesh) for check in checks}
    (folder / f"answer-{size}-{rank}.json").write_text(json.dumps(answers))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
