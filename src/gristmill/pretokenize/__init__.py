"""pretokenize: text -> pieces, the matches of a pattern.

| in reading order | holds |
|---|---|
| `patterns.py` | the patterns: names, aliases, regular expressions, and what each of them means |
| `stages.py` | patterns of several expressions, one after the other |
| `pieces.py` | pieces of a text by the `regex` module, for patterns without a native matcher |
| `worker_pool.py`, `worker.py` | processes that run such patterns, for counting and for encoding |

The native matchers are in `cpp/src/pretokenize`. Adding one is a line in `NATIVE_PATTERNS` and a matcher there:
ARCHITECTURE.md lists the places.
"""

from gristmill.pretokenize.patterns import NATIVE_PATTERNS, Pattern, pattern_names, resolve_pattern

__all__ = ["NATIVE_PATTERNS", "Pattern", "pattern_names", "resolve_pattern"]
