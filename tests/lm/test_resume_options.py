"""Options of a resumed run: the saved ones, replaced by passed ones that do not change the weights."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import gristmill as gm
from gristmill.lm.training.checkpoint import find_checkpoint, json_checksum, read_state
from gristmill.lm.training.config import TrainConfig, load_config
from lm.tiny_runs import TINY, Crash, assert_same_run, crash_at, records, tensors, texts, tokenizer, train

torch.set_num_threads(1)


def resume(shards, run, **options):
    """Resume with only the passed options."""
    return gm.lm.train(shards, out=run, resume=True, progress=None, **options)


@pytest.fixture(scope="module")
def whole(tiny_shards, tmp_path_factory):
    """A run of 20 steps without interruption."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(tiny_shards, folder)
    return folder


@pytest.fixture(scope="module")
def crashed(tiny_shards, tmp_path_factory):
    """The same run, which crashed after the checkpoint of step 10."""
    folder = tmp_path_factory.mktemp("crashed") / "run"
    with pytest.raises(Crash):
        train(tiny_shards, folder, progress=crash_at(12))
    return folder


@pytest.fixture
def broken(crashed, tmp_path):
    """A copy of the crashed run, to resume."""
    shutil.copytree(crashed, tmp_path / "broken")
    return tmp_path / "broken"


def messages(run):
    return " ".join(record["message"] for record in records(run, "event"))


# No options, or the same options


def test_a_resumed_run_has_the_options_it_was_saved_with(tiny_shards, whole, broken):
    resume(tiny_shards, broken)
    assert_same_run(whole, broken, 20)
    assert load_config(broken) == load_config(whole)


def written(folder, options):
    path = folder / "config.yaml"
    path.write_text("".join(f"{name.replace('_', '-')}: {value}\n" for name, value in options.items()))
    return path


AGAIN = {
    "a YAML file": lambda run, folder: {"config": written(folder, TINY)},
    "config.json of the run": lambda run, folder: {"config": str(run / "config.json")},
    "a TrainConfig": lambda run, folder: {"config": TrainConfig.from_options(TINY)},
    "a config of the model": lambda run, folder: {
        "model": gm.lm.GPTConfig(context_length=16, num_layers=2, num_heads=2, d_model=32)
    },
    "the name of the model": lambda run, folder: {"model": "gpt"},
    "one option": lambda run, folder: {"learning_rate": 3e-3},
    "the length in tokens": lambda run, folder: {"max_tokens": 20 * 4 * 16},
}


@pytest.mark.parametrize("form", AGAIN)
def test_the_same_options_may_be_passed_again_in_any_form(tiny_shards, whole, broken, tmp_path, form):
    resume(tiny_shards, broken, **AGAIN[form](broken, tmp_path))
    assert_same_run(whole, broken, 20)


def test_a_preset_may_be_passed_again(tiny_shards, tmp_path):
    small = {"d_model": 32, "num_heads": 2, "num_layers": 1, "context_length": 16, "batch_size": 4, "device": "cpu"}
    options = {**small, "preset": "quickstart", "max_steps": 8, "checkpoint_interval": 4, "log_interval": 1}
    gm.lm.train(tiny_shards, out=tmp_path / "whole", progress=None, **options)
    with pytest.raises(Crash):
        gm.lm.train(tiny_shards, out=tmp_path / "broken", progress=crash_at(6), **options)
    shutil.copytree(tmp_path / "broken", tmp_path / "alone")
    resume(tiny_shards, tmp_path / "broken", **options)
    resume(tiny_shards, tmp_path / "alone")
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 8)
    assert_same_run(tmp_path / "whole", tmp_path / "alone", 8)


