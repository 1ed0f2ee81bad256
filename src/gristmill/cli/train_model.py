"""gristmill train-model: train a model on token shards or Parquet files.

The options depend on the model, which --model, --preset or the resumed run names. The command class is created for that
model, so --help lists only options that apply.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import re
import typing
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_type_hints

import tyro

from gristmill.cli.choices import ProgressKind, listed
from gristmill.cli.dialect import in_flags
from gristmill.cli.examples import Examples
from gristmill.cli.from_text import TextCorpus, check_mixture, is_corpus
from gristmill.cli.options import Flag, ProfileOut
from gristmill.cli.plugins import Plugin, load_plugin
from gristmill.cli.table import pairs
from gristmill.cli.usage import HELP, options_of
from gristmill.cli.values import UsageError, one_of
from gristmill.errors import CheckpointError, OptionError
from gristmill.lm.data.mixture import TrainSources, find_mixture
from gristmill.lm.data.options import DocumentOptions
from gristmill.lm.explain import CHECKPOINTS, CONFIG_FILE, REPLACED_FOLDER
from gristmill.lm.models.registry import MODELS, find_model
from gristmill.lm.option_types import option_fields, option_meanings
from gristmill.lm.training.base_run import with_own_files, with_sizes_of_base
from gristmill.lm.training.config import OTHER_NAMES, TrainConfig, load_config, options_of_model, read_config
from gristmill.lm.training.display import spelled_by, starting
from gristmill.lm.training.presets import PRESET_NOTES, all_presets, preset_options, run_defaults, without_length
from gristmill.lm.training.registries import OPTIMIZERS, SCHEDULES
from gristmill.packages import require_packages

# Groups of --help, in order. Options in no group are model options.
COMMON = (
    *("model", "max_steps", "max_tokens", "epochs", "batch_size", "gradient_accumulation_steps", "learning_rate"),
    *("init_from", "context_length", "max_sequence_length", "num_layers", "num_heads", "d_model", "latent_dim"),
    "tokenizer",
    *("precision", "float8", "compile_model", "device", "devices", "val_check_interval", "checkpoint_interval", "seed"),
)
READING = (
    *("document_mask", "shift_windows", "conversations", "chat_template", "val_fraction"),
    *("text_column", "tokens_column", "embedding_columns", "embedding_dim"),
    *("cache_dir", "use_dynamic_padding", "num_buckets", "num_workers", "pin_memory", "prefetch_factor"),
)
OPTIMIZER = (
    *("optimizer", "global_batch_size", "warmup_steps", "schedule", "final_fraction", "decay_fraction"),
    *("weight_decay", "clip_norm", "beta1", "beta2", "eps", "muon_learning_rate", "muon_momentum"),
)
MACHINE = (
    *("num_nodes", "strategy", "kernels", "compile_mode", "cuda_graphs", "activation_checkpointing", "deterministic"),
)
RECORDS = (*("limit_val_batches", "keep", "log_interval", "log", "sample_interval", "sample_prompt", "sample_tokens"),)
GROUPS: Mapping[str, tuple[str, ...]] = {
    "common": COMMON,
    "reading": READING,
    "optimizer": OPTIMIZER,
    "machine": MACHINE,
    "records": RECORDS,
}

# Options that the command adds for models that read only shards.
OF_TEXT: Mapping[str, Any] = {"tokenizer": str | None}
TOKENIZER_MEANING = "Tokenizer for a text corpus. By default, a new one is trained."

DEFAULT_MODEL = "gpt"
GROUPS_IN_HELP = ("common", "model", "reading", "optimizer", "machine", "records")


@dataclass(frozen=True, kw_only=True)
class TrainModel:
    """Train a GPT language model or a sequence VAE on token shards or text.

    Ctrl-C saves a checkpoint; --resume continues from it bit-exactly, with the options of the run. Options on the
    command line override --config, which overrides --preset. Option names may use _ or -. --model NAME --help lists
    the options of another model.
    """

    EXAMPLES: ClassVar[Examples] = (
        (
            "Train a small GPT on text: about three minutes on a CPU.",
            "gristmill train-model stories.txt -o run --preset quickstart",
        ),
        (
            "Train on token shards for 1,000 steps.",
            "gristmill train-model shards -o run --max-steps 1000 --batch-size 64",
        ),
        ("Resume an interrupted run.", "gristmill train-model shards -o run --resume"),
        (
            "Show memory and time of a run without starting it.",
            "gristmill train-model shards -o run --max-steps 1000 --dry-run",
        ),
    )

    data: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(
            metavar="DATA…",
            help_behavior_hint="",
            help="Folder written by `gristmill encode`, or text, which is encoded first. VAE: also Parquet files. With "
            "--conversations: JSON Lines of conversations. Several folders are mixed: a:0.7 b:0.3 by weight, a b by "
            "size.",
        ),
    ]

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]
    """Run folder to write."""

    preset: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Named set of options."""

    config: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """YAML file with options, such as 'max_steps: 1000', or the config.json of a run."""

    resume: Annotated[Literal["auto", "never"], tyro.conf.arg(metavar="[auto]", help_behavior_hint="")] = "never"
    """Resume the run in the folder with its options. Starts a new run if the folder has no run."""

    overwrite: Flag = False
    """Replace the run in the folder. It is kept until the new run has a checkpoint."""

    dry_run: Flag = False
    """Show parameters, steps, tokens, memory and estimated time without training."""

    plugin: Plugin = None

    progress: Annotated[ProgressKind, tyro.conf.arg(metavar="HOW")] = "auto"
    """Progress on stderr: auto (a bar on a terminal), bar, jsonl (JSON Lines) or none."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        """Train the model and print a summary."""
        values = vars(self)
        config = TrainConfig.from_options({name: values[name] for name in options_of_model(values["model"])})
        progress = None if self.progress == "none" else self.progress
        with starting(progress), spelled_by(functools.partial(in_flags, command=self)):
            require_packages("gristmill train-model", "torch", "gristmill.lm.training.fabric", "safetensors")
            from gristmill.lm.training.launchers import is_first_process

            data = self._data(config, progress)
            rows = self._planned(data) if self.dry_run else self._trained(data, progress)
        if is_first_process():
            print(pairs(rows))
        return 0

    def _data(self, config: TrainConfig, progress: Any) -> TrainSources:
        """Return the folder of shards, or several to mix."""
        if not self.data:
            raise UsageError("no data given. Pass a folder written by `gristmill encode`, or a text file.")
        if len(self.data) > 1 and getattr(config.model, "conversations", False):
            return list(self.data)
        if len(self.data) == 1 and find_mixture(self.data[0]) is None:
            return self._shards(self.data[0], config, progress)
        takes_parquet = isinstance(config.model, DocumentOptions)
        check_mixture(self.data, tokenizer=getattr(self, "tokenizer", None), takes_parquet=takes_parquet)
        return list(self.data)

    def _shards(self, data: str, config: TrainConfig, progress: Any) -> str | Path:
        """Return DATA unchanged, or the folder of its shards if it is text."""
        from gristmill.lm.training.launchers import find_world, is_first_process
        from gristmill.lm.training.run_folder import check_folder

        if getattr(config.model, "conversations", False):
            return data
        takes_parquet = isinstance(config.model, DocumentOptions)
        tokenizer: str | None = getattr(self, "tokenizer", None)
        if not is_corpus(data, takes_parquet=takes_parquet):
            if tokenizer is not None and not takes_parquet:
                raise UsageError(f"--tokenizer applies to text, but {data} is not text. Omit --tokenizer.")
            return data
        if getattr(config.model, "chat_template", None) is not None:
            raise UsageError("--chat-template needs --conversations. Pass both, or omit --chat-template.")
        vocab_size = config.model.vocab_size
        text = TextCorpus(corpus=data, run=self.output, tokenizer=tokenizer, vocab_size=vocab_size)
        if tokenizer is None and config.init_from is not None and (self.overwrite or not text.is_encoded):
            # The weights belong to the ids of their own tokenizer, which a new tokenizer would assign differently.
            own = with_own_files(Path(config.init_from), {}).get("tokenizer")
            text = dataclasses.replace(text, tokenizer=own)
        world = find_world()
        several = {"--dry-run": self.dry_run, "--num-nodes": config.num_nodes > 1, str(world): world is not None}
        for what, is_given in several.items():
            if is_given:
                text.check_encoded(what)
        if is_first_process():
            check_folder(self.output, resume=self.resume, overwrite=self.overwrite, init_from=config.init_from)
        # With a launcher, the other processes would read shards that the first process is replacing.
        is_new = self.overwrite and not self.dry_run and is_first_process() and world is None
        return text.shards(overwrite=is_new, progress=progress)

    def _passed(self) -> dict[str, Any]:
        """Return the options for `train`. For a resumed run, only options that differ from the saved ones.

        A run that was interrupted before its first checkpoint starts again, with all of its options.
        """
        values = vars(self)
        saved = _options_of_run(self.output) if self.resume == "auto" and _has_checkpoint(self.output) else {}
        saved = saved if saved.get("model") == values["model"] else {}
        names = set(options_of_model(values["model"]))
        if not (values.get("conversations") or "text_column" in names):
            names -= {"tokenizer"}  # applies to a text corpus, which is already encoded
        return {name: values[name] for name in names if name not in saved or values[name] != saved[name]}

    def _planned(self, data: TrainSources) -> list[tuple[str, str]]:
        from gristmill.lm.training.dry_run import plan

        planned = plan(data, out=self.output, resume=self.resume, overwrite=self.overwrite, **self._passed())
        return [(name, in_flags(value, self)) for name, value in planned.rows()]

    def _trained(self, data: TrainSources, progress: Any) -> list[tuple[str, str]]:
        from gristmill.lm.training.trainer import train

        return train(
            data,
            out=self.output,
            resume=self.resume,
            overwrite=self.overwrite,
            progress=progress,
            **self._passed(),
        ).rows()


Fields: TypeAlias = list[tuple[str, Any, Any]]


def new_command(model: str = DEFAULT_MODEL, defaults: Mapping[str, Any] | None = None) -> type[TrainModel]:
    """Return the command class of a model, with its options and those of every run."""
    fields = [field for group in _groups(model, defaults or {}).values() for field in group]
    return _derived(TrainModel, fields)


def _derived(base: type[TrainModel], fields: Fields) -> type[TrainModel]:
    made = dataclasses.make_dataclass("Command", fields, bases=(base,), frozen=True, kw_only=True)
    made.__doc__ = TrainModel.__doc__
    return made


def _groups(model: str, defaults: Mapping[str, Any]) -> dict[str, Fields]:
    """Return (name, annotation, default) of each option, by its group in --help."""
    kind = find_model(model).config
    known = options_of_model(model)
    hints: dict[str, Any] = {**OF_TEXT, **get_type_hints(kind), **get_type_hints(TrainConfig)}
    meanings = {"tokenizer": TOKENIZER_MEANING, **option_meanings(kind), **option_meanings(TrainConfig)}
    values: dict[str, Any] = {name: defaults.get(name, field.default) for name, field in known.items()}
    values = {"tokenizer": None, **values, "model": model}
    named = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "model": tuple(name for name in known if name not in named)}
    return {
        group: [
            (
                name,
                _annotation(name, _whole_first(hints[name]), _in_flags(meanings.get(name, "")), values[name]),
                values[name],
            )
            for name in groups[group]
            if name in values
        ]
        for group in GROUPS_IN_HELP
    }


def _in_flags(meaning: str) -> str:
    """Return the documentation of an option in the terms of the command line.

    >>> _in_flags("Number of heads. None: num_heads.")
    'Number of heads. Default: --num-heads.'
    """
    named = re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda found: _flag_or_word(found[0]), meaning)
    return named.replace("None: ", "Default: ")


def _flag_or_word(word: str) -> str:
    is_option = any(word in options_of_model(model) for model in MODELS)
    return f"--{word.replace('_', '-')}" if is_option else word


def _annotation(name: str, hint: Any, meaning: str, default: Any) -> Any:
    """Return the annotation of an option for tyro. --help shows integers as N, floats as X, and no default of None."""
    if names := _registered().get(name):
        shown = tyro.conf.arg(help=meaning, metavar=f"{{{','.join(names)}}}")
        return Annotated[str, one_of(names), shown]
    settings: dict[str, Any] = {"help_behavior_hint": ""} if default is None else {}
    words = [{int: "N", float: "X", str: "TEXT"}.get(member) for member in typing.get_args(hint) or (hint,)]
    choices = [word for member in typing.get_args(hint) for word in typing.get_args(member)]
    named = [word for word in words if word] + choices
    settings |= {"metavar": "|".join(named)} if any(words) else {}
    return Annotated[hint, tyro.conf.arg(help=meaning, **settings)]


def _whole_first(hint: Any) -> Any:
    """Return the hint with int before float: tyro takes the first type that fits, and 2 must not become 2.0.

    The order varies: typing caches unions, and returns `float | int` if torch has created that union before.
    """
    members = typing.get_args(hint)
    if not {int, float} <= set(members):
        return hint
    return functools.reduce(operator.or_, (int, float, *(each for each in members if each not in (int, float))))


def _registered() -> dict[str, list[str]]:
    """Return the options whose values are names in a registry."""
    return {"model": list(MODELS), "optimizer": list(OPTIMIZERS), "schedule": list(SCHEDULES)}


def every_command() -> list[type[TrainModel]]:
    """Return the command class of each model."""
    return [new_command(model) for model in MODELS]


Command = new_command()


@dataclass(frozen=True, kw_only=True)
class _Deciding:
    """Options that determine the other options and their defaults, as typed; "" if not given."""

    preset: str = ""
    config: str = ""
    model: str = ""
    plugin: str = ""
    resume: str = ""
    init_from: str = ""
    output: Annotated[str, tyro.conf.arg(aliases=["-o"])] = ""
    max_steps: str = ""
    max_tokens: str = ""
    epochs: str = ""
    gradient_accumulation_steps: str = ""
    global_batch_size: str = ""


def command_class(arguments: list[str]) -> type[TrainModel]:
    """Return the command class for the model that the arguments name, with the defaults that they imply.

    The resumed run, the preset, the model and the --config file set the defaults, which --help shows.
    """
    deciding = _deciding(spelled_out(arguments))
    load_plugin(Path(deciding.plugin) if deciding.plugin else None)
    try:
        command = _command_for(deciding)
    except (OptionError, CheckpointError) as error:
        raise UsageError(in_flags(" ".join(str(error).split()), Command)) from None
    _check_flags(command, arguments)
    return command


def _command_for(deciding: _Deciding) -> type[TrainModel]:
    saved = _saved(deciding)
    preset = preset_options(deciding.preset or None, {"model": deciding.model})
    model = deciding.model or preset.get("model", saved.get("model"))
    written = read_config(deciding.config, model=model) if deciding.config else {}
    model = written.get("model") if not deciding.model and "model" in written else model
    model = model or DEFAULT_MODEL
    if saved.get("model") != model:
        saved = {}
    given = {name: value for name, value in vars(deciding).items() if value}
    options = {**without_length(saved or dict(run_defaults(model)), preset), **preset}
    options = {**without_length(options, written), **written}
    if not saved:
        start = deciding.init_from or options.get("init_from")
        options = with_sizes_of_base({**options, "model": model, "init_from": start})
    return new_command(model, without_length(options, given))


def _saved(deciding: _Deciding) -> dict[str, Any]:
    """Return the options of the run to resume; {} if there is no run yet."""
    return _options_of_run(Path(deciding.output)) if deciding.resume == "auto" else {}


def _folder_of_run(run: Path) -> Path:
    return run / REPLACED_FOLDER if (run / REPLACED_FOLDER).is_dir() else run


def _has_checkpoint(run: Path) -> bool:
    """Return whether there is a checkpoint to resume from."""
    return any((_folder_of_run(run) / CHECKPOINTS).glob("step-*"))


def _options_of_run(run: Path) -> dict[str, Any]:
    """Return the options in config.json of a run, or of the run moved aside by an interrupted --overwrite; else {}."""
    folder = _folder_of_run(run)
    if not (folder / CONFIG_FILE).is_file():
        return {}
    try:
        return load_config(folder).to_json()
    except CheckpointError as error:
        raise UsageError(" ".join(str(error).split())) from None


def _check_flags(command: type[TrainModel], arguments: list[str]) -> None:
    """Raise `UsageError` for a flag of another model, or for the name of an option in other trainers."""
    known = {spelling for option in options_of(command) for spelling in option.spellings}
    model = next(field.default for field in dataclasses.fields(command) if field.name == "model")
    for argument in itertools.takewhile(lambda argument: argument != "--", arguments):
        flag = argument.partition("=")[0].replace("_", "-")
        if not flag.startswith("--") or flag in known:
            continue
        name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        owner = next((owner for owner, entry in MODELS.items() if name in option_fields(entry.config)), None)
        if owner is not None:
            raise UsageError(
                f"{flag} is an option of --model {owner}, but the model is {model}. Omit {flag}, or pass --model "
                f"{owner}."
            )
        other = f"--{OTHER_NAMES.get(name, '').replace('_', '-')}"
        if other in known:
            raise UsageError(
                f"'train-model' has no option {flag!r}. Did you mean {other!r}? See 'gristmill train-model --help'."
            )


def parse(arguments: list[str], **settings: Any) -> TrainModel:
    """Return the command with its options set; `settings` are those of `tyro.cli`."""
    arguments = spelled_out(arguments)
    command = command_class(arguments)
    if any(argument in HELP for argument in arguments):
        return _show_help(command, settings)
    with warnings.catch_warnings():
        # tyro warns of values in a config file that `run` rejects with a clear message.
        warnings.simplefilter("ignore", UserWarning)
        parsed: TrainModel = tyro.cli(command, args=arguments, **settings)
    return parsed


def _show_help(command: type[TrainModel], settings: Mapping[str, Any]) -> TrainModel:
    """Print the help in groups, which tyro derives from nested classes, and exit."""
    defaults: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(command)}
    groups = _groups(defaults["model"], defaults)
    nested: Fields = []
    for group, fields in groups.items():
        if fields:
            kind = dataclasses.make_dataclass(group.title(), fields, frozen=True, kw_only=True)
            kind.__doc__ = ""
            nested.append((group, kind, dataclasses.field(default_factory=kind)))
    grouped = _derived(_listing_presets(), nested)
    config = (*settings.get("config", ()), tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    shown: TrainModel = tyro.cli(grouped, args=["--help"], **{**settings, "config": config})
    return shown


def _listing_presets() -> type[TrainModel]:
    """Return the command class with the names of all presets in the help of --preset."""
    names = listed(f"{name} ({PRESET_NOTES[name]})" if name in PRESET_NOTES else name for name in all_presets())
    note = tyro.conf.arg(metavar="NAME", help=f"Named set of options: {names}.", help_behavior_hint="")
    return _derived(TrainModel, [("preset", Annotated[str | None, note], None)])


def _deciding(arguments: list[str]) -> _Deciding:
    try:
        found, _ = tyro.cli(_Deciding, args=arguments, return_unknown_args=True, add_help=False, console_outputs=False)
    except SystemExit:
        return _Deciding()  # an option has no value, which the later parse reports
    return found


def spelled_out(arguments: list[str]) -> list[str]:
    """Return the arguments with a bare --resume as --resume auto, and the values of --data as positionals.

    tyro supports no option with an optional value, and no option that is also a positional.

    >>> spelled_out(["--resume", "-o", "run", "shards"])
    ['--resume', 'auto', '-o', 'run', 'shards']
    >>> spelled_out(["-o", "run", "--data", "a:0.7", "b:0.3", "--seed", "1"])
    ['a:0.7', 'b:0.3', '-o', 'run', '--seed', '1']
    """
    data, arguments = _data_apart(arguments)
    spelled = data
    for index, argument in enumerate(arguments):
        spelled.append(argument)
        if argument == "--resume" and arguments[index + 1 : index + 2] not in (["auto"], ["never"]):
            spelled.append("auto")
    return spelled


def _data_apart(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return (values of --data, other arguments)."""
    data: list[str] = []
    others: list[str] = []
    is_data = False
    for index, argument in enumerate(arguments):
        if argument == "--":
            return data, others + arguments[index:]
        is_flag = argument.startswith("-") and len(argument) > 1
        is_data = argument == "--data" if is_flag else is_data
        if argument.startswith("--data="):
            data.append(argument.removeprefix("--data="))
        elif not (is_flag and is_data):
            (data if is_data else others).append(argument)
    return data, others
