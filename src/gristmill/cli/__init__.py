"""The command line: `gristmill COMMAND …`.

Each command is one module here with a dataclass `Command` (its fields are the options) and a method `run() -> int`; its
line in `COMMANDS` makes it known. Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 failed,
2 wrong usage, 130 interrupted (Ctrl-C), 143 terminated (SIGTERM).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any

__all__ = ["COMMANDS", "main"]

# What each command does, by what it works on: the overview shows them in these groups.
GROUPS = {
    "make a tokenizer": {
        "train-tokenizer": "train a byte-level BPE tokenizer on a corpus",
        "count-words": "count the words of a corpus once, to train on them often",
        "extend": "make the vocabulary of a tokenizer larger, from a corpus",
        "truncate": "make the vocabulary of a tokenizer smaller",
        "export": "write a tokenizer in the format of another tool",
    },
    "use a tokenizer": {
        "tokenize": "show the ids and tokens of a text",
        "decode": "turn ids back into text",
        "count": "count the tokens of texts and files",
        "compare": "compare tokenizers on a text, and their vocabularies",
        "inspect": "show what a tokenizer or a folder of shards holds",
    },
    "encode a corpus": {
        "encode": "encode a corpus into token shards",
        "verify": "check every byte of a folder of shards against its manifest",
        "task": "run encode or count-words in tasks, with Slurm or the like",
    },
    "train a model": {
        "train-model": "train a language model on token shards",
        "evaluate": "show how well a trained model predicts shards",
        "generate": "write text with a trained model",
        "export-model": "write a trained model for transformers or llama.cpp",
        "report": "make one page of a training run, or compare runs",
    },
    "other": {
        "sample-corpus": "write a corpus of children's stories to try things on",
        "completion": "print a script that completes commands and options in a shell",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
_FIRST_WORDS = {name.partition("-")[0] for name in COMMANDS} - set(COMMANDS)

DONE, FAILED, WRONG_USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an ASCII terminal is not a reason to fail
    debug = os.environ.get("GRISTMILL_DEBUG", "") not in ("", "0")
    end_of_options = arguments.index("--") if "--" in arguments else len(arguments)
    if "--debug" in arguments[:end_of_options]:
        arguments.remove("--debug")
        debug = True
    if argv is None:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _dispatch(arguments, debug)
        if sys.stdout is not None:  # closed before we were started
            sys.stdout.flush()
        return code
    except OSError as error:  # of stdout: everything else is reported where it happens
        if debug and not isinstance(error, BrokenPipeError):
            raise
        _discard_output()
        if not isinstance(error, BrokenPipeError):  # a reader such as `head` that has exited is no reason to complain
            print(f"gristmill: error: standard output: {error.strerror or error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt as interruption:
        if argv is None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second one has nothing left to stop
        if debug:
            raise
        terminated = isinstance(interruption, _Terminated)
        if _speaks_for_all():
            print(f"gristmill: {'terminated' if terminated else 'interrupted'}", file=sys.stderr)
        return TERMINATED if terminated else INTERRUPTED


def _speaks_for_all() -> bool:
    """Whether this process shows what all processes that a launcher has started would show."""
    if "RANK" not in os.environ and "SLURM_PROCID" not in os.environ:
        return True
    from gristmill.errors import OptionError
    from gristmill.lm.training.launchers import is_first_process

    try:
        return is_first_process()
    except OptionError:
        return True


def _discard_output() -> None:
    """Let what is still to be written to stdout disappear: Python would fail on it again at exit."""
    with contextlib.suppress(OSError, ValueError):  # not a file
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


class _Terminated(KeyboardInterrupt):
    """SIGTERM: everything is cleaned up as after Ctrl-C."""


def _terminate(*_: object) -> None:
    raise _Terminated


def _dispatch(arguments: list[str], debug: bool) -> int:
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help", "help"):
        print(_overview())
        return DONE if arguments else WRONG_USAGE
    if first == "--version":
        from gristmill.version import __version__

        print(f"gristmill {__version__}")
        return DONE
    name = first.replace("_", "-")
    if name not in COMMANDS:
        return _refuse(first)
    command = _parse(name, arguments[1:])
    return command if isinstance(command, int) else _run(command, debug)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n\n".join(
        "\n".join([f"{title}:", *(f"  {name:{width}}  {summary}" for name, summary in group.items())])
        for title, group in GROUPS.items()
    )
    return f"""\
Gristmill: raw text in, trained model out.

usage: gristmill COMMAND [OPTIONS]

{commands}

more:
  gristmill COMMAND --help   the options of a command
  gristmill --version        the version
  --debug                    with any command: show the traceback of an error

