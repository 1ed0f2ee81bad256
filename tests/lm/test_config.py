"""TrainConfig: presets, YAML, checks, and resolved values."""

import json

import pytest

from gristmill import CheckpointError, OptionError, Shards, VocabSizeError
from gristmill.lm.data.window_data import WindowData
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.training.config import TrainConfig, differences, load_config, read_config, resolved
from gristmill.lm.training.presets import all_presets


def settle(shards, *, batch_size=4, world_size=1, **options):
    config = TrainConfig.from_options({"batch_size": batch_size, **options})
    return resolved(config, WindowData(Shards(shards), config.model), batch_size=batch_size, world_size=world_size)


def test_every_preset_is_sound():
    for name in all_presets():
        assert TrainConfig.from_options({}, preset=name).model.name == ("vae" if name.startswith("vae-") else "gpt")


def test_an_option_overrides_the_preset():
    config = TrainConfig.from_options({"num-layers": 2}, preset="quickstart")
    assert (config.model.num_layers, config.model.d_model) == (2, all_presets()["quickstart"]["d_model"])


def test_a_length_replaces_the_length_of_the_preset_and_does_not_contradict_it():
    config = TrainConfig.from_options({"epochs": 2.0}, preset="quickstart")
    assert (config.max_steps, config.epochs) == (None, 2.0)


def test_accumulation_replaces_the_global_batch_of_the_preset():
    assert TrainConfig.from_options({"gradient_accumulation_steps": 4}, preset="gpt2-124m").global_batch_size is None


def test_an_unknown_preset_names_those_there_are():
    with pytest.raises(OptionError, match=r"preset='huge' is not valid. Pass one of 'quickstart'"):
        TrainConfig.from_options({}, preset="huge")


