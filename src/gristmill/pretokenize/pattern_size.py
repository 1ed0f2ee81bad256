r"""The size of a compiled regular expression: the `regex` module unrolls repeats and has no limit.

It compiles `a{1000}` to 1,000 copies of `a`, and `a+` to `aa*`, so each of several nested `+` doubles the size. A
pattern of 30 characters in someone else's tokenizer file could take all memory, or hours. Compiling also takes time
quadratic in the number of alternatives. `compiled_size` is never too small, and exact enough for patterns of people.
"""

from __future__ import annotations

import re

MAX_COMPILED_SIZE = 1 << 16  # the patterns of published tokenizers have up to 1,000

_MOST = 10**18
_TOKEN = re.compile(
    r"""(?P<comment> \(\?\#[^)]*\)? )
    | (?P<open> \( )
    | (?P<close> \) )
    | (?P<set> \[ )
    | (?P<repeat> (?: [*?] | (?P<plus>\+) | \{\s*+(?P<least>\d*+)\s*+(?P<more>,\s*+(?P<most>\d*+)\s*+)?\} ) [?+]? )
    | (?P<space> [\s] )
    | (?P<hash> \# )
    | \\. | .""",
    re.VERBOSE | re.DOTALL,
)
_IN_SET = re.compile(r"\\.|.", re.DOTALL)
_VERBOSE = re.compile(r"\(\?[\w-]*x")
_ALL_VERBOSE = re.compile(r"\s*\(\?\w*x\w*\)")


def compiled_size(pattern: str) -> int:
    """Return an upper bound of the number of elements that the `regex` module compiles `pattern` to.

    >>> compiled_size("abc"), compiled_size("(?:ab){1000}"), compiled_size("(?:(?:a+)+)+")
    (3, 3000, 14)
    """
    if len(pattern) > MAX_COMPILED_SIZE:
        return len(pattern)
    # What is a comment depends on one flag, and where a set ends on another. A flag may be text, as in `[(?V1)]`, or
    # apply to a part. So the size is the largest of those for all meanings, or one that holds for all of them.
    flags = len(_VERBOSE.findall(pattern))
    if flags > 1 or (flags == 1 and not _ALL_VERBOSE.match(pattern)):
        return _size_without_structure(pattern)
    nested = (False, True) if "V1" in pattern else (False,)
    return max(_size(pattern, has_nested_sets=each, is_verbose=bool(flags)) for each in nested)


def _size(pattern: str, *, has_nested_sets: bool, is_verbose: bool) -> int:
    open_groups: list[int] = []  # the size of each before its current group
    before, last = 0, 0  # sizes in the current group: of all but the last element, and of the last one
    position = 0
    while token := _TOKEN.match(pattern, position):
        position = token.end()
        if token["open"]:
            open_groups.append(before + last)
            before, last = 0, 0
        elif token["close"]:
            if not open_groups:
                return _size_without_structure(pattern)
            before, last = open_groups.pop(), before + last
        elif token["repeat"]:
            last = min(last * _copies(token), _MOST)
        elif is_verbose and token["hash"]:
            position += len(pattern[position:].partition("\n")[0])
        elif not (token["comment"] or (is_verbose and token["space"])):
            if token["set"]:
                end = _end_of_set(pattern, position, has_nested_sets)
                if end is None:
                    return _size_without_structure(pattern)
                position = end
            before, last = before + last, position - token.start()
    return _size_without_structure(pattern) if open_groups else before + last


def _copies(repeat: re.Match[str]) -> int:
    if repeat["plus"]:
        return 2
    least = _number(repeat["least"])
    is_open = repeat["more"] is not None and _number(repeat["most"]) != least
    return max(least + is_open, 1)


def _number(digits: str | None) -> int:
    return min(int(digits[:19]), _MOST) if digits else 0


def _end_of_set(pattern: str, position: int, has_nested_sets: bool) -> int | None:
    """Return the end of the set that begins before `position`, or None if that depends on the version of the syntax."""
    if pattern.startswith("^", position):
        position += 1
    if pattern.startswith("]", position):
        if has_nested_sets:
            return None
        position += 1
    depth = 1
    while token := _IN_SET.match(pattern, position):
        position = token.end()
        depth += (token[0] == "[" and has_nested_sets) - (token[0] == "]")
        if depth == 0:
            return position
    return None


def _size_without_structure(pattern: str) -> int:
    """Return the size if every repeat applied to the whole pattern."""
    size = len(pattern)
    for token in _TOKEN.finditer(pattern):
        if token["repeat"]:
            size = min(size * _copies(token), _MOST)
    return size
