"""gristmill encode: encode a corpus into token shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from gristmill.cli.choices import LayoutName, Position, ProgressKind, TokenIdType, listed
from gristmill.cli.examples import Examples
from gristmill.cli.executors import ExecutorOptions, task_rows, task_tables
from gristmill.cli.options import (
    CorpusNames,
    Flag,
    ProfileOut,
    ReadingOptions,
    UsageError,
    format_size,
    plural,
)
from gristmill.cli.page_option import PageFile, page_file, recorded_for
from gristmill.cli.page_option import spelled_out as spelled_out
from gristmill.cli.table import columns, pairs
from gristmill.cli.tokenizers import AllowedSpecial, TokenizerOptions, allowed, check_allowed
from gristmill.cli.values import whole_number
from gristmill.shards.layouts import LAYOUTS
from gristmill.shards.remote_output import is_remote
from gristmill.shards.run import STAGE_MEANINGS
from gristmill.trace import spanned

if TYPE_CHECKING:
    from gristmill import EncodeRun, Profile


@dataclass(frozen=True, kw_only=True)
class Command(ExecutorOptions, ReadingOptions, TokenizerOptions):
    """Encode a corpus into token shards, the input of model training.

    To resume after an interruption, run the same command again: the output is bit-identical. A special token in the
    text of a document is plain text, unless --allowed-special names it.
    """

    EXAMPLES: ClassVar[Examples] = (
        (
            "Encode a file, and keep 1 % of the documents for validation.",
            "gristmill encode corpus.txt -t tok.json -o shards --val-fraction 0.01",
        ),
        (
            "Encode compressed JSON Lines with the text in the field 'body'.",
            "gristmill encode 'data/*.jsonl.zst' -t tok.json -o shards --text-field body",
        ),
        ("Write token files for nanoGPT.", "gristmill encode corpus.txt -t tok.json -o nano -f nanogpt"),
        ("Encode with 16 processes.", "gristmill encode data -t tok.json -o shards --executor processes --workers 16"),
    )

    corpus: CorpusNames
    """Files, folders, URLs, or globs such as 'data/**/*.jsonl.zst'."""

    output: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="FOLDER|URL")]
    """Folder to write."""

    format: Annotated[
        LayoutName,
        tyro.conf.arg(aliases=["-f"], metavar="FORMAT", help=f"Format of the token files: {listed(LAYOUTS)}."),
    ] = "gristmill"

    overwrite: Flag = False
    """Replace shards made with other options or inputs. They are kept until the new ones are complete."""

    end_of_text: Annotated[str, tyro.conf.arg(metavar="TOKEN|ID|none")] = "auto"
    """Special token that marks document boundaries. auto: detected by name, such as <|endoftext|>."""

    end_of_text_position: Annotated[Position, tyro.conf.arg(help_behavior_hint="")] = None
    """Position of the end-of-text token relative to a document. By default, as the format expects it."""

    allowed_special: AllowedSpecial = ()
    """Special tokens that become their ids where a document contains them. all: every special token."""

    dtype: Annotated[TokenIdType, tyro.conf.arg(help_behavior_hint="")] = None
    """Type of the ids. By default, uint16 if all ids fit, otherwise uint32."""

    shard_tokens: Annotated[
        int | None, whole_number("--shard-tokens"), tyro.conf.arg(help_behavior_hint="(default: 100M)")
    ] = None
    """Tokens per file, such as 100M."""

    tokens_column: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: tokens)")] = None
    """Column for the ids in Parquet files, such as input_ids."""

    val_fraction: Annotated[float, tyro.conf.arg(metavar="SHARE")] = 0.0
    """Share of documents for the validation split, selected by a hash of their text."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Seed that selects the documents of the validation split."""

    checkpoint_seconds: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 10.0
    """Seconds between checkpoints, from which an interrupted command resumes."""

    progress: ProgressKind = "auto"
    """Progress on stderr: auto (bars on a terminal), bar, jsonl (JSON Lines) or none."""

    profile: Flag = False
    """Show the time of each stage."""

    report: PageFile = None
    """Also write a page about the shards and the encoding. Needs the extra report."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        import gristmill

        page = self._page_file()
        run_options = self.run_options()
        with recorded_for(page):
            run = gristmill.encode_corpus(
                **self.arguments(),
                checkpoint_seconds=self.checkpoint_seconds,
                progress=None if self.progress == "none" else self.progress,
                **run_options,
            )
        print(summary(run, with_times=self.profile))
        if page is not None:
            self._write_page(run, page)
        return 0

    def _page_file(self) -> Path | None:
        if self.report is not None and is_remote(self.output):
            raise UsageError(
                f"--report reads the shards, but {self.output} is a URL. Omit --report. For a page, copy the shards to "
                f"a local folder, and run 'gristmill report FOLDER'."
            )
        output = Path(self.output)
        beside = Path(f"{output.resolve()}.html") if output.name in ("", "..") else Path(f"{output}.html")
        return page_file(self.report, "encode", output=output, default=beside, overwrite=self.overwrite)

    @spanned("report")
    def _write_page(self, run: EncodeRun, page: Path) -> None:
        from gristmill.report import write_shards_report

        write_shards_report(run.folder, profile=run.profile, out=page, overwrite=self.overwrite)
        print(pairs([("report".ljust(len("token files")), str(page))]))  # aligned with the summary

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `encode_corpus`, without executor and progress."""
        if not self.corpus:
            raise UsageError("no corpus given. Pass at least one file or folder.")
        import gristmill

        tokenizer = self.load_tokenizer()
        check_allowed(self.allowed_special, tokenizer, self.tokenizer, "file")
        return {
            "corpus": gristmill.Files(self.corpus),
            "tokenizer": tokenizer,
            "out": self.output,
            "format": self.format,
            "end_of_text": _parse_end_of_text(self.end_of_text),
            "end_of_text_position": self.end_of_text_position,
            "allowed_special": allowed(self.allowed_special),
            "dtype": self.dtype,
            "shard_tokens": self.shard_tokens,
            "tokens_column": self.tokens_column,
            "val_fraction": self.val_fraction,
            "seed": self.seed,
            "overwrite": self.overwrite,
            **self.read_options(),
        }


