"""The small language of beats and plots, compiled into templates that are fast to fill.

    [a|b]     a choice, expanded here, so that a story only picks one of the finished templates
    {slot}    a word of the story's cast, or a new random word from the lexicon each time
    {slot#1}  a word chosen once and kept through the story; #2 is another one
    {a:slot} {A:slot} {s:slot} {C:slot}   "an owl", "An owl", "owls", "Owl"
    @beat     on a separate line: the variants of a shared beat; inside a line: a choice among them

A template becomes a `%(slot)s` format: filling a whole story then takes one `%`, which makes 10 MB/s possible in plain
Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product

from .lexicon import IRREGULAR_PLURALS, NAMES, TAKES_A, TAKES_AN, WORDS

CATEGORIES = WORDS | {"surname": NAMES["surname"], "pet": NAMES["beast"]}
Variant = tuple[str, ...]  # expansion of one written line
SLOT = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Beat:
    variants: tuple[Variant, ...]
    optional: bool


@dataclass(frozen=True, slots=True)
class Plot:
    name: str
    options: dict[str, str]
    beats: dict[str, tuple[Beat, ...]] = field(default_factory=dict)  # by the kind of hero: "child", "beast"


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list; line breaks and indentation are ignored."""
    return [" ".join(item.split()) for item in text.split(",")]


_IRREGULAR: dict[str, str] = dict(pair.split("=") for pair in split_list(IRREGULAR_PLURALS))


def with_article(word: str) -> str:
    """Return `word` with its indefinite article.

    >>> with_article("owl"), with_article("unicorn"), with_article("kite")
    ('an owl', 'a unicorn', 'a kite')
    """
    if word.startswith(TAKES_A):
        return "a " + word
    return ("an " if word[0] in "aeiouéAEIOUÉ" or word.startswith(TAKES_AN) else "a ") + word


def plural(word: str) -> str:
    """Return the plural of a noun.

    >>> plural("kite"), plural("berry"), plural("fox"), plural("mouse"), plural("loaf of bread")
    ('kites', 'berries', 'foxes', 'mice', 'loaves of bread')
    """
    head, of, rest = word.partition(" of ")
    if of:
        return plural(head) + of + rest
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


FORMS: dict[str, Callable[[str], str]] = {
    "": str,
    "a": with_article,
    "A": lambda word: capitalized(with_article(word)),
    "s": plural,
    "C": capitalized,
}


def weighted(words: Iterable[str]) -> list[str]:
    """Return a list in which the n-th word has a share of about 1 / (n + 5), so that one random index draws from it.

    Uses integer arithmetic only, so that the list is the same on every machine.
    """
    words = list(words)
    return [word for n, word in enumerate(words) for _ in range((len(words) + 5) // (n + 5))]


class Cast(dict[str, str]):
    """The words of the slots of one story; a slot without a word is drawn from the lexicon."""

    __slots__ = ("random",)

    def __init__(self, random: Callable[[], float]) -> None:
        super().__init__()
        self.random = random

    def __missing__(self, slot: str) -> str:
        return FILLERS[slot](self)

    def put(self, slot: str, word: str) -> None:
        """Set a noun in all its forms."""
        self[slot] = word
        self["a:" + slot], self["A:" + slot], self["s:" + slot], self["C:" + slot] = _all_forms(word)


_forms: dict[str, tuple[str, str, str, str]] = {}


def _all_forms(word: str) -> tuple[str, str, str, str]:
    if word not in _forms:
        _forms[word] = (with_article(word), capitalized(with_article(word)), plural(word), capitalized(word))
    return _forms[word]


Filler = Callable[[Cast], str]
FILLERS: dict[str, Filler] = {}  # by slot as written in a template; filled while plots are compiled


def add_filler(slot: str) -> None:
    """Make `slot` drawable if the lexicon has its category; otherwise the cast must set it."""
    form, _, base = slot.rpartition(":")
    category, kept, _ = base.partition("#")
    if category in CATEGORIES and slot not in FILLERS:
        words = split_list(CATEGORIES[category])
        FILLERS[slot] = (
            _kept_filler(slot, base, category, words, FORMS[form]) if kept else _fresh_filler(words, FORMS[form])
        )


def _fresh_filler(words: list[str], form: Callable[[str], str]) -> Filler:
    table = weighted(form(word) for word in words)
    size = len(table)
    return lambda cast: table[int(cast.random() * size)]


def _kept_filler(slot: str, base: str, category: str, words: list[str], form: Callable[[str], str]) -> Filler:
    table = weighted(words)
    size = len(table)
    formed = {word: form(word) for word in words}
    others = [f"{category}#{n}" for n in range(1, 5)]

    def fill(cast: Cast) -> str:
        word = cast.get(base)
        if word is None:
            taken = [cast[other] for other in others if other in cast]
            word = table[int(cast.random() * size)]
            while word in taken:
                word = table[int(cast.random() * size)]
            cast[base] = word
        cast[slot] = result = formed[word]
        return result

    return fill


def expand(line: str) -> Variant:
    """Return all templates of a line, with its choices expanded.

    >>> expand("[One|A] day[ soon|], {hero} left.")[:2]
    ('One day soon, %(hero)s left.', 'One day, %(hero)s left.')
    """
    parts = re.split(r"\[([^\[\]]*)\]", line)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    texts = ["".join(choice) for choice in product(*choices)]
    for text in texts:
        for slot in SLOT.findall(text):
            add_filler(slot)
    return tuple(SLOT.sub(r"%(\1)s", text.replace("%", "%%")) for text in texts)


def read_blocks(text: str) -> dict[str, str]:
    """Return the blocks of a text by their `= header` line."""
    blocks = re.split(r"^= *(.+)$", text.strip(), flags=re.MULTILINE)[1:]
    return dict(zip((header.strip() for header in blocks[::2]), blocks[1::2], strict=True))


def compile_plots(beats_text: str, plot_texts: Iterable[str]) -> list[Plot]:
    """Return every plot, compiled for each kind of hero that it allows."""
    shared = {name: block.strip().splitlines() for name, block in read_blocks(beats_text).items()}
    plots = []
    for text in plot_texts:
        for header, body in read_blocks(text).items():
            name, *settings = header.split()
            plot = Plot(name, dict(setting.split("=", 1) for setting in settings))
            for hero in plot.options.get("hero", "child,beast").split(","):
                plot.beats[hero] = tuple(_compile_body(body, shared, hero))
            plots.append(plot)
    return plots


def _compile_body(body: str, shared: dict[str, list[str]], hero: str) -> Iterable[Beat]:
    lead = ""
    for block in re.split(r"\n\s*\n", body.strip()):
        lines = block.splitlines()
        optional = False
        while lines[0] in ("?", "--"):
            optional |= lines[0] == "?"
            lead = "\n\n" if lines[0] == "--" else lead
            del lines[0]
        if optional and lead != " ":
            raise ValueError(f"a paragraph cannot start with an optional beat: {block!r}")
        lines = [inner for line in lines for inner in (shared[line[1:]] if line.startswith("@") else [line])]
        lines = [line for line in lines if not line.startswith("cb".replace(hero[0], "") + ": ")]
        variants = []
        for line in lines:
            line = re.sub(r"^[cb]: ", "", line)
            line = re.sub(r"@(\w+)", lambda match: "[" + "|".join(shared[match[1]]) + "]", line)
            variants.append(tuple(lead + template for template in expand(line)))
        yield Beat(tuple(variants), optional)
        lead = " "
