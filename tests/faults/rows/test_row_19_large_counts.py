"""Row 19: counts beyond 2^32 and up to 2^63 - 1, as corpora of many terabytes have, and sums beyond that."""

from __future__ import annotations

import itertools
import pickle
import random
import re

import numpy as np
import pytest

import gristmill as gm
from faults.rows.fault import Fault
from gristmill import Words, _core, reference
from gristmill.cli import main
from gristmill.count.tasks import RunPlace, added_runs
from gristmill.executors.work_folder import LocalWorkFolder

FAULT = Fault(
    row=19,
    injected="Words and pairs with counts beyond 2^32 and up to 2^63 - 1, in tables, files, sums, parts and merges",
    promise="Counts, sums and merges are exact. A sum above 2^63 - 1 raises `CountOverflowError`; no file is written",
    undetectable="Whether counts of another program had wrapped around before they were passed to `Words.from_counts`",
    see_also=(
        "tests/count/test_words.py",
        "tests/count/test_count_tasks.py",
        "tests/gpu/test_count_limits.py",
        "cpp/tests/test_count.cpp",
    ),
)

MOST = 2**63 - 1
BASES = (2**31, 2**32, 2**33, 2**53, 2**57)
TIE_BREAKS = ("greatest-bytes", "smallest-ids", "huggingface", "first-seen")


def words_of(counts):
    return Words.from_counts(counts, special_tokens=())


