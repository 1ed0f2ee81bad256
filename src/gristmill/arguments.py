"""Checks of the arguments of public functions, before any work is done. Each check returns the argument or raises."""

from __future__ import annotations

import inspect
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from gristmill.errors import OptionError, SpecialTokenError, TextError, VocabSizeError

Function = TypeVar("Function", bound=Callable[..., Any])

NUM_BYTE_TOKENS = 256
MAX_VOCAB_SIZE = 2**31
MIN_MEMORY_LIMIT = 32 << 20
# Without a limit, 100 MB of one repeated letter would give tokens of gigabytes and a file that cannot be loaded.
MAX_TOKEN_BYTES = 1 << 20
MAX_SPECIAL_BYTES = 8 << 20  # of all special tokens together; same limit as in the core
MAX_THREADS = 4096
MAX_NATIVE = 2**63 - 1  # the largest number that the core accepts
# The default of Python and the command line: the token that ends a document, so that documents can be separated again.
DEFAULT_SPECIAL_TOKENS = ("<|endoftext|>",)
TIE_BREAKS = ("greatest-bytes", "smallest-ids", "huggingface", "first-seen")
_HEADING = "Attributes:\n"  # of a docstring


def check_special_tokens(special_tokens: Iterable[str]) -> tuple[str, ...]:
    """Return the special tokens as a tuple. One may be a prefix of another: where both match, the longer one wins."""
    if isinstance(special_tokens, str):
        raise SpecialTokenError(
            f"special_tokens={special_tokens!r} is a str. Pass a list: special_tokens=[{special_tokens!r}]."
        )
    if isinstance(special_tokens, set | frozenset):
        raise SpecialTokenError("special_tokens is a set, but the order of special tokens sets their ids. Pass a list.")
    if isinstance(special_tokens, Mapping):
        raise SpecialTokenError(
            "special_tokens is a mapping, but the order of special tokens sets their ids. Pass a list. To keep the ids "
            "of a tokenizer file, call Tokenizer.load(path, special_tokens={…})."
        )
    try:
        specials = tuple(special_tokens)
    except TypeError:
        raise SpecialTokenError(f"special_tokens={special_tokens!r} is not a list. Pass a list of str.") from None
    seen: set[str] = set()
    for index, special in enumerate(specials):
        if not isinstance(special, str):
            raise SpecialTokenError(
                f"special_tokens[{index}]={special!r} is of type {type(special).__name__}. Pass str."
            )
        if not special:
            raise SpecialTokenError(f"special token {index + 1} is empty and would match everywhere. Remove it.")
        try:
            special.encode()
        except UnicodeEncodeError:
            raise SpecialTokenError(
                f"special_tokens[{index}]={special!r} contains a lone surrogate, which cannot be encoded as UTF-8. "
                f"Pass valid Unicode text."
            ) from None
        if special in seen:
            raise SpecialTokenError(
                f"special token {special!r} is given twice, but can have only one id. Remove one of them."
            )
        seen.add(special)
    num_bytes = sum(len(special.encode()) for special in specials)
    if num_bytes > MAX_SPECIAL_BYTES:
        raise SpecialTokenError(
            f"the special tokens have {num_bytes:,} bytes together; at most {MAX_SPECIAL_BYTES:,} are allowed. "
            f"Pass fewer or shorter special tokens."
        )
    return specials


def check_vocab_size(vocab_size: Any, num_specials: int) -> int:
    """Return `vocab_size` if it is large enough for the bytes and the special tokens.

    >>> check_vocab_size(257, 1)
    257
    """
    size = check_whole_number("vocab_size", vocab_size, VocabSizeError)
    needed = NUM_BYTE_TOKENS + num_specials
    if size < needed:
        specials = f" and {num_specials:,} special token{'s' * (num_specials != 1)}" if num_specials else ""
        raise VocabSizeError(
            f"vocab_size={size} is too small: 256 byte tokens{specials} already need {needed}. "
            f"Pass vocab_size >= {needed}."
        )
    if size > MAX_VOCAB_SIZE:
        raise VocabSizeError(f"vocab_size must be <= {MAX_VOCAB_SIZE}, got {size}.")
    return size


def check_num_threads(num_threads: Any) -> int:
    """Return the number of threads. None means all cores available to this process."""
    if num_threads is None:
        return usable_cores()
    number = _at_least(1, "num_threads", num_threads, "Leave it out to use every core")
    if number > MAX_THREADS:
        raise OptionError(f"num_threads must be <= {MAX_THREADS}, got {number}. Leave it out to use every core.")
    return number


