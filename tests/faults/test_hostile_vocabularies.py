"""Vocabularies and special tokens made to be slow or to fill the memory: refused, or as fast as others."""

import json
import sys

import pytest

import gristmill as gm
from gristmill.merge.merges import MAX_VOCAB_BYTES
from gristmill.tokenizer.formats import gristmill_json
from scripts import run_script

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
PLAIN = json.loads(gristmill_json.dump(gm.Tokenizer([(b"a", b"b")]).parts))
PLAIN.pop("sha256")
DOUBLING = [[97, 97]] + [[256 + i, 256 + i] for i in range(59)]

# Runs a statement and prints its error, and by how many MiB the process has grown.
MEASURED = """
    import re, sys
    import numpy as np
    import gristmill as gm
    def resident():
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) >> 10
    gm.Tokenizer([(b"a", b"b")]).encode("warm up")
    before = resident()
    try:
        {statement}
    except Exception as error:
        print(type(error).__name__)
    else:
        print("done")
    print(resident() - before)
"""


def measured(statement, *arguments):
    """Return the name of the error that `statement` raises, and the MiB it took."""
    result, grown = run_script(MEASURED.format(statement=statement), *arguments).stdout.split()
    return result, int(grown)


def doubling_file(path, format):
    """A file of 60 merges that each double a token, in any of the formats that have merges of ids."""
    if format == "minbpe":
        path.write_text("minbpe v1\n\n0\n" + "".join(f"{left} {right}\n" for left, right in DOUBLING))
    elif format == "version 1":
        path.write_text(json.dumps(PLAIN | {"special_tokens": [], "merges": DOUBLING}))
    else:
        rows = [[left, right, 256 + i] for i, (left, right) in enumerate(DOUBLING)]
        rows = rows[::-1] if format == "version 2, backwards" else rows
        content = {"version": 2, "special_tokens": [], "whole_pieces": False, "byte_ids": list(range(256))}
        path.write_text(json.dumps(PLAIN | content | {"other_tokens": [], "merges": rows}))
    return path


@linux_only
@pytest.mark.parametrize("format", ["minbpe", "version 1", "version 2", "version 2, backwards"])
def test_a_file_whose_tokens_double_is_refused_before_they_are_built(format, tmp_path):
    path = doubling_file(tmp_path / "doubling", format)
    result, grown = measured("gm.Tokenizer.load(sys.argv[1])", path)
    assert result == "TokenizerFormatError"
    assert grown < 50
    with pytest.raises(gm.TokenizerFormatError, match=rf"doubling: .*more than {MAX_VOCAB_BYTES:,} bytes together"):
        gm.Tokenizer.load(path)


@linux_only
def test_merges_whose_tokens_double_make_no_tokenizer():
    merges = "np.array([[97, 97]] + [[256 + i, 256 + i] for i in range(59)])"
    assert measured(f"gm.Tokenizer({merges}).vocab")[0] == "TokenizerFormatError"
    assert measured(f"gm.Tokenizer({merges}).encode('a')")[1] < 50


@linux_only
def test_a_vocabulary_that_was_never_checked_is_refused_where_its_tokens_are_built():
    script = (
        "from gristmill.tokenizer.vocabulary import Vocabulary; "
        "v = Vocabulary.from_merges(np.array([[97, 97]] + [[256 + i, 256 + i] for i in range(59)], np.uint32)); "
    )
    parts = "gm.tokenizer.TokenizerParts(v, gm.Tokenizer([]).parts.pattern, 'first-seen')"
    for use in ("v.tokens", f"gm.Tokenizer.from_parts({parts}).encode('a')"):
        result, grown = measured(script + use)
        assert result == "TokenizerFormatError"
        assert grown < 50


def crowded_file(path):
    """A file of a hundred merges that share twenty buckets of a hash table without a seed, however large that gets."""

    def nearly_neutral(multiplier):  # a number that such a hash nearly maps to 0: from a continued fraction
        a, b, before, q = 1 << 64, multiplier, 0, 1
        while q < 1 << 27:
            before, q = q, a // b * q + before
            a, b = b, a % b
        return before

    first = 0x9E3779B97F4A7C15
    down, across = nearly_neutral(first), nearly_neutral(first * 0xD6E8FEB86659FD93 % (1 << 64))
    mixed = [(1 << 36) + i * down + j * across for i in range(10) for j in range(10)]
    pairs = [(pair >> 20, pair & 0xFFFFF) for pair in (x ^ x >> 23 for x in mixed)]
    ids = sorted({id for pair in pairs for id in pair})
    byte_ids = ids + [2 + id for id in range(1 << 19, (1 << 19) + 256 - len(ids))]
    assert len(set(byte_ids)) == 256
    rows = [[left, right, 1 + (1 << 18) + i] for i, (left, right) in enumerate(pairs)]
    content = {"version": 2, "special_tokens": [], "whole_pieces": False, "byte_ids": byte_ids}
    path.write_text(json.dumps(PLAIN | content | {"other_tokens": [], "merges": rows}))
    return path


@linux_only
def test_merges_made_to_share_the_buckets_of_a_hash_table_take_no_more_memory_than_others(tmp_path):
    path = crowded_file(tmp_path / "crowded.json")
    result, grown = measured("gm.Tokenizer.load(sys.argv[1]).encode('a')", path)
    assert result == "done"
    assert grown < 100
    tok = gm.Tokenizer.load(path)
    for left, right in tok.merges:
        assert tok._encoder.encode_piece(left + right) == [tok.id_of(left + right)]


def test_special_tokens_together_are_bounded():
    with pytest.raises(gm.SpecialTokenError, match="8,388,609 bytes together; at most 8,388,608"):
        gm.Tokenizer([], special_tokens=["x" * (8 << 20), "y"])


def test_a_text_full_of_beginnings_of_special_tokens_is_encoded_in_linear_time():
    script = """
        import resource
        import gristmill as gm
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))  # what is linear takes a second, what is not some minutes
        tok = gm.Tokenizer([(b"a", b"a")], special_tokens=["a" * 2000 + "b", "a" * 20 + " " * 2000 + "b", "a "])
        text = "a" * (8 << 20)
        print(tok.count_tokens(text, num_threads=2), len(tok.encode_array(text, allowed_special="all", num_threads=2)))
        spaces = ("a" * 20 + " " * 1999) * 2000
        print(tok.count_tokens(spaces, allowed_special="all"))
    """
    result = run_script(script).stdout.split()
    assert result[:2] == [str(4 << 20)] * 2


def test_thousands_of_special_tokens_with_one_beginning_are_found():
    names = [f"<|reserved_special_token_{i}|>" for i in range(5000)]
    tok = gm.Tokenizer([], special_tokens=names)
    text = "<|reserved_special_token_" * 3 + "".join(names[1234:1240]) + "<|reserved_special_token_5000|>"
    ids = tok.encode(text, allowed_special="all")
    assert [id for id in ids if id >= 256] == [256 + i for i in range(1234, 1240)]
    assert tok.decode(ids) == text
