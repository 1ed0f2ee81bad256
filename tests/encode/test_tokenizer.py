"""Tokenizer: encode, decode, specials, the file, equality, hashing and pickling."""

from __future__ import annotations

import copy
import json
import os
import pickle
import threading

import numpy as np
import pytest

import gristmill as gm
from gristmill import Tokenizer, reference
from gristmill.merge.merges import check_merges
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from texts import INVALID, STORY, random_story, random_text

SPECIALS = ["<s>", "<s>>", "é", "</s>"]
PATTERNS = [*NATIVE_PATTERNS, r"\p{L}+|\p{N}"]


@pytest.fixture(scope="module", params=PATTERNS)
def tok(request):
    texts = [STORY, random_story(1, 500)]
    return gm.train_tokenizer(
        texts, vocab_size=500, pattern=request.param, special_tokens=SPECIALS, num_threads=1, progress=None
    )


@pytest.fixture
def small():
    return Tokenizer([(b"a", b"b"), (b"ab", b"c")], special_tokens=["<s>", "<s>>"])


# Vocabulary


def test_bytes_come_first_then_merges_in_order_then_specials(small):
    assert small.vocab_size == 260
    assert small.merges == [(b"a", b"b"), (b"ab", b"c")]
    assert small.special_tokens == {"<s>": 258, "<s>>": 259}
    assert small.vocab == {i: bytes([i]) for i in range(256)} | {256: b"ab", 257: b"abc", 258: b"<s>", 259: b"<s>>"}
    assert (small.pattern, small.tie_break, small.profile) == ("gpt2", "greatest-bytes", None)
    assert repr(small) == "<Tokenizer: vocab_size 260, pattern 'gpt2', special_tokens ['<s>', '<s>>']>"


def test_what_a_property_returns_can_be_changed_without_changing_the_tokenizer(small):
    before = pickle.dumps(small)
    small.merges.clear()
    small.vocab.clear()
    small.special_tokens["x"] = 1
    with pytest.raises(ValueError, match="read-only"):
        small.merge_ids[0, 0] = 1
    with pytest.raises(AttributeError):
        small.vocab_size = 3
    assert pickle.dumps(small) == before
    assert small.encode("abc") == [257]


def test_the_array_it_is_built_from_can_be_changed_without_changing_it():
    array = np.array([[97, 98]], np.uint32)
    tok = Tokenizer(array)
    array[0, 0] = 99
    assert tok.merges == [(b"a", b"b")]


def test_token_bytes_and_id_of_are_inverse_for_every_token(tok):
    for id, token in tok.vocab.items():
        assert tok.token_bytes(id) == token
        if token.decode("utf-8", "replace") not in SPECIALS:
            assert tok.id_of(token) == id
    for special, id in tok.special_tokens.items():
        assert tok.id_of(special) == id or special.encode() in list(tok.vocab.values())[: -len(SPECIALS)]


def test_an_unknown_token_or_id_is_a_key_error_with_a_plain_message(small):
    with pytest.raises(KeyError) as caught:
        small.id_of(b"abcd")
    assert str(caught.value).startswith("b'abcd' is not a token")
    for id in (260, -1, 2**32, 2**32 + 97, 2**70):
        with pytest.raises(gm.UnknownTokenError, match=f"no token has id {id}. The ids of this tokenizer are 0 to 259"):
            small.decode_bytes([97, id])
        with pytest.raises(KeyError):
            small.token_bytes(id)


# Encode and decode


def test_ids_are_those_of_the_reference(tok):
    for text in (STORY, random_story(2, 300), random_text(3, 2000), "", "a", " ", b"\xff", *INVALID):
        expected = reference.encode(text, tok.merges, pattern=tok.pattern)
        assert tok.encode(text, disallowed_special=()) == expected


def test_decode_gives_back_every_text(tok):
    for text in (STORY, random_text(4, 2000, invalid=False).decode(), "", "\0", "a\r\nb", "\ufeffx", "😀", "<s"):
        ids = tok.encode(text, disallowed_special=())
        assert tok.decode(ids) == text
    for data in (random_text(5, 2000), bytes(range(256)), b"\xff" * 100, b"\xe2\x82"):
        assert tok.decode_bytes(tok.encode(data, disallowed_special=())) == data


