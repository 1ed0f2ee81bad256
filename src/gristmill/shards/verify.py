"""verify: whether a folder of shards is what its manifest says, byte for byte.

Checked are the manifest (its own checksum, the sums in it), the tokenizer (its fingerprint), every file (that it is
there, its size, its checksum), every id (below vocab_size), the documents (ends that increase, up to the last token),
and the inputs, as far as they are there (size, modified time, samples of the content). Memory stays at a few
megabytes, and nothing is changed.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gristmill.corpus.inputs import shown
from gristmill.errors import ShardsFormatError
from gristmill.notebook import html_table
from gristmill.progress import ProgressOption, open_progress
from gristmill.shards.explain import check_path
from gristmill.shards.inputs import find_changes
from gristmill.shards.layouts import LAYOUTS, recognize
from gristmill.shards.layouts.layout import read_head
from gristmill.shards.manifest import (
    EDITED,
    MANIFEST_FILE,
    SPLITS,
    InputEntry,
    Manifest,
    checksum_fits,
    has_files_of_runs,
    read_manifest,
)
from gristmill.shards.shards import load_tokenizer
from gristmill.shards.verify_files import FileChecks, Findings, Problem, entries_of, size_of, without_path

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer

__all__ = ["Problem", "Report", "verify_shards"]


NUM_SHOWN = 5  # problems


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What was checked, and what was found. Printed, it is a line, and one more for each of the first problems."""

    folder: str
    manifest: Manifest | None  # None where it could not be read
    problems: tuple[Problem, ...]
    num_files: int  # of shards and indexes, read to their end
    num_bytes: int
    num_tokens: int
    num_documents: int
    num_inputs: int
    unchecked: tuple[str, ...]  # what could not be checked, and why
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found."""
        return not self.problems

    def __repr__(self) -> str:
        number = len(self.problems)
        found = f"{number:,} problem{'s' * (number != 1)}" if number else "all sound"
        lines = [f"<Report: {str(self.folder)!r}, {found}; {self._checked()}>"]
        lines += [f"  {shown(str(problem))}" for problem in self.problems[:NUM_SHOWN]]
        if number > NUM_SHOWN:
            lines.append(f"  … and {number - NUM_SHOWN:,} more in .problems")
        return "\n".join(lines)

    def _checked(self) -> str:
        unchecked = f", {len(self.unchecked):,} not checked" * bool(self.unchecked)
        return (
            f"{self.num_files:,} files, {self.num_bytes:,} bytes, {self.num_tokens:,} tokens, "
            f"{self.num_inputs:,} inputs{unchecked}"
        )

    def _repr_html_(self) -> str:
        rows = [("folder", self.folder), ("sound", "yes" if self.is_sound else "no"), ("checked", self._checked())]
        rows += [(problem.where, problem.what) for problem in self.problems[:NUM_SHOWN]]
        if len(self.problems) > NUM_SHOWN:
            rows.append(("…", f"{len(self.problems) - NUM_SHOWN:,} more problems"))
        return html_table("Report of verify_shards", rows)


def verify_shards(folder: str | os.PathLike[str], *, inputs: bool = True, progress: ProgressOption = None) -> Report:
    """Check all that a folder of shards holds, and return what was found; damage is a problem in the report, no error.

    inputs: also whether the files of the corpus are still what they were, as far as they are there.

    A folder that is unfinished, or not one of shards, is a `ShardsFormatError`: there is nothing to hold it against.
    """
    began = time.perf_counter()
    place, data, findings = Path(check_path(folder)), _read_manifest(folder), Findings()
    manifest = _check_manifest(place, data, findings)
    if manifest is not None:
        with open_progress(progress) as on_progress:
            files = FileChecks(place, manifest, findings, on_progress)
            _check_extra_files(place, manifest, findings)
            _check_tokenizer(place, manifest, findings)
            _check_sums(manifest, findings)
            files.check()
            for entry in manifest.inputs if inputs else ():
                _check_input(entry, findings)
    return Report(
        folder=os.fspath(folder),
        manifest=manifest,
        problems=tuple(findings.problems),
        num_files=findings.num_files,
        num_bytes=findings.num_bytes,
        num_tokens=findings.num_tokens,
        num_documents=findings.num_documents,
        num_inputs=findings.num_inputs,
        unchecked=tuple(findings.unchecked),
        seconds=time.perf_counter() - began,
    )


def _read_manifest(folder: str | os.PathLike[str]) -> bytes:
    try:
        return read_manifest(folder)
    except ShardsFormatError:
        found = None if has_files_of_runs(Path(folder)) else recognize(Path(folder))
        if found is None:
            raise
    raise ShardsFormatError(
        f"{shown(folder)}: it holds {found[0].name} files of another program, with no manifest to check them "
        f"against. Shards reads them; only folders that encode_corpus() made can be verified."
    )


def _check_manifest(folder: Path, data: bytes, findings: Findings) -> Manifest | None:
    """What the manifest says; None for one that cannot be believed at all, of which no file is opened."""
    path = folder / MANIFEST_FILE
    try:
        manifest = Manifest.from_json(data, path)
    except ShardsFormatError as error:
        findings.found("manifest", MANIFEST_FILE, without_path(error, path))
        return None
    if not checksum_fits(data):
        findings.found("manifest", MANIFEST_FILE, EDITED)
    return manifest


def _check_extra_files(folder: Path, manifest: Manifest, findings: Findings) -> None:
    """Find what looks like a shard and is not named: a reader that takes all files of a folder would read it."""
    layout = LAYOUTS[manifest.layout]
    named = {name for entry in entries_of(manifest) for name in (entry.file, entry.index)}
    ours = [file("x", split, 0) for file in (layout.token_file, layout.index_file) for split in SPLITS]
    suffixes = tuple(name[name.index(".") :] for name in ours if name is not None)
    for name in sorted(os.listdir(folder)):  # noqa: PTH208  names are all that is needed
        if name.endswith(suffixes) and name not in named and not name.startswith("."):
            findings.found("files", name, "it looks like a shard, but is not in the manifest.")


def _check_tokenizer(folder: Path, manifest: Manifest, findings: Findings) -> None:
    name = manifest.tokenizer_file
    if size_of(folder, name, findings) is None:
        return
    try:
        tokenizer = load_tokenizer(manifest, folder)
    except ShardsFormatError as error:
        findings.found("tokenizer", name, without_path(error, folder / name))
        return
    _check_extra_content(folder, manifest, tokenizer, findings)
    there, said = tokenizer.vocab_size, manifest.vocab_size
    if there != said:
        findings.found("tokenizer", name, f"its vocabulary has {there:,} ids, and the manifest says {said:,}.")
    mark = manifest.end_of_text
    if mark is not None and tokenizer.special_tokens.get(mark.token) != mark.id:
        findings.found("tokenizer", name, f"its special token {mark.token!r} does not have the id {mark.id}.")


def _check_extra_content(folder: Path, manifest: Manifest, tokenizer: Tokenizer, findings: Findings) -> None:
    """Check what stands beside the token files: it follows from the tokenizer, byte for byte."""
    layout = LAYOUTS[manifest.layout]
    for name in layout.extra_names:
        if not os.path.lexists(folder / name):  # shards of an earlier version have none
            findings.unchecked.append(f"{name}: it is not there.")
        elif size_of(folder, name, findings) is not None:
            expected = layout.extra_file(name, tokenizer.vocab, tokenizer.vocab_size)
            if read_head(folder / name, len(expected) + 1) != expected:
                findings.found("files", name, "it does not follow from the tokenizer. Encode again, or restore it.")


def _check_sums(manifest: Manifest, findings: Findings) -> None:
    for name, split in manifest.splits.items():
        for what in ("documents", "tokens"):
            said, there = getattr(split, what), sum(getattr(entry, what) for entry in split.shards)
            if said != there:
                message = f"splits.{name}.{what} is {said:,}, and its shards have {there:,}."
                findings.found("manifest", MANIFEST_FILE, message)


def _check_input(entry: InputEntry, findings: Findings) -> None:
    """Check whether a file of the corpus is still what it was when it was read."""
    if entry.skipped is not None:
        findings.unchecked.append(f"{shown(entry.path)}: it was skipped when the shards were made.")
        return
    if "://" in entry.path:
        findings.unchecked.append(f"{shown(entry.path)}: it is not a local file.")
        return
    try:
        changes = find_changes(entry)
    except (FileNotFoundError, NotADirectoryError):
        findings.unchecked.append(f"{shown(entry.path)}: it is not there.")
    except OSError as error:
        findings.unchecked.append(f"{shown(entry.path)}: it cannot be read: {error.strerror}.")
    except ValueError:  # a character that names do not have in the encoding of this system
        findings.unchecked.append(f"{shown(entry.path)}: no file can have this name here.")
    else:
        findings.num_inputs += 1
        if changes:
            findings.found("inputs", entry.path, f"it is not what was read: {', '.join(changes)}.")
