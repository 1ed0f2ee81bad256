"""gristmill report: write an HTML report of a run, a tokenizer or shards, or compare runs or tokenizers."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, ProfileOut, UsageError, check_output
from gristmill.cli.table import pairs
from gristmill.cli.texts import TextFiles, named_files
from gristmill.cli.tokenizers import AllowedSpecial, allowed
from gristmill.packages import require_packages

if TYPE_CHECKING:
    from gristmill.report.kinds import Kind


@dataclass(frozen=True, kw_only=True)
class Command:
    """Write the report of a training run, a tokenizer or a folder of shards, or compare runs or tokenizers.

    One run: writes report.html (self-contained), report.md (a summary) and plots/ (the curves as PNG files) to its
    folder. One tokenizer or folder of shards: writes one page. Two or more runs, or two or more tokenizers: writes one
    page that compares them.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Write report.html, report.md and plots into the folder of the run.", "gristmill report run"),
        ("Compare two runs on one page.", "gristmill report run-a run-b -o comparison.html"),
        (
            "Measure a tokenizer on two languages.",
            "gristmill report tok.json --text en=en.txt --text ja=ja.txt -o tok.html",
        ),
        ("Show the documents and tokens of shards.", "gristmill report shards -o shards.html"),
    )

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PATH…", help_behavior_hint="")]
    """Run folder of `gristmill train-model`, tokenizer file or folder, name of a published tokenizer such as gpt2
    or openai-community/gpt2, or folder of shards. Pass two or more runs, or two or more tokenizers, to compare them.
    Put paths before the option --allowed-special."""

    output: Annotated[
        Path | None,
        tyro.conf.arg(aliases=["-o"], metavar="FILE", help_behavior_hint="(default: report.html or comparison.html)"),
    ] = None
    """HTML file to write. The report of one run is always written to its folder."""

    overwrite: Flag = False
    """Replace an existing page."""

    text: TextFiles = ()
    """Text file to measure a tokenizer on, with an optional name such as a language. Only its first 10 MB are used."""

    pattern: Annotated[str | None, tyro.conf.arg(metavar="NAME|REGEX", help_behavior_hint="")] = None
    """Pattern of tokenizers whose format does not store it, such as .tiktoken."""

    download: Flag = False
    """Download a published tokenizer that is not on this machine."""

    allowed_special: AllowedSpecial = ()
    """Special tokens that become their ids where a text contains them. all: every special token."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        require_packages("gristmill report", "matplotlib", "jinja2")
        if not self.paths:
            raise UsageError("no path given. Pass a run folder, a tokenizer or a folder of shards.")
        kind = self._kind()
        if kind != "tokenizer":
            self._refuse_options_of_tokenizers(kind)
        if kind == "run" and len(self.paths) == 1:
            return self._report_run(self.paths[0])
        output = self.output or Path("report.html" if len(self.paths) == 1 else "comparison.html")
        check_output(output, overwrite=self.overwrite, inputs=[str(path) for path in self.paths])
        if kind == "run":
            return self._compare_runs(output)
        return self._report_shards(output) if kind == "shards" else self._report_tokenizers(output)

    def _kind(self) -> Kind:
        """Return what all paths are; raise an error if one is unknown or they differ."""
        from gristmill.errors import FormatError
        from gristmill.report.kinds import KNOWN, kind_of

        kinds: list[Kind] = []
        for path in self.paths:
            kind = kind_of(path)
            if kind is None and not path.exists():
                raise FileNotFoundError(errno.ENOENT, "no such file or folder", str(path))
            if kind is None:
                raise FormatError(f"{path} is nothing that report knows. Pass {KNOWN}.")
            kinds.append(kind)
        for path, kind in zip(self.paths, kinds, strict=True):
            if kind != kinds[0]:
                self._refuse_missing_paths()
                raise UsageError(
                    f"{self.paths[0]} is {_in_words(kinds[0])}, but {path} is {_in_words(kind)}. "
                    f"Report them one at a time."
                )
        return kinds[0]

    def _refuse_missing_paths(self) -> None:
        """Raise an error for a path such as runs/b that has the form of a name on the Hub but is probably mistyped."""
        from gristmill.analysis.named_tokenizers import NAMES

        for path in self.paths:
            if not path.exists() and str(path) not in NAMES:
                raise FileNotFoundError(errno.ENOENT, "no such file or folder", str(path))

    def _refuse_options_of_tokenizers(self, kind: Kind) -> None:
        for option in ("text", "pattern", "download", "allowed_special"):
            if getattr(self, option):
                name = option.replace("_", "-")
                what = _in_words(kind)
                raise UsageError(f"--{name} applies to a tokenizer, but {self.paths[0]} is {what}. Omit --{name}.")

    def _report_run(self, run: Path) -> int:
        from gristmill.report import write_report

        if self.output is not None:
            raise UsageError("-o needs two or more runs. The report of one run is written to its folder. Omit -o.")
        page = write_report(run)
        plots = sorted((page.parent / "plots").glob("*.png"))
        rows = [("page", str(page)), ("summary", str(page.with_suffix(".md")))]
        if plots:
            rows.append(("plots", f"{len(plots)} in {plots[0].parent}"))
        print(pairs(rows))
        return 0

    def _compare_runs(self, output: Path) -> int:
        from gristmill.report import write_comparison

        page = write_comparison(self.paths, out=output, overwrite=self.overwrite)
        print(pairs([("page", str(page)), ("runs", f"{len(self.paths)}")]))
        return 0

    def _report_shards(self, output: Path) -> int:
        from gristmill.report import write_shards_report

        if len(self.paths) > 1:
            raise UsageError(f"a report covers one folder of shards, got {len(self.paths)}. Report them one at a time.")
        page = write_shards_report(self.paths[0], out=output, overwrite=self.overwrite)
        print(pairs([("page", str(page))]))
        return 0

    def _report_tokenizers(self, output: Path) -> int:
        from gristmill.report import write_tokenizer_comparison, write_tokenizer_report

        names = [str(path) for path in self.paths]
        texts, rule = named_files(self.text), allowed(self.allowed_special)
        rows = [("text", ", ".join(texts) if texts else "the built-in sample corpus (--text FILE to use another text)")]
        options: Any = {"pattern": self.pattern, "download": self.download, "overwrite": self.overwrite}
        if len(names) == 1:
            page = write_tokenizer_report(names[0], texts=texts, allowed_special=rule, out=output, **options)
        else:
            rows.append(("tokenizers", f"{len(names)}"))
            page = write_tokenizer_comparison(names, texts=texts, allowed_special=rule, out=output, **options)
        print(pairs([("page", str(page)), *rows]))
        return 0


def _in_words(kind: Kind) -> str:
    return {"run": "a run", "shards": "a folder of shards", "tokenizer": "a tokenizer"}[kind]
