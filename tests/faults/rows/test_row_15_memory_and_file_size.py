"""Row 15: too little address space, and a limit on the size of files."""

from __future__ import annotations

import gzip
import os
import resource
from functools import partial
from pathlib import Path

import pytest

import gristmill as gm
from faults.rows.children import call, command
from faults.rows.fault import Fault
from faults.rows.outputs import FILES, SHARDS, contents, copy_inputs, prepare, run
from gristmill.corpus.packages import load_zstd
from shards.shard_corpora import write_jsonl
from texts import random_story

FAULT = Fault(
    row=15,
    injected="`RLIMIT_AS` of what the process uses plus 0 to 24 MB, while it counts, trains and encodes text, gzip, "
    "zstd and JSON lines; `RLIMIT_FSIZE` of 0 and 100 bytes for each kind of output",
    promise="Exit status 0, or 1 with one message about memory or the file; `MemoryError` or `OSError` in Python. No "
    "abort, no crash, no thread that is waited for forever; what was there before stays",
    undetectable="The system's out-of-memory killer sends SIGKILL, which is row 11",
    see_also=(
        "tests/faults/test_limits.py",
        "tests/faults/test_few_threads.py",
        "tests/faults/test_encode_corpus_limits.py",
        "tests/faults/test_encode_faults.py",
    ),
)

MB = 1 << 20


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = prepare(tmp_path_factory.mktemp("row-15") / "inputs")
    text = (folder / "a.txt").read_bytes() * 100
    (folder / "large.txt").write_bytes(text)
    (folder / "large.txt.gz").write_bytes(gzip.compress(text))
    (folder / "large.txt.zst").write_bytes(load_zstd().compress(text))
    write_jsonl(folder / "large.jsonl", [random_story(i, 200) for i in range(200)])
    for command_of_all in COMMANDS.values():  # so that children need no imports
        run(folder, *(argument.format("large.jsonl") for argument in command_of_all))
        run(folder, *(argument.format("large.txt.gz") for argument in command_of_all))
        run(folder, *(argument.format("large.txt.zst") for argument in command_of_all))
    return folder


ENDING = ("--overwrite", "--progress", "none")
COMMANDS = {
    "train": ("train-tokenizer", "{}", "--vocab-size", "280", "-o", "new.json", *ENDING),
    "count": ("count-words", "{}", "-o", "new.gmw", *ENDING),
    "encode": ("encode", "{}", "-t", "big.json", "-o", "shards", *ENDING),
}


def limit_memory(room: int) -> None:
    status = Path("/proc/self/status").read_text()
    used = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (used + room,) * 2)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("corpus", ["large.txt", "large.txt.gz", "large.txt.zst", "large.jsonl"])
def test_row_15_too_little_memory_is_one_message(inputs, tmp_path, name, corpus):
    folder = copy_inputs(inputs, tmp_path / "folder")
    before = contents(folder)
    arguments = [argument.format(corpus) for argument in COMMANDS[name]]
    outcomes = []
    for room in (0, MB // 3, MB, 3 * MB, 7 * MB, 24 * MB):
        ended = command(*arguments, cwd=folder, before=partial(limit_memory, room))
        outcomes.append(ended.status)
        if ended.status != 0:
            assert ended.status == 1, ended
            assert len(ended.errors) == 1 and "memory" in ended.errors[0], ended
            assert [path.name for path in folder.rglob("*") if ".tmp." in path.name] == []
            if name != "encode":  # interrupted shards are kept to be resumed
                assert contents(folder) == before
        before = contents(folder)
    if corpus == "large.txt":  # batches of other inputs may fit in memory that this process has kept
        assert 1 in outcomes
    run(folder, *arguments)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_row_15_python_gets_a_memory_error_and_can_continue(inputs, tmp_path):
    def work() -> int:
        tokenizer = gm.Tokenizer.load(inputs / "big.json")
        text = (inputs / "large.txt").read_bytes() * 40
        limits = resource.getrlimit(resource.RLIMIT_AS)
        for room in (0, MB, 4 * MB, 12 * MB):
            for use in (
                lambda: tokenizer.encode_array(text),
                lambda: tokenizer.encode_batch([text] * 4),
                lambda: gm.count_words([text.decode()] * 3, progress=None),
                lambda: gm.train_tokenizer(inputs / "large.txt.gz", vocab_size=280, progress=None),
                partial(gm.encode_corpus, inputs / "large.txt", tokenizer, out=tmp_path / f"{room}", progress=None),
            ):
                limit_memory_softly(room)
                try:
                    use()
                except (MemoryError, OSError):
                    pass
                finally:
                    resource.setrlimit(resource.RLIMIT_AS, limits)
        return int(tokenizer.decode(tokenizer.encode("still here")) != "still here")

    ended = call(work, log=tmp_path / "log")
    assert ended.status == 0, ended


def limit_memory_softly(room: int) -> None:
    status = Path("/proc/self/statm").read_text()
    used = int(status.split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.getrlimit(resource.RLIMIT_AS)[1]))


def limit_files(size: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)  # the limit would apply to the log too
    os.dup2(null, 1)
    os.dup2(null, 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize(
    "output", [output for output in [*FILES, *SHARDS] if output.name != "report of a tokenizer"], ids=str
)
def test_row_15_a_limit_on_the_size_of_files_leaves_the_earlier_output(inputs, tmp_path, output):
    if output.name.startswith("parquet"):
        pytest.importorskip("pyarrow")
    folder = copy_inputs(inputs, tmp_path / "folder")
    run(folder, *output.earlier)
    before = contents(folder / output.target)
    for size in (0, 100):
        ended = command(*output.again, cwd=folder, before=partial(limit_files, size))
        assert ended.status == 1, ended
        if output.name != "trace":
            visible = {name: digest for name, digest in contents(folder / output.target).items() if name[:2] != ".n"}
            assert visible == before
        assert [path.name for path in folder.rglob("*") if ".tmp." in path.name] == []
    assert command(*output.again, cwd=folder).status == 0
