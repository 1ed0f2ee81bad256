"""The mistakes that people make most: each gets one message that names the fix, in the words of the caller.

A row of `IN_PYTHON` is a call, the built-in exception that people would catch, and what its message must say. A row of
`ON_THE_COMMAND_LINE` is a command, its exit code, and what its one line of stderr must say.
"""

import contextlib
import importlib
import os
import re
import subprocess
import sys

import pytest

import gristmill as gm
from gristmill.cli import COMMANDS
from gristmill.cli.usage import options_of
from gristmill.sample_corpus import write_sample_corpus


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a text, an empty text, a tokenizer, shards, a folder of texts and a folder of tables."""
    folder = tmp_path_factory.mktemp("mistakes")
    write_sample_corpus(folder / "corpus.txt", size=200_000)
    tok = gm.train_tokenizer(folder / "corpus.txt", vocab_size=400, progress=None)
    tok.save(folder / "tok.json")
    with contextlib.chdir(folder):
        gm.encode_corpus("corpus.txt", tok, out="shards", progress=None)
    (folder / "empty.txt").touch()
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("a text")
    (folder / "tables").mkdir()
    (folder / "tables" / "a.csv").write_text("text\nhello\n")
    return folder


@pytest.fixture(autouse=True)
def in_that_folder(here, monkeypatch):
    monkeypatch.chdir(here)


def tok():
    return gm.Tokenizer.load("tok.json")


IN_PYTHON = {
    "a file that is not there": (
        lambda: gm.train_tokenizer("corpsu.txt", vocab_size=300),
        FileNotFoundError,
        ["corpsu.txt", "No such file"],
    ),
    "a text in place of a path": (
        lambda: gm.train_tokenizer("Once upon a time there was a dog", vocab_size=300),
        FileNotFoundError,
        ["No such file", "[text]"],
    ),
    "a list of file names of which one is misspelled": (
        lambda: gm.train_tokenizer(["corpus.txt", "corpsu.txt"], vocab_size=300),
        ValueError,
        ["'corpsu.txt'", "gm.Files(", "gm.Documents("],
    ),
    "a list of file names that are not there": (
        lambda: gm.train_tokenizer(["corpsu.txt"], vocab_size=300),
        FileNotFoundError,
        ["corpsu.txt", "gm.Documents("],
    ),
    "a dict of columns": (
        lambda: gm.encode_corpus({"text": ["a"]}, tok(), out="out"),
        TypeError,
        ["dict", "text"],
    ),
    "one text where a batch belongs": (lambda: tok().encode_batch("a text"), TypeError, ["[text]"]),
    "a list where one text belongs": (lambda: tok().encode(["a"]), TypeError, ["list", "str or bytes"]),
    "ids where text belongs": (lambda: tok().encode([1, 2]), TypeError, ["list", "str or bytes"]),
    "text where ids belong": (lambda: tok().decode("abc"), TypeError, ["ids", "str"]),
    "an id that there is not": (lambda: tok().decode([999_999]), KeyError, ["999999", "0 to 399"]),
    "an empty corpus": (
        lambda: gm.train_tokenizer("empty.txt", vocab_size=300),
        ValueError,
        ["empty", "0 bytes"],
    ),
    "no documents": (lambda: gm.train_tokenizer([], vocab_size=300), ValueError, ["empty"]),
    "a vocabulary without room for the bytes": (
        lambda: gm.train_tokenizer("corpus.txt", vocab_size=100),
        ValueError,
        ["vocab_size=100", "vocab_size >= 257"],
    ),
    "a vocabulary size as text": (
        lambda: gm.train_tokenizer("corpus.txt", vocab_size="32k"),
        ValueError,
        ["vocab_size='32k'", "int"],
    ),
    "special tokens as one str": (
        lambda: gm.train_tokenizer("corpus.txt", vocab_size=300, special_tokens="<|endoftext|>"),
        ValueError,
        ["special_tokens=['<|endoftext|>']"],
    ),
    "a misspelled pattern": (
        lambda: gm.train_tokenizer("corpus.txt", vocab_size=300, pattern="gtp2"),
        ValueError,
        ["Did you mean 'gpt2'?"],
    ),
    "a misspelled format": (
        lambda: gm.encode_corpus("corpus.txt", tok(), out="out", format="nanogtp"),
        ValueError,
        ["Did you mean 'nanogpt'?"],
    ),
    "a misspelled option": (
        lambda: gm.encode_corpus("corpus.txt", tok(), out="out", val_fracton=0.1),
        TypeError,
        ["'val_fracton'", "Did you mean 'val_fraction'?"],
    ),
    "a folder without texts": (
        lambda: gm.train_tokenizer("tables", vocab_size=300),
        FileNotFoundError,
        ["tables", ".txt", ".jsonl"],
    ),
    "a text where a tokenizer belongs": (
        lambda: gm.encode_corpus("corpus.txt", "corpus.txt", out="out"),
        ValueError,
        ["corpus.txt", "train_tokenizer"],
    ),
    "a number where a tokenizer belongs": (
        lambda: gm.encode_corpus("corpus.txt", 5, out="out"),
        TypeError,
        ["int", "Tokenizer"],
    ),
    "text where shards belong": (
        lambda: gm.Shards("corpus.txt"),
        (ValueError, OSError),
        ["corpus.txt", "encode_corpus"],
    ),
    "a folder of texts where shards belong": (
        lambda: gm.lm.train("texts", out="run"),
        (ValueError, OSError),
        ["texts", "encode_corpus"],
    ),
    "shards where a run belongs": (
        lambda: gm.lm.generate("shards", "Once"),
        (ValueError, OSError),
        ["shards", "lm.train"],
    ),
    "another tokenizer for shards that are there": (
        lambda: gm.encode_corpus("corpus.txt", tok().truncated(300), out="shards"),
        FileExistsError,
        ["vocab_size", "400", "300", "overwrite=True"],
    ),
    "a misspelled option of a model": (
        lambda: gm.lm.train("shards", out="run", max_step=3),
        TypeError,
        ["'max_step'", "Did you mean 'max_steps'?"],
    ),
    "no special token to end documents": (
        lambda: gm.encode_corpus("corpus.txt", gm.Tokenizer([]), out="out"),
        ValueError,
        ["end_of_text=None", "special"],
    ),
}

QUIET = ("--progress", "none")  # a run reports its start before it finds the mistake

ON_THE_COMMAND_LINE = {
    "a command that there is not": (["tokenise", "x"], 2, ["'tokenise'", "Did you mean 'tokenize'?"]),
    "a misspelled flag": (["encode", "corpus.txt", "--tokeniser", "tok.json"], 2, ["Did you mean '--tokenizer'?"]),
    "the flag of another tool": (
        ["train-model", "shards", "-o", "r", "--lr", "1"],
        2,
        ["Did you mean '--learning-rate'?"],
    ),
    "a missing flag": (["encode", "corpus.txt", "-t", "tok.json"], 2, ["missing --output FOLDER|URL (-o)"]),
    "a misspelled choice": (["export", "tok.json", "-f", "hf", "-o", "x"], 2, ["Did you mean 'huggingface'?"]),
    "a misspelled layout": (
        ["encode", "corpus.txt", "-t", "tok.json", "-o", "out", "-f", "nanogtp"],
        2,
        ["Did you mean 'nanogpt'?"],
    ),
    "a number that is none": (
        ["train-tokenizer", "corpus.txt", "--vocab-size", "lots", "-o", "x"],
        2,
        ["--vocab-size", "lots", "Pass digits"],
    ),
    "too small a vocabulary": (
        ["train-tokenizer", "corpus.txt", "--vocab-size", "100", "-o", "x"],
        2,
        ["--vocab-size 100", "--vocab-size >= 257"],
    ),
    "no threads": (
        ["train-tokenizer", "corpus.txt", "--vocab-size", "300", "-o", "x", "--threads", "0"],
        2,
        ["--threads must be >= 1, got 0"],
    ),
    "a file that is not there": (
        ["train-tokenizer", "corpsu.txt", "--vocab-size", "300", "-o", "x"],
        1,
        ["corpsu.txt: No such file"],
    ),
    "an empty corpus": (["train-tokenizer", "empty.txt", "--vocab-size", "300", "-o", "x"], 1, ["empty"]),
    "an output that is there": (
        ["train-tokenizer", "corpus.txt", "--vocab-size", "300", "-o", "tok.json"],
        1,
        ["tok.json", "--overwrite"],
    ),
    "text where a tokenizer belongs": (
        ["encode", "corpus.txt", "-t", "corpus.txt", "-o", "out"],
        1,
        ["corpus.txt", "gristmill train-tokenizer"],
    ),
    "text where shards belong": (["verify", "corpus.txt"], 1, ["corpus.txt", "gristmill encode"]),
    "a folder of texts where shards belong": (["verify", "texts"], 1, ["texts", "gristmill encode"]),
    "shards where a run belongs": (["generate", "shards", "--prompt", "a"], 1, ["shards", "gristmill train-model"]),
    "another way to encode shards that are there": (
        ["encode", "corpus.txt", "-t", "tok.json", "-o", "shards", "--val-fraction", "0.5"],
        1,
        ["--val-fraction was 0.0 and is now 0.5", "--overwrite"],
    ),
    "a folder without texts": (["train-tokenizer", "tables", "--vocab-size", "300", "-o", "x"], 1, ["tables", ".txt"]),
    "a tokenizer where a corpus belongs": (
        ["train-tokenizer", "tok.json", "--vocab-size", "300", "-o", "x"],
        1,
        ["tok.json", "tokenizer"],
    ),
    "an option for tables with a text": (
        ["encode", "corpus.txt", "-t", "tok.json", "-o", "out", "--text-field", "body"],
        2,
        ["--text-field body does not apply", "Leave it out"],
    ),
    "a misspelled command": (["trian-tokenizer", "corpus.txt"], 2, ["Did you mean 'train-tokenizer'?"]),
    "a special token that there is not": (
        ["encode", "corpus.txt", "-t", "tok.json", "-o", "out", "--end-of-text", "<s>"],
        2,
        ["--end-of-text '<s>'", "<|endoftext|>"],
    ),
    "a memory limit that is too small": (
        ["train-tokenizer", "corpus.txt", "--vocab-size", "300", "-o", "x", "--memory-limit", "1k"],
        2,
        ["--memory-limit 1000", "32 MiB"],
    ),
    "the folder of the shards for the run": (
        ["train-model", "shards", "-o", "shards", *QUIET],
        1,
        ["shards", "Pass another folder for the run"],
    ),
    "a fraction beyond one": (
        ["encode", "corpus.txt", "-t", "tok.json", "-o", "out", "--val-fraction", "10"],
        2,
        ["--val-fraction must be >= 0 and < 1, got 10"],
    ),
}

# Terms of Python.
PYTHON_ONLY = (
    "in Python",
    "=True",
    "=None",
    "Tokenizer.load",
    "gm.",
    "[text]",
    "iter(",
    "pathlib",
    "num_threads",
    "Traceback",
    "  File ",
)


def flags_known_to(arguments):
    """Return every flag that a message may name: those of the command and those that were typed."""
    if arguments[0] not in COMMANDS:
        return [*arguments, "--help"]
    module = importlib.import_module(f"gristmill.cli.{arguments[0].replace('-', '_')}")
    known = [spelling for option in options_of(module.Command) for spelling in option.spellings]
    return [*known, *arguments, "--help"]


@pytest.mark.parametrize("mistake", IN_PYTHON)
def test_in_python_the_message_names_the_fix(mistake):
    call, kind, words = IN_PYTHON[mistake]
    with pytest.raises(kind) as raised:
        call()
    message = str(raised.value)
    assert [word for word in words if word not in message] == [], message
    assert "--" not in message, f"a flag, where Python was called: {message}"
    assert len(message) < 700


@pytest.mark.parametrize("mistake", ON_THE_COMMAND_LINE)
def test_on_the_command_line_one_line_names_the_fix(gristmill, mistake):
    arguments, code, words = ON_THE_COMMAND_LINE[mistake]
    found, out, err = gristmill(*arguments)
    assert (found, out) == (code, ""), err
    assert err.startswith("gristmill: error: ") and err.count("\n") == 1, err
    assert [word for word in words if word not in err] == [], err
    assert [word for word in PYTHON_ONLY if word in err] == [], err
    assert [flag for flag in re.findall(r"--[a-z-]+", err) if flag not in flags_known_to(arguments)] == [], err


# Packages of extras, hidden from a new interpreter: a plain `pip install .` does not install them.
WITHOUT = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def run_without(packages, program, folder):
    source = WITHOUT.format(packages=set(packages)) + program
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", source], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("packages", "arguments", "extra"),
    [
        (("torch", "lightning_fabric", "safetensors"), ["train-model", "shards", "-o", "run"], "train"),
        (("torch", "lightning_fabric", "safetensors"), ["generate", "run", "--prompt", "a"], "train"),
        (("torch", "lightning_fabric", "safetensors"), ["evaluate", "run", "shards"], "train"),
        (("pyarrow",), ["train-tokenizer", "a.parquet", "--vocab-size", "300", "-o", "x"], "data"),
        (("fsspec",), ["train-tokenizer", "s3://bucket/a.txt", "--vocab-size", "300", "-o", "x"], "data"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_missing_extra_is_named_in_one_line(here, packages, arguments, extra):
    (here / "a.parquet").write_bytes(b"PAR1")
    program = f"from gristmill.cli import main; sys.exit(main({arguments!r}))"
    done = run_without(packages, program, here)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("gristmill: error: ") and done.stderr.count("\n") == 1, done.stderr
    assert f"pip install 'gristmill[{extra}]'" in done.stderr


@pytest.mark.parametrize("command", ["train-model", "generate", "evaluate", "report"])
def test_help_needs_no_extra(here, command):
    program = f"from gristmill.cli import main; sys.exit(main([{command!r}, '--help']))"
    done = run_without(("torch", "lightning_fabric", "safetensors", "matplotlib", "jinja2", "pyarrow"), program, here)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: gristmill {command}" in done.stdout


@pytest.mark.parametrize("name", ["lm.train", "lm.GPT", "posterior.PosteriorMetricsMonitor"])
def test_in_python_a_missing_extra_is_named_where_it_is_first_used(here, name):
    call = f"gm.{name}('shards', out='run')"
    program = f"import gristmill as gm\ntry:\n    {call}\nexcept ImportError as error:\n    print(error)"
    done = run_without(("torch", "lightning_fabric", "safetensors"), program, here)
    assert done.returncode == 0, done.stderr
    assert "pip install 'gristmill[train]'" in done.stdout and done.stdout.count("\n") == 1


def test_the_table_has_the_25_most_common_mistakes():
    assert len(IN_PYTHON) >= 25
    assert len(ON_THE_COMMAND_LINE) >= 25
