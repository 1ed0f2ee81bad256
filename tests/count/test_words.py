"""Words: counting, the table, and its file."""

from __future__ import annotations

import hashlib
import json
import pickle
import signal
import struct
import sys

import numpy as np
import pytest

import gristmill as gm
from gristmill import Words, reference
from gristmill.count.words import MAGIC
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from scripts import run_script
from texts import STORY, random_story, random_text


@pytest.fixture
def words():
    return gm.count_words([STORY, "<s>" + STORY], special_tokens=["<s>"])


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_words_are_those_of_the_reference_in_the_order_of_first_occurrence(pattern):
    texts = [STORY, random_text(1, 3000), "", "<s><s>", random_story(2, 500), "a  <s>  b<s"]
    counted = gm.count_words(texts, pattern=pattern, special_tokens=["<s>"])
    assert list(counted.items()) == list(reference.count_words(texts, pattern=pattern, special_tokens=["<s>"]).items())


def test_a_special_token_is_never_counted_and_no_piece_crosses_it():
    counted = gm.count_words(["ab<s>cd", b"<s>", "e<s"], special_tokens=["<s>"])
    assert dict(counted.items()) == {b"ab": 1, b"cd": 1, b"e": 1, b"<": 1, b"s": 1}


def test_a_special_that_is_a_prefix_of_another_wins_only_where_the_longer_does_not_match():
    counted = gm.count_words(["a<s>b<s>>c<s>"], special_tokens=["<s>", "<s>>"])
    assert dict(counted.items()) == {b"a": 1, b"b": 1, b"c": 1}


def test_the_table_answers_like_a_counter(words):
    assert len(words) == len(list(words)) == len(dict(words.items()))
    assert words.num_pieces == sum(count for _, count in words.items())
    assert words.count(" the") == words.count(b" the") == 2 * STORY.count(" the ")
    assert b" the" in words
    assert " the" in words
    assert "absent" not in words
    assert 7 not in words
    assert words.count("absent") == 0
    assert words.source_bytes == 2 * len(STORY.encode()) + len("<s>")
    assert "distinct" in repr(words)


def test_most_common_keeps_the_earlier_of_equal_counts_first():
    words = Words.from_counts({"b": 2, "a": 2, "c": 3, "d": 1})
    assert words.most_common() == [(b"c", 3), (b"b", 2), (b"a", 2), (b"d", 1)]
    assert words.most_common(2) == [(b"c", 3), (b"b", 2)]
    assert words.most_common(0) == []


def test_adding_tables_is_counting_both_corpora_one_after_the_other():
    a, b = [STORY, "x y"], [random_story(4, 200), STORY]
    assert gm.count_words(a, special_tokens=()) + gm.count_words(b, special_tokens=()) == gm.count_words(
        a + b, special_tokens=()
    )


def test_tables_of_different_patterns_or_specials_cannot_be_added():
    with pytest.raises(gm.CorpusError, match=r"pattern='gpt2'.*pattern='cl100k'"):
        gm.count_words(["a"], special_tokens=()) + gm.count_words(["a"], pattern="cl100k", special_tokens=())
    with pytest.raises(gm.CorpusError, match=r"special_tokens=\[\].*special_tokens=\['<s>'\]"):
        gm.count_words(["a"], special_tokens=()) + gm.count_words(["a"], special_tokens=["<s>"])
    with pytest.raises(TypeError):
        gm.count_words(["a"], special_tokens=()) + 1


def test_a_sum_of_counts_that_passes_63_bits_is_an_error_and_not_a_small_number():
    large = Words.from_counts({"ab": 2**62})
    assert large.count("ab") == 2**62
    for add in (
        lambda: large + large,
        lambda: large + Words.from_counts({"cd": 2**62}),  # no single count exceeds the limit, but the sum does
        lambda: large + Words.from_counts({"c": 2**61}) + Words.from_counts({"d": 2**61}),
        lambda: Words.from_counts({"a": 2**62, "b": 2**62}),
        lambda: gm.train_tokenizer(
            Words.from_counts({"abab": 2**62}, special_tokens=()), vocab_size=257, progress=None
        ),
    ):
        with pytest.raises(gm.CountOverflowError, match=r"2\^63 - 1.*Divide") as caught:
            add()
        assert isinstance(caught.value, OverflowError)


