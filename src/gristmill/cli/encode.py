"""gristmill encode: a corpus and a tokenizer in, token shards out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from gristmill.cli.choices import LayoutName, Position, ProgressKind, TokenIdType, listed
from gristmill.cli.examples import Examples
from gristmill.cli.executors import ExecutorOptions, task_rows, task_tables
from gristmill.cli.options import CorpusNames, Flag, ReadingOptions, UsageError, format_size, plural
from gristmill.cli.table import columns, pairs
from gristmill.cli.tokenizers import AllowedSpecial, TokenizerOptions, allowed, check_allowed
from gristmill.cli.values import whole_number
from gristmill.shards.layouts import LAYOUTS

if TYPE_CHECKING:
    from gristmill import EncodeRun, Profile


@dataclass(frozen=True, kw_only=True)
class Command(ExecutorOptions, ReadingOptions, TokenizerOptions):
    """Encode a corpus into token files that training can map.

    Run again after it was interrupted, it resumes; the result is the same, byte for byte. A special token
    spelled out in a document is plain text, unless --allowed-special names it.
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
    """The folder to write."""

    format: Annotated[
        LayoutName,
        tyro.conf.arg(aliases=["-f"], metavar="FORMAT", help=f"The format of the token files: {listed(LAYOUTS)}."),
    ] = "gristmill"

    overwrite: Flag = False
    """Replace finished shards of another kind; they stay until the new ones are complete."""

    end_of_text: Annotated[str, tyro.conf.arg(metavar="TOKEN|ID|none")] = "auto"
    """The special token that marks documents; auto: <|endoftext|> or the like."""

    end_of_text_position: Annotated[Position, tyro.conf.arg(help_behavior_hint="")] = None
    """Where it stands; without it, where the tools of the format expect it."""

    allowed_special: AllowedSpecial = ()
    """Special tokens that become ids where a document spells them out; all: every one."""

    dtype: Annotated[TokenIdType, tyro.conf.arg(help_behavior_hint="")] = None
    """The type of the ids; without it, uint16 where that holds them all."""

    shard_tokens: Annotated[
        int | None, whole_number("--shard-tokens"), tyro.conf.arg(help_behavior_hint="(default: 100M)")
    ] = None
    """Tokens in a file, such as 100M."""

    tokens_column: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: tokens)")] = None
    """The column of ids in Parquet files, such as input_ids."""

    val_fraction: Annotated[float, tyro.conf.arg(metavar="SHARE")] = 0.0
    """The share of documents for validation, chosen by a hash of their text."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Another seed chooses other documents for validation."""

    checkpoint_seconds: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 10.0
    """How often to write a checkpoint, from which the command resumes."""

    progress: ProgressKind = "auto"
    """Bars on a terminal, bars always, JSON lines, or nothing; on stderr."""

    profile: Flag = False
    """Show what each stage took."""

    def run(self) -> int:
        import gristmill

        run_options = self.run_options()
        run = gristmill.encode_corpus(
            **self.arguments(),
            checkpoint_seconds=self.checkpoint_seconds,
            progress=None if self.progress == "none" else self.progress,
            **run_options,
        )
        print(summary(run, with_times=self.profile))
        return 0

    def arguments(self) -> dict[str, Any]:
        """Those of `encode_corpus` that say what to encode, and into what."""
        if not self.corpus:
            raise UsageError("no corpus given. Name at least one file or folder.")
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
    """What was encoded, into what, and how fast; `with_times`, what each stage took."""
    manifest = run.manifest
    num_skipped = sum(entry.skipped is not None for entry in manifest.inputs)
    rows = [("inputs", _inputs(run, num_skipped))]
    if manifest.num_nulls:
        rows.append(("without text", f"{plural(manifest.num_nulls, 'record')}, left out"))
    for name, split in manifest.splits.items():
        ratio = f", {split.source_bytes / split.tokens:.3f} bytes/token" if split.tokens else ""
        rows.append((name, f"{plural(split.documents, 'document')}, {plural(split.tokens, 'token')}{ratio}"))
    num_files = sum(len(split.shards) for split in manifest.splits.values())
    rows.append(("tokens are", f"{manifest.dtype}, format {manifest.layout}, {plural(num_files, 'file')}"))
    if run.profile is None:
        rows.append(("time", "none: these shards were complete already"))
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


_MEANINGS: dict[str, str] = {
    "read": "waiting for the readers",
    "find": "finding documents, in all threads together",
    "encode": "encoding, in all threads together",
    "assemble": "putting shards together, in all workers together",
    "write": "writing and checksums",
    "sync": "waiting for the disk",
}


def _profile_table(profile: Profile) -> str:
    rows: list[Any] = []
    width = max(len(stage.stage) for stage in profile.stages) + 1
    for stage in profile.stages:
        rate = f"{stage.num_bytes / 1e6 / stage.seconds:,.0f}" if stage.num_bytes and stage.seconds else ""
        rows.append([f"{stage.stage:{width}} {_MEANINGS[stage.stage]}", f"{stage.seconds:.3f}", rate])
    rows.append(["total", f"{profile.seconds:.3f}", ""])
    return "\n\n" + columns(["stage", "seconds", "MB/s"], rows)
