"""gristmill train-tokenizer: train a tokenizer on a corpus."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from gristmill.cli.choices import ProgressKind, TieBreak
from gristmill.cli.examples import Examples
from gristmill.cli.executors import (
    ExecutorOptions,
    parts_beside,
    remove_dead_parts,
    remove_parts,
    task_rows,
    task_tables,
)
from gristmill.cli.options import (
    CorpusNames,
    Flag,
    NewSpecialTokens,
    Output,
    PatternChoice,
    ProfileOut,
    ReadingOptions,
    TokenizerDevice,
    find_corpus,
    format_size,
    plural,
)
from gristmill.cli.page_option import PageFile, page_file, recorded_for
from gristmill.cli.page_option import spelled_out as spelled_out
from gristmill.cli.table import columns, pairs
from gristmill.cli.values import byte_size, whole_number
from gristmill.trace import spanned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gristmill import Profile, Tokenizer
    from gristmill.corpus import FoundFiles, Reading
    from gristmill.count import Words
    from gristmill.profile import Stage

SAMPLE_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Command(ExecutorOptions, ReadingOptions):
    """Train a byte-level BPE tokenizer on a corpus and save it.

    Text is used as it is, without normalization. Special tokens in the text are boundaries: no merge crosses one.
    Their ids come after all others.
    """

    EXAMPLES: ClassVar[Examples] = (
        (
            "Train a tokenizer with 32,000 tokens on one file.",
            "gristmill train-tokenizer corpus.txt --vocab-size 32k -o tok.json",
        ),
        (
            "Train on every compressed JSON Lines file below a folder.",
            "gristmill train-tokenizer 'data/**/*.jsonl.zst' --vocab-size 32k -o tok.json",
        ),
        (
            "Train on a corpus larger than memory.",
            "gristmill train-tokenizer data --vocab-size 64k -o tok.json --memory-limit 8GB",
        ),
        (
            "Train on a GPU. Without one, this is an error.",
            "gristmill train-tokenizer data --vocab-size 64k -o tok.json --device cuda",
        ),
    )

    corpus: CorpusNames
    """Files, folders, URLs, globs such as 'data/**/*.txt', or word counts (.gmw). Put them before --special-tokens."""

    vocab_size: Annotated[int, whole_number("--vocab-size")]
    """Total number of tokens, such as 32k: 256 bytes, merges and special tokens."""

    output: Output
    """Tokenizer file to write."""

    overwrite: Flag = False
    """Replace an existing output."""

    pattern: PatternChoice = None

    special_tokens: NewSpecialTokens = None
    """Special tokens, in the order of their ids. The option without a value means none."""

    tie_break: TieBreak = "greatest-bytes"
    """Pair to merge first among pairs with equal counts."""

    min_frequency: Annotated[int, whole_number("--min-frequency")] = 1
    """Ignore words that occur fewer than N times."""

    max_token_bytes: Annotated[int | None, byte_size("--max-token-bytes"), tyro.conf.arg(help_behavior_hint="")] = None
    """Maximum length of a token in bytes."""

    memory_limit: Annotated[int | None, byte_size("--memory-limit"), tyro.conf.arg(help_behavior_hint="")] = None
    """Memory limit of counting, such as 512MB or 2GiB. Counts beyond it go to the temporary folder."""

    device: TokenizerDevice = "auto"

    progress: ProgressKind = "auto"
    """Progress on stderr: auto (bars on a terminal), bar, jsonl (JSON Lines) or none."""

    profile: Flag = False
    """Show the time of each stage."""

    report: PageFile = None
    """Also write a page about the training and the tokenizer. Needs the extra report."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        import gristmill

        report = page_file(
            self.report,
            "train-tokenizer",
            output=self.output,
            default=self.output.with_suffix(".html"),
            overwrite=self.overwrite,
        )
        remove_dead_parts(self.output)
        run_options = self.run_options(parts_beside(self.output))
        corpus = find_corpus(self.corpus, self, output=self.output, overwrite=self.overwrite)
        self.check_words(corpus, self.corpus[0])
        with recorded_for(report):
            tokenizer = gristmill.train_tokenizer(
                corpus,
                vocab_size=self.vocab_size,
                special_tokens=self.special_tokens,
                pattern=self.pattern,
                tie_break=self.tie_break,
                min_frequency=self.min_frequency,
                max_token_bytes=self.max_token_bytes,
                memory_limit=self.memory_limit,
                device=self.device,
                progress=None if self.progress == "none" else self.progress,
                **run_options,
                **self.read_options(),
            )
        tokenizer.save(self.output, overwrite=self.overwrite)
        remove_parts(self.output)
        tables = task_tables(tokenizer.profile.tasks, with_times=self.profile) if tokenizer.profile is not None else ""
        print(self._summary(tokenizer, corpus) + tables)
        if self.profile and tokenizer.profile is not None:
            print("\n" + profile_table(tokenizer.profile))
        if report is not None:
            self._write_report(tokenizer, corpus, report)
        return 0

    @spanned("report")
    def _write_report(self, tokenizer: Tokenizer, corpus: FoundFiles | Words, page: Path) -> None:
        from gristmill.analysis.texts import MAX_TEXT_BYTES, Text, sample_text, whole_characters
        from gristmill.corpus import FoundFiles, Reading
        from gristmill.report.token_writing import write_training_report

        if isinstance(corpus, FoundFiles):
            reading = Reading.checked(self.read_options(), documents="file")
            data = b"\n".join(_first_texts(corpus, reading, MAX_TEXT_BYTES))
            is_cut = len(data) >= MAX_TEXT_BYTES
            text = Text("the training corpus", whole_characters(data) if is_cut else data, is_cut=is_cut)
        else:  # word counts, which have no text
            text = sample_text()
        write_training_report(tokenizer, text, name=self.output.name, out=page, overwrite=self.overwrite)
        print(pairs([("report".ljust(len("bytes per token")), str(page))]))  # aligned with the summary

    def _summary(self, tokenizer: Tokenizer, corpus: FoundFiles | Words) -> str:
        from gristmill.corpus import FoundFiles, Reading

        rows = _run_rows(tokenizer.profile) if tokenizer.profile is not None else []
        if not isinstance(corpus, FoundFiles) and rows:
            rows[:2] = [
                ("corpus", f"{corpus.source_bytes:,} bytes, already counted"),
                ("words", f"{len(corpus):,}  ({corpus.num_pieces:,} pieces)"),
            ]
        specials = len(tokenizer.special_tokens)
        stopped = tokenizer.vocab_size < self.vocab_size
        rows[2:2] = [
            (
                "vocabulary",
                f"{tokenizer.vocab_size:,}  (256 bytes, {len(tokenizer.merge_ids):,} merges, {specials} special)",
            ),
            *([("stopped early", f"no pair left to merge; --vocab-size was {self.vocab_size:,}")] * stopped),
        ]
        if isinstance(corpus, FoundFiles):
            reading = Reading.checked(self.read_options(), documents="file")
            rows.insert(3 + stopped, ("bytes per token", _bytes_per_token(tokenizer, corpus, reading)))
        return pairs([*rows, ("saved to", str(self.output))])


