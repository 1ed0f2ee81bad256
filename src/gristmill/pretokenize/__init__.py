"""pretokenize: text -> pieces, the matches of a pattern.

This package can be called: `gristmill.pretokenize(text, pattern=…)` is the function of that name in `cutting.py`.

>>> import gristmill as gm
>>> gm.pretokenize("It's 12,345 apples")
['It', "'s", ' 12', ',', '345', ' apples']

| in reading order | holds |
|---|---|
| `patterns.py` | the patterns: names, aliases, regular expressions, and what each of them means |
| `stages.py` | patterns of several expressions, one after the other |
| `pieces.py` | pieces of a text by the `regex` module, for patterns without a native matcher |
| `cutting.py` | `pretokenize(text)`: the pieces of one text |
| `worker_pool.py`, `worker.py` | processes that run such patterns, for counting and for encoding |

The native matchers are in `cpp/src/pretokenize`. Adding one is a line in `NATIVE_PATTERNS` and a line or a matcher
there: ARCHITECTURE.md lists the places.
"""

import inspect
import sys
from collections.abc import Iterable
from types import ModuleType

from gristmill.pretokenize.cutting import pretokenize
from gristmill.pretokenize.patterns import DEFAULT_PATTERN, NATIVE_PATTERNS, Pattern, pattern_names, resolve_pattern

__all__ = ["NATIVE_PATTERNS", "Pattern", "pattern_names", "resolve_pattern"]


class _CallablePackage(ModuleType):
    """This package as a function: a function of its name in `gristmill` would hide it from `import … as …`."""

    def __call__(
        self, text: str | bytes, *, pattern: str = DEFAULT_PATTERN, special_tokens: Iterable[str] = ()
    ) -> list[str] | list[bytes]:
        """See `pretokenize` in `cutting.py`."""
        return pretokenize(text, pattern=pattern, special_tokens=special_tokens)


_CallablePackage.__call__.__doc__ = pretokenize.__doc__
# `help(gristmill.pretokenize)` shows the docstring of a package first: there, users look for the function.
__doc__ = (
    f"pretokenize(text, *, pattern={DEFAULT_PATTERN!r}, special_tokens=()) -> list[str] | list[bytes]\n\n"
    f"{inspect.cleandoc(pretokenize.__doc__ or '')}\n\nThe package:\n\n{__doc__}"
)
sys.modules[__name__].__class__ = _CallablePackage
