"""Steps replayed from graphs: the same run as without them. On a CPU, a stand-in records the step instead of CUDA."""

import dataclasses
import gc
from types import SimpleNamespace

import pytest
import torch

from gristmill.lm.models.gpt.network import GPT
from gristmill.lm.models.vae.network import SequenceVAE
from gristmill.lm.training import run as run_module
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.cuda_capture import CudaCapture
from gristmill.lm.training.graphed_step import CaptureError, GraphedStep
from gristmill.lm.training.graphs import describe_graphs, why_no_graphs
from lm.tiny_runs import Crash, assert_same_run, build_shards, crash_at, records, tensors, train
from lm.tiny_vae import CONFIG, SWITCHES, batch_of, make, vectors_of, wider
from lm.tiny_vae import OF_VECTORS as VECTORS

VAE = {
    "model": "vae",
    "context_length": 256,
    "max_sequence_length": 40,
    "latent_dim": 6,
    "use_dynamic_padding": True,
    "num_buckets": 3,
    "gradient_accumulation_steps": 2,
    "update_frequency": 4,
    "window_size": 4,
    "plot_frequency": 0,
    "kl_warmup_steps": 10,
    "limit_val_batches": 3,
}
HARD = {"dropout": 0.1, "word_dropout": 0.3, "batch_norm_mu": 0.5, "free_bits": 0.1, "free_bits_mode": "dimension"}


class Recorded:
    """A stand-in for CUDA: a replay runs the work again, and overwrites the results of all other graphs."""

    def __init__(self, model):
        self.model, self.results = model, []
        self.num_warm_ups = self.num_replays = 0

    def warm_up(self, work):
        self.num_warm_ups += 1
        work()
        work()

    def captured(self, work):
        stats = self.run_without_effect(work)
        self.results.append(stats)

        def replay():
            self.num_replays += 1
            for other in self.results:
                for tensor in other.values():
                    tensor.fill_(torch.nan)
            for name, value in work().items():
                stats[name].copy_(value)

        return replay, stats

    def run_without_effect(self, work):
        """Return tensors like the results. A capture runs nothing, so it changes neither gradients nor buffers."""
        changed = [*self.model.buffers(), *(p.grad for p in self.model.parameters() if p.grad is not None)]
        before = [tensor.clone() for tensor in changed]
        stats = {name: torch.full_like(value, torch.nan) for name, value in work().items()}
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)
        return stats


class Failing(Recorded):
    """Fails at the capture of graph `number`, or in its warm-up."""

    def __init__(self, model, number, *, in_warm_up=False, error=None):
        super().__init__(model)
        self.number, self.in_warm_up = number, in_warm_up
        self.error = error or RuntimeError("operation not permitted when stream is capturing.\nMore of it")

    def warm_up(self, work):
        super().warm_up(work)
        if self.in_warm_up and self.num_warm_ups == self.number:
            raise self.error

    def captured(self, work):
        if self.num_warm_ups == self.number:
            raise self.error
        return super().captured(work)


def compute_of(model):
    def compute(fields, schedule, share):
        loss, stats = model.loss(type(batch_of(1))(**fields), schedule)
        (loss * share).backward()
        return stats

    return compute


def graphs_of(model, capture=None, widths=(12, 5)):
    capture = capture or Recorded(model)
    return GraphedStep(compute_of(model), model, widths=widths, device=torch.device("cpu"), capture=capture)


def state_of(model):
    gradients = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    return gradients, {name: buffer.clone() for name, buffer in model.named_buffers()}, torch.get_rng_state()


def assert_equal(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("config", [dataclasses.replace(CONFIG, **SWITCHES, dropout=0.2), VECTORS])
def test_accumulated_gradients_statistics_and_buffers_are_those_of_plain_passes(config):
    new = batch_of if config.embedding_dim is None else vectors_of
    torch.manual_seed(0)
    batches = [new(5, 3), wider(new(7, 2), 12), new(4, 5), new(12, 11)]
    found = []
    for is_graphed in (False, True):
        torch.manual_seed(1)
        model = make(config).train()
        graphs, compute = graphs_of(model), compute_of(model)
        for step in range(3):
            torch.manual_seed(step)
            model.zero_grad(set_to_none=True)  # as optimizers do
            graphs.begin() if is_graphed else None
            schedule = {"kl_weight": torch.tensor(0.1 * step)}
            for number, batch in enumerate(batches):
                share = torch.tensor(0.1 * number) if number % 2 else 0.25
                if is_graphed:
                    stats = graphs.computed(batch, schedule, share)
                else:
                    stats = compute(dict(vars(batch)), schedule, share)
                found.append((is_graphed, {name: value.clone() for name, value in stats.items()}))
            found.append((is_graphed, state_of(model)))
    for plain, graphed in zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True):
        assert (plain[0], graphed[0]) == (False, True)
        assert_equal(graphed[1], plain[1])
    assert graphs.num_graphs == 2


