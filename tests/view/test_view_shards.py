"""The shards room without a browser: documents, search, statistics, and folders that cannot be shown."""

from __future__ import annotations

import os
import shutil
from functools import partial

import numpy as np
import pytest
from starlette.testclient import TestClient

import gristmill as gm
from gristmill.corpus import batches
from gristmill.shards.manifest import MANIFEST_FILE
from gristmill.view import shard_folder, shard_search
from gristmill.view.app import make_app
from gristmill.view.artefacts import find_artefacts
from gristmill.view.token_texts import token_texts
from shards.builder import build_folder, train

TOKENIZER = train()
TEXTS = [
    "low lower",
    "",
    "newest widest newer",
    "wide\u202er \x1b é日",
    "the lowest low low low lower",
    "x" * 5000,
    "wider",
]


def client_of(*paths):
    app = make_app(find_artefacts(paths), token="t")
    return TestClient(app, base_url="http://127.0.0.1")


def facts_of(client, number=0):
    return client.get(f"/t/api/shards/{number}").json()


def document(client, number, *, split="train", offset=0, **more):
    parameters = {"split": split, "number": number, "offset": offset, **more}
    return client.get("/t/api/shards/0/document", params=parameters).json()


def search(client, query, *, kind="text", split="train", **more):
    """Return all results of a search, from all its requests."""
    edition, cursor, found = facts_of(client)["edition"], 0, []
    while cursor is not None:
        content = {"query": query, "kind": kind, "split": split, "edition": edition, "cursor": cursor, **more}
        reply = client.post("/t/api/shards/0/search", json=content)
        assert reply.status_code == 200, reply.json()
        assert reply.json()["cursor"] is None or reply.json()["cursor"] > cursor
        found += reply.json()["results"]
        cursor = reply.json()["cursor"]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("view") / "shards"
    build_folder(path, TEXTS, shard_tokens=9, tokenizer=TOKENIZER, val_texts=["low", "wide"])
    return path


@pytest.fixture(scope="module")
def client(folder):
    return client_of(folder)


def test_facts_are_those_of_the_manifest(client, folder):
    facts = facts_of(client)
    assert (facts["layout"], facts["dtype"], facts["vocab_size"]) == ("gristmill", "uint16", TOKENIZER.vocab_size)
    train, val = facts["splits"]
    assert (train["documents"], val["documents"]) == (len(TEXTS), 2)
    assert train["source_bytes"] == sum(len(text.encode()) for text in TEXTS)
    files = client.get("/t/api/shards/0/files", params={"split": "train", "begin": 1}).json()
    assert files["total"] == train["shards"] and len(files["rows"]) == min(train["shards"] - 1, 50)
    assert client.get("/t/api/shards/0/inputs").json() == {"rows": [], "total": 0}


def test_every_document_comes_back_as_ids_and_text_across_pages(client, folder):
    shards = gm.Shards(folder)
    for number, text in enumerate(TEXTS):
        ids, texts, offset = [], [], 0
        while True:
            reply = document(client, number, offset=offset)
            assert reply["offset"] == offset and len(reply["ids"]) <= reply["page_tokens"]
            ids, texts, offset = ids + reply["ids"], texts + reply["texts"], offset + reply["page_tokens"]
            if offset >= reply["num_tokens"]:
                break
        assert ids == shards[number].tolist()
        assert reply["special"] == [len(reply["ids"]) - 1]
        assert "".join(texts[:-1]) == text.replace("\u202e", r"\u202e").replace("\x1b", r"\x1b")


def test_a_character_of_several_tokens_belongs_to_the_last_and_other_bytes_are_escaped():
    assert token_texts([b"a\xe6\x97", b"", b"\xa5b", b"\xff", b"\n\t\x00"]) == ["a", "", "日b", "\\xff", "\n\t\\x00"]
    assert token_texts([b"x" * 1000, b"\xc3", b"\xa9"]) == ["x" * 400 + "…", "", "é"]
    assert token_texts([]) == []


