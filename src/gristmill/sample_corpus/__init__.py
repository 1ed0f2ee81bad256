"""A corpus of simple English children's stories, generated on demand: the default of quickstart, tests and demos.

    stories(seed)                           endless, 80 to 400 words each
    write_sample_corpus(path, size, seed)   whole stories, at most `size` bytes, each followed by `<|endoftext|>`

A story has a cast (a hero with traits, a friend, an elder), a plot (want, trouble, attempts, help, resolution, moral)
and a setting whose places, animals and weather fit together; names, pronouns, sums and quotes stay consistent from its
first line to its last. lexicon.py has the words, settings.py the worlds, beats.py the sentences that plots share,
plots_*.py the plots, grammar.py the notation and cast.py the people. To add a plot, add a block to one of these files.

The same seed gives the same bytes on every platform, Python version and hash seed: the only source of randomness is
`random.Random(seed).random()`, whose sequence Python guarantees, and it only chooses indexes, each computed with one
IEEE multiplication.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from gristmill.errors import OptionError
from gristmill.publish import publish

if TYPE_CHECKING:
    from .grammar import Plot

__all__ = ["SEPARATOR", "stories", "write_sample_corpus"]

SEPARATOR = "<|endoftext|>"

# Most real text has straight quotes; every fourth story has typographic ones.
_CURLY_SHARE = 0.25
_OPTIONAL_SHARE = 0.5


@cache
def _plots() -> list[Plot]:
    from . import beats, grammar, plots_adventure, plots_everyday, plots_fable, plots_short

    return grammar.compile_plots(
        beats.BEATS, [plots_everyday.PLOTS, plots_adventure.PLOTS, plots_fable.PLOTS, plots_short.PLOTS]
    )


def stories(seed: int = 0) -> Iterator[str]:
    """Yield stories without end, the same ones for the same seed.

    >>> next(stories(0)) == next(stories(0)) != next(stories(1))
    True
    """
    if seed < 0:
        raise OptionError(f"seed must be >= 0, got {seed}.")
    from .cast import new_cast

    plots = _plots()
    random = Random(seed).random
    while True:
        plot = plots[int(random() * len(plots))]
        cast, hero = new_cast(plot, random)
        templates = []
        for beat in plot.beats[hero]:
            if beat.optional and random() < _OPTIONAL_SHARE:
                continue
            variant = beat.variants[int(random() * len(beat.variants))]
            templates.append(variant[int(random() * len(variant))])
        story = "".join(templates) % cast
        if random() < _CURLY_SHARE:
            yield story.replace("'", "’")
        else:
            yield story.replace("“", '"').replace("”", '"').replace("‘", "'").replace("’", "'")


def write_sample_corpus(path: str | os.PathLike[str], size: int, seed: int = 0, *, overwrite: bool = True) -> int:
    """Write whole stories of at most `size` bytes in total to `path`; return the number of bytes written.

    Each story is followed by a line `<|endoftext|>`. A larger size with the same seed starts with the same stories.
    The file appears when it is complete: an interrupted call leaves an existing file unchanged.
    """
    written = 0
    with publish(path, overwrite=overwrite) as file:
        for story in stories(seed):
            document = f"{story}\n{SEPARATOR}\n".encode()
            if written + len(document) > size:
                break
            written += file.write(document)
        if not written:
            raise OptionError(
                f"size={size} is too small: the first story of seed {seed} has {len(document):,} bytes. "
                f"Pass size >= {len(document)}."
            )
    return written
