"""count on a GPU: the table of the core, for every pattern, wherever slots, chunks and tiles of the text begin."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
from counts import SMALL, Spans, add_texts, assert_same, count_on_cpu, count_on_gpu, make_counter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill import Words, _core, count_words
from gristmill.arguments import TIE_BREAKS
from gristmill.errors import InputChangedError
from gristmill.gpu import chunks, word_counts, word_table
from gristmill.gpu.driver import all_active
from gristmill.gpu.merge_run import MergeTask
from gristmill.gpu.merging import learn_merges_on
from gristmill.pretokenize.patterns import resolve_pattern
from texts import CHARACTERS, CONTRACTIONS, INVALID, RUNS, STORY, byte_texts, random_story, random_text

TILE = 64 * 28  # bytes on the emulator
END = b"<|end|>"
TEXTS = [STORY, random_story(1, 300), random_text(2, 500), "", "".join(CHARACTERS + CONTRACTIONS + RUNS) * 2]


@pytest.fixture(autouse=True)
def small_arena(monkeypatch):
    monkeypatch.setattr(word_table, "FIRST_ARENA_BYTES", 1 << 16)


@pytest.fixture
def host_parts(monkeypatch):
    """The texts that the host counts."""
    parts = []
    count_parts = word_counts.WordCounts._count_parts

    def record(self):
        parts.extend(text.tobytes() for _, text in self._parts)
        count_parts(self)

    monkeypatch.setattr(word_counts.WordCounts, "_count_parts", record)
    return parts


# Texts


@pytest.mark.parametrize("pattern", _core.PATTERNS)
def test_words_of_every_pattern_are_those_of_the_core(drivers, pattern):
    assert_same(drivers, TEXTS, pattern=pattern, specials=[END])


def test_the_saved_words_are_the_file_of_the_cpu(driver, tmp_path):
    texts = [text if isinstance(text, bytes) else text.encode() for text in TEXTS]
    found, _ = count_on_gpu([driver], add_texts(texts), pattern="cl100k", specials=[b"<s>"])
    words = Words(found.to_host(), pattern=resolve_pattern("cl100k"), special_tokens=("<s>",))
    words.save(tmp_path / "gpu.gmw")
    count_words(texts, pattern="cl100k", special_tokens=["<s>"]).save(tmp_path / "cpu.gmw")
    assert (tmp_path / "gpu.gmw").read_bytes() == (tmp_path / "cpu.gmw").read_bytes()


@pytest.mark.parametrize("pattern", _core.PATTERNS)
def test_pieces_that_cross_a_tile_at_every_offset(emulated, pattern):
    text = b"".join(INVALID) + "".join(CHARACTERS[::3] + CONTRACTIONS + RUNS).encode()
    # The gap between two texts moves each one by a byte.
    texts = [text * (TILE // len(text)) + b"x" * (TILE % len(text)) for _ in range(8)]
    assert_same([emulated], texts, pattern=pattern, chunk_bytes=1 << 16)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    texts=st.lists(byte_texts, max_size=5),
    pattern=st.sampled_from(_core.PATTERNS),
    specials=st.lists(st.sampled_from([b" ", b"a", b"'s", b"aa", b"\n ", b"\xe3\x80\x80", b"ab ab"]), unique=True),
    slot_bytes=st.integers(1, 40),
    chunk_bytes=st.integers(1, 80),
    num_gpus=st.integers(1, 2),
)
def test_any_texts_with_any_specials_in_any_chunks(
    emulated, texts, pattern, specials, slot_bytes, chunk_bytes, num_gpus
):
    assert_same(
        [emulated] * num_gpus,
        texts,
        pattern=pattern,
        specials=specials,
        chunk_bytes=chunk_bytes,
        slot_bytes=slot_bytes,
        ring_bytes=3 * slot_bytes,
    )


def test_words_that_differ_only_after_15_bytes(driver):
    words = [b"abcdefghijklmno"[:size] + ending for size in (14, 15) for ending in (b"", b"p", b"q", b"pp", b"pq")]
    words += [word.upper() for word in words] + [b"x" * size for size in range(1, 40)]
    found = assert_same([driver], [b" " + b" ".join(words * 3), b"\n".join(words)], pattern="whitespace")
    assert len(found) > len(set(words))


# The tail of the words of 15 bytes: the factor that it makes 0 is their hash.
TAIL = int.from_bytes(b"abcdefg\x0f", "little")


@pytest.mark.parametrize("keys", [(0, 0), (TAIL, 0), (1 << 63, 1 << 63), (TAIL, 2**64 - 1)])
def test_words_of_one_hash(emulated, monkeypatch, keys):
    monkeypatch.setattr(word_table, "draw_hash_keys", lambda: keys)
    words = [f"{i:08}{ending}" for i in range(60) for ending in ("", "abcdefg", "abcdefg" * 2, "abcdefg" * 2 + "h")]
    # Without its 8 zero bytes, the first word looks like any word with the same end.
    words = ["\0" * 8 + "abcdefg", *words, "\0" * 8 + "abcdefg"]
    texts = ["\n".join(words * 2), " ".join(words), "\n".join(words[::-1])]
    assert_same([emulated], texts, pattern="whitespace")


def test_words_of_nul_bytes_are_not_empty_entries(driver):
    # The head of a short key is 0.
    texts = [b"\0" * size + rest for size in range(20) for rest in (b"", b"a", b"\0b" * 4)]
    assert_same([driver], texts, pattern="whitespace")
    assert_same([driver], [b" ".join(texts)], pattern="whitespace")


def test_no_texts_and_texts_without_words(driver):
    assert_same([driver], lambda counter: None)
    assert_same([driver], [])
    assert_same([driver], [b""] * 50)
    assert_same([driver], [END, END * 3], specials=[END])


# Where a slot, a chunk or a tile ends


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k"])
def test_slots_and_chunks_may_end_anywhere(emulated, pattern):
    text = "l'ſa 12345\u3000 é\u3000\u3000'll\n\n <|end|> <|end|>中文 \r\n\xa0".encode() + b"\xe3\x80 \xff "
    for slot_bytes in range(1, len(text) + 2):
        assert_same(
            [emulated],
            [text, text[7:], b"", text * 2],
            pattern=pattern,
            specials=[END],
            chunk_bytes=slot_bytes + 3,
            slot_bytes=slot_bytes,
            ring_bytes=2 * slot_bytes,
        )


def test_a_slot_that_begins_inside_of_a_character_or_special_has_no_cut_there(emulated):
    # "\x80\x80 " looks like a place to cut, and "\u3000 " is none; the same for "b " of the special "a b ".
    for text, specials in (("x\u3000 y" * 9, []), ("xa b c", [b"a b c"]), ("qa b a b r", [b"a b "])):
        for slot_bytes in range(1, 24):
            options = {"chunk_bytes": slot_bytes, "slot_bytes": slot_bytes, "ring_bytes": slot_bytes}
            assert_same([emulated], [text, text * 7], specials=specials, **options)


def test_special_tokens_across_slots_chunks_and_tiles(emulated):
    for shift in range(-len(END) - 1, 3):
        text = b"a bc " * (TILE // 5) + b"d" * (TILE % 5)
        text = text[: TILE + shift] + END + b" e" + END
        for sizes in (SMALL, {"chunk_bytes": TILE, "slot_bytes": TILE // 2, "ring_bytes": 2 * TILE}):
            assert_same([emulated], [text, text[-9:]], specials=[END], **sizes)


@pytest.mark.parametrize(
    "specials",
    [
        [b"<|end|>", b"end"],
        [b"ab", b"bc", b"cab"],
        [b"aa"],
        [b"aaa", b"aa", b"a"],
        [b" "],
        [b"a", b"\n", b"'"],
        [b"the miller", b"miller", b" the"],
        [" 東京".encode(), "京".encode()],
        [b"it"] * 2,
        [str(i).encode() for i in range(300)],
    ],
    ids=lambda specials: specials[0].decode().strip() or "space",
)
def test_special_tokens_that_overlap_contain_each_other_or_have_one_byte(drivers, specials):
    texts = ["abcabcab aaaa aaa aa a<|end|><|end|> end", STORY, random_story(4, 60), b"".join(specials) * 2]
    texts += [b"".join(specials[::-1]), specials[0], specials[-1] + b" x", b"x " + specials[0]]
    assert_same(drivers, texts, specials=specials)


def test_special_tokens_that_only_might_overlap_are_left_to_the_gpu(emulated, host_parts):
    specials = [b"<|a|>", b"<|a|>b", b">x"]
    assert_same([emulated], ["one<|a|> two<|a|>b three >x"] * 20, specials=specials)
    assert not host_parts
    assert_same([emulated], ["one<|a|>x two"], specials=specials)
    assert host_parts


@pytest.mark.parametrize(
    ("specials", "expected"),
    [
        ([], False),
        ([b"a"], False),
        ([b"ab", b"ab"], False),
        ([b"aa"], True),
        ([b"aba"], True),
        ([b"abc", b"cd"], True),
        ([b"cd", b"abc"], True),
        ([b"abc", b"b"], True),
        ([b"abc", b"ab"], True),
        ([b"bc", b"abc"], True),
        ([b"abc", b"de", b"f"], False),
        ([b"<|%d|>" % i for i in range(5000)], False),
        ([b"<|%d|>" % i for i in range(5000)] + [b">."], True),
    ],
)
def test_special_tokens_that_may_share_bytes(specials, expected):
    assert word_counts.may_overlap(specials) == expected


# Pieces that do not fit in a tile


@pytest.mark.parametrize("piece", ["a", " ", "\n", "中", "\u3000", "A", "1", "!", "'"])
@pytest.mark.parametrize("pattern", ["gpt2", "o200k"])
def test_a_piece_longer_than_a_tile_is_counted_by_the_host(emulated, host_parts, pattern, piece):
    text = "x y" + piece * 5000 + "z's " + piece * (TILE + 257) + "\n" + piece * (TILE // len(piece.encode()))
    assert_same([emulated], [text, "a", text[100:], piece * 3000], pattern=pattern)
    assert host_parts or piece in "1'"  # which are short pieces for some patterns


def test_a_piece_longer_than_many_chunks(emulated):
    assert_same([emulated], ["a b c" + "a" * 50_000 + " b", "a b"], pattern="whitespace")


def test_small_parts_for_the_host_do_not_keep_their_chunks_in_memory(emulated):
    text = "x" * 3000 + " y z" * 5000 + "w" * 3000
    with emulated.active():
        counter = make_counter([emulated], chunk_bytes=1 << 16, slot_bytes=1 << 12, ring_bytes=1 << 14)
        for _ in range(4):
            add_texts([text])(counter)
        counter._gpus[0].counts.settle()
        parts = [part for _, part in counter._gpus[0].counts._parts]
        counter._close_chunk()
    assert parts
    assert sum((part if part.base is None else part.base).nbytes for part in parts) <= 2 * sum(map(len, parts))


def test_parts_for_the_host_are_counted_before_they_fill_the_memory(emulated, monkeypatch):
    monkeypatch.setattr(word_counts, "MAX_PART_BYTES", 4000)
    assert_same([emulated], ["a b" + "a" * size + " c a" for size in range(2500, 4000, 300)])


@pytest.mark.parametrize("specials", [[], [END], [b"aaa"]])
def test_a_text_too_long_for_a_chunk_of_the_gpu_is_counted_by_the_host(drivers, monkeypatch, specials):
    monkeypatch.setattr(chunks, "MAX_CHUNK_BYTES", 2500)
    texts = [STORY, b"ab " + b"a" * 10_000 + END, STORY, b"", b"b" * 2400 + b" " + b"c" * 2600, "1" * 9000, STORY]
    assert_same(drivers, texts, specials=specials)


def test_a_text_too_long_for_the_memory_of_the_gpu_is_counted_by_the_host(emulated):
    text = STORY + "a" * 200_000 + STORY
    with emulated.active():
        counter = make_counter([emulated])
        emulated.memory = emulated.used + (1 << 16)
        add_texts([text])(counter)
        emulated.memory = 1 << 30
        found = counter.finish()[0].to_host()
    assert found.counts.tolist() == count_on_cpu(add_texts([text]))[0].counts.tolist()


# Files


def test_files_of_all_sizes(drivers, tmp_path):
    contents = [STORY.encode(), b"", b"no newline", b"\n", random_text(5, 900), b"", random_story(6, 400).encode()]
    contents += [b"", b"w" * 299, b"v" * 300, b"u" * 301, b"t" * 1000]
    paths = [tmp_path / str(i) for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    assert_same(drivers, lambda counter: counter.add_files(paths), specials=[b"\n"])
    assert_same(drivers, lambda counter: counter.add_files([*map(str, paths[::-1]), os.fsencode(paths[0])]))


def test_many_tiny_files(driver, tmp_path):
    paths = [tmp_path / str(i) for i in range(500)]
    for i, path in enumerate(paths):
        path.write_bytes(b"%d's " % (i % 70) if i % 5 else b"")
    assert_same([driver], lambda counter: counter.add_files(paths))
    assert_same([driver], lambda counter: counter.add_files(paths), chunk_bytes=9, slot_bytes=3, ring_bytes=20)


def test_calls_continue_the_chunk_and_the_positions_of_the_calls_before(drivers, tmp_path):
    path = tmp_path / "text"
    path.write_text(STORY)

    def add(counter):
        for i in range(4):
            counter.add_spans(*Spans.of([STORY[i * 10 :], b"", "the"]))
            counter.add_files([path] * i)
            counter.add_spans(*Spans.of([]))

    assert_same(drivers, add, specials=[b"mill"])


def test_spans_in_any_order_that_share_bytes(driver):
    text, begins, ends = STORY.encode(), np.array([50, 0, 10, 10, 0]), np.array([90, 20, 10, 30, 300])
    assert_same([driver], lambda counter: counter.add_spans(text, begins, ends))
    assert_same([driver], lambda counter: counter.add_spans(np.frombuffer(text, np.uint8), begins, ends))


def test_files_that_cannot_be_read_are_the_errors_of_the_cpu(driver, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "text").write_text(STORY)
    for name in ("missing", ".", "fifo", "loop", "text/text"):
        errors = []
        for count in (count_on_cpu, lambda add: count_on_gpu([driver], add)):
            with pytest.raises(OSError, match=r"\[Errno") as caught:
                count(lambda counter, name=name: counter.add_files([tmp_path / "text", tmp_path / name]))
            errors.append((caught.type, caught.value.errno, str(caught.value)))
        assert errors[0] == errors[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission(driver, tmp_path):
    path = tmp_path / "text"
    path.write_text(STORY)
    path.chmod(0)
    with pytest.raises(PermissionError) as caught:
        count_on_gpu([driver], lambda counter: counter.add_files([path]))
    assert caught.value.errno == errno.EACCES


@pytest.mark.parametrize("change", ["truncated", "grown", "replaced", "removed"])
def test_a_file_that_changes_while_it_is_read(driver, tmp_path, change):
    path = tmp_path / "text"
    path.write_text(STORY * 20)

    def change_file(*_):
        if change == "truncated":
            os.truncate(path, 5000)
        elif change == "grown":
            with path.open("a") as file:
                file.write("more")
        else:
            path.unlink()
            if change == "replaced":
                path.write_text(STORY * 20)

    with pytest.raises(FileNotFoundError if change == "removed" else InputChangedError, match="text"):
        count_on_gpu([driver], lambda counter: counter.add_files([path]), on_progress=change_file)


# After the count


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_merges_of_counted_words_that_never_leave_the_gpu(drivers, tie_break):
    texts = [STORY, random_story(8, 300), random_text(3, 200)]
    expected = _core.learn_merges(count_on_cpu(add_texts(texts))[0], num_merges=300, tie_break=tie_break)
    with all_active(drivers):
        counter = make_counter(drivers)
        add_texts(texts)(counter)
        table, _ = counter.finish()
        del counter
        learned = learn_merges_on(drivers[0], table.words, MergeTask(300, tie_break), to_host=table.to_host)
    assert learned.merges.tolist() == expected.merges.tolist()
    assert learned.counts.tolist() == expected.counts.tolist()


def test_words_on_the_gpu_are_those_of_the_table(driver):
    with driver.active():
        counter = make_counter([driver], min_frequency=2)
        add_texts([STORY, "to go and to go " + "a" * 40 + " " + "a" * 40])(counter)
        table, figures = counter.finish()
        words = table.words
        bytes_, offsets, counts = (driver.to_host(part) for part in (words.bytes, words.offsets, words.counts))
        host = table.to_host()
    found = {
        bytes_[begin:end].tobytes(): count
        for begin, end, count in zip(offsets.tolist(), offsets[1:].tolist(), counts.tolist(), strict=False)
    }
    places = zip(host.offsets.tolist(), host.offsets[1:].tolist(), host.counts.tolist(), strict=False)
    assert found == {host.data[begin:end].tobytes(): count for begin, end, count in places}
    assert words.num_words == len(table) == len(host) < figures["num_words"]
    assert words.num_bytes == len(bytes_) and words.longest == 41
    assert words.num_pieces >= sum(found.values())
