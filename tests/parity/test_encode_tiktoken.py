"""Parity with tiktoken for published vocabularies: the same ids for real, multilingual, random and hostile text."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest

import published
from gristmill import _core, reference
from texts import CHARACTERS, CONTRACTIONS, RUNS, STORY, random_story, random_text

pytest.importorskip("tiktoken")

LANGUAGES = """\
Быстрая коричневая лиса прыгает через ленивую собаку, а собака спит. Ёжик в тумане!
ゆく河の流れは絶えずして、しかももとの水にあらず。淀みに浮かぶうたかたは、かつ消えかつ結びて。
天地玄黃宇宙洪荒日月盈昃辰宿列張寒來暑往秋收冬藏閏餘成歲律呂調陽雲騰致雨露結為霜
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ
يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם.
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.
Z̸̢̛a̴͝l̵̓g̶̈́o̷͠ e\u0301e\u0301 👩‍👩‍👧‍👦🏳️‍🌈🇩🇪🇫🇷 1️⃣ ½⅓ Ⅻ ①② x² ﷽ ʼn ŉ ǆ ǅ Ǆ
"""
CODE = """\
def encode(self, text: str, *, allowed: set[str] = frozenset()) -> list[int]:\r
\tif not text:\r
\t\treturn []  # nothing to do\r
\r
    for (size_t i = 0; i < n; ++i) { out[i] = static_cast<uint8_t>(x[i] >> 3 & 0x7fu); }   /* eol */
