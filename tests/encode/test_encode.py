"""The ways to encode: arrays, batches, chunks, files, offsets, counts and dropout all agree with `encode`."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as gm
from gristmill import Tokenizer, _core
from gristmill.encode import chunks
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from texts import INVALID, STORY, byte_texts, random_story, random_text

SPECIALS = ["<|end|>", "<s>", "<s>>", "é>", "a b"]
CUSTOM = r"\p{L}+|\p{N}"
PATTERNS = [*NATIVE_PATTERNS, CUSTOM]
ALL = {"allowed_special": "all"}
PLAIN = {"allowed_special": (), "disallowed_special": ()}
STRICT = {"disallowed_special": "all"}

# Everything that must not be cut: characters of 2 to 4 bytes, \r\n, specials and their prefixes, contractions,
# runs of spaces and of newlines, invalid bytes, numbers of more than three digits.
TORN = (
    "Zoë's I'LL don't\r\n\r\n   <|end|>  中文😀 1234567  <s>> <|en <s> x \n\n\té>é a b\r\n'".encode()
    + b"\xff\xe4\xb8 \xc3 <|end|> "
)


@pytest.fixture(scope="module", params=PATTERNS)
def tok(request):
    return gm.train_tokenizer(
        [STORY, random_story(1, 500), TORN],
        vocab_size=500,
        pattern=request.param,
        special_tokens=SPECIALS,
        progress=None,
    )


@pytest.fixture(scope="module")
def small():
    return Tokenizer([(b"a", b"b"), (b"ab", b"c")], special_tokens=["<s>", "<s>>"])


# All methods return the ids of encode


@pytest.mark.parametrize("data", [b"", b"a", TORN, STORY.encode(), *INVALID, bytes(range(256)), random_text(3, 3000)])
def test_every_way_gives_the_ids_of_encode(tok, data, tmp_path):
    (tmp_path / "text").write_bytes(data)
    for rule in (ALL, PLAIN, {"allowed_special": {"<s>"}, "disallowed_special": ()}):
        ids = tok.encode(data, **rule)
        assert tok.decode_bytes(ids) == data
        for num_threads in (None, 1, 3):
            assert tok.encode_array(data, num_threads=num_threads, **rule).tolist() == ids
            assert tok.encode_file(tmp_path / "text", num_threads=num_threads, **rule).tolist() == ids
            assert tok.count_tokens(data, num_threads=num_threads, **rule) == len(ids)
            batch = tok.encode_batch([data, b"", data], num_threads=num_threads, **rule)
            assert batch.tolist() == [ids, [], ids]
        assert tok.encode_batch([data], as_lists=True, **rule) == [ids]
        assert list(tok.encode_iterable([data], **rule)) == ids
        assert tok.encode_with_offsets(data, **rule).ids.tolist() == ids
    assert tok.encode_ordinary(data) == tok.encode(data, **PLAIN)


def test_str_and_its_utf8_have_the_same_ids(tok):
    for rule in (ALL, PLAIN):
        data = STORY.encode()
        assert tok.encode(STORY, **rule) == tok.encode(data, **rule)
        assert tok.encode_array(STORY, **rule).tolist() == tok.encode_array(data, **rule).tolist()
        assert tok.encode_batch([STORY, data], **rule).tolist() == [tok.encode(data, **rule)] * 2


def test_a_large_text_on_many_threads_has_the_ids_of_one_thread(tok, tmp_path):
    if tok.pattern == CUSTOM:
        pytest.skip("cut by the regex module, on one thread")
    data = (random_story(7, 60_000) + "<|end|>").encode() * 2 + b" " * 50_000 + random_text(8, 50_000) + b"a" * 200_000
    (tmp_path / "text").write_bytes(data)
    ids = tok.encode(data, **ALL)
    for num_threads in (1, 2, 7):
        assert np.array_equal(tok.encode_array(data, num_threads=num_threads, **ALL), ids)
        assert np.array_equal(tok.encode_file(tmp_path / "text", num_threads=num_threads, **ALL), ids)
        assert tok.count_tokens(data, num_threads=num_threads, **ALL) == len(ids)
    texts = [data[i : i + 999] for i in range(0, len(data), 999)]
    rows = [tok.encode(text, **PLAIN) for text in texts]
    for num_threads in (1, 2, 7):
        assert tok.encode_batch(texts, num_threads=num_threads, **PLAIN).tolist() == rows


@pytest.mark.parametrize("kernel", _core.supported_kernels())
def test_every_kernel_gives_the_same_ids(tok, kernel, tmp_path):
    tok.save(tmp_path / "t.json")
    (tmp_path / "text").write_bytes(TORN + random_text(5, 3000))
    script = (
        "import sys, gristmill as gm;"
        "print(gm.Tokenizer.load(sys.argv[1]).encode_file(sys.argv[2], allowed_special='all').tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, tmp_path / "t.json", tmp_path / "text"],
        env=os.environ | {"GRISTMILL_KERNEL": kernel},
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.strip() == str(tok.encode(TORN + random_text(5, 3000), **ALL))


# encode_iterable


@pytest.fixture(params=[1, 5, chunks.BLOCK_BYTES])
def block_bytes(request, monkeypatch):
    monkeypatch.setattr(chunks, "BLOCK_BYTES", request.param)


@pytest.mark.parametrize("rule", [ALL, PLAIN, {"allowed_special": {"<s>>", "a b"}, "disallowed_special": ()}])
def test_a_text_cut_in_two_at_every_byte_has_the_ids_of_the_whole(tok, rule, block_bytes):
    whole = tok.encode(TORN, **rule)
    for i in range(len(TORN) + 1):
        assert list(tok.encode_iterable([TORN[:i], TORN[i:]], **rule)) == whole, i


def test_chunks_of_any_size_have_the_ids_of_the_whole(tok, block_bytes):
    data = TORN + random_text(4, 300) + TORN
    for rule in (ALL, PLAIN):
        whole = tok.encode(data, **rule)
        for size in (1, 2, 3, 7, 100, 10_000):
            pieces = [data[i : i + size] for i in range(0, len(data), size)]
            assert list(tok.encode_iterable(pieces, **rule)) == whole, size


SMALL_TOKENIZERS = [
    Tokenizer([(b"a", b"a"), (b" ", b"a")], pattern=pattern, special_tokens=SPECIALS) for pattern in PATTERNS
]


@given(byte_texts, st.lists(st.integers(0, 200), max_size=6))
def test_random_chunks_have_the_ids_of_the_whole(data, ends):
    cuts = [0, *sorted(min(end, len(data)) for end in ends), len(data)]
    pieces = [data[i:j] for i, j in pairwise(cuts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "BLOCK_BYTES", 1)
        for tok in SMALL_TOKENIZERS:
            assert list(tok.encode_iterable(pieces, **ALL)) == tok.encode(data, **ALL)


def test_str_chunks_may_be_mixed_with_bytes_and_a_text_is_one_chunk(tok):
    text = TORN[: TORN.index(b"\xff")].decode()
    whole = tok.encode(text, **ALL)
    assert list(tok.encode_iterable(list(text), **ALL)) == whole
    assert list(tok.encode_iterable(text, **ALL)) == whole
    assert list(tok.encode_iterable(text.encode(), **ALL)) == whole
    mixed = [part if i % 2 else part.encode() for i, part in enumerate(text)]
    assert list(tok.encode_iterable(mixed, **ALL)) == whole
    assert list(tok.encode_iterable([])) == list(tok.encode_iterable(["", b""])) == []


def test_chunks_are_read_when_their_ids_are_needed_and_no_thread_is_started(small):
    read = []

    def source():
        for i in range(100):
            read.append(i)
            yield "abc " * 1000

    before = threading.active_count()
    ids = small.encode_iterable(source())
    assert read == []
    assert next(ids) == 257
    assert len(read) < 20
    assert threading.active_count() == before
    assert sum(1 for _ in ids) == 200_000 - 1


def test_an_open_file_is_encoded_in_bounded_memory(small, tmp_path):
    line = "abc ab zz <s>\n"
    (tmp_path / "text").write_text(line * 50_000)
    with (tmp_path / "text").open(encoding="utf-8", newline="") as file:
        ids = small.encode_iterable(file, **ALL)
        next(ids)
        tracemalloc.start()
        num = 1 + sum(1 for _ in ids)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert num == 50_000 * small.count_tokens(line, **ALL)
    assert peak < 1 << 20


@pytest.mark.parametrize("unit", ["a", " ", "'s", "中"])
def test_ten_megabytes_without_a_cut_take_no_quadratic_time(small, unit):
    text = unit * (10_000_000 // len(unit.encode()))
    parts = (text[i : i + 4096] for i in range(0, len(text), 4096))
    assert sum(1 for _ in small.encode_iterable(parts)) == small.count_tokens(text)


def test_a_forged_special_in_chunks_is_an_error_with_its_place_in_the_whole(tok, block_bytes):
    text = "x y z " * 20 + "<|end|>"
    for size in (1, 4, 1000):
        with pytest.raises(gm.SpecialTokenError, match=r"'<\|end\|>' at byte 120"):
            list(tok.encode_iterable([text[i : i + size] for i in range(0, len(text), size)], **STRICT))


def test_a_forged_special_that_overlaps_an_allowed_one_is_found_in_every_chunking(block_bytes):
    for pattern in PATTERNS:
        tok = Tokenizer([], pattern=pattern, special_tokens=["<a>", ">b<"])
        text = "x y <a>b< z"
        with pytest.raises(gm.SpecialTokenError, match="'>b<' at byte 6"):
            tok.encode(text, allowed_special={"<a>"}, **STRICT)
        for i in range(len(text)):
            with pytest.raises(gm.SpecialTokenError, match="'>b<' at byte 6"):
                list(tok.encode_iterable([text[:i], text[i:]], allowed_special={"<a>"}, **STRICT))


def test_the_rule_of_chunks_is_checked_before_the_first_is_read(small):
    with pytest.raises(gm.SpecialTokenError, match="'<t>' is not a special token"):
        small.encode_iterable([], allowed_special={"<t>"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "chunks is of type int. Pass an iterable"),
        (None, "chunks is of type NoneType"),
        (["a", 7], "chunk 1 is a int. Pass str or bytes"),
        ([["a"]], "chunk 0 is a list"),
        ([bytearray(b"a")], "chunk 0 is a bytearray"),
    ],
)
def test_chunks_that_are_not_texts_are_refused(tok, given, message):
    with pytest.raises(TypeError, match=message):
        list(tok.encode_iterable(given))


def test_a_chunk_with_lone_surrogates_is_named(tok):
    for chunk in ("ab\ud800", "x" * 50_000 + "ab\ud800"):
        with pytest.raises(gm.TextError, match=rf"chunk 1 cannot be encoded as UTF-8.*at character {len(chunk) - 1} "):
            list(tok.encode_iterable(["a", chunk]))


# encode_batch


def test_a_batch_may_be_any_iterable(small):
    texts = ["abc", b"ab", "", "x"]
    rows = [[257], [256], [], [120]]
    for batch in (texts, tuple(texts), iter(texts), (text for text in texts), np.array(["abc"], object)):
        assert small.encode_batch(batch).tolist() == rows[: 1 if isinstance(batch, np.ndarray) else None]
    empty = small.encode_batch([])
    assert (len(empty), empty.ids.dtype, empty.offsets.tolist()) == (0, np.uint16, [0])
    assert small.encode_batch([], as_lists=True) == []


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("abc", r"texts is one str. Pass a list: \[text\]"),
        (b"abc", "texts is one bytes"),
        (7, "texts is of type int"),
        (None, "texts is of type NoneType"),
        (["a", 7], r"texts\[1\] is a int. Pass str or bytes"),
        ([["a"]], r"texts\[0\] is a list"),
        ([None], r"texts\[0\] is a NoneType"),
    ],
)
def test_an_object_that_is_not_a_batch_is_refused(tok, texts, message):
    for dropout in (0.0, 0.5):
        with pytest.raises(TypeError, match=message):
            tok.encode_batch(texts, dropout=dropout)


def test_what_is_wrong_with_a_text_of_a_batch_names_it(tok):
    for dropout in (0.0, 0.5):
        with pytest.raises(gm.TextError, match=r"texts\[2\] cannot be encoded as UTF-8"):
            tok.encode_batch(["a", "b", "\udc80"], dropout=dropout)
        with pytest.raises(gm.SpecialTokenError, match=r"texts\[1\] contains the special token '<s>' at byte 2"):
            tok.encode_batch(["a", "x <s> "], dropout=dropout, **STRICT)


def test_rows_are_truncated_at_the_asked_side(tok):
    texts = [STORY, "a", ""]
    ids = tok.encode(STORY)
    assert tok.encode_batch(texts, max_tokens=5).tolist() == [ids[:5], tok.encode("a"), []]
    assert tok.encode_batch(texts, max_tokens=5, truncate="left").tolist()[0] == ids[-5:]
    assert tok.encode_batch(texts, max_tokens=5, as_lists=True)[0] == ids[:5]
    with pytest.raises(gm.OptionError, match="truncate='middle'"):
        tok.encode_batch(texts, truncate="middle")
    with pytest.raises(gm.OptionError, match="max_tokens=0 is too small"):
        tok.encode_batch(texts, max_tokens=0)


def test_decode_batch_is_the_inverse(tok):
    texts = [STORY, "", "né中", "<s>>"]
    rows = tok.encode_batch(texts, **ALL)
    for batch in (rows, rows.tolist(), iter(rows), [row.astype(np.int64) for row in rows]):
        assert tok.decode_batch(batch) == texts
    assert tok.decode_batch(rows, skip_special=True) == [*texts[:3], ""]
    assert tok.decode_batch([[0xC3]], errors="ignore") == [""]
    with pytest.raises(gm.UnknownTokenError, match=r"batch\[1\]\[2\]: no token has id 10000"):
        tok.decode_batch([[1], [1, 2, 10_000]])
    for bad in ([1, 2], 7, "ab", None):
        with pytest.raises(TypeError):
            tok.decode_batch(bad)


def test_decode_can_leave_specials_out(tok):
    ids = tok.encode("<s>a<|end|>b", **ALL)
    assert tok.decode(ids) == "<s>a<|end|>b"
    for sequence in (ids, tuple(ids), np.array(ids), iter(ids)):
        assert tok.decode(sequence, skip_special=True) == "ab"
    with pytest.raises(gm.UnknownTokenError):
        tok.decode([10_000], skip_special=True)


# dtype


def test_ids_have_the_smallest_dtype_that_holds_every_id_or_the_one_asked_for(small):
    assert small.encode_array("abc").dtype == np.uint16
    assert small.encode_batch(["abc"]).ids.dtype == np.uint16
    for dtype in (np.uint16, "int16", np.int64, "<u4", ">u2", np.uint32):
        array = small.encode_array("abc", dtype=dtype)
        assert array.dtype == np.dtype(dtype)
        assert array.tolist() == [257]
        assert small.encode_batch(["abc"], dtype=dtype).ids.dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float32", "bool", "U4", "nonsense", 7, object])
def test_a_dtype_that_cannot_represent_the_ids_is_an_option_error(small, dtype, tmp_path):
    (tmp_path / "text").write_text("abc")
    with pytest.raises(gm.OptionError, match="dtype="):
        small.encode_array("abc", dtype=dtype)
    with pytest.raises(gm.OptionError, match="dtype="):
        small.encode_batch(["abc"], dtype=dtype)
    with pytest.raises(gm.OptionError, match="dtype="):
        small.encode_file(tmp_path / "text", dtype=dtype)


def test_a_vocabulary_beyond_65536_has_32_bits():
    letters = range(256)
    merges = np.array([(left, right) for left in letters for right in letters], np.uint32)
    tok = Tokenizer(merges[: 65536 - 256])
    assert tok.vocab_size == 65536
    assert tok.encode_array("ab").dtype == np.uint16
    larger = Tokenizer(merges, special_tokens=["<s>"])
    assert larger.encode_array("ab<s>", **ALL).tolist() == [256 + 97 * 256 + 98, 65536 + 256]
    assert larger.encode_array("ab").dtype == np.uint32
    with pytest.raises(gm.OptionError, match=r"uint16 cannot represent all ids up to 65792\. Pass uint32"):
        larger.encode_array("ab", dtype="uint16")


# Offsets


def reference_offsets(tok, data, ids):
    characters = [c.encode("utf-8", "surrogateescape") for c in data.decode("utf-8", "surrogateescape")]
    character_of = [i for i, c in enumerate(characters) for _ in c]
    byte_spans, char_spans, end = [], [], 0
    for id in ids:
        start, end = end, end + len(tok.token_bytes(id))
        byte_spans.append([start, end])
        char_spans.append([character_of[start], character_of[end - 1] + 1])
    return byte_spans, char_spans


def test_offsets_are_those_of_the_tokens_bytes_one_after_another(tok):
    for data in (b"", b"abc", TORN, STORY.encode(), random_text(9, 500), *INVALID):
        found = tok.encode_with_offsets(data, **ALL)
        byte_spans, char_spans = reference_offsets(tok, data, found.ids.tolist())
        assert found.byte_spans.tolist() == byte_spans
        assert found.char_spans.tolist() == char_spans
        assert found.byte_spans.shape == found.char_spans.shape == (len(found.ids), 2)


def test_character_spans_index_the_str(tok):
    found = tok.encode_with_offsets(STORY)
    for id, (begin, end) in zip(found.ids.tolist(), found.char_spans.tolist(), strict=True):
        assert tok.decode([id], errors="ignore") in STORY[begin:end]


def test_tokens_inside_one_character_share_its_span():
    ids, byte_spans, char_spans = Tokenizer([(b"\x9f", b"\x98")]).encode_with_offsets("a😀b")
    assert ids.tolist() == [97, 0xF0, 256, 0x80, 98]
    assert byte_spans.tolist() == [[0, 1], [1, 2], [2, 4], [4, 5], [5, 6]]
    assert char_spans.tolist() == [[0, 1], [1, 2], [1, 2], [1, 2], [2, 3]]


# Dropout


def test_dropout_keeps_the_text_and_its_specials(tok):
    data = TORN + STORY.encode()
    plain = tok.encode(data, **ALL)
    for dropout in (0.1, 0.5, 0.99):
        ids = tok.encode(data, dropout=dropout, seed=1, **ALL)
        assert tok.decode_bytes(ids) == data
        assert len(ids) > len(plain)
        specials = set(tok.special_tokens.values())
        assert [id for id in ids if id in specials] == [id for id in plain if id in specials]
    assert tok.encode(data, dropout=0, seed=1, **ALL) == plain
    alphabet = set(range(256)) | set(tok.special_tokens.values())
    assert set(tok.encode(data, dropout=1, **ALL)) <= alphabet


def test_dropout_is_decided_by_the_seed(tok):
    first = tok.encode(STORY, dropout=0.3, seed=7)
    assert tok.encode(STORY, dropout=0.3, seed=7) == first
    assert tok.encode(STORY, dropout=0.3, seed=8) != first
    assert tok.encode(STORY, dropout=0.3) != tok.encode(STORY, dropout=0.3)
    tok.encode(STORY, dropout=0.3, seed=2**64 - 1)


def test_dropout_of_a_text_in_a_batch_does_not_depend_on_its_neighbours(tok):
    rows = tok.encode_batch([STORY, "abc", STORY], dropout=0.3, seed=7)
    assert tok.decode_batch(rows) == [STORY, "abc", STORY]
    assert rows[0].tolist() != rows[2].tolist()
    others = tok.encode_batch(["", "the mill", STORY, STORY], dropout=0.3, seed=7, num_threads=3)
    assert others[2].tolist() == rows[2].tolist()
    assert rows.ids.dtype == np.uint16


@pytest.mark.parametrize("dropout", [-0.1, 1.1, float("nan"), "x", [1]])
def test_a_dropout_that_is_not_a_probability_is_refused(tok, dropout):
    for call in (tok.encode, lambda text, **options: tok.encode_batch([text], **options)):
        with pytest.raises(gm.OptionError, match="dropout="):
            call("a", dropout=dropout)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "x", True])
def test_an_invalid_seed_is_refused(tok, seed):
    with pytest.raises(gm.OptionError, match="seed="):
        tok.encode("a", dropout=0.5, seed=seed)


# Hostile arguments


@pytest.mark.parametrize("method", ["encode", "encode_ordinary", "encode_array", "count_tokens", "encode_with_offsets"])
def test_an_object_that_is_not_a_text_is_a_type_error_and_a_lone_surrogate_a_text_error(tok, method):
    call = getattr(tok, method)
    for bad in (None, 7, ["a"], bytearray(b"a"), memoryview(b"a"), object()):
        with pytest.raises(TypeError, match=r"the text is a .*Pass str or bytes"):
            call(bad)
    with pytest.raises(gm.TextError, match=r"'\\ud800' at character 1 "):
        call("a\ud800")


@pytest.mark.parametrize("method", ["encode", "encode_array", "count_tokens", "encode_with_offsets", "encode_iterable"])
@pytest.mark.parametrize("specials", ["<s>", 7, None, [["<s>"]], {"<t>"}, [7], b"<s>"])
def test_unknown_specials_are_a_special_token_error(tok, method, specials):
    for argument in ("allowed_special", "disallowed_special"):
        with pytest.raises(gm.SpecialTokenError, match=argument):
            getattr(tok, method)("a", **{argument: specials})


@pytest.mark.parametrize("num_threads", [0, -1, 1.5, "2", 10**9, True])
def test_an_invalid_number_of_threads_is_refused(tok, num_threads, tmp_path):
    (tmp_path / "text").write_text("abc")
    for call in (tok.encode_array, tok.count_tokens, lambda text, **o: tok.encode_batch([text], **o)):
        with pytest.raises(gm.OptionError, match="num_threads="):
            call("a", num_threads=num_threads)
    with pytest.raises(gm.OptionError, match="num_threads="):
        tok.encode_file(tmp_path / "text", num_threads=num_threads)


def test_thousands_of_specials_and_of_rules_stay_fast(small):
    specials = [f"<|reserved_{i}|>" for i in range(5000)]
    tok = Tokenizer([(b"a", b"b")], special_tokens=specials)
    text = "ab <|reserved_77|> <|reserved_4999|><|reserved_5000|>" * 2000
    ids = tok.encode(text, **ALL)
    assert ids[:4] == [256, 32, 257 + 77, 32]
    assert tok.decode(ids) == text
    with pytest.raises(gm.SpecialTokenError):
        tok.encode(text, **STRICT)
    for special in specials[:100]:  # more rules than the cache keeps
        assert tok.encode(special, allowed_special={special}) == [tok.special_tokens[special]]


# Files


def test_an_empty_file_and_raw_bytes(tok, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert tok.encode_file(tmp_path / "empty").tolist() == []
    raw = bytes(range(256)) + b"\xc0\xaf\0\r\n\r\xef\xbb\xbf\xed\xa0\x80\r"
    (tmp_path / "raw").write_bytes(b"\xef\xbb\xbf" + raw)
    assert tok.decode_bytes(tok.encode_file(str(tmp_path / "raw"))) == b"\xef\xbb\xbf" + raw


def test_a_file_that_cannot_be_read(tok, tmp_path):
    with pytest.raises(FileNotFoundError):
        tok.encode_file(tmp_path / "missing")
    with pytest.raises(OSError):
        tok.encode_file(tmp_path)
    for bad in (7, None, ["x"]):
        with pytest.raises(TypeError):
            tok.encode_file(bad)


def test_a_forged_special_in_a_file_names_the_file(tok, tmp_path):
    (tmp_path / "{0}.txt").write_text("ab <s>")
    with pytest.raises(gm.SpecialTokenError, match=r"\{0\}\.txt contains the special token '<s>' at byte 3"):
        tok.encode_file(tmp_path / "{0}.txt", allowed_special=(), disallowed_special="all")


def test_a_file_reports_progress(tok, tmp_path):
    (tmp_path / "text").write_text(random_story(1, 1000))
    reports = []
    tok.encode_file(tmp_path / "text", progress=reports.append)
    assert reports
    assert (reports[-1].stage, reports[-1].done, reports[-1].unit) == ("encode", reports[-1].total, "bytes")


# Threads and processes

TEXTS = [random_text(seed, 300) for seed in range(8)]


def rows_of(tok):
    return tok.encode_batch(TEXTS, num_threads=2, **PLAIN).tolist()


def rows_in_child(tok, connection):
    connection.send(rows_of(tok))


def test_eight_threads_share_one_tokenizer_and_all_of_its_methods(tok):
    fresh = pickle.loads(pickle.dumps(tok))  # so that the threads also race to build the encoder
    expected = [tok.encode(text, **PLAIN) for text in TEXTS]
    wrong = []

    def work(number):
        for round in range(2):
            for i in range(len(TEXTS)):
                text, ids = TEXTS[(i + number) % len(TEXTS)], expected[(i + number) % len(TEXTS)]
                same = (
                    fresh.encode(text, **PLAIN) == ids
                    and fresh.encode_array(text, **PLAIN).tolist() == ids
                    and fresh.count_tokens(text, num_threads=2, **PLAIN) == len(ids)
                    and list(fresh.encode_iterable([text], **PLAIN)) == ids
                    and fresh.decode_bytes(ids) == text
                )
                if not same or (round == 0 and fresh.encode_batch(TEXTS, **PLAIN).tolist() != expected):
                    wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_tokenizer_works_in_a_child_after_threads_were_used(method):
    tok = gm.train_tokenizer([STORY], vocab_size=300, num_threads=2, progress=None, special_tokens=())
    expected = rows_of(tok)  # two threads have run before the fork
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=rows_in_child, args=(tok, theirs))
    child.start()
    assert ours.poll(60), "the child does not answer"
    assert ours.recv() == expected
    child.join(20)
    assert child.exitcode == 0
    assert rows_of(tok) == expected
