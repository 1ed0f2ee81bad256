"""gristmill train-model and gristmill evaluate."""

import json
import shutil
import signal
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.cli.train_model import parse
from gristmill.cli.values import registry
from lm.tiny_runs import build_shards, texts, tokenizer

TINY = (
    *("--context-length=16", "--num-layers=2", "--num-heads=2", "--d-model=32", "--batch-size=4"),
    *("--device=cpu", "--progress=none"),
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return build_shards(tmp_path_factory.mktemp("cli") / "shards")


def config_of(run):
    return json.loads((run / "config.json").read_bytes())


def test_a_run_prints_its_summary_and_can_be_evaluated(gristmill, shards, tmp_path):
    code, out, err = gristmill("train-model", shards, "-o", tmp_path / "run", *TINY, "--max-steps", 6)
    assert (code, err) == (0, "")
    rows = dict(line.strip().split("  ", 1) for line in out.splitlines())
    assert list(rows) == [
        *("steps", "tokens", "parameters", "training loss", "validation loss", "perplexity", "bits per byte"),
        *("tokens/s", "waiting for data", "memory", "time", "saved to"),
    ]
    assert rows["tokens"].strip() == "384"
    assert rows["saved to"].strip().endswith("run/checkpoints/step-000006")

    code, out, err = gristmill("evaluate", tmp_path / "run", shards, "--checkpoint", "latest", "--device", "cpu")
    assert (code, err) == (0, "")
    assert rows["validation loss"].strip() in out
    assert rows["bits per byte"].strip() in out


def test_underscores_and_dashes_are_the_same(gristmill, shards, tmp_path):
    code, *_ = gristmill(
        "train-model",
        shards,
        "-o",
        tmp_path / "run",
        *TINY,
        "--max_steps",
        3,
        "--gradient_accumulation_steps=2",
    )
    assert code == 0
    assert config_of(tmp_path / "run")["gradient_accumulation_steps"] == 2


def test_options_go_over_the_file_and_the_file_over_the_preset(gristmill, shards, tmp_path):
    (tmp_path / "c.yaml").write_text("num-layers: 1\nlearning_rate: 5e-4\nmax_tokens: 640\nsample_interval: 0\n")
    code, _, err = gristmill(
        "train-model",
        shards,
        "-o",
        tmp_path / "run",
        *TINY,
        "--preset",
        "quickstart",
        "--config",
        tmp_path / "c.yaml",
    )
    assert (code, err) == (0, "")
    config = config_of(tmp_path / "run")
    assert (config["num_layers"], config["learning_rate"], config["max_steps"]) == (2, 5e-4, 10)
    assert config["tie_embeddings"] is True


def test_the_config_of_a_run_makes_the_same_run(gristmill, shards, tmp_path):
    gristmill("train-model", shards, "-o", tmp_path / "one", *TINY, "--max-steps", 2, "--compile_mode", "default")
    code, _, err = gristmill(
        "train-model", shards, "-o", tmp_path / "two", "--config", tmp_path / "one/config.json", "--progress", "none"
    )
    assert (code, err) == (0, "")
    assert config_of(tmp_path / "one") == config_of(tmp_path / "two")


def test_resume_needs_no_value(gristmill, shards, tmp_path):
    arguments = ["train-model", "-o", tmp_path / "run", *TINY, "--max-steps", 3]
    assert gristmill(*arguments, "--resume", shards)[0] == 0
    code, _, err = gristmill(*arguments, shards)
    assert code == 1
    assert "Already contains a run" in err
    assert "Pass --resume auto to resume it, --overwrite to replace it" in err
    assert gristmill(*arguments, shards, "--resume")[0] == 0
    assert gristmill(*arguments, shards, "--resume", "auto")[0] == 0


def parsed(*arguments):
    return parse([*map(str, arguments), "data", "-o", "run"], registry=registry())


def test_a_bare_resume_means_auto_in_any_position():
    for arguments in (["--resume=auto"], ["--resume"], ["--resume", "auto"], ["--resume", "--max-steps", "3"]):
        assert (parsed(*arguments).resume, parsed(*arguments).data) == ("auto", ("data",))
    assert parse(["data", "-o", "run", "--resume"]).resume == "auto"
    assert parsed("--resume", "never").resume == "never"


def test_an_option_that_is_a_number_of_steps_or_a_share_takes_both():
    shares = parsed("--val-check-interval", 0.05, "--limit-val-batches", 1.0, "--warmup-steps", 0.5)
    assert (shares.val_check_interval, shares.limit_val_batches, shares.warmup_steps) == (0.05, 1.0, 0.5)
    steps = parsed("--val-check-interval", "2k", "--warmup-steps", 10, "--batch-size", "auto", "--max-steps", "1e3")
    assert (steps.val_check_interval, steps.warmup_steps, steps.batch_size, steps.max_steps) == (2000, 10, "auto", 1000)


def test_a_preset_gives_defaults_that_options_replace():
    command = parsed("--preset=quickstart", "--max_tokens", 9, "--num-layers", 2)
    assert (command.max_steps, command.max_tokens, command.epochs) == (None, 9, None)
    assert (command.num_layers, command.tie_embeddings, command.optimizer) == (2, True, "muon")


@pytest.mark.parametrize(
    ("arguments", "lengths"),
    [
        (["--preset", "quickstart"], (1000, None, None)),
        (["--preset", "quickstart", "--epochs", 2], (None, None, 2.0)),
        (["--preset", "tinystories-17m", "--max_steps", 7], (7, None, None)),
        (["--preset", "tinystories-17m", "--max-tokens=640"], (None, 640, None)),
        (["--preset", "gpt2-124m", "--max-tokens", 640], (None, 640, None)),
    ],
)
def test_a_length_replaces_the_length_of_the_preset(arguments, lengths):
    command = parsed(*arguments)
    assert (command.max_steps, command.max_tokens, command.epochs) == lengths


def test_two_lengths_are_an_error_even_where_one_is_the_length_of_the_preset(gristmill, shards, tmp_path):
    """Comparing values with the defaults cannot distinguish --max-steps 1000 from no --max-steps."""
    arguments = ["train-model", shards, "-o", tmp_path / "run", "--preset", "quickstart", "--device", "cpu"]
    code, _, err = gristmill(*arguments, "--max-steps", 1000, "--epochs", 1)
    assert code == 2
    # The length of the preset does not apply, and both options do.
    assert "--max-steps and --epochs are both given" in err


def test_accumulation_voids_the_global_batch_of_a_preset():
    assert parsed("--preset", "gpt2-124m").global_batch_size == 512
    assert parsed("--preset", "gpt2-124m", "--gradient_accumulation_steps", 2).global_batch_size is None
    both = parsed("--preset", "gpt2-124m", "--gradient-accumulation-steps", 2, "--global-batch-size", 256)
    assert (both.gradient_accumulation_steps, both.global_batch_size) == (2, 256)


def test_what_a_preset_set_can_be_set_back_to_the_default(tmp_path):
    command = parsed("--preset", "quickstart", "--optimizer", "adamw", "--no-tie-embeddings", "--sample-interval", 0)
    assert (command.optimizer, command.tie_embeddings, command.sample_interval) == ("adamw", False, 0)
    (tmp_path / "c.yaml").write_text("d_ff: 1000\ndeterministic: true\n")
    command = parsed("--config", tmp_path / "c.yaml", "--d-ff", "None", "--no_deterministic")
    assert (command.d_ff, command.deterministic) == (None, False)


def test_help_shows_the_defaults_of_the_preset_and_of_the_file(gristmill, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "c.yaml").write_text("learning_rate: 5e-4\n")
    code, out, err = gristmill(
        *("train-model", "--preset", "quickstart", "--config", tmp_path / "c.yaml", "--max-tokens", 9, "--help")
    )
    assert (code, err) == (0, "")
    shown = " ".join(out.replace("│", " ").split())
    assert "Number of layers. (default: 4)" in shown
    assert "Peak learning rate of AdamW. (default: 0.0005)" in shown
    assert "Peak learning rate of Muon. (default: 0.012)" in shown
    assert "Length of the run in steps, instead of in tokens or epochs. --max-tokens" in shown
    assert "Saves parameters. (default: True)" in shown


def test_an_option_without_its_value_is_a_usage_error(gristmill, shards, tmp_path):
    for option in ("--preset", "--config", "--max-steps"):
        code, _, err = gristmill("train-model", shards, "-o", tmp_path / "run", option)
        assert code == 2
        assert option in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("num_layers: four", "--num-layers four is of type str. Pass an int."),
        (
            "optimizer: sgd",
            "--optimizer sgd is not valid. Pass one of 'adamw', 'muon', or add your own with register_optimizer.",
        ),
        ("tie_embeddings: 'no'", "--tie-embeddings no is of type str. Pass true or false."),
    ],
)
def test_a_wrong_value_in_a_file_is_one_line(gristmill, shards, tmp_path, line, message):
    (tmp_path / "c.yaml").write_text(line)
    code, _, err = gristmill("train-model", shards, "-o", tmp_path / "run", "--config", tmp_path / "c.yaml")
    assert (code, err) == (2, f"gristmill: error: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--preset", "huge"], 2, "--preset huge is not valid"),
        (["--config", "missing.yaml"], 2, "missing.yaml: No such file"),
        (["--num-layers", "0"], 2, "--num-layers must be >= 1, got 0"),
        (["--max-steps", "5", "--epochs", "1"], 2, "both given"),
        (["--vocab-size", "5"], 2, "--vocab-size 5 is too small: the tokenizer of the shards has 300 tokens"),
    ],
)
def test_a_wrong_option_is_one_line_without_a_traceback(gristmill, shards, tmp_path, arguments, code, message):
    found, _, err = gristmill("train-model", shards, "-o", tmp_path / "run", *TINY[-2:], *arguments)
    assert found == code
    assert message in err
    assert err.startswith("gristmill: error: ")
    assert len(err.splitlines()) == 1


