"""Fine-tuning on conversations: a base run, a run that starts from it, and one that is resumed."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

import gristmill as gm
from gristmill import CheckpointError, OptionError
from gristmill.cli import main
from gristmill.lm.data.chat_jinja import CHATML, PLAIN
from gristmill.lm.training.checkpoint import find_checkpoint
from lm.chats import SPECIALS, questions, tokenizer, turns, write_lines
from lm.tiny_runs import TINY, Crash, crash_at, records, texts, train
from shards.builder import build_folder

PROMPT = questions(1)[0]["prompt"]
TUNING = {
    "conversations": True,
    "max_steps": 12,
    "batch_size": 2,
    "learning_rate": 1e-3,
    "checkpoint_interval": 6,
    "val_check_interval": 6,
    "log_interval": 2,
    "val_fraction": 0.2,
    "device": "cpu",
    "progress": None,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    build_folder(folder / "shards", texts(120), shard_tokens=700, tokenizer=tokenizer(), val_texts=texts(20, 1))
    train(folder / "shards", folder / "run", context_length=64, d_model=32, max_steps=10)
    return folder / "run"


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    return write_lines(tmp_path_factory.mktemp("chats") / "chats.jsonl", questions())


def tune(chats, out, base, **options):
    return gm.lm.train(chats, out=out, init_from=None if base is None else str(base), **{**TUNING, **options})


def weights(run):
    return load_file(find_checkpoint(run, "latest") / "model.safetensors")


def test_the_loss_on_responses_falls_and_the_run_holds_its_template(base, chats, tmp_path):
    result = tune(chats, tmp_path / "run", base, max_steps=60, learning_rate=5e-3)
    losses = [record["loss"] for record in records(tmp_path / "run", "train")]
    assert losses[-1] < losses[0] / 3
    assert (tmp_path / "run" / "chat_template.jinja").read_text() == PLAIN
    assert result.num_tokens > 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["context_length"], config["d_model"], config["num_layers"]) == (64, 32, 2)


def test_sizes_of_the_base_run_are_taken_and_a_shorter_context_may_be_asked_for(base, chats, tmp_path):
    tune(chats, tmp_path / "run", base, max_steps=1, context_length=48)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["context_length"], config["d_model"]) == (48, 32)


@pytest.mark.parametrize("options", [{"d_model": 16}, {"num_heads": 1}, {"norm_eps": 1e-3}, {"d_ff": 64}])
def test_a_size_that_contradicts_the_base_run_is_an_error(base, chats, tmp_path, options):
    (name,) = options
    with pytest.raises(OptionError, match=f"{name}={options[name]} does not fit init_from=.*: the model there has"):
        tune(chats, tmp_path / "run", base, max_steps=1, **options)
    assert not (tmp_path / "run").exists()


def test_sizes_that_are_those_of_the_base_run_may_be_passed_and_its_defaults_spelled_out(base, chats, tmp_path):
    saved = json.loads((base / "config.json").read_text())
    assert saved["d_ff"] is saved["num_kv_heads"] is None
    same = {"d_model": 32, "d_ff": 128, "num_kv_heads": saved["num_heads"]}
    assert tune(chats, tmp_path / "run", base, max_steps=1, **same).num_steps == 1


def test_a_size_beside_a_config_object_is_asked_for_also_where_it_is_the_default(base, chats, tmp_path):
    config = gm.lm.TrainConfig(model=gm.lm.GPTConfig(conversations=True), init_from=str(base), max_steps=1)
    with pytest.raises(OptionError, match="num_layers=4 does not fit init_from="):
        gm.lm.train(chats, out=tmp_path / "run", config=config, num_layers=4, progress=None)


def test_the_command_line_refuses_a_size_that_contradicts_the_base_run(base, chats, tmp_path, capsys):
    arguments = ["train-model", str(chats), "-o", str(tmp_path / "run"), "--init-from", str(base), "--conversations"]
    for contradiction in (["--num-layers", "4"], ["--preset", "quickstart"]):
        assert main([*arguments, "--max-steps", "1", *contradiction]) == 2
        assert "does not fit --init-from" in capsys.readouterr().err


def test_a_run_on_shards_takes_the_sizes_of_its_base_too(base, tmp_path):
    options = {name: value for name, value in TINY.items() if name not in ("context_length", "num_layers", "d_model")}
    gm.lm.train(
        base.parent / "shards", out=tmp_path / "run", init_from=str(base), progress=None, **{**options, "max_steps": 1}
    )
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["context_length"], config["d_model"], config["num_layers"]) == (64, 32, 2)


def test_a_config_object_takes_the_sizes_of_its_base_where_it_leaves_them_at_their_defaults(base, chats, tmp_path):
    model = gm.lm.GPTConfig(conversations=True, context_length=48)
    config = gm.lm.TrainConfig(model=model, init_from=str(base), max_steps=1, batch_size=1, device="cpu")
    gm.lm.train(chats, out=tmp_path / "run", config=config, progress=None)
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (saved["context_length"], saved["d_model"], saved["num_layers"]) == (48, 32, 2)


def test_an_interrupted_run_resumes_bit_exactly_without_the_base_run(base, chats, tmp_path):
    tune(chats, tmp_path / "whole", base)
    moved = tmp_path / "moved"
    base.rename(moved)
    try:
        with pytest.raises(Crash):
            tune(chats, tmp_path / "run", moved, progress=crash_at(8))
    finally:
        moved.rename(base)
    gm.lm.train(chats, out=tmp_path / "run", resume=True, progress=None)
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "run")
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_other_conversations_cannot_be_resumed_with(base, chats, tmp_path):
    with pytest.raises(Crash):
        tune(chats, tmp_path / "run", base, progress=crash_at(8))
    other = write_lines(tmp_path / "other.jsonl", questions(11))
    with pytest.raises(CheckpointError, match="the conversations held"):
        gm.lm.train(other, out=tmp_path / "run", resume=True, progress=None)


def test_a_step_in_micro_batches_is_the_step_of_one_batch(base, chats, tmp_path):
    tune(chats, tmp_path / "one", base, batch_size=3, learning_rate=1e-2)
    tune(chats, tmp_path / "three", base, batch_size=1, gradient_accumulation_steps=3, learning_rate=1e-2)
    one, three = weights(tmp_path / "one"), weights(tmp_path / "three")
    for name in one:
        torch.testing.assert_close(one[name], three[name], rtol=1e-4, atol=2e-5)
    losses = [[record["loss"] for record in records(tmp_path / run, "train")] for run in ("one", "three")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_template_is_taken_from_the_base_run(base, chats, tmp_path):
    tune(chats, tmp_path / "first", base, max_steps=1, chat_template="chatml")
    tune(chats, tmp_path / "second", tmp_path / "first", max_steps=1)
    assert (tmp_path / "second" / "chat_template.jinja").read_text() == CHATML


def test_without_a_base_run_the_tokenizer_must_be_given(chats, tmp_path):
    with pytest.raises(OptionError, match="conversations=True needs the tokenizer of the model"):
        tune(chats, tmp_path / "run", None)
    tokenizer().save(tmp_path / "tok.json")
    sizes = {"context_length": 64, "num_layers": 1, "num_heads": 1, "d_model": 8, "max_steps": 1}
    tune(chats, tmp_path / "run", None, tokenizer=str(tmp_path / "tok.json"), **sizes)
    assert set(gm.Tokenizer.load(tmp_path / "run" / "tokenizer.json").special_tokens) == set(SPECIALS)


def test_a_vae_refuses_conversations(chats, tmp_path):
    with pytest.raises(OptionError, match="conversations=True is an option of model='gpt'"):
        gm.lm.train(chats, out=tmp_path / "run", model="vae", conversations=True, progress=None)


def test_a_plan_shows_the_run_and_writes_nothing(base, chats, tmp_path):
    options = {name: value for name, value in TUNING.items() if name != "progress"}
    plan = gm.lm.plan(chats, out=tmp_path / "run", init_from=str(base), **options)
    assert plan.num_steps == 12
    assert any("to train on" in message for message in plan.messages)
    assert not (tmp_path / "run").exists()


def test_a_run_is_evaluated_on_conversations_and_on_shards(base, chats, tmp_path):
    tune(chats, tmp_path / "run", base, max_steps=60, learning_rate=5e-3)
    tuned = gm.lm.evaluate(tmp_path / "run", chats, split="train", which="latest")
    assert tuned.loss < 1.5
    assert gm.lm.evaluate(tmp_path / "run", base.parent / "shards").num_tokens > tuned.num_tokens


def test_a_system_message_and_several_turns_train(base, tmp_path):
    rows = [
        {"messages": turns(f"the {word}?", "it sat.", "and?", "it ran.", system="be old")} for word in ("cat", "dog")
    ]
    path = write_lines(tmp_path / "chats.jsonl", rows)
    assert tune(path, tmp_path / "run", base, max_steps=2, val_fraction=0.0).num_steps == 2


@pytest.fixture
def gristmill(capsys):
    """Run a command in this process, and return what it prints."""

    def run(*arguments):
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def tuned(base, tmp_path_factory):
    """Runs that know three questions by heart, by the name of their template."""
    folder = tmp_path_factory.mktemp("tuned")
    few = write_lines(folder / "chats.jsonl", questions(3))
    for template in ("plain", "chatml"):
        options = {
            "max_steps": 300,
            "learning_rate": 5e-3,
            "val_fraction": 0.0,
            "checkpoint_interval": 300,
            "log_interval": 100,
            "sample_interval": 300,
            "weight_decay": 0.0,
        }
        tune(few, folder / template, base, chat_template=template, sample_prompt=PROMPT, **options)
    return folder


@pytest.mark.parametrize("template", ["plain", "chatml"])
def test_a_tuned_model_answers_a_question_that_it_has_memorized(tuned, template):
    greedy = {"temperature": 0.0, "device": "cpu", "which": "latest"}
    row = questions(1)[0]
    assert gm.lm.generate(tuned / template, row["prompt"], chat=True, **greedy) == row["response"]
    several = questions(3)
    prompts = [row["prompt"] for row in several]
    assert gm.lm.generate(tuned / template, prompts, chat=True, **greedy) == [row["response"] for row in several]


def test_samples_of_a_run_on_conversations_are_responses(tuned):
    (sample,) = records(tuned / "plain", "sample")
    assert sample["prompt"] == PROMPT
    assert sample["text"].startswith("the ")


def test_a_run_without_a_template_cannot_chat(base):
    with pytest.raises(CheckpointError, match="chat=True needs a chat template"):
        gm.lm.generate(base, "the cat?", chat=True, device="cpu")


def test_the_command_line_tunes_and_chats(base, chats, tmp_path, gristmill, tuned):
    sizes = ["--max-steps", 2, "--batch-size", 2, "--device", "cpu", "--progress", "none"]
    gristmill("train-model", chats, "-o", tmp_path / "run", "--init-from", base, "--conversations", *sizes)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["d_model"], config["context_length"]) == (32, 64)
    greedy = ["--temperature", 0, "--device", "cpu", "--checkpoint", "latest"]
    result = gristmill("generate", tuned / "chatml", "--chat", "--prompt", PROMPT, *greedy)
    assert result == f"{questions(1)[0]['response']}\n"


def test_a_dry_run_of_the_command_line_writes_nothing(base, chats, tmp_path, gristmill):
    sizes = ["--max-steps", 2, "--batch-size", 2, "--device", "cpu", "--progress", "none"]
    arguments = ["train-model", chats, "-o", tmp_path / "run", "--init-from", base, "--conversations", *sizes]
    result = gristmill(*arguments, "--dry-run")
    assert "conversations to train on" in result
    assert not (tmp_path / "run").exists()


def test_the_recorded_loss_is_the_mean_over_response_tokens(base, chats, tmp_path):
    options = {"max_steps": 1, "learning_rate": 1e-9, "log_interval": 1, "val_fraction": 0.0}
    config = gm.lm.GPTConfig(
        conversations=True, context_length=64, tokenizer=str(base / "tokenizer.json"), val_fraction=0.0
    )
    rows = config.open_data(chats).open_dataset(
        "train", batch_size=1, seed=0, device=torch.device("cpu"), vocab_size=None
    )
    tune(chats, tmp_path / "run", base, batch_size=1, gradient_accumulation_steps=rows.num_sequences, **options)
    (record,) = records(tmp_path / "run", "train")
    expected = gm.lm.evaluate(tmp_path / "run", chats, split="train", which="latest", precision="32").loss
    assert record["loss"] == pytest.approx(expected, rel=1e-4)
