"""Request of a run: everything that decides the bytes `encode_corpus` writes, and nothing else.

It is stored in the manifest of finished shards and in .request.json of unfinished ones. A run resumes unfinished shards
only if their request is the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gristmill.corpus import Reading
from gristmill.corpus.inputs import shown
from gristmill.shards.manifest import EndOfText, InputEntry, Manifest, Split
from gristmill.shards.options import DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The tokenizer, the inputs and the options of a run."""

    layout: str
    dtype: str
    vocab_size: int
    tokenizer_fingerprint: str
    end_of_text: EndOfText | None
    inputs: tuple[InputEntry, ...] | None  # None for an iterable of documents, which cannot be compared
    options: dict[str, Any]
    command: str

    def to_json(self) -> dict[str, Any]:
        """Return the fields that `differences` compares."""
        return dataclasses.asdict(self)

    def manifest(self, splits: dict[str, Split], *, skipped: Mapping[int, str], num_nulls: int) -> Manifest:
        """Return the manifest of the finished shards."""
        return Manifest(
            layout=self.layout,
            dtype=self.dtype,
            vocab_size=self.vocab_size,
            tokenizer_fingerprint=self.tokenizer_fingerprint,
            end_of_text=self.end_of_text,
            splits=splits,
            inputs=tuple(
                dataclasses.replace(entry, skipped=skipped.get(i)) for i, entry in enumerate(self.inputs or ())
            ),
            num_nulls=num_nulls,
            options=self.options,
            command=self.command,
        )


def request_of_manifest(manifest: Manifest) -> dict[str, Any]:
    """Return the request that produced `manifest`, in the form of `Request.to_json`."""
    fields = {field.name for field in dataclasses.fields(Request)}
    request = {key: value for key, value in dataclasses.asdict(manifest).items() if key in fields}
    request["inputs"] = [dict(entry, skipped=None) for entry in request["inputs"]] or None
    return request


def differences(
    there: Mapping[str, Any], asked: Mapping[str, Any], explain_tokenizer: Callable[[str], str] | None = None
) -> list[str]:
    """Describe how two requests differ; an empty list if they are the same.

    explain_tokenizer: describes how the tokenizer differs from the one with the given fingerprint.

    >>> differences({"dtype": "uint16", "options": {"seed": 0}}, {"dtype": "uint16", "options": {"seed": 1}})
    ['seed was 0 and is now 1']
    """
    found = []
    if there.get("tokenizer_fingerprint") != asked.get("tokenizer_fingerprint"):
        why = "" if explain_tokenizer is None else explain_tokenizer(str(there.get("tokenizer_fingerprint")))
        found.append(f"the tokenizer is different{f' ({why})' * bool(why)}")
    for name in ("layout", "dtype"):
        if there.get(name) != asked.get(name):
            found.append(f"{name} was {there.get(name)} and is now {asked.get(name)}")
    if there.get("end_of_text") != asked.get("end_of_text"):
        found.append(
            f"the end-of-text token was {_end_of_text(there.get('end_of_text'))} "
            f"and is now {_end_of_text(asked.get('end_of_text'))}"
        )
    # An option that one of the two versions of Gristmill did not have counts as its default.
    usual = {**DEFAULTS, **dataclasses.asdict(Reading())}
    before, now = dict(there.get("options") or {}), dict(asked.get("options") or {})
    for name in [*now, *(name for name in before if name not in now)]:
        was, is_now = (options.get(name, usual.get(name)) for options in (before, now))
        if was != is_now:
            found.append(f"{name:.80} was {was!r:.200} and is now {is_now!r:.200}")
    return found + _input_differences(there.get("inputs"), asked.get("inputs"))


def _end_of_text(value: Mapping[str, Any] | None) -> str:
    return "none" if value is None else f"{value['token']!r} (id {value['id']}) {value['position']} each document"


def _input_differences(recorded: Any, asked: Any) -> list[str]:
    if recorded is None or asked is None:
        return [] if recorded is asked else ["one corpus is an iterable of documents, the other is not"]
    before, now = {entry["path"]: entry for entry in recorded}, {entry["path"]: entry for entry in asked}
    for path in before:
        if path not in now:
            return [f"the input {shown(path):.4096} was an input of the earlier run and is missing now"]
    for path, entry in now.items():
        if path not in before:
            return [f"the input {shown(path):.4096} is new: it was not an input of the earlier run"]
        if changed := _changes(before[path], entry):
            return [f"the input {shown(path):.4096} has changed: {changed}"]
    if [entry["path"] for entry in recorded] != [entry["path"] for entry in asked]:
        return ["the order of the inputs has changed, or an input is given another number of times"]
    return []


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    for key, name in (("bytes", "bytes"), ("format", "format"), ("compression", "compression")):
        if before[key] != now[key]:
            return f"{name} was {before[key]!r} and is now {now[key]!r}"
    if before["samples"] != now["samples"]:
        return "same size, different content"
    if before["modified_ns"] != now["modified_ns"]:
        return "it was modified since"
    return ""
