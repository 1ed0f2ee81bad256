"""The cast of a story: its characters, place and time, and the sums in it."""

from __future__ import annotations

from collections.abc import Callable

from .grammar import Cast, Plot, capitalized, expand, split_list, weighted
from .lexicon import NAMES, WORDS
from .settings import BEAST_WORLDS, ELDER_ANIMALS, ELDER_TITLES, SEASONS, TOWNS, WORLDS

Random = Callable[[], float]

_PRONOUNS = {"she": ("she", "her", "her", "herself"), "he": ("he", "him", "his", "himself")}


def _pronouns(prefix: str, gender: str) -> dict[str, str]:
    he, him, his, himself = _PRONOUNS[gender]
    forms = {"he": he, "him": him, "his": his, "himself": himself, "He": capitalized(he), "His": capitalized(his)}
    return {prefix + slot: word for slot, word in forms.items()}


_PRONOUN_SLOTS = {
    (prefix, gender): _pronouns(prefix, gender) for prefix in ("", "f.", "t.", "e.", "p.") for gender in ("she", "he")
}
_NAME_TABLES = {kind: weighted(split_list(names)) for kind, names in NAMES.items()} | {
    "animal": weighted(split_list(ELDER_ANIMALS))
}
_KINDS = weighted(split_list(WORDS["beast"]))
_CHILD = {"she": "girl", "he": "boy"}
_PARENTS = {
    "child": [("Mom", "she"), ("Dad", "he"), ("Mama", "she"), ("Papa", "he")],
    "beast": [("Mama", "she"), ("Papa", "he"), ("Mother", "she"), ("Father", "he")],
}
_ELDERS = {hero: [(title, *rest) for title, rest in titles.items()] for hero, titles in ELDER_TITLES.items()}

_WORLD_NAMES = {"child": tuple(WORLDS), "beast": BEAST_WORLDS}
_HOMES = {world: split_list(parts["homes"]) for world, parts in WORLDS.items()}
_WILD = {world: weighted(split_list(parts["wild"])) for world, parts in WORLDS.items()}
_PLACES = {
    world: [(at, "the " + at.split(" the ", 1)[1]) for at in split_list(parts["places"])]
    for world, parts in WORLDS.items()
}
_TOWNS = weighted(split_list(TOWNS))
_SEASON_NAMES = tuple(SEASONS)
_WEATHER = {season: [expand(line.strip()) for line in lines.splitlines()] for season, lines in SEASONS.items()}

_SMALL = split_list(
    "zero, one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, "
    "sixteen, seventeen, eighteen, nineteen"
)
_TENS = split_list("_, _, twenty, thirty, forty, fifty, sixty, seventy, eighty, ninety")


