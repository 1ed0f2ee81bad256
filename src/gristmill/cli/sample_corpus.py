"""gristmill sample-corpus: write a sample corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, Output, check_output
from gristmill.cli.table import pairs
from gristmill.cli.values import byte_size


@dataclass(frozen=True, kw_only=True)
class Command:
    """Write a corpus of generated children's stories in simple English.

    Each story is followed by a line <|endoftext|>. The same seed gives the same bytes on every machine, and a larger
    file starts with the same stories.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Write 50 MB of stories.", "gristmill sample-corpus -o stories.txt"),
        ("Write 1 MB of other stories.", "gristmill sample-corpus -o small.txt --size 1MB --seed 1"),
    )

    output: Output
    """File to write."""

    size: Annotated[int, byte_size("--size"), tyro.conf.arg(metavar="N", help_behavior_hint="(default: 50MB)")] = (
        50_000_000
    )
    """Maximum size, such as 50MB. Only complete stories are written."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Random seed of the stories."""

    overwrite: Flag = False
    """Replace an existing output."""

    def run(self) -> int:
        from gristmill.sample_corpus import write_sample_corpus

        check_output(self.output, overwrite=self.overwrite)
        written = write_sample_corpus(self.output, self.size, self.seed, overwrite=self.overwrite)
        print(pairs([("stories", f"{written:,} bytes, seed {self.seed}"), ("saved to", str(self.output))]))
        return 0