def test_an_unknown_key_of_a_file_names_the_closest(gristmill, shards, tmp_path):
    (tmp_path / "c.yaml").write_text("learning_rat: 1e-3\n")
    code, _, err = gristmill("train-model", shards, "-o", tmp_path / "run", "--config", tmp_path / "c.yaml")
    assert code == 2
    assert "unknown option 'learning_rat'. Did you mean 'learning_rate'?" in err


def test_shards_that_are_not_there_are_one_line(gristmill, tmp_path):
    code, _, err = gristmill("train-model", tmp_path / "nothing", "-o", tmp_path / "run")
    assert code == 1
    assert [line for line in err.splitlines() if "error" in line] == err.splitlines()[-1:]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_same_command_resumes(gristmill_process, gristmill, shards, tmp_path, number, code):
    arguments = ["train-model", shards, "-o", tmp_path / "run", *TINY, "--resume", "--max-steps", 100_000]
    process = gristmill_process(*arguments, "--log-interval", 1, OMP_NUM_THREADS="1")
    metrics, end = tmp_path / "run/metrics.jsonl", time.monotonic() + 60
    while not (metrics.exists() and b'"train"' in metrics.read_bytes()):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(20) == code
    err = process.stderr.read().decode()
    assert "Traceback" not in err
    saved = sorted((tmp_path / "run/checkpoints").iterdir())
    assert len(saved) == 1
    assert saved[0].name != "step-100000"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--model", "vae"], (True, False, 4)),
        (["--model", "vae", "--pin_memory"], (True, False, 4)),
        (["--model", "vae", "--no-pin_memory"], (False, False, 4)),
        (["--preset", "vae-fast", "--no-pin-memory"], (False, True, 4)),
        (["--preset", "vae-fast", "--no-fast_detection", "--batch_size=9"], (True, False, 9)),
        (["--preset", "vae-debug", "--fast-detection"], (True, True, 1)),
    ],
)
def test_switches_have_both_forms_and_undo_a_preset(arguments, expected):
    command = parsed(*arguments)
    assert (command.pin_memory, command.fast_detection, command.batch_size) == expected


