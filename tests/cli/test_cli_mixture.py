"""gristmill train-model a:0.7 b:0.3: several folders of shards in one run."""

import json

import pytest

import gristmill as gm
from gristmill.cli.train_model import parse, spelled_out
from gristmill.cli.values import registry

pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")

TINY = (
    *("--context_length=16", "--num_layers=1", "--num_heads=2", "--d_model=16", "--batch_size=2", "--max_steps=2"),
    *("--device=cpu", "--progress=none"),
)


@pytest.fixture(autouse=True)
def work_folder(tmp_path_factory, monkeypatch, stories_path, tokenizer_path):
    folder = tmp_path_factory.mktemp("mixtures")
    monkeypatch.chdir(folder)
    text = stories_path.read_bytes()
    for name, part in (("a", text[:40_000]), ("b", text[40_000:60_000])):
        (folder / f"{name}.txt").write_bytes(part)
        gm.encode_corpus(f"{name}.txt", tokenizer_path, out=name, val_fraction=0.1, progress=None)
    return folder


def weights(run):
    """Return the share of each source, from the state of the last checkpoint."""
    state = json.loads(sorted(run.glob("checkpoints/*/state.json"))[-1].read_bytes())
    return {source["name"]: source["share"] / 1_000_000 for source in state["shards"]["sources"]}


@pytest.mark.parametrize(
    "arguments",
    [
        ["a:0.7", "b:0.3", "-o", "run"],
        ["--data", "a:0.7", "b:0.3", "-o", "run"],
        ["-o", "run", "--data", "a:7", "b:3"],
        ["-o", "run", "--data=a:0.7", "--data=b:0.3"],
        ["-o", "run", "--seed", "0", "--", "a:0.7", "b:0.3"],
    ],
)
def test_weights_follow_the_paths(gristmill, work_folder, arguments):
    code, _, err = gristmill("train-model", *TINY, *arguments)
    assert (code, err) == (0, "")
    assert weights(work_folder / "run") == {"a": 0.7, "b": 0.3}


def test_paths_alone_are_mixed_by_size(gristmill, work_folder):
    assert gristmill("train-model", "a", "b", "-o", "run", *TINY)[0] == 0
    sizes = {name: (gm.Shards(name).num_tokens - 1) // 16 for name in ("a", "b")}
    assert weights(work_folder / "run") == pytest.approx({name: n / sum(sizes.values()) for name, n in sizes.items()})


def test_data_is_an_option_or_positional():
    for arguments in (["--data", "x", "-o", "run"], ["x", "-o", "run"], ["-o", "run", "--data=x"]):
        assert parse(arguments, registry=registry()).data == ("x",)
    assert spelled_out(["--data", "x", "--resume", "-o", "r"]) == ["x", "--resume", "auto", "-o", "r"]
    assert spelled_out(["-o", "r", "--", "--data", "x"]) == ["-o", "r", "--", "--data", "x"]


def test_a_dry_run_shows_the_mixture(gristmill):
    code, out, _ = gristmill("train-model", "a:1", "b:9", "-o", "run", *TINY, "--max_steps=3000", "--dry-run")
    assert code == 0
    assert "mixture: a 10.0% (" in out and "the run reads b " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a:0.7", "b"], "b has no weight, but a has one."),
        (["a:0.7", "b:0"], "b: the weight 0.0 is not a positive number."),
        (["a:0.7", "missing:0.3"], "missing"),
        (["a:0.7", "b:0.3", "--tokenizer", "tok.json"], "--tokenizer applies to text"),
        (["a:0.7", "b:0.3", "--model", "vae"], "mixtures are for models that read windows of tokens"),
        ([], "no data given. Pass a folder written by `gristmill encode`"),
    ],
)
def test_what_is_wrong_with_a_mixture_is_reported_in_one_line(gristmill, arguments, message):
    code, _, err = gristmill("train-model", *arguments, "-o", "run", *(TINY[-2:]))
    assert code in (1, 2)
    assert message in err and err.count("\n") == 1 and "Traceback" not in err


def test_text_in_a_mixture_is_refused_with_commands_that_work(gristmill, work_folder):
    code, _, err = gristmill("train-model", "a:0.7", "b.txt:0.3", "-o", "run", *TINY)
    assert code == 2 and "b.txt is text" in err
    commands = err.strip().partition("Run: ")[2].split(" && ")
    assert len(commands) == 1
    assert gristmill(*commands[0].split()[1:], "--progress", "none")[0] == 0
    assert gristmill("train-model", "a:0.7", "b-shards:0.3", "-o", "run", *TINY)[0] == 0


def test_a_mixture_of_texts_needs_one_tokenizer_first(gristmill, work_folder):
    code, _, err = gristmill("train-model", "a.txt", "b.txt", "-o", "run", *TINY)
    assert code == 2
    commands = err.strip().partition("Run: ")[2].split(" && ")
    assert [command.split()[1] for command in commands] == ["train-tokenizer", "encode", "encode"]
    for command in commands:
        assert gristmill(*command.split()[1:], "--progress", "none")[0] == 0
    assert gristmill("train-model", "a-shards", "b-shards", "-o", "run", *TINY)[0] == 0


def test_a_folder_with_a_colon_in_its_name_is_taken_as_it_is(gristmill, work_folder):
    (work_folder / "a").rename(work_folder / "a:0.5")
    assert gristmill("train-model", "a:0.5", "-o", "run", *TINY)[0] == 0
    assert gristmill("train-model", "a:0.5:3", "b:1", "-o", "mixed", *TINY)[0] == 0
    assert weights(work_folder / "mixed") == {"a:0.5": 0.75, "b": 0.25}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (("nope", "neither"), "not found: nope, neither. Pass folders written by `gristmill encode`"),
        (("a:x", "b:y"), "a:x: 'x' is not a weight. Write a number, such as 'a:0.5'."),
        (("a.txt", "b.txt", "--model=vae"), "mixtures are for models that read windows of tokens"),
        (
            ("a", "b", "--conversations"),
            "a: the folder holds token shards, but --conversations reads JSON lines. Pass the path of JSON lines, "
            "or leave out --conversations.",
        ),
        (("shards:", "b:1"), "Write a weight after each, such as 'shards:0.5'"),
        (("a:", "b:1"), "a:: the weight is missing. Write a number, such as 'a:0.5'."),
    ],
)
def test_data_that_cannot_be_mixed_is_one_line(gristmill, data, words):
    code, _, err = gristmill("train-model", *data, "-o", "run", "--progress=none")
    assert code == 2
    assert words in err and "Traceback" not in err
