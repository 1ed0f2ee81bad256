"""Structure of manifest.json, .request.json and progress.json: every key, its type and its range.

The types are msgspec types, which msgspec checks natively: a manifest of 100,000 shards in 0.2 s. This module is
imported when the first of these files is read, to keep `import gristmill` fast. It checks only the structure;
`Manifest` and `Folder` check the meaning.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from gristmill.errors import ShardsFormatError
from gristmill.shards.layouts import LAYOUTS
from gristmill.tokenizer.vocabulary import MAX_ID

__all__ = ["check_journal", "check_manifest", "check_progress", "check_request"]

# A name as `os.fsdecode` returns it: bytes that are not UTF-8 are the surrogates U+DC80 to U+DCFF, and no others occur.
_PATH = r"[^\x00\ud800-\udc7f\udd00-\udfff]"
# Not hidden, and without the separators of folders, drives and streams on any system.
_NAME = r'[^/\\:"<>|?*\x00-\x1f\ud800-\udc7f\udd00-\udfff]'


def _matching(pattern: str, expected: str, max_length: int | None = None) -> Meta:
    return Meta(pattern=rf"\A(?:{pattern})\Z", description=expected, max_length=max_length)


# The description tells the user, in the error, which values are valid.
Count = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number from 0 to 2^63 - 1")]
# A reader counts how often each id occurs, so a forged size would make it allocate that many numbers.
VocabSize = Annotated[int, Meta(ge=0, le=MAX_ID + 1, description=f"a whole number from 0 to {MAX_ID + 1}")]
Nanoseconds = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1, description="a whole number of 64 bits, or null")]
String = Annotated[str, Meta(description="a text")]
Utf8 = Annotated[str, _matching(r"[^\ud800-\udfff]*", "a text that can be encoded as UTF-8")]
Path = Annotated[str, _matching(rf"{_PATH}*", "a path or URL")]
FileName = Annotated[
    str,
    _matching(
        rf"(?!\.|(?:manifest|progress)\.json\Z){_NAME}+",
        "the name of a file in this folder of at most 255 characters, without a path and not hidden",
        max_length=255,
    ),
]
Sha256 = Annotated[str, _matching("[0-9a-f]{64}", "64 hexadecimal digits")]
Xxh64 = Annotated[str, _matching("[0-9a-f]{16}", "16 hexadecimal digits")]
Samples = Annotated[str, _matching("([0-9a-f]{16})?", "16 hexadecimal digits, or empty")]
Object = Annotated[dict[str, Any], Meta(description="an object")]
LayoutName = Annotated[str, _matching("|".join(LAYOUTS), f"one of {', '.join(map(repr, LAYOUTS))}")]
SplitName = Literal["train", "val"]


class _Record(Struct, forbid_unknown_fields=True):
    """An object with exactly these keys."""


class Shard(_Record):
    """Structure of `ShardEntry`."""

    file: FileName
    tokens: Count
    documents: Count
    bytes: Count
    xxh64: Xxh64
    index: FileName | None
    index_xxh64: Xxh64 | None


class Split(_Record):
    """Structure of `manifest.Split`."""

    documents: Count
    tokens: Count
    source_bytes: Count
    shards: list[Shard]


class Splits(_Record):
    """Splits, each optional."""

    train: Split | UnsetType = UNSET
    val: Split | UnsetType = UNSET


class Input(_Record):
    """Structure of `InputEntry`."""

    path: Path
    format: String
    compression: String
    bytes: Count
    modified_ns: Nanoseconds | None
    samples: Samples
    skipped: String | None


class EndOfText(_Record):
    """Structure of `manifest.EndOfText`."""

    id: Count
    token: Utf8
    position: Literal["after", "before"]


class _Asked(_Record):
    layout: LayoutName
    dtype: Literal["uint16", "uint32", "int32"]
    vocab_size: VocabSize
    tokenizer_fingerprint: Sha256
    end_of_text: EndOfText | None
    options: Object
    command: String


class Request(_Asked):
    """.request.json: structure of `request.Request`."""

    inputs: list[Input] | None


class Manifest(_Asked):
    """manifest.json, without its head and checksum."""

    tokenizer_file: FileName
    splits: Splits
    inputs: list[Input]
    num_nulls: Count


class SplitState(_Record):
    """Structure of the result of `state.SplitState.to_json`."""

    part_tokens: Count
    part_documents: Count
    part_end: Count
    source_bytes: Count


class SplitStates(_Record):
    """States of splits, each optional."""

    train: SplitState | UnsetType = UNSET
    val: SplitState | UnsetType = UNSET


class Position(_Record):
    """Structure of the result of `state.Position.to_json`."""

    index: Count
    mark: tuple[Count, Count, bool]
    open_split: SplitName | None
    num_nulls: Count
    skipped: list[tuple[Count, String]]


class State(_Record):
    """The state from which a run can resume."""

    position: Position
    splits: SplitStates


class JournalMark(_Record):
    """Length and checksum of the valid part of the journal."""

    bytes: Count
    sha256: Sha256


class Progress(_Record):
    """progress.json, without its head and checksum."""

    state: State
    parts: dict[str, Count]
    journal: JournalMark
    batches: Count


class Journal(_Record):
    """The shards in the journal, by split."""

    train: list[Shard] | UnsetType = UNSET
    val: list[Shard] | UnsetType = UNSET


def check_manifest(content: dict[str, Any]) -> None:
    """Raise `ShardsFormatError` unless `content` has the structure of a manifest, without its head and checksum."""
    _check(content, Manifest)


def check_request(content: dict[str, Any]) -> None:
    """Raise `ShardsFormatError` unless `content` has the structure of `Request.to_json`."""
    _check(content, Request)


def check_progress(content: dict[str, Any], *, num_inputs: int) -> None:
    """Raise `ShardsFormatError` unless `content` is what `Folder.save` writes for a run over `num_inputs` inputs."""
    _check(content, Progress)
    position = content["state"]["position"]
    if position["index"] >= num_inputs:
        raise ShardsFormatError(f"state.position.index is {position['index']}; it must be below {num_inputs}.")
    if position["mark"][2] and position["open_split"] is None:
        raise ShardsFormatError(
            "state.position.open_split is null; it must name a split, because a document is unfinished."
        )


def check_journal(shards: dict[str, list[dict[str, Any]]]) -> None:
    """Raise `ShardsFormatError` unless `shards` has the structure of the journal."""
    _check(shards, Journal)


def _check(content: dict[str, Any], kind: type[_Record]) -> None:
    try:
        msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise ShardsFormatError(_explain(str(error), content, kind)) from None
    except UnicodeEncodeError:
        raise ShardsFormatError("a key contains a lone surrogate, which is not valid text.") from None


_PLACE = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_KEY = re.compile(r"Object (?:missing required|contains unknown) field `(.*)`", re.DOTALL)


def _explain(message: str, content: Any, kind: Any) -> str:
    """Return an error message for that of msgspec: the place, the value there, and which values are valid."""
    what, place = _PLACE.fullmatch(message).groups(default="")  # type: ignore[union-attr]
    value = content
    for step in _STEP.finditer(place):
        name, number = step.groups()
        try:
            value = value[name if name is not None else int(number)]
        except (LookupError, TypeError):  # a key that looks like the end of a message
            return message
        kind = _type_at(kind, name, number)
    where = place.removeprefix(".")
    if key := _KEY.fullmatch(what):
        name = f"{where}{'.' * bool(where)}{key[1]}" if key[1].isidentifier() else f"{key[1][:80]!r} in {where or 'it'}"
        if what.startswith("Object missing"):
            return f"the key {name} is missing."
        return f"the key {name} is unknown; the keys are {', '.join(get_type_hints(_plain(kind)))}."
    return f"{where or 'it'} is {json.dumps(value)[:80]}; it must be {_expected(kind)}."


def _type_at(kind: Any, name: str | None, number: str | None) -> Any:
    """Return the type of a field or item of `kind`."""
    kind = _plain(kind)
    if name is not None:
        return get_type_hints(kind, include_extras=True)[name]
    items = get_args(kind)
    return items[int(number or 0)] if kind.__origin__ is tuple else items[0]


def _plain(kind: Any) -> Any:
    """Return the type without the alternatives null and unset."""
    others = [one for one in get_args(kind) if one not in (type(None), UnsetType)]
    return others[0] if len(others) < len(get_args(kind)) else kind


def _expected(kind: Any) -> str:
    """Describe the values of this type."""
    kind = _plain(kind)
    for note in getattr(kind, "__metadata__", ()):
        return str(note.description)
    origin = getattr(kind, "__origin__", kind)
    if origin is Literal:
        return f"one of {', '.join(map(repr, get_args(kind)))}"
    if origin is tuple:
        return f"a list of {len(get_args(kind))} values"
    return {list: "a list", bool: "true or false"}.get(origin, "an object")