@pytest.mark.parametrize(
    "parameters", [{"number": 7}, {"number": -1}, {"number": "x"}, {"split": "nope"}, {"number": 10**20}]
)
def test_a_document_that_does_not_exist_is_refused_with_a_message(client, parameters):
    reply = client.get("/t/api/shards/0/document", params={"split": "train", "number": 0, **parameters})
    assert reply.status_code in (400, 404) and reply.json()["error"]
    assert client.get("/t/api/shards/1/document", params={"split": "train"}).status_code == 404


@pytest.mark.parametrize("chunk", [1, 3, 1 << 18])
@pytest.mark.parametrize("query", ["low", "o", "er", "est n", "日", "ew", "r x", "end", "<|endoftext|>", "xxxxxxx"])
def test_search_finds_the_first_match_of_each_document_wherever_tokens_and_chunks_end(
    client, folder, query, chunk, monkeypatch
):
    monkeypatch.setattr(shard_search, "CHUNK_TOKENS", chunk)
    monkeypatch.setattr(shard_search, "MAX_RESULTS", 2)
    texts = TEXTS if query != "<|endoftext|>" else [f"{text}<|endoftext|>" for text in TEXTS]
    expected = [number for number, text in enumerate(texts) if query in text]
    found, shards = search(client, query), gm.Shards(folder)
    assert [each["number"] for each in found] == expected
    for each in found:
        tokens = [TOKENIZER.token_bytes(id) for id in shards[each["number"]].tolist()]
        first, end = each["token"], each["token"] + each["num_tokens"]
        wanted = query.encode()
        assert wanted in b"".join(tokens[first:end])
        assert wanted not in b"".join(tokens[: end - 1])  # it is the first match
        assert wanted not in b"".join(tokens[first + 1 : end])  # and no fewer tokens contain it


def test_search_ignores_the_case_of_ascii_letters_only_if_asked(client):
    assert search(client, "LOWEST") == []
    assert [each["number"] for each in search(client, "LOWEST", ignore_case=True)] == [4]


@pytest.mark.parametrize("chunk", [1, 4, 1 << 18])
def test_search_for_ids_finds_the_sequence_but_not_across_documents(client, folder, chunk, monkeypatch):
    monkeypatch.setattr(shard_search, "CHUNK_TOKENS", chunk)
    shards = gm.Shards(folder)
    rows = [shards[i].tolist() for i in range(len(shards))]
    wanted = rows[4][2:5]
    expected = [i for i, row in enumerate(rows) if any(row[j : j + 3] == wanted for j in range(len(row)))]
    assert [each["number"] for each in search(client, str(wanted), kind="ids")] == expected != []
    across = [rows[0][-1], rows[2][0]]  # document 1 is only an end-of-text id between them
    assert search(client, " ".join(map(str, [rows[0][-1], rows[1][0]])), kind="ids") == []
    assert search(client, " ".join(map(str, across)), kind="ids") == []


@pytest.mark.parametrize(
    "content",
    [
        {"query": "", "kind": "text"},
        {"query": "é" * 600, "kind": "text"},
        {"query": "12 x", "kind": "ids"},
        {"query": "1 " * 65, "kind": "ids"},
        {"query": "a", "kind": "regex"},
        {"query": "a", "kind": "text", "cursor": -1},
        {"query": "a", "kind": "text", "split": "nope"},
    ],
)
def test_a_search_that_cannot_be_done_says_why(client, content):
    edition = facts_of(client)["edition"]
    reply = client.post("/t/api/shards/0/search", json={"split": "train", "edition": edition, **content})
    assert reply.status_code in (400, 404) and reply.json()["error"]


