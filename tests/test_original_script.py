"""examples/train_optimized.py with every command line of the original guide, as they are written there.

Each test adds only the size of the model, so that a step of 1,000 tokens takes a moment: the data comes from the
environment, as for a user. GRISTMILL_SOAK=1 runs the lines as they are, with the model of the script, and the compiled
ones too.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("torch")

from gristmill.posterior.drawing import Drawing

EXAMPLES = Path(__file__).parent.parent / "examples"
SOAK = os.environ.get("GRISTMILL_SOAK", "") not in ("", "0")
TINY_MODEL = [] if SOAK else ["--num_layers", "1", "--num_heads", "2", "--d_model", "16", "--latent_dim", "4"]

FAST = "--batch_size 4 --num_workers 8 --pin_memory --gradient_accumulation_steps 2 --max_sequence_length 1000"
FAST += " --precision 16-mixed"
LINES = [
    *["", "--num_workers 8", "--pin_memory", "--max_sequence_length 1000", "--batch_size 4", "--precision 16-mixed"],
    *["--gradient_accumulation_steps 2", "--fast_detection", "--disable_metrics_monitoring", "--use_dynamic_padding"],
    *["--batch_size 2", "--max_sequence_length 500", "--num_workers 4", "--num_workers 12", "--batch_size 8"],
    *["--gradient_accumulation_steps 4", "--precision bf16-mixed"],
    f"{FAST} --fast_detection",
    "--batch_size 2 --num_workers 4 --max_sequence_length 500 --precision 16-mixed --fast_detection",
    "--batch_size 1 --num_workers 2 --max_sequence_length 100 --precision 32 --fast_detection",
]
COMPILED_LINES = ["--compile_model", f"{FAST} --disable_metrics_monitoring --compile_model"]


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """Twenty short documents in a Parquet file: two steps of 8."""
    import pyarrow
    import pyarrow.parquet

    path = tmp_path_factory.mktemp("data") / "stories.parquet"
    texts = [f"Once upon a time, {name} had {number} apples." for number, name in enumerate(["Tom", "Ann"] * 10)]
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    return path


@pytest.fixture
def script(monkeypatch, tmp_path, stories):
    """A function that runs a script of examples/ in this process and returns (exit code, run folder)."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRISTMILL_DATA", str(stories))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("GRISTMILL_SETTLED_ARGUMENTS", raising=False)

    def run(*arguments, name="train_optimized", options="OPTIMIZED", draws=False):
        module = importlib.import_module(name)
        if not draws:  # the process that draws takes longer to import matplotlib than the run takes
            monkeypatch.setattr(Drawing, "_start", lambda drawing: None)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        code = module.train(getattr(module, options), name, for_sample=["--max_steps", "1"])
        monkeypatch.delenv("GRISTMILL_SETTLED_ARGUMENTS", raising=False)
        return code, tmp_path / "runs" / f"{name}-1"

    return run


def config_of(run):
    """All options of a run, those of its model included."""
    config = json.loads((run / "config.json").read_text())
    model = config.get("model")
    return {**config, **(model if isinstance(model, dict) else {})}


def given(line):
    """The options of a line as a run's config has them."""
    words = line.split()
    options = {}
    for number, word in enumerate(words):
        if word.startswith("--"):
            value = next(iter(words[number + 1 :]), "--")
            options[word[2:]] = True if value.startswith("--") else int(value) if value.isdigit() else value
    if "precision" in options:
        options["precision"] = str(options["precision"])
    return options


def assert_ended(run, line):
    steps = [json.loads(text)["step"] for text in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] >= 1
    assert list(run.glob("checkpoints/step-*"))
    found, expected = config_of(run), given(line)
    if expected.get("precision") == "16-mixed":  # a CPU has none
        expected.pop("precision")
        assert found["precision"] in ("bf16-mixed", "32")
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_guide_runs_to_the_end_given_only_the_data(script, line):
    code, run = script(*line.split(), *TINY_MODEL, draws=SOAK or not line)
    assert code == 0
    assert_ended(run, line)
    assert line or (run / "plots" / "posterior.png").exists()


