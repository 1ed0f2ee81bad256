"""stream_decoder: complete characters only, and in total the result of decode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as gm
from texts import INVALID, STORY, byte_texts

TOK = gm.Tokenizer([(b"\xc3", b"\xa9"), (b"a", b"\xe4"), (b"\xb8", b"\xad")], special_tokens=["<é>"])


@given(byte_texts | st.lists(st.sampled_from(INVALID)).map(b"".join))
def test_all_pushes_and_the_finish_are_the_decoded_text(data):
    ids = TOK.encode(data, allowed_special="all")
    for errors in ("replace", "ignore", "backslashreplace", "surrogateescape"):
        decoder = TOK.stream_decoder(errors=errors)
        one_by_one = [decoder.push(id) for id in ids]
        assert "".join([*one_by_one, decoder.finish()]) == TOK.decode(ids, errors=errors)
        assert decoder.push(ids) + decoder.finish() == TOK.decode(ids, errors=errors)


def test_a_character_never_comes_in_halves():
    decoder = TOK.stream_decoder()
    ids = TOK.encode("né中😀")
    assert [decoder.push(id) for id in ids] == ["n", "é", "", "中", "", "", "", "😀"]
    assert decoder.finish() == ""


def test_ids_of_every_kind_one_or_many():
    decoder = TOK.stream_decoder()
    for one in (97, np.uint16(97), np.int64(97), np.array(97)):
        assert decoder.push(one) == "a"
    for many in ([97, 98], (97, 98), iter([97, 98]), np.array([97, 98], np.uint16)):
        assert decoder.push(many) == "ab"
    assert decoder.push([]) == ""
    assert decoder.push(TOK.special_tokens["<é>"]) == "<é>"


def test_a_torch_tensor_is_taken():
    torch = pytest.importorskip("torch")
    decoder = TOK.stream_decoder()
    assert decoder.push(torch.tensor([97, 98])) == "ab"
    assert decoder.push(torch.tensor(97)) == "a"
    assert TOK.decode(torch.tensor([97, 98])) == "ab"


def test_finish_treats_the_rest_according_to_errors_and_resets_the_decoder():
    decoder = TOK.stream_decoder()
    assert decoder.push(0xC3) == ""
    assert decoder.finish() == "\ufffd"
    assert decoder.push(TOK.encode("é")) == "é"
    strict = TOK.stream_decoder(errors="strict")
    strict.push(0xC3)
    with pytest.raises(UnicodeDecodeError):
        strict.finish()
    with pytest.raises(UnicodeDecodeError):
        strict.push([0x41, 0xFF])


def test_an_error_leaves_the_decoder_as_it_was():
    decoder = TOK.stream_decoder()
    decoder.push(0xE4)
    for bad, error in ((10**6, KeyError), (-1, KeyError), (True, TypeError), ("a", TypeError), ([1.5], TypeError)):
        with pytest.raises(error):
            decoder.push(bad)
    assert decoder.push([0xB8, 0xAD]) == "中"


@pytest.mark.parametrize("errors", ["nonsense", "xmlcharrefreplace", None, 7, ""])
def test_an_unknown_errors_is_an_option_error(errors):
    for call in (TOK.stream_decoder, lambda errors: TOK.decode([97], errors=errors)):
        with pytest.raises(gm.OptionError, match="errors="):
            call(errors=errors)


def test_a_long_story_in_small_steps():
    tok = gm.train_tokenizer([STORY], vocab_size=300, progress=None, special_tokens=())
    decoder = tok.stream_decoder()
    assert "".join(decoder.push(id) for id in tok.encode(STORY)) + decoder.finish() == STORY
