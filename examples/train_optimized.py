r"""A sequence VAE, trained with everything that makes it fast, and watched for posterior collapse.

    python train_optimized.py                                          a small model on a sample corpus
    python train_optimized.py stories.parquet --batch_size 8           your data
    GRISTMILL_DATA=stories.parquet python train_optimized.py --batch_size 4 --num_workers 8 --pin_memory \
        --gradient_accumulation_steps 2 --max_sequence_length 1000 --precision 16-mixed --fast_detection

DATA is a folder of token shards, Parquet files or text; without it $GRISTMILL_DATA is taken, and without that a sample
corpus is written. Text without --tokenizer gets a tokenizer of its own. The run is in --output, or in the next free
folder runs/train_optimized-N. All other options are those of `gristmill train-model`, with _ or -; `--help` lists them.
What differs from its defaults is in OPTIMIZED. train_with_collapse_detection.py is the same without what makes it fast.
"""

import hashlib
import json
import os
import sys
import warnings
from pathlib import Path

import gristmill as gm
from gristmill.cli import main as gristmill
from gristmill.cli.train_model import command_class, spelled_out
from gristmill.cli.usage import options_of
from gristmill.cli.values import UsageError
from gristmill.errors import EarlyStopWarning, GristmillError
from gristmill.sample_corpus import write_sample_corpus

OPTIMIZED = ["--model", "vae", "--batch_size", "4", "--num_workers", "8", "--pin_memory", "--max_sequence_length"]
OPTIMIZED += ["1000", "--precision", "16-mixed", "--gradient_accumulation_steps", "2"]

# For the sample corpus, where nothing else is said: half a minute on a CPU. A small model of the first words of each
# story, and all that keeps it from collapsing.
SMALL = ["--num_layers", "2", "--num_heads", "2", "--d_model", "64", "--latent_dim", "16", "--learning_rate", "4e-3"]
SMALL += ["--max_sequence_length", "16", "--max_steps", "120", "--latent_injection", "embedding"]
SMALL += ["--word_dropout", "0.9", "--free_bits", "0.5", "--free_bits_mode", "dimension", "--kl_schedule", "constant"]
LARGE_BATCH = ["--batch_size", "32", "--gradient_accumulation_steps", "1", "--precision", "auto"]
LARGE_BATCH += ["--update_frequency", "20", "--window_size", "20", "--plot_frequency", "100"]

END = "<|endoftext|>"
VOCAB_SIZE = 8_000
# How the first process of several tells the others, which run this script again, what it has settled.
SETTLED = "GRISTMILL_SETTLED_ARGUMENTS"