def test_an_unknown_option_names_the_one_that_is_meant():
    with pytest.raises(OptionError, match=r"unknown option 'learning_rat'. Did you mean 'learning_rate'\?"):
        TrainConfig.from_options({"learning_rat": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 0}, "num_layers must be >= 1, got 0"),
        ({"num_layers": 1.5}, "num_layers=1.5 is of type float"),
        ({"batch_size": 0}, "batch_size must be >= 1, or 'auto', got 0"),
        ({"batch_size": "many"}, "batch_size='many' is of type str"),
        ({"learning_rate": -1.0}, "learning_rate must be > 0, got -1.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be > 0, got nan"),
        ({"learning_rate": "fast"}, "learning_rate='fast' is of type str. Pass a number"),
        ({"dropout": 1.0}, "dropout must be >= 0 and < 1, got 1.0"),
        ({"precision": "8"}, "precision='8' is not valid. Pass one of 'auto', 'bf16-mixed'"),
        ({"val_check_interval": 1.5}, "a whole number >= 0, or a fraction"),
        ({"max_steps": 5, "epochs": 1.0}, "max_steps and epochs are both given"),
        ({"epochs": 0.0}, "epochs must be > 0, got 0.0"),
        ({"d_model": 30, "num_heads": 4}, "is not a multiple of num_heads=4"),
        ({"d_model": 12, "num_heads": 4}, "rotary positions need an even size"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_allowed(options, message):
    with pytest.raises(OptionError, match=message):
        TrainConfig.from_options(options)


def test_yaml_with_dashes_and_exponents(tmp_path):
    (tmp_path / "c.yaml").write_text("max-steps: 7\nlearning_rate: 1e-3\nprecision: 32\n")
    with pytest.raises(OptionError, match="precision=32 is not valid"):
        TrainConfig.from_options(read_config(tmp_path / "c.yaml"))
    (tmp_path / "c.yaml").write_text("max-steps: 7\nlearning_rate: 1e-3\nprecision: '32'\n")
    config = TrainConfig.from_options(read_config(tmp_path / "c.yaml"))
    assert (config.max_steps, config.learning_rate) == (7, 1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_stops: 7", r"c.yaml: unknown option 'max_stops'. Did you mean 'max_steps'\?"),
        ("- a\n- b", "contains a list. Write one option per line"),
        ("a: [", "not valid YAML"),
        ("x: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("model: [gpt]", r"model=\['gpt'\] is not valid"),
        ("model: {a: 1}", r"model={'a': 1} is not valid"),
        ("num_layers: 0x" + 5000 * "f", "a number has 5,002 digits; at most 300 are allowed"),
        ("num_layers: 1" + 400_000 * ":1", "a number has 800,001 digits"),
        ("num_layers: &a [*a]", "not valid YAML: .*Write them without aliases"),
        ("? &a [*a]\n: 1", "not valid YAML"),
        (99_000 * "[", "not valid YAML"),
    ],
    ids=range(11),
)
def test_a_wrong_yaml_file_says_what_is_wrong(tmp_path, text, message):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(OptionError, match=message):
        read_config(tmp_path / "c.yaml")


@pytest.mark.parametrize("key", ["num_layers", "sample_prompt", "model", "unknown", "embedding_columns", "<<"])
def test_aliases_of_aliases_in_yaml_are_an_error_before_they_are_a_billion_values(tmp_path, key):
    items = ["&a0 {x: y}" if key == "<<" else "&a0 [x, x]"]
    items += [
        f"&a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" if key == "<<" else f"&a{i} [{8 * f'*a{i - 1},'}]" for i in range(1, 30)
    ]
    (tmp_path / "c.yaml").write_text(f"{key}: [{', '.join(items)}]\n")
    with pytest.raises(OptionError, match="not valid YAML: it has more than 100,000 values"):
        read_config(tmp_path / "c.yaml")


def test_aliases_of_a_config_are_read(tmp_path):
    (tmp_path / "c.yaml").write_text("max_steps: &n 7\nkeep: *n\n")
    assert read_config(tmp_path / "c.yaml") == {"max_steps": 7, "keep": 7}


def test_a_long_value_does_not_make_a_long_message(tmp_path):
    (tmp_path / "c.yaml").write_text("num_layers: '" + 100_000 * "x" + "'")
    with pytest.raises(OptionError, match=r"^num_layers=") as caught:
        TrainConfig.from_options(read_config(tmp_path / "c.yaml"))
    assert len(str(caught.value)) < 2_100


def test_a_long_name_of_an_option_does_not_make_a_long_message(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({100_000 * "x": 1}))
    with pytest.raises(CheckpointError, match=r"config\.json: damaged: .*unknown option 'xxx") as caught:
        load_config(tmp_path)
    assert len(str(caught.value)) < 3_000


def test_text_that_looks_like_a_number_in_yaml_is_still_text(tmp_path):
    (tmp_path / "c.yaml").write_text("model: vae\ntext_column: 2020\nlearning_rate: 1e-3\n")
    config = TrainConfig.from_options(read_config(tmp_path / "c.yaml"))
    assert (config.model.text_column, config.learning_rate) == ("2020", 1e-3)


@pytest.mark.parametrize("value", ["no", "false", 0, None])
def test_a_switch_is_true_or_false_and_no_text_that_counts_as_true(value):
    with pytest.raises(OptionError, match=r"compile_model=.* Pass true or false"):
        TrainConfig.from_options({"compile_model": value})


def test_an_empty_yaml_file_sets_nothing(tmp_path):
    (tmp_path / "c.yaml").write_text("")
    assert read_config(tmp_path / "c.yaml") == {}


def test_the_length_of_a_run_in_tokens_and_epochs(tiny_shards):
    num_tokens = Shards(tiny_shards).num_tokens
    assert settle(tiny_shards, context_length=16, max_tokens=6400).max_steps == 100
    assert settle(tiny_shards, context_length=16, epochs=2.0).max_steps == 2 * num_tokens // 64
    assert settle(tiny_shards, context_length=16).max_steps == num_tokens // 64
    assert settle(tiny_shards, context_length=16, max_tokens=1).max_steps == 1


def test_a_fraction_is_a_share_of_the_run_and_a_whole_number_is_steps(tiny_shards):
    config = settle(tiny_shards, max_steps=200, val_check_interval=0.25, checkpoint_interval=7, warmup_steps=0.1)
    assert (config.val_check_interval, config.checkpoint_interval, config.warmup_steps) == (50, 7, 20)
    assert (config.sample_interval, config.model.vocab_size) == (0, 300)


def test_the_global_batch_is_kept_by_accumulation(tiny_shards):
    config = settle(tiny_shards, batch_size=4, world_size=2, global_batch_size=32)
    assert (config.gradient_accumulation_steps, config.global_batch_size) == (4, 32)
    with pytest.raises(OptionError, match="global_batch_size=30 is not a multiple of batch_size=4 on 2 devices"):
        settle(tiny_shards, batch_size=4, world_size=2, global_batch_size=30)
    # No batch_size would work, so the message must not suggest one.
    with pytest.raises(
        OptionError, match=r"global_batch_size=7 cannot be divided evenly among 2 devices\. .* multiple of 2"
    ):
        settle(tiny_shards, batch_size=1, world_size=2, global_batch_size=7)


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused(tiny_shards):
    with pytest.raises(VocabSizeError, match="vocab_size=299 is too small: the tokenizer of the shards has 300 tokens"):
        settle(tiny_shards, vocab_size=299)
    assert settle(tiny_shards, vocab_size=512).model.vocab_size == 512


def test_a_resolved_config_survives_json(tiny_shards):
    config = settle(tiny_shards, max_steps=10)
    assert TrainConfig.from_options(config.to_json()) == config


def test_differences_name_what_decides_the_weights_only(tiny_shards):
    one = settle(tiny_shards, max_steps=10).to_json()
    other = settle(tiny_shards, max_steps=9, keep=9, log_interval=3, sample_prompt="A")
    assert differences(one, other) == ["max_steps was 10 and is now 9"]


def test_a_longer_run_is_no_difference(tiny_shards):
    one = settle(tiny_shards, max_steps=10).to_json()
    assert differences(one, settle(tiny_shards, max_steps=11)) == []


def test_an_option_that_a_saved_run_did_not_have_yet_counts_as_its_default(tiny_shards):
    now = settle(tiny_shards, max_steps=10)
    saved = {name: value for name, value in now.to_json().items() if name != "norm_eps"}
    assert differences(saved, now) == []
    assert differences(saved | {"norm_eps": 1e-6}, now) == ["norm_eps was 1e-06 and is now 1e-05"]


def test_the_config_of_a_run_of_version_0_1_has_the_options_of_every_model(tmp_path):
    old = {"model": "gpt", "d_model": 64, "latent_dim": 32, "kl_warmup_steps": 3, "max_sequence_length": 1000}
    (tmp_path / "config.json").write_text(json.dumps(old | {"max_steps": 7}))
    config = load_config(tmp_path)
    assert (config.model.d_model, config.max_steps) == (64, 7)
    assert "latent_dim" not in config.to_json()


def test_a_warm_up_longer_than_the_run_is_refused_and_a_share_never_is():
    with pytest.raises(OptionError, match=r"warmup_steps=700 is longer than the run of 500 steps.*warmup_steps=0.02"):
        TrainConfig.from_options({"warmup_steps": 700, "max_steps": 500})
    for name in all_presets():
        assert TrainConfig.from_options({"max_steps": 1}, preset=name).max_steps == 1


def test_a_preset_of_another_model_is_refused():
    with pytest.raises(OptionError, match="preset='vae-fast' is for model='vae', but model='gpt' is given"):
        TrainConfig.from_options({"model": "gpt"}, preset="vae-fast")


def test_the_options_of_a_model_may_be_given_as_its_config():
    config = TrainConfig.from_options({"model": GPTConfig(d_model=64), "num_layers": 3})
    assert (config.model.d_model, config.model.num_layers) == (64, 3)
    assert TrainConfig(model=GPTConfig(d_model=64, num_layers=3)) == config
    with pytest.raises(OptionError, match="model='gpt' is not a model config"):
        TrainConfig(model="gpt")


def test_a_folder_that_is_no_run_is_named(tmp_path):
    from gristmill import CheckpointError

    with pytest.raises(CheckpointError, match=r"it has no config.json"):
        load_config(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(CheckpointError, match=r"config.json: damaged"):
        load_config(tmp_path)


def test_a_vae_has_defaults_of_its_own_beneath_presets_and_options():
    assert TrainConfig.from_options({}).batch_size == 32
    plain = TrainConfig.from_options({"model": "vae"})
    assert (plain.batch_size, plain.gradient_accumulation_steps, plain.limit_val_batches) == (4, 2, 0.1)
    assert (plain.model.num_workers, plain.model.max_sequence_length, plain.val_check_interval, plain.keep) == (
        8,
        1000,
        0.1,
        2,
    )
    assert TrainConfig.from_options({}, preset="vae-debug").batch_size == 1
    assert TrainConfig.from_options({"batch_size": 7}, preset="vae-debug").batch_size == 7


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("vae-fast", (4, 8, 2, 1000, "16-mixed", True, False, False)),
        ("vae-max-performance", (4, 8, 2, 1000, "16-mixed", False, True, True)),
        ("vae-low-memory", (2, 4, 2, 500, "16-mixed", True, False, False)),
        ("vae-debug", (1, 2, 2, 100, "32", True, False, False)),
    ],
)
def test_the_presets_of_the_vae_are_what_their_names_promise(preset, expected):
    c = TrainConfig.from_options({}, preset=preset)
    assert c.model.pin_memory
    monitoring = (c.model.fast_detection, c.model.disable_metrics_monitoring, c.compile_model)
    sizes = (c.batch_size, c.model.num_workers, c.gradient_accumulation_steps, c.model.max_sequence_length)
    assert (*sizes, c.precision, *monitoring) == expected


def test_an_option_of_the_other_model_is_an_error_and_not_ignored():
    with pytest.raises(OptionError, match="latent_dim=8 is an option of model='vae'"):
        TrainConfig.from_options({"latent_dim": 8})
    with pytest.raises(OptionError, match=r"context_length=512 is an option of model='gpt'.*max_sequence_length"):
        TrainConfig.from_options({"model": "vae", "context_length": 512})


def test_columns_may_be_a_list_in_a_file_and_in_python(tmp_path):
    (tmp_path / "c.yaml").write_text("model: vae\nembedding_columns: [a, b]\n")
    assert read_config(tmp_path / "c.yaml")["embedding_columns"] == "a,b"
    assert TrainConfig.from_options({"model": "vae", "embedding_columns": ["a", "b"]}).model.embedding_columns == "a,b"


def test_an_option_that_came_later_is_off_in_the_run_of_a_vae_that_was_trained_without_it(tmp_path):
    saved = TrainConfig.from_options({"model": "vae"}).to_json()
    assert saved.pop("encoder_shortcut") is True
    (tmp_path / "config.json").write_text(json.dumps(saved))
    config = load_config(tmp_path)
    assert config.model.encoder_shortcut is False
    assert differences(saved, config) == []
