r"""The `pre_tokenizer` of a Hugging Face `tokenizer.json` as a pattern, and back.

| step | expression |
|---|---|
| `Split` by a regular expression or a string, `behavior` "Isolated" | it |
| `Digits`, `individual_digits` true or false | `\p{N}` or `\p{N}+` |
| `ByteLevel`, the last one, `add_prefix_space` false | GPT-2's with `use_regex`, none without |

One expression is a pattern as any other. Several, as StarCoder and DeepSeek have them, are a pattern in stages
(`pretokenize/stages.py`). Any other step is refused by its name: ids would differ.
"""

from __future__ import annotations

import re
from typing import Any

from gristmill.errors import FormatWarning, TokenizerFormatError, warn_user
from gristmill.pretokenize.patterns import CLASSIC, WHOLE_TEXT, Pattern, resolve_pattern
from gristmill.pretokenize.stages import in_stages, stages

_LIKE_A_NAME = re.compile(r"[\w.-]+")  # which `resolve_pattern` would look up
READ = (
    "Read are ByteLevel without add_prefix_space as the last step and, before it, Split with behavior='Isolated' and "
    "invert=false, and Digits."
)


def dump_pre_tokenizer(pattern: Pattern) -> dict[str, Any]:
    """What Hugging Face calls the pattern."""
    if pattern.name == "gpt2":
        return byte_level(use_regex=True)
    if pattern.regex == WHOLE_TEXT:
        return byte_level(use_regex=False)
    if pattern.name is None:
        warn_user(
            f"the pattern {pattern.regex!r} is written as it is, and Hugging Face reads it with another engine "
            f"(Oniguruma), to which some expressions mean something else. Compare ids before you rely on them.",
            FormatWarning,
        )
    expressions = stages(pattern.regex) if pattern.name is None else [CLASSIC[pattern.name]]
    splits = [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        for expression in expressions
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level(use_regex=False)]}


def byte_level(*, use_regex: bool) -> dict[str, Any]:
    """The step that turns bytes into characters; with `use_regex` it cuts by GPT-2's expression as well."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def read_pre_tokenizer(section: Any) -> Pattern:
    """The pattern that a `pre_tokenizer` means; `TokenizerFormatError`, naming the step, where none does."""
    steps = _steps(section)
    if not steps or _kind(steps[-1]) != "ByteLevel":
        raise _refused(f"the pre-tokenizer {[_kind(step) for step in steps]!r:.200}, which does not end in ByteLevel")
    expressions = [_read_step(step) for step in steps[:-1]]
    last = steps[-1]
    if last.get("add_prefix_space", True) is not False:
        raise TokenizerFormatError("has add_prefix_space=true, which would put a space before every text.")
    if last.get("use_regex", True):
        expressions.append(CLASSIC["gpt2"])
    if len(expressions) != 1:
        return resolve_pattern(in_stages(expressions) or WHOLE_TEXT)
    # Some files hold line breaks as they are where the published expression has \r and \n.
    escaped = resolve_pattern(expressions[0].replace("\r", r"\r").replace("\n", r"\n"))
    return resolve_pattern(expressions[0]) if escaped.name is None else escaped


def _steps(section: Any) -> list[Any]:
    if _kind(section) != "Sequence":
        return [section]
    steps = section.get("pretokenizers")
    return [inner for step in steps for inner in _steps(step)] if isinstance(steps, list) else [steps]


def _kind(step: Any) -> Any:
    return step.get("type") if isinstance(step, dict) else step


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
    # To keep only what matches is the same where everything matches.
    if how != ("Isolated", False) and not (how == ("Removed", True) and name is not None):
        raise _refused(f"a Split with behavior={how[0]!r:.40} and invert={how[1]!r:.40}")
    # Escapes and classes cannot hold what is looked for.
    bare = re.sub(r"\[(?:\\.|[^\]\\])*\]|\\[pPx]\{[^}]*\}|\\.", "x", regex, flags=re.S)
    unlike = ["{m,n}+"] * ("}+" in bare) + ["^ or $"] * (name is None and re.search(r"[$^]", bare) is not None)
    if unlike:
        warn_user(
            f"the pattern {regex!r} holds {' and '.join(unlike)}, which Hugging Face's engine (Oniguruma) reads in "
            f"another way than the `regex` module does. Compare ids before you rely on them.",
            FormatWarning,
        )
    return regex


def _refused(what: str) -> TokenizerFormatError:
    return TokenizerFormatError(f"has {what}: ids would differ. {READ}")
