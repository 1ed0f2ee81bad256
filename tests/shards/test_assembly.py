"""Ends of shards computed from the counts of parts, compared with `SplitWriter`, which decides them while it writes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gristmill.shards import writer
from gristmill.shards.assembly import HEAD, ShardPlan, join_parts, plan_shards
from gristmill.shards.layouts import LAYOUTS
from gristmill.shards.state import SplitState
from gristmill.shards.writer import SplitWriter


def random_corpus(source):
    """(split, number of tokens) of each document; many without tokens, some much longer than a shard."""
    sizes = source.choice([(0, 1), (0, 1, 2, 5), (1, 3, 40), (0, 10)])
    return [(source.choice(["train", "train", "val"]), source.choice(sizes)) for _ in range(source.randrange(1, 40))]


def cut_into_results(documents, source):
    """The results of encode_part for parts that end anywhere, and the document ends of each stream of each part."""
    results, ends = [], []

    def begin_part(left_open):
        if results:
            results[-1]["left_open"] = left_open
        results.append({"streams": {}, "left_open": None})
        ends.append({})

    def add(stream, num_tokens, is_end):
        counts = results[-1]["streams"].setdefault(stream, {"tokens": 0, "documents": 0, "source_bytes": 0})
        counts["tokens"] += num_tokens
        counts["source_bytes"] += 10 * num_tokens + is_end
        counts["documents"] += is_end
        if is_end:
            ends[-1].setdefault(stream, []).append(counts["tokens"])

    begin_part(None)
    for split, size in documents:
        if source.random() < 0.3:
            begin_part(None)
        stream = split
        while size and source.random() < 0.4:  # the part ends inside the document
            some = source.randrange(size + 1)
            add(stream, some, is_end=False)
            size -= some
            begin_part(HEAD if stream == HEAD else split)
            stream = HEAD
        add(stream, size, is_end=True)
    return results, ends


def plain_shards(sizes, shard_tokens, *, splits_documents):
    """The oracle: (tokens, document ends) of each shard, one token at a time."""
    shards = [[0, []]]
    for size in sizes:
        for _ in range(size):
            tokens, ends = shards[-1]
            is_full = shard_tokens is not None and tokens >= shard_tokens
            if is_full and (splits_documents or (ends and ends[-1] == tokens)):
                shards.append([0, []])
            shards[-1][0] += 1
        shards[-1][1].append(shards[-1][0])
    return [(tokens, ends) for tokens, ends in shards if sizes]


def computed_shards(results, ends, layout, shard_tokens):
    joined = join_parts(results, ["train", "val"])

    def read_ends(piece):
        return np.array(ends[piece.part][piece.stream], np.int64)

    found = {"train": [], "val": []}
    for shard in plan_shards(joined, layout, shard_tokens, read_ends):
        assert ShardPlan.from_json(shard.to_json()) == shard
        chosen = [
            end - shard.begin
            for piece in shard.pieces
            if piece.num_documents
            for end in shard.choose(read_ends(piece) + piece.begin).tolist()
        ]
        found[shard.split].append((shard.num_tokens, chosen))
    return found, joined


@pytest.mark.parametrize("layout", ["gristmill", "datatrove", "megatron"])
def test_shards_computed_from_parts_end_where_a_plain_count_ends_them(layout):
    for seed in range(400):
        source = random.Random(seed)
        documents, shard_tokens = random_corpus(source), source.choice([1, 2, 7, 30])
        if layout == "megatron":
            shard_tokens = None
        results, ends = cut_into_results(documents, source)
        found, joined = computed_shards(results, ends, LAYOUTS[layout], shard_tokens)
        for split in ("train", "val"):
            sizes = [size for of, size in documents if of == split]
            expected = plain_shards(sizes, shard_tokens, splits_documents=LAYOUTS[layout].splits_documents)
            assert found[split] == expected, (seed, split)
            assert joined[split].num_documents == len(sizes)
            assert joined[split].source_bytes == sum(10 * size + 1 for size in sizes)


@pytest.mark.parametrize("layout", ["gristmill", "datatrove"])
def test_a_plain_count_ends_shards_where_the_writer_ends_them(layout, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "sync", lambda file: None)
    monkeypatch.setattr(writer, "flush_folder", lambda folder: None)
    monkeypatch.setattr("gristmill.publish.os.fsync", lambda descriptor: None)
    for seed in range(25):
        source = random.Random(seed)
        sizes = [size for _, size in random_corpus(source)]
        shard_tokens = source.choice([2, 7, 30])
        folder = tmp_path / str(seed)
        folder.mkdir()
        split = SplitWriter(
            folder,
            "train",
            name="out",
            layout=LAYOUTS[layout],
            dtype=np.dtype("<u2"),
            shard_tokens=shard_tokens,
            state=SplitState(),
        )
        split.write(np.zeros(sum(sizes), np.uint16), np.cumsum(sizes), source_bytes=0)
        written = [(shard.tokens, shard.documents) for shard in split.finish().shards]
        expected = plain_shards(sizes, shard_tokens, splits_documents=LAYOUTS[layout].splits_documents)
        assert written == [(tokens, len(ends)) for tokens, ends in expected], seed