def test_a_vae_is_trained_on_parquet_and_says_what_came_of_it(gristmill, tmp_path):
    rows = [" ".join(text.split()[: 2 + index % 9]) for index, text in enumerate(texts(200))]
    pq.write_table(pa.table({"text": rows}), tmp_path / "data.parquet")
    tokenizer().save(tmp_path / "tokenizer.json")
    small = ["--num_layers", 1, "--num_heads", 1, "--d_model", 16, "--latent_dim", 4, "--max_sequence_length", 32]
    data = ["--tokenizer", tmp_path / "tokenizer.json", "--cache_dir", tmp_path / "cache", "--val_fraction", 0.1]
    more = ["--max_steps", 5, "--num_workers", 1, "--use_dynamic_padding", "--device", "cpu", "--plot_frequency", 0]
    run = tmp_path / "run"
    code, out, err = gristmill(
        "train-model", tmp_path / "data.parquet", "-o", run, "--model", "vae", *small, *data, *more
    )
    assert code == 0, err
    rows = dict(line.strip().split("  ", 1) for line in out.splitlines())
    assert {"validation KL", "padding", "waiting for data"} <= set(rows)
    code, out, err = gristmill("evaluate", run, tmp_path / "data.parquet", "--checkpoint", "latest", "--device", "cpu")
    assert code == 0, err
    assert rows["validation loss"].strip() in out
    assert "nats per sequence" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--latent-dim", 8], "--latent-dim is an option of --model vae, but the model is gpt. Omit --latent-dim, or"),
        (["--no-pin_memory"], "--no-pin-memory is an option of --model vae, but the model is gpt."),
        (
            ["--model", "vae", "--document-mask"],
            "--document-mask is an option of --model gpt, but the model is",
        ),
        (
            ["--preset", "vae-fast", "--context-length", 8],
            "--context-length is an option of --model gpt, but the model is",
        ),
        (["--n-layer", 2], "'train-model' has no option '--n-layer'. Did you mean '--num-layers'?"),
    ],
)
def test_an_option_of_another_model_names_the_model_that_has_it(gristmill, tmp_path, arguments, message):
    code, out, err = gristmill("train-model", "shards", "-o", tmp_path / "run", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"gristmill: error: {message}") and err.count("\n") == 1