def number_word(n: int) -> str:
    """Return 0 to 99 in words.

    >>> number_word(7), number_word(30), number_word(42)
    ('seven', 'thirty', 'forty-two')
    """
    if n < 20:
        return _SMALL[n]
    return _TENS[n // 10] + ("-" + _SMALL[n % 10] if n % 10 else "")


_IN_WORDS = [number_word(n) for n in range(100)]
_IN_DIGITS = [number_word(n) if n < 10 else str(n) for n in range(100)]  # the newspaper's rule


def _below(random: Random, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    return low + int(random() * (high - low + 1))


def coins(random: Random) -> dict[str, int]:
    """A price, what the hero has, and two wages that make up the difference."""
    have, earn1, earn2 = _below(random, 2, 25), _below(random, 2, 12), _below(random, 2, 12)
    return {"price": have + earn1 + earn2, "have": have, "earn1": earn1, "earn2": earn2, "need": earn1 + earn2}


def birthday(random: Random) -> dict[str, int]:
    age = _below(random, 5, 10)
    return {"new_age": age, "old_age": age - 1}


def recipe(random: Random) -> dict[str, int]:
    eggs, half = _below(random, 4, 9), _below(random, 3, 8)
    few = _below(random, 2, eggs - 1)
    return {
        "eggs": eggs,
        "few_eggs": few,
        "more_eggs": eggs - few,
        "flour": _below(random, 2, 6),
        "pieces": 2 * half,
        "half": half,
    }


def garden(random: Random) -> dict[str, int]:
    rows, per_row, lost = _below(random, 3, 6), _below(random, 4, 9), _below(random, 2, 5)
    return {"rows": rows, "per_row": per_row, "seeds": rows * per_row, "lost": lost, "sprouts": rows * per_row - lost}


def sharing(random: Random) -> dict[str, int]:
    """Some cakes: one is eaten in secret, and the rest can be shared by three."""
    each = _below(random, 2, 9)
    return {"total": 3 * each + 1, "rest": 3 * each, "each": each}


_SUMS = {function.__name__: function for function in (coins, birthday, recipe, garden, sharing)}
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_HALF_HOURS = ("half past", "a quarter past", "a quarter to")


def new_cast(plot: Plot, random: Random) -> tuple[Cast, str]:
    """The cast of one story and the kind of its hero, "child" or "beast"."""
    cast = Cast(random)
    kinds = tuple(plot.beats)
    hero = kinds[int(random() * len(kinds))]
    _add_people(cast, hero, random)
    _add_setting(cast, plot, hero, random)
    _add_numbers(cast, plot, random)
    return cast, hero


def _add_people(cast: Cast, hero: str, random: Random) -> None:
    names: list[str] = []
    for slot, prefix in (("hero", ""), ("friend", "f."), ("third", "t.")):
        gender = "she" if random() < 0.5 else "he"
        table = _NAME_TABLES["beast" if hero == "beast" else _CHILD[gender]]
        name = table[int(random() * len(table))]
        while name in names:
            name = table[int(random() * len(table))]
        names.append(name)
        cast[slot] = name
        cast.update(_PRONOUN_SLOTS[prefix, gender])
        cast.put(prefix + "kind", _KINDS[int(random() * len(_KINDS))] if hero == "beast" else _CHILD[gender])
    title, gender, kind = _ELDERS[hero][int(random() * len(_ELDERS[hero]))]
    table = _NAME_TABLES[kind]
    name = table[int(random() * len(table))]
    while name in names:
        name = table[int(random() * len(table))]
    cast["elder"] = f"{title} {name}"
    cast.update(_PRONOUN_SLOTS["e.", gender])
    cast["parent"], gender = _PARENTS[hero][int(random() * 4)]
    cast.update(_PRONOUN_SLOTS["p.", gender])


def _add_setting(cast: Cast, plot: Plot, hero: str, random: Random) -> None:
    worlds = tuple(plot.options["worlds"].split(",")) if "worlds" in plot.options else _WORLD_NAMES[hero]
    world = worlds[int(random() * len(worlds))]
    cast["there"] = WORLDS[world]["there"]
    cast["home"] = _HOMES[world][int(random() * len(_HOMES[world]))]
    cast.put("wild", _WILD[world][int(random() * len(_WILD[world]))])
    cast.put("helper", _WILD[world][int(random() * len(_WILD[world]))])
    cast["job_or_wild"] = cast["job"] if hero == "child" else cast["wild"]
    places = _PLACES[world]
    first, step = int(random() * len(places)), 1 + int(random() * (len(places) // 2 - 1))
    for n, suffix in enumerate(("", "2", "3")):  # three different places: step is less than half the circle
        at, place = places[(first + n * step) % len(places)]
        cast["at" + suffix], cast["place" + suffix], cast["C:at" + suffix] = at, place, capitalized(at)
    cast["town"], _, cast["hello"] = _TOWNS[int(random() * len(_TOWNS))].partition("=")
    season = plot.options.get("season") or _SEASON_NAMES[int(random() * 4)]
    cast["season"] = season
    lines = _WEATHER[season][int(random() * len(_WEATHER[season]))]
    cast["weather"] = lines[int(random() * len(lines))]


def _add_numbers(cast: Cast, plot: Plot, random: Random) -> None:
    numerals = _IN_DIGITS if random() < 0.4 else _IN_WORDS
    cast["bignum"] = numerals[_below(random, 13, 99)]
    cast["C:bignum"] = capitalized(cast["bignum"])
    cast["bignum_digits"] = str(_below(random, 100, 9999))
    hour = _below(random, 1, 11)
    if numerals is _IN_DIGITS:
        cast["clock"] = f"{hour}:{15 * _below(random, 1, 3)}"
    else:
        cast["clock"] = f"{_HALF_HOURS[int(random() * 3)]} {_IN_WORDS[hour]}"
    if "numbers" in plot.options:
        for slot, number in _SUMS[plot.options["numbers"]](random).items():
            cast[slot] = numerals[number]
            cast["C:" + slot] = capitalized(numerals[number])
        day = int(random() * 5)
        cast["day1"], cast["day2"] = _WEEKDAYS[day], _WEEKDAYS[day + 1]
