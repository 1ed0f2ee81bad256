"""Custom models: one file, with everything that the built-in models can do."""

import contextlib
import functools
import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch.nn import functional as F

import gristmill as gm
from gristmill.cli import main
from gristmill.cli.plugins import load_plugin
from gristmill.lm.data.batch import IGNORED
from gristmill.lm.models import registry
from gristmill.lm.models.gpt.network import GPT
from gristmill.lm.training.checkpoint import load_model
from gristmill.lm.training.config import TrainConfig, load_config, read_config
from gristmill.report import write_report
from lm import launched_world
from lm.test_distributed import losses
from lm.tiny_runs import TINY, Crash, assert_same_run, crash_at, records, tensors

EXAMPLE = Path(__file__).parents[2] / "examples/08_own_model.py"
# The options of a tiny run, without those of transformers only.
RUN = {
    name: value for name, value in TINY.items() if name not in ("context_length", "num_layers", "num_heads", "d_model")
}
GRU = {**RUN, "context_length": 16, "model": "gru", "hidden_size": 12}

torch.set_num_threads(1)


@contextlib.contextmanager
def same_models_afterwards():
    before = dict(registry._entries)
    yield
    registry._entries.clear()
    registry._entries.update(before)


@pytest.fixture(scope="module", autouse=True)
def example():
    """The model of the example, loaded as --plugin loads it."""
    with same_models_afterwards():
        load_plugin(EXAMPLE)
        yield
        del sys.modules[f"gristmill_plugin_{EXAMPLE.stem}"]


@pytest.fixture(autouse=True)
def models():
    """Remove models that a test registers after it."""
    with same_models_afterwards():
        yield


def train(shards, out, *, progress=None, **options):
    return gm.lm.train(shards, out=out, progress=progress, **{**GRU, **options})


@pytest.fixture(scope="module")
def trained(tiny_shards, tmp_path_factory, example):
    """A run of the example's model, undisturbed."""
    folder = tmp_path_factory.mktemp("gru") / "run"
    train(tiny_shards, folder)
    return folder


def test_a_custom_model_is_at_most_60_lines():
    lines = EXAMPLE.read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("@dataclass"))
    end = next(number for number, line in enumerate(lines) if line.startswith("def main"))
    assert "register_model" in "\n".join(lines[begin:end])
    assert end - begin <= 60


def test_it_learns(trained):
    first, last = records(trained, "train")[0], records(trained, "train")[-1]
    assert last["loss"] < first["loss"]


CASES = {
    "plain": {},
    "two layers, muon": {"optimizer": "muon", "num_layers": 2},
    "bf16 and accumulation": {"precision": "bf16-mixed", "gradient_accumulation_steps": 2},
    "samples": {"sample_interval": 5, "sample_tokens": 8},
}


@pytest.mark.parametrize("case", CASES)
def test_a_crashed_run_resumes_bit_exactly(tiny_shards, tmp_path, case):
    train(tiny_shards, tmp_path / "whole", **CASES[case])
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "broken", progress=crash_at(12), **CASES[case])
    gm.lm.train(tiny_shards, out=tmp_path / "broken", resume=True, progress=None)  # with the options it was saved with
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 20)


def test_a_terminated_run_resumes_bit_exactly(tiny_shards, trained, tmp_path):
    class Terminated(Exception):
        pass

    def terminate(*_):
        raise Terminated

    def show(record):
        if record["kind"] == "train" and record["step"] == 8:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        with pytest.raises(Terminated):
            train(tiny_shards, tmp_path / "run", progress=show)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (tmp_path / "run/checkpoints/step-000008").is_dir()
    train(tiny_shards, tmp_path / "run", resume=True)
    assert_same_run(trained, tmp_path / "run", 20)


def test_its_evaluation_is_the_cross_entropy_computed_by_hand(tiny_shards, trained):
    found = gm.lm.evaluate(trained, tiny_shards, device="cpu", which="latest")
    model, _ = load_model(trained, which="latest")
    tokens = torch.tensor(gm.Shards(tiny_shards, split="val").tokens[:].astype("int64"))
    nats, number = 0.0, 0
    for begin in range(0, len(tokens) - 16, 16):  # windows, each with the token after its last
        with torch.no_grad():
            logits_TV = model(tokens[None, begin : begin + 16])[0]
        nats += F.cross_entropy(logits_TV.double(), tokens[begin + 1 : begin + 17], reduction="sum").item()
        number += 16
    assert found.num_tokens == number
    assert found.loss == pytest.approx(nats / number, rel=1e-6)
    assert found.perplexity == pytest.approx(math.exp(nats / number), rel=1e-6)