# --resume


@pytest.fixture
def run_of_three(gristmill, shards, tmp_path):
    options = ["--max-steps", 3, "--learning-rate", 0.01, "--dropout", 0.1]
    assert gristmill("train-model", shards, "-o", tmp_path / "run", *TINY, *options)[0] == 0
    return tmp_path / "run"


def test_resume_alone_takes_the_saved_options_and_a_greater_length_continues(gristmill, shards, run_of_three):
    saved = config_of(run_of_three)
    resume = ["train-model", shards, "-o", run_of_three, "--resume", "--progress", "none"]
    code, out, err = gristmill(*resume)
    assert (code, err) == (0, "")
    assert config_of(run_of_three) == saved
    code, out, err = gristmill(*resume, "--max_steps", 5, "--log_interval", 2, "--keep", 1, "--val-check-interval", 2)
    assert (code, err) == (0, "")
    assert out.split()[:2] == ["steps", "5"]
    changed = {"max_steps": 5, "log_interval": 2, "keep": 1, "val_check_interval": 2}
    assert config_of(run_of_three) == {**saved, **changed}


@pytest.mark.parametrize("repeated", [True, False])
def test_a_run_without_a_checkpoint_starts_again_with_its_options(gristmill, shards, run_of_three, repeated):
    """As after a kill between config.json and the first checkpoint."""
    saved = config_of(run_of_three)
    shutil.rmtree(run_of_three / "checkpoints")
    options = [*TINY, "--max-steps", 3, "--learning-rate", 0.01, "--dropout", 0.1] if repeated else ["--progress=none"]
    code, out, err = gristmill("train-model", shards, "-o", run_of_three, *options, "--resume")
    assert code == 0, err
    assert config_of(run_of_three) == saved
    assert out.split()[:2] == ["steps", "3"]