def counts_near(base, source):
    """Return words of few letters, so that many pairs have counts that differ by 1 or are equal."""
    letters = ["".join(source.choices("abc", k=source.randint(1, 7))) for _ in range(30)]
    return {word: source.choice([base - 1, base, base + 1, base // 3, 1, 2]) for word in letters}


@pytest.mark.parametrize("loop", ["sequential", "rounds"])
@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_row_19_merges_of_huge_counts_are_those_of_exact_integers(tie_break, loop):
    for base, seed in itertools.product(BASES, range(4)):
        counts = counts_near(base, random.Random(seed))
        expected = reference.learn_merges(
            {word.encode(): count for word, count in counts.items()}, 25, tie_break=tie_break
        )
        for num_threads in (1, 2):
            run = _core.learn_merges(
                words_of(counts).table, num_merges=25, tie_break=tie_break, loop=loop, num_threads=num_threads
            )
            assert gm.Tokenizer(run.merges).merges == expected, (base, seed)


def test_row_19_counts_that_a_double_cannot_tell_apart_are_told_apart(tmp_path):
    # 2^53 and 2^53 + 1 are the same double, and modulo 2^32 the rarer pair would be the most frequent one.
    words = words_of({"ab": 2**53, "cd": 2**53 + 1, "ef": 2**40 + 2**32 - 1})
    words.save(tmp_path / "w.gmw")
    for each in (words, Words.load(tmp_path / "w.gmw"), pickle.loads(pickle.dumps(words))):
        assert each == words
        assert each.num_pieces == 2**54 + 2**40 + 2**32
        assert [word for word, _ in each.most_common()] == [b"cd", b"ab", b"ef"]
        assert dict(each.at_least(2**53 + 1).items()) == {b"cd": 2**53 + 1}
        tok = gm.train_tokenizer(each, vocab_size=259, progress=None)
        assert tok.merges == [(b"c", b"d"), (b"a", b"b"), (b"e", b"f")]
        assert tok.profile.merge_counts.tolist() == [2**53 + 1, 2**53, 2**40 + 2**32 - 1]


def test_row_19_the_largest_count_survives_every_way_that_a_table_takes(tmp_path):
    largest = words_of({"ab": MOST})
    largest.save(tmp_path / "most.gmw")
    assert Words.load(tmp_path / "most.gmw").num_pieces == MOST
    assert words_of({"ab": MOST - 1}) + words_of({"ab": 1}) == largest
    assert (words_of({"ab": 2**62}) + words_of({"cd": 2**62 - 1})).num_pieces == MOST
    assert list(largest.at_least(MOST)) == [b"ab"]
    assert f"{MOST:,} pieces" in repr(largest)
    with pytest.warns(gm.EarlyStopWarning):
        assert gm.train_tokenizer(largest, vocab_size=300, progress=None).merges == [(b"a", b"b")]


def test_row_19_tables_of_impossible_corpora_are_added_saved_and_loaded(tmp_path):
    # Their corpora would have 2^66 bytes. The sum of two such sizes used to make files that could not be loaded, and
    # three tables could not be added at all.
    parts = [words_of({letter * 64: 2**60}) for letter in "abcd"]
    one_by_one = parts[0] + parts[1] + parts[2] + parts[3]
    from_the_end = parts[0] + (parts[1] + (parts[2] + parts[3]))
    assert one_by_one == from_the_end
    assert one_by_one.num_pieces == 2**62
    assert list(one_by_one) == [letter.encode() * 64 for letter in "abcd"]
    one_by_one.save(tmp_path / "w.gmw")
    assert Words.load(tmp_path / "w.gmw") == one_by_one == pickle.loads(pickle.dumps(one_by_one))


@pytest.mark.parametrize(
    "add",
    [
        lambda: words_of({"a": MOST, "b": 1}),
        lambda: words_of({"a": MOST}) + words_of({"a": 1}),
        lambda: words_of({"a": MOST}) + words_of({"b": 1}),
        lambda: gm.train_tokenizer(words_of({"aaa": 2**62}), vocab_size=257, progress=None),
        lambda: gm.Tokenizer([(b"a", b"b")]).extended(words_of({"ababab": 2**62}), vocab_size=258, progress=None),
    ],
    ids=["table", "word", "tables", "pair", "extend"],
)
def test_row_19_a_sum_above_63_bits_is_an_error_that_says_what_to_do(add):
    with pytest.raises(gm.CountOverflowError, match=r"2\^63 - 1.*Divide the counts") as caught:
        add()
    assert isinstance(caught.value, OverflowError)


@pytest.mark.parametrize("loop", ["sequential", "rounds"])
@pytest.mark.parametrize("num_threads", [1, 2, 7])
def test_row_19_a_pair_that_is_too_frequent_in_several_threads_together_is_an_error(loop, num_threads):
    # No word overflows alone, and no thread has all words of the pair (a, b).
    words = words_of({f"ab{letter}ab": 2**58 for letter in "cdefghijklmnopqrst"})
    with pytest.raises(gm.CountOverflowError, match=r"the pair \(97, 98\) occurs more than 2\^63 - 1 times"):
        _core.learn_merges(words.table, num_merges=3, loop=loop, num_threads=num_threads)


def merged_in_parts(tables, folder):
    """Join tables as the tasks of a distributed count do: as runs in files."""
    runs = []
    for number, words in enumerate(tables):
        data = bytearray()
        entry = _core.write_runs(words.table, 1, data.extend).tolist()
        (folder / f"count-{number:05d}.runs").write_bytes(data)
        runs.append((RunPlace(f"count-{number:05d}", 0, *entry), 1000 * number))
    merger = _core.RunMerger(by_first=False, spill_folder=str(folder), memory_limit=32 << 20)
    merged = bytearray()
    with added_runs(LocalWorkFolder(folder), merger, runs):
        entry, num_words = merger.write_by_first(1, merged.extend)
    (folder / "merge-00000.words").write_bytes(merged)
    joiner = _core.RunMerger(by_first=True, spill_folder=str(folder), memory_limit=32 << 20)
    with added_runs(LocalWorkFolder(folder), joiner, [(RunPlace("merge-00000", 0, *entry.tolist()), 0)]):
        return joiner.make_table(num_words=num_words, num_bytes=int(entry[3]), source_bytes=1)


def test_row_19_parts_of_a_distributed_count_are_added_exactly(tmp_path):
    table = merged_in_parts([words_of({"ab": 2**62, "cd": 2**33 + 1}), words_of({"ab": 2**61, "ef": 5})], tmp_path)
    assert table.counts.tolist() == [2**62 + 2**61, 2**33 + 1, 5]


@pytest.mark.parametrize(
    "second",
    [{"ab": 2**62}, {"cd": 2**62}],
    ids=["of one word", "of all words"],
)
def test_row_19_parts_of_a_distributed_count_that_overflow_together_are_an_error(second, tmp_path):
    with pytest.raises(gm.CountOverflowError, match=r"2\^63 - 1"):
        merged_in_parts([words_of({"ab": 2**62}), words_of(second)], tmp_path)


def test_row_19_files_of_counts_are_added_by_the_command_line_or_refused_without_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, counts in {"a": {"ab": 2**62}, "b": {"cd": 2**62 - 1, "x" * 60: 1}, "c": {"ab": 2**62}}.items():
        Words.from_counts(counts).save(f"{name}.gmw")
    Words.from_counts({"ab": 2**62, "x" * 60: 2**56}).save("d.gmw")
    Words.from_counts({"cd": 2**60, "y" * 60: 2**57}).save("e.gmw")
    assert main(["count-words", "d.gmw", "e.gmw", "-o", "de.gmw"]) == 0
    assert main(["train-tokenizer", "de.gmw", "--vocab-size", "259", "-o", "de.json"]) == 0
    assert dict(Words.load("de.gmw").items()) == {b"ab": 2**62, b"x" * 60: 2**56, b"cd": 2**60, b"y" * 60: 2**57}
    assert gm.Tokenizer.load("de.json").merges == [(b"y", b"y"), (b"a", b"b")]
    capsys.readouterr()
    for second in ("b", "c"):
        assert main(["count-words", "a.gmw", f"{second}.gmw", "-o", "sum.gmw"]) == 1
        assert main(["train-tokenizer", "a.gmw", f"{second}.gmw", "--vocab-size", "259", "-o", "sum.json"]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 4
    assert all(re.search(r"2\^63 - 1.*Divide the counts by a common factor\.$", error) for error in errors)
    assert not list(tmp_path.glob("*sum*"))


def test_row_19_a_file_whose_counts_overflow_together_is_a_damaged_file(tmp_path):
    """`Words.save` cannot write such a file, so someone has made it."""
    data, offsets = np.frombuffer(b"ab", np.uint8), np.array([0, 1, 2], np.uint64)
    parts = (data, offsets, np.array([MOST, 1], np.uint64), np.array([0, 1], np.uint64), 2)
    with pytest.raises(gm.CountOverflowError, match=r"2\^63 - 1"):
        _core.WordTable.from_arrays(*parts)
    restore, arguments = Words.from_counts({"a": 1}).__reduce__()
    with pytest.raises(gm.CountOverflowError, match=r"2\^63 - 1"):
        restore(*parts, *arguments[5:])


@pytest.mark.parametrize("min_frequency", [MOST, 2**63, 2**64, 2**70])
def test_row_19_a_minimum_frequency_beyond_every_count_keeps_only_what_reaches_it(min_frequency):
    words = words_of({"ab": MOST - 1})
    assert len(words.at_least(min_frequency)) == 0
    with pytest.raises(gm.EmptyCorpusError, match="Pass a smaller min_frequency"):
        gm.train_tokenizer(words, vocab_size=300, min_frequency=min_frequency, progress=None)