def test_ids_are_plain_ints_and_every_sequence_of_ints_is_decoded(small):
    ids = small.encode("abcx")
    assert ids == [257, 120]
    assert all(type(id) is int for id in ids)
    for given in (ids, tuple(ids), iter(ids), np.array(ids, np.uint16), np.array(ids, np.int64)):
        assert small.decode(given) == "abcx"
    assert small.decode([]) == ""
    assert small.decode(np.empty(0, np.uint32)) == ""


@pytest.mark.parametrize("ids", [["a"], [1.0], [[1, 2]], [None], [True]])
def test_ids_that_are_not_integers_are_a_type_error(small, ids):
    with pytest.raises(TypeError):
        small.decode(ids)


def test_a_part_of_a_character_is_replaced_or_kept_as_bytes(small):
    ids = small.encode("é")[:1]
    assert small.decode(ids) == "\ufffd"
    assert small.decode_bytes(ids) == b"\xc3"
    assert small.decode(ids, errors="ignore") == ""
    with pytest.raises(UnicodeDecodeError):
        small.decode(ids, errors="strict")


def test_a_text_with_lone_surrogates_is_refused_with_its_position(small):
    with pytest.raises(gm.TextError, match=r"'\\udc80' at character 2"):
        small.encode("ab\udc80")
    with pytest.raises(TypeError, match="Pass str or bytes"):
        small.encode(["ab"])


def test_long_runs_of_one_character_take_no_quadratic_time():
    tok = gm.train_tokenizer(gm.Words.from_counts({"a" * 4000: 2, " " * 100: 1}, special_tokens=()), vocab_size=270)
    for unit in ("a", " ", "\n", "'s", "中"):
        text = unit * 300_000
        assert tok.decode(tok.encode(text)) == text


def test_eight_threads_share_one_tokenizer(tok):
    texts = [random_text(seed, 500) for seed in range(8)]
    alone = [tok.encode(text, disallowed_special=()) for text in texts]
    fresh = pickle.loads(pickle.dumps(tok))  # so that the threads also race to build the encoder
    together = [None] * 8

    def work(i):
        for _ in range(5):
            together[i] = fresh.encode(texts[i], disallowed_special=())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


# Special tokens


def test_a_disallowed_special_is_an_error_that_says_where_and_what_to_do(tok):
    with pytest.raises(gm.SpecialTokenError, match=r"'</s>' at byte 3, which is not allowed\. Pass allowed_special="):
        tok.encode("ab\n</s>", disallowed_special="all")
    with pytest.raises(ValueError, match=r"disallowed_special=\(\)"):
        tok.encode(b"</s>", disallowed_special={"</s>"})


def test_an_allowed_special_is_its_id_and_a_boundary(tok):
    specials = tok.special_tokens
    ids = tok.encode("x  </s>y<s>", allowed_special="all")
    assert ids == [*tok.encode("x  "), specials["</s>"], *tok.encode("y"), specials["<s>"]]
    assert tok.encode("x  </s>y", allowed_special={"</s>"}) == ids[: len(ids) - 1]
    assert ids == reference.encode("x  </s>y<s>", tok.merges, pattern=tok.pattern, special_tokens=SPECIALS)


def test_the_longest_of_overlapping_specials_wins(tok):
    specials = tok.special_tokens
    assert tok.encode("<s>><s><s", allowed_special="all")[:2] == [specials["<s>>"], specials["<s>"]]


def test_a_disallowed_special_is_an_error_also_inside_one_that_is_allowed(tok):
    with pytest.raises(gm.SpecialTokenError, match="'<s>' at byte 0"):
        tok.encode("<s>>", allowed_special={"<s>>"}, disallowed_special="all")
    with pytest.raises(gm.SpecialTokenError, match="'<s>>'"):
        tok.encode("<s>>", allowed_special={"<s>"}, disallowed_special="all")
    assert tok.encode("<s>>", allowed_special={"<s>>"}, disallowed_special=()) == [tok.special_tokens["<s>>"]]
    with pytest.raises(gm.SpecialTokenError, match="'</s>' at byte 4"):
        tok.encode("<s>a</s>", allowed_special={"<s>", "</s>"}, disallowed_special={"</s>"})


