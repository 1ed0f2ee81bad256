"""Page option: `--report [FILE.html]`, with which a long command also writes a page about its run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import tyro

from gristmill.cli.options import check_output
from gristmill.cli.values import UsageError
from gristmill.packages import require_packages
from gristmill.trace import current, recording

AUTO = "auto"  # value of a bare --report

PageFile: TypeAlias = Annotated[
    Path | None, tyro.conf.arg(metavar="[FILE.html]", help_behavior_hint="(default: the output, as .html)")
]


def spelled_out(arguments: list[str]) -> list[str]:
    """Return the arguments with a bare --report as --report auto: tyro supports no option with an optional value.

    >>> spelled_out(["c.txt", "--report", "-o", "tok.json"]), spelled_out(["--report", "page.html"])
    (['c.txt', '--report', 'auto', '-o', 'tok.json'], ['--report', 'page.html'])
    """
    spelled = []
    for index, argument in enumerate(arguments):
        spelled.append(argument)
        if argument == "--":
            return spelled + arguments[index + 1 :]
        if argument == "--report" and (index + 1 == len(arguments) or arguments[index + 1].startswith("-")):
            spelled.append(AUTO)
    return spelled


def page_file(report: Path | None, command: str, *, output: Path, default: Path, overwrite: bool) -> Path | None:
    """Return the page that --report asks for, after checking that it can be written: the work may take hours."""
    if report is None:
        return None
    require_packages(f"gristmill {command} --report", "matplotlib", "jinja2")
    page = default if str(report) == AUTO else report
    if page.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"--report {page} is not the name of a page. Pass a name that ends in .html, or put --report last."
        )
    if page == output:
        raise UsageError(f"--report {page} is also the output. Pass another name for one of them.")
    check_output(page, overwrite=overwrite)
    return page


def recorded_for(page: Path | None) -> contextlib.AbstractContextManager[Any]:
    """Return a context that records memory over time for the page, unless there is no page or --profile-out records."""
    return contextlib.nullcontext() if page is None or current() is not None else recording()
