"""The requests of the tokenizers page: tokens of a text, merge trees, search, and a file that changes meanwhile."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

import gristmill as gm
from gristmill.view import tokenizers as room
from gristmill.view.app import make_app
from gristmill.view.artefacts import find_artefacts

CORPUS = ["low low low lower lowest slow slower 1024 東京 東京 東京 a mill, the miller and the river  \n\n  \n\n"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two tokenizers: one with a native pattern and special tokens, one with another regular expression."""
    folder = tmp_path_factory.mktemp("tokenizers")
    gm.train_tokenizer(CORPUS, vocab_size=280, special_tokens=["<|end|>"], progress=None).save(folder / "a.json")
    gm.train_tokenizer(CORPUS, vocab_size=270, pattern=r"\w+|\W", progress=None).save(folder / "b.json")
    return folder


def open_room(*paths):
    """Return `ask(path, body)`, which gives the status and the JSON of a reply."""
    client = TestClient(make_app(find_artefacts(paths), token="t"), base_url="http://127.0.0.1")

    def ask(path="", body=None):
        url = f"/t/api/tokenizers{path}"
        reply = client.get(url) if body is None else client.post(url, json=body)
        return reply.status_code, reply.json()

    return ask


@pytest.fixture(scope="module")
def ask(folder):
    return open_room(folder / "a.json", folder / "b.json")


@pytest.fixture(scope="module")
def tok(folder):
    return gm.Tokenizer.load(folder / "a.json")


def encode(ask, text, *, tokenizer=0, first=0, specials=False):
    status, found = ask(
        "/encode", {"text": text, "shown": [{"tokenizer": tokenizer, "first": first}], "specials": specials}
    )
    assert status == 200, found
    return found["encoded"][0]


@pytest.mark.parametrize("tokenizer", [0, 1])
@pytest.mark.parametrize("text", ["low lowest\n\n東京 x", "", "é<|end|>", "\x00\u202e\ufeff a\u0301 👩‍🌾"])
def test_lengths_add_up_and_every_piece_starts_at_a_token(ask, folder, tokenizer, text):
    tok = gm.Tokenizer.load(folder / ["a.json", "b.json"][tokenizer])
    found = encode(ask, text, tokenizer=tokenizer)
    assert found["ids"] == tok.encode(text)
    assert found["lengths"] == [len(tok.token_bytes(id)) for id in found["ids"]]
    assert sum(found["lengths"]) == found["num_bytes"] == len(text.encode())
    assert found["num_characters"] == len(text)
    starts = [sum(found["lengths"][:token]) for token in found["pieces"]]
    pieces = gm.pretokenize(text.encode(), pattern=tok.pattern)
    assert starts == [sum(map(len, pieces[:i])) for i in range(len(pieces))]
    assert found["num_pieces"] == len(pieces)


def test_a_special_token_is_an_id_only_where_it_is_allowed(ask, tok):
    allowed = encode(ask, "low<|end|>low", specials=True)
    assert allowed["specials"] == [1] and allowed["ids"][1] == tok.special_tokens["<|end|>"]
    assert 1 in allowed["pieces"] and 2 in allowed["pieces"]
    plain = encode(ask, "low<|end|>low")
    assert plain["specials"] == [] and plain["num_tokens"] > 3


def test_a_character_of_three_tokens_counts_as_one_split_character(ask, tok):
    text = "a€b東京"
    assert len(tok.encode("€")) == 3 and len(tok.encode("東京")) == 1
    assert encode(ask, text)["num_split"] == 1
    assert encode(ask, "low")["num_split"] == 0


def test_a_long_text_is_shown_in_parts_that_join_to_the_whole(ask, tok, monkeypatch):
    monkeypatch.setattr(room, "MAX_TOKENS", 3)
    text = "low lower lowest 東京 low"
    parts = [encode(ask, text, first=first) for first in (0, 3, 6, 9)]
    ids = tok.encode(text)
    assert [id for part in parts for id in part["ids"]][: len(ids)] == ids
    assert parts[1]["begin"] == sum(parts[0]["lengths"])
    assert all(start < 3 for part in parts for start in part["pieces"])
    beyond = encode(ask, text, first=10**6)  # the text became shorter after the page asked for a later part
    assert beyond["first"] == (len(ids) - 1) // 3 * 3 and beyond["ids"]


