"""gristmill count: count the tokens of texts and files."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from gristmill.cli.choices import ProgressKind
from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, ProfileOut, ReadingOptions, Threads
from gristmill.cli.streams import argument_bytes, stdin_as_file, stdin_is_given
from gristmill.cli.table import columns, pairs
from gristmill.cli.tokenizers import AllowedSpecial, TokenizerOptions, allowed, check_allowed
from gristmill.cli.values import UsageError

if TYPE_CHECKING:
    from gristmill import Tokenizer
    from gristmill.corpus import FoundFiles, Reading
    from gristmill.progress import OnProgress

MAX_READERS = 4
REPORT_SECONDS = 0.1
NUM_SHOWN = 40
WHAT_TO_PASS = "files, --string TEXT, or text through a pipe"


@dataclass(slots=True)
class Figures:
    """Numbers of documents, bytes and tokens of one file or of all files."""

    documents: int = 0
    bytes: int = 0
    tokens: int = 0

    def add(self, other: Figures) -> None:
        """Add the numbers of another file or of another part of this file."""
        self.documents += other.documents
        self.bytes += other.bytes
        self.tokens += other.tokens

    @property
    def ratio(self) -> float | None:
        """Bytes per token."""
        return self.bytes / self.tokens if self.tokens else None


@dataclass(frozen=True, kw_only=True)
class Command(ReadingOptions, TokenizerOptions):
    """Count the tokens of texts and files, in bounded memory.

    Files are read as `gristmill encode` reads them. Separators such as <|endoftext|> and the end-of-text ids that
    `encode` adds to documents are not counted.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Count the tokens of every file in a folder.", "gristmill count -t tok.json data"),
        ("Count the tokens of a text.", "gristmill count -t tok.json --string 'Once upon a time'"),
        ("Print one JSON object for a script.", "gristmill count -t tok.json corpus.txt --json"),
    )

    files: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE…", help_behavior_hint="")] = ()
    """Files, folders, URLs or globs. Reads stdin if omitted or -."""

    string: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")
    ] = ()
    """Text to count. Repeatable."""

    allowed_special: AllowedSpecial = ()
    """Special tokens that count as one token where the text contains them. all: every special token."""

    json: Flag = False
    """Print a JSON object instead of a table."""

    threads: Threads = None
    """Number of threads."""

    progress: ProgressKind = "auto"
    """Progress on stderr: auto (bars on a terminal), bar, jsonl (JSON Lines) or none."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        if self.string and self.files:
            raise UsageError("files and --string exclude each other. Pass one of them.")
        if not self.string and not self.files and not stdin_is_given():
            raise UsageError(f"nothing to count. Pass {WHAT_TO_PASS}.")
        if self.string:
            self._check_no_reading()
        tokenizer = self.load_tokenizer()
        check_allowed(self.allowed_special, tokenizer, self.tokenizer, "file")
        counted = self._count_strings(tokenizer) if self.string else self._count_files(tokenizer)
        total = Figures()
        for _, figures in counted:
            total.add(figures)
        print(_as_json(self.tokenizer, counted, total) if self.json else _as_table(counted, total))
        return 0

    def _count_strings(self, tokenizer: Tokenizer) -> list[tuple[str, Figures]]:
        counted = []
        for text in self.string:
            data = argument_bytes(text)
            num_tokens = tokenizer.count_tokens(data, allowed_special=allowed(self.allowed_special))
            counted.append(("--string", Figures(1, len(data), num_tokens)))
        return counted

    def _check_no_reading(self) -> None:
        for field in dataclasses.fields(ReadingOptions):
            if getattr(self, field.name) != field.default:
                flag = field.name.replace("_", "-")
                raise UsageError(f"--{flag} applies to files, not to --string. Omit --{flag}.")

    def _count_files(self, tokenizer: Tokenizer) -> list[tuple[str, Figures]]:
        from gristmill.corpus import Files, FoundFiles, Reading, open_corpus
        from gristmill.progress import open_progress

        reading = Reading.checked(self.read_options(), **_separator(tokenizer))
        with self._names() as (names, spooled), open_progress(self._progress()) as on_progress:
            files = open_corpus(Files(names), reading)
            assert isinstance(files, FoundFiles)  # the corpus is a list of names
            figures = _count(tokenizer, files, reading, allowed(self.allowed_special), self.threads, on_progress)
        return [("-" if name == spooled else name, figures[i]) for i, name in enumerate(files.paths)]

    def _progress(self) -> Any:
        return None if self.progress == "none" else self.progress

    @contextlib.contextmanager
    def _names(self) -> Iterator[tuple[list[str], str | None]]:
        """Yield the file names, and the name of the temporary file with stdin, if stdin is read."""
        names = list(self.files or ("-",))
        if "-" not in names:
            yield names, None
            return
        if names.count("-") > 1:
            raise UsageError("- is given twice, but stdin can be read only once. Pass it once.")
        with stdin_as_file(WHAT_TO_PASS) as path:
            yield [str(path) if name == "-" else name for name in names], str(path)


def spelled_out(arguments: list[str]) -> list[str]:
    """Return the arguments unchanged. Raise `UsageError` if the text of --string is missing or looks like an option."""
    options = list(takewhile(lambda argument: argument != "--", arguments))
    for argument, text in zip(options, [*options[1:], None], strict=True):
        if argument == "--string" and text is None:
            raise UsageError("--string needs a value: --string TEXT. See 'gristmill count --help'.")
        if argument == "--string" and text is not None and text.startswith("-") and len(text) > 1:
            written = shlex.quote(text)
            raise UsageError(f"--string needs a text, but {text!r} looks like an option. Write --string={written}.")
    return arguments


def _separator(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the document separator that `encode` uses: the end-of-text token, if the tokenizer has one."""
    from gristmill.shards.end_of_text import KNOWN

    specials = tokenizer.special_tokens
    return next(({"separator": token} for token in KNOWN if token in specials), {})