example:
  gristmill sample-corpus -o stories.txt --size 50MB
  gristmill train-tokenizer stories.txt --vocab-size 8k -o tok.json
  gristmill tokenize -t tok.json "Once upon a time"
  gristmill export tok.json -f huggingface -o hf
  gristmill encode stories.txt -t tok.json -o shards"""


def _refuse(name: str) -> int:
    from gristmill.arguments import nearest

    kind = "option" if name.startswith("-") else "command"
    # "trian" is nearest to "train", which is not a command but the first word of two.
    begun = {word: [command for command in COMMANDS if command.startswith(f"{word}-")] for word in _FIRST_WORDS}
    hint = nearest(name, [*COMMANDS, *begun, "--help", "--version"])
    for word, commands in begun.items():
        hint = hint.replace(repr(word), " or ".join(map(repr, commands)))
    print(f"gristmill: error: no {kind} {name!r}.{hint} See 'gristmill --help'.", file=sys.stderr)
    return WRONG_USAGE


def _parse(name: str, arguments: list[str]) -> Any:
    """The command with its options set, or the exit code when help or an error was printed."""
    import tyro

    from gristmill.cli.examples import examples_text
    from gristmill.cli.usage import HELP, check_usage
    from gristmill.cli.values import UsageError, registry
    from gristmill.errors import MissingPackageError, OptionError

    module = importlib.import_module(f"gristmill.cli.{name.replace('-', '_')}")
    try:
        if hasattr(module, "spelled_out"):  # short forms that tyro does not know
            arguments = module.spelled_out(arguments)
        # A command whose options depend on what is given makes its class for it.
        command = module.command_class(arguments) if hasattr(module, "command_class") else module.Command
        check_usage(command, name, arguments)
        settings: dict[str, Any] = {
            "prog": f"gristmill {name}",
            "description": _description(command),
            "config": (tyro.conf.HelptextFromCommentsOff,),
            "registry": registry(),
        }
        if hasattr(module, "parse"):  # a command whose defaults depend on what is given
            return module.parse(arguments, **settings)
        return tyro.cli(command, args=arguments, **settings)
    except SystemExit as error:
        if not error.code and any(flag in arguments for flag in HELP):
            print("\n" + examples_text(command.EXAMPLES))
        return error.code if isinstance(error.code, int) else WRONG_USAGE
    except (MissingPackageError, OptionError, OSError, UsageError) as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            raise  # of stdout, for `main`
        if _speaks_for_all():
            print(f"gristmill: error: {_one_line(error)}", file=sys.stderr)
        return WRONG_USAGE


def _description(command: type) -> str:
    """Return the docstring, wrapped. Indented because tyro joins lines that are not, whatever the terminal's width."""
    import inspect
    import textwrap

    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n \n".join(textwrap.indent(textwrap.fill(paragraph, 76), "  ") for paragraph in paragraphs)


def _run(command: Any, debug: bool) -> int:
    from gristmill.cli.dialect import in_flags
    from gristmill.cli.values import UsageError
    from gristmill.errors import GristmillError, OptionError

    def show_warning(message: Warning | str, *_: Any) -> None:
        print(f"gristmill: warning: {in_flags(str(message), command)}", file=sys.stderr)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = show_warning  # type: ignore[assignment]
            return int(command.run())
    except BrokenPipeError:
        raise  # of stdout, for `main`
    except (GristmillError, OSError, MemoryError, UsageError) as error:
        if debug:
            raise
        is_memory = isinstance(error, MemoryError) and not isinstance(error, GristmillError)
        message = _out_of_memory(error, command) if is_memory else in_flags(_one_line(error), command)
        is_usage = isinstance(error, OptionError | UsageError)
        speaks = getattr(command, "runs_alone", False) or _speaks_for_all()
        if speaks or not (is_usage or getattr(error, "is_shown_by_first", False)):
            print(f"gristmill: error: {message}", file=sys.stderr)
        return WRONG_USAGE if is_usage else FAILED


def _out_of_memory(error: BaseException, command: Any) -> str:
    """What was too large, where the error names it, and the options of this command that help."""
    text = _one_line(error)
    detail = "" if text == "MemoryError" or text.startswith("out of memory") else f": {text.rstrip('.')}"
    helps = {"memory_limit": "--memory-limit", "threads": "fewer --threads"}
    options = [advice for field, advice in helps.items() if hasattr(command, field)]
    advice = f"Pass {' or '.join(options)}" if options else "Close other programs or raise the memory limit"
    return f"out of memory{detail}. {advice}."


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        from gristmill.corpus.inputs import shown

        return f"{shown(os.fsdecode(error.filename))}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # without its number
    return " ".join(str(error).split()) or type(error).__name__
