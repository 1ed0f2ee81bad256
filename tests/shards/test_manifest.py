"""manifest.json: the same bytes for the same content, and nothing in it is trusted."""

import dataclasses
import hashlib
import json
import re
import time

import pytest

import gristmill as gm
from gristmill.shards.manifest import EndOfText, InputEntry, Manifest, ShardEntry, Split, checksum_fits
from shards.builder import build_folder, write_manifest

SHA = "ab" * 32
SUM = 16 * "c"


def example():
    shard = ShardEntry(
        file="shard-00000.bin",
        tokens=7,
        documents=2,
        bytes=14,
        xxh64=SUM,
        index="shard-00000.idx",
        index_xxh64=SUM,
    )
    return Manifest(
        layout="gristmill",
        dtype="uint16",
        vocab_size=300,
        tokenizer_fingerprint=SHA,
        end_of_text=EndOfText(id=299, token="<|endoftext|>", position="after"),
        splits={"train": Split(documents=2, tokens=7, source_bytes=20, shards=(shard,))},
        inputs=(
            InputEntry(
                path="tales.txt",
                format="text",
                compression="",
                bytes=20,
                modified_ns=-5,
                samples="0123456789abcdef",
                skipped=None,
            ),
        ),
        num_nulls=0,
        options={"shard_tokens": None, "fractions": [0.1]},
        command="gristmill encode tales.txt",
    )


def resealed(content):
    """Return the file of a changed content, with a matching checksum."""
    content = {key: value for key, value in content.items() if key != "checksum"}
    text = json.dumps(content, indent=1)
    checksum = hashlib.sha256(text.encode() + b"\n").hexdigest()
    return text.encode()[:-2] + b',\n "checksum": "' + checksum.encode() + b'"\n}\n'


def read(folder, data):
    (folder / "manifest.json").write_bytes(data)
    return Manifest.read(folder)


def test_what_is_written_is_read(tmp_path):
    manifest = example()
    assert read(tmp_path, manifest.to_json()) == manifest


def test_the_keys_are_in_the_order_of_their_declaration_between_head_and_checksum():
    data = example().to_json()
    assert data.endswith(b'"\n}\n')
    keys = list(json.loads(data))
    assert keys[:2] == ["format", "version"]
    assert keys[2:-1] == [field.name for field in dataclasses.fields(Manifest)]
    assert keys[-1] == "checksum"
    assert data.splitlines()[1] == b' "format": "gristmill-shards",'


def test_the_checksum_is_that_of_the_file_without_it(tmp_path):
    content = json.loads(example().to_json())
    assert resealed(content) == example().to_json()


def test_a_path_that_is_no_utf8_and_one_in_another_script_come_back(tmp_path):
    paths = ["сказки.txt", "b\udcffad.txt", 'quo"te\n']
    inputs = tuple(dataclasses.replace(example().inputs[0], path=path) for path in paths)
    manifest = dataclasses.replace(example(), inputs=inputs)
    assert [entry.path for entry in read(tmp_path, manifest.to_json()).inputs] == paths


@pytest.mark.parametrize("old, new", [(b'"tokens": 7', b'"tokens": 8'), (b'": 299', b'": 298'), (b"\n  {", b"\n   {")])
def test_an_edited_manifest_is_found_by_its_checksum(old, new, tmp_path):
    data = example().to_json()
    assert data.count(old) >= 1
    with pytest.raises(gm.ShardsFormatError, match=r"manifest\.json: the checksum does not match the contents"):
        read(tmp_path, data.replace(old, new, 1))


def test_any_byte_flipped_is_found(tmp_path):
    data = example().to_json()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 4
        with pytest.raises(gm.ShardsFormatError):
            read(tmp_path, bytes(flipped))


def test_a_manifest_cut_at_any_byte_is_found(tmp_path):
    data = example().to_json()
    for length in range(len(data)):
        with pytest.raises(gm.ShardsFormatError):
            read(tmp_path, data[:length])


def test_a_manifest_without_a_checksum_is_no_manifest(tmp_path):
    content = json.loads(example().to_json())
    del content["checksum"]
    with pytest.raises(gm.ShardsFormatError, match="checksum"):
        read(tmp_path, json.dumps(content, indent=1).encode() + b"\n")
    assert not checksum_fits(b"")


