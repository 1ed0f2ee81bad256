"""The programs of `gristmill.reference.ablation` learn the merges of the plain reference, for any file."""

import random
from pathlib import Path

import pytest

import gristmill as gm
from gristmill import reference
from gristmill.reference.ablation import PROGRAMS, parallel_counting, rare_words, train
from gristmill.reference.ablation.naive import SPECIAL

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # fork in a process with threads

EXACT = [letter for letter, program in PROGRAMS.items() if program.is_exact]
STORY = "the cat sat on the mat; the cats sat there, théâtre! " * 3
FILES = {
    "empty": b"",
    "one byte": b"a",
    "only special tokens": SPECIAL.encode() * 5,
    "special tokens in a row, at both ends, cut short": f"{SPECIAL}{SPECIAL}ab ab{SPECIAL[:-1]} ab{SPECIAL}".encode(),
    "invalid UTF-8, also before a special token": b"\xff\xffab\xe2\x82"
    + SPECIAL.encode()
    + b"\xe2\x82ab \xc3(ab\xed\xa0\x80",
    "ties": b"ab ba cd dc ab ba cd dc",
    "CRLF": b"ab\r\nab\r\n\r\nab\rab\n",
    "a run of one character": b"a" * 100 + SPECIAL.encode() + b"a" * 7,
    "white space across a document's end": f"ab  {SPECIAL}  ab \n{SPECIAL}\n ab".encode(),
    "story": f"{STORY}{SPECIAL}\n{STORY}{SPECIAL}".encode(),
}


@pytest.mark.parametrize("letter", EXACT)
@pytest.mark.parametrize("content", FILES.values(), ids=FILES.keys())
def test_the_merges_are_those_of_the_plain_reference(letter, content, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    training = train(PROGRAMS[letter], path, 257 + 12)
    assert training.merges == reference.train([content], 257 + 12, special_tokens=[SPECIAL])
    assert training.is_complete
    assert len(training.merge_seconds) == len(training.merges)


@pytest.mark.parametrize("letter", ["a", "f", "g"])
def test_the_merges_are_those_of_the_core_until_no_pair_is_left(letter, tmp_path):
    draw = random.Random(letter)
    words = ["".join(draw.choices("abcé ", k=draw.randint(1, 9))) for _ in range(40)]
    path = tmp_path / "corpus.txt"
    path.write_text("".join(draw.choices([*words, SPECIAL], k=300)), encoding="utf-8")
    with pytest.warns(gm.EarlyStopWarning):
        core = gm.train_tokenizer(path, vocab_size=5000, progress=None).merges
    assert train(PROGRAMS[letter], path, 5000).merges == core
    assert len(core) > 100


@pytest.mark.parametrize("num_processes", [1, 2, 5])
def test_the_words_are_the_same_for_every_number_of_chunks(num_processes, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"".join(FILES.values()) * 3)
    words = parallel_counting.count_words(path, num_processes)
    assert list(words.items()) == list(reference.count_words([path.read_bytes()], special_tokens=[SPECIAL]).items())


@pytest.mark.parametrize("block_bytes", [1, 2, 13, 14, 100])
def test_a_special_token_across_two_blocks_is_found(block_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel_counting, "BLOCK_BYTES", block_bytes)
    content = b"x" * 20 + SPECIAL.encode() + b"y" * 20 + SPECIAL.encode() + b"z"
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    for position in range(len(content)):
        found = content.find(SPECIAL.encode(), position)
        expected = len(content) if found == -1 else found
        assert parallel_counting.find_special(path, position, len(content)) == expected


def test_chunks_of_a_file_with_one_document_are_one_chunk(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"ab " * 1000)
    assert parallel_counting.find_chunk_boundaries(path, 8) == [0, 3000]


def test_dropping_rare_words_changes_the_merges_that_depend_on_them(tmp_path):
    # "zq" occurs 9 + 9 times, more often than "ab", but in two words that are both rare.
    content = (" ab" * 12 + " zqc" * 9 + " zqd" * 9).encode()
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    assert rare_words.count_words(path) == {b" ab": 12}
    exact = train(PROGRAMS["d"], path, 257 + 1).merges
    assert exact == [(b"z", b"q")]
    assert train(PROGRAMS["e"], path, 257 + 1).merges == [(b"a", b"b")]


def test_a_time_limit_stops_after_a_merge_and_keeps_the_merges(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(FILES["story"])
    training = train(PROGRAMS["c"], path, 400, time_limit=0.0)
    assert not training.is_complete
    assert training.merges == reference.train([FILES["story"]], 257 + 1, special_tokens=[SPECIAL])


def test_words_that_are_already_counted_replace_the_first_stage():
    training = train(PROGRAMS["f"], Path("no such file"), 257 + 1, words={b"aab": 2})
    assert training.merges == [(b"a", b"b")]
    assert training.pretokenize_seconds == 0