def test_what_is_neither_allowed_nor_disallowed_is_plain_text(tok):
    plain = tok.encode("a</s>")
    assert plain == tok.encode("a</s>", disallowed_special=()) == tok.encode_ordinary("a</s>")
    assert plain == tok.encode("a</s>", disallowed_special={"<s>"})
    assert tok.special_tokens["</s>"] not in plain
    assert tok.decode(plain) == "a</s>"
    mixed = tok.encode("<s>a</s>", allowed_special={"<s>"}, disallowed_special=())
    assert mixed == [tok.special_tokens["<s>"], *plain]


def test_an_unknown_special_in_the_rules_is_an_error(tok):
    with pytest.raises(gm.SpecialTokenError, match="'<t>' is not a special token of this tokenizer"):
        tok.encode("a", allowed_special={"<t>"})
    with pytest.raises(gm.SpecialTokenError, match="Pass a set"):
        tok.encode("a", allowed_special="<s>")


def test_a_special_token_with_the_bytes_of_a_plain_one_has_its_own_id():
    tok = Tokenizer([(b"a", b"b")], special_tokens=["ab", "a"])
    assert tok.encode("ab", disallowed_special=()) == [256]
    assert tok.encode("aba", allowed_special="all") == [257, 258]
    assert tok.id_of("ab") == 256
    assert tok.decode([256, 257, 258]) == "ababa"


def test_a_tokenizer_without_specials_takes_every_text():
    assert Tokenizer([]).encode("<s>") == list(b"<s>")


# Truncated tokenizers and equality


def test_truncated_keeps_the_first_merges_and_moves_the_specials(tok):
    shorter = tok.truncated(300)
    assert shorter.merges == tok.merges[: 300 - 256 - len(SPECIALS)]
    assert list(shorter.special_tokens.values()) == [296, 297, 298, 299]
    assert tok.truncated(tok.vocab_size) == tok
    assert tok.truncated(260).merges == []


def test_truncated_refuses_invalid_sizes(tok):
    with pytest.raises(gm.VocabSizeError, match=r"256 byte tokens and 4 special tokens already need 260"):
        tok.truncated(259)
    with pytest.raises(gm.VocabSizeError, match=r"larger than the vocab_size of this tokenizer, 500.*extended\(\)"):
        tok.truncated(501)


def test_equal_tokenizers_are_equal_and_have_the_same_hash(tok):
    same = Tokenizer(tok.merges, pattern=tok.pattern, special_tokens=SPECIALS)
    assert same == tok
    assert hash(same) == hash(tok)
    assert tok != tok.truncated(300)
    assert tok != Tokenizer(tok.merges, pattern=tok.pattern, special_tokens=SPECIALS[::-1])
    assert tok != Tokenizer(tok.merges, pattern=tok.pattern, special_tokens=SPECIALS, tie_break="first-seen")
    assert tok != "a tokenizer"


def test_the_fingerprint_is_that_of_all_that_affects_ids_and_of_nothing_else(tok):
    same = Tokenizer(tok.merges, pattern=tok.pattern, special_tokens=SPECIALS, tie_break="first-seen")
    assert same.fingerprint == tok.fingerprint
    others = [
        tok.truncated(300),
        Tokenizer(tok.merges, pattern=tok.pattern, special_tokens=SPECIALS[::-1]),
        Tokenizer(tok.merges, pattern=tok.pattern, special_tokens=SPECIALS[:3]),
        Tokenizer(tok.merges, pattern=r"\p{N}", special_tokens=SPECIALS),
        Tokenizer([]),
    ]
    assert len({tok.fingerprint, *(other.fingerprint for other in others)}) == 6


