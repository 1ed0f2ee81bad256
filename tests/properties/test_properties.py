"""Properties that hold for every input, tested with hypothesis: exactness, invariance, round trips."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as gm
from gristmill import Tokenizer, Words, _core, reference
from gristmill.pretokenize import NATIVE_PATTERNS, resolve_pattern
from texts import byte_texts, texts, words

TIE_BREAKS = ["greatest-bytes", "smallest-ids", "huggingface", "first-seen"]
SPECIALS = ["<s>", "<s>>", "aa", "\n"]

patterns = st.sampled_from(sorted(NATIVE_PATTERNS))
tie_breaks = st.sampled_from(TIE_BREAKS)
specials = st.lists(st.sampled_from(SPECIALS), unique=True)
documents = st.lists(byte_texts, min_size=1, max_size=5)
lengths = st.none() | st.integers(1, 6)

pytestmark = pytest.mark.filterwarnings("ignore::gristmill.EarlyStopWarning")


def count_natively(texts, *, pattern, special_tokens=(), num_threads=1, kernel=None, block_bytes=0):
    counter = _core.Counter(
        pattern=pattern,
        special_tokens=[special.encode() for special in special_tokens],
        num_threads=num_threads,
        kernel=kernel,
        block_bytes=block_bytes,
    )
    counter.add_texts(texts)
    table, _ = counter.finish()
    return table


def arrays_of(table) -> list[list[int]]:
    return [
        table.data.tolist(),
        table.offsets.tolist(),
        table.counts.tolist(),
        table.firsts.tolist(),
        [table.source_bytes],
    ]


@given(documents, patterns, specials)
def test_words_are_those_of_the_reference(texts, pattern, special_tokens):
    counted = Words(
        count_natively(texts, pattern=pattern, special_tokens=special_tokens),
        pattern=resolve_pattern(pattern),
        special_tokens=tuple(special_tokens),
    )
    expected = reference.count_words(texts, pattern=pattern, special_tokens=special_tokens)
    assert list(counted.items()) == list(expected.items())


@given(
    documents,
    patterns,
    specials,
    st.integers(1, 7),
    st.sampled_from([0, 1, 2, 3, 7, 16, 64, 100]),
    st.sampled_from(_core.supported_kernels()),
)
@settings(max_examples=150)
def test_the_table_is_the_same_for_every_thread_count_block_size_and_kernel(
    texts, pattern, special_tokens, num_threads, block_bytes, kernel
):
    plain = count_natively(texts, pattern=pattern, special_tokens=special_tokens, kernel="scalar")
    other = count_natively(
        texts,
        pattern=pattern,
        special_tokens=special_tokens,
        num_threads=num_threads,
        kernel=kernel,
        block_bytes=block_bytes,
    )
    assert arrays_of(plain) == arrays_of(other)


@given(documents, patterns, specials, st.sampled_from([1, 2, 3, 5, 16, 64]), st.integers(1, 3))
def test_a_file_has_the_words_of_its_bytes_wherever_it_is_cut(
    tmp_path_factory, texts, pattern, special_tokens, block_bytes, num_threads
):
    folder = tmp_path_factory.mktemp("files")
    paths = []
    for i, text in enumerate(texts):
        (folder / str(i)).write_bytes(text)
        paths.append(str(folder / str(i)))
    counter = _core.Counter(
        pattern=pattern,
        special_tokens=[special.encode() for special in special_tokens],
        num_threads=num_threads,
        block_bytes=block_bytes,
    )
    counter.add_files(paths)
    table, figures = counter.finish()
    expected = count_natively(texts, pattern=pattern, special_tokens=special_tokens)
    assert arrays_of(table) == arrays_of(expected)
    assert figures["source_bytes"] == sum(map(len, texts))


@given(words, tie_breaks, lengths)
@settings(max_examples=200)
def test_merges_are_those_of_the_naive_loop_in_both_loops_of_the_core(words, tie_break, max_token_bytes):
    naive = reference.learn_merges(words, 50, tie_break=tie_break, max_token_bytes=max_token_bytes)
    table = Words.from_counts(words).table
    for loop in ("sequential", "rounds"):
        run = _core.learn_merges(
            table, num_merges=50, tie_break=tie_break, max_token_bytes=max_token_bytes or 0, loop=loop, num_threads=2
        )
        assert Tokenizer(run.merges).merges == naive, loop


@given(words, tie_breaks, lengths)
def test_the_incremental_reference_is_the_naive_one(words, tie_break, max_token_bytes):
    options = {"tie_break": tie_break, "max_token_bytes": max_token_bytes}
    assert reference.learn_merges_incrementally(words, 50, **options) == reference.learn_merges(words, 50, **options)


@given(words, tie_breaks)
def test_no_two_merges_make_the_same_bytes(words, tie_break):
    made = [left + right for left, right in reference.learn_merges(words, 100, tie_break=tie_break)]
    assert len(set(made)) == len(made)


@given(words, st.integers(0, 30), st.integers(0, 30), tie_breaks, lengths)
def test_extending_is_a_longer_run_and_truncating_a_shorter_one(words, few, more, tie_break, max_token_bytes):
    counted = Words.from_counts(words, special_tokens=["<s>"])
    options = {"tie_break": tie_break, "max_token_bytes": max_token_bytes}
    short = gm.train_tokenizer(counted, vocab_size=257 + few, **options)
    long = gm.train_tokenizer(counted, vocab_size=257 + few + more, **options)
    extended = gm.extend_tokenizer(short, counted, vocab_size=257 + few + more, max_token_bytes=max_token_bytes)
    assert extended == long
    assert long.truncated(short.vocab_size) == short


@given(words, words)
def test_extending_on_another_corpus_is_the_reference_after_the_given_merges(first, second):
    given_merges = reference.learn_merges(first, 10)
    tok = gm.extend_tokenizer(
        Tokenizer(given_merges), Words.from_counts(second, special_tokens=()), vocab_size=256 + 25
    )
    # Words that stand for the second corpus after the given merges: what the reference learns beyond a prefix it is
    # made to learn, by weights that no other pair can reach.
    sequences = [[bytes([byte]) for byte in word] for word in second]
    for pair in given_merges:
        sequences = [reference.merge_pair(tokens, pair) for tokens in sequences]
    merges = list(given_merges)
    while len(merges) < 25:
        counts: dict[tuple[bytes, bytes], int] = {}
        for tokens, count in zip(sequences, second.values(), strict=True):
            for pair in pairwise(tokens):
                counts[pair] = counts.get(pair, 0) + count
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        sequences = [reference.merge_pair(tokens, best) for tokens in sequences]
    assert tok.merges == merges


@given(words, words)
def test_adding_tables_counts_both(first, second):
    total = dict((Words.from_counts(first) + Words.from_counts(second)).items())
    assert total == {word: first.get(word, 0) + second.get(word, 0) for word in first | second}


@given(documents, byte_texts, patterns, specials)
@settings(max_examples=150)
def test_decode_gives_back_every_byte_string_and_ids_are_those_of_the_reference(texts, text, pattern, special_tokens):
    merges = reference.train(texts, 300, pattern=pattern, special_tokens=special_tokens)
    tok = Tokenizer(merges, pattern=pattern, special_tokens=special_tokens)
    plain = tok.encode(text, disallowed_special=())
    assert plain == reference.encode(text, merges, pattern=pattern)
    assert tok.decode_bytes(plain) == text
    ids = tok.encode(text, allowed_special="all")
    assert ids == reference.encode(text, merges, pattern=pattern, special_tokens=special_tokens)
    assert tok.decode_bytes(ids) == text


@given(texts, patterns)
def test_decode_gives_back_every_text(text, pattern):
    tok = Tokenizer([(b" ", b"t"), (b"h", b"e"), (b"\xc3", b"\xa9")], pattern=pattern)
    assert tok.decode(tok.encode(text)) == text


@given(texts)
def test_decode_gives_back_every_text_under_a_pattern_of_the_user(text):
    tok = Tokenizer([(b"a", b"b"), (b"\xe4", b"\xb8")], pattern=r"\w+?(?=b)|[^a]", special_tokens=["<s>"])
    assert tok.decode(tok.encode(text, allowed_special="all")) == text


@given(words, st.lists(st.text(min_size=1, max_size=5), unique=True, max_size=4), patterns, tie_breaks)
def test_saved_and_pickled_tokenizers_come_back_equal(tmp_path_factory, words, special_tokens, pattern, tie_break):
    tok = Tokenizer(
        reference.learn_merges(words, 20), pattern=pattern, special_tokens=special_tokens, tie_break=tie_break
    )
    path = tmp_path_factory.mktemp("saved") / "tok.json"
    tok.save(path)
    loaded = Tokenizer.load(path)
    assert loaded == tok == pickle.loads(pickle.dumps(tok))
    data = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == data


@given(words, specials, patterns)
def test_saved_words_come_back_equal(tmp_path_factory, words, special_tokens, pattern):
    table = Words.from_counts(words, pattern=pattern, special_tokens=special_tokens)
    path = tmp_path_factory.mktemp("saved") / "words.gmw"
    table.save(path)
    assert Words.load(path) == table


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_a_tokenizer_or_a_format_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_bytes(data)
    with pytest.raises(gm.TokenizerFormatError):
        Tokenizer.load(path)
    with pytest.raises(gm.WordsFormatError):
        Words.load(path)


@given(
    st.lists(st.binary(min_size=0, max_size=3), max_size=5),
    st.lists(st.integers(0, 4), max_size=6),
    st.lists(st.integers(0, 10), max_size=6),
)
def test_a_table_from_arrays_that_do_not_fit_together_is_refused(pieces, counts, firsts):
    offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.uint64)
    data = np.frombuffer(b"".join(pieces), np.uint8)
    sound = (
        len(pieces) == len(counts) == len(firsts)
        and len(set(pieces)) == len(pieces)
        and all(pieces)
        and all(counts)
        and all(a < b for a, b in pairwise(firsts))
    )
    arguments = (data, offsets, np.array(counts, np.uint64), np.array(firsts, np.uint64), 1000)
    if sound:
        assert len(_core.WordTable.from_arrays(*arguments)) == len(pieces)
    else:
        with pytest.raises(ValueError):
            _core.WordTable.from_arrays(*arguments)
