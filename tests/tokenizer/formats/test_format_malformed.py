"""Malformed files of every format: a Gristmill error that names the file, before much memory is used."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import random
import subprocess
import sys

import pytest
from format_cases import trained, whole_pieces

import gristmill as gm
from gristmill.tokenizer.formats import FORMATS, content, gristmill_json, huggingface, read_tokenizer
from gristmill.tokenizer.formats.byte_alphabet import CHARACTER_OF

DEEP = "[" * 100_000 + "]" * 100_000


def check(path, data, message="", **given):
    path.write_bytes(data)
    with pytest.raises(gm.TokenizerFormatError, match=rf"(?s){path.name}: .*{message}"):
        read_tokenizer(path, **given)


# Gristmill JSON, version 2

V2 = json.loads(gristmill_json.dump(whole_pieces()))
V2.pop("sha256")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "has version 3; this Gristmill reads versions 1 and 2"),
        ({"byte_ids": list(range(255))}, "256 ids"),
        ({"byte_ids": [*range(255), 300.0]}, "256 ids"),
        ({"byte_ids": [*range(255), True]}, "256 ids"),
        ({"byte_ids": [*range(255), 0]}, "occurs twice"),
        ({"byte_ids": [*range(255), 2**32 - 1]}, "ids must be from 0"),
        ({"byte_ids": [*range(255), -1]}, "ids must be from 0"),
        ({"byte_ids": [*range(255), 10**400]}, "ids must be from 0"),
        ({"whole_pieces": 1}, "whole_pieces"),
        ({"other_tokens": {}}, "other_tokens"),
        ({"other_tokens": [[260, "!"]]}, ""),
        ({"other_tokens": [[260, ""]]}, "at least one byte|empty token"),
        ({"other_tokens": [[260, "eHl6"], [260, "eHl6"]]}, "id 260 occurs twice"),
        ({"other_tokens": [[260, "eHl6"], [261, "eHl6"]]}, "ids 260 and 261 have the same bytes"),
        ({"other_tokens": [[True, "eHl6"]]}, "instead of"),
        ({"other_tokens": [[97, "eHl6"]]}, "occurs twice"),
        ({"other_tokens": [[300, "eHl6"]]}, "special token .* has id 300"),
        ({"other_tokens": [[2**32 - 1, "eHl6"]]}, "ids must be from 0"),
        ({"merges": [[97, 98]]}, r"merge 0 is \[97, 98\]"),
        ({"merges": [[97, 98, True]]}, "merge 0"),
        ({"merges": [[97, 98, 2**32 - 1]]}, "an id outside 0 to"),
        ({"merges": [[97, 98, -1]]}, "an id outside 0 to"),
        ({"merges": [[97, 98, 10**30]]}, "an id outside 0 to"),
        ({"merges": [[97, 98, 256], [97, 98, 256]]}, "as an earlier merge does"),
        ({"merges": [[97, 98, 256], [97, 99, 256]]}, "merge 1 creates id 256 as b'ac', but id 256 is b'ab'"),
        ({"merges": [[97, 98, 99]]}, "merge 0 creates id 99"),
        ({"merges": [[97, 98, 256], [97, 300, 257]]}, "merge 1 joins ids 97 and 300"),
        ({"merges": [[97, 257, 256], [97, 256, 257]]}, "merge 0 joins ids 97 and 257"),  # a cycle
        ({"merges": [[97, 256, 256]]}, "merge 0 joins ids 97 and 256"),
        ({"merges": [[97, 97, 400], *[[400 + i, 400 + i, 401 + i] for i in range(60)]]}, "more than 268,435,456 bytes"),
        ({"special_tokens": [["<s>", 97]]}, "'<s>' has id 97"),
        ({"special_tokens": [["<s>", 300], ["<t>", 300]]}, "'<t>'.* 300"),
        ({"special_tokens": [["<s>", 2**32 - 1]]}, "ids must be from 0"),
        ({"special_tokens": [["<s>", True]]}, "ids must be from 0"),
        ({"special_tokens": [["<s>", None]]}, "ids must be from 0"),
    ],
)
def test_gristmill_json(change, message, tmp_path):
    check(tmp_path / "bad.json", json.dumps(V2 | change).encode(), message)


# Hugging Face

HF = json.loads(huggingface.dump(trained().parts))


def with_model(**change):
    return HF | {"model": HF["model"] | change}


def with_vocab(**change):
    return with_model(vocab=HF["model"]["vocab"] | change)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (HF | {"model": None}, '"model" is missing'),
        (HF | {"added_tokens": {}}, "added_tokens"),
        (HF | {"added_tokens": [{"id": 448}]}, "NoneType"),
        (HF | {"added_tokens": [{"id": 448, "content": ""}]}, "empty"),
        (HF | {"added_tokens": [{"id": 448, "content": "\ud800"}]}, "lone surrogate"),
        (HF | {"added_tokens": [{"id": 2**32 - 1, "content": "<s>"}]}, "ids must be from 0"),
        (HF | {"added_tokens": [{"id": True, "content": "<s>"}]}, "ids must be from 0"),
        (HF | {"added_tokens": [{"id": 97, "content": "<s>"}]}, "'<s>' has id 97, which another token has"),
        (HF | {"added_tokens": [{"id": 448, "content": "<s>"}] * 2}, "twice"),
        (with_model(vocab=[]), "vocab"),
        (with_model(vocab={}), "merge|bytes have no token"),
        (with_model(merges={}), "merges"),
        (with_model(merges=[["a"]]), "merge 0"),
        (with_model(merges=["a b c"]), "merge 0"),
        (with_model(merges=["ab"]), "merge 0"),
        (with_model(merges=[["a", 7]]), "merge 0"),
        (with_model(merges=[["a", ""]]), "merge 0"),
        (with_model(merges=[["a", "nowhere"]]), "'nowhere', which is not in the vocabulary"),
        (with_model(merges=[["q", "q"]]), "b'qq' is not in the vocabulary"),
        (with_model(merges=[*HF["model"]["merges"], HF["model"]["merges"][0]]), "as an earlier merge does"),
        (with_vocab(qq=97), "both have id 97"),
        (with_vocab(qq=2**32 - 1), "ids must be from 0"),
        (with_vocab(qq=-1), "ids must be from 0"),
        (with_vocab(qq=True), "ids must be from 0"),
        (with_vocab(qq=400.0), "ids must be from 0"),
        (with_vocab(qq=[]), "ids must be from 0"),
        (with_vocab(**{"": 500}), "at least one byte|empty token"),
        (with_model(vocab={text: id for text, id in HF["model"]["vocab"].items() if text != "Ā"}), "0x00"),
    ],
)
def test_hugging_face(file, message, tmp_path):
    check(tmp_path / "bad.json", json.dumps(file).encode(), message)


def test_a_token_twice_in_a_json_object(tmp_path):
    text = json.dumps(HF).replace('"vocab": {', '"vocab": {"Ā": 7, ', 1)
    check(tmp_path / "bad.json", text.encode(), "the key 'Ā' twice")


# GPT-2

GPT2 = {character: byte for byte, character in enumerate(CHARACTER_OF)} | {"ab": 256}


@pytest.mark.parametrize(
    ("vocab", "merges", "message"),
    [
        (GPT2, b"#version: 0.2\na b c\n", "merges.txt: line 2 is 'a b c'"),
        (GPT2, b"#version: 0.2\nab\n", "line 2"),
        (GPT2, b"#version: 0.2\na \n", "line 2"),
        (GPT2, b"#version: 0.2\n\na b\n", "line 2"),
        (GPT2, b"#version: 0.2\na b\na b\n", "as an earlier merge does"),
        (GPT2, b"#version: 0.2\na c\n", "b'ac' is not in the vocabulary"),
        (GPT2, b"#version: 0.2\na \xff\n", "merges.txt: is not UTF-8"),
        (GPT2, b"#version: 0.2\na\xc2\x85 b\n", "not in the byte alphabet"),
        (GPT2, b"", "merges.txt: is empty"),
        (GPT2 | {"cd": 97}, b"a b\n", "both have id 97"),
        (GPT2 | {"cd": 2**32 - 1}, b"a b\n", "ids must be from 0"),
        (GPT2 | {"cd": None}, b"a b\n", "ids must be from 0"),
        (GPT2 | {"<|x|>": [1]}, b"a b\n", "ids must be from 0"),
        ({"ab": 256}, b"a b\n", "bytes have no token"),
        ([], b"a b\n", "not a JSON object"),
    ],
)
def test_gpt2(vocab, merges, message, tmp_path):
    (tmp_path / "merges.txt").write_bytes(merges)
    check(tmp_path / "vocab.json", json.dumps(vocab).encode(), message)


def test_gpt2_without_its_merges_is_file_not_found(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps(GPT2))
    with pytest.raises(FileNotFoundError, match=r"merges\.txt"):
        read_tokenizer(tmp_path)


def test_a_vocabulary_under_another_name_says_how_to_name_it(tmp_path):
    check(tmp_path / "tokens.json", json.dumps({"a": 1}).encode(), "Name the two files NAME-vocab.json")


# tiktoken

RANKS = b"".join(b"%s %d\n" % (base64.b64encode(bytes([byte])), byte) for byte in range(256))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (RANKS.partition(b"\n")[2], "0x00"),
        (RANKS + b"YWI=\n", "line 257"),
        (RANKS + b"YWI= x\n", "line 257"),
        (RANKS + b"YWI= -1\n", "line 257"),
        (RANKS + b"YWI= 25 6\n", "line 257"),
        (RANKS + b"Y!I= 256\n", "line 257"),
        (RANKS + b"YWI 256\n", "line 257"),
        (RANKS + b" 256\n", "line 257"),
        (RANKS + b"YWI= 97\n", "both have id 97"),
        (RANKS + b"YQ== 256\n", "line 257 has the token b'a', as an earlier"),
        (RANKS + b"YWI= 4294967295\n", "ids must be from 0"),
        (RANKS + b"YWI= " + b"9" * 5000 + b"\n", "line 257"),
        (gzip.compress(RANKS, mtime=0)[:-9], "damaged gzip"),
        (gzip.compress(RANKS, mtime=0)[:20] + b"\xff" * 20, "damaged gzip"),
        (b"\x1f\x8b", "damaged gzip"),
    ],
)
def test_tiktoken(data, message, tmp_path):
    check(tmp_path / "bad.tiktoken", data, message, pattern="gpt2")


@pytest.mark.parametrize("specials", [{"<s>": 97}, {"<s>": -1}, {"<s>": 2**32 - 1}, {"<s>": True}, {"<s>": "x"}])
def test_special_tokens_given_with_impossible_ids(specials, tmp_path):
    check(tmp_path / "good.tiktoken", RANKS, "'<s>' has id", pattern="gpt2", special_tokens=specials)


# minbpe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("minbpe v2\n\n0\n", "not a minbpe model, or truncated"),
        ("minbpe v1", "not a minbpe model, or truncated"),
        ("minbpe v1\n", "truncated: line 3, the number of special tokens, is missing"),
        ("minbpe v1\n\n0", "not a minbpe model, or truncated"),
        ("minbpe v1\n(\n0\n", "not a valid regular expression"),
        ("minbpe v1\n\nmany\n", "line 3: 'many' is not an integer"),
        ("minbpe v1\n\n99999\n", "announces 99,999 special tokens"),
        ("minbpe v1\n\n1\n<s> 300 1\n", "line 4"),
        ("minbpe v1\n\n1\n<s> 97\n", "'<s>' has id 97"),
        ("minbpe v1\n\n1\n<s> 4294967295\n", "line 4"),
        ("minbpe v1\n\n2\n<s> 300\n<s> 301\n", "twice"),
        ("minbpe v1\n\n2\n<s> 300\n<t> 300\n", "'<s>' and '<t>' both have id 300"),
        ("minbpe v1\n\n0\n97\n", "line 4"),
        ("minbpe v1\n\n0\n97 256\n", "merge 0 joins ids 97 and 256"),  # a cycle
        ("minbpe v1\n\n0\n97 98\n97 98\n", "as an earlier merge does"),
        ("minbpe v1\n\n0\n97 -1\n", "line 4"),
        ("minbpe v1\n\n0\n97 ٣\n", "line 4"),
        ("minbpe v1\n\n0\n97 4294967295\n", "line 4"),
        (
            "minbpe v1\n\n0\n" + "97 97\n" + "".join(f"{256 + i} {256 + i}\n" for i in range(60)),
            "more than 268,435,456 bytes",
        ),
        ("minbpe v1\n\n0\n97 98\n98 99\n256 99\n97 257\n", "the same bytes"),
    ],
)
def test_minbpe(text, message, tmp_path):
    check(tmp_path / "bad.model", text.encode(), message, format="minbpe")


def test_minbpe_that_is_not_utf8(tmp_path):
    check(tmp_path / "bad.model", b"minbpe v1\n\xff\n0\n", "is not UTF-8")


# Every format


@pytest.mark.parametrize("format", ["auto", *FORMATS])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        b"not a tokenizer",
        b"{}",
        b"[]",
        b"7",
        b"\xff\xfe{",
        DEEP.encode(),
        b'{"model": ' + DEEP.encode() + b"}",
        b'{"a": NaN}',
        b'{"a": 1' + b"0" * 5000 + b"}",
        b"\xef\xbb\xbf{}",
        b"minbpe v1",
        b"GGUF\x03\0\0\0",
        b"\x1f\x8b\x08\0\0",
        b"AA== 0",
    ],
    ids=range(16),
)
def test_a_file_that_is_not_a_tokenizer_is_a_format_error_in_every_format(format, data, tmp_path):
    (tmp_path / "merges.txt").write_text("a b\n")
    (tmp_path / "vocab.json").write_bytes(data)
    with pytest.raises(gm.TokenizerFormatError, match=r"vocab\.json: "):
        read_tokenizer(tmp_path / "vocab.json", format, pattern="gpt2")


# minbpe's and tiktoken's files have no end marker: truncated between two lines, they are valid files.
@pytest.mark.parametrize("format", ["gristmill", "huggingface"])
def test_a_file_cut_anywhere_is_refused(format, tmp_path):
    tok = gm.Tokenizer([(b"a", b"b")], special_tokens=["<s>"])
    data = tok.export(tmp_path / "whole", format=format)[0].read_bytes().rstrip()
    path = tmp_path / "cut"
    for size in range(0, len(data), 1 + len(data) // 200):
        path.write_bytes(data[:size])
        with pytest.raises(gm.TokenizerFormatError):
            read_tokenizer(path, format)


@pytest.mark.filterwarnings("ignore::gristmill.FormatWarning")
@pytest.mark.parametrize("format", ["gristmill", "huggingface", "gpt2", "tiktoken", "minbpe"])
def test_random_damage_gives_a_tokenizer_or_a_format_error_and_nothing_else(format, tmp_path):
    tok = gm.Tokenizer([(b"a", b"b"), (b"ab", b"c")], special_tokens=["<|s|>"])
    name = {"gpt2": "vocab.json", "minbpe": "tok.model", "huggingface": "tok.json"}.get(format, "tok")
    data = tok.export(tmp_path / name, format=format)[0].read_bytes().partition(b',\n"sha256"')[0]
    data += b"}" * (format == "gristmill")
    source = random.Random(7)
    inserts = [b"0", b"-", b"[", b"}", b'"', b" ", b"\n", b"null", b"1e9", b"true"]
    pattern = "gpt2" if format in ("gpt2", "tiktoken") else None
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(source.choice([1, 1, 2, 5])):
            at = source.randrange(len(damaged))
            match source.randrange(4):
                case 0:
                    damaged[at] = source.randrange(256)
                case 1:
                    del damaged[at : at + source.randrange(1, 20)]
                case 2:
                    damaged[at:at] = source.choice(inserts)
                case _:
                    damaged[at:at] = damaged[at : at + source.randrange(1, 20)]
        (tmp_path / name).write_bytes(damaged)
        with contextlib.suppress(gm.TokenizerFormatError):
            gm.Tokenizer.load(tmp_path / name, format=format, pattern=pattern)


@pytest.mark.parametrize("format", ["auto", *(name for name in FORMATS if name != "gguf")])
def test_a_gigabyte_is_refused_unread(format, tmp_path):
    (tmp_path / "merges.txt").write_text("a b\n")
    with (tmp_path / "vocab.json").open("wb") as file:
        file.truncate(1 << 30)  # a sparse file, which takes no disk space
    with pytest.raises(gm.TokenizerFormatError, match="1,073,741,824 bytes, but a tokenizer can have at most 134"):
        read_tokenizer(tmp_path / "vocab.json", format, pattern="gpt2")


@pytest.mark.skipif(sys.platform != "linux", reason="no limit on memory")
@pytest.mark.parametrize("unit", ["[],", "{},", "1234,"])
def test_json_that_would_fill_memory_is_refused_before_it_is_parsed(unit, tmp_path):
    size = content.MAX_FILE_BYTES - 100
    (tmp_path / "a.json").write_text('{"model": [' + unit * (size // len(unit)) + "1]}")
    code = (
        "import sys, gristmill.tokenizer.formats as formats\n"
        "try: formats.read_tokenizer(sys.argv[1])\n"
        "except ValueError as error: print(error)"
    )

    def limit():
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.json"],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        timeout=60,
        check=True,
    )
    assert "items; at most 10,000,000 are allowed" in run.stdout


def test_a_folder_without_a_tokenizer(tmp_path):
    (tmp_path / "sub").mkdir()
    with pytest.raises(gm.TokenizerFormatError, match="sub: the folder has no tokenizer file"):
        read_tokenizer(tmp_path / "sub")
    with pytest.raises(gm.TokenizerFormatError, match=r"sub: has no file of format 'tiktoken' \(\*\.tiktoken, "):
        read_tokenizer(tmp_path / "sub", "tiktoken", pattern="gpt2")
    (tmp_path / "sub" / "manifest.json").write_text("[1, 2]")
    with pytest.raises(gm.TokenizerFormatError, match="sub: the folder has no tokenizer file"):
        read_tokenizer(tmp_path / "sub")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("format", ["auto", "huggingface", "tiktoken", "minbpe"])
def test_a_pipe_is_refused_and_not_waited_for(format, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(gm.TokenizerFormatError, match="pipe: is a pipe or device"):
        read_tokenizer(tmp_path / "pipe", format, pattern="gpt2")


@pytest.mark.parametrize("format", ["auto", *FORMATS])
def test_a_missing_file_is_file_not_found(format, tmp_path):
    with pytest.raises(FileNotFoundError):
        read_tokenizer(tmp_path / "missing.json", format, pattern="gpt2")


def test_given_specials_are_checked_before_the_file_is_read(tmp_path):
    with pytest.raises(gm.SpecialTokenError, match="is a str"):
        read_tokenizer(tmp_path / "missing", special_tokens="<s>")
    with pytest.raises(gm.PatternError, match="'gpt5' is not valid"):
        read_tokenizer(tmp_path / "missing", pattern="gpt5")