def test_the_longest_shape_is_captured_first_and_each_shape_once():
    model = make().train()
    capture = Recorded(model)
    graphs = graphs_of(model, capture)
    schedule = {"kl_weight": torch.tensor(1.0)}
    for width in (5, 5, 12, 5):
        graphs.computed(wider(batch_of(3, 5), width), schedule, 1.0)
    widths = [stats["mu"].shape for stats in capture.results]
    assert (capture.num_warm_ups, capture.num_replays, len(widths)) == (2, 4, 2)
    assert [dict(graph.fields)["inputs_BT"].shape[1] for graph in graphs._graphs.values()] == [12, 5]
    graphs.computed(batch_of(3, 5, 1), schedule, 1.0)  # another number of rows
    assert graphs.num_graphs == 3


@pytest.mark.parametrize("in_warm_up", [False, True])
def test_a_failed_capture_leaves_gradients_buffers_and_generators_as_they_were(in_warm_up):
    model = make(**SWITCHES, dropout=0.2).train()
    graphs = graphs_of(model, Failing(model, 2, in_warm_up=in_warm_up))
    schedule, batch = {"kl_weight": torch.tensor(1.0)}, batch_of(5, 3)
    graphs.begin()
    graphs.computed(batch_of(12, 3), schedule, 0.5)
    before = state_of(model)
    with pytest.raises(CaptureError, match=r"^operation not permitted when stream is capturing$"):
        graphs.computed(batch, schedule, 0.5)
    assert_equal(state_of(model), before)


def test_a_parameter_without_a_gradient_stays_without_one():
    model = make().train()
    unused = torch.nn.Parameter(torch.ones(3))
    model.register_parameter("unused", unused)
    graphs = graphs_of(model)
    graphs.begin()
    graphs.computed(batch_of(5, 3), {"kl_weight": torch.tensor(1.0)}, 1.0)
    assert unused.grad is None and all(p.grad is not None for p in model.parameters() if p is not unused)


def test_gradients_that_an_optimizer_has_dropped_are_attached_again():
    model = make().train()
    graphs, schedule = graphs_of(model), {"kl_weight": torch.tensor(1.0)}
    graphs.begin()
    graphs.computed(batch_of(5, 3), schedule, 1.0)
    first = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    graphs.begin()
    assert all(parameter.grad is first[name] for name, parameter in model.named_parameters())
    assert not any(parameter.grad.any() for parameter in model.parameters())


# When graphs are used


def reason(dataset=None, device="cuda", model=None, world_size=1, kernels=None, **options):
    config = TrainConfig.from_options({"model": "vae", "precision": "bf16-mixed", **options})
    dataset = SimpleNamespace(bounds=[8, 40]) if dataset is None else dataset
    model = make() if model is None else model
    return why_no_graphs(config, model, dataset, torch.device(device), world_size=world_size, kernels=kernels)


def test_graphs_are_used_only_where_they_work():
    assert reason() is None
    assert reason(compile_model=True) is None
    assert reason(precision="32") is None
    assert reason(cuda_graphs="off") == "cuda_graphs='off'"
    assert "'cpu'" in reason(device="cpu")
    assert "2 devices" in reason(world_size=2)
    assert "fsdp" in reason(strategy="fsdp")
    assert "16-mixed" in reason(precision="16-mixed")
    assert "activation_checkpointing" in reason(activation_checkpointing=True)
    assert "reduce-overhead" in reason(compile_model=True, compile_mode="reduce-overhead")
    assert reason(kernels=object(), model=type("Own", (), {"CAPTURES_STEPS": False})()) is None
    assert "deterministic" in reason(kernels=object(), deterministic=True)
    assert "no fixed set" in reason(SimpleNamespace())
    assert "40 lengths" in reason(SimpleNamespace(bounds=list(range(40))))
    assert SequenceVAE.CAPTURES_STEPS and not GPT.CAPTURES_STEPS
    assert "Own.CAPTURES_STEPS" in reason(model=type("Own", (), {"CAPTURES_STEPS": False})())
    assert "each of the 2 batch lengths" in describe_graphs(SimpleNamespace(bounds=[8, 40]))