def train(options: list[str], name: str, *, for_sample: list[str]) -> int:
    """Train with `options`, `for_sample` on top of them where no data is given, and the command line on top of both."""
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(__doc__)
        return gristmill(["train-model", "--model", "vae", "--help"])
    if int(os.environ.get("LOCAL_RANK", "0")) and SETTLED in os.environ:
        return gristmill(json.loads(os.environ[SETTLED]))
    try:
        command, run = settle(options, sys.argv[1:], name, for_sample)
    except (GristmillError, OSError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 1
    except UsageError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    os.environ[SETTLED] = json.dumps(command)
    status = gristmill(command)
    if status == 0 and "dry_run" not in map(plain, command):
        say(name, f"the run is in {run}")
    return status


def settle(options: list[str], arguments: list[str], name: str, for_sample: list[str]) -> tuple[list[str], Path]:
    """The whole command, with data and output; and its output."""
    arguments = spelled_out(arguments)
    data, arguments = split_data(arguments, switches_of([*options, *arguments]))
    output = value_of("output", arguments) or value_of("o", arguments)
    run = Path(output) if output else next_folder(name)
    if output is None:
        arguments = [*arguments, "--output", str(run)]
    data = data or os.environ.get("GRISTMILL_DATA")
    if data is None:
        data, options = str(write_sample(Path("runs", "sample"))), [*options, *for_sample]
        say(name, f"no data was given: a small model is trained on 16 tokens of each story of {data}")
    data, more = prepare(data, arguments, run.with_name(f"{run.name}-data"))
    return ["train-model", *options, *more, *arguments, "--", data], run


def switches_of(arguments: list[str]) -> set[str]:
    """The flags of `train-model` that have no value, for the model that the arguments name."""
    options = options_of(command_class(arguments))
    return {"--debug", *(flag for option in options if option.is_switch for flag in option.spellings)}


def split_data(arguments: list[str], switches: set[str]) -> tuple[str | None, list[str]]:
    """The data path and the other arguments; None where there is no path. What follows a switch is not its value.

    >>> split_data(["--batch_size", "8", "--fast_detection", "stories.parquet"], {"--fast-detection"})
    ('stories.parquet', ['--batch_size', '8', '--fast_detection'])
    """
    before = ""
    for number, argument in enumerate(arguments):
        takes_value = before.startswith("-") and "=" not in before and before.replace("_", "-") not in switches
        if not argument.startswith("-") and not takes_value:
            return argument, arguments[:number] + arguments[number + 1 :]
        before = argument
    return None, arguments


def plain(flag: str) -> str:
    """The name of an option, of `--batch-size` as of `--batch_size`."""
    return flag.lstrip("-").replace("-", "_")


def value_of(name: str, arguments: list[str]) -> str | None:
    """The value of an option; None where it is not given."""
    for number, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag.startswith("-") and plain(flag) == name:
            return value if equals else next(iter(arguments[number + 1 :]), None)
    return None


def next_folder(name: str) -> Path:
    """The first of runs/NAME-1, runs/NAME-2, … that does not exist."""
    number = 1
    while Path("runs", f"{name}-{number}").exists():
        number += 1
    return Path("runs", f"{name}-{number}")


def write_sample(folder: Path) -> Path:
    """A Parquet file of short stories, one per row."""
    import pyarrow
    import pyarrow.parquet

    parquet = folder / "stories.parquet"
    if not parquet.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_sample_corpus(folder / "stories.txt", size=1_000_000, seed=0, overwrite=True)
        stories = (folder / "stories.txt").read_text(encoding="utf-8").split(END)
        table = pyarrow.table({"text": [story.strip() for story in stories if story.strip()]})
        pyarrow.parquet.write_table(table, parquet)
    return parquet


def prepare(data: str, arguments: list[str], folder: Path) -> tuple[str, list[str]]:
    """The data as `train-model` takes it, and the options it needs: text gets a tokenizer, and becomes shards."""
    given = {name for name in ("tokenizer", "tokens_column", "embedding_columns") if value_of(name, arguments)}
    tokenizer = value_of("tokenizer", arguments)
    if tokenizer is not None and not Path(tokenizer).exists():
        raise UsageError(f"--tokenizer {tokenizer}: there is no such file. Without --tokenizer, one is trained.")
    parquet = parquet_files(data)
    if (Path(data) / "manifest.json").exists() or (parquet and given):
        return data, []
    column = value_of("text_column", arguments) or "text"
    if parquet and not has_column(parquet[0], column):
        return data, []  # ids, or nothing that this script knows better than train-model
    # The folder is named after the files and the tokenizer, so that other data or another tokenizer gets its own.
    files = fingerprint(parquet or [path for path in [Path(data), *Path(data).rglob("*")] if path.is_file()])
    folder /= f"{files}-{gm.Tokenizer.load(tokenizer).fingerprint[:12]}" if tokenizer else files
    tokenizer = tokenizer or str(folder / "tokenizer.json")
    folder.mkdir(parents=True, exist_ok=True)
    if not Path(tokenizer).exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EarlyStopWarning)  # a small corpus has fewer tokens to learn
            field = {"text_field": column} if parquet else {}
            tok = gm.train_tokenizer(parquet or data, vocab_size=VOCAB_SIZE, special_tokens=[END], **field)
        tok.save(tokenizer)
    if parquet:
        return data, ["--tokenizer", tokenizer]
    if not (folder / "shards").exists():
        gm.encode_corpus(data, gm.Tokenizer.load(tokenizer), out=folder / "shards", val_fraction=0.01)
    return str(folder / "shards"), []


def parquet_files(data: str) -> list[Path]:
    """The Parquet files that a path, a folder or a glob stands for."""
    path = Path(data)
    if path.is_dir():
        return sorted(path.glob("*.parquet"))
    if path.is_file():
        return [path] if path.suffix == ".parquet" else []
    return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) if path.suffix == ".parquet" else []


def has_column(path: Path, column: str) -> bool:
    """Whether a Parquet file has this column."""
    import pyarrow.parquet

    return column in pyarrow.parquet.read_schema(path).names


def fingerprint(paths: list[Path]) -> str:
    """A short name of these files as they are now."""
    facts = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(paths)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def say(name: str, message: str) -> None:
    """Something that a person should know; results go to stdout."""
    print(f"{name}: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(train(OPTIMIZED, "train_optimized", for_sample=[*SMALL, *LARGE_BATCH]))
