"""pretokenize: text -> pieces, the matches of a pattern.

This package is callable: `gristmill.pretokenize(text, pattern=…)` calls the function `pretokenize` in `cutting.py`.

>>> import gristmill as gm
>>> gm.pretokenize("It's 12,345 apples")
['It', "'s", ' 12', ',', '345', ' apples']

| in reading order | contents |
|---|---|
| `patterns.py` | the patterns: names, aliases and regular expressions |
| `pattern_size.py` | how large a regular expression may become when it is compiled |
| `stages.py` | patterns of several expressions that are applied one after the other |
| `pieces.py` | pieces of a text by the `regex` module, for patterns without a native matcher |
| `cutting.py` | `pretokenize(text)`: the pieces of one text |
| `worker_pool.py`, `worker.py` | processes that run patterns without a native matcher, to count and to encode |

The native matchers are in `cpp/src/pretokenize`. To add one, add a line to `NATIVE_PATTERNS` and a line or a matcher
there; ARCHITECTURE.md lists the places.
"""

import inspect
import sys
from collections.abc import Iterable
from types import ModuleType

from gristmill.pretokenize.cutting import pretokenize
from gristmill.pretokenize.patterns import DEFAULT_PATTERN, NATIVE_PATTERNS, Pattern, pattern_names, resolve_pattern

__all__ = ["NATIVE_PATTERNS", "Pattern", "pattern_names", "resolve_pattern"]


class _CallablePackage(ModuleType):
    """Makes this package callable. A function of the same name in `gristmill` would hide the package from imports."""

    def __call__(
        self, text: str | bytes, *, pattern: str = DEFAULT_PATTERN, special_tokens: Iterable[str] = ()
    ) -> list[str] | list[bytes]:
        """See `pretokenize` in `cutting.py`."""
        return pretokenize(text, pattern=pattern, special_tokens=special_tokens)


_CallablePackage.__call__.__doc__ = pretokenize.__doc__
# `help(gristmill.pretokenize)` shows the docstring of the package, so it starts with that of the function.
__doc__ = (
    f"pretokenize(text, *, pattern={DEFAULT_PATTERN!r}, special_tokens=()) -> list[str] | list[bytes]\n\n"
    f"{inspect.cleandoc(pretokenize.__doc__ or '')}\n\nThe package:\n\n{__doc__}"
)
sys.modules[__name__].__class__ = _CallablePackage
