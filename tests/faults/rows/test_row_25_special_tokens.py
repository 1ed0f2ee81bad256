"""Row 25: special tokens spelled out in the text of users, also ones that overlap or begin alike."""

from __future__ import annotations

import io
import json
import random
import sys

import pytest

import gristmill as gm
from faults.rows.fault import Fault
from gristmill.cli import main

FAULT = Fault(
    row=25,
    injected="User text that spells out special tokens: overlapping, sharing beginnings and ends, cut by chunks, in "
    "every way to encode",
    promise="Plain text unless allowed, an error with its position where disallowed; of allowed ones that overlap, the "
    "leftmost wins, then the longest",
    undetectable="A separator of documents that a text contains in a plain text file: it ends the document. JSON "
    "Lines, Parquet and `documents='file'` have none",
    see_also=(
        "tests/encode/test_special_tokens_in_text.py",
        "tests/encode/test_as_tokenizer.py",
        "tests/faults/test_hostile_vocabularies.py",
        "tests/lm/test_conversations.py",
        "cpp/tests/test_encode.cpp",
    ),
)

EOT = "<|endoftext|>"
SPECIALS = [EOT, "<", "<a", "<a>", "<a>b", "a>b<", "aa", "aaa", "é<", "<|endoftext|><|endoftext|>", "\n\n", " <", "b"]
TOK = gm.Tokenizer(
    [(b"a", b"b"), (b"<", b"a"), (b"a", b">"), (b"\xc3", b"\xa9"), (b"a", b"a"), (b"<a", b">")], special_tokens=SPECIALS
)
PLAIN = gm.Tokenizer(TOK.merges)
PARTS = [*SPECIALS, "<|endoftext|", "|>", "a", "aaaa", ">", "é", "x y", "\n", " ", "<|", "<<a", "<a>a>b<"]
ALLOWED = [set(), {EOT}, {"<a", "<a>b"}, {"<", "<a>"}, {"aa", "aaa", "a>b<"}, set(SPECIALS)]


def texts(num, seed, most=8):
    source = random.Random(seed)
    return ["".join(source.choices(PARTS, k=source.randint(0, most))) for _ in range(num)]


def leftmost_longest(text, allowed):
    """The rule, as plainly as possible: at each position the longest allowed token, otherwise one plain character."""
    ids, plain, position = [], "", 0
    while position < len(text):
        found = max((token for token in allowed if text.startswith(token, position)), key=len, default="")
        if found:
            ids += [*PLAIN.encode(plain), TOK.special_tokens[found]]
            plain, position = "", position + len(found)
        else:
            plain, position = plain + text[position], position + 1
    return ids + PLAIN.encode(plain)


@pytest.mark.parametrize("allowed", ALLOWED, ids=len)
def test_row_25_the_leftmost_then_the_longest_special_wins_in_every_way_to_encode(allowed, tmp_path):
    rule = {"allowed_special": allowed}
    given = texts(150, len(allowed))
    expected = [leftmost_longest(text, allowed) for text in given]
    assert [TOK.encode(text, **rule) for text in given] == expected
    assert [TOK.encode(text.encode(), **rule) for text in given] == expected
    assert [TOK.encode_array(text, **rule).tolist() for text in given] == expected
    assert [TOK.encode_with_offsets(text, **rule).ids.tolist() for text in given] == expected
    assert [TOK.count_tokens(text, **rule) for text in given] == list(map(len, expected))
    for num_threads in (1, 3):
        assert TOK.encode_batch(given, num_threads=num_threads, **rule).tolist() == expected
    assert [list(TOK.encode_iterable([text], **rule)) for text in given] == expected
    assert [TOK.decode(ids) for ids in expected] == given
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in given))
    gm.encode_corpus(lines, TOK, out=tmp_path / "s", num_threads=2, end_of_text=None, progress=None, **rule)
    assert [ids.tolist() for ids in gm.Shards(tmp_path / "s")] == expected
    whole = "".join(given)
    (tmp_path / "a.txt").write_text(whole)
    assert TOK.encode_file(tmp_path / "a.txt", num_threads=2, **rule).tolist() == leftmost_longest(whole, allowed)


@pytest.mark.parametrize("allowed", ALLOWED[1:], ids=len)
def test_row_25_long_texts_that_are_cut_into_blocks_give_the_same_ids(allowed, tmp_path):
    text = "".join(texts(6_000, 7))
    expected = leftmost_longest(text, allowed)
    for num_threads in (1, 4):
        assert TOK.encode_array(text, allowed_special=allowed, num_threads=num_threads).tolist() == expected
    for size in (1, 7, 1000):
        parts = [text[:7000][i : i + size] for i in range(0, 7000, size)]
        assert list(TOK.encode_iterable(parts, allowed_special=allowed)) == leftmost_longest(text[:7000], allowed)
    (tmp_path / "a.txt").write_text(text)
    assert TOK.encode_file(tmp_path / "a.txt", allowed_special=allowed, num_threads=3).tolist() == expected
    gm.encode_corpus(
        *(tmp_path / "a.txt", TOK),
        out=tmp_path / "s",
        documents="file",
        end_of_text=None,
        allowed_special=allowed,
        num_threads=3,
        progress=None,
    )
    assert gm.Shards(tmp_path / "s").tokens[:].tolist() == expected


