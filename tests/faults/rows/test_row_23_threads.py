"""Row 23: eight threads share one tokenizer, one table of words and one folder of shards, from their first use on."""

from __future__ import annotations

import copy
import pickle
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from faults.rows.fault import Fault
from gristmill.encode.special_rules import MAX_RULES
from texts import random_story, random_text

FAULT = Fault(
    row=23,
    injected="8 threads use one tokenizer, table of words and folder of shards at once, beginning with their first use",
    promise="Identical results in every thread; no data race in the core (`make tsan`)",
    undetectable="Races in the Python code: ThreadSanitizer sees only the core, and these tests switch threads as "
    "often as Python can",
    see_also=(
        "tests/faults/test_encode_faults.py",
        "cpp/tests/test_encode.cpp",
        "cpp/tests/test_encode_limits.cpp",
        "cpp/tests/test_driver.cpp",
        "cpp/tests/test_count.cpp",
        "cpp/tests/test_merge.cpp",
        "cpp/tests/test_text_ring.cpp",
        "cpp/tests/test_trace.cpp",
    ),
)

NUM_THREADS = 8
SPECIALS = ["<|endoftext|>", "<a>", "<ab>", "<abc>"]
TEXTS = [random_story(seed, 60) + "<ab> <abc" + " é日本" * seed + "<a>" for seed in range(8)]
RAW = random_text(3, 3000)


@pytest.fixture(autouse=True)
def frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def trained():
    return gm.train_tokenizer([*TEXTS, RAW], vocab_size=600, special_tokens=SPECIALS, progress=None)


