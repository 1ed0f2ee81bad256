"""gristmill count-words: count the words of a corpus, for training without reading the corpus again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from gristmill.cli.choices import ProgressKind
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
)
from gristmill.cli.table import pairs
from gristmill.cli.train_tokenizer import device_rows, profile_table
from gristmill.cli.values import UsageError, byte_size, whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gristmill import Profile
    from gristmill.count.counting import Counted


@dataclass(frozen=True, kw_only=True)
class Command(ExecutorOptions, ReadingOptions):
    """Count the words (distinct pieces) of a corpus and save them as a .gmw file.

    `gristmill train-tokenizer` and `gristmill extend` accept the file instead of a corpus, so a corpus is read once for
    any number of vocabularies. Several .gmw files are added up.
    """

    EXAMPLES: ClassVar[Examples] = (
        (
            "Count the words of a corpus.",
            "gristmill count-words corpus.txt -o words.gmw",
        ),
        (
            "Train on the counts instead of the corpus.",
            "gristmill train-tokenizer words.gmw --vocab-size 16k -o tok16k.json",
        ),
        ("Add the counts of two parts.", "gristmill count-words a.gmw b.gmw -o all.gmw"),
    )

    corpus: CorpusNames
    """Files, folders, URLs, globs, or .gmw files to add up. Put them before --special-tokens."""

    output: Output
    """File to write. Its name ends in .gmw."""

    overwrite: Flag = False
    """Replace an existing output."""

    pattern: PatternChoice = None

    special_tokens: NewSpecialTokens = None
    """Special tokens. No word crosses one. The option without a value means none."""

    min_frequency: Annotated[int, whole_number("--min-frequency")] = 1
    """Ignore words that occur fewer than N times."""

    memory_limit: Annotated[int | None, byte_size("--memory-limit"), tyro.conf.arg(help_behavior_hint="")] = None
    """Memory limit of counting, such as 512MB or 2GiB. Counts beyond it go to the temporary folder."""

    device: TokenizerDevice = "auto"

    progress: ProgressKind = "auto"
    """Progress on stderr: auto (bars on a terminal), bar, jsonl (JSON Lines) or none."""

    profile: Flag = False
    """Show the time of each stage."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        from gristmill.count.counting import CountOptions, check_device_counts, count
        from gristmill.progress import open_progress

        remove_dead_parts(self.output)
        who = {"num_threads": None, "executor": "local"} | self.run_options(parts_beside(self.output))
        arguments = self.arguments()
        self.check_words(arguments["corpus"], self.corpus[0])
        start = time.perf_counter()
        options = CountOptions.checked(**arguments, **who, device=self.device, reading=self.read_options())
        check_device_counts(arguments["corpus"], options)
        progress = None if self.progress == "none" else self.progress
        with open_progress(progress) as on_progress, options.device.released():
            counted = count(
                arguments["corpus"],
                options,
                on_progress,
                save=lambda words: words.save(self.output, overwrite=self.overwrite),
            )
        remove_parts(self.output)
        seconds = time.perf_counter() - start
        profile = _profile(counted, seconds, options.num_threads)
        print(summary(counted, self.output, seconds, device_rows(counted.stages), with_times=self.profile))
        if self.profile and counted.stages:
            print("\n" + profile_table(profile))
        return 0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `count_words`, without the reading options."""
        if self.output.suffix != ".gmw":
            raise UsageError(
                f"--output {self.output} must end in .gmw, the suffix of word counts. Pass a name such as words.gmw."
            )
        return {
            "corpus": find_corpus(self.corpus, self, output=self.output, overwrite=self.overwrite),
            "pattern": self.pattern,
            "special_tokens": self.special_tokens,
            "min_frequency": self.min_frequency,
            "memory_limit": self.memory_limit,
        }


def _profile(counted: Counted, seconds: float, num_threads: int) -> Profile:
    from gristmill.profile import Profile, peak_memory_bytes

    num_workers = len({task.worker for task in counted.tasks}) or num_threads
    return Profile(
        stages=tuple(counted.stages),
        seconds=seconds,
        num_threads=num_workers,
        peak_memory_bytes=peak_memory_bytes(),
    )


def summary(
    counted: Counted,
    output: Path,
    seconds: float,
    more: Sequence[tuple[str, str]] = (),
    *,
    with_times: bool = False,
) -> str:
    """Return the summary of the counting; with `with_times`, also the task times."""
    words = counted.words
    rows = [
        ("corpus", f"{words.source_bytes:,} bytes"),
        ("words", f"{len(words):,}  ({words.num_pieces:,} pieces)"),
        ("pattern", words.pattern),
        ("special", ", ".join(words.special_tokens) or "none"),
        ("time", f"{seconds:.2f} s"),
        *more,
        *task_rows(counted.tasks),
        ("saved to", f"{output}  ({format_size(output.stat().st_size)})"),
    ]
    return pairs(rows) + task_tables(counted.tasks, with_times=with_times)
