"""Threads that use one tokenizer, one table of words or one text at the same time get what one thread gets.

`make sanitize` runs these tests under ThreadSanitizer as well, which reports unsynchronized accesses that happen to do
no harm. So they are small: that run takes ten times as long.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

import gristmill as gm
from gristmill import _core

NUM_THREADS = 8
TEXT = "It's 1990 words, naïve 漢字 and\tspaces  \n\n" * 40 + "x" * 300


@pytest.fixture(scope="module")
def tokenizer():
    return gm.train_tokenizer(TEXT.split("\n"), vocab_size=270, special_tokens=["<|end|>"], progress=None)


def at_once(*works):
    """Run each of the works on several threads, all of them at the same time; return the results by work."""
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        futures = [[pool.submit(work) for work in works] for _ in range(NUM_THREADS)]
    return [[row[i].result() for row in futures] for i in range(len(works))]


def test_one_tokenizer_encodes_and_decodes_on_many_threads(tokenizer):
    ids = tokenizer.encode(TEXT)
    batch = [TEXT[i : i + 97] for i in range(0, len(TEXT), 97)]
    expected = [tokenizer.encode(text) for text in batch]

    def encode_a_batch():
        return [list(row) for row in tokenizer.encode_batch(batch, num_threads=2)]

    one, many, back, few = at_once(
        lambda: tokenizer.encode(TEXT),
        encode_a_batch,
        lambda: tokenizer.decode(ids),
        lambda: tokenizer.count_tokens(TEXT),
    )
    assert all(found == ids for found in one)
    assert all(found == expected for found in many)
    assert all(found == TEXT for found in back)
    assert all(found == len(ids) for found in few)


def test_counting_and_training_run_beside_each_other():
    texts = TEXT.split("\n")

    def count():
        return gm.count_words(texts, num_threads=3, progress=None)

    def train():
        return gm.train_tokenizer(words, vocab_size=270, num_threads=3, progress=None).merges

    words = count()
    merges = train()
    counted, trained = at_once(count, train)
    assert all(found == words for found in counted)
    assert all(found == merges for found in trained)


def test_one_buffer_is_parsed_on_many_threads():
    lines = b'{"id": 1, "text": "a\\nb \\u00e9"}\n{"text": null}\n' * 50

    extracted, hashes, split = at_once(
        lambda: bytes(_core.extract_json(lines, b"text")[0]),
        lambda: _core.xxh64(lines),
        lambda: [row.tolist() for row in _core.split_spans(lines, b"\n")],
    )
    assert all(found == extracted[0] for found in extracted)
    assert all(found == hashes[0] for found in hashes)
    assert all(found == split[0] for found in split)