def test_lengths_and_frequencies_are_exact(client, folder):
    lengths = client.get("/t/api/shards/0/lengths", params={"split": "train"}).json()
    expected = np.diff(gm.Shards(folder).document_ends, prepend=0)
    assert sum(lengths["counts"]) == lengths["counted"] == lengths["total"] == len(TEXTS)
    assert lengths["percentiles"]["max"] == expected.max() and lengths["mean"] == pytest.approx(expected.mean())

    counts = np.bincount(np.asarray(gm.Shards(folder).tokens), minlength=TOKENIZER.vocab_size)
    ask = partial(client.get, "/t/api/shards/0/frequencies")
    top = ask(params={"split": "train"}).json()
    assert [row["count"] for row in top["rows"]] == np.sort(counts)[::-1][: len(top["rows"])].tolist()
    assert all(counts[row["id"]] == row["count"] for row in top["rows"])
    assert top["used"] == top["total"] == np.count_nonzero(counts)
    rare = ask(params={"split": "train", "order": "bottom"}).json()
    assert rare["rows"][0]["count"] == counts[counts > 0].min()
    unused = ask(params={"split": "train", "order": "unused", "begin": 25}).json()
    assert [row["id"] for row in unused["rows"]] == np.flatnonzero(counts == 0)[25:50].tolist()
    assert ask(params={"split": "train", "order": "best"}).status_code == 400


def test_replaced_shards_are_shown_anew_and_an_old_search_ends(tmp_path):
    build_folder(tmp_path / "s", ["low", "lower"], tokenizer=TOKENIZER)
    client = client_of(tmp_path / "s")
    old = facts_of(client)["edition"]
    assert document(client, 1)["total"] == 2
    shutil.rmtree(tmp_path / "s")
    assert "no longer exists" in client.get("/t/api/shards/0/state").json()["problem"]
    assert client.get("/t/api/shards/0/document", params={"split": "train"}).status_code == 410
    build_folder(tmp_path / "s", ["new", "newer", "newest"], tokenizer=TOKENIZER)
    reply = document(client, 2)
    assert reply["total"] == 3 and reply["edition"] != old
    assert client.get("/t/api/shards/0/state").json() == {"edition": reply["edition"]}
    content = {"query": "low", "kind": "text", "split": "train", "edition": old}
    assert client.post("/t/api/shards/0/search", json=content).status_code == 409


def test_a_shard_that_is_truncated_while_it_is_mapped_is_reported(tmp_path):
    build_folder(tmp_path / "shards", TEXTS, shard_tokens=10_000, tokenizer=TOKENIZER)
    client = client_of(tmp_path / "shards")
    assert document(client, 0)["number"] == 0
    (shard,) = (tmp_path / "shards").glob("shard-*.bin")
    os.truncate(shard, 0)
    reply = client.get("/t/api/shards/0/document", params={"split": "train"})
    assert reply.status_code == 400 and "its size is 0 bytes" in reply.json()["error"]


def test_an_unfinished_folder_shows_what_is_written_and_then_the_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_BYTES", 2_000)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    (tmp_path / "corpus.txt").write_text("<|endoftext|>".join(["low lower lowest"] * 2_000))

    class Stop(Exception):
        pass

    def stop(report):
        if report.tokens > 3_000:
            raise Stop

    encode = partial(gm.encode_corpus, tmp_path / "corpus.txt", TOKENIZER, out=tmp_path / "s", shard_tokens=1_000)
    with pytest.raises(Stop):
        encode(progress=stop, checkpoint_seconds=0)
    client = client_of(tmp_path / "s")
    facts = facts_of(client)
    assert "unfinished" in facts["problem"]
    (written,) = facts["written"]
    assert written["name"] == "train" and written["tokens"] >= 1_000 * written["shards"] >= 1_000
    (tmp_path / "s" / "progress.json").write_text('{"state": 7}')  # damaged: a message, no failure
    assert facts_of(client)["written"] == []
    (tmp_path / "s" / "progress.json").write_bytes(20_000 * b'{"state":')
    assert facts_of(client)["written"] == []
    encode(progress=None, overwrite=True)
    assert document(client, 1_999)["total"] == 2_000


def test_a_folder_without_an_index_is_read_by_its_end_of_text_or_in_parts(tmp_path, monkeypatch):
    build_folder(tmp_path / "s", TEXTS, layout="nanogpt", tokenizer=TOKENIZER)
    client = client_of(tmp_path / "s")
    assert (document(client, 4)["unit"], document(client, 4)["total"]) == ("document", len(TEXTS))
    lengths = client.get("/t/api/shards/0/lengths", params={"split": "train"}).json()
    assert lengths["counted"] == len(TEXTS)
    monkeypatch.setattr(shard_folder, "MAX_MARKED_TOKENS", 10)
    client = client_of(tmp_path / "s")
    reply = document(client, 1)
    assert reply["unit"] == "part" and "too many tokens" in reply["why_parts"]
    assert reply["begin"] == shard_folder.PART_TOKENS
    assert "too many" in client.get("/t/api/shards/0/lengths", params={"split": "train"}).json()["problem"]
    assert {each["number"] for each in search(client, "xxx")} == {0, 1, 2}