def _count(
    tokenizer: Tokenizer,
    files: FoundFiles,
    reading: Reading,
    allowed_special: Any,
    threads: int | None,
    on_progress: OnProgress | None,
) -> list[Figures]:
    """Return the numbers of each file. Memory holds a few batches of some megabytes, whatever the file sizes."""
    from gristmill.arguments import check_num_threads
    from gristmill.corpus import read_files
    from gristmill.corpus.batches import Batch
    from gristmill.corpus.skipped import warn_of_skipped
    from gristmill.corpus.threads import map_in_order

    num_threads = check_num_threads(threads)
    figures = [Figures() for _ in files.inputs]
    skipped: dict[int, str] = {}

    def skip(index: int, error: Exception) -> None:
        skipped[index] = str(error)

    with tokenizer.document_encoder(allowed_special=allowed_special, num_threads=num_threads) as encoder:

        def count_batch(item: tuple[int, Batch]) -> tuple[int, int, Figures]:
            index, batch = item
            spans = batch.spans()
            ids, _ = encoder.encode(spans)
            num_bytes = int((spans.ends - spans.begins).sum())
            return index, batch.position, Figures(len(spans.begins) - spans.continued, num_bytes, len(ids))

        readers = min(num_threads, MAX_READERS)
        batches = read_files(files, reading, cut=encoder.cut, num_readers=readers, on_skip=skip)
        with (
            contextlib.closing(batches),
            contextlib.closing(
                map_in_order(count_batch, batches, num_threads=num_threads, cancel=encoder.cancel)
            ) as counted,
        ):
            meter = _Meter(files, on_progress)
            for index, position, part in counted:
                figures[index].add(part)
                meter.report(index, position, part.tokens)
        meter.finish()
    warn_of_skipped(skipped, len(figures))
    return figures


class _Meter:
    """Reports the number of bytes read of all files."""

    def __init__(self, files: FoundFiles, on_progress: OnProgress | None) -> None:
        self._begins = list(accumulate((input.num_bytes for input in files.inputs), initial=0))
        self._on_progress = on_progress
        self._tokens = 0
        self._reported = time.perf_counter()

    def report(self, index: int, position: int, num_tokens: int) -> None:
        """Report the end of the last counted batch, at most every REPORT_SECONDS."""
        self._tokens += num_tokens
        if self._on_progress is not None and time.perf_counter() - self._reported >= REPORT_SECONDS:
            self._reported = time.perf_counter()
            self._on_progress("encode", self._begins[index] + position, self._begins[-1], tokens=self._tokens)

    def finish(self) -> None:
        """Report that all files are counted."""
        if self._on_progress is not None:
            self._on_progress("encode", self._begins[-1], self._begins[-1], tokens=self._tokens)


def _as_table(counted: list[tuple[str, Figures]], total: Figures) -> str:
    if len(counted) == 1:
        ratio = "-" if total.ratio is None else f"{total.ratio:.3f}"
        numbers = [("tokens", total.tokens), ("bytes", total.bytes), ("documents", total.documents)]
        return pairs([*((name, f"{number:,}") for name, number in numbers), ("bytes per token", ratio)])
    rows = [_row(name, figures) for name, figures in counted]
    if len(rows) > NUM_SHOWN:
        half = NUM_SHOWN // 2
        rows[half:-half] = [[f"… {len(rows) - NUM_SHOWN:,} more", "", "", "", ""]]
    return columns(["file", "tokens", "bytes", "documents", "bytes/token"], [*rows, _row("total", total)])


def _row(name: str, figures: Figures) -> list[str]:
    ratio = "-" if figures.ratio is None else f"{figures.ratio:.3f}"
    return [name, f"{figures.tokens:,}", f"{figures.bytes:,}", f"{figures.documents:,}", ratio]


def _as_json(tokenizer: Path, counted: list[tuple[str, Figures]], total: Figures) -> str:
    files = [{"file": name, **dataclasses.asdict(figures)} for name, figures in counted]
    content = {"tokenizer": str(tokenizer), **dataclasses.asdict(total), "bytes_per_token": total.ratio}
    return json.dumps({**content, "files": files}, ensure_ascii=False)