def test_several_tokenizers_answer_one_request_in_order(ask):
    status, found = ask("/encode", {"text": "low", "shown": [{"tokenizer": 1}, {"tokenizer": 0}]})
    assert status == 200 and [each["tokenizer"] for each in found["encoded"]] == [1, 0]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/encode", {"text": "x", "shown": [{"tokenizer": 2}]}, 404, "no tokenizer number"),
        ("/encode", {"text": "x" * (room.MAX_CHARACTERS + 1), "shown": [{"tokenizer": 0}]}, 400, "600000"),
        ("/encode", {"text": "x", "shown": []}, 400, "shown"),
        ("/encode", {"text": "x", "shown": [{"tokenizer": 0}] * 9}, 400, "shown"),
        ("/encode", {"text": "x", "shown": [{"tokenizer": 0, "first": -1}]}, 400, "first"),
        ("/encode", {"text": 5, "shown": [{"tokenizer": 0}]}, 400, "text"),
        ("/0/vocabulary", {"by": "regex"}, 400, "by"),
        ("/0/vocabulary", {"by": "id", "query": "²"}, 400, "not an id"),
        ("/0/vocabulary", {"by": "bytes", "query": "e4 b"}, 400, "hexadecimal"),
        ("/0/vocabulary", {"query": "x" * 1001}, 400, "1000"),
        ("/9/vocabulary", {}, 404, "no tokenizer number"),
        ("/0/tokens/280", None, 404, "last id is 279"),
        ("/0/tokens/-1", None, 404, "not an id"),
        ("/x/tokens/1", None, 404, "no tokenizer number"),
    ],
)
def test_a_bad_request_gets_a_clear_message(ask, path, body, status, words):
    found = ask(path, body)
    assert found[0] == status and words in found[1]["error"]