def _run_rows(profile: Profile) -> list[tuple[str, str]]:
    figures = {stage.stage: stage for stage in profile.stages}
    count = figures.get("count")
    num_bytes = (count.num_bytes if count else None) or 0
    num_words = max((stage.num_words or 0 for stage in profile.stages), default=0)
    pieces = f"  ({count.num_pieces:,} pieces)" if count and count.num_pieces else ""
    threads = plural(profile.num_threads, "worker" if profile.tasks else "thread")
    speed = f"{num_bytes / 1e6 / profile.seconds:,.0f} MB/s, " if num_bytes and profile.seconds else ""
    rows = [
        ("corpus", f"{num_bytes:,} bytes"),
        ("words", f"{num_words:,}{pieces}"),
        ("time", f"{profile.seconds:.2f} s  ({speed}{threads})"),
        *device_rows(profile.stages),
        *task_rows(profile.tasks),
    ]
    if profile.peak_memory_bytes is not None:
        rows.append(("peak memory", format_size(profile.peak_memory_bytes)))
    return rows


def device_rows(stages: Iterable[Stage]) -> list[tuple[str, str]]:
    """Return the summary rows about devices, one per choice; empty if there was nothing to choose."""
    chosen: dict[tuple[str, str], list[str]] = {}
    for stage in stages:
        chosen.setdefault((stage.device, stage.device_reason), []).append(stage.stage)
    return [
        ("device", f"{', '.join(names)}: {device}  ({reason})") for (device, reason), names in chosen.items() if reason
    ]


def profile_table(profile: Profile) -> str:
    """Return a table with one line per stage; columns that do not apply to a stage are blank."""
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


def _bytes_per_token(tokenizer: Tokenizer, files: FoundFiles, reading: Reading) -> str:
    """Return the bytes per token on the first megabyte of the corpus; a special token counts as one."""
    from gristmill.errors import GristmillError

    try:
        sample = _first_texts(files, reading)
    except (GristmillError, OSError) as error:  # the tokenizer is saved, so a missing corpus is no longer an error
        return f"unknown: {error}"
    num_tokens = sum(len(tokenizer.encode(text, allowed_special="all")) for text in sample)
    return f"{sum(map(len, sample)) / max(num_tokens, 1):.3f}  (first MB of the corpus)"


def _first_texts(files: FoundFiles, reading: Reading, num_bytes: int = SAMPLE_BYTES) -> list[bytes]:
    """Return the first texts of a corpus, `num_bytes` in total; the last one is truncated."""
    from gristmill.corpus import read_files

    texts: list[bytes] = []
    room = num_bytes
    # Cut anywhere: only the beginning is used, so a text with no place to cut is not an error here.
    with contextlib.closing(read_files(files, reading, cut=len, num_readers=1)) as batches:
        for _, batch in batches:
            spans = batch.spans()
            for begin, end in zip(spans.begins.tolist(), spans.ends.tolist(), strict=True):
                texts.append(bytes(spans.text[begin : min(end, begin + room)]))
                room -= len(texts[-1])
                if room == 0:
                    return texts
    return texts