def test_files_of_another_program_show_ids_and_text_with_a_tokenizer_beside_them(tmp_path):
    build_folder(tmp_path / "made", TEXTS, layout="nanogpt", tokenizer=TOKENIZER)
    (tmp_path / "s").mkdir()
    shutil.copy(tmp_path / "made" / "train.bin", tmp_path / "s" / "train.bin")
    client = client_of(tmp_path / "s")
    reply = document(client, 0)
    assert facts_of(client)["foreign"] and reply["texts"] is None and reply["unit"] == "part"
    assert "tokenizer" in reply["why_no_tokenizer"]
    edition = facts_of(client)["edition"]
    refused = {"query": "low", "kind": "text", "split": "train", "edition": edition}
    assert "Search for ids" in client.post("/t/api/shards/0/search", json=refused).json()["error"]
    assert [each["number"] for each in search(client, str(reply["ids"][:3]), kind="ids")][:1] == [0]
    assert client.get("/t/api/shards/0/frequencies", params={"split": "train"}).json()["rows"][0]["text"] is None

    TOKENIZER.save(tmp_path / "tok.json")
    client = client_of(tmp_path / "s", tmp_path / "tok.json")
    reply = document(client, 4, tokenizer=0)
    assert "".join(reply["texts"][:-1]) == TEXTS[4] and reply["total"] == len(TEXTS)
    (tmp_path / "s" / "train.bin").write_bytes((tmp_path / "s" / "train.bin").read_bytes()[:40])
    assert document(client, 0, tokenizer=0)["total"] < len(TEXTS)


def test_a_folder_whose_tokenizer_is_lost_shows_ids_and_why(tmp_path):
    build_folder(tmp_path / "s", TEXTS, tokenizer=TOKENIZER)
    (tmp_path / "s" / "tokenizer.json").unlink()
    client = client_of(tmp_path / "s")
    reply = document(client, 0)
    assert reply["ids"] and reply["texts"] is None and "cannot be read" in reply["why_no_tokenizer"]


def test_a_damaged_manifest_is_a_message(tmp_path):
    build_folder(tmp_path / "s", TEXTS, tokenizer=TOKENIZER)
    client = client_of(tmp_path / "s")
    (tmp_path / "s" / MANIFEST_FILE).write_bytes(b'{"format": "gristmill-shards"')
    assert MANIFEST_FILE in facts_of(client)["problem"]
    reply = client.get("/t/api/shards/0/document", params={"split": "train"})
    assert reply.status_code == 400 and MANIFEST_FILE in reply.json()["error"]


def test_a_split_without_documents_and_a_compressed_layout_are_shown_as_such(tmp_path):
    build_folder(tmp_path / "s", ["low"], tokenizer=TOKENIZER, val_texts=[])
    client = client_of(tmp_path / "s")
    assert document(client, 0, split="val")["number"] is None
    assert client.get("/t/api/shards/0/lengths", params={"split": "val"}).json()["problem"]
    assert client.get("/t/api/shards/0/frequencies", params={"split": "val"}).json()["rows"] == []
    assert search(client, "low", split="val") == []

    pytest.importorskip("pyarrow")
    gm.encode_corpus(TEXTS, TOKENIZER, out=tmp_path / "p", format="parquet", progress=None)
    client = client_of(tmp_path / "p")
    assert "compressed" in facts_of(client)["unreadable"]
    assert client.get("/t/api/shards/0/lengths", params={"split": "train"}).json()["counted"] == len(TEXTS)
    assert client.get("/t/api/shards/0/frequencies", params={"split": "train"}).json()["rows"][0]["text"]