def test_row_25_a_disallowed_special_is_an_error_with_its_position_in_every_way_to_encode(tmp_path):
    text, rule = "é x <a>b y", {"disallowed_special": "all", "allowed_special": {"<a>"}}
    (tmp_path / "a.txt").write_text(text)
    calls = [
        lambda: TOK.encode(text, **rule),
        lambda: TOK.encode_array(text, num_threads=2, **rule),
        lambda: TOK.encode_batch(["x", text, "b"], num_threads=2, **rule),
        lambda: list(TOK.encode_iterable(["x", text], **rule)),
        lambda: TOK.encode_with_offsets(text, **rule),
        lambda: TOK.count_tokens(text, **rule),
        lambda: TOK.encode_file(tmp_path / "a.txt", **rule),
    ]
    for call in calls:
        with pytest.raises(gm.SpecialTokenError, match=r"contains the special token '.*' at byte \d+"):
            call()


def test_row_25_the_error_names_the_first_forged_token_that_the_rule_finds():
    rule = {"disallowed_special": "all"}
    for text in texts(300, 11):
        first = next((i for i in range(len(text)) if text.startswith(tuple(SPECIALS), i)), None)
        if first is None:
            assert TOK.encode(text, **rule) == PLAIN.encode(text)
            continue
        longest = max((token for token in SPECIALS if text.startswith(token, first)), key=len)
        with pytest.raises(gm.SpecialTokenError) as caught:
            TOK.encode(text, **rule)
        assert f"special token {longest!r} at byte {len(text[:first].encode())}" in str(caught.value)


def test_row_25_without_options_no_way_to_encode_gives_the_id_of_a_special_token(tmp_path, capsys, monkeypatch):
    specials = set(TOK.special_tokens.values())
    given = texts(60, 5)
    found = {id for text in given for id in TOK.encode(text)}
    found |= set(TOK.encode_batch(given).ids.tolist()) | set(TOK.encode_iterable(given))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in given))
    gm.encode_corpus(tmp_path / "a.jsonl", TOK, out=tmp_path / "s", end_of_text=None, progress=None)
    found |= set(gm.Shards(tmp_path / "s").tokens[:].tolist())
    assert not found & specials
    TOK.save(tmp_path / "tok.json")
    whole = "".join(given)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(whole.encode())))
    assert main(["tokenize", "-t", str(tmp_path / "tok.json"), "--show", "ids"]) == 0
    assert list(map(int, capsys.readouterr().out.split())) == TOK.encode(whole) == PLAIN.encode(whole)


def test_row_25_end_of_text_ends_a_document_only_where_the_corpus_has_it_as_separator(tmp_path):
    """A text of a user in JSON Lines must not end its document: the separator is a text of plain text files."""
    texts = [f"a{EOT}b", EOT, f"{EOT}{EOT}x"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "a.txt").write_text(EOT.join(["a", "b"]))
    end = TOK.special_tokens[EOT]
    gm.encode_corpus(tmp_path / "a.jsonl", TOK, out=tmp_path / "j", end_of_text=EOT, progress=None)
    documents = [ids.tolist() for ids in gm.Shards(tmp_path / "j")]
    assert documents == [[*PLAIN.encode(text), end] for text in texts]
    gm.encode_corpus(tmp_path / "a.txt", TOK, out=tmp_path / "t", end_of_text=EOT, separator=EOT, progress=None)
    assert [ids.tolist() for ids in gm.Shards(tmp_path / "t")] == [[97, end], [98, end]]


def test_row_25_counting_never_counts_a_special_nor_a_piece_across_one():
    for text in texts(100, 9):
        words = {} if not text else _counted(text)
        pieces = [piece for part in _split(text) for piece in gm.pretokenize(part)]
        assert words == {piece.encode(): pieces.count(piece) for piece in pieces}


def _counted(text):
    try:
        return dict(gm.count_words([text], special_tokens=SPECIALS, progress=None).items())
    except gm.EmptyCorpusError:
        return {}


def _split(text):
    parts, position = [""], 0
    while position < len(text):
        found = max((token for token in SPECIALS if text.startswith(token, position)), key=len, default="")
        if found:
            parts.append("")
        else:
            parts[-1] += text[position]
        position += len(found) or 1
    return parts
