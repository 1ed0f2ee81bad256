"""Skipped inputs: unreadable ones with on_error="skip", and files of a folder with suffixes that are not read."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from gristmill.corpus.inputs import SKIP_ADVICE, shown
from gristmill.errors import SkippedInputWarning, warn_user

NUM_SHOWN = 5
ErrorOfInput = TypeVar("ErrorOfInput", bound=Exception)
# Files that are often next to the files of a corpus but clearly not part of it.
_COMPANION = re.compile(
    r"(readme|licen[cs]e|notice|citation|changelog|dataset_infos?|dataset_dict|state)(\..*)?", re.IGNORECASE
)


def warn_of_skipped(reasons: Mapping[int, str], num_inputs: int) -> None:
    """Warn of skipped inputs with their reasons, by index among all inputs."""
    if not reasons:
        return
    shown = "; ".join(reasons[index] for index in sorted(reasons)[:NUM_SHOWN])
    more = len(reasons) - NUM_SHOWN
    warn_user(
        f"{len(reasons):,} of {num_inputs:,} inputs could not be read and were skipped: {shown}"
        + (f"; and {more:,} more" if more > 0 else ""),
        SkippedInputWarning,
    )


def without_skip_advice(error: ErrorOfInput) -> ErrorOfInput:
    """Return the error of an input without the advice to pass on_error='skip', which does not apply."""
    if error.args and isinstance(error.args[0], str):
        error.args = (error.args[0].replace(SKIP_ADVICE, ""), *error.args[1:])
    return error


def warn_of_left_out(left_out: Sequence[tuple[str, str]]) -> None:
    """Warn of the suffixes of files in folders that were skipped. `left_out` has (folder, name) of each.

    Not reported are files without a suffix, a README or LICENSE, the metadata files of Hugging Face datasets, and the
    files of a folder with a `tokenizer.json`, such as shards.
    """
    outputs = {os.path.dirname(name) for _, name in left_out if os.path.basename(name) == "tokenizer.json"}  # noqa: PTH119, PTH120
    reported = [(folder, name) for folder, name in left_out if _is_reported(name, outputs)]
    if not reported:
        return
    folders = sorted({folder for folder, _ in reported})
    where = shown(folders[0]) if len(folders) == 1 else f"{len(folders):,} folders"
    plural = "s" * (len(reported) != 1)
    warn_user(
        f"skipped {len(reported):,} file{plural} of {where} with suffixes that are not read as text: "
        f"{count_suffixes(name for _, name in reported)}. To include them, pass their paths or a glob.",
        SkippedInputWarning,
    )


def _is_reported(name: str, outputs: set[str]) -> bool:
    folder, base = os.path.split(name)
    return bool(_suffix(base)) and _COMPANION.fullmatch(base) is None and folder not in outputs


def count_suffixes(names: Iterable[str]) -> str:
    """Return the suffixes of files with their counts, the most frequent first.

    >>> count_suffixes(["a.md", "b.md", "c.csv.gz", "d"])
    '.md (2), .csv.gz (1), no suffix (1)'
    """
    counts = Counter(_suffix(os.path.basename(name)) or "no suffix" for name in names)  # noqa: PTH119
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{shown(suffix)} ({count:,})" for suffix, count in most[:NUM_SHOWN])
    return text + (f" and {len(most) - NUM_SHOWN:,} more" if len(most) > NUM_SHOWN else "")


def _suffix(base: str) -> str:
    stem, suffix = os.path.splitext(base.lower())  # noqa: PTH122
    return os.path.splitext(stem)[1] + suffix if suffix in (".gz", ".zst", ".zstd") else suffix  # noqa: PTH122
