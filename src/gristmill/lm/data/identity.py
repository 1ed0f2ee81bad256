"""What tells the data of two runs apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gristmill._core import Xxh64
from gristmill.shards import Shards

__all__ = ["identity_differences", "json_checksum", "shards_identity"]


def json_checksum(content: Mapping[str, Any]) -> str:
    """The xxh64 of the content as JSON with sorted keys."""
    digest = Xxh64()
    digest.update(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    return digest.hexdigest()


def shards_identity(shards: Shards) -> dict[str, Any]:
    """What tells shards apart: their tokenizer, how many tokens they hold, and a fingerprint of all their files."""
    return {
        "tokenizer_fingerprint": shards.tokenizer_fingerprint,
        "num_tokens": shards.num_tokens,
        "fingerprint": json_checksum({"dtype": shards.dtype.name, "files": shards.checksums()}),
    }


def identity_differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not the same about the shards of a checkpoint and those of this run, in words."""
    if there.get("tokenizer_fingerprint") != now.get("tokenizer_fingerprint"):
        return [
            f"the tokenizer is another one (fingerprint {str(there.get('tokenizer_fingerprint'))[:12]}… then, "
            f"{str(now.get('tokenizer_fingerprint'))[:12]}… now)"
        ]
    if there.get("num_tokens") != now.get("num_tokens"):
        return [f"the shards held {there.get('num_tokens'):,} tokens and now hold {now.get('num_tokens'):,}"]
    if there.get("fingerprint") != now.get("fingerprint"):
        return ["the shards have other content of the same size"]
    return []