def comparable(value: Any) -> Any:
    """Return a value whose `==` compares everything in it."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if isinstance(value, gm.Ragged):
        return comparable(value.ids), comparable(value.offsets)
    return value


def in_threads(calls: dict[str, Callable[[], Any]], num_rounds: int = 2) -> list[dict[str, Any]]:
    """Make all calls in each of 8 threads, which start at once, in different orders; return the results by thread."""
    barrier = threading.Barrier(NUM_THREADS, timeout=60)
    results: list[dict[str, Any]] = [{} for _ in range(NUM_THREADS)]

    def work(number: int) -> None:
        order = list(calls) * num_rounds
        random.Random(number // 2).shuffle(order)  # two threads each begin with the same call
        barrier.wait()
        for name in order:
            try:
                found = comparable(calls[name]())
            except Exception as error:
                found = error
            if name in results[number] and results[number][name] != found:
                found = ("differs between rounds", found)
            results[number][name] = found

    threads = [threading.Thread(target=work, args=(number,)) for number in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return results


def check(make: Callable[[], dict[str, Callable[[], Any]]], num_repeats: int) -> None:
    """Compare the calls of 8 threads on one new object with calls in one thread on another new object."""
    expected = {name: comparable(call()) for name, call in make().items()}
    for _ in range(num_repeats):
        for result in in_threads(make()):
            assert result.keys() == expected.keys()
            assert [name for name in expected if result[name] != expected[name]] == []


def calls_of_tokenizer(tok, folder):
    """Everything that a tokenizer computes, and what it builds for that on first use."""
    ids = list(range(0, 600, 7))
    rules = [{"allowed_special": set(SPECIALS[:n])} for n in range(5)]

    def stream():
        decoder = tok.stream_decoder()
        return "".join([decoder.push(id) for id in ids] + [decoder.finish()])

    def forged():
        with pytest.raises(gm.SpecialTokenError) as caught:
            tok.encode(TEXTS[0], disallowed_special="all")
        return str(caught.value)

    def saved():
        path = folder / f"{threading.get_ident()}.json"
        tok.save(path)
        return path.read_bytes()

    return {
        "vocab": lambda: tok.vocab,
        "merges": lambda: tok.merges,
        "merge_ids": lambda: np.array(tok.merge_ids),
        "merged_ids": lambda: tok.merged_ids,
        "fingerprint": lambda: tok.fingerprint,
        "vocab_size": lambda: tok.vocab_size,
        "id_of": lambda: [tok.id_of(token) for token in tok.vocab.values()],
        "encode": lambda: [tok.encode(text) for text in TEXTS],
        "rules": lambda: [tok.encode(text, **rule) for text in TEXTS for rule in rules],
        "ordinary": lambda: tok.encode_ordinary(TEXTS[0]),
        "array": lambda: tok.encode_array(RAW, num_threads=2),
        "batch": lambda: tok.encode_batch(TEXTS, allowed_special="all", num_threads=3),
        "iterable": lambda: list(tok.encode_iterable(TEXTS)),
        "offsets": lambda: tok.encode_with_offsets(TEXTS[3]).ids,
        "count": lambda: tok.count_tokens(RAW),
        "decode": lambda: tok.decode(ids),
        "decode_bytes": lambda: tok.decode_bytes(ids),
        "stream": stream,
        "forged": forged,
        "pickle": lambda: pickle.loads(pickle.dumps(tok)).encode(TEXTS[1]),
        "copy": lambda: copy.deepcopy(tok).fingerprint,
        "save": saved,
        "truncated": lambda: tok.truncated(300).encode(TEXTS[2]),
        "equal": lambda: (tok == gm.Tokenizer.from_parts(tok.parts), hash(tok) == hash(tok)),
        "repr": lambda: (repr(tok), tok._repr_html_()),
    }


def test_row_23_eight_threads_share_a_tokenizer_from_its_first_use(trained, tmp_path):
    check(lambda: calls_of_tokenizer(gm.Tokenizer.from_parts(trained.parts), tmp_path), 4)


@pytest.mark.parametrize("format", ["huggingface", "tiktoken"])
def test_row_23_eight_threads_share_a_tokenizer_of_another_library(format, trained, tmp_path):
    path = tmp_path / {"huggingface": "tokenizer.json", "tiktoken": "tok.tiktoken"}[format]
    with pytest.warns(gm.FormatWarning):
        trained.export(path, format=format)
    given = {"pattern": "gpt2", "special_tokens": trained.special_tokens} if format == "tiktoken" else {}
    check(lambda: calls_of_tokenizer(gm.Tokenizer.load(path, **given), tmp_path), 2)


@pytest.mark.filterwarnings("ignore::gristmill.SlowPatternWarning")
def test_row_23_eight_threads_share_a_tokenizer_whose_pattern_has_no_native_matcher(trained):
    def calls():
        tok = gm.Tokenizer(trained.merges, pattern=r"\p{L}+|\s+|.", special_tokens=SPECIALS)
        return {
            "encode": lambda: tok.encode(TEXTS[0]),
            "count": lambda: tok.count_tokens(TEXTS[4]),
            "decode": lambda: tok.decode(tok.encode(TEXTS[1])),
            "batch": lambda: tok.encode_batch(TEXTS[:2], num_threads=1),
        }

    check(calls, 1)


def test_row_23_more_rules_for_specials_than_are_kept_are_built_by_eight_threads(trained):
    names = [f"<{number}>" for number in range(MAX_RULES + 40)]
    text = "low" + "".join(names)

    def calls():
        tok = gm.Tokenizer(trained.merges, special_tokens=names)
        return {name: lambda name=name: tok.encode(text, allowed_special={name}) for name in names}

    check(calls, 2)


def test_row_23_eight_threads_share_words_and_shards(trained, tmp_path):
    (tmp_path / "a.txt").write_text("<|endoftext|>".join(TEXTS * 4))
    gm.encode_corpus(tmp_path / "a.txt", trained, out=tmp_path / "s", shard_tokens=300, progress=None)
    table = gm.count_words(tmp_path / "a.txt", progress=None)

    def calls():
        words, shards = pickle.loads(pickle.dumps(table)), gm.Shards(tmp_path / "s")
        return {
            "items": lambda: list(words.items()),
            "count": lambda: [words.count(word) for word in words],
            "most": lambda: words.most_common(20),
            "sum": lambda: list((words + words).items()),
            "train": lambda: gm.train_tokenizer(words, vocab_size=300, num_threads=2, progress=None).merges,
            "len": lambda: len(shards),
            "ends": lambda: shards.document_ends,
            "documents": lambda: [shards[i].tolist() for i in range(len(shards))],
            "texts": lambda: [shards.decode(i) for i in range(0, len(shards), 3)],
            "tokens": lambda: shards.tokens[250:1250],
            "fingerprint": lambda: shards.tokenizer.fingerprint,
            "checksums": shards.checksums,
        }

    check(calls, 2)


def test_row_23_eight_threads_each_train_count_and_encode_at_once(tmp_path):
    """Calls share nothing but the process: its caches, warnings, signals and progress."""
    (tmp_path / "a.txt").write_text("<|endoftext|>".join(TEXTS))
    tok = gm.train_tokenizer(tmp_path / "a.txt", vocab_size=300, progress=None)

    def encoded():
        out = tmp_path / f"{threading.get_ident()}-{random.getrandbits(60)}"
        gm.encode_corpus(tmp_path / "a.txt", tok, out=out, num_threads=2, progress=None)
        return (out / "shard-00000.bin").read_bytes(), (out / "manifest.json").read_bytes()

    calls = {
        "train": lambda: gm.train_tokenizer(tmp_path / "a.txt", vocab_size=320, num_threads=2, progress=None).merges,
        "count": lambda: list(gm.count_words(tmp_path / "a.txt", num_threads=3, progress=None).items()),
        "encode": encoded,
        "extend": lambda: tok.extended(TEXTS, vocab_size=310, num_threads=2, progress=None).merges,
    }
    check(lambda: calls, 1)