def test_the_fingerprint_never_changes():
    tok = Tokenizer([(b"h", b"e"), (b"t", b"he")], special_tokens=["<é>"])
    assert tok.fingerprint == "1875d93563f7ca76e56e33001d4671df5984bb80969190810ff77fd9c50bd44f"


def test_pickle_and_copy_give_an_equal_tokenizer_that_works(tok):
    tok.encode("used before")
    for twin in (pickle.loads(pickle.dumps(tok)), copy.copy(tok), copy.deepcopy(tok)):
        assert twin == tok
        assert twin.encode(STORY, disallowed_special=()) == tok.encode(STORY, disallowed_special=())


# Merges that training cannot give


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ([[97, 256]], "merge 0 joins ids 97 and 256, but creates id 256"),
        ([[97, 98], [257, 97]], "merge 1 joins ids 257 and 97"),
        ([[97, 2**32 - 1]], "merge 0"),
        ([[97, -1]], "merge 0"),
        ([[97, 98], [97, 99], [97, 98]], "merge 2 joins ids 97 and 98, as an earlier merge does"),
        ([[97, 98, 99]], "array of ids"),
        ([97, 98], "array of ids"),
        ([[1.5, 2.0]], "array of ids"),
    ],
)
def test_invalid_merge_ids_are_refused(merges, message):
    with pytest.raises(gm.TokenizerFormatError, match=message):
        check_merges(merges)
    with pytest.raises(gm.TokenizerFormatError):
        Tokenizer(np.array(merges))


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ([(b"a", b"bc")], "merge 0 joins b'bc', which is neither a single byte nor the result of an earlier merge"),
        (
            [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc")],
            "merge 3 creates b'abc', which already has id 258",
        ),
        ([(b"a", b"")], "joins b''"),
    ],
)
def test_invalid_merges_of_bytes_are_refused(merges, message):
    with pytest.raises(gm.TokenizerFormatError, match=message):
        Tokenizer(merges)


def test_merges_that_no_encoder_can_use_are_a_format_error():
    with pytest.raises(gm.TokenizerFormatError, match=r"the tokens up to merge 26 have more than 268,435,456 bytes"):
        Tokenizer(np.array([[97, 97]] + [[256 + i, 256 + i] for i in range(60)]))


# The file


