"""gristmill train-model: token shards or Parquet files in, a trained model and the record of its training out."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import tyro

from gristmill.cli.choices import ProgressKind, listed
from gristmill.cli.dialect import in_flags
from gristmill.cli.options import Flag
from gristmill.cli.table import pairs
from gristmill.lm.training.config import FIELDS, TrainConfig, read_config
from gristmill.lm.training.presets import PRESET_NOTES, PRESETS, preset_options, without_length
from gristmill.packages import require_packages

if TYPE_CHECKING:
    PresetName: TypeAlias = str
else:
    PresetName = Literal[tuple(PRESETS)]


def _with_note(preset: str) -> str:
    return f"{preset} ({PRESET_NOTES[preset]})" if preset in PRESET_NOTES else preset


@dataclass(frozen=True, kw_only=True)
class Command(TrainConfig):
    """Train a language model, or a sequence VAE, on token shards.

    Ctrl-C saves a checkpoint; the same command with --resume resumes from it, bit-exactly. Options may be
    written with _ or -. A preset comes first, then the file of --config, then options.
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder that `gristmill encode` made; for a VAE also Parquet: a file, a folder or a glob."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]
    """The folder of the run."""

    preset: Annotated[
        PresetName | None,
        tyro.conf.arg(
            metavar="NAME",
            help=f"Options that belong together: {listed(map(_with_note, PRESETS))}.",
            help_behavior_hint="",
        ),
    ] = None

    config: Path | None = None
    """A YAML file with options, such as 'max_steps: 1000'; config.json of a run is one too."""

    resume: Annotated[Literal["auto", "never"], tyro.conf.arg(metavar="[auto]", help_behavior_hint="")] = "never"
    """Resume the run in the folder, if there is one."""

    overwrite: Flag = False
    """Remove the run in the folder and start again."""

    progress: Annotated[ProgressKind, tyro.conf.arg(metavar="HOW")] = "auto"
    """auto (a bar on a terminal), bar (always), jsonl (JSON lines) or none; on stderr."""

    def __post_init__(self) -> None:
        """The options are checked when the command runs, where errors are shown as errors."""

    def run(self) -> int:
        """Train, and print what came of it."""
        options = {name: getattr(self, name) for name in FIELDS}
        config = TrainConfig.from_options(options)
        require_packages("gristmill train-model", "torch", "lightning_fabric", "safetensors")
        from gristmill.lm.training.processes import is_first_process
        from gristmill.lm.training.records import spelled_by
        from gristmill.lm.training.trainer import train

        with spelled_by(functools.partial(in_flags, command=self)):
            result = train(
                self.data,
                out=self.output,
                config=config,
                resume=self.resume,
                overwrite=self.overwrite,
                progress=None if self.progress == "none" else self.progress,
            )
        if is_first_process():
            print(pairs(result.rows()))
        return 0


@dataclass(frozen=True, kw_only=True)
class _Deciding:
    """The options that decide the defaults of others, as they were written; "" where one was not given."""

    preset: str = ""
    config: str = ""
    model: str = ""
    max_steps: str = ""
    max_tokens: str = ""
    epochs: str = ""
    gradient_accumulation_steps: str = ""
    global_batch_size: str = ""


def parse(arguments: list[str], **settings: Any) -> Command:
    """The command that the arguments ask for; `settings` are those of `tyro.cli`.

    What the preset, the model and the file of --config set are the defaults, which --help shows.
    """
    arguments = spelled_out(arguments)
    default = _defaults(_deciding(arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # tyro's, of a file's value that `run` refuses in plain words
        command: Command = tyro.cli(Command, default=default, args=arguments, **settings)
    return command


def _deciding(arguments: list[str]) -> _Deciding:
    try:
        found, _ = tyro.cli(_Deciding, args=arguments, return_unknown_args=True, add_help=False, console_outputs=False)
    except SystemExit:
        return _Deciding()  # one of them has no value, which the second look at the arguments reports
    return found


def _defaults(deciding: _Deciding) -> Command:
    """The preset, then the file on top, less what the file or an option makes void."""
    given = {name: value for name, value in vars(deciding).items() if value}
    written = read_config(deciding.config) if deciding.config else {}
    model = deciding.model or written.get("model")
    options = without_length(preset_options(deciding.preset or None, {"model": model}), written)
    options = without_length({**options, **written}, given)
    return Command(data=tyro.MISSING, output=tyro.MISSING, **options)


def spelled_out(arguments: list[str]) -> list[str]:
    """The arguments with a bare --resume as --resume auto: tyro has no option whose value may be left out.

    >>> spelled_out(["--resume", "-o", "run", "shards"])
    ['--resume', 'auto', '-o', 'run', 'shards']
    """
    spelled: list[str] = []
    for index, argument in enumerate(arguments):
        spelled.append(argument)
        if argument == "--resume" and arguments[index + 1 : index + 2] not in (["auto"], ["never"]):
            spelled.append("auto")
    return spelled