def test_its_report_has_its_parameters_and_options_and_none_of_another_model(trained):
    page = write_report(trained).with_suffix(".md").read_text().replace("\\_", "_")
    model, _ = load_model(trained, which="latest")
    assert f"{model.num_parameters:,}" in page
    assert "hidden_size" in page
    for foreign in ("d_model", "num_heads", "latent_dim", "kl_weight", "max_sequence_length"):
        assert foreign not in page


def test_config_json_has_its_options_and_none_of_another_model(trained):
    written = json.loads((trained / "config.json").read_text())
    config = load_config(trained)
    assert written["model"] == "gru" and written["hidden_size"] == 12
    assert written == config.to_json()
    assert not written.keys() & {"d_model", "num_heads", "latent_dim", "kl_weight", "max_sequence_length"}


def test_it_writes_the_same_text_for_a_seed_beyond_its_context(trained):
    options = {"max_tokens": 60, "device": "cpu"}
    text = gm.lm.generate(trained, "the cat", seed=3, **options)
    assert gm.lm.generate(trained, "the cat", seed=3, **options) == text
    assert gm.lm.generate(trained, "the cat", seed=4, **options) != text
    tokenizer = gm.Tokenizer.load(trained / "tokenizer.json")
    assert len(tokenizer.encode(text)) > 16


def test_it_stops_at_the_end_of_a_text(trained):
    model, tokenizer = gm.lm.load_for_generation(trained, device="cpu")
    end = tokenizer.special_tokens["<|endoftext|>"]
    forward, calls = model.forward, []

    def ending(tokens_BT):
        calls.append(tokens_BT)
        logits_BTV = forward(tokens_BT)
        if len(calls) == 5:
            logits_BTV[..., end] = 1e9
        return logits_BTV

    model.forward = ending
    stream = gm.lm.stream_text(model, tokenizer, "the cat", max_tokens=60, seed=0)
    assert "<|endoftext|>" not in "".join(stream)
    assert stream.num_tokens == 4
    assert len(calls) == 5


def test_a_document_mask_that_it_would_not_use_is_refused(tiny_shards, tmp_path):
    with pytest.raises(
        gm.OptionError, match="document_mask=True is not supported: GRUModel reads windows across documents"
    ):
        train(tiny_shards, tmp_path / "run", document_mask=True)


def test_it_compiles(tiny_shards, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    try:
        train(tiny_shards, tmp_path / "compiled", max_steps=2, log_interval=1, compile_model=True)
    finally:
        torch._dynamo.reset()
    train(tiny_shards, tmp_path / "plain", max_steps=2, log_interval=1)
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "plain"), rel=1e-5)