def test_resume_takes_the_model_of_the_run(gristmill, shards, tmp_path):
    small = ["--num_layers=1", "--num_heads=1", "--d_model=16", "--latent_dim=4", "--max_sequence_length=32"]
    run = ["train-model", shards, "-o", tmp_path / "run", "--progress=none"]
    code, _, err = gristmill(*run, "--model=vae", *small, "--device=cpu", "--max_steps=2", "--plot_frequency=0")
    assert code == 0, err
    code, out, err = gristmill(*run, "--resume", "--max_steps=3")
    assert code == 0, err
    assert "validation KL" in out
    code, _, err = gristmill(*run, "--resume", "--latent-dim", 8)
    assert code == 1
    assert "--latent-dim was 4 and is now 8" in err
    code, _, err = gristmill(*run, "--resume", "--context-length", 8)
    assert (code, err.partition(".")[0]) == (
        2,
        "gristmill: error: --context-length is an option of --model gpt, but the model is vae",
    )


def test_another_learning_rate_is_refused_and_only_that_is_named(gristmill, shards, run_of_three):
    code, _, err = gristmill(
        *("train-model", shards, "-o", run_of_three, "--resume", "--learning_rate", 0.5, "--progress", "none")
    )
    assert code == 1
    assert "--learning-rate was 0.01 and is now 0.5." in err and err.count(" was ") == 1 and err.count("\n") == 1


def test_help_shows_the_options_of_the_run_to_resume(gristmill, run_of_three, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = " ".join(gristmill("train-model", "--resume", "-o", run_of_three, "--help")[1].replace("│", " ").split())
    assert "Peak learning rate of AdamW. (default: 0.01)" in shown
    assert "Dropout probability in training. (default: 0.1)" in shown
    plain = " ".join(gristmill("train-model", "-o", run_of_three, "--help")[1].replace("│", " ").split())
    assert "Peak learning rate of AdamW. (default: 0.001)" in plain


@pytest.mark.parametrize("content", ["{", "[]", '{"model": "gpt", "num_layers": "many"}', '{"model": "lost"}'])
def test_a_damaged_config_of_the_run_to_resume_is_one_line(gristmill, shards, run_of_three, content):
    (run_of_three / "config.json").write_text(content)
    code, _, err = gristmill("train-model", shards, "-o", run_of_three, "--resume", "--progress", "none")
    assert code == 2
    assert err.startswith("gristmill: error: ") and "config.json" in err and err.count("\n") == 1


def test_resume_never_and_the_last_of_repeated_flags_count(gristmill, shards, run_of_three):
    resume = ["train-model", shards, "-o", run_of_three, *TINY]
    for last in (["--resume=never"], ["--resume", "never"], ["--resume", "--resume=never"]):
        code, _, err = gristmill(*resume, *last)
        assert code == 1 and "Already contains a run" in err
    code, _, err = gristmill(*resume, "--max-steps", 9, "--resume", "--max-steps", 4, "--learning-rate", 0.01)
    assert (code, err) == (0, "")
    assert config_of(run_of_three)["max_steps"] == 4