#include <vector>\n\n\n\n        return std::move(result);\n}}\n
SELECT * FROM "t" WHERE a<>'b' AND c != 1e-10; -- 'quoted''twice' //////// ======== ________
{"key": [1,2,3.14159,{"nested":null}], "base64": "R3Jpc3RtaWxsIGdyaW5kcyB3aGF0IHlvdSBicmluZyE="}
"""
TEXTS = [
    *("", " ", "\n", "a", "\n\n ", "a  \n  ", "a  \n  b", " \t\r\n", "don't'll'S", "1234567 12 ½½½½½", "\0\0\x7f"),
    *(STORY, LANGUAGES, CODE, random_story(5, 1000)),
    *(random_text(seed, 500, invalid=False).decode() for seed in range(8)),
    *(unit * 500 for unit in ["a", " ", "\n", "^", "'s", "漢", "ก", "😀", "e\u0301", "ab", "\r\n", "0", "=", "/\n"]),
]


@pytest.fixture(scope="module", params=published.NAMES)
def both(request):
    return published.tokenizer(request.param), published.encoding(request.param)


def random_tokens(encoding, seed, num_tokens):
    """Return random tokens of the vocabulary, joined: text that merges in unusual ways."""
    source = random.Random(seed)
    ids = source.choices(range(encoding.max_token_value - 1000), k=num_tokens)
    return b"".join(token for token in map(encoding.decode_single_token_bytes, ids)).decode("utf-8", "ignore")


def test_ids_are_those_of_tiktoken(both):
    ours, theirs = both
    texts = [*TEXTS, *(random_tokens(theirs, seed, 2000) for seed in range(4))]
    for text in texts:
        expected = theirs.encode_ordinary(text)
        assert ours.encode(text) == expected
        assert ours.encode_array(text).tolist() == expected
        assert ours.decode(expected) == theirs.decode(expected) == text
    batch = ours.encode_batch(texts, num_threads=2)
    assert batch.tolist() == theirs.encode_ordinary_batch(texts, num_threads=1)


def test_a_character_of_every_kind_beside_every_other(both):
    ours, theirs = both
    units = [*CHARACTERS, *CONTRACTIONS, *RUNS]
    text = "".join(f"{left}{right}." for left in units for right in units)
    assert ours.encode(text) == theirs.encode_ordinary(text)


def test_every_code_point_has_the_ids_of_tiktoken(both):
    # Only characters that Python knows: other Unicode tables may not have the newest letters.
    ours, theirs = both
    codes = [code for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")]
    text = "".join(f"{chr(code)}a{chr(code)}{chr(code)} {chr(code)}\n" for code in codes)
    assert ours.encode_array(text, num_threads=2).tolist() == theirs.encode_ordinary(text)


def test_runs_of_every_length(both):
    ours, theirs = both
    for unit in ["a", " ", "é", "中", "^"]:
        for size in [*range(1, 140), 255, 256, 257, 300]:
            text = unit * size
            assert ours.encode(text) == theirs.encode_ordinary(text)


def test_megabytes_on_many_threads(both):
    ours, theirs = both
    source = random.Random(7)
    parts = [STORY, LANGUAGES, CODE, *(random_story(seed, 3000) for seed in range(12))]
    text = "".join(source.choices(parts, k=80))
    expected = np.array(theirs.encode_ordinary(text))
    for num_threads in (1, 2, 7):
        assert np.array_equal(ours.encode_array(text, num_threads=num_threads), expected)
    assert ours.count_tokens(text, num_threads=2) == len(expected)


def test_every_token_has_the_bytes_it_has_in_tiktoken(both):
    ours, theirs = both
    assert ours.vocab_size == theirs.n_vocab
    known = {theirs.encode_single_token(token): token for token in theirs.token_byte_values()}
    known |= {theirs.encode_single_token(special): special.encode() for special in theirs.special_tokens_set}
    assert ours.vocab == known


def test_every_token_alone_has_the_ids_it_has_in_tiktoken(both):
    ours, theirs = both
    texts = sorted({token.decode("utf-8", "ignore") for token in theirs.token_byte_values()})[::5]
    assert ours.encode_batch(texts).tolist() == theirs.encode_ordinary_batch(texts, num_threads=1)


def test_specials_follow_the_rules_of_tiktoken(both):
    ours, theirs = both
    specials = sorted(theirs.special_tokens_set)
    source = random.Random(3)
    parts = [*specials, "<|endof", "<|", "|>", " ", "text|>", "a", "\n", "<|endoftext|", "<<|endoftext|>>"]
    subsets = [(), "all", {specials[0]}, set(specials[:2])]
    for _ in range(60):
        text = "".join(source.choices(parts, k=source.randrange(12)))
        rules = {"allowed_special": source.choice(subsets), "disallowed_special": source.choice(subsets)}
        if rules["allowed_special"] == ():
            rules["allowed_special"] = set()
        try:
            expected = theirs.encode(text, **rules)
        except ValueError:
            with pytest.raises(ValueError, match="not allowed"):
                ours.encode(text, **rules)
        else:
            assert ours.encode(text, **rules) == expected, (text, rules)


@pytest.mark.parametrize("name", published.NAMES)
def test_bytes_that_are_no_utf8_are_encoded_piece_by_piece_as_the_ranks_say(name):
    # tiktoken does not accept such text, but its rule applies.
    ours, table = published.tokenizer(name), published.ranks(name)
    source = random.Random(11)
    texts = [random_text(seed, 400) for seed in range(5)]
    texts += [source.randbytes(2000), bytes(range(256)) * 4, b"\xff" * 300, b"\xc3" * 99 + b"a" * 99]
    texts += [LANGUAGES.encode()[i:] for i in range(1, 5)]
    for text in texts:
        expected = [id for piece in reference.pretokenize(text, name) for id in published.encode_by_ranks(piece, table)]
        assert ours.encode(text) == expected
        assert ours.decode_bytes(expected) == text


SCRIPT = """\
from parity.test_encode_tiktoken import digest_of_all
print(digest_of_all())
"""


def digest_of_all() -> str:
    """Return one digest of the ids of many texts, valid and invalid, for cl100k and o200k."""
    digest = hashlib.sha256()
    for name in ("cl100k", "o200k"):
        tok = published.tokenizer(name)
        for text in [*(text.encode() for text in TEXTS), *(random_text(seed, 3000) for seed in range(3))]:
            digest.update(tok.encode_array(text, dtype=np.uint32).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("kernel", _core.supported_kernels())
def test_every_kernel_gives_the_same_ids(kernel):
    path = os.pathsep.join([str(Path(published.__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "GRISTMILL_KERNEL": kernel, "PYTHONPATH": path},
    )
    assert done.stdout.strip() == digest_of_all(), done.stderr