def test_a_batch_size_of_auto_takes_the_same_global_batch(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", batch_size="auto", global_batch_size=4, max_steps=2)
    config = load_config(tmp_path / "run")
    assert config.batch_size * config.gradient_accumulation_steps == 4


def train_on_two(folder, shards, runs, **options):
    """Train in a subprocess, which loads the example as --plugin does."""
    loading = f"""
        import gristmill as gm
        from gristmill.cli.plugins import load_plugin
        load_plugin(Path({str(EXAMPLE)!r}))

        def train(data, out, **options):
            gm.lm.train(data, out=out, progress=None, **options)
    """
    launched_world.train_on_two(folder, shards, runs, before=loading, **{**GRU, **options})


def test_two_devices_take_the_steps_of_one(tiny_shards, tmp_path):
    steps = {"max_steps": 4, "log_interval": 1, "checkpoint_interval": 4, "val_check_interval": 4}
    train(tiny_shards, tmp_path / "one", batch_size=8, **steps)
    runs = {tmp_path / strategy: strategy for strategy in ("ddp", "fsdp")}
    train_on_two(tmp_path, tiny_shards, runs, batch_size=4, **steps)
    one = tensors(tmp_path / "one", 4)
    for run in runs:
        assert losses(run) == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
        two = tensors(run, 4)
        assert one.keys() == two.keys()
        for name in one:
            torch.testing.assert_close(one[name], two[name], atol=1e-3, rtol=1e-2)


def test_the_command_line_trains_resumes_and_writes_with_a_plugin(tiny_shards, trained, tmp_path, capsys):
    flags = [f"--{name}={value}" for name, value in GRU.items() if name != "model"]
    plugin = ["--plugin", str(EXAMPLE)]
    run = str(tmp_path / "run")
    train_it = ["train-model", str(tiny_shards), "-o", run, *plugin, "--progress", "none"]
    assert main([*train_it, "--model", "gru", *flags, "--max_steps=10"]) == 0
    assert main([*train_it, "--resume", "--max_steps", "12"]) == 0
    assert load_config(tmp_path / "run").to_json() == {**load_config(trained).to_json(), "max_steps": 12}
    capsys.readouterr()
    assert main(["generate", run, *plugin, "--prompt", "the cat", "--max-tokens", "20", "--seed", "0"]) == 0
    assert capsys.readouterr().out.strip().endswith(gm.lm.generate(run, "the cat", max_tokens=20, seed=0).strip())


def test_a_whole_number_of_a_flag_stays_one_whatever_was_imported_before():
    """A plugin imports torch, whose unions are `float | int`, and typing returns the same union for both orders."""
    program = (
        "import typing; typing.Optional[typing.Union[float, int]]\n"
        "from gristmill.cli.train_model import parse\n"
        "print(repr(parse(['shards', '-o', 'run', '--limit_val_batches', '2']).limit_val_batches))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"


def test_its_options_are_in_the_help_and_no_other_models(capsys):
    assert main(["train-model", "--plugin", str(EXAMPLE), "--model", "gru", "--help"]) == 0
    page = capsys.readouterr().out
    assert "--hidden-size" in page and "Width of the recurrent state." in page
    assert "--d-model" not in page and "--latent-dim" not in page


def test_a_run_of_an_unknown_model_is_not_called_damaged(tiny_shards, trained):
    del registry._entries["gru"]
    for use in (
        lambda: gm.lm.generate(trained, "the cat"),
        lambda: gm.lm.evaluate(trained, tiny_shards),
        lambda: gm.lm.train(tiny_shards, out=trained, resume=True, progress=None),
    ):
        with pytest.raises(gm.GristmillError, match=r"model='gru' is not known.*'gpt'.*plugin='my_model.py'") as caught:
            use()
        assert "damaged" not in str(caught.value)


# A model of documents, with statistics and a schedule


@dataclass(frozen=True, kw_only=True)
class BagConfig(gm.lm.DocumentModelConfig):
    """Predicts the tokens of a document from nothing: a table of frequencies."""

    pull: float = 0.5
    """Weight of the penalty at the end of the run."""

    STATISTICS: ClassVar[dict[str, str]] = {"length": "sequence", "mean_id": "token", "constant": "sequence"}

    def schedule(self, step, *, total_steps):
        return {"pull_weight": self.pull * (step + 1) / total_steps}


class Bag(gm.lm.Model):
    def __init__(self, config):
        super().__init__(config)
        self.logits_V = torch.nn.Parameter(torch.zeros(config.required_vocab_size))

    def loss(self, batch, schedule):
        counted_BT = batch.targets_BT != IGNORED
        losses_V = -self.logits_V.log_softmax(0)
        loss = losses_V[batch.targets_BT.clamp(min=0)][counted_BT].mean()
        penalty = schedule.get("pull_weight", 0.0) * self.logits_V.square().mean()
        lengths_B = counted_BT.sum(1)
        stats = {
            "loss": loss,  # not detached, as a user may forget
            "length": lengths_B[lengths_B > 0].double().mean(),
            "mean_id": batch.targets_BT[counted_BT].double().mean(),
            "constant": 2.5,
        }
        return loss + penalty, stats


BAG = {**RUN, "model": "bag", "max_sequence_length": 40, "gradient_accumulation_steps": 2, "max_steps": 8}
BAG |= {"checkpoint_interval": 4, "val_check_interval": 4, "log_interval": 2, "limit_val_batches": None}


@pytest.fixture
def bag():
    registry.register_model("bag", config=BagConfig)(Bag)


def test_statistics_are_averaged_per_token_and_per_sequence(tiny_shards, tmp_path, bag):
    gm.lm.train(tiny_shards, out=tmp_path / "run", progress=None, **BAG)
    config = load_config(tmp_path / "run")
    data = config.model.open_data(tiny_shards)
    opened = {"batch_size": 4, "seed": 0, "device": torch.device("cpu"), "vocab_size": None}
    dataset = data.open_dataset("train", **opened)
    lengths, ids = [], []
    for step in range(8):
        rows = [
            row[row != IGNORED].double()
            for micro_step in range(2)
            for row in dataset.batch(step, rank=0, world_size=1, micro_step=micro_step, num_micro_steps=2).targets_BT
        ]
        assert len(rows) == 8
        lengths.append(sum(map(len, rows)) / 8)
        ids.append(torch.cat(rows).mean().item())
    for number, record in enumerate(records(tmp_path / "run", "train")):
        steps = slice(2 * number, 2 * number + 2)
        assert record["length"] == pytest.approx(sum(lengths[steps]) / 2, rel=1e-5)
        assert record["mean_id"] == pytest.approx(sum(ids[steps]) / 2, rel=1e-5)
        assert record["constant"] == 2.5
        assert record["pull_weight"] == pytest.approx(0.5 * record["step"] / 8)
    documents = [document.tolist() for document in gm.Shards(tiny_shards, split="val")]
    (val,) = [record for record in records(tmp_path / "run", "val") if record["step"] == 8 and record["full"]][-1:]
    assert val["num_tokens"] == sum(map(len, documents))
    assert val["length"] == pytest.approx(sum(map(len, documents)) / len(documents))
    assert val["mean_id"] == pytest.approx(sum(map(sum, documents)) / sum(map(len, documents)))


def test_a_model_of_documents_resumes_bit_exactly_and_is_evaluated(tiny_shards, tmp_path, bag):
    gm.lm.train(tiny_shards, out=tmp_path / "whole", progress=None, **BAG)
    with pytest.raises(Crash):
        gm.lm.train(tiny_shards, out=tmp_path / "broken", progress=crash_at(6), **BAG)
    gm.lm.train(tiny_shards, out=tmp_path / "broken", progress=None, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 8)
    found = gm.lm.evaluate(tmp_path / "whole", tiny_shards, which="latest", device="cpu")
    model, _ = load_model(tmp_path / "whole", which="latest")
    ids = torch.tensor([id for document in gm.Shards(tiny_shards, split="val") for id in document.tolist()])
    assert found.loss == pytest.approx(-model.logits_V.log_softmax(0)[ids].mean().item(), rel=1e-6)
    assert found.stats["constant"] == 2.5


def test_a_statistic_that_is_declared_and_not_returned_is_named(tiny_shards, tmp_path):
    class Forgetful(Bag):
        def loss(self, batch, schedule):
            loss, stats = super().loss(batch, schedule)
            return loss, {"loss": loss, "length": stats["length"]}

    registry.register_model("bag", config=BagConfig)(Forgetful)
    with pytest.raises(gm.OptionError, match=r"Forgetful.loss returns no 'mean_id', which STATISTICS"):
        gm.lm.train(tiny_shards, out=tmp_path / "run", progress=None, **BAG)


def test_a_model_without_logits_trains_and_says_that_it_cannot_write(tiny_shards, tmp_path, bag):
    gm.lm.train(tiny_shards, out=tmp_path / "run", progress=None, **{**BAG, "max_steps": 2})
    with pytest.raises(gm.OptionError, match=r"model='bag' cannot generate text: Bag has no forward\(tokens_BT\)"):
        gm.lm.generate(tmp_path / "run", "the cat")


def test_samples_of_a_model_that_cannot_write_are_refused_before_the_first_step(tiny_shards, tmp_path, bag):
    with pytest.raises(gm.OptionError, match=r"sample_interval=2: model='bag' cannot write text.*Leave sample_"):
        gm.lm.train(tiny_shards, out=tmp_path / "run", progress=None, sample_interval=2, **BAG)
    assert not list((tmp_path / "run").glob("checkpoints/*"))


# Registration


def new_config(name="MineConfig", base=gm.lm.WindowModelConfig, **fields):
    """A config with these options."""
    body = {"__annotations__": {field: type(value) for field, value in fields.items()}, **fields}
    return dataclass(frozen=True, kw_only=True)(type(name, (base,), body))


class Mine(gm.lm.Model):
    def forward(self, tokens_BT):
        raise NotImplementedError


@pytest.mark.parametrize("name", ["", "My Model", "9th", "Grüße", "a/b"])
def test_a_name_that_no_flag_could_have_is_refused(name):
    with pytest.raises(gm.OptionError, match="Use lowercase letters, digits, '-' and '_'"):
        gm.lm.register_model(name, config=new_config())


@pytest.mark.parametrize("name", ["gpt", "vae"])
def test_built_in_models_cannot_be_replaced(name):
    with pytest.raises(gm.OptionError, match="a built-in model has this name"):
        gm.lm.register_model(name, config=new_config(), overwrite=True)


def test_a_config_must_say_which_data_the_model_takes():
    @dataclass(frozen=True)
    class Plain:
        width: int = 3

    for config in (Plain, gm.lm.ModelConfig, {"width": 3}, None):
        with pytest.raises(gm.OptionError, match=r"inherits from gm.lm.WindowModelConfig .* or gm.lm.DocumentModel"):
            gm.lm.register_model("mine", config=config)


def test_options_of_a_config_without_the_decorator_are_not_ignored_silently():
    class Undecorated(gm.lm.WindowModelConfig):
        width: int = 3

    with pytest.raises(gm.OptionError, match=r"Undecorated is not a dataclass itself.*@dataclass\(frozen=True"):
        gm.lm.register_model("mine", config=Undecorated)


def test_an_option_needs_a_default_that_json_can_hold():
    @dataclass(frozen=True, kw_only=True)
    class NoDefault(gm.lm.WindowModelConfig):
        width: int

    for config in (NoDefault, new_config(sizes=(1, 2))):
        with pytest.raises(gm.OptionError, match=r"the option '(width|sizes)' of .* has no default that config.json"):
            gm.lm.register_model("mine", config=config)


@pytest.mark.parametrize("option", ["batch_size", "seed", "max_steps"])
def test_an_option_that_every_run_has_is_refused(tiny_shards, tmp_path, option):
    gm.lm.register_model("mine", config=new_config(**{option: 3}))(Mine)
    with pytest.raises(gm.OptionError, match=rf"model='mine': its option '{option}' is also an option of every run"):
        gm.lm.train(tiny_shards, out=tmp_path / "run", model="mine")
    TrainConfig.from_options({"max_steps": 3})  # the other models are not affected


def test_a_network_must_be_a_model_with_a_forward_or_a_loss():
    class NotAModel(torch.nn.Module):
        def loss(self, batch, schedule):
            return torch.zeros(()), {}

    class Empty(gm.lm.Model):
        pass

    register = gm.lm.register_model("mine", config=new_config())
    for network in (NotAModel, lambda config: None):
        with pytest.raises(gm.OptionError, match=r"must be a class that inherits from gm.lm.Model"):
            register(network)
    with pytest.raises(gm.OptionError, match="Empty has neither forward nor loss"):
        register(Empty)
    assert "mine" not in registry.MODELS


def test_a_model_of_documents_without_a_loss_would_learn_to_copy_and_is_refused():
    register = gm.lm.register_model("mine", config=new_config(base=gm.lm.DocumentModelConfig))
    with pytest.raises(gm.OptionError, match="the default loss would reward copying"):
        register(Mine)


def test_a_name_is_taken_until_overwritten_but_a_class_may_be_defined_again():
    first = gm.lm.register_model("mine", config=new_config())(Mine)
    again = type("Mine", (Mine,), {"__qualname__": Mine.__qualname__, "__module__": Mine.__module__})
    newer = new_config(width=5)
    assert gm.lm.register_model("mine", config=newer)(again) is again is not first
    assert registry.MODELS["mine"].config is newer and newer(width=6).name == "mine"

    class Other(Mine):
        pass

    with pytest.raises(gm.OptionError, match="another model has this name"):
        gm.lm.register_model("mine", config=new_config())(Other)
    gm.lm.register_model("mine", config=new_config(), overwrite=True)(Other)
    assert registry.MODELS["mine"].network is Other


def test_statistics_have_names_and_averages_that_records_can_hold(trained):
    for statistics, message in (
        ({"lr": "token"}, "the statistic 'lr' of MineConfig has the name of a value that every run records"),
        ({"entropy": "document"}, "is averaged by 'document'. Pass one of 'token', 'sequence'"),
    ):
        config = new_config()
        config.STATISTICS = statistics
        with pytest.raises(gm.OptionError, match=re.escape(message)):
            gm.lm.register_model("mine", config=config)
    recorded = {name for kind in ("train", "val") for name in full_records(trained, kind)[-1]}
    assert recorded <= registry.RECORDED


def full_records(run, kind):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record for record in lines if record["kind"] == kind]


def test_a_config_belongs_to_one_model():
    config = new_config()
    gm.lm.register_model("mine", config=config)(Mine)
    with pytest.raises(gm.OptionError, match=r"MineConfig is already the config of 'mine'. Inherit from it"):
        gm.lm.register_model("yours", config=config)
    with pytest.raises(gm.OptionError, match=r"GPTConfig is already the config of 'gpt'. Inherit from it"):
        gm.lm.register_model("yours", config=gm.lm.GPTConfig)


@dataclass(frozen=True, kw_only=True)
class ScaledConfig(gm.lm.GPTConfig):
    logit_scale: float = 0.5
    """What the logits are multiplied by."""

    PRESETS: ClassVar[dict[str, dict[str, object]]] = {"scaled-tiny": {"logit_scale": 0.25, "batch_size": 2}}


class ScaledGPT(GPT):
    pass


class PlainHeir(gm.lm.GPTConfig):
    """Without options of its own."""


def test_a_config_may_inherit_from_gpts_and_use_its_network(tiny_shards, tmp_path):
    gm.lm.register_model("scaled", config=ScaledConfig)(ScaledGPT)
    options = {**TINY, "max_steps": 4, "model": "scaled"}
    gm.lm.train(tiny_shards, out=tmp_path / "scaled", progress=None, **options)
    gm.lm.train(tiny_shards, out=tmp_path / "gpt", progress=None, **{**options, "model": "gpt"})
    assert json.loads((tmp_path / "scaled/config.json").read_text())["logit_scale"] == 0.5
    one, other = tensors(tmp_path / "scaled", 4), tensors(tmp_path / "gpt", 4)
    assert all(torch.equal(one[name], other[name]) for name in other)
    with pytest.raises(gm.OptionError, match=r"logit_scale=0.7 is an option of model='scaled', but this"):
        TrainConfig.from_options({"logit_scale": 0.7})


def test_inherited_presets_stay_presets_of_the_built_in_model():
    gm.lm.register_model("heir", config=PlainHeir)(ScaledGPT)
    assert TrainConfig.from_options({}, preset="quickstart").model.name == "gpt"
    heir = TrainConfig.from_options({"model": "heir"}, preset="quickstart")
    built_in = TrainConfig.from_options({}, preset="quickstart")
    assert heir.model.name == "heir" and {**heir.to_json(), "model": "gpt"} == built_in.to_json()


def test_a_model_may_have_presets_under_names_of_their_own():
    gm.lm.register_model("scaled", config=ScaledConfig)(ScaledGPT)
    config = TrainConfig.from_options({"num_layers": 1}, preset="scaled-tiny")
    assert (config.model.name, config.model.logit_scale, config.batch_size) == ("scaled", 0.25, 2)
    taken = new_config()
    taken.PRESETS = {"quickstart": {"batch_size": 2}}
    with pytest.raises(gm.OptionError, match="model='gpt' already has a preset 'quickstart'"):
        gm.lm.register_model("mine", config=taken)
    wrong = new_config()
    wrong.PRESETS = {"mine-fast": {"batchsize": 2}}
    gm.lm.register_model("mine", config=wrong)(Mine)
    with pytest.raises(gm.OptionError, match=r"mine-fast of MineConfig sets an unknown option 'batchsize'"):
        TrainConfig.from_options({}, preset="mine-fast")


def test_a_number_that_yaml_takes_for_text_is_a_number_for_an_own_option_too(tmp_path):
    gm.lm.register_model("scaled", config=ScaledConfig)(ScaledGPT)
    (tmp_path / "config.yaml").write_text("model: scaled\nlogit_scale: 1e-3\nlearning_rate: 1e-4\n")
    config = TrainConfig.from_options(read_config(tmp_path / "config.yaml"))
    assert (config.model.logit_scale, config.learning_rate) == (1e-3, 1e-4)


def test_an_unknown_option_suggests_one_of_the_own_model(tiny_shards, tmp_path):
    with pytest.raises((gm.OptionError, TypeError), match=re.escape("hidden_size")):
        train(tiny_shards, tmp_path / "run", hiden_size=3)
