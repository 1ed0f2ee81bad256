"""gristmill verify: check a folder of shards against its manifest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.cli.choices import ProgressKind
from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, ProfileOut, format_size

if TYPE_CHECKING:
    from gristmill.shards import Manifest, Report

NUM_UNCHECKED_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Command:
    """Check a folder of shards: every file, id and document, and the inputs.

    The exit code is 0 if no problem was found and 1 otherwise. Each problem is one line
    that names the shard or input. A missing input is not a problem.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Check every shard, id, document and input.", "gristmill verify shards"),
        ("Check the shards only.", "gristmill verify shards --no-inputs"),
    )

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Folder written by `gristmill encode`."""

    no_inputs: Flag = False
    """Skip the check that the input files are unchanged."""

    progress: ProgressKind = "auto"
    """Progress on stderr: auto (a bar on a terminal), bar, jsonl (JSON Lines) or none."""

    profile_out: Annotated[ProfileOut, tyro.conf.arg(metavar="TRACE.json")] = None

    def run(self) -> int:
        from gristmill.shards import verify_shards

        report = verify_shards(
            self.folder, inputs=not self.no_inputs, progress=None if self.progress == "none" else self.progress
        )
        sections = [
            _table(report, with_inputs=not self.no_inputs),
            "\n".join(map(str, report.problems)),
            _unchecked(report),
            _verdict(report),
        ]
        print("\n\n".join(section for section in sections if section))
        return 0 if report.is_sound else 1


def _table(report: Report, *, with_inputs: bool) -> str:
    """Return a table of the checks and the number of problems that each found."""
    rows = [("check", "checked", "result"), ("manifest", "manifest.json", _result(report, "manifest"))]
    manifest = report.manifest
    if manifest is not None:
        shards = [entry for split in manifest.splits.values() for entry in split.shards]
        num_files = len(shards) + sum(entry.index is not None for entry in shards)
        files = f"{_share(report.num_files, num_files, 'file')}, {format_size(report.num_bytes)}"
        tokens = _share(report.num_tokens, sum(entry.tokens for entry in shards), "token")
        rows += [
            ("tokenizer", manifest.tokenizer_file, _result(report, "tokenizer")),
            ("files", files, _result(report, "files")),
            ("ids", tokens, _result(report, "ids")),
            ("documents", *_documents(report, manifest)),
        ]
        if with_inputs:
            inputs = _share(report.num_inputs, len(manifest.inputs), "file")
            rows.append(("inputs", inputs, _result(report, "inputs") if report.num_inputs else "-"))
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    return "\n".join(f"  {row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}" for row in rows)


def _documents(report: Report, manifest: Manifest) -> tuple[str, str]:
    if not report.num_documents and not _keeps_documents(manifest):
        return f"none: {manifest.layout} does not store boundaries", "-"
    total = sum(split.documents for split in manifest.splits.values())
    return _share(report.num_documents, total, "document"), _result(report, "documents")


def _keeps_documents(manifest: Manifest) -> bool:
    from gristmill.shards import LAYOUTS

    layout = LAYOUTS[manifest.layout]
    return layout.converts or layout.index_file("", "train", 0) is not None


def _share(number: int, total: int, what: str) -> str:
    return f"{f'{number:,} of ' * (number != total)}{total:,} {what}{'s' * (total != 1)}"


def _result(report: Report, check: str) -> str:
    number = Counter(problem.check for problem in report.problems)[check]
    return f"{number:,} problem{'s' * (number != 1)}" if number else "ok"


def _unchecked(report: Report) -> str:
    lines = [f"not checked: {note}" for note in report.unchecked[:NUM_UNCHECKED_SHOWN]]
    if len(report.unchecked) > NUM_UNCHECKED_SHOWN:
        lines.append(f"not checked: … {len(report.unchecked):,} in total")
    return "\n".join(lines)


def _verdict(report: Report) -> str:
    rate = f" ({report.num_bytes / 1e9 / report.seconds:.2f} GB/s)" if report.num_bytes > 1e8 else ""
    number = len(report.problems)
    found = f"{number:,} problem{'s' * (number != 1)} found" if number else "no problems found"
    return f"{report.folder}: {found}; checked in {report.seconds:.2f} s{rate}"
