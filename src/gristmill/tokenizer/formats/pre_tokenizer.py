r"""Conversion between the `pre_tokenizer` of a Hugging Face `tokenizer.json` and a pattern.

| step | expression |
|---|---|
| `Split` by a regular expression or a string, `behavior` "Isolated" | the same |
| `Digits`, `individual_digits` true or false | `\p{N}` or `\p{N}+` |
| `ByteLevel` as the last step, `add_prefix_space` false | GPT-2's with `use_regex`, none without |

One expression is an ordinary pattern. Several, as in StarCoder and DeepSeek, are a pattern in stages
(`pretokenize/stages.py`). Any other step raises an error with its name, because ids would differ.
"""

from __future__ import annotations

import re
from typing import Any

from gristmill.errors import FormatWarning, TokenizerFormatError, warn_user
from gristmill.pretokenize.patterns import CLASSIC, WHOLE_TEXT, Pattern, resolve_pattern
from gristmill.pretokenize.stages import in_stages, stages

_LIKE_A_NAME = re.compile(r"[\w.-]+")  # `resolve_pattern` would look it up as a name
READ = (
    "Supported are ByteLevel without add_prefix_space as the last step and, before it, Digits and Split with "
    "behavior='Isolated' and invert=false."
)


def dump_pre_tokenizer(pattern: Pattern) -> dict[str, Any]:
    """Return the `pre_tokenizer` of the pattern."""
    if pattern.name == "gpt2":
        return byte_level(use_regex=True)
    if pattern.regex == WHOLE_TEXT:
        return byte_level(use_regex=False)
    if pattern.name is None:
        warn_user(
            f"the pattern {pattern.regex!r} is written unchanged, but Hugging Face's regex engine (Oniguruma) may "
            f"interpret it differently. Compare ids before you rely on them.",
            FormatWarning,
        )
    expressions = stages(pattern.regex) if pattern.name is None else [CLASSIC[pattern.name]]
    splits = [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        for expression in expressions
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level(use_regex=False)]}


def byte_level(*, use_regex: bool) -> dict[str, Any]:
    """Return the step that turns bytes into characters. With `use_regex` it also cuts by GPT-2's expression."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def read_pre_tokenizer(section: Any) -> Pattern:
    """Return the pattern of a `pre_tokenizer`. Raises TokenizerFormatError with the name of an unsupported step."""
    steps = _steps(section)
    if not steps or _kind(steps[-1]) != "ByteLevel":
        raise _refused(f"the pre-tokenizer {[_kind(step) for step in steps]!r:.200}, which does not end in ByteLevel")
    expressions = [_read_step(step) for step in steps[:-1]]
    last = steps[-1]
    if last.get("add_prefix_space", True) is not False:
        raise TokenizerFormatError(
            "has add_prefix_space=true, which puts a space before every text. Gristmill does not support it."
        )
    if last.get("use_regex", True):
        expressions.append(CLASSIC["gpt2"])
    if len(expressions) != 1:
        return resolve_pattern(in_stages(expressions) or WHOLE_TEXT)
    # Some files have literal line breaks where the published expression has \r and \n.
    escaped = resolve_pattern(expressions[0].replace("\r", r"\r").replace("\n", r"\n"))
    return resolve_pattern(expressions[0]) if escaped.name is None else escaped


def _steps(section: Any) -> list[Any]:
    if _kind(section) != "Sequence":
        return [section]
    steps = section.get("pretokenizers")
    return [inner for step in steps for inner in _steps(step)] if isinstance(steps, list) else [steps]


def _kind(step: Any) -> Any:
    if isinstance(step, dict):
        return step.get("type")
    return None if isinstance(step, str) else step  # a text is not a step, even if it is the name of one


def _read_step(step: Any) -> str:
    match step:
        case {"type": "Split", "pattern": {"Regex": str(regex)}} if regex:
            return _read_split(step, f"(?:{regex})" if _LIKE_A_NAME.fullmatch(regex) else regex)
        case {"type": "Split", "pattern": {"String": str(text)}} if text:
            return _read_split(step, f"(?:{re.escape(text)})")
        case {"type": "Digits"}:
            return r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
    where = ", which is not the last step" if _kind(step) == "ByteLevel" else ""
    raise _refused(f"the pre-tokenizer {_kind(step)!r:.80}{where}")


def _read_split(split: dict[str, Any], regex: str) -> str:
    name = resolve_pattern(regex.replace("\r", r"\r").replace("\n", r"\n")).name
    how = split.get("behavior"), split.get("invert", False)
    # ("Removed", True) keeps only the matches, which is the same for a pattern that matches all text.
    if how != ("Isolated", False) and not (how == ("Removed", True) and name is not None):
        raise _refused(f"a Split with behavior={how[0]!r:.40} and invert={how[1]!r:.40}")
    # The constructs below have another meaning inside escapes and classes, so these are removed first.
    bare = re.sub(r"\[(?:\\.|[^\]\\])*\]|\\[pPx]\{[^}]*\}|\\.", "x", regex, flags=re.S)
    unlike = ["{m,n}+"] * ("}+" in bare) + ["^ or $"] * (name is None and re.search(r"[$^]", bare) is not None)
    if unlike:
        warn_user(
            f"the pattern {regex!r} contains {' and '.join(unlike)}, which Hugging Face's regex engine (Oniguruma) "
            f"interprets differently from the `regex` module. Compare ids before you rely on them.",
            FormatWarning,
        )
    return regex


def _refused(what: str) -> TokenizerFormatError:
    return TokenizerFormatError(f"has {what}: ids would differ. {READ}")