def test_counts_in_a_file_that_add_up_past_63_bits_are_refused_instead_of_wrapping_around(tmp_path):
    words = Words.from_counts({"a": 1, "b": 1, "c": 1})
    words.save(tmp_path / "a.gmw")
    data = bytearray((tmp_path / "a.gmw").read_bytes())
    counts = struct.pack("<3Q", 2**63 - 1, 2**63 - 1, 4)
    at = data.index(struct.pack("<3Q", 1, 1, 1))
    data[at : at + 24] = counts
    data[-32:] = hashlib.sha256(data[:-32]).digest()
    (tmp_path / "a.gmw").write_bytes(data)
    with pytest.raises(gm.WordsFormatError, match=r"2\^63 - 1"):
        Words.load(tmp_path / "a.gmw")


def test_counts_beyond_32_bits_are_exact():
    words = Words.from_counts({"ab": 2**33 + 1, "cd": 2**33, "ef": 5}, special_tokens=())
    assert words.num_pieces == 2**34 + 6
    tok = gm.train_tokenizer(words, vocab_size=258)
    assert tok.merges == [(b"a", b"b"), (b"c", b"d")]


def test_min_frequency_drops_words_and_at_least_does_the_same_later():
    counted = gm.count_words([STORY], min_frequency=3, special_tokens=())
    assert counted == gm.count_words([STORY], special_tokens=()).at_least(3)
    assert dict(counted.items()) == {
        w: c for w, c in reference.count_words([STORY], special_tokens=()).items() if c >= 3
    }


def test_a_word_is_rare_only_if_it_is_rare_in_the_whole_corpus(tmp_path):
    # each document and each file has it once
    (tmp_path / "a.txt").write_text("once")
    (tmp_path / "b.txt").write_text("once")
    assert (
        gm.count_words([tmp_path / "a.txt", tmp_path / "b.txt"], min_frequency=2, special_tokens=()).count("once") == 2
    )
    assert gm.count_words(["once", "once"], min_frequency=2, special_tokens=()).count("once") == 2


def test_from_counts_takes_str_and_bytes_and_keeps_the_order():
    words = Words.from_counts({"é": 1, b"\xff": 2, "z": np.int64(3)}, pattern="cl100k", special_tokens=["<s>"])
    assert list(words.items()) == [(b"\xc3\xa9", 1), (b"\xff", 2), (b"z", 3)]
    assert (words.pattern, words.special_tokens) == ("cl100k", ("<s>",))
    assert len(Words.from_counts({})) == 0


@pytest.mark.parametrize(
    "counts", [{"a": 0}, {"a": -1}, {"a": 2**63}, {"a": 1.0}, {"a": True}, {"": 1}, {"a": 1, b"a": 2}, {"a": "1"}]
)
def test_from_counts_refuses_what_no_corpus_can_give(counts):
    with pytest.raises(gm.CorpusError):
        Words.from_counts(counts)


def test_from_counts_refuses_keys_that_are_not_words():
    with pytest.raises(TypeError, match="the word 7 is of type int"):
        Words.from_counts({7: 1})


def test_tables_can_be_pickled_so_that_processes_can_count_and_one_can_add(words):
    twin = pickle.loads(pickle.dumps(words))
    assert twin == words
    assert twin + words == words + words


# The file


def test_save_and_load_give_the_same_table_and_the_same_bytes(words, tmp_path):
    words.save(tmp_path / "a.gmw")
    loaded = Words.load(tmp_path / "a.gmw")
    assert loaded == words
    assert (loaded.source_bytes, loaded.num_pieces) == (words.source_bytes, words.num_pieces)
    loaded.save(tmp_path / "b.gmw")
    assert (tmp_path / "a.gmw").read_bytes() == (tmp_path / "b.gmw").read_bytes()
    assert gm.train_tokenizer(loaded, vocab_size=300) == gm.train_tokenizer(words, vocab_size=300)
    assert loaded + words == words + loaded


