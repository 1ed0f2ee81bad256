"""gristmill export-model, and train-model --init-from with its output."""

import json

import pytest

import gristmill as package

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from lm.exported_runs import new_tokenizer, write_run
from lm.tiny_runs import build_shards

SHORT = ("--max-steps", 2, "--batch-size", 2, "--device", "cpu", "--limit-val-batches", 1, "--progress", "none")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "run"
    write_run(folder, new_tokenizer(), num_kv_heads=2)
    return folder


@pytest.mark.parametrize(
    ("format", "name", "parts"),
    [
        ("huggingface", "folder", ["LlamaForCausalLM", "model.safetensors", "tokenizer.json", "from_pretrained("]),
        ("gguf", "model.gguf", ["(llama)", "model.gguf", "llama-server -m "]),
    ],
)
def test_what_was_written_is_shown_with_a_line_that_loads_it(gristmill, run, tmp_path, format, name, parts):
    if format == "gguf":
        pytest.importorskip("gguf")
    code, out, err = gristmill("export-model", run, "-f", format, "-o", tmp_path / name, "--dtype", "bf16")
    assert (code, err) == (0, "")
    for part in (*parts, "step-000001", "bfloat16", "290", "kB"):
        assert part in out
    assert (tmp_path / name).exists()


def test_an_export_that_is_there_is_replaced_with_a_flag(gristmill, run, tmp_path):
    arguments = ("export-model", run, "-f", "huggingface", "-o", tmp_path / "folder")
    assert gristmill(*arguments)[0] == 0
    code, out, err = gristmill(*arguments)
    assert (code, out) == (1, "")
    assert (
        err
        == f"gristmill: error: {tmp_path / 'folder'}: already exists. Pass --overwrite to replace it, or another name\n"
    )
    assert gristmill(*arguments, "--overwrite")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", "huggingface", "--dtype", "q8_0"], "--dtype q8_0 needs --format gguf"),
        (["-f", "onnx"], "huggingface"),
        (["-f", "huggingface", "--dtype", "int4"], "q8_0"),
        ([], "--format"),
    ],
)
def test_wrong_usage_is_one_line_in_flags(gristmill, run, tmp_path, arguments, message):
    code, out, err = gristmill("export-model", run, "-o", tmp_path / "out", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_not_a_run_is_reported(gristmill, tmp_path):
    code, _, err = gristmill("export-model", tmp_path / "typo", "-f", "huggingface", "-o", tmp_path / "out")
    assert code == 1
    assert "no such folder. Train a model with `gristmill train-model` first" in err


def test_training_starts_from_an_export_without_its_sizes_on_the_command_line(gristmill, tmp_path):
    shards = build_shards(tmp_path / "shards")
    tokenizer = package.Shards(shards).tokenizer
    write_run(tmp_path / "run", tokenizer, num_kv_heads=2, context_length=32)
    gristmill("export-model", tmp_path / "run", "-f", "huggingface", "-o", tmp_path / "folder", "--dtype", "bf16")
    code, _, err = gristmill("train-model", shards, "-o", tmp_path / "next", "--init-from", tmp_path / "folder", *SHORT)
    assert (code, err) == (0, "")
    config = json.loads((tmp_path / "next" / "config.json").read_text())
    assert [config[name] for name in ("d_model", "num_layers", "num_kv_heads", "context_length")] == [64, 2, 2, 32]
    other = ("train-model", shards, "-o", tmp_path / "other", "--init-from", tmp_path / "folder")
    code, _, err = gristmill(*other, "--num-layers", 3, *SHORT)
    assert code == 2
    assert "--num-layers 3 does not fit --init-from" in err
    assert "the model there has 2" in err


def test_the_preset_of_other_sizes_is_refused_and_help_shows_those_of_the_folder(gristmill, run, tmp_path):
    gristmill("export-model", run, "-f", "huggingface", "-o", tmp_path / "folder")
    arguments = ("train-model", "shards", "-o", tmp_path / "next", "--init-from", tmp_path / "folder")
    _, out, _ = gristmill(*arguments, "--help")
    assert "(default: 64)" in out
    code, _, err = gristmill(*arguments, "--preset", "quickstart")
    assert code == 2
    assert "does not fit --init-from" in err


def test_a_folder_that_cannot_be_trained_on_is_one_line(gristmill, run, tmp_path):
    gristmill("export-model", run, "-f", "huggingface", "-o", tmp_path / "folder")
    path = tmp_path / "folder" / "config.json"
    path.write_text(path.read_text().replace('"silu"', '"gelu"'))
    code, _, err = gristmill("train-model", "shards", "-o", tmp_path / "next", "--init-from", tmp_path / "folder")
    assert code == 2
    assert err == f"gristmill: error: {path}: hidden_act is 'gelu', but a gpt uses 'silu'. Pass a model with 'silu'.\n"