def test_a_vae_on_parquet_resumes_with_its_tokenizer_and_columns(tmp_path):
    rows = [" ".join(text.split()[: 2 + index % 11]) for index, text in enumerate(texts(200))]
    pq.write_table(pa.table({"story": rows, "text": ["x"] * len(rows)}), tmp_path / "stories.parquet")
    tokenizer().save(tmp_path / "tok.json")
    options = {name: value for name, value in TINY.items() if name != "context_length"}
    options |= {"model": "vae", "max_sequence_length": 24, "latent_dim": 4, "max_steps": 8, "checkpoint_interval": 4}
    options |= {"log_interval": 2, "val_check_interval": 4, "num_workers": 0, "plot_frequency": 0, "val_fraction": 0.1}
    options |= {"text_column": "story", "tokenizer": tmp_path / "tok.json", "cache_dir": tmp_path / "cache"}
    data = tmp_path / "stories.parquet"
    gm.lm.train(data, out=tmp_path / "whole", progress=None, **options)
    with pytest.raises(Crash):
        gm.lm.train(data, out=tmp_path / "broken", progress=crash_at(6), **options)
    resume(data, tmp_path / "broken")
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 8)
    assert records(tmp_path / "whole", "posterior") == records(tmp_path / "broken", "posterior")


# A longer run


def test_a_longer_run_keeps_its_steps_and_its_warm_up_and_says_what_the_schedule_does(tiny_shards, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "longer")
    resume(tiny_shards, tmp_path / "longer", max_steps=24, keep=9)
    one, other = tensors(whole, 20), tensors(tmp_path / "longer", 20)
    assert all(torch.equal(one[name], other[name]) for name in one)
    lrs = {record["step"]: record["lr"] for record in records(tmp_path / "longer", "train")}
    before = {record["step"]: record["lr"] for record in records(whole, "train")}
    assert {step: lrs[step] for step in before} == before
    assert lrs[24] == pytest.approx(0.1 * 3e-3, rel=0.05)  # the end of the longer schedule
    assert "the run now has 24 steps instead of 20" in messages(tmp_path / "longer")
    assert "follows the schedule of the longer run" in messages(tmp_path / "longer")


@pytest.mark.parametrize("warmup_steps", [0.5, 6])
def test_with_a_constant_schedule_a_longer_run_is_the_run_that_was_long_from_the_start(
    tiny_shards, tmp_path, warmup_steps
):
    constant = {"schedule": "constant", "checkpoint_interval": 4, "val_check_interval": 4}
    train(tiny_shards, tmp_path / "short", max_steps=12, warmup_steps=warmup_steps, **constant)
    train(tiny_shards, tmp_path / "long", max_steps=20, warmup_steps=6, **constant)
    again = {"warmup_steps": warmup_steps} if isinstance(warmup_steps, float) else {}
    resume(tiny_shards, tmp_path / "short", max_steps=20, **again)
    assert load_config(tmp_path / "short").warmup_steps == 6
    one, other = tensors(tmp_path / "short", 20), tensors(tmp_path / "long", 20)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert records(tmp_path / "short", "train") == records(tmp_path / "long", "train")


def test_a_shorter_run_is_refused(tiny_shards, broken):
    with pytest.raises(gm.CheckpointError, match="max_steps was 20 and is now 15"):
        resume(tiny_shards, broken, max_steps=15)


# Different options


def test_what_the_weights_do_not_depend_on_may_change(tiny_shards, whole, broken):
    other = {"val_check_interval": 3, "checkpoint_interval": 7, "keep": 1, "log_interval": 5, "limit_val_batches": 1}
    resume(tiny_shards, broken, **other, sample_interval=10, sample_tokens=4, sample_prompt="a cat")
    one, two = tensors(whole, 20), tensors(broken, 20)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert [record["prompt"] for record in records(broken, "sample")] == ["a cat"]
    assert {name: load_config(broken).to_json()[name] for name in other} == other


