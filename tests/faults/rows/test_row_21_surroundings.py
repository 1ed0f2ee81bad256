"""Row 21: the same commands under other locales, time zones, hash seeds, numbers of threads, folders and masks."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gristmill as gm
from faults.rows.fault import Fault
from scripts import run_script
from texts import random_story, random_text

FAULT = Fault(
    row=21,
    injected="`LC_ALL=C` without UTF-8 mode, other time zones, hash seeds, umasks, working and temporary folders, "
    "`python -OO`, and 1, 2 and 7 threads",
    promise="Word tables, tokenizers in every format, shards, manifests and decoded text are byte-identical",
    undetectable="An option that a shell passes in another encoding than UTF-8: it is another text",
    see_also=(
        "tests/properties/test_properties.py",
        "tests/shards/test_encode_corpus.py",
        "tests/count/test_count.py",
        "tests/faults/test_few_threads.py",
    ),
)

# Runs commands in one process: its arguments are a file of commands, and the number of threads.
CHILD = """
import ctypes, io, json, os, sys
umask = os.environ.get("TEST_UMASK")
if umask:
    os.umask(int(umask, 8))
if "TEST_NAME" in os.environ:
    ctypes.CDLL(None).prctl(15, os.fsencode(os.environ["TEST_NAME"]), 0, 0, 0)
from gristmill.cli import main
for command in json.load(open(sys.argv[1], "rb")):
    if command[0] in ("count-words", "train-tokenizer", "encode"):
        command += ["--threads", sys.argv[2]]
    command = [os.fsdecode(word.encode()) for word in command]
    code = main(command)
    if code:
        sys.exit(f"{command}: exit code {code}")
"""

LATIN = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SURROUNDINGS = {
    "C locale": (1, LATIN | {"TZ": "Asia/Kathmandu", "TEST_UMASK": "077"}),
    "POSIX locale, 7 threads": (7, LATIN | {"LC_ALL": "POSIX", "PYTHONHASHSEED": "1", "PYTHONOPTIMIZE": "2"}),
    "hash seed": (2, {"PYTHONHASHSEED": "4294967295", "TZ": "Pacific/Kiritimati", "GRISTMILL_KERNEL": "scalar"}),
    "no encoding is the default": (
        7,
        {"PYTHONWARNDEFAULTENCODING": "1", "PYTHONWARNINGS": "error::EncodingWarning", "TEST_NAME": "train-\udcff"},
    ),
}
# Not of this process: the parent of `make test` may have set them.
UNSET = ("LC_ALL", "LANG", "LANGUAGE", "LC_CTYPE", "TZ", "PYTHONHASHSEED", "PYTHONUTF8", "GRISTMILL_KERNEL")

LAYOUTS = ("gristmill", "nanogpt")
FORMATS = {"gpt2": "gpt2", "huggingface": "hf", "tiktoken": "t.tiktoken", "minbpe": "m.model"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Text, compressed text and JSON lines, in files whose names are not ASCII."""
    folder = tmp_path_factory.mktemp("corpus") / "Märchen 童話"
    folder.mkdir()
    for i, name in enumerate(["aé.txt", "a🦊.txt", "b.txt"]):
        (folder / name).write_bytes("<|endoftext|>".join(random_story(3 * i + j, 400) for j in range(3)).encode())
    (folder / "ü.txt.gz").write_bytes(gzip.compress(random_text(7, 3000), mtime=0))
    lines = [json.dumps({"text": random_story(i, 30) + " ünï 日本語"}, ensure_ascii=i % 2 == 0) for i in range(30)]
    (folder / "z日.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def commands(corpus, out):
    corpus, out = str(corpus), str(out)
    tokenizer = f"{out}/tök.json"
    encode = ["encode", corpus, "-t", tokenizer, "--val-fraction", "0.2", "--seed", "1"]
    return [
        *(["count-words", corpus, "--pattern", name, "-o", f"{out}/{name}.gmw"] for name in ("gpt2", "o200k")),
        ["train-tokenizer", f"{out}/gpt2.gmw", "--vocab-size", "500", "-o", f"{out}/from words.json"],
        ["train-tokenizer", corpus, "--vocab-size", "500", "-o", tokenizer],
        *(["export", tokenizer, "-f", name, "-o", f"{out}/{path}"] for name, path in FORMATS.items()),
        *([*encode, "--format", name, "-o", f"{out}/{name}"] for name in LAYOUTS),
        ["verify", f"{out}/gristmill"],
        ["decode", "-t", tokenizer, *map(str, range(300))],
    ]


def digests(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def call(commands, folder, num_threads, environment, *, cwd):
    """Run commands in a child and return what it printed."""
    (folder / "temporary").mkdir(parents=True, exist_ok=True)
    (folder / "commands.json").write_text(json.dumps(commands))
    inherited = {key: value for key, value in os.environ.items() if key not in UNSET}
    paths = {"PYTHONPATH": str(Path(gm.__file__).parents[1]), "TMPDIR": str(folder / "temporary")}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, folder / "commands.json", str(num_threads)],
        cwd=cwd,
        env=inherited | paths | environment,
        capture_output=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr.decode(errors="replace")
    assert list((folder / "temporary").iterdir()) == []
    return child.stdout


def run(corpus, folder, num_threads, environment, *, cwd):
    """Run all commands; return the digest of each file that they wrote, and of the text that they decoded."""
    out = folder / "out é"
    out.mkdir()
    printed = call(commands(corpus, out), folder, num_threads, environment, cwd=cwd)
    text = printed.rpartition(b"no problems found")[2].partition(b"\n")[2]
    assert len(text) > 300
    return digests(out) | {"printed": hashlib.sha256(text).hexdigest()}


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return tmp_path_factory.mktemp("usual")


@pytest.fixture(scope="module")
def expected(corpus, usual):
    return run(corpus, usual, 2, {"LC_ALL": "C.UTF-8"}, cwd=corpus.parent)


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_row_21_every_file_is_the_same_in_other_surroundings(name, corpus, expected, tmp_path):
    num_threads, environment = SURROUNDINGS[name]
    found = run(corpus, tmp_path, num_threads, environment, cwd=tmp_path)
    assert sorted(found) == sorted(expected)
    assert [path for path in found if found[path] != expected[path]] == []


def test_row_21_shards_of_another_locale_are_recognized_and_verified(corpus, expected, usual, tmp_path):
    """The manifest records the names of the inputs, with which a rerun compares its own."""
    shutil.copytree(usual / "out é", tmp_path / "out é")
    encode = [command for command in commands(corpus, tmp_path / "out é") if command[0] in ("encode", "verify")]
    printed = call(encode, tmp_path, 1, LATIN, cwd=tmp_path)
    assert b"5 files" in printed.rpartition(b"inputs")[2]
    assert digests(tmp_path / "out é") == {path: digest for path, digest in expected.items() if path != "printed"}


def test_row_21_a_process_with_any_name_can_train():
    """Linux names a process after its script, cut after 15 bytes, which may be inside a character."""
    script = """
        import ctypes
        import gristmill as gm
        ctypes.CDLL(None).prctl(15, b"trainiere-sch\\xc3", 0, 0, 0)
        print(gm.train_tokenizer(["low low"], vocab_size=258, progress=None).profile.peak_memory_bytes)
    """
    child = run_script(script)
    assert int(child.stdout) > 1 << 20, child.stderr
