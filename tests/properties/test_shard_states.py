"""A folder of shards through encode, kill, resume, overwrite, verify and a growing corpus in any order.

A reader never sees a mixture: it gets all documents of one state of the corpus, or an error. Readers that were opened
before keep the documents they were opened with, or report that the shards were replaced. What a run completes has the
bytes of an undisturbed run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import gristmill as gm
from faults.broken_runs import run_and_die
from gristmill.corpus import batches

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork, and a folder in memory")

TOKENIZER = gm.Tokenizer([], special_tokens=["<|endoftext|>"])
LAYOUTS = ["gristmill", "llmc", "npy", "datatrove", "megatron", "nanogpt"]
FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
BATCH = {"BATCH_BYTES": 64, "MIN_STRETCH_BYTES": 8}  # several batches, checkpoints and shards of a tiny corpus

Content = dict[str, list[list[int]]]  # documents of each split


def write(folder: Path, number: int, letter: int) -> None:
    """Write a file of the corpus. Each state of a file has a letter of its own, and all have the same size."""
    name = chr(ord("a") + letter)
    (folder / f"{number}.txt").write_text("\n".join(name * (3 + i) for i in range(7)))


def encode(corpus: Path, out: Path, layout: str, *, overwrite: bool = False) -> gm.EncodeRun:
    options = {} if layout in ("megatron", "nanogpt") else {"shard_tokens": 25}
    return gm.encode_corpus(
        corpus,
        TOKENIZER,
        out=out,
        format=layout,
        separator="\n",
        val_fraction=0.3,
        overwrite=overwrite,
        checkpoint_seconds=0,
        num_threads=1,
        progress=None,
        **options,
    )


def content_of(out: Path) -> Content | None:
    """Return all documents that a new reader sees; None if it sees none."""
    try:
        splits = list(gm.Manifest.read(out).splits)
        return {split: [ids.tolist() for ids in gm.Shards(out, split=split)] for split in splits}
    except (gm.ShardsFormatError, gm.InputChangedError, FileNotFoundError):
        return None


def token_files(out: Path) -> dict[str, bytes]:
    files = sorted(path for path in out.iterdir() if path.is_file() and not path.name.startswith("."))
    return {path.name: path.read_bytes() for path in files if path.name != "manifest.json"}


@cache
def undisturbed(letters: tuple[int, ...], layout: str) -> tuple[Content, dict[str, bytes]]:
    """Return the documents and files of a run over a corpus that nothing disturbs."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        corpus, out = Path(folder, "corpus"), Path(folder, "out")
        corpus.mkdir()
        for number, letter in enumerate(letters):
            write(corpus, number, letter)
        encode(corpus, out, layout)
        content = content_of(out)
        assert content is not None
        return content, token_files(out)


class ShardStates(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="gristmill-states-", dir=FOLDER))
        self.corpus, self.out = self.folder / "corpus", self.folder / "out"
        self.corpus.mkdir()
        self.before = {name: getattr(batches, name) for name in BATCH}
        for name, size in BATCH.items():
            setattr(batches, name, size)
        self.letters: list[int] = []
        self.next_letter = 0
        self.finished: tuple[int, ...] | None = None  # the state of the corpus that new readers see
        self.attempts: set[tuple[int, ...]] = set()  # those of killed runs since
        self.readers: list[tuple[gm.Shards, list[list[int]]]] = []

    def teardown(self):
        for name, size in self.before.items():
            setattr(batches, name, size)
        shutil.rmtree(self.folder)

    @property
    def now(self) -> tuple[int, ...]:
        return tuple(self.letters)

    def expected(self, letters: tuple[int, ...]) -> Content:
        return undisturbed(letters, self.layout)[0]

    def put(self, number: int) -> None:
        write(self.corpus, number, self.next_letter)
        self.letters[number : number + 1] = [self.next_letter]
        self.next_letter += 1

    # The corpus

    @initialize(layout=st.sampled_from(LAYOUTS))
    def choose_layout(self, layout):
        self.layout = layout
        self.put(0)

    @precondition(lambda self: self.next_letter < 24 and len(self.letters) < 4)
    @rule()
    def append_a_file(self):
        self.put(len(self.letters))

    @precondition(lambda self: self.next_letter < 24)
    @rule(number=st.integers(0, 3))
    def replace_a_file(self, number):
        self.put(number % len(self.letters))

    # Runs

    @rule(overwrite=st.booleans())
    def encode_to_the_end(self, overwrite):
        others = (self.attempts | {self.finished}) - {self.now, None}
        had_nothing_to_do = self.finished == self.now
        try:
            encode(self.corpus, self.out, self.layout, overwrite=overwrite)
        except gm.ShardsMismatchError:
            assert others and not overwrite
            self.look_again()
            return
        self.finished, self.attempts = self.now, self.attempts if had_nothing_to_do else set()
        assert token_files(self.out) == undisturbed(self.now, self.layout)[1]
        left = {path.name for path in self.out.iterdir() if path.name.startswith(".")}
        # A replacement in which another run was killed stays there, for that run to resume.
        assert left <= ({".lock", ".new"} if had_nothing_to_do else {".lock"})

    @rule(step=st.integers(0, 60), overwrite=st.booleans())
    def encode_and_be_killed(self, step, overwrite):
        def run():
            with contextlib.suppress(gm.ShardsMismatchError):
                encode(self.corpus, self.out, self.layout, overwrite=overwrite)

        run_and_die(step, run)
        self.attempts.add(self.now)
        self.look_again()

    def look_again(self):
        """Find out what readers see. A run first completes the replacement in which an earlier one was killed."""
        seen = content_of(self.out)
        possible = {letters: self.expected(letters) for letters in {self.finished, *self.attempts} - {None}}
        assert seen is None or seen in possible.values()
        self.finished = next((letters for letters, content in possible.items() if content == seen), None)

    # Readers

    @precondition(lambda self: self.finished is not None)
    @rule(split=st.sampled_from(["train", "val"]), look=st.booleans())
    def open_and_keep(self, split, look):
        expected = self.expected(self.finished)
        if split in expected:
            shards = gm.Shards(self.out, split=split)
            if look and len(shards):
                assert shards[0].tolist() == expected[split][0]
            self.readers.append((shards, expected[split]))

    @rule()
    def verify(self):
        try:
            found = gm.verify_shards(self.out)
        except (gm.ShardsFormatError, FileNotFoundError):
            assert self.finished is None
            return
        assert self.finished is not None
        # A file that was read and has been replaced since is a problem of the inputs, and no other.
        is_replaced = any(before != letter for before, letter in zip(self.finished, self.letters, strict=False))
        assert {problem.check for problem in found.problems} == ({"inputs"} if is_replaced else set())

    @invariant()
    def a_new_reader_sees_one_state_of_the_corpus(self):
        expected = None if self.finished is None else self.expected(self.finished)
        assert content_of(self.out) == expected

    @invariant()
    def an_old_reader_sees_the_documents_it_was_opened_with_or_an_error(self):
        for shards, expected in self.readers:
            assert len(shards) == len(expected)
            for i, ids in enumerate(expected):
                with contextlib.suppress(gm.InputChangedError):
                    assert shards[i].tolist() == ids


ShardStates.TestCase.settings = settings(stateful_step_count=12)
TestShardStates = ShardStates.TestCase
