"""Descriptions of how two tokenizers differ."""

import base64

import pytest

import gristmill as gm
from gristmill.shards.tokenizer_changes import tokenizer_changes

MERGES = [(b"l", b"o"), (b"lo", b"w")]


def tokenizer(merges=MERGES, **options):
    return gm.Tokenizer(merges, **{"special_tokens": ["<|endoftext|>"], **options})


@pytest.mark.parametrize(
    ("other", "changes"),
    [
        (
            tokenizer(MERGES[:1]),
            ["vocab_size was 259 and is now 258", "had the id 258 and now has 257", "merge 1 is gone"],
        ),
        (tokenizer([MERGES[0], (b"w", b"e")]), ["merge 1 was b'lo' + b'w' and is now b'w' + b'e'"]),
        (tokenizer(pattern="o200k"), ["the pattern was "]),
        (tokenizer(pattern=r"\s+|\S+" + "x?" * 200), ["…"]),
        (tokenizer(special_tokens=["<s>"]), ["'<|endoftext|>' is gone", "'<s>' is new"]),
    ],
)
def test_each_difference_is_named(other, changes):
    found = "; ".join(tokenizer_changes(tokenizer(), other))
    assert all(change in found for change in changes), found
    assert len(found) < 400


def test_tokenizers_that_only_count_bytes_in_another_order_differ_in_an_id(tmp_path):
    found = []
    for order in (range(256), [1, 0, *range(2, 256)]):
        lines = [base64.b64encode(bytes([byte])) + f" {rank}\n".encode() for rank, byte in enumerate(order)]
        (tmp_path / "x.tiktoken").write_bytes(b"".join(lines))
        found.append(gm.Tokenizer.load(tmp_path / "x.tiktoken", pattern="gpt2"))
    assert found[0].fingerprint != found[1].fingerprint
    assert tokenizer_changes(*found) == [r"id 0 was b'\x00' and is now b'\x01'"]