BAD_NAMES = [
    "../evil",
    "a/b",
    "/etc/passwd",
    ".hidden",
    "..",
    ".",
    "",
    "a\\b",
    "C:x",
    "a\x00b",
    "a\nb",
    "a" * 256,
    None,
    3,
]


@pytest.mark.parametrize("name", [*BAD_NAMES, "manifest.json", "progress.json"])
@pytest.mark.parametrize("key", ["file", "index", "tokenizer_file"])
def test_a_name_that_leaves_the_folder_is_refused_even_with_a_right_checksum(key, name, tmp_path):
    if name is None and key == "index":
        pytest.skip("no index")
    content = json.loads(example().to_json())
    target = content if key == "tokenizer_file" else content["splits"]["train"]["shards"][0]
    target[key] = name
    where = key if key == "tokenizer_file" else rf"splits\.train\.shards\[0\]\.{key}"
    with pytest.raises(gm.ShardsFormatError, match=rf"manifest\.json: {where} is .*without a path and not hidden"):
        read(tmp_path, resealed(content))


@pytest.mark.parametrize("size", [2**24 + 1, 2**53, -1])
def test_a_vocabulary_larger_than_any_is_refused_before_its_ids_are_counted(size, tmp_path):
    content = json.loads(example().to_json()) | {"vocab_size": size}
    with pytest.raises(gm.ShardsFormatError, match=r"manifest\.json: vocab_size is .*from 0 to 16777216"):
        read(tmp_path, resealed(content))


SHARD = ("splits", "train", "shards", 0)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("layout",), "nemo", "layout is"),
        (("layout",), [], "layout is"),
        (("dtype",), "float32", "dtype is"),
        (("vocab_size",), -1, "vocab_size is -1"),
        (("vocab_size",), True, "vocab_size is true"),
        (("vocab_size",), 300.0, r"vocab_size is 300\.0"),
        (("vocab_size",), 2**63, "vocab_size is"),
        (("tokenizer_fingerprint",), "ab", "tokenizer_fingerprint is"),
        (("tokenizer_fingerprint",), SHA.upper(), "tokenizer_fingerprint is"),
        (("end_of_text",), 299, "end_of_text is 299"),
        (("end_of_text", "position"), "between", r"end_of_text\.position is"),
        (("splits",), [], "splits is"),
        (("splits", "train"), None, r"splits\.train is null"),
        (("splits", "train", "shards"), {}, r"splits\.train\.shards is"),
        ((*SHARD, "tokens"), "7", r"splits\.train\.shards\[0\]\.tokens is"),
        ((*SHARD, "xxh64"), SUM + "\n", r"shards\[0\]\.xxh64 is"),
        ((*SHARD, "index_xxh64"), None, "an index without a checksum"),
        ((*SHARD, "index"), "shard-00000.bin", r"shard-00000\.bin is listed twice"),
        ((*SHARD, "file"), "tokenizer.json", r"tokenizer\.json is listed twice"),
        (("inputs", 0, "modified_ns"), 0.5, r"inputs\[0\]\.modified_ns is 0\.5"),
        (("inputs", 0, "samples"), "xyz", r"inputs\[0\]\.samples is"),
        (("options",), [], "options is"),
        (("command",), None, "command is null"),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_key(keys, value, message, tmp_path):
    content = json.loads(example().to_json())
    target = content
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    with pytest.raises(gm.ShardsFormatError, match=message) as error:
        read(tmp_path, resealed(content))
    assert str(error.value).startswith(str(tmp_path / "manifest.json"))


def every_object(content, keys=()):
    if isinstance(content, dict):
        yield keys
    if keys[-1:] != ("options",):
        items = content.items() if isinstance(content, dict) else enumerate(content) if type(content) is list else ()
        for key, value in items:
            yield from every_object(value, (*keys, key))