def test_an_empty_table_and_one_of_a_custom_pattern_can_be_saved(tmp_path):
    for words in (Words.from_counts({}), Words.from_counts({"a": 1}, pattern=r"\w+|\s+", special_tokens=["é", "<s>"])):
        words.save(tmp_path / "w.gmw")
        assert Words.load(tmp_path / "w.gmw") == words


def test_the_file_has_the_documented_layout(tmp_path):
    words = Words.from_counts({"ab": 7, "c": 9})
    words.save(tmp_path / "w.gmw")
    data = (tmp_path / "w.gmw").read_bytes()
    magic, version, length = struct.unpack_from("<8sII", data)
    assert (magic, version) == (MAGIC, 1)
    header = json.loads(data[16 : 16 + length])
    assert (header["num_words"], header["num_bytes"], header["pattern"]["name"]) == (2, 3, "gpt2")
    counts, offsets = struct.unpack_from("<2Q", data, 16 + length), struct.unpack_from("<3Q", data, 16 + length + 32)
    assert (counts, offsets) == ((7, 9), (0, 2, 3))
    assert data[16 + length + 56 : -32] == b"abc"


def test_a_file_cut_at_any_byte_is_refused(tmp_path):
    Words.from_counts({"ab": 7, "c": 9}).save(tmp_path / "w.gmw")
    data = (tmp_path / "w.gmw").read_bytes()
    for size in range(len(data)):
        (tmp_path / "cut.gmw").write_bytes(data[:size])
        with pytest.raises(gm.WordsFormatError, match=r"cut\.gmw: not a table of words"):
            Words.load(tmp_path / "cut.gmw")


def test_a_file_with_any_byte_changed_is_refused(tmp_path):
    Words.from_counts({"ab": 7, "c": 9}).save(tmp_path / "w.gmw")
    data = bytearray((tmp_path / "w.gmw").read_bytes())
    for i in range(len(data)):
        data[i] ^= 1
        (tmp_path / "flip.gmw").write_bytes(data)
        with pytest.raises(gm.WordsFormatError):
            Words.load(tmp_path / "flip.gmw")
        data[i] ^= 1


@pytest.mark.parametrize("num_words", [2**62, 2**40, -1, 1.5, "2", None, True])
def test_a_header_with_a_false_size_allocates_nothing(tmp_path, num_words):
    header = {"pattern": {"name": None, "regex": "a+"}, "special_tokens": [], "num_bytes": 3, "source_bytes": 3}
    text = json.dumps(header | {"num_words": num_words}).encode()
    (tmp_path / "w.gmw").write_bytes(struct.pack("<8sII", MAGIC, 1, len(text)) + text + bytes(100))
    with pytest.raises(gm.WordsFormatError):
        Words.load(tmp_path / "w.gmw")


def test_a_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        Words.load(tmp_path / "missing.gmw")


# Counting with little memory, and through the regex module


def test_a_memory_limit_spills_to_disk_and_changes_nothing(tmp_path, monkeypatch):
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spill))
    text = " ".join(f"word{i:07d}" for i in range(400_000))
    (tmp_path / "many.txt").write_text(text)
    unlimited = gm.count_words(tmp_path / "many.txt", special_tokens=())
    assert gm.count_words(tmp_path / "many.txt", memory_limit=32 << 20, special_tokens=()) == unlimited
    assert gm.count_words([text], memory_limit=32 << 20, special_tokens=()) == unlimited
    tok = gm.train_tokenizer(
        tmp_path / "many.txt", vocab_size=300, memory_limit=32 << 20, progress=None, special_tokens=()
    )
    assert tok == gm.train_tokenizer(unlimited, vocab_size=300, special_tokens=())
    assert tok.profile.stages[0].num_spilled_runs > 0
    assert list(spill.iterdir()) == []


def test_a_limit_smaller_than_the_result_is_an_error_that_says_so(tmp_path):
    (tmp_path / "many.txt").write_text(" ".join(f"{i:07d}" for i in range(1_500_000)))
    with pytest.raises(gm.MemoryLimitError, match=r"memory_limit=33554432.*min_frequency") as caught:
        gm.count_words(tmp_path / "many.txt", memory_limit=32 << 20, special_tokens=())
    assert isinstance(caught.value, MemoryError)


