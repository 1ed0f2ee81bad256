"""The command line: `gristmill COMMAND …`.

Each command is a module with a dataclass `Command`: its fields are the options, `run() -> int` does the work, and
`EXAMPLES` ends its help. A line in `GROUPS` registers it. Results go to stdout, progress and messages to stderr. Exit
codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted (Ctrl-C), 143 terminated (SIGTERM).
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["COMMANDS", "main"]

# Summary of each command, in the groups that the overview shows.
GROUPS = {
    "make a tokenizer": {
        "train-tokenizer": "train a byte-level BPE tokenizer on a corpus",
        "count-words": "count the words of a corpus once, to train several tokenizers",
        "extend": "enlarge the vocabulary of a tokenizer, using a corpus",
        "truncate": "shrink the vocabulary of a tokenizer",
        "export": "convert a tokenizer to the format of another library",
    },
    "use a tokenizer": {
        "tokenize": "show the ids and tokens of a text",
        "decode": "turn ids back into text",
        "count": "count the tokens of texts and files",
        "compare": "compare tokenizers on a text, and their vocabularies",
        "inspect": "show the contents of a tokenizer, shards or word counts",
    },
    "encode a corpus": {
        "encode": "encode a corpus into token shards",
        "verify": "check shards against their manifest",
        "task": "run encode or count-words as separate tasks, e.g. on Slurm",
    },
    "train a model": {
        "train-model": "train a language model on token shards or text",
        "evaluate": "compute loss, perplexity and bits per byte of a model",
        "generate": "generate text with a trained model",
        "export-model": "convert a trained model for transformers or llama.cpp",
    },
    "look at results": {
        "view": "show tokenizers, shards and runs on local web pages",
        "report": "write an HTML report of a run, a tokenizer or shards",
    },
    "other": {
        "bench": "measure this machine, beside other installed libraries",
        "sample-corpus": "write a sample corpus of children's stories",
        "completion": "print a shell completion script for bash, zsh or fish",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
_FIRST_WORDS = {name.partition("-")[0] for name in COMMANDS} - set(COMMANDS)

# What the system reports if a library does not fit in memory.
_NO_MEMORY_FOR_LIBRARY = (
    "failed to map segment from shared object",
    "cannot allocate memory",
    "Cannot allocate memory",
)

DONE, FAILED, WRONG_USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # do not fail on an ASCII terminal
    debug = os.environ.get("GRISTMILL_DEBUG", "") not in ("", "0")
    end_of_options = arguments.index("--") if "--" in arguments else len(arguments)
    if "--debug" in arguments[:end_of_options]:
        arguments.remove("--debug")
        debug = True
    if argv is None:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _dispatch(arguments, debug)
        if sys.stdout is not None:  # None if stdout was closed before the start
            sys.stdout.flush()
        return code
    except OSError as error:  # from stdout: all other errors are reported where they occur
        if debug and not isinstance(error, BrokenPipeError):
            raise
        _discard_output()
        if not isinstance(error, BrokenPipeError):  # the reader, such as `head`, has exited
            print(f"gristmill: error: standard output: {error.strerror or error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt as interruption:
        if argv is None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignore a second Ctrl-C: nothing is left to stop
        if debug:
            raise
        terminated = isinstance(interruption, _Terminated)
        if _is_reporter():
            print(f"gristmill: {'terminated' if terminated else 'interrupted'}", file=sys.stderr)
        return TERMINATED if terminated else INTERRUPTED


def _is_reporter() -> bool:
    """Return whether this process prints the messages that all processes of a launcher would print."""
    if "RANK" not in os.environ and "SLURM_PROCID" not in os.environ:
        return True
    from gristmill.errors import OptionError
    from gristmill.lm.training.launchers import is_first_process

    try:
        return is_first_process()
    except OptionError:
        return True


def _is_from_output(error: BaseException) -> bool:
    """Return whether an error comes from writing to stdout: errors of files have the name of the file."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return isinstance(error, OSError) and error.filename is None and error.errno in full


def _discard_output() -> None:
    """Redirect stdout to the null device, because Python would fail at exit when it flushes the buffer."""
    with contextlib.suppress(OSError, ValueError):  # stdout is not a file
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


class _Terminated(KeyboardInterrupt):
    """SIGTERM, cleaned up like Ctrl-C."""


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
    full_name = " ".join([name, *getattr(command, "ACTION", ())])
    return command if isinstance(command, int) else _run(command, full_name, debug)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n\n".join(
        "\n".join([f"{title}:", *(f"  {name:{width}}  {summary}" for name, summary in group.items())])
        for title, group in GROUPS.items()
    )
    return f"""\
Gristmill trains BPE tokenizers, encodes corpora and trains language models.

usage: gristmill COMMAND [OPTIONS]

{commands}

more:
  gristmill COMMAND --help   show options and examples of a command
  gristmill --version        show the version
  --debug                    with any command: show the traceback of an error

examples:
  gristmill sample-corpus -o stories.txt --size 50MB
  gristmill train-tokenizer stories.txt --vocab-size 8k -o tok.json
  gristmill tokenize -t tok.json "Once upon a time"
  gristmill export tok.json -f huggingface -o hf
  gristmill encode stories.txt -t tok.json -o shards --val-fraction 0.01
  gristmill train-model shards -o run --preset quickstart
  gristmill view run --open"""


