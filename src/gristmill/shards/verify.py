"""verify: check that a folder of shards matches its manifest, byte for byte.

It checks the manifest (its checksum, its totals), the tokenizer (its fingerprint), every file (existence, size,
checksum), every id (below vocab_size), the documents (increasing ends, up to the last token), and the inputs that
still exist (size, modification time, samples of the content). It needs a few megabytes of memory and changes nothing.
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
from gristmill.trace import span

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer

__all__ = ["Problem", "Report", "verify_shards"]


NUM_SHOWN = 5  # problems that the repr lists


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """Result of `verify_shards`. Its repr is one line, plus one line for each of the first problems."""

    folder: str
    manifest: Manifest | None  # None if it could not be read
    problems: tuple[Problem, ...]
    num_files: int  # shard and index files, read to their end
    num_bytes: int
    num_tokens: int
    num_documents: int
    num_inputs: int
    unchecked: tuple[str, ...]  # items that could not be checked, and why
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def __repr__(self) -> str:
        number = len(self.problems)
        found = f"{number:,} problem{'s' * (number != 1)}" if number else "no problems found"
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
    """Check every file in a folder of shards against its manifest, byte for byte.

    Damage is a problem in the report, not an exception. Nothing is changed.

    Args:
        folder: The folder of shards.
        inputs: Whether to check also that the files of the corpus have not changed, for those that still exist.
        progress: How to report progress; see `train_tokenizer`.

    Returns:
        A report; `is_sound` is True if there are no problems.

    Raises:
        ShardsFormatError: The folder is unfinished, or it has no manifest to check against.
        OSError: The folder does not exist or cannot be read.

    Examples:
        >>> import tempfile
        >>> from gristmill import Tokenizer, encode_corpus
        >>> tok = Tokenizer([(b"a", b"a")], special_tokens=["<|endoftext|>"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = encode_corpus(["aab", "b"], tok, out=folder, progress=None)
        ...     report = verify_shards(folder)
        >>> report.is_sound, report.num_tokens
        (True, 5)
    """
    began = time.perf_counter()
    place, data, findings = Path(check_path(folder)), _read_manifest(folder), Findings()
    manifest = _check_manifest(place, data, findings)
    if manifest is not None:
        with open_progress(progress) as on_progress:
            files = FileChecks(place, manifest, findings, on_progress)
            _check_extra_files(place, manifest, findings)
            with span("check tokenizer"):
                _check_tokenizer(place, manifest, findings)
            _check_sums(manifest, findings)
            files.check()
            with span("check inputs"):
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
        f"{shown(folder)}: it contains {found[0].name} files of another program and no manifest to check them "
        f"against. Shards reads them; verify_shards() checks only folders that encode_corpus() made."
    )


def _check_manifest(folder: Path, data: bytes, findings: Findings) -> Manifest | None:
    """Return the manifest; None if it is invalid, and then no file that it names is opened."""
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
    """Report unlisted files that look like shards: a program that reads all files of the folder would read them."""
    layout = LAYOUTS[manifest.layout]
    named = {name for entry in entries_of(manifest) for name in (entry.file, entry.index)}
    ours = [file("x", split, 0) for file in (layout.token_file, layout.index_file) for split in SPLITS]
    suffixes = tuple(name[name.index(".") :] for name in ours if name is not None)
    for name in sorted(os.listdir(folder)):  # noqa: PTH208  only the names are needed
        if name.endswith(suffixes) and name not in named and not name.startswith("."):
            findings.found("files", name, "the file looks like a shard but is not in the manifest. Remove it.")


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
        findings.found("tokenizer", name, f"its vocabulary has {there:,} ids; the manifest records {said:,}.")
    mark = manifest.end_of_text
    if mark is not None and tokenizer.special_tokens.get(mark.token) != mark.id:
        findings.found("tokenizer", name, f"its special token {mark.token!r} does not have the id {mark.id}.")


def _check_extra_content(folder: Path, manifest: Manifest, tokenizer: Tokenizer, findings: Findings) -> None:
    """Check the files beside the token files: the tokenizer determines their bytes."""
    layout = LAYOUTS[manifest.layout]
    for name in layout.extra_names:
        if not os.path.lexists(folder / name):  # shards of earlier versions lack it
            findings.unchecked.append(f"{name}: the file is missing.")
        elif size_of(folder, name, findings) is not None:
            expected = layout.extra_file(name, tokenizer.vocab, tokenizer.vocab_size)
            if read_head(folder / name, len(expected) + 1) != expected:
                findings.found("files", name, "the file does not match the tokenizer. Encode again, or restore it.")


def _check_sums(manifest: Manifest, findings: Findings) -> None:
    for name, split in manifest.splits.items():
        for what in ("documents", "tokens"):
            said, there = getattr(split, what), sum(getattr(entry, what) for entry in split.shards)
            if said != there:
                message = f"splits.{name}.{what} is {said:,}, but its shards add up to {there:,}."
                findings.found("manifest", MANIFEST_FILE, message)


def _check_input(entry: InputEntry, findings: Findings) -> None:
    """Check that a file of the corpus has not changed since it was read."""
    if entry.skipped is not None:
        findings.unchecked.append(f"{shown(entry.path)}: skipped when the shards were made.")
        return
    if "://" in entry.path:
        findings.unchecked.append(f"{shown(entry.path)}: not a local file.")
        return
    try:
        changes = find_changes(entry)
    except (FileNotFoundError, NotADirectoryError):
        findings.unchecked.append(f"{shown(entry.path)}: the file is missing.")
    except OSError as error:
        findings.unchecked.append(f"{shown(entry.path)}: cannot be read: {error.strerror}.")
    except ValueError:  # a character that the file system encoding does not have
        findings.unchecked.append(f"{shown(entry.path)}: not a valid file name on this system.")
    else:
        findings.num_inputs += 1
        if changes:
            findings.found("inputs", entry.path, f"the file has changed since it was read: {', '.join(changes)}.")