def test_write_read_write_gives_the_same_bytes(tok, tmp_path):
    tok.save(tmp_path / "a.json")
    loaded = Tokenizer.load(tmp_path / "a.json")
    loaded.save(str(tmp_path / "b.json"))
    assert loaded == tok
    assert loaded.encode(STORY, disallowed_special=()) == tok.encode(STORY, disallowed_special=())
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_the_file_is_the_documented_json(tmp_path):
    Tokenizer([(b"h", b"e"), (b"t", b"he")], special_tokens=["<é>"], tie_break="first-seen").save(tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert len(content.pop("sha256")) == 64
    assert content == {
        "format": "gristmill-tokenizer",
        "version": 1,
        "pattern": {"name": "gpt2", "regex": NATIVE_PATTERNS["gpt2"]},
        "tie_break": "first-seen",
        "special_tokens": [["<é>", 258]],
        "merges": [[104, 101], [116, 256]],
    }
    assert "\n[104, 101],\n[116, 256]\n" in (tmp_path / "t.json").read_text(encoding="utf-8")


def test_a_tokenizer_without_merges_can_be_saved(tmp_path):
    Tokenizer([]).save(tmp_path / "t.json")
    assert Tokenizer.load(tmp_path / "t.json") == Tokenizer([])


GOOD = {
    "format": "gristmill-tokenizer",
    "version": 1,
    "pattern": {"name": "gpt2", "regex": NATIVE_PATTERNS["gpt2"]},
    "tie_break": "greatest-bytes",
    "special_tokens": [["<s>", 258]],
    "merges": [[97, 98], [256, 99]],
}
DEEP = "[" * 100_000 + "]" * 100_000
DOUBLING = [[97, 97]] + [[256 + i, 256 + i] for i in range(60)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not a Gristmill tokenizer"),
        ({"version": 2}, "version 2"),
        ({"version": True}, ""),
        ({"extra": 1}, "keys"),
        ({"merges": None}, "NoneType instead of a list"),
        ({"merges": [[97]]}, r"merge 0 is \[97\]"),
        ({"merges": [[97, 98], "ab"]}, "merge 1"),
        ({"merges": [[97, 98.0]]}, "merge 0"),
        ({"merges": [[97, True]]}, "merge 0"),
        ({"merges": [[97, 98], [2**32 - 1, 97]]}, "merge 1 joins ids 4294967295"),
        ({"merges": [[97, 98], [10**30, 97]]}, ""),
        ({"merges": [[97, 98], [257, 99]]}, "merge 1 joins ids 257"),
        ({"merges": [[97, 98], [97, 98]]}, "merge 1"),
        ({"merges": [[97, 98], [98, 99], [256, 99], [97, 257]], "special_tokens": []}, "ids 258 and 259 have the same"),
        ({"merges": DOUBLING, "special_tokens": []}, "more than 268,435,456 bytes"),
        ({"special_tokens": [["<s>", 257]]}, "'<s>' has id 257; it must be 258"),
        ({"special_tokens": [["<s>", 258], ["<s>", 259]]}, "twice"),
        ({"special_tokens": [["", 258]]}, "empty"),
        ({"special_tokens": [["<s>"]]}, "not a list of"),
        ({"special_tokens": [[7, 258]]}, "is of type int"),
        ({"special_tokens": [["\ud800", 258]]}, "lone surrogate"),
        ({"tie_break": "coin"}, "tie_break='coin'"),
        ({"pattern": "gpt2"}, "the pattern is 'gpt2'"),
        ({"pattern": {"name": "gpt2", "regex": "other"}}, "the file defines pattern 'gpt2' as 'other'"),
        ({"pattern": {"name": "future", "regex": "a"}}, "'future' is not valid"),
        ({"pattern": {"name": None, "regex": "("}}, "not a valid regular expression"),
        ({"pattern": {"name": None, "regex": 7}}, ""),
    ],
)
def test_a_malformed_file_is_a_format_error_that_names_file_and_fault(tmp_path, change, message):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(GOOD | change), encoding="utf-8")
    with pytest.raises(gm.TokenizerFormatError, match=rf"bad\.json: .*{message}"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"not json",
        b"{}",
        b"[]",
        b"7",
        b"\xff\xfe",
        DEEP.encode(),
        json.dumps(GOOD)[:-1].encode(),
        json.dumps(GOOD).replace('"version": 1', '"version": 1, "version": 1').encode(),
        ('{"merges": ' + DEEP + "}").encode(),
        b"\xef\xbb\xbf" + json.dumps(GOOD).encode(),
    ],
    ids=range(12),
)
def test_a_file_that_is_not_a_tokenizer_file_is_a_format_error(tmp_path, content):
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(gm.TokenizerFormatError, match=r"bad\.json: "):
        Tokenizer.load(tmp_path / "bad.json")


def test_a_file_cut_at_any_byte_is_refused(tmp_path):
    data = json.dumps(GOOD).encode()
    for size in range(len(data)):
        (tmp_path / "cut.json").write_bytes(data[:size])
        with pytest.raises(gm.TokenizerFormatError):
            Tokenizer.load(tmp_path / "cut.json")


def test_a_gigabyte_of_json_is_refused_unread(tmp_path):
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(1 << 30)  # a sparse file, which takes no disk space
    with pytest.raises(gm.TokenizerFormatError, match="1,073,741,824 bytes"):
        Tokenizer.load(tmp_path / "huge.json")


def test_an_unknown_format_is_an_option_error(tmp_path):
    with pytest.raises(gm.OptionError, match="format='pickle' is not valid"):
        Tokenizer.load(tmp_path / "x", format="pickle")


def test_a_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        Tokenizer.load(tmp_path / "missing.json")