REFUSED = {
    "learning_rate": (0.1, "learning_rate was 0.003 and is now 0.1"),
    "d_model": (64, "d_model was 32 and is now 64"),
    "seed": (5, "seed was 0 and is now 5"),
    "optimizer": ("muon", "optimizer was 'adamw' and is now 'muon'"),
    "schedule": ("wsd", "schedule was 'cosine' and is now 'wsd'"),
    "context_length": (8, "context_length was 16 and is now 8"),
    "gradient_accumulation_steps": (2, "global_batch_size was 4 and is now 8"),
}


@pytest.mark.parametrize("option", REFUSED)
def test_what_the_weights_depend_on_is_refused_with_nothing_but_the_difference(tiny_shards, crashed, option):
    value, difference = REFUSED[option]
    with pytest.raises(gm.CheckpointError) as caught:
        resume(tiny_shards, crashed, **{option: value})
    assert str(caught.value).count(" and is now ") == 1
    assert difference in str(caught.value)
    assert read_state(find_checkpoint(crashed, "latest"))["step"] == 10


def test_another_model_is_refused_without_a_list_of_its_options(tiny_shards, crashed):
    with pytest.raises(gm.CheckpointError, match="model was 'gpt' and is now 'vae'") as caught:
        resume(tiny_shards, crashed, model="vae")
    for option in ("latent_dim", "kl_weight", "max_sequence_length", "context_length"):
        assert option not in str(caught.value)


def test_the_same_batch_in_other_portions_is_equal_to_rounding_and_says_so(tiny_shards, whole, broken):
    resume(tiny_shards, broken, batch_size=2, gradient_accumulation_steps=2)
    assert "equal up to rounding" in messages(broken)
    assert "batch_size was 4 and is now 2" in messages(broken)
    one, other = tensors(whole, 20), tensors(broken, 20)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-3, rtol=1e-2)


def test_half_the_batch_alone_keeps_the_global_batch(tiny_shards, broken):
    resume(tiny_shards, broken, batch_size=2)
    config = load_config(broken)
    assert (config.batch_size, config.gradient_accumulation_steps, config.global_batch_size) == (2, 2, 4)


def test_a_batch_size_that_does_not_divide_the_global_batch_names_what_would(tiny_shards, crashed):
    with pytest.raises(
        gm.OptionError, match=r"global_batch_size=4 is not a multiple of batch_size=8\. Pass a batch_siz"
    ):
        resume(tiny_shards, crashed, batch_size=8)


# Runs of version 0.1, whose options are flat and of both models


OF_THE_OTHER_MODEL = {
    **{"latent_dim": 32, "kl_weight": 1.0, "max_sequence_length": 1000, "word_dropout": 0.0, "num_workers": 8},
    **{"embedding_dim": None, "cache_dir": None, "use_dynamic_padding": False, "free_bits": 0.0},
}


def make_old(run):
    """Rewrite the run as version 0.1 would have saved it."""
    path = run / "config.json"
    path.write_text(json.dumps({**OF_THE_OTHER_MODEL, **json.loads(path.read_text())}))
    for folder in (run / "checkpoints").iterdir():
        state = read_state(folder)
        state["config"] = {**OF_THE_OTHER_MODEL, **state["config"]}
        del state["val_sequences"], state["num_tokens"]
        (folder / "state.json").write_text(json.dumps({**state, "checksum": json_checksum(state)}))


def test_a_run_of_version_0_1_resumes_bit_exactly(tiny_shards, whole, broken):
    make_old(broken)
    resume(tiny_shards, broken)
    assert_same_run(whole, broken, 20)
    assert not json.loads((broken / "config.json").read_text()).keys() & OF_THE_OTHER_MODEL.keys()


def test_a_run_of_version_0_1_is_evaluated_and_writes(tiny_shards, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "old")
    make_old(tmp_path / "old")
    assert gm.lm.evaluate(tmp_path / "old", tiny_shards).loss == gm.lm.evaluate(whole, tiny_shards).loss
    texts = [gm.lm.generate(run, "the cat", max_tokens=9, seed=0) for run in (whole, tmp_path / "old")]
    assert texts[0] == texts[1]
