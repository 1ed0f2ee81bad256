"""Runs that start from a Hugging Face folder: the same model as in transformers, and rejected folders."""

import json
import shutil

import pytest

import gristmill as gm

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")

from gristmill.lm.models.registry import build_model  # noqa: E402
from gristmill.lm.training import pretrained  # noqa: E402
from gristmill.lm.training.config import TrainConfig  # noqa: E402
from gristmill.lm.training.restoring import take_weights  # noqa: E402
from gristmill.lm.training.trainer import requested_config  # noqa: E402
from lm.exported_runs import SHAPES, new_tokenizer, write_run  # noqa: E402
from lm.tiny_runs import TINY, build_shards, records, tensors, train  # noqa: E402

SIZES = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
}
# Run options that do not affect the model.
SHORT = {name: TINY[name] for name in ("batch_size", "device", "limit_val_batches", "checkpoint_interval")}
SHORT |= {"max_steps": 2, "progress": None, "learning_rate": 1e-5}


def make_theirs(folder, kind="Llama", dtype=torch.float32, **changes):
    """A transformers model with random weights, including norms, and its folder."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **changes})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(1 + 0.3 * torch.randn_like(parameter) if parameter.dim() < 2 else 5 * parameter)
    model = model.to(dtype)
    model.save_pretrained(folder)
    return model


def started(folder, **options):
    """Return the model of a run that starts from the folder, before its first step."""
    config, _ = requested_config(folder, None, None, {"init_from": str(folder), **options}, "never")
    model = build_model(config.model)
    take_weights(model, folder, lambda message: None)
    return model.eval()


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def folder(tmp_path):
    make_theirs(tmp_path / "folder")
    return tmp_path / "folder"


QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 0}
KINDS = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-every-head": ("Llama", {"num_key_value_heads": 4, "rms_norm_eps": 1e-3}),
    "llama-theta": ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}),
    "mistral": ("Mistral", {"sliding_window": 9}),
    "mistral-without-window": ("Mistral", {"sliding_window": None}),
    "qwen3": ("Qwen3", {}),
    "qwen3-window": ("Qwen3", QWEN_WINDOW),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_are_those_of_transformers(tmp_path, kind):
    name, changes = KINDS[kind]
    theirs = make_theirs(tmp_path / "folder", name, **changes)
    ours = started(tmp_path / "folder")
    ids_BT = torch.randint(300, (3, 128), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(ids_BT).logits
        torch.testing.assert_close(ours(ids_BT), expected, rtol=0, atol=1e-4)
    assert expected.std() > 0.01
    assert not ours.embedding.weight[300:].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_other_types_become_float32_without_loss(tmp_path, dtype):
    theirs = make_theirs(tmp_path / "folder", dtype=dtype)
    ours = started(tmp_path / "folder")
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    assert torch.equal(ours.final_norm.weight, theirs.model.norm.weight.float())


def test_a_folder_of_several_files_is_read(tmp_path):
    theirs = make_theirs(tmp_path / "whole")
    theirs.save_pretrained(tmp_path / "parts", max_shard_size="40KB")
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 2
    whole, parts = started(tmp_path / "whole").state_dict(), started(tmp_path / "parts").state_dict()
    assert [name for name in whole if not torch.equal(whole[name], parts[name])] == []


@pytest.mark.parametrize("shape", SHAPES)
def test_an_exported_run_comes_back_bit_for_bit(tmp_path, shape):
    tokenizer = new_tokenizer()
    model = write_run(tmp_path / "run", tokenizer, tie_embeddings=shape == "gqa", **SHAPES[shape])
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    back = started(tmp_path / "folder").state_dict()
    assert [name for name, tensor in model.state_dict().items() if not torch.equal(tensor, back[name])] == []


def test_a_run_from_an_export_has_the_loss_of_the_run_that_was_exported(tmp_path, tiny_shards):
    train(tiny_shards, tmp_path / "run", num_kv_heads=1)
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    before = gm.lm.evaluate(tmp_path / "run", tiny_shards, device="cpu").loss
    gm.lm.train(tiny_shards, out=tmp_path / "next", init_from=tmp_path / "folder", **{**SHORT, "learning_rate": 1e-12})
    after = gm.lm.evaluate(tmp_path / "next", tiny_shards, device="cpu").loss
    assert after == pytest.approx(before, abs=1e-6)
    assert json.loads((tmp_path / "next" / "config.json").read_text())["num_kv_heads"] == 1
    messages = [record["message"] for record in records(tmp_path / "next", "event")]
    assert any(f"starting with the weights of {tmp_path / 'folder'}" in message for message in messages)
    assert not any("tokenizer" in message for message in messages)  # it is the same


def test_the_run_can_be_resumed_when_the_folder_is_gone(tmp_path, tiny_shards):
    train(tiny_shards, tmp_path / "run")
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    gm.lm.train(tiny_shards, out=tmp_path / "next", init_from=str(tmp_path / "folder"), **SHORT)
    shutil.rmtree(tmp_path / "folder")
    result = gm.lm.train(tiny_shards, out=tmp_path / "next", resume=True, **{**SHORT, "max_steps": 3})
    assert result.num_steps == 3


def test_sizes_come_from_the_folder_and_a_shorter_context_may_be_asked_for(folder):
    config, _ = requested_config(
        folder, None, None, {"init_from": str(folder), "context_length": 32, "dropout": 0.1}, "never"
    )
    model = config.model
    assert (model.context_length, model.num_layers, model.num_heads, model.num_kv_heads) == (32, 2, 4, 2)
    assert (model.d_model, model.d_ff, model.vocab_size, model.dropout) == (64, 96, 300, 0.1)


def test_a_config_object_takes_the_sizes_of_the_folder_too(folder):
    config, _ = requested_config(folder, TrainConfig(init_from=str(folder), max_steps=3), None, {}, "never")
    assert (config.model.num_layers, config.model.d_model, config.max_steps) == (2, 64, 3)


@pytest.mark.parametrize("options", [{"num_layers": 3}, {"tie_embeddings": True}, {"qk_norm": True}, {"d_model": 128}])
def test_a_size_that_contradicts_the_folder_is_an_error(tmp_path, tiny_shards, folder, options):
    name, value = next(iter(options.items()))
    with pytest.raises(gm.OptionError, match=f"{name}={value} does not fit init_from=.*: the model there has"):
        gm.lm.train(tiny_shards, out=tmp_path / "run", init_from=str(folder), **SHORT, **options)
    assert not (tmp_path / "run").exists()


def test_a_vae_cannot_start_from_a_language_model(tmp_path, tiny_shards, folder):
    with pytest.raises(gm.OptionError, match="model='vae' cannot start from a transformers model"):
        gm.lm.train(tiny_shards, out=tmp_path / "run", model="vae", init_from=str(folder), max_steps=1, device="cpu")


def test_a_vocabulary_that_is_too_small_for_the_shards_is_an_error(tmp_path, tiny_shards):
    make_theirs(tmp_path / "folder", vocab_size=200)
    with pytest.raises(gm.OptionError, match=r"has 200 tokens, but the shards need 300. Encode the text with the tok"):
        gm.lm.train(tiny_shards, out=tmp_path / "run", init_from=str(tmp_path / "folder"), **SHORT)


def test_another_tokenizer_than_that_of_the_folder_is_reported(tmp_path, tiny_shards):
    tokenizer = new_tokenizer()
    write_run(tmp_path / "run", tokenizer, vocab_size=300)
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    assert pretrained.tokenizer_difference(tmp_path / "folder", tokenizer) is None
    theirs = gm.Shards(tiny_shards).tokenizer
    message = pretrained.tokenizer_difference(tmp_path / "folder", theirs)
    assert "was not encoded with the tokenizer of" in message
    (tmp_path / "folder" / "tokenizer.json").unlink()
    (tmp_path / "folder" / "tokenizer_config.json").unlink()
    assert "could not be compared" in pretrained.tokenizer_difference(tmp_path / "folder", tokenizer)
    assert "is unknown" in pretrained.tokenizer_difference(tmp_path / "folder", None)


def test_a_dry_run_starts_from_the_folder_too(tmp_path, tiny_shards, folder):
    planned = gm.lm.plan(tiny_shards, init_from=str(folder), **{k: v for k, v in SHORT.items() if k != "progress"})
    assert planned.config.model.d_model == 64
    assert any("starting with the weights of" in message for message in planned.messages)


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
def test_a_run_does_not_write_over_the_folder_of_a_model(tiny_shards, folder, options):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match="Contains a Hugging Face model"):
        gm.lm.train(tiny_shards, out=folder, **SHORT, **options)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name in before} == before


def test_the_folder_of_a_model_in_the_place_of_a_run_is_named_as_what_it_is(tmp_path, folder):
    for use in (lambda: gm.lm.generate(folder, "the cat"), lambda: gm.lm.export(folder, tmp_path / "exported")):
        with pytest.raises(gm.CheckpointError, match=r"a Hugging Face folder, not a run.*init_from"):
            use()


# Unsupported models


REFUSED = {
    "biases": ({"attention_bias": True}, "attention_bias is on, but a gpt has no biases"),
    "feed-forward biases": ({"mlp_bias": True}, "mlp_bias is on"),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    "scaled positions": ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "scaled .rope_type 'llama3'"),
    "old scaling": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "scaled .rope_type 'linear'"),
    "new scaling": ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "scaled .rope_type 'yarn'"),
    "other heads": ({"head_dim": 32}, "head_dim is 32, but a gpt needs .* = 16"),
    "another family": ({"model_type": "gpt2"}, "model_type='gpt2' is not supported"),
    "a family that is no text": ({"model_type": ["llama"]}, "model_type=.'llama'. is not supported"),
    "a number too large for a float": ({"rms_norm_eps": 10**400}, "rms_norm_eps must be a number > 0"),
    "quantized": ({"quantization_config": {"bits": 4}}, "the weights are quantized"),
    "part of the head": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_models_are_refused_with_the_reason(folder, what):
    changes, message = REFUSED[what]
    edit_config(folder, **changes)
    with pytest.raises(gm.CheckpointError, match=message):
        started(folder)


def test_layers_with_and_without_a_window_are_refused(tmp_path):
    make_theirs(tmp_path / "folder", "Qwen3", **QWEN_WINDOW)
    edit_config(tmp_path / "folder", layer_types=["full_attention", "sliding_attention"])
    with pytest.raises(gm.CheckpointError, match=r"layer_types is .*the same attention in every layer"):
        started(tmp_path / "folder")


@pytest.mark.parametrize(
    "changes",
    [{"max_window_layers": 0}, {"max_window_layers": 2}, {"max_window_layers": -1}, {}, {"sliding_window": None}],
    ids=str,
)
def test_a_qwen3_of_transformers_4_without_layer_types_has_the_windows_that_transformers_derives(tmp_path, changes):
    make_theirs(tmp_path / "folder", "Qwen3", **QWEN_WINDOW)
    path = tmp_path / "folder" / "config.json"
    content = {name: value for name, value in json.loads(path.read_text()).items() if name != "layer_types"}
    del content["max_window_layers"]
    path.write_text(json.dumps({**content, **changes}))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path / "folder")
    expected = theirs.sliding_window if set(theirs.layer_types) == {"sliding_attention"} else None
    assert started(tmp_path / "folder").config.sliding_window == expected


def test_a_qwen3_whose_derived_layers_differ_is_refused_with_the_reason(tmp_path):
    make_theirs(tmp_path / "folder", "Qwen3", **QWEN_WINDOW)
    edit_config(tmp_path / "folder", layer_types=None, max_window_layers=1)
    with pytest.raises(gm.CheckpointError, match=r"layer_types is \['full_attention', 'sliding_attention'\]") as caught:
        started(tmp_path / "folder")
    assert "damaged" not in str(caught.value)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_a_pickle_is_never_loaded(folder, name):
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(gm.CheckpointError, match=rf"its weights are in {name}, a pickle, which can run arbitrary code"):
        started(folder)


def test_a_folder_without_weights_reports_what_is_missing(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(gm.CheckpointError, match=r"has neither model.safetensors"):
        started(folder)


def change_tensors(folder, change):
    tensors = safetensors_torch.load_file(folder / "model.safetensors")
    safetensors_torch.save_file(change(tensors), folder / "model.safetensors")


def test_a_bias_among_the_weights_is_not_left_out_in_silence(folder):
    name = "model.layers.0.self_attn.q_proj.bias"
    change_tensors(folder, lambda tensors: {**tensors, name: torch.zeros(64)})
    with pytest.raises(gm.CheckpointError, match=f"the tensor '{name}' has no counterpart in a gpt"):
        started(folder)


def test_a_missing_tensor_and_one_of_another_shape_are_named(folder):
    name = "model.layers.1.mlp.up_proj.weight"
    change_tensors(folder, lambda tensors: {**tensors, name: torch.zeros(90, 64)})
    with pytest.raises(
        gm.CheckpointError, match=rf"'{name}' has shape \[90, 64\], but its config.json implies \[96, 64"
    ):
        started(folder)
    change_tensors(folder, lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name})
    with pytest.raises(gm.CheckpointError, match=f"the tensor '{name}' is missing"):
        started(folder)


def test_weights_of_integers_are_refused(folder):
    name = "model.norm.weight"
    change_tensors(folder, lambda tensors: {**tensors, name: torch.zeros(64, dtype=torch.int8)})
    with pytest.raises(gm.CheckpointError, match="has the type I8"):
        started(folder)


def test_weights_that_are_not_finite_are_refused(folder):
    change_tensors(folder, lambda tensors: {**tensors, "model.norm.weight": torch.full((64,), torch.nan)})
    with pytest.raises(gm.CheckpointError, match="not finite"):
        started(folder)


# Malicious or damaged folders


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10**8},
        {"hidden_size": 2**30, "head_dim": 2**28},
        {"vocab_size": 2**30},
        {"intermediate_size": 2**30},
        {"max_position_embeddings": 2**30},
    ],
    ids=str,
)
def test_huge_sizes_in_the_config_are_an_error_before_memory_is_used(folder, changes):
    edit_config(folder, **changes)
    with pytest.raises(gm.CheckpointError):
        started(folder)


@pytest.mark.parametrize("value", [0, -1, 2.5, "64", None, True, [64], 10**30])
def test_a_size_that_is_no_count_is_an_error(folder, value):
    edit_config(folder, hidden_size=value)
    with pytest.raises(gm.CheckpointError, match=r"hidden_size must be a whole number >= 1, got"):
        started(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"model_type": "llama"}', b"\xff" * 10], ids=repr)
def test_a_damaged_config_is_an_error(folder, content):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(gm.CheckpointError):
        started(folder)


@pytest.mark.parametrize("damage", ["truncated", "header", "empty"])
def test_damaged_weights_are_an_error(folder, damage):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes({"truncated": data[:-1000], "header": b"\xff" * 8 + data[8:], "empty": b""}[damage])
    with pytest.raises(gm.CheckpointError, match="damaged, or not a safetensors file"):
        started(folder)


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/../b.safetensors", "x.bin", "..", "a\\b.safetensors"]
)
def test_an_index_cannot_name_files_outside_of_the_folder(folder, name):
    index = {"metadata": {}, "weight_map": {"lm_head.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(gm.CheckpointError, match="which is not a safetensors file in this folder"):
        started(folder)


def test_an_index_of_missing_files_is_an_error(folder):
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(gm.CheckpointError, match="The folder is incomplete"):
        started(folder)


def test_the_folder_of_a_run_still_means_its_best_checkpoint(tmp_path):
    shards = build_shards(tmp_path / "shards")
    train(shards, tmp_path / "run")
    train(shards, tmp_path / "next", init_from=str(tmp_path / "run"), learning_rate=1e-12, max_steps=1)
    before, after = tensors(tmp_path / "run", 20), tensors(tmp_path / "next", 1)
    torch.testing.assert_close(after["head.weight"], before["head.weight"], atol=1e-4, rtol=0)
