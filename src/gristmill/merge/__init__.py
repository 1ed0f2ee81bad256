"""merge: words -> merges, in the order of the naive algorithm with a given tie-break.

| in reading order | contents |
|---|---|
| `merges.py` | merges as arrays of ids: checks, conversion to bytes and back |
| `learning.py` | `learn_merges`: words -> merges; the loops are in `cpp/src/merge` |
"""

from gristmill.merge.learning import learn_merges
from gristmill.merge.merges import MergeIds, build_tokens, check_merges, find_ids

__all__ = ["MergeIds", "build_tokens", "check_merges", "find_ids", "learn_merges"]
