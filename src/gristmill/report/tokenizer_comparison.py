"""Tokenizer comparison: several tokenizers on the same texts, as a `Document`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gristmill.analysis.comparing import find_differences, vocabulary_overlaps
from gristmill.analysis.growth import compression_curve
from gristmill.analysis.texts import Text
from gristmill.analysis.token_text import shortened, show_token
from gristmill.analysis.usage import Usage, zipf_curve
from gristmill.analysis.vocabulary import length_histogram
from gristmill.encode.special_rules import NONE, Specials
from gristmill.report import figures
from gristmill.report.comparison import Cell
from gristmill.report.document import Column, Document, Plots, Section, Split, Splits, Table, Tables, full_rows
from gristmill.report.drawing import Plot
from gristmill.report.token_plots import Line, compression_plot, length_plot, line_style, zipf_plot
from gristmill.report.tokenizer_pages import Measured, sum_of_scripts, texts_in_words, troubles

NUM_PLACES = 12
MAX_SHOWN_TOKENS = 40
MAX_SCRIPTS = 12


@dataclass(frozen=True)
class Measure:
    """A number of each tokenizer on one text or on all of them, and which is best."""

    name: str
    note: str
    value: Callable[[Measured, Usage], float | None]
    form: Callable[[float], str]
    best: Callable[[list[float]], float] | None  # max, min, or None if no value is better


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _three_digits(value: float) -> str:
    return f"{value:.3f}" if value < 1000 else f"{value:,.0f}"  # fertility of a text without spaces


BYTES_PER_TOKEN = Measure(
    "bytes per token", "more is better", lambda _, usage: usage.bytes_per_token, _three_digits, max
)
FERTILITY = Measure("fertility", "tokens per word", lambda _, usage: usage.fertility, _three_digits, min)
RENYI = Measure("Rényi efficiency", "evenness of use", lambda _, usage: usage.renyi_efficiency, _three_digits, max)
UNUSED = Measure("unused tokens", "without special tokens", lambda _, usage: len(usage.unused), _whole, None)
BY_TEXT = (BYTES_PER_TOKEN, FERTILITY, RENYI, UNUSED)
MEASURES = (
    Measure("vocabulary", "tokens, special tokens included", lambda _, usage: usage.num_vocabulary, _whole, None),
    Measure("tokens", "of all texts", lambda _, usage: usage.num_tokens, _whole, min),
    BYTES_PER_TOKEN,
    FERTILITY,
    RENYI,
    Measure("tokens used", "distinct, in all texts", lambda _, usage: usage.num_used, _whole, None),
    UNUSED,
    Measure("partial UTF-8", "share of the tokens of the texts", Measured.partial_share_of, figures.percent, min),
)


def comparison_document(measured: Sequence[Measured], *, allowed_special: Specials = NONE) -> Document:
    """Return the page about several tokenizers on the same texts."""
    what = texts_in_words(measured[0].texts)
    names = [each.name for each in measured]
    sections: list[Section] = [
        Table(
            "Figures",
            [Column("measure"), *_heads(names)],
            [_row(measure, measured) for measure in MEASURES],
            "★ marks the best value of a row. A larger vocabulary gives more bytes per token, and a larger model. "
            "Compare tokenizers of equal size, or read the curves at the size of the smallest.",
        ),
        Plots("Vocabulary and text", _plots(measured, what)),
        _by_text(measured),
        _by_script(measured),
        _overlaps(measured),
        _splits(measured, allowed_special),
    ]
    return Document(
        kicker=f"Comparison of {len(measured)} tokenizers",
        title=f"{', '.join(names[:-1])} and {names[-1]}",
        result=_result(measured, what),
        figures=[],
        sections=sections,
        footer=f"the tokenizers and {what}.",
        troubles=troubles(measured),
    )


def _heads(names: Sequence[str]) -> list[Column]:
    return [Column(shortened(name, 28), False, *line_style(number)) for number, name in enumerate(names)]


def _result(measured: Sequence[Measured], what: str) -> str:
    ratios = [each.total.bytes_per_token for each in measured]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return f"There is no text to measure: {what}."
    best = ratios.index(max(known))
    ties = sum(ratio == ratios[best] for ratio in ratios)
    if ties == len(ratios):
        return f"All have {max(known):.3f} bytes per token on {what}."
    return f"{measured[best].name} has the most bytes per token on {what}: {max(known):.3f}."


def _row(measure: Measure, measured: Sequence[Measured]) -> list[Cell]:
    values = [measure.value(each, each.total) for each in measured]
    return [Cell(measure.name, measure.note), *_marked(values, measure)]


def _marked(values: Sequence[float | None], measure: Measure) -> list[Cell]:
    known = [value for value in values if value is not None]
    best = measure.best(known) if measure.best and known and len(set(known)) > 1 else None
    return [
        Cell("–" if value is None else measure.form(value), is_best=best is not None and value == best)
        for value in values
    ]


def _plots(measured: Sequence[Measured], what: str) -> list[Plot]:
    curves, ranks = [], []
    for number, each in enumerate(measured):
        colour, dash = line_style(number)
        total = each.total
        curve = compression_curve(each.tokenizer, total.counts, total.num_bytes)
        if curve is not None:
            curves.append(Line(each.name, *curve, colour, dash))
        ranks.append(Line(each.name, *zipf_curve(total.counts), colour, dash))
    found = (
        compression_plot(curves, what),
        zipf_plot(ranks, "the text"),
        length_plot([(each.name, length_histogram(each.tokenizer)) for each in measured]),
    )
    return full_rows(found)


def _by_text(measured: Sequence[Measured]) -> Tables:
    """Return a table of each measure with a row for each text, if there are several texts."""
    texts: Sequence[Text] = measured[0].texts
    columns = [Column("text"), *_heads([each.name for each in measured])]
    tables = []
    for measure in BY_TEXT if len(texts) > 1 else ():
        rows = []
        for number, text in enumerate(texts):
            values = [measure.value(each, each.usages[number]) for each in measured]
            rows.append([Cell(text.name), *_marked(values, measure)])
        tables.append(Table(f"{measure.name[0].upper()}{measure.name[1:]}", columns, rows, measure.note))
    sizes = ", ".join(f"{shortened(text.name, 40)} {figures.size(len(text.data))}" for text in texts)
    note = (
        f"Sizes of the texts: {sizes}. A short text cannot use a large vocabulary. "
        "A word is a span without white space, so fertility means little for text without spaces between words."
    )
    return Tables("By text", tables, note)


def _by_script(measured: Sequence[Measured]) -> Table:
    """Return the bytes per token of each script. The scripts of the texts are the same for every tokenizer."""
    tables = [{usage.script: usage for usage in sum_of_scripts(each.scripts)} for each in measured]
    rows = []
    for script, usage in list(tables[0].items())[:MAX_SCRIPTS]:
        values = [table[script].bytes_per_token for table in tables]
        rows.append([Cell(script, f"{usage.num_characters:,} characters"), *_marked(values, BYTES_PER_TOKEN)])
    note = "A token that spans two scripts counts for each by its share of bytes."
    if len(tables[0]) > MAX_SCRIPTS:
        note = f"The {MAX_SCRIPTS} most frequent of {len(tables[0])} scripts. {note}"
    return Table("Bytes per token by script", [Column("script"), *_heads([each.name for each in measured])], rows, note)


def _overlaps(measured: Sequence[Measured]) -> Table:
    rows = []
    for overlap in vocabulary_overlaps([each.tokenizer for each in measured]):
        numbers = (overlap.num_shared, overlap.num_first_only, overlap.num_second_only)
        rows.append(
            [
                Cell(f"{measured[overlap.first].name}, {measured[overlap.second].name}"),
                *(Cell(f"{number:,}") for number in numbers),
                Cell(figures.percent(overlap.share)),
            ]
        )
    names = ["tokenizers", "shared", "first only", "second only", "of all"]
    return Table("Shared tokens", [Column(name) for name in names], rows, "Tokens are compared by their bytes.")


def _splits(measured: Sequence[Measured], allowed_special: Specials) -> Splits:
    """Return the first places of the first text that the tokenizers split differently."""
    text = measured[0].texts[0]
    tokenizers = [each.tokenizer for each in measured]
    ids = [tokenizer.encode_array(text.data, allowed_special=allowed_special) for tokenizer in tokenizers]
    found = find_differences(tokenizers, ids, text.data, num_places=NUM_PLACES)
    splits = [
        Split(
            f"Byte {place.begin:,}",
            [
                (each.name, [shortened(show_token(token), 40) for token in tokens[:MAX_SHOWN_TOKENS]])
                for each, tokens in zip(measured, place.tokens, strict=True)
            ],
        )
        for place in found.places
    ]
    share = figures.percent(found.num_bytes / len(text.data)) if text.data else "0 %"
    note = f"{found.num_places:,} places in {text.name} are split differently; they cover {share} of its bytes."
    if found.num_places > len(splits):
        note += f" These are the first {len(splits)}."
    return Splits("Different splits", note, splits)