def test_half_of_a_surrogate_pair_is_refused(folder):
    client = TestClient(make_app(find_artefacts([folder / "a.json"]), token="t"), base_url="http://127.0.0.1")
    body = b'{"text": "\\ud800", "shown": [{"tokenizer": 0}]}'
    reply = client.post("/t/api/tokenizers/encode", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400 and "error" in reply.json()


def test_the_tree_of_a_token_joins_to_its_bytes_in_order_of_rank(ask, tok):
    status, found = ask(f"/0/tokens/{tok.id_of(' slow')}")
    row = {each["id"]: each for each in found["tokens"]}

    def joined(id):
        each = row[id]
        return b"".join(map(joined, each["parts"])) if each["parts"] else bytes.fromhex(each["hex"])

    assert status == 200 and joined(found["id"]) == b" slow" and found["rank"] == found["id"] - 256
    for each in found["tokens"]:
        assert all(row[part]["rank"] is None or row[part]["rank"] < each["rank"] for part in each["parts"])
    assert found["encodes_to"] == [found["id"]] and not found["cut"]


def test_a_token_knows_what_is_built_from_it_and_a_byte_and_a_special_have_no_merge(ask, tok):
    _, lo = ask(f"/0/tokens/{tok.id_of('ow')}")
    assert tok.id_of("low") in [each["id"] for each in lo["built"]] and lo["num_built"] == len(lo["built"])
    _, byte = ask("/0/tokens/108")
    assert (byte["kind"], byte["rank"], [each["parts"] for each in byte["tokens"]]) == ("byte", None, [[]])
    _, special = ask(f"/0/tokens/{tok.special_tokens['<|end|>']}")
    assert special["kind"] == "special" and special["special"] and special["num_built"] == 0


def test_a_tree_of_a_doubled_token_stays_small(tmp_path):
    merges = [(b" " * 2**i, b" " * 2**i) for i in range(12)]
    gm.Tokenizer(merges).save(tmp_path / "spaces.json")
    _, found = open_room(tmp_path / "spaces.json")("/0/tokens/267")
    assert found["length"] == 4096 and len(found["tokens"]) == 13 and len(found["hex"]) == 512


def found_ids(ask, **body):
    status, found = ask("/0/vocabulary", body)
    assert status == 200, found
    return [row["id"] for row in found["rows"]]


def test_search_by_text_prefix_bytes_and_id(ask, tok):
    every = tok.vocab
    low = [id for id, token in every.items() if b"low" in token]
    assert low and found_ids(ask, query="low") == low
    assert found_ids(ask, query="LOW") == [] and found_ids(ask, query="LOW", ignore_case=True) == low
    assert found_ids(ask, query=" l", by="begins") == [id for id, token in every.items() if token.startswith(b" l")]
    assert found_ids(ask, query="e6 9D", by="bytes") == [id for id, token in every.items() if b"\xe6\x9d" in token]
    assert found_ids(ask, query="259", by="id") == [259] and found_ids(ask, query="999", by="id") == []


def test_classes_of_tokens(ask, tok):
    lengths = [len(tok.token_bytes(id)) for id in found_ids(ask, of_class="longest")]
    assert lengths == sorted(lengths, reverse=True)
    assert all(tok.token_bytes(id).isspace() for id in found_ids(ask, of_class="whitespace"))
    assert 0x80 in found_ids(ask, of_class="partial") and 0x41 not in found_ids(ask, of_class="partial")
    assert found_ids(ask, of_class="special") == [tok.special_tokens["<|end|>"]]
    assert len(found_ids(ask, of_class="strangest")) == 23  # every token of two or more bytes
    assert found_ids(ask, of_class="not_itself") == [id for id in range(279) if tok.encode(tok.token_bytes(id)) != [id]]


def test_used_and_never_used_refer_to_the_text_or_to_the_sample_stories(ask, tok):
    text = "low low lower"
    used = found_ids(ask, of_class="used", text=text)
    assert sorted(used) == sorted(set(tok.encode(text)))
    _, unused = ask("/0/vocabulary", {"of_class": "unused", "text": text})
    assert unused["total"] == 279 - len(used) and all(row["count"] == 0 for row in unused["rows"])
    _, sample = ask("/0/vocabulary", {"of_class": "used"})
    assert sample["total"] > 20 and sample["rows"][0]["count"] >= sample["rows"][-1]["count"] > 0


def test_pages_of_a_search_join_to_the_whole_and_the_last_is_clamped(ask):
    pages = [ask("/0/vocabulary", {"page": page})[1] for page in range(12)]
    assert [row["id"] for page in pages for row in page["rows"]] == list(range(280))
    assert ask("/0/vocabulary", {"page": 10**6})[1]["page"] == pages[-1]["last_page"] == 11
    assert ask("/0/vocabulary", {"query": "no such token"})[1]["rows"] == []


def test_facts_tell_a_recorded_tie_break_from_an_assumed_one(folder, tmp_path, tok):
    tok.export(tmp_path / "other", format="gpt2")
    _, found = open_room(folder / "a.json", folder / "b.json", tmp_path / "other")()
    a, b, other = found["tokenizers"]
    assert (a["vocab_size"], a["pattern"], a["specials"]) == (280, "gpt2", [["<|end|>", 279]])
    assert a["fingerprint"] == tok.fingerprint and a["states_tie_break"] and not other["states_tie_break"]
    assert b["pattern"] is None and b["regex"] == r"\w+|\W"


def test_a_tokenizer_that_is_deleted_damaged_or_replaced_while_it_is_viewed(tmp_path, tok):
    path = tmp_path / "tok.json"
    tok.save(path)
    ask = open_room(path)
    before = encode(ask, "low")
    path.unlink()
    gone = encode(ask, "low")
    assert gone["ids"] == before["ids"] and "no longer exists" in gone["note"] and gone["version"] == 0
    path.write_text("{")
    assert "cannot be read" in encode(ask, "low")["note"]
    gm.Tokenizer([(b"w", b"x")]).save(path)
    new = encode(ask, "wx")
    assert (new["ids"], new["note"], new["version"]) == ([256], "", 1)
    assert ask()[1]["tokenizers"][0]["vocab_size"] == 257
