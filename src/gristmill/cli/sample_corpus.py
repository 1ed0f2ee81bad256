"""gristmill sample-corpus: a text to try things on."""

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
    """Write a corpus of simple English children's stories, made on the spot.

    Each story is followed by a line <|endoftext|>. The same seed gives the same
    bytes everywhere, and a larger file starts with the same stories.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Write 50 MB of stories.", "gristmill sample-corpus -o stories.txt"),
        ("Write 1 MB of other stories.", "gristmill sample-corpus -o small.txt --size 1MB --seed 1"),
    )

    output: Output
    """The file to write."""

    size: Annotated[int, byte_size("--size"), tyro.conf.arg(metavar="N", help_behavior_hint="(default: 50MB)")] = (
        50_000_000
    )
    """At most this many bytes, such as 50MB; only whole stories are written."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Another seed, other stories."""

    overwrite: Flag = False
    """Replace the output if it is already there."""

    def run(self) -> int:
        from gristmill.sample_corpus import write_sample_corpus

        check_output(self.output, overwrite=self.overwrite)
        written = write_sample_corpus(self.output, self.size, self.seed, overwrite=self.overwrite)
        print(pairs([("stories", f"{written:,} bytes, seed {self.seed}"), ("saved to", str(self.output))]))
        return 0