@pytest.mark.parametrize("keys", [k for k in every_object(json.loads(example().to_json())) if k[-1:] != ("options",)])
def test_a_missing_and_an_unknown_key_are_named(keys, tmp_path):
    if keys == ("splits",):
        pytest.skip("any of its keys may be missing")
    names = json.loads(example().to_json())
    for key in keys:
        names = names[key]
    for name in [*names, "extra"]:
        if name in ("format", "version", "checksum"):
            continue
        content = json.loads(example().to_json())
        target = content
        for key in keys:
            target = target[key]
        if name == "extra":
            target["extra"] = 1
        else:
            del target[name]
        with pytest.raises(gm.ShardsFormatError, match=rf"{re.escape(name)} is (missing|unknown)"):
            read(tmp_path, resealed(content))


@pytest.mark.parametrize("version", [0, 2, "1", True, None])
def test_another_version_is_refused(version, tmp_path):
    content = json.loads(example().to_json()) | {"version": version}
    with pytest.raises(gm.ShardsFormatError, match="this Gristmill reads version 1"):
        read(tmp_path, resealed(content))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"a": NaN}', b"null"])
def test_a_file_that_is_not_a_manifest_is_reported_as_such(data, tmp_path):
    with pytest.raises(gm.ShardsFormatError, match=r"manifest\.json: (?:not valid JSON|not a manifest)"):
        read(tmp_path, data)


def test_a_split_of_another_name_is_refused(tmp_path):
    content = json.loads(example().to_json())
    content["splits"]["../test"] = content["splits"].pop("train")
    with pytest.raises(gm.ShardsFormatError, match=r"the key '\.\./test' in splits is unknown; the keys are"):
        read(tmp_path, resealed(content))


def test_an_unfinished_folder_says_how_to_resume(tmp_path):
    (tmp_path / "progress.json").write_text("{}")
    with pytest.raises(gm.ShardsFormatError, match="unfinished: run the same command again to resume"):
        Manifest.read(tmp_path)


def test_a_folder_of_something_else_a_missing_one_and_a_file_have_different_errors(tmp_path):
    with pytest.raises(gm.ShardsFormatError, match=r"not a folder of shards: it has no manifest\.json"):
        Manifest.read(tmp_path)
    with pytest.raises(FileNotFoundError):
        Manifest.read(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        Manifest.read(tmp_path / "file")


def test_two_folders_of_the_same_texts_have_the_same_bytes(tmp_path):
    for name in "ab":
        build_folder(tmp_path / name, ["low", "lower"])
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"]
    assert files[0] == files[1]


def test_tens_of_thousands_of_shards_are_read_in_a_moment(tmp_path):
    shard = example().splits["train"].shards[0]
    shards = tuple(
        dataclasses.replace(shard, file=f"shard-{i:05}.bin", index=f"shard-{i:05}.idx") for i in range(30_000)
    )
    split = Split(documents=60_000, tokens=210_000, source_bytes=1, shards=shards)
    write_manifest(tmp_path, dataclasses.replace(example(), splits={"train": split}))
    began = time.perf_counter()
    assert Manifest.read(tmp_path).splits["train"].shards == shards
    assert time.perf_counter() - began < 3


def test_the_schema_has_the_fields_of_what_it_checks():
    from dataclasses import fields

    from gristmill.shards import manifest, request, schema, state

    pairs = [
        (schema.Shard, manifest.ShardEntry, set()),
        (schema.Split, manifest.Split, set()),
        (schema.Input, manifest.InputEntry, set()),
        (schema.EndOfText, manifest.EndOfText, set()),
        (schema.Manifest, manifest.Manifest, set()),
        (schema.Request, request.Request, set()),
        (schema.SplitState, state.SplitState, {"shards"}),  # the journal has them
        (schema.Position, state.Position, set()),
    ]
    for checked, written, elsewhere in pairs:
        assert set(checked.__struct_fields__) == {field.name for field in fields(written)} - elsewhere, checked


def test_the_old_name_of_from_json_is_deprecated(tmp_path):
    data = example().to_json()
    with pytest.warns(DeprecationWarning, match=r"Manifest\.of_json\(\) is deprecated\. Use Manifest\.from_json\(\)"):
        assert Manifest.of_json(data, tmp_path) == Manifest.from_json(data, tmp_path) == example()
