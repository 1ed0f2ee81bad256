"""Fingerprints by which a resumed run recognizes its data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill._core import Xxh64
from gristmill.errors import GristmillError
from gristmill.shards import Shards
from gristmill.shards.tokenizer_changes import tokenizer_changes

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer

TOKENIZER_FILE = "tokenizer.json"

__all__ = ["identity_differences", "json_checksum", "mixture_identity", "shards_identity"]


def json_checksum(content: Mapping[str, Any]) -> str:
    """Return the xxh64 of the content as JSON with sorted keys."""
    digest = Xxh64()
    digest.update(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    return digest.hexdigest()


def shards_identity(shards: Shards) -> dict[str, Any]:
    """Return the identity of shards: tokenizer, number of tokens, and a fingerprint of all files."""
    return {
        "tokenizer_fingerprint": shards.tokenizer_fingerprint,
        "num_tokens": shards.num_tokens,
        "fingerprint": json_checksum({"dtype": shards.dtype.name, "files": shards.checksums()}),
    }


def mixture_identity(sources: Mapping[str, Mapping[str, Any]], shares: Mapping[str, int]) -> dict[str, Any]:
    """Return the identity of a mixture of shards with one tokenizer. The names of the sources are not part of it."""
    listed = [
        {"name": name, "share": shares[name], **{key: of[key] for key in ("num_tokens", "fingerprint")}}
        for name, of in sources.items()
    ]
    unnamed = [{key: of[key] for key in of if key != "name"} for of in listed]
    return {
        "tokenizer_fingerprint": next(iter(sources.values()))["tokenizer_fingerprint"],
        "num_tokens": sum(of["num_tokens"] for of in listed),
        "fingerprint": json_checksum({"sources": unnamed}),
        "sources": listed,
    }


def identity_differences(
    there: Mapping[str, Any], now: Mapping[str, Any], *, run: Path | None = None, tokenizer: Tokenizer | None = None
) -> list[str]:
    """Describe the differences between the data of a checkpoint and that of this run, for a message.

    With the folder of the run and the tokenizer of the data, the description includes the changes of the tokenizer.
    """
    then, today = there.get("tokenizer_fingerprint"), now.get("tokenizer_fingerprint")
    if then != today:
        changes = _tokenizer_changes(run, then, tokenizer) or [
            f"fingerprint {str(then)[:12]}… then, {str(today)[:12]}… now"
        ]
        return [f"the tokenizer is different ({', '.join(changes)})"]
    if there.get("sources") or now.get("sources"):
        return _mixture_differences(there.get("sources") or [], now.get("sources") or [])
    noun = now.get("noun", "shards")
    if there.get("num_tokens") != now.get("num_tokens"):
        return [f"the {noun} held {there.get('num_tokens'):,} tokens and now hold {now.get('num_tokens'):,}"]
    if there.get("fingerprint") != now.get("fingerprint"):
        return [f"the {noun} have different content of the same size"]
    return []


def _mixture_differences(there: list[Mapping[str, Any]], now: list[Mapping[str, Any]]) -> list[str]:
    if not there or not now:
        return [f"the data was {_listed(there)} and is now {_listed(now)}"]
    before, after = ([source["fingerprint"] for source in sources] for sources in (there, now))
    if before != after:
        same_size = len(before) == len(after) and [of["name"] for of in there] == [of["name"] for of in now]
        changed = [of["name"] for of, then in zip(now, before, strict=False) if of["fingerprint"] != then]
        if same_size:
            return [f"the shards of {' and '.join(changed)} have different content"]
        return [f"the data was {_listed(there)} and is now {_listed(now)}"]
    if [of["share"] for of in there] != [of["share"] for of in now]:
        return [f"the weights were {_weights(there)} and are now {_weights(now)}"]
    return []


def _listed(sources: list[Mapping[str, Any]]) -> str:
    """Describe the sources of a run.

    >>> _listed([{"name": "wiki"}, {"name": "code"}]), _listed([])
    ('a mixture of wiki and code', 'one folder of shards')
    """
    names = [str(of["name"]) for of in sources]
    return f"a mixture of {' and '.join(names)}" if names else "one folder of shards"


def _weights(sources: list[Mapping[str, Any]]) -> str:
    return ", ".join(f"{of['name']} {of['share'] / 10_000:.4g} %" for of in sources)


def _tokenizer_changes(run: Path | None, fingerprint: str | None, now: Tokenizer | None) -> list[str]:
    """Describe the changes from the tokenizer of the run; [] if either tokenizer is not available."""
    from gristmill.encode.tokenizer import Tokenizer

    if run is None or fingerprint is None or now is None:
        return []
    try:
        before = Tokenizer.load(run / TOKENIZER_FILE)
    except (OSError, GristmillError):
        return []
    return tokenizer_changes(before, now) if before.fingerprint == fingerprint else []
