"""Translation of messages for the command line: `num_threads=0` in Python becomes `--threads 0`.

Errors and warnings name options as keyword arguments and stages as functions. Before they are printed, options of the
running command are rewritten as flags with values in shell syntax, and functions as commands.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex

from gristmill.cli.usage import options_of

# Keyword arguments whose flag has another name.
OTHER_NAMES = {
    "num_threads": "threads",
    "num_workers": "workers",
    "part_bytes": "part_size",
    "num_texts": "num",
    "out": "output",
}
# Keyword arguments whose flag is the opposite.
OPPOSITES = {"use_cache": "no_cache"}

# Python functions and the equivalent commands.
COMMANDS = {
    "train_tokenizer": "train-tokenizer",
    "extend_tokenizer": "extend",
    "encode_corpus": "encode",
    "verify_shards": "verify",
    "count_words": "count-words",
    "lm.train": "train-model",
    "lm.evaluate": "evaluate",
    "lm.export": "export-model",
    "lm.generate": "generate",
    "lm.sample_texts": "generate",
    "sample_corpus.write_sample_corpus": "sample-corpus",
}
_FUNCTION = re.compile(rf"(?:\bgm\.|\bgristmill\.|(?<![\w.]))({'|'.join(map(re.escape, COMMANDS))})\b(?:\([^()]*\))?")

# Not inside a word, path, quotation or call, where the name is not an option of this command.
_START = r"(?<![\w.\-'\"/=|<])(?<!\w\()"
# A Python value in a message: a string, a bracketed list of strings, or a word.
_VALUE = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\[({][^\[\](){}]*[\])}]|[-+\w.…]*[\w…]|"""
_COMPARISON = r" (?:>=|<=|<|>|must |was |is for )"


def in_flags(message: str, command: object) -> str:
    """Return the message with options of `command` (or of its class) as flags, and functions as commands.

    >>> @dataclasses.dataclass
    ... class Command:
    ...     threads: int = 1
    ...     overwrite: bool = False
    ...     on_error: str = "raise"
    >>> in_flags("num_threads must be >= 1, got 0. Pass num_threads=1.", Command())
    '--threads must be >= 1, got 0. Pass --threads 1.'
    >>> in_flags("Pass overwrite=True, or on_error='skip'.", Command())
    'Pass --overwrite, or --on-error skip.'
    >>> in_flags("a.txt is text. Run gm.encode_corpus(...) first.", Command())
    'a.txt is text. Run `gristmill encode` first.'
    >>> in_flags("threads and overwrite exclude each other.", Command())
    '--threads and --overwrite exclude each other.'
    """
    message = _FUNCTION.sub(lambda found: f"`gristmill {COMMANDS[found[1]]}`", message)
    flags = _flags(command)
    if not flags:
        return message
    for on, off in OPPOSITES.items():
        message = re.sub(rf"{_START}{on}=False\b", flags.get(off, f"{on}=False"), message)
    name = "|".join(sorted(map(re.escape, flags), key=len, reverse=True))
    message = re.sub(rf"{_START}({name})=({_VALUE})", lambda found: _spelled(flags[found[1]], found[2]), message)

    def both(found: re.Match[str]) -> str:
        return f"{flags[found[1]]} and {flags[found[2]]}"

    message = re.sub(rf"{_START}({name}) and ({name})(?= (?:are both given|exclude each other)\b)", both, message)

    def alone(found: re.Match[str]) -> str:
        # A name with an underscore is always an option. A single word may be English, unless it is compared.
        is_option = ("_" in found[1] or found[2]) and flags[found[1]].startswith("--")
        return flags[found[1]] + (found[2] or "") if is_option else found[0]

    return re.sub(rf"{_START}(?<!the )({name})\b(?![=[('\"/|]|\.\w)({_COMPARISON})?", alone, message)


def _flags(command: object) -> dict[str, str]:
    """Return the flag of each keyword argument; a positional option maps to its metavar."""
    if not dataclasses.is_dataclass(command):
        return {}
    written = {
        option.name: option.metavar if option.is_positional else option.spellings[0]
        for option in options_of(command if isinstance(command, type) else type(command))
    }
    others = {name: written[field] for name, field in OTHER_NAMES.items() if field in written and name not in written}
    return written | others


def _spelled(flag: str, value: str) -> str:
    """Return a flag with the value of a Python repr in shell syntax."""
    if value in ("True", "False", "None"):
        return {"True": flag, "False": f"no {flag}", "None": f"{flag} none"}[value]
    try:
        plain = ast.literal_eval(value)
    except (ValueError, SyntaxError):  # a word, or a value shortened with "…"
        return f"{flag} {value}".rstrip()
    if isinstance(plain, dict):
        plain = [f"{name}={number}" for name, number in plain.items()]
    words = list(plain) if isinstance(plain, list | tuple | set) else [plain]
    return " ".join([flag, *(shlex.quote(str(word)) for word in words)])