# Runs

is_on_gpu = torch.cuda.is_available()
on_gpu = pytest.mark.skipif(not is_on_gpu, reason="needs a GPU")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return build_shards(tmp_path_factory.mktemp("graphs") / "shards", number=300)


@pytest.fixture
def on_cpu(monkeypatch):
    """Use graphs on a CPU, with a stand-in for CUDA. Returns the stand-ins of the runs."""
    made = []

    def graphed_step(config, model, dataset, device, compute, *, kernels=None):
        made.append(made_by(model))
        return GraphedStep(compute, model, widths=dataset.bounds, device=device, capture=made[-1])

    def why(config, *others, **more):
        return None if config.cuda_graphs == "auto" else "off"

    made_by = Recorded
    monkeypatch.setattr(run_module, "graphed_step", graphed_step)
    monkeypatch.setattr(run_module, "why_no_graphs", why)
    return made


@pytest.mark.parametrize(
    "options", [{}, HARD, {"optimizer": "muon", "bag_of_words_weight": 0.2}, {"precision": "bf16-mixed"}]
)
def test_a_run_with_graphs_equals_one_without_and_resumes_bit_exactly(shards, tmp_path, on_cpu, options):
    train(shards, tmp_path / "plain", cuda_graphs="off", **VAE, **options)
    assert not on_cpu
    train(shards, tmp_path / "whole", **VAE, **options)
    assert on_cpu[0].num_replays == 40 and 1 < len(on_cpu[0].results) <= 3
    assert_same_run(tmp_path / "plain", tmp_path / "whole", 20)
    assert records(tmp_path / "plain", "posterior") == records(tmp_path / "whole", "posterior")
    with pytest.raises(Crash):
        train(shards, tmp_path / "parts", progress=crash_at(12), **VAE, **options)
    train(shards, tmp_path / "parts", resume="auto", **VAE, **options)
    assert_same_run(tmp_path / "whole", tmp_path / "parts", 20)


def test_the_monitor_sees_the_last_micro_batch_of_its_step(shards, tmp_path, on_cpu):
    options = {**VAE, "update_frequency": 1, "window_size": 1}
    train(shards, tmp_path / "plain", cuda_graphs="off", **options)
    train(shards, tmp_path / "graphs", **options)
    found = records(tmp_path / "graphs", "posterior")
    assert len(found) == 20 and found == records(tmp_path / "plain", "posterior")