def _refuse(name: str) -> int:
    from gristmill.arguments import nearest

    kind = "option" if name.startswith("-") else "command"
    # "trian" is nearest to "train", which is the first word of two commands.
    begun = {word: [command for command in COMMANDS if command.startswith(f"{word}-")] for word in _FIRST_WORDS}
    hint = nearest(name, [*COMMANDS, *begun, "--help", "--version"])
    for word, commands in begun.items():
        hint = hint.replace(repr(word), " or ".join(map(repr, commands)))
    print(f"gristmill: error: unknown {kind} {name!r}.{hint} See 'gristmill --help'.", file=sys.stderr)
    return WRONG_USAGE


def _parse(name: str, arguments: list[str]) -> Any:
    """Return the command with its options set, or the exit code if help or an error was printed."""
    import tyro

    from gristmill.cli.examples import examples_text
    from gristmill.cli.usage import HELP, check_usage
    from gristmill.cli.values import UsageError, registry
    from gristmill.errors import MissingPackageError, OptionError

    module = importlib.import_module(f"gristmill.cli.{name.replace('-', '_')}")
    try:
        if hasattr(module, "spelled_out"):  # short forms that tyro does not support
            arguments = module.spelled_out(arguments)
        # A command whose options depend on the arguments creates its class for them.
        command = module.command_class(arguments) if hasattr(module, "command_class") else module.Command
        full_name = " ".join([name, *getattr(command, "ACTION", ())])  # such as "task plan encode"
        check_usage(command, full_name, arguments)
        settings: dict[str, Any] = {
            "prog": f"gristmill {full_name}",
            "description": _description(command),
            "config": (tyro.conf.HelptextFromCommentsOff,),
            "registry": registry(),
        }
        if hasattr(module, "parse"):  # a command whose defaults depend on the arguments
            return module.parse(arguments, **settings)
        return tyro.cli(command, args=arguments, **settings)
    except SystemExit as error:
        if not error.code and any(flag in arguments for flag in HELP):
            print("\n" + examples_text(command.EXAMPLES))
        return error.code if isinstance(error.code, int) else WRONG_USAGE
    except (MissingPackageError, OptionError, OSError, UsageError) as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            raise  # from stdout, handled in `main`
        if _is_reporter():
            print(f"gristmill: error: {_one_line(error)}", file=sys.stderr)
        return WRONG_USAGE


def _description(command: type) -> str:
    """Return the wrapped docstring. Lines are indented, because tyro joins unindented lines into one."""
    import inspect
    import textwrap

    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n".join(textwrap.indent(textwrap.fill(paragraph, 76), "  ") for paragraph in paragraphs)


def _run(command: Any, name: str, debug: bool) -> int:
    from gristmill.cli.dialect import in_flags
    from gristmill.cli.values import UsageError
    from gristmill.errors import GristmillError, OptionError

    def show_warning(message: Warning | str, *_: Any) -> None:
        print(f"gristmill: warning: {in_flags(str(message), command)}", file=sys.stderr)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = show_warning  # type: ignore[assignment]
            with _profiled(command, name):
                return int(command.run())
    except BrokenPipeError:
        raise  # from stdout, handled in `main`
    except (GristmillError, OSError, MemoryError, UsageError, ImportError) as error:
        if debug or _is_from_output(error):
            raise  # from stdout, handled in `main`
        if isinstance(error, ImportError) and not isinstance(error, GristmillError):
            if not any(reason in str(error) for reason in _NO_MEMORY_FOR_LIBRARY):
                raise
            error = MemoryError(str(error))
        is_memory = isinstance(error, MemoryError) and not isinstance(error, GristmillError)
        message = _out_of_memory(error, command) if is_memory else in_flags(_one_line(error), command)
        is_usage = isinstance(error, OptionError | UsageError)
        reports = getattr(command, "runs_alone", False) or _is_reporter()
        if reports or not (is_usage or getattr(error, "is_shown_by_first", False)):
            print(f"gristmill: error: {message}", file=sys.stderr)
        return WRONG_USAGE if is_usage else FAILED


@contextlib.contextmanager
def _profiled(command: Any, name: str) -> Iterator[None]:
    """Record a trace of the block if the command has the option --profile-out."""
    path = getattr(command, "profile_out", None)
    # Processes that work together have one trace, that of the first: they all got the same file name.
    if path is None or not (getattr(command, "runs_alone", False) or _is_first()):
        yield
        return
    from gristmill.trace import recording, span

    trace = None
    try:
        with recording(path) as trace, span(f"gristmill {name}"):
            yield
    finally:
        if trace is not None and trace.is_saved:
            dropped = f", without {trace.num_dropped:,} that did not fit" if trace.num_dropped else ""
            spans = f"{trace.num_spans:,} span{'s' * (trace.num_spans != 1)}"
            print(f"gristmill: saved a trace of {spans} to {path}{dropped}", file=sys.stderr)


def _is_first() -> bool:
    """Return whether this is the first of the processes that train a model together."""
    if not any(name in os.environ for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")):
        return True
    from gristmill.lm.training.launchers import is_first_process

    return is_first_process()


def _out_of_memory(error: BaseException, command: Any) -> str:
    """Return the message of a memory error, with the options of this command that reduce memory use."""
    text = _one_line(error)
    detail = "" if text == "MemoryError" or text.startswith("out of memory") else f": {text.rstrip('.')}"
    helps = {"memory_limit": "--memory-limit", "threads": "fewer --threads"}
    options = [advice for field, advice in helps.items() if hasattr(command, field)]
    advice = f"Pass {' or '.join(options)}" if options else "Close other programs or raise the memory limit"
    return f"out of memory{detail}. {advice}."


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:  # the message of an empty path says so
        from gristmill.corpus.inputs import shown

        return f"{shown(os.fsdecode(error.filename))}: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # without its number
    return " ".join(str(error).split()) or type(error).__name__