def usable_cores() -> int:
    """Return the number of cores available to this process. A container or `taskset` may restrict it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_memory_limit(memory_limit: Any) -> int | None:
    """Return the limit in bytes, or None for no limit."""
    if memory_limit is None:
        return None
    limit = check_whole_number("memory_limit", memory_limit)
    if limit < MIN_MEMORY_LIMIT:
        raise OptionError(
            f"memory_limit={limit} is too small: buffers and tables alone need {MIN_MEMORY_LIMIT} bytes (32 MiB). "
            f"Pass memory_limit >= {MIN_MEMORY_LIMIT}, or leave it out for no limit."
        )
    return min(limit, MAX_NATIVE)


def check_min_frequency(min_frequency: Any) -> int:
    """Return `min_frequency` if it is at least 1."""
    return min(_at_least(1, "min_frequency", min_frequency, "Pass 1 to keep every word"), MAX_NATIVE)


def check_max_token_bytes(max_token_bytes: Any) -> int:
    """Return the maximum length of a token. None means the upper limit."""
    if max_token_bytes is None:
        return MAX_TOKEN_BYTES
    return min(_at_least(1, "max_token_bytes", max_token_bytes, "Leave it out for 1 MiB"), MAX_TOKEN_BYTES)


def check_kernel() -> None:
    """Raise if the environment variable GRISTMILL_KERNEL names a kernel that this machine cannot run."""
    from gristmill import _core

    try:
        _core.default_kernel()
    except ValueError as error:
        raise OptionError(str(error)) from None


def check_tie_break(tie_break: Any) -> str:
    """Return `tie_break` if it names a rule for pairs with equal counts."""
    return check_choice("tie_break", tie_break, TIE_BREAKS)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`. `name` is the name of the argument.

    >>> check_choice("format", "nanogtp", ["nanogpt", "llmc"])
    Traceback (most recent call last):
    gristmill.errors.OptionError: format='nanogtp' is not valid. Did you mean 'nanogpt'? Pass one of 'nanogpt', 'llmc'.
    """
    names = list(choices)
    if not isinstance(value, str) or value not in names:
        wrong = (
            f"is not valid.{nearest(value, names)}" if isinstance(value, str) else f"is of type {type(value).__name__}."
        )
        raise OptionError(f"{name}={value!r} {wrong} Pass one of {', '.join(map(repr, names))}.")
    return value


def nearest(name: Any, names: Iterable[str]) -> str:
    """Return " Did you mean …?" with the one of `names` that is most similar to `name`, or "" if none is similar.

    A name with all the words is preferred over misspellings, misspellings over initials, and initials over
    abbreviations.

    >>> [nearest(name, ["huggingface", "tiktoken", "learning-rate"]) for name in ("tiktokn", "lr", "hf", "xyz")]
    [" Did you mean 'tiktoken'?", " Did you mean 'learning-rate'?", " Did you mean 'huggingface'?", '']
    >>> nearest("val-interval", ["log-interval", "val-check-interval"])
    " Did you mean 'val-check-interval'?"
    """
    close = _nearest(name, list(names)) if isinstance(name, str) else None
    return "" if close is None else f" Did you mean {close!r}?"


def _nearest(name: str, names: list[str]) -> str | None:
    import difflib

    plain = {_plain(other): other for other in reversed(names)}  # reversed: the first of equal names wins
    asked = _plain(name)
    words = set(asked.split("-"))
    longer = [other for other in plain if len(words) > 1 and words < set(other.split("-"))]
    close = sorted(longer, key=len) or difflib.get_close_matches(asked, plain, n=1)
    if close:
        return plain[close[0]]
    if len(asked) < 2:
        return None
    initials = [other for other in plain if "".join(word[0] for word in other.split("-") if word) == asked]
    abbreviated = [other for other in plain if _abbreviates(asked, other)]
    found = initials or sorted(abbreviated, key=len)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").strip("-")


def _abbreviates(letters: str, name: str) -> bool:
    """Whether `name` begins with the first of `letters` and contains the others later, in order."""
    rest = iter(name)
    return name.startswith(letters[0]) and all(letter in rest for letter in letters)


def _at_least(least: int, name: str, value: Any, advice: str) -> int:
    number = check_whole_number(name, value)
    if number < least:
        raise OptionError(f"{name} must be >= {least}, got {number}. {advice}.")
    return number


def check_switch(name: str, value: Any) -> bool:
    """Return `value` if it is True or False. A string such as "no" would count as True."""
    if not isinstance(value, bool):
        raise OptionError(f"{name}={value!r} is of type {type(value).__name__}. Pass True or False.")
    return value


def check_whole_number(name: str, value: Any, error: type[OptionError] = OptionError) -> int:
    """Return `value` as an int if it has an integer type. `name` is the name of the argument."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise error(f"{name}={value!r} is of type {type(value).__name__}. Pass an int.") from None


def check_option_names(
    function: str, given: Iterable[str], known: Iterable[str], other_names: Mapping[str, str] | None = None
) -> None:
    """Raise TypeError for an unknown keyword, as Python does, with the most similar name.

    other_names: names of options in other programs, mapped to their names here.

    >>> check_option_names("train", ["max_step"], ["max_steps", "seed"])
    Traceback (most recent call last):
    TypeError: train() got an unexpected keyword argument 'max_step'. Did you mean 'max_steps'?
    """
    names = list(known)
    for name in given:
        if name not in names:
            hint = nearest((other_names or {}).get(name, name), names) or f" It accepts {', '.join(names)}."
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}.{hint}")


def show_options(options: type, defaults: Mapping[str, Any]) -> Callable[[Function], Function]:
    """Decorate a function that ends in `**options`, so that help() and editors show each option.

    options: the TypedDict of the options. Its docstring, without the first paragraph, is appended to that of the
        function, with the heading `Options:` instead of `Attributes:`.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        *own, _ = signature.parameters.values()
        types = {name: getattr(kind, "__forward_arg__", kind) for name, kind in options.__annotations__.items()}
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
            for name, default in defaults.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        meanings = inspect.cleandoc(options.__doc__ or "").partition("\n\n")[2]
        if meanings.startswith(_HEADING):
            meanings = f"Options:\n{meanings.removeprefix(_HEADING)}"
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{meanings}\n"
        return function

    return decorate


def as_utf8(text: Any, name: str) -> bytes:
    r"""Return the bytes of a text: `str` as UTF-8, `bytes` unchanged. `name` describes the text in messages.

    >>> as_utf8("Zoë", "the text")
    b'Zo\xc3\xab'
    """
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise TypeError(f"{name} is of type {type(text).__name__}. Pass str or bytes.")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"{name} cannot be encoded as UTF-8: {text[error.start]!r} at character {error.start} is a lone surrogate. "
            f"Pass bytes, such as text.encode('utf-8', 'surrogatepass')."
        ) from None
