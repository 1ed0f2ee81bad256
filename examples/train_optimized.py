r"""Train a sequence VAE with all optimizations and with detection of posterior collapse.

    python train_optimized.py                                          a small model on a sample corpus
    python train_optimized.py stories.parquet --batch_size 8           your data
    GRISTMILL_DATA=stories.parquet python train_optimized.py --batch_size 4 --num_workers 8 --pin_memory \
        --gradient_accumulation_steps 2 --max_sequence_length 1000 --precision 16-mixed --fast_detection

DATA is a folder of token shards, Parquet files or text. Without DATA the script uses $GRISTMILL_DATA, or otherwise
writes a sample corpus. For text without --tokenizer it trains a tokenizer. The run is written to --output, or to the
next free folder runs/train_optimized-N. All other options are those of `gristmill train-model`, with _ or -; `--help`
lists them. OPTIMIZED has the values that differ from its defaults. train_with_collapse_detection.py is the same without
the optimizations.
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

# Defaults for the sample corpus: half a minute on a CPU. A small model of the first words of each story, with the
# measures that prevent collapse.
SMALL = ["--num_layers", "2", "--num_heads", "2", "--d_model", "64", "--latent_dim", "16", "--learning_rate", "4e-3"]
SMALL += ["--max_sequence_length", "16", "--max_steps", "120", "--latent_injection", "embedding"]
SMALL += ["--word_dropout", "0.9", "--free_bits", "0.5", "--free_bits_mode", "dimension", "--kl_schedule", "constant"]
LARGE_BATCH = ["--batch_size", "32", "--gradient_accumulation_steps", "1", "--precision", "auto"]
LARGE_BATCH += ["--update_frequency", "20", "--window_size", "20", "--plot_frequency", "100"]

END = "<|endoftext|>"
VOCAB_SIZE = 8_000
# Passes the final arguments from the first process to the others, which run this script again.
SETTLED = "GRISTMILL_SETTLED_ARGUMENTS"


def train(options: list[str], name: str, *, for_sample: list[str]) -> int:
    """Train with `options`; `for_sample` (if no data is given) and then the command line override them."""
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(__doc__)
        return gristmill(["train-model", "--model", "vae", "--help"])
    if int(os.environ.get("LOCAL_RANK", "0")) and SETTLED in os.environ:
        return gristmill(json.loads(os.environ[SETTLED]))
    try:
        command, run = complete_command(options, sys.argv[1:], name, for_sample)
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


def complete_command(
    options: list[str], arguments: list[str], name: str, for_sample: list[str]
) -> tuple[list[str], Path]:
    """Return the complete command, with data and output, and the output folder."""
    arguments = spelled_out(arguments)
    data, arguments = split_data(arguments, switches_of([*options, *arguments]))
    output = value_of("output", arguments) or value_of("o", arguments)
    run = Path(output) if output else next_folder(name)
    if output is None:
        arguments = [*arguments, "--output", str(run)]
    data = data or os.environ.get("GRISTMILL_DATA")
    if data is None:
        data, options = str(write_sample(Path("runs", "sample"))), [*options, *for_sample]
        say(name, f"no data given: training a small model on 16 tokens of each story of {data}")
    data, more = prepare(data, arguments, run.with_name(f"{run.name}-data"))
    return ["train-model", *options, *more, *arguments, "--", data], run


def switches_of(arguments: list[str]) -> set[str]:
    """Return the options of `train-model` without a value, for the model that the arguments name."""
    options = options_of(command_class(arguments))
    return {"--debug", *(flag for option in options if option.is_switch for flag in option.spellings)}


def split_data(arguments: list[str], switches: set[str]) -> tuple[str | None, list[str]]:
    """Return the data path (None if there is no path) and the other arguments. A switch takes no value.

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
    """Return the name of an option: `batch_size` for `--batch-size` and `--batch_size`."""
    return flag.lstrip("-").replace("-", "_")


def value_of(name: str, arguments: list[str]) -> str | None:
    """Return the value of an option, or None if it is not given."""
    for number, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag.startswith("-") and plain(flag) == name:
            return value if equals else next(iter(arguments[number + 1 :]), None)
    return None


def next_folder(name: str) -> Path:
    """Return the first of runs/NAME-1, runs/NAME-2, … that does not exist."""
    number = 1
    while Path("runs", f"{name}-{number}").exists():
        number += 1
    return Path("runs", f"{name}-{number}")


def write_sample(folder: Path) -> Path:
    """Write a Parquet file of short stories, one per row."""
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
    """Return data for `train-model` and the options it needs: trains a tokenizer for text, and encodes shards."""
    given = {name for name in ("tokenizer", "tokens_column", "embedding_columns") if value_of(name, arguments)}
    tokenizer = value_of("tokenizer", arguments)
    if tokenizer is not None and not Path(tokenizer).exists():
        raise UsageError(f"--tokenizer {tokenizer}: no such file. Omit --tokenizer to train one.")
    parquet = parquet_files(data)
    if (Path(data) / "manifest.json").exists() or (parquet and given):
        return data, []
    column = value_of("text_column", arguments) or "text"
    if parquet and not has_column(parquet[0], column):
        return data, []  # ids, or data that train-model itself reports as an error
    # The folder is named after the files and the tokenizer, so that each combination has its own folder.
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
    """Return the Parquet files of a path, a folder or a glob."""
    path = Path(data)
    if path.is_dir():
        return sorted(path.glob("*.parquet"))
    if path.is_file():
        return [path] if path.suffix == ".parquet" else []
    return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) if path.suffix == ".parquet" else []


def has_column(path: Path, column: str) -> bool:
    """Return whether a Parquet file has this column."""
    import pyarrow.parquet

    return column in pyarrow.parquet.read_schema(path).names


def fingerprint(paths: list[Path]) -> str:
    """Return a short fingerprint of the current state of the files."""
    facts = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(paths)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def say(name: str, message: str) -> None:
    """Print a message to stderr; results go to stdout."""
    print(f"{name}: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(train(OPTIMIZED, "train_optimized", for_sample=[*SMALL, *LARGE_BATCH]))