@pytest.mark.parametrize("number", [1, 2])
def test_a_run_whose_step_cannot_be_captured_says_so_once_and_goes_on(shards, tmp_path, monkeypatch, on_cpu, number):
    def graphed_step(config, model, dataset, device, compute, *, kernels=None):
        capture = Failing(model, number, error=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."))
        return GraphedStep(compute, model, widths=dataset.bounds, device=device, capture=capture)

    train(shards, tmp_path / "plain", cuda_graphs="off", **VAE, **HARD)
    monkeypatch.setattr(run_module, "graphed_step", graphed_step)
    train(shards, tmp_path / "run", **VAE, **HARD)
    found = [
        record["message"] for record in records(tmp_path / "run", "event") if "no CUDA graphs" in record["message"]
    ]
    assert found == ["no CUDA graphs: the device ran out of memory. The run continues without them, more slowly."]
    assert_same_run(tmp_path / "plain", tmp_path / "run", 20)


def test_a_resumed_run_may_turn_graphs_on_or_off(shards, tmp_path):
    train(shards, tmp_path / "run", **{**VAE, "max_steps": 10})
    train(shards, tmp_path / "run", resume="auto", **{**VAE, "max_steps": 12, "cuda_graphs": "off"})
    events = str(records(tmp_path / "run", "event"))
    assert "equal up to rounding but not bit-exact: cuda_graphs was 'auto' and is now 'off'" in events


# On a GPU


def losses(run):
    return [record["loss"] for record in records(run, "train")]


def is_using_graphs(run):
    return any("CUDA graphs replay" in record["message"] for record in records(run, "event"))


@on_gpu
@pytest.mark.parametrize("compile_model", [False, True])
@pytest.mark.parametrize("options", [{}, {**HARD, "precision": "bf16-mixed"}])
def test_on_a_gpu_losses_and_weights_are_those_without_graphs(shards, tmp_path, options, compile_model):
    options = {**VAE, **options, "device": "cuda", "compile_model": compile_model, "deterministic": True}
    for name in ("off", "auto"):
        torch._dynamo.reset()
        train(shards, tmp_path / name, cuda_graphs=name, **{"precision": "32", **options})
    assert is_using_graphs(tmp_path / "auto") and not is_using_graphs(tmp_path / "off")
    assert "no CUDA graphs" not in (tmp_path / "auto" / "metrics.jsonl").read_text()
    torch.testing.assert_close(losses(tmp_path / "auto"), losses(tmp_path / "off"), rtol=1e-3, atol=1e-3)
    one, other = (tensors(tmp_path / name, 20) for name in ("auto", "off"))
    torch.testing.assert_close(one, other, rtol=1e-2, atol=2e-3)


@on_gpu
@pytest.mark.parametrize("compile_model", [False, True])
def test_on_a_gpu_a_resumed_run_with_graphs_is_bit_exact(shards, tmp_path, compile_model):
    options = {**VAE, **HARD, "device": "cuda", "precision": "bf16-mixed", "deterministic": True}
    options["compile_model"] = compile_model
    train(shards, tmp_path / "whole", **options)
    with pytest.raises(Crash):
        train(shards, tmp_path / "parts", progress=crash_at(12), **options)
    train(shards, tmp_path / "parts", resume="auto", **options)
    assert is_using_graphs(tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "parts", 20)


class Waiting(torch.nn.Module):
    """A model whose loss waits for the device, or does so only after the warm-up."""

    def __init__(self, hides):
        super().__init__()
        self.linear, self.hides, self.num_calls = torch.nn.Linear(4, 4), hides, 0

    def loss(self, batch, schedule):
        self.num_calls += 1
        loss = torch.nn.functional.dropout(self.linear(batch.inputs_BT.float())).square().mean()
        if not self.hides or self.num_calls > 2:
            assert loss.item() >= 0
        return loss, {"loss": loss.detach()}


@on_gpu
@pytest.mark.parametrize("hides", [False, True])
def test_on_a_gpu_a_model_that_waits_for_the_device_cannot_be_captured_and_torch_works_afterwards(hides):
    device = torch.device("cuda")
    model = Waiting(hides).to(device)
    graphs = GraphedStep(compute_of(model), model, widths=[4], device=device, capture=CudaCapture(device))
    batch = batch_of(4, 4).to(device)
    graphs.begin()
    torch.manual_seed(5)
    before = state_of(model), torch.cuda.get_rng_state()
    with pytest.raises(CaptureError):
        graphs.computed(batch, {}, 1.0)
    torch.cuda.synchronize()
    assert torch.equal(torch.cuda.get_rng_state(), before[1])
    first = torch.rand(4, device=device)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(4, device=device), first)
    compute_of(model)(dict(vars(batch)), {}, torch.ones((), device=device))
    # The next capture works.
    other = make(**SWITCHES).to(device).train()
    graphs = GraphedStep(compute_of(other), other, widths=[5], device=device, capture=CudaCapture(device))
    stats = graphs.computed(batch_of(5, 3).to(device), {"kl_weight": torch.ones((), device=device)}, 1.0)
    assert stats["loss"].isfinite()


class CannotBegin:
    def capture_begin(self, **options):
        assert not gc.isenabled()
        raise RuntimeError("operation not permitted when stream is capturing")


def test_a_capture_that_cannot_begin_leaves_the_garbage_collector_enabled(monkeypatch):
    capture = object.__new__(CudaCapture)  # its __init__ needs a GPU
    capture._device, capture._pool = torch.device("cuda", 0), None
    monkeypatch.setattr(torch.cuda, "default_generators", [SimpleNamespace(clone_state=lambda: None)])
    with pytest.raises(RuntimeError, match="not permitted"), capture._capturing(CannotBegin()):
        pass
    assert gc.isenabled()