@pytest.mark.skipif(not SOAK, reason="compilation takes minutes; GRISTMILL_SOAK=1 runs it")
@pytest.mark.parametrize("line", COMPILED_LINES)
def test_a_compiled_line_of_the_guide_runs_to_the_end_given_only_the_data(script, line):
    code, run = script(*line.split(), *TINY_MODEL)
    assert code == 0
    assert_ended(run, line)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core, one device")
def test_the_line_with_two_devices_runs_to_the_end_in_one_folder(stories, tmp_path):
    environment = {**os.environ, "GRISTMILL_DATA": str(stories), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, str(EXAMPLES / "train_optimized.py"), "--devices", "2", *TINY_MODEL],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=environment,
    )
    assert process.returncode == 0, process.stderr
    assert [path.name for path in (tmp_path / "runs").glob("train_optimized-?")] == ["train_optimized-1"]
    assert_ended(tmp_path / "runs" / "train_optimized-1", "--devices 2")


def test_the_defaults_of_the_script_are_those_of_the_guide(script):
    _, run = script(*TINY_MODEL)
    expected = {"batch_size": 4, "num_workers": 8, "pin_memory": True, "max_sequence_length": 1000}
    expected |= {"gradient_accumulation_steps": 2, "compile_model": False, "fast_detection": False}
    expected |= {"use_dynamic_padding": False, "disable_metrics_monitoring": False}
    found = config_of(run)
    assert {name: found[name] for name in expected} == expected


def test_fast_detection_looks_at_the_posterior_less_often(script, tmp_path):
    script(*TINY_MODEL, "-o", str(tmp_path / "usual"))
    script("--fast_detection", *TINY_MODEL, "-o", str(tmp_path / "fast"))
    usual, fast = config_of(tmp_path / "usual"), config_of(tmp_path / "fast")
    assert fast["update_frequency"] > usual["update_frequency"]
    assert fast["plot_frequency"] > usual["plot_frequency"]


def test_options_may_be_written_with_hyphens_and_the_data_after_them(script, stories, monkeypatch):
    monkeypatch.delenv("GRISTMILL_DATA")
    code, run = script("--batch-size=2", "--num-workers", "0", "--fast-detection", str(stories), *TINY_MODEL)
    assert code == 0
    assert_ended(run, "--batch_size 2 --num_workers 0 --fast_detection")


def test_a_text_file_gets_its_own_tokenizer(script, tmp_path, capsys):
    text = "<|endoftext|>".join(f"The cat sat on mat {number}." for number in range(20))
    (tmp_path / "stories.txt").write_text(text)
    code, run = script("stories.txt", *TINY_MODEL)
    assert code == 0
    assert_ended(run, "")
    assert f"the run is in {run.relative_to(tmp_path)}" in capsys.readouterr().err


def test_data_that_is_not_there_is_an_error_in_one_line(script, tmp_path, capsys):
    code, run = script("nowhere.txt", *TINY_MODEL)
    assert code == 1
    assert "nowhere.txt" in capsys.readouterr().err
    assert not run.exists()


def test_without_data_a_sample_corpus_is_written_and_the_result_stays(script, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("GRISTMILL_DATA")
    code, run = script("--max_sequence_length", "8", *TINY_MODEL)
    assert code == 0
    assert_ended(run, "")
    said = capsys.readouterr().err
    assert "each story of runs/sample/stories.parquet" in said
    assert "the run is in runs/train_optimized-1" in said
    assert (tmp_path / "runs" / "sample" / "stories.parquet").exists()


def test_the_script_before_all_measures_is_what_such_scripts_are(script):
    short = ["--max_sequence_length", "40", "--max_steps", "2", *TINY_MODEL]
    code, run = script(*short, name="train_with_collapse_detection", options="UNOPTIMIZED")
    assert code == 0
    expected = {"batch_size": 1, "gradient_accumulation_steps": 1, "precision": "32", "pin_memory": False}
    expected |= {"window_size": 100, "plot_frequency": 500, "update_frequency": 20, "keep": 3}
    expected |= {"use_dynamic_padding": False, "compile_model": False, "fast_detection": False}
    found = config_of(run)
    assert {name: found[name] for name in expected} == expected
