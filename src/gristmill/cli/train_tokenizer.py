"""gristmill train-tokenizer: text files in, one tokenizer file out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gristmill.cli.options import Flag, Output, UsageError, check_output, format_size, parse_size
from gristmill.cli.table import columns, pairs

if TYPE_CHECKING:
    from gristmill import Profile, Tokenizer

SAMPLE_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Command:
    """Train a byte-level BPE tokenizer on text files and save it.

    The corpus is read as it is, byte for byte. Special tokens are boundaries in it:
    no token crosses one, and each gets an id of its own after all others.
    """

    corpus: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS…", help_behavior_hint="")]
    """Files, or globs such as 'data/**/*.txt'. Name them before --special-tokens."""

    vocab_size: Annotated[int, tyro.conf.arg(metavar="N")]
    """Tokens in all: 256 bytes, the merges and the special tokens."""

    output: Output
    """The tokenizer file to write."""

    overwrite: Flag = False
    """Replace the output if it is already there."""

    pattern: Annotated[str, tyro.conf.arg(metavar="NAME|REGEX")] = "gpt2"
    """What cuts the text into pieces: gpt2, cl100k, o200k, llama3, qwen2, whitespace, or a regular expression."""

    special_tokens: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[TOKEN …]")] = ("<|endoftext|>",)
    """Special tokens, in the order of their ids. The bare option, without any, means none."""

    tie_break: Literal["greatest-bytes", "smallest-ids", "huggingface", "first-seen"] = "greatest-bytes"
    """Which pair wins among equal counts."""

    min_frequency: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Leave out words that occur fewer times."""

    max_token_bytes: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """The longest token allowed."""

    threads: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: all cores)")] = None
    """How many threads to use."""

    memory_limit: Annotated[str | None, tyro.conf.arg(metavar="SIZE", help_behavior_hint="")] = None
    """What counting may use, such as 512MB or 2GiB; beyond it, the temporary folder is used."""

    progress: Literal["auto", "bar", "jsonl", "none"] = "auto"
    """Bars on a terminal, bars always, JSON lines, or nothing; on stderr."""

    profile: Flag = False
    """Show what each stage took."""

    def run(self) -> int:
        if not self.corpus:
            raise UsageError("no corpus given. Name at least one text file, before --special-tokens.")
        import gristmill
        from gristmill.corpus import find_files

        paths = find_files(self.corpus).paths
        check_output(self.output, overwrite=self.overwrite, inputs=paths)
        tokenizer = gristmill.train_tokenizer(
            [Path(path) for path in paths],
            vocab_size=self.vocab_size,
            special_tokens=self.special_tokens,
            pattern=self.pattern,
            tie_break=self.tie_break,
            min_frequency=self.min_frequency,
            max_token_bytes=self.max_token_bytes,
            memory_limit=None if self.memory_limit is None else parse_size(self.memory_limit, "--memory-limit"),
            num_threads=self.threads,
            progress=None if self.progress == "none" else self.progress,
        )
        tokenizer.save(self.output, overwrite=self.overwrite)
        print(self._summary(tokenizer, paths))
        if self.profile and tokenizer.profile is not None:
            print("\n" + profile_table(tokenizer.profile))
        return 0

    def _summary(self, tokenizer: Tokenizer, paths: Sequence[str]) -> str:
        rows = _run_rows(tokenizer.profile) if tokenizer.profile is not None else []
        specials = len(tokenizer.special_tokens)
        stopped = tokenizer.vocab_size < self.vocab_size
        rows[2:2] = [
            (
                "vocabulary",
                f"{tokenizer.vocab_size:,}  (256 bytes, {len(tokenizer.merge_ids):,} merges, {specials} special)",
            ),
            *([("stopped early", f"no pair was left to merge; {self.vocab_size:,} were asked for")] * stopped),
            ("bytes per token", _bytes_per_token(tokenizer, paths)),
        ]
        return pairs([*rows, ("saved to", str(self.output))])


def _run_rows(profile: Profile) -> list[tuple[str, str]]:
    figures = {stage.stage: stage for stage in profile.stages}
    count = figures.get("count")
    num_bytes = (count.num_bytes if count else None) or 0
    num_words = max((stage.num_words or 0 for stage in profile.stages), default=0)
    pieces = f"  ({count.num_pieces:,} pieces)" if count and count.num_pieces else ""
    rate = (
        f"  ({num_bytes / 1e6 / profile.seconds:,.0f} MB/s, {profile.num_threads} threads)" if profile.seconds else ""
    )
    rows = [
        ("corpus", f"{num_bytes:,} bytes"),
        ("words", f"{num_words:,}{pieces}"),
        ("time", f"{profile.seconds:.2f} s{rate}"),
    ]
    if profile.peak_memory_bytes is not None:
        rows.append(("peak memory", format_size(profile.peak_memory_bytes)))
    return rows


def profile_table(profile: Profile) -> str:
    """The stages of a run, one a line; what means nothing for a stage is left blank."""
    head = ["stage", "seconds", "MB/s", "words", "pairs", "rounds", "merges", "merges/s"]
    rows = []
    for stage in profile.stages:
        rates = [
            f"{amount / scale / stage.seconds:,.0f}" if amount and stage.seconds else ""
            for amount, scale in ((stage.num_bytes, 1e6), (stage.num_merges, 1))
        ]
        numbers = [
            f"{number:,}" if number is not None else ""
            for number in (stage.num_words, stage.num_pairs, stage.num_rounds, stage.num_merges)
        ]
        rows.append([stage.stage, f"{stage.seconds:.3f}", rates[0], *numbers, rates[1]])
    rest = profile.seconds - sum(stage.seconds for stage in profile.stages)
    rows.append(["other", f"{max(rest, 0):.3f}", *[""] * 6])
    rows.append(["total", f"{profile.seconds:.3f}", *[""] * 6])
    kept = [i for i in range(len(head)) if i < 2 or any(row[i] for row in rows)]
    table = columns([head[i] for i in kept], [[row[i] for i in kept] for row in rows])
    spilled = sum(stage.num_spilled_runs or 0 for stage in profile.stages)
    notes = [("threads", f"{profile.num_threads}")]
    if profile.peak_memory_bytes is not None:
        notes.append(("peak memory", format_size(profile.peak_memory_bytes)))
    if spilled:
        notes.append(("spilled runs", f"{spilled:,}"))
    return table + "\n" + pairs(notes)


def _bytes_per_token(tokenizer: Tokenizer, paths: Sequence[str]) -> str:
    """On the first megabyte of the corpus, special tokens counted as one each."""
    sample = b""
    try:
        for path in paths:
            with Path(path).open("rb") as file:
                sample += file.read(SAMPLE_BYTES - len(sample))
            if len(sample) == SAMPLE_BYTES:
                break
    except OSError as error:  # the tokenizer is saved; a corpus that is gone by now is no failure
        return f"unknown: {error}"
    ids = tokenizer.encode(sample, allowed_special="all")
    return f"{len(sample) / max(len(ids), 1):.3f}  (first MB of the corpus)"