def test_no_spilled_file_is_left_when_the_corpus_raises(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def broken():
        yield "fine"
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        gm.count_words(broken(), memory_limit=64 << 20, special_tokens=())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [0, 40 << 20])
def test_a_process_that_is_killed_while_it_spills_leaves_nothing_in_the_temporary_folder(tmp_path, limit):
    script = """
        import os, signal, sys
        import gristmill as gm

        def documents():
            for i in range(60):
                yield " ".join(f"word{i:03d}{k:05d}" for k in range(20_000))
            spilled = os.popen(f"ls -l /proc/{os.getpid()}/fd | grep -c $TMPDIR'/.*deleted'").read()
            print(spilled.strip() or "?", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        gm.count_words(documents(), memory_limit=int(sys.argv[1]) or None, num_threads=2, progress=None)
    """
    done = run_script(script, limit, environment={"TMPDIR": str(tmp_path)})
    assert done.returncode == -signal.SIGKILL, done.stderr
    if sys.platform == "linux":
        assert (int(done.stdout) > 0) == (limit > 0)  # whether it spilled
    assert list(tmp_path.iterdir()) == []


CUSTOM = r"\p{Lu}?\p{Ll}+|\p{N}|[^\w\s]+"  # leaves gaps


@pytest.mark.parametrize("num_threads", [1, 3])
def test_any_regular_expression_counts_like_the_reference_from_documents_and_files(tmp_path, monkeypatch, num_threads):
    from gristmill.count import regex_counting

    monkeypatch.setattr(regex_counting, "TASK_BYTES", 500)  # many tasks
    monkeypatch.setattr(regex_counting, "BLOCK_BYTES", 11)  # specials across block boundaries
    texts = [STORY + "<s>" + STORY, random_text(5, 400), "", "<s><s>>", b"\xc3<s>\xa9", "tail<s"]
    options = {"pattern": CUSTOM, "special_tokens": ["<s>", "<s>>"]}
    expected = reference.count_words(texts, **options)
    counted = gm.count_words(iter(texts), **options, num_threads=num_threads)
    assert list(counted.items()) == list(expected.items())
    files = []
    for i, text in enumerate(texts):
        files.append(tmp_path / f"{i}.txt")
        files[-1].write_bytes(text.encode() if isinstance(text, str) else text)
    assert gm.count_words(files, **options, num_threads=num_threads) == counted


def test_a_regular_expression_that_matches_nothing_or_only_nothing_makes_each_document_one_piece():
    for pattern in (r"(?!)", r"(?=\w)", r"\b"):
        assert dict(gm.count_words(["ab cd", "ef"], pattern=pattern, num_threads=1, special_tokens=()).items()) == {
            b"ab cd": 1,
            b"ef": 1,
        }


def test_a_custom_pattern_obeys_min_frequency_and_memory_limit():
    assert dict(
        gm.count_words(["a b a"], pattern=r"\w", min_frequency=2, num_threads=1, special_tokens=()).items()
    ) == {b"a": 2, b" ": 2}
    distinct = " ".join(f"{i:06d}" for i in range(150_000))
    with pytest.raises(gm.MemoryLimitError, match="only native patterns"):
        gm.count_words([distinct], pattern=r"\d+|\s", memory_limit=32 << 20, num_threads=1, special_tokens=())


def test_counting_counted_words_again_takes_their_pattern_and_refuses_another():
    words = gm.count_words(["low low 123456"], pattern="cl100k", special_tokens=["<s>"], progress=None)
    assert gm.count_words(words, progress=None) == words
    with pytest.raises(gm.PatternError, match="counted with pattern='cl100k'"):
        gm.count_words(words, pattern="gpt2", progress=None)


def test_a_word_with_lone_surrogates_is_a_gristmill_error():
    with pytest.raises(gm.TextError, match="lone surrogate"):
        gm.Words.from_counts({"\ud800": 1})