def test_no_flipped_bit_of_a_file_goes_unnoticed(tmp_path):
    path = tmp_path / "t.json"
    Tokenizer([(b"h", b"e"), (b"t", b"he")], special_tokens=["<é>"]).save(path)
    data = path.read_bytes()
    for position in range(len(data)):
        for bit in range(8):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])
            with pytest.raises(gm.TokenizerFormatError):
                Tokenizer.load(path)


def test_a_file_edited_on_purpose_loads_without_its_checksum(tmp_path):
    path = tmp_path / "t.json"
    Tokenizer([(b"h", b"e")]).save(path)
    edited = path.read_text().replace("[104, 101]", "[104, 102]")
    path.write_text(edited)
    with pytest.raises(gm.TokenizerFormatError, match="checksum"):
        Tokenizer.load(path)
    path.write_text(edited.partition(',\n"sha256"')[0] + "}")
    assert Tokenizer.load(path).merges == [(b"h", b"f")]


def test_a_long_run_of_one_letter_gives_a_tokenizer_that_can_be_loaded_again(tmp_path):
    with pytest.warns(gm.EarlyStopWarning):
        tok = gm.train_tokenizer([b"a" * 5_000_000], vocab_size=400, progress=None, special_tokens=())
    assert max(map(len, tok.vocab.values())) <= 1 << 20
    tok.save(tmp_path / "t.json")
    assert Tokenizer.load(tmp_path / "t.json") == tok


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(gm.TokenizerFormatError, match="is a pipe or device"):
        Tokenizer.load(tmp_path / "pipe")


# Arguments that would otherwise be misunderstood


def test_ids_given_with_special_tokens_are_refused_rather_than_ignored():
    with pytest.raises(gm.SpecialTokenError, match=r"is a mapping, .* Pass a list\. .*Tokenizer\.load"):
        Tokenizer([], special_tokens={"<s>": 5})
    with pytest.raises(gm.SpecialTokenError, match="is a mapping"):
        gm.train_tokenizer([STORY], vocab_size=300, special_tokens={"<s>": 5}, progress=None)


@pytest.mark.parametrize("merges", [None, 3, "ab", b"ab"])
def test_merges_that_are_no_list_are_a_type_error(merges):
    with pytest.raises(TypeError, match=rf"merges is of type {type(merges).__name__}\. Pass pairs of bytes"):
        Tokenizer(merges)


@pytest.mark.parametrize("merge", ["ab", (b"a",), 5, (97, 98), ("a", "b"), (b"a", [])])
def test_a_merge_that_is_no_pair_of_bytes_is_named(merge):
    with pytest.raises(gm.TokenizerFormatError, match=r"merge 1 .*Pass pairs of bytes, or an \(n, 2\) array of ids"):
        Tokenizer([(b"a", b"b"), merge])


def test_a_path_without_the_name_of_a_file_is_refused(small, tmp_path):
    with pytest.raises(IsADirectoryError, match="Pass the name of a file"):
        small.save(f"{tmp_path}/name/")
    for format in ("gristmill", "minbpe", "gpt2"):
        with pytest.raises(gm.OptionError, match="path='' is empty"):
            small.export("", format=format)
    with pytest.raises(IsADirectoryError):
        small.export(".", format="minbpe")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("special", ["none", "<s>"])
def test_a_str_is_offered_as_a_set_only_if_it_is_a_special(small, special):
    advice = r"\{'<s>'\}, or 'all'" if special == "<s>" else r"a set of special tokens, \(\) for none, or 'all'"
    with pytest.raises(gm.SpecialTokenError, match=advice):
        small.encode("a", allowed_special=special)


@pytest.mark.parametrize("text", ["a\udc80", "\ud83d!"])
def test_the_advice_for_a_lone_surrogate_works(small, text):
    with pytest.raises(gm.TextError, match=r"text\.encode\('utf-8', 'surrogatepass'\)"):
        small.encode(text)
    assert small.encode(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("dropout", ["0.5", b"0.5"])
def test_dropout_as_text_is_refused(small, dropout):
    with pytest.raises(gm.OptionError, match=r"dropout=.* Pass a number from 0 to 1"):
        small.encode("abc", dropout=dropout)