def _parse_end_of_text(text: str) -> str | int | None:
    if text == "none":
        return None
    return int(text) if text.isdecimal() else text


def summary(run: EncodeRun, *, with_times: bool = False) -> str:
    """Return the summary of the encoding; with `with_times`, also the time of each stage."""
    manifest = run.manifest
    num_skipped = sum(entry.skipped is not None for entry in manifest.inputs)
    rows = [("inputs", _inputs(run, num_skipped))]
    if manifest.num_nulls:
        rows.append(("without text", f"{plural(manifest.num_nulls, 'record')}, skipped"))
    for name, split in manifest.splits.items():
        ratio = f", {split.source_bytes / split.tokens:.3f} bytes/token" if split.tokens else ""
        rows.append((name, f"{plural(split.documents, 'document')}, {plural(split.tokens, 'token')}{ratio}"))
    num_files = sum(len(split.shards) for split in manifest.splits.values())
    rows.append(("token files", f"{manifest.dtype}, format {manifest.layout}, {plural(num_files, 'file')}"))
    if run.profile is None:
        rows.append(("time", "none: the shards were already complete"))
    else:
        rows += _times(run, run.profile)
    text = pairs([*rows, ("saved to", run.location)])
    if run.profile is None:
        return text
    return text + task_tables(run.profile.tasks, with_times=with_times) + _profile_table(run.profile) * with_times


def _inputs(run: EncodeRun, num_skipped: int) -> str:
    inputs = run.manifest.inputs
    num_bytes = sum(entry.bytes for entry in inputs)
    skipped = f", {num_skipped:,} skipped" if num_skipped else ""
    return f"{plural(len(inputs), 'file')}{skipped}, {format_size(num_bytes)}; {run.source_bytes:,} bytes of text"


def _times(run: EncodeRun, profile: Profile) -> list[tuple[str, str]]:
    encode = next(stage for stage in profile.stages if stage.stage == "encode")
    num_bytes, num_tokens = encode.num_bytes or 0, encode.num_tokens or 0
    rates = f"{num_bytes / 1e6 / profile.seconds:,.0f} MB/s, {num_tokens / 1e6 / profile.seconds:,.1f}M tokens/s"
    workers = plural(profile.num_threads, "worker" if profile.tasks else "thread")
    resumed = "; resumed an earlier run" if run.resumed else ""
    rows = [("time", f"{profile.seconds:.2f} s  ({rates}, {workers}{resumed})"), *task_rows(profile.tasks)]
    if profile.peak_memory_bytes is not None:
        rows.append(("peak memory", format_size(profile.peak_memory_bytes)))
    return rows


def _profile_table(profile: Profile) -> str:
    rows: list[Any] = []
    width = max(len(stage.stage) for stage in profile.stages) + 1
    for stage in profile.stages:
        rate = f"{stage.num_bytes / 1e6 / stage.seconds:,.0f}" if stage.num_bytes and stage.seconds else ""
        rows.append([f"{stage.stage:{width}} {STAGE_MEANINGS[stage.stage]}", f"{stage.seconds:.3f}", rate])
    rows.append(["total", f"{profile.seconds:.3f}", ""])
    return "\n\n" + columns(["stage", "seconds", "MB/s"], rows)
