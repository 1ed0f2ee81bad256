"""Tokenizer pages: the figures of a tokenizer on texts, its training and its tokens, as a `Document`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gristmill.analysis.growth import compression_curve, unexpectedly_rare_tokens
from gristmill.analysis.scripts import ScriptUsage, script_usage, vocabulary_scripts
from gristmill.analysis.strangeness import strangest_tokens
from gristmill.analysis.texts import Text
from gristmill.analysis.token_text import shortened, show_token
from gristmill.analysis.usage import Usage, sum_of, usage_of_ids, zipf_curve
from gristmill.analysis.vocabulary import TokenClasses, length_histogram, token_classes, token_lengths
from gristmill.encode.special_rules import NONE, Specials
from gristmill.encode.tokenizer import Tokenizer
from gristmill.report import figures
from gristmill.report.document import (
    Column,
    Document,
    Plots,
    Section,
    Settings,
    ShownToken,
    Table,
    TokenGroup,
    Tokens,
    cells,
    full_rows,
)
from gristmill.report.drawing import Plot
from gristmill.report.profile_sections import training_sections
from gristmill.report.summary import Figure
from gristmill.report.token_plots import Line, bar_plot, compression_plot, length_plot, zipf_plot

NUM_TOKENS_SHOWN = 16
TOKEN_LENGTH = 28  # characters of a token that is shown
MAX_SCRIPTS = 16  # in the table


@dataclass(frozen=True, eq=False)
class Measured:
    """A tokenizer with its figures on texts."""

    name: str
    tokenizer: Tokenizer
    texts: Sequence[Text]
    usages: Sequence[Usage]  # one for each text
    scripts: Sequence[Sequence[ScriptUsage]]  # of each text
    classes: TokenClasses
    plain_specials: Sequence[str] = ()  # special tokens that a text contains and that were encoded as plain text

    @cached_property
    def total(self) -> Usage:
        """The figures on all texts together."""
        return sum_of(self.usages)

    @property
    def partial_share(self) -> float | None:
        """Share of the tokens of all texts that begin or end inside a character."""
        return self.partial_share_of(self.total)

    def partial_share_of(self, usage: Usage) -> float | None:
        """Share of the tokens of one text that begin or end inside a character."""
        return float(usage.counts[self.classes.partial_utf8].sum()) / usage.num_tokens if usage.num_tokens else None


def measure_texts(
    name: str, tokenizer: Tokenizer, texts: Sequence[Text], *, allowed_special: Specials = NONE
) -> Measured:
    """Return the figures of a tokenizer on each text."""
    usages, scripts = [], []
    for text in texts:
        ids = tokenizer.encode_array(text.data, allowed_special=allowed_special)
        usages.append(usage_of_ids(tokenizer, ids, text.data))
        scripts.append(script_usage(tokenizer, ids, text.data))
    classes = token_classes(tokenizer)
    return Measured(
        name, tokenizer, texts, usages, scripts, classes, _plain_specials(tokenizer, texts, allowed_special)
    )


def _plain_specials(tokenizer: Tokenizer, texts: Sequence[Text], allowed_special: Specials) -> list[str]:
    if allowed_special == "all":
        return []
    others = [special for special in tokenizer.special_tokens if special not in allowed_special]
    return [special for special in others if any(special.encode() in text.data for text in texts)]


def troubles(measured: Sequence[Measured]) -> list[str]:
    """Return a warning if special tokens in the texts were encoded as plain text, which distorts the figures."""
    found = sorted({special for each in measured for special in each.plain_specials})
    if not found:
        return []
    shown = ", ".join(show_token(special.encode()) for special in found[:3]) + ", …" * (len(found) > 3)
    return [
        f"The text contains special tokens ({shown}), which were encoded as plain text. To count each as one token, "
        f'pass allowed_special="all", on the command line --allowed-special all.'
    ]


def tokenizer_document(measured: Measured) -> Document:
    """Return the page about one tokenizer."""
    tokenizer, total = measured.tokenizer, measured.total
    what = texts_in_words(measured.texts)
    ratio = total.bytes_per_token
    result = f"{total.num_vocabulary:,} tokens. " + (
        f"{ratio:.2f} bytes per token on {what}." if ratio is not None else f"There is no text to measure: {what}."
    )
    sections: list[Section] = [
        Plots("Vocabulary and text", _plots(measured, what)),
        _texts_table(measured),
        _scripts_table(measured),
    ]
    if tokenizer.profile is not None:
        sections += training_sections(tokenizer.profile)
    sections += [Tokens("Tokens", _token_groups(measured)), Settings("Tokenizer", _settings(measured))]
    return Document(
        kicker="Tokenizer",
        title=measured.name,
        result=result,
        figures=_figures(measured),
        sections=sections,
        footer=f"the tokenizer and {what}.",
        troubles=troubles([measured]),
    )


def texts_in_words(texts: Sequence[Text]) -> str:
    """Return what the figures were measured on: the name and the size of the text, or the number of texts."""
    size = figures.size(sum(len(text.data) for text in texts))
    if len(texts) == 1:
        return texts[0].description if texts[0].is_cut else f"{texts[0].name} ({size})"
    names = ", ".join(shortened(text.name, 40) for text in texts[:8])
    return f"{len(texts)} texts ({names}{', …' * (len(texts) > 8)}; {size} in all)"


def optional(value: float | None, form: str) -> str:
    """Return a number that may be missing."""
    return "–" if value is None else format(value, form)


def _figures(measured: Measured) -> list[Figure]:
    tokenizer, total, classes = measured.tokenizer, measured.total, measured.classes
    unused = figures.percent(len(total.unused) / len(classes.ordinary))
    share = measured.partial_share
    return [
        Figure("vocabulary", f"{total.num_vocabulary:,}", f"{len(tokenizer.merge_ids):,} merges"),
        Figure("bytes per token", optional(total.bytes_per_token, ".3f"), "more is better"),
        Figure("fertility", optional(total.fertility, ".3f"), "tokens per word; fewer is better"),
        Figure("Rényi efficiency", optional(total.renyi_efficiency, ".3f"), "evenness of use, from 0 to 1"),
        Figure("unused tokens", f"{len(total.unused):,}", f"{unused} of the vocabulary"),
        Figure("partial UTF-8", f"{len(classes.partial_utf8):,}", _share_in_words(share)),
        Figure("whitespace tokens", f"{len(classes.whitespace):,}", "only white space"),
        Figure("special tokens", f"{len(classes.specials):,}", "not learned from text"),
    ]


def _share_in_words(share: float | None) -> str:
    return "tokens of the vocabulary" if share is None else f"{figures.percent(share)} of the tokens of the text"


def _plots(measured: Measured, what: str) -> list[Plot]:
    tokenizer, total = measured.tokenizer, measured.total
    curve = compression_curve(tokenizer, total.counts, total.num_bytes)
    ranks, counts = zipf_curve(total.counts)
    of_vocabulary = list(vocabulary_scripts(tokenizer).items())
    num_ordinary = len(measured.classes.ordinary)
    shown = _with_rest(of_vocabulary, 8)
    found = (
        None if curve is None else compression_plot([Line("", *curve)], what),
        zipf_plot([Line("", ranks, counts)], "the text"),
        length_plot([("", length_histogram(tokenizer))]),
        bar_plot(
            "vocabulary_scripts",
            "Vocabulary by script",
            "A token belongs to the script of its first letter. Common: digits, punctuation and symbols.",
            [(name, number, f"{number:,} · {figures.percent(number / num_ordinary)}") for name, number in shown],
            "tokens",
        ),
        bar_plot(
            "texts",
            "Bytes per token by text",
            "A longer bar means fewer tokens for the same text.",
            [
                (text.name, usage.bytes_per_token or 0, optional(usage.bytes_per_token, ".2f"))
                for text, usage in zip(measured.texts, measured.usages, strict=True)
            ],
            "bytes per token",
        )
        if 1 < len(measured.texts) <= 16
        else None,
    )
    return full_rows(found)


def _with_rest(rows: list[tuple[str, int]], most: int) -> list[tuple[str, int]]:
    """Return at most `most` rows; the last one then adds up the rest."""
    if len(rows) <= most:
        return rows
    rest = sum(number for _, number in rows[most - 1 :])
    return [*rows[: most - 1], (f"{len(rows) - most + 1} more", rest)]


def _texts_table(measured: Measured) -> Table:
    """Return the figures on each text, if there are several."""
    names = ["text", "size", "tokens", "bytes/token", "tokens/word", "tokens/character", "Rényi", "unused"]
    rows = []
    for text, usage in zip(measured.texts, measured.usages, strict=True):
        per_character = usage.num_tokens / usage.num_characters if usage.num_characters else None
        row = [
            text.name,
            figures.size(usage.num_bytes),
            f"{usage.num_tokens:,}",
            optional(usage.bytes_per_token, ".3f"),
            optional(usage.fertility, ".3f"),
            optional(per_character, ".3f"),
            optional(usage.renyi_efficiency, ".3f"),
            f"{len(usage.unused):,}",
        ]
        rows.append(cells(row))
    note = "A word is a span without white space, so tokens per word mean little for text without spaces between words."
    return Table("By text", [Column(name) for name in names], rows if len(rows) > 1 else [], note)


def _scripts_table(measured: Measured) -> Table:
    names = ["script", "characters", "of all", "bytes/token", "tokens/character", "partial UTF-8"]
    usages = sum_of_scripts(measured.scripts)
    num_characters = sum(usage.num_characters for usage in usages)
    rows = [
        cells(
            [
                usage.script,
                f"{usage.num_characters:,}",
                figures.percent(usage.num_characters / num_characters),
                f"{usage.bytes_per_token:.3f}",
                f"{usage.tokens_per_character:.3f}",
                figures.percent(usage.num_partial / usage.num_tokens),
            ]
        )
        for usage in usages[:MAX_SCRIPTS]
    ]
    note = (
        "Scripts are those of Unicode. Common has spaces, digits, punctuation and symbols. A token that spans two "
        "scripts counts for each by its share of bytes. Partial UTF-8: tokens that begin or end inside a character."
    )
    if len(usages) > MAX_SCRIPTS:
        note = f"The {MAX_SCRIPTS} most frequent of {len(usages)} scripts. {note}"
    return Table("By script", [Column(name) for name in names], rows, note)


def sum_of_scripts(scripts: Sequence[Sequence[ScriptUsage]]) -> list[ScriptUsage]:
    """Return the scripts of several texts together, the one with the most characters first."""
    by_name: dict[str, list[ScriptUsage]] = {}
    for usage in (usage for each in scripts for usage in each):
        by_name.setdefault(usage.script, []).append(usage)
    sums = [
        ScriptUsage(
            script=name,
            num_characters=sum(usage.num_characters for usage in usages),
            num_bytes=sum(usage.num_bytes for usage in usages),
            num_tokens=sum(usage.num_tokens for usage in usages),
            num_partial=sum(usage.num_partial for usage in usages),
        )
        for name, usages in by_name.items()
    ]
    return sorted(sums, key=lambda usage: (-usage.num_characters, usage.script))


def _token_groups(measured: Measured) -> list[TokenGroup]:
    tokenizer, total, classes = measured.tokenizer, measured.total, measured.classes
    counts, lengths = total.counts, token_lengths(tokenizer)
    learned = classes.longest[lengths[classes.longest] > 1]
    top = np.argsort(-counts, kind="stable")[:NUM_TOKENS_SHOWN]
    rare, applied, expected = unexpectedly_rare_tokens(tokenizer, counts, NUM_TOKENS_SHOWN)
    partial = classes.partial_utf8[lengths[classes.partial_utf8] > 1]
    unused = total.unused[lengths[total.unused] > 1]
    groups = [
        ("Most frequent", f"{total.num_used:,} tokens occur.", top[counts[top] > 0], [f"{n:,}" for n in counts[top]]),
        (
            "Rarer than expected",
            "Rare here, although tokens learned just before and after are frequent: count, and the count they suggest.",
            rare,
            [f"{n:,} of {m:,}" for n, m in zip(applied.tolist(), expected.tolist(), strict=True)],
        ),
        ("Strangest", "Most unlike the rest of the vocabulary. Number: the id.", strangest_tokens(tokenizer), None),
        ("Longest", "Length in bytes.", learned, [f"{n:,}" for n in lengths[learned]]),
        ("Never used", f"{len(total.unused):,} tokens, first those with the lowest ids. Number: the id.", unused, None),
        (
            "Partial UTF-8",
            f"{len(classes.partial_utf8):,} tokens begin or end inside a character, {len(partial):,} of them with "
            f"several bytes. Number: the id.",
            partial,
            None,
        ),
        ("Whitespace", f"{len(classes.whitespace):,} tokens. Number: the id.", classes.whitespace, None),
        (
            "Special",
            f"{len(classes.specials):,} special tokens. Number: the id.",
            np.array(list(classes.specials.values()), np.int64),
            None,
        ),
    ]
    return [
        TokenGroup(title, note, shown_tokens(tokenizer, ids, notes)) for title, note, ids, notes in groups if len(ids)
    ]


def shown_tokens(
    tokenizer: Tokenizer, ids: NDArray[np.int64], notes: Sequence[str] | None = None, *, most: int = NUM_TOKENS_SHOWN
) -> list[ShownToken]:
    """Return the first tokens as readable text, each with its note or its id."""
    vocab = tokenizer.vocab
    return [
        ShownToken(shortened(show_token(vocab.get(id, b"")), TOKEN_LENGTH), str(id) if notes is None else notes[i])
        for i, id in enumerate(ids[:most].tolist())
    ]


def _settings(measured: Measured) -> list[tuple[str, str]]:
    tokenizer = measured.tokenizer
    specials = [f"{show_token(special.encode())} = {id}" for special, id in tokenizer.special_tokens.items()]
    rest = f", … ({len(specials):,} in all)" if len(specials) > 8 else ""
    return [
        ("pattern", tokenizer.pattern),
        ("special tokens", (", ".join(specials[:8]) + rest) or "none"),
        ("merges", f"{len(tokenizer.merge_ids):,}"),
        ("fingerprint", tokenizer.fingerprint),
        *[
            (f"text {text.name}" if len(measured.texts) > 1 else "text", _text_in_words(text))
            for text in measured.texts
        ],
    ]


def _text_in_words(text: Text) -> str:
    beginning = f"the first {figures.size(len(text.data))} of " if text.is_cut else ""
    end = "" if text.is_cut else f", {figures.size(len(text.data))}"
    return f"{beginning}{text.path or text.name}{end}"
