"""Faults while a corpus is encoded: killed, out of disk or memory, interrupted. Nothing is lost, nothing invented."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import traceback
from pathlib import Path

import numpy as np
import pytest

import gristmill as gm
from gristmill import encode_corpus
from scripts import run_script
from texts import random_story

sys.path.insert(0, str(Path(__file__).parent.parent / "shards"))
from shard_corpora import digest, documents, small_batches, tokenizer, write_jsonl, write_text

OPTIONS = {"shard_tokens": 700, "val_fraction": 0.3, "progress": None}


@pytest.fixture(scope="module")
def tok():
    return tokenizer()


@pytest.fixture
def corpus(tmp_path):
    """Two inputs; long documents among them, which lie across many batches."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    long = [random_story(i, 600).encode() for i in range(3)]
    return [
        write_text(folder / "a.txt", documents(1, 12) + long),
        write_jsonl(folder / "b.jsonl", [random_story(i, 50) for i in range(40)]),
    ]


# Killed (rows 11 and 12)


def run_and_die(step: int, run) -> bool:
    """Run in a child that is killed at its n-th step towards the disk; whether it was, or had ended before."""
    child = os.fork()
    if child == 0:
        try:
            _die_at(step)
            run()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _die_at(step: int) -> None:
    """SIGKILL before the n-th call that changes what is on the disk."""
    left = step

    def watched(call):
        def calling(*arguments, **options):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return calling

    for name in ("fsync", "fdatasync", "truncate"):
        setattr(os, name, watched(getattr(os, name)))
    for name in ("replace", "rename", "unlink", "mkdir"):
        setattr(Path, name, watched(getattr(Path, name)))


@pytest.mark.parametrize(("format", "num_attempts"), [("gristmill", 20), ("llmc", 8), ("megatron", 8), ("parquet", 8)])
def test_killed_at_any_step_and_run_again_gives_the_same_bytes(
    tok, corpus, tmp_path, monkeypatch, format, num_attempts
):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    small_batches(monkeypatch)
    options = {**OPTIONS, "format": format, "checkpoint_seconds": 0, "num_threads": 2}
    if format == "megatron":
        options["shard_tokens"] = None
    (tmp_path / "judge").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "judge" / "out", **options)
    expected = digest(tmp_path / "judge" / "out")
    source = random.Random(format)
    num_killed = 0
    for attempt in range(num_attempts):
        out = tmp_path / f"{attempt}" / "out"
        out.parent.mkdir()

        def run(out=out):
            encode_corpus(corpus, tok, out=out, **options)

        # Killed once, twice, three times: soon, late, and right behind where it went on.
        while run_and_die(source.choice([source.randrange(12), source.randrange(60), source.randrange(600)]), run):
            num_killed += 1
            _check_only_complete_shards_are_visible(out, expected)
            if source.random() < 0.4:
                break
        resumed = encode_corpus(corpus, tok, out=out, **options)
        assert digest(out) == expected
        assert resumed.manifest == gm.Manifest.read(out)
    assert num_killed > num_attempts // 2


def _check_only_complete_shards_are_visible(out, expected):
    if not out.exists():
        return
    visible = {name: hash for name, hash in digest(out).items() if not name.startswith(".") and name != "progress.json"}
    assert visible.items() <= expected.items()
    if "manifest.json" not in visible:
        with pytest.raises(gm.ShardsFormatError, match=r"unfinished|not a folder of shards"):
            gm.Shards(out)


MAIN = "import sys; from gristmill.cli import main; sys.exit(main())"
SCRIPT = """
    import sys, gristmill
    from gristmill.corpus import batches
    batches.BATCH_BYTES = 20_000
    tok = gristmill.Tokenizer.load(sys.argv[1])
    gristmill.encode_corpus(
        sys.argv[2], tok, out=sys.argv[3], shard_tokens=20_000, val_fraction=0.1, checkpoint_seconds=0.01,
        progress=None, num_threads=2)
"""


def _start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def test_killed_at_random_times_until_it_is_done_gives_the_same_bytes(tok, tmp_path):
    tok.save(tmp_path / "tok.json")
    (tmp_path / "corpus").mkdir()
    stories = [random_story(k, 300) for k in range(50)]
    for i in range(3):
        write_jsonl(tmp_path / "corpus" / f"{i}.jsonl", [f"{i}.{k} {stories[k % 50]}" for k in range(1000)])
    (tmp_path / "judge").mkdir()
    began = time.monotonic()
    assert _start(tmp_path / "tok.json", tmp_path / "corpus", tmp_path / "judge" / "out").wait() == 0
    seconds = time.monotonic() - began
    source = random.Random(5)
    num_killed = 0
    for _ in range(12):
        process = _start(tmp_path / "tok.json", tmp_path / "corpus", tmp_path / "out")
        try:
            process.wait(source.uniform(0.1, 0.6) * seconds)
            break
        except subprocess.TimeoutExpired:
            process.kill()
            num_killed += 1
        finally:
            process.communicate()
    assert _start(tmp_path / "tok.json", tmp_path / "corpus", tmp_path / "out").wait() == 0
    assert num_killed and digest(tmp_path / "out") == digest(tmp_path / "judge" / "out")


def test_a_resumed_run_does_not_begin_again(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    options = {**OPTIONS, "checkpoint_seconds": 0}
    written = []
    monkeypatch.setattr("gristmill.shards.writer.SplitWriter.write", _counting_write(written))
    encode_corpus(corpus, tok, out=tmp_path / "judge", **options)
    num_whole = sum(written)
    with pytest.raises(Enough):
        encode_corpus(corpus, tok, out=tmp_path / "out", **{**options, "progress": _stop_after(num_whole // 2)})
    written.clear()
    run = encode_corpus(corpus, tok, out=tmp_path / "out", **options)
    assert run.resumed
    assert sum(written) < 0.7 * num_whole
    assert digest(tmp_path / "out") == digest(tmp_path / "judge")


class Enough(Exception):
    pass


def _counting_write(written):
    from gristmill.shards.writer import SplitWriter

    write = SplitWriter.write

    def counting(self, ids, ends, *, source_bytes):
        written.append(len(ids))
        write(self, ids, ends, source_bytes=source_bytes)

    return counting


def _stop_after(num_tokens):
    def stop(report):
        if report.tokens >= num_tokens:
            raise Enough

    return stop


# What is there already (rows 16 and 17)


def unfinished(corpus, tok, out, **options):
    with pytest.raises(Enough):
        encode_corpus(
            corpus, tok, out=out, **{**OPTIONS, "checkpoint_seconds": 0, **options, "progress": _stop_after(2000)}
        )
    assert (out / "progress.json").exists()


@pytest.fixture(params=["unfinished", "finished"])
def existing(request, tok, corpus, tmp_path, monkeypatch):
    """A folder that an earlier run has left, or completed."""
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.encoding.PROGRESS_SECONDS", 0)
    if request.param == "unfinished":
        unfinished(corpus, tok, tmp_path / "out")
    else:
        encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"shard_tokens": 900}, "shard_tokens was 700 and is now 900"),
        ({"format": "npy"}, "layout was gristmill and is now npy"),
        ({"end_of_text": "<|pad|>"}, "end-of-text token was '<|endoftext|>' after"),
        ({"dtype": "uint32"}, "dtype was uint16 and is now uint32"),
        ({"documents": "line"}, "documents was 'separator' and is now 'line'"),
    ],
)
def test_other_options_are_refused_and_the_difference_is_named(tok, corpus, existing, change, message):
    before = digest(existing)
    with pytest.raises(gm.ShardsMismatchError) as caught:
        encode_corpus(corpus, tok, out=existing, **{**OPTIONS, **change})
    assert message in str(caught.value) and "overwrite" in str(caught.value)
    assert digest(existing) == before


def test_another_tokenizer_is_refused(tok, corpus, existing):
    with pytest.raises(gm.ShardsMismatchError, match="tokenizer is another one"):
        encode_corpus(corpus, tok.truncated(390), out=existing, **OPTIONS)


@pytest.mark.parametrize("change", ["appended", "replaced", "touched", "missing", "new", "reordered"])
def test_other_inputs_are_refused_and_the_first_is_named(tok, corpus, existing, change):
    inputs = list(corpus)
    if change == "appended":
        inputs[0].write_bytes(inputs[0].read_bytes() + b"more")
    elif change == "replaced":
        data = inputs[0].read_bytes()
        status = inputs[0].stat()
        inputs[0].write_bytes(b"X" + data[1:])
        os.utime(inputs[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    elif change == "touched":
        os.utime(inputs[0], ns=(1, 1))
    elif change == "missing":
        inputs.pop()
    elif change == "new":
        inputs.append(write_jsonl(inputs[0].parent / "c.jsonl", ["new"]))
    else:
        inputs.reverse()
    with pytest.raises(
        gm.ShardsMismatchError, match=r"a\.txt has changed|b\.jsonl is no|c\.jsonl is new|another order"
    ):
        encode_corpus(inputs, tok, out=existing, **OPTIONS)


def test_overwrite_replaces_what_is_there(tok, corpus, existing, tmp_path):
    encode_corpus(corpus, tok, out=existing, overwrite=True, **{**OPTIONS, "seed": 3})
    (tmp_path / "judge").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "judge" / "out", **{**OPTIONS, "seed": 3})
    assert digest(existing) == digest(tmp_path / "judge" / "out")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_overwrite_that_fails_leaves_the_finished_shards(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.encoding.PROGRESS_SECONDS", 0)
    out = tmp_path / "out"
    encode_corpus(corpus, tok, out=out, **OPTIONS)
    before = digest(out)
    with pytest.raises(Enough):
        encode_corpus(
            corpus, tok, out=out, overwrite=True, **{**OPTIONS, "seed": 3, "progress": _stop_after(2000)},
            checkpoint_seconds=0,
        )  # fmt: skip
    assert digest(out) == before
    run = encode_corpus(corpus, tok, out=out, overwrite=True, **{**OPTIONS, "seed": 3})
    assert run.resumed and run.manifest.options["seed"] == 3
    assert digest(out) != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "out"]


def test_killed_at_any_step_of_replacing_finished_shards(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    options = {**OPTIONS, "seed": 3, "format": "npy", "checkpoint_seconds": 0, "num_threads": 1}
    (tmp_path / "judge").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "judge" / "out", **options)
    expected = digest(tmp_path / "judge" / "out")
    (tmp_path / "before").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "before" / "out", **{**OPTIONS, "shard_tokens": 300})
    before = digest(tmp_path / "before" / "out")
    seen = set()
    steps = [*range(12), *range(12, 10_000, 37)]
    for attempt, step in enumerate(steps):
        out = tmp_path / f"{attempt}" / "out"
        shutil.copytree(tmp_path / "before" / "out", out)
        was_killed = run_and_die(step, lambda out=out: encode_corpus(corpus, tok, out=out, overwrite=True, **options))
        visible = {name: hash for name, hash in digest(out).items() if not name.startswith(".")}
        if "manifest.json" in visible:
            seen.add("old" if visible == before else "new")
            assert visible in (before, expected)
        encode_corpus(corpus, tok, out=out, overwrite=visible != expected, **options)
        assert digest(out) == expected
        shutil.rmtree(out.parent)
        if not was_killed:
            break
    assert seen == {"old", "new"}


def test_killed_at_any_step_of_the_exchange_itself(tok, corpus, tmp_path, monkeypatch):
    from gristmill.shards import folder as folders

    options = {**OPTIONS, "seed": 3}
    for name, settings in (("old", {**OPTIONS, "shard_tokens": 300}), ("new", options)):
        (tmp_path / name).mkdir()
        encode_corpus(corpus, tok, out=tmp_path / name / "out", **settings)
    expected = digest(tmp_path / "new" / "out")
    for step in range(60):
        out = tmp_path / f"{step}" / "out"
        shutil.copytree(tmp_path / "old" / "out", out)
        shutil.copytree(tmp_path / "new" / "out", out / ".new")
        was_killed = run_and_die(step, lambda out=out: folders._install(out))
        assert encode_corpus(corpus, tok, out=out, **options).profile is None
        assert digest(out) == expected
        if not was_killed:
            break
    assert step > 5


def test_a_shard_that_is_gone_is_noticed_when_a_run_goes_on_or_is_complete(tok, corpus, existing):
    shard = sorted(existing.glob("shard-*.bin"))[0]
    data = shard.read_bytes()
    shard.unlink()
    with pytest.raises(gm.ShardsFormatError, match=shard.name):
        encode_corpus(corpus, tok, out=existing, **OPTIONS)
    shard.write_bytes(data[:-2])
    with pytest.raises(gm.ShardsFormatError, match="another size"):
        encode_corpus(corpus, tok, out=existing, **OPTIONS)
    shard.write_bytes(data)
    encode_corpus(corpus, tok, out=existing, **OPTIONS)


def test_what_a_kill_behind_the_manifest_leaves_is_tidied(tok, corpus, tmp_path):
    encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    expected = digest(tmp_path / "out")
    for name in ("progress.json", ".request.json", ".shard-00001.bin.ends.part", ".manifest.json.tmp.123"):
        (tmp_path / "out" / name).write_text("left")
    assert encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS).profile is None
    assert digest(tmp_path / "out") == expected


def test_batches_that_end_elsewhere_are_not_gone_on_with(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.encoding.PROGRESS_SECONDS", 0)
    unfinished(corpus, tok, tmp_path / "out")
    monkeypatch.setattr("gristmill.corpus.batches.VERSION", 99)
    with pytest.raises(gm.ShardsFormatError, match="another version"):
        encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    run = encode_corpus(corpus, tok, out=tmp_path / "out", overwrite=True, **OPTIONS)
    assert not run.resumed


def test_an_input_that_was_skipped_ahead_of_a_checkpoint_is_judged_again(tok, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.encoding.PROGRESS_SECONDS", 0)
    paths = [write_jsonl(tmp_path / f"{i}.jsonl", [random_story(i, 100)] * 20) for i in range(4)]
    read = gm.corpus.read_ahead.read_batches
    failing = [True]

    def sometimes(input, *arguments, **options):
        if input.name.endswith("3.jsonl") and failing[0]:
            raise OSError(errno.EIO, "Input/output error", input.name)
        return read(input, *arguments, **options)

    monkeypatch.setattr("gristmill.corpus.read_ahead.read_batches", sometimes)
    options = {"on_error": "skip", "num_threads": 4, "checkpoint_seconds": 0}
    with pytest.raises(Enough):
        encode_corpus(paths, tok, out=tmp_path / "out", progress=_stop_after(1), **options)
    failing[0] = False
    run = encode_corpus(paths, tok, out=tmp_path / "out", progress=None, **options)
    assert run.num_documents == 80
    assert all(entry.skipped is None for entry in run.manifest.inputs)


def test_parts_of_an_iterable_are_removed_as_shards_are_published(tok, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    counts = []

    def texts():
        for i in range(200):
            counts.append(len(list((tmp_path / "out").glob(".*.part"))))
            yield random_story(i, 20)

    encode_corpus(texts(), tok, out=tmp_path / "out", shard_tokens=300, progress=None, num_threads=1)
    assert max(counts) < 8


def test_a_finished_run_that_is_asked_for_again_does_nothing(tok, corpus, tmp_path):
    encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    run = encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    assert run.profile is None
    assert times == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}


def test_documents_of_an_iterable_are_never_taken_for_those_that_are_there(tok, tmp_path):
    encode_corpus(["a", "b"], tok, out=tmp_path / "out", progress=None)
    with pytest.raises(gm.ShardsMismatchError, match="cannot be compared"):
        encode_corpus(["a", "b"], tok, out=tmp_path / "out", progress=None)


def test_a_file_a_link_a_foreign_folder_and_a_read_only_one_are_refused(tok, corpus, tmp_path):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(NotADirectoryError):
        encode_corpus(corpus, tok, out=tmp_path / "file", overwrite=True, **OPTIONS)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(FileExistsError, match="symbolic link"):
        encode_corpus(corpus, tok, out=tmp_path / "link", overwrite=True, **OPTIONS)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(FileExistsError, match=r"thesis\.tex"):
        encode_corpus(corpus, tok, out=tmp_path / "other", overwrite=True, **OPTIONS)
    with pytest.raises(FileNotFoundError, match="No such folder"):
        encode_corpus(corpus, tok, out=tmp_path / "none" / "out", **OPTIONS)
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(PermissionError):
            encode_corpus(corpus, tok, out=tmp_path / "closed" / "out", **OPTIONS)
    assert list((tmp_path / "real").iterdir()) == []
    assert (tmp_path / "other" / "thesis.tex").read_text() == (tmp_path / "file").read_text() == "precious"


def test_links_inside_the_folder_are_not_followed(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.encoding.PROGRESS_SECONDS", 0)
    unfinished(corpus, tok, tmp_path / "out")
    (tmp_path / "precious").write_text("precious" * 10_000)
    for part in (tmp_path / "out").glob(".*.part"):
        part.unlink()
        part.symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"):
        encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    assert (tmp_path / "precious").read_text() == "precious" * 10_000


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["tokenizer.json", "manifest.json", "progress.json", ".notes.part", "notes.txt"])
def test_what_others_have_put_there_is_never_removed(tok, corpus, tmp_path, name, overwrite):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text('{"name": "precious"}')
    (out / "thesis.tex").write_text("precious")
    before = digest(out)
    with pytest.raises((FileExistsError, gm.ShardsFormatError)):
        encode_corpus(corpus, tok, out=out, overwrite=overwrite, **OPTIONS)
    assert digest(out) == before


def test_what_others_have_put_beside_shards_is_never_removed(tok, corpus, existing):
    (existing / "NOTES.md").write_text("precious")
    before = digest(existing)
    with pytest.raises(FileExistsError, match=r"NOTES\.md"):
        encode_corpus(corpus, tok, out=existing, overwrite=True, **{**OPTIONS, "seed": 9})
    assert digest(existing) == before


def test_an_iterable_does_not_replace_an_unfinished_run_over_files(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.encoding.PROGRESS_SECONDS", 0)
    unfinished(corpus, tok, tmp_path / "out")
    before = digest(tmp_path / "out")
    with pytest.raises(gm.ShardsMismatchError, match="iterable"):
        encode_corpus(["a"], tok, out=tmp_path / "out", **OPTIONS)
    assert digest(tmp_path / "out") == before


def test_the_output_may_lie_in_the_folder_of_the_corpus(tok, tmp_path):
    pytest.importorskip("pyarrow")
    write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    options = {"format": "parquet", "progress": None}
    encode_corpus(tmp_path, tok, out=tmp_path / "out", **options)
    assert encode_corpus(tmp_path, tok, out=tmp_path / "out", **options).profile is None


def test_two_processes_do_not_write_to_one_folder(tok, corpus, tmp_path):
    import fcntl

    (tmp_path / "out").mkdir()
    descriptor = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(BlockingIOError, match="Another process"):
            encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    finally:
        os.close(descriptor)
    encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)


def test_damaged_progress_and_a_missing_part_are_told_and_overwrite_starts_again(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.encoding.PROGRESS_SECONDS", 0)
    (tmp_path / "judge").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "judge" / "out", **OPTIONS)
    out = tmp_path / "out"

    def lose_the_parts():
        for part in out.glob(".*.part"):
            part.unlink()

    damages = [
        lose_the_parts,
        lambda: (out / "progress.json").write_text('{"format": "gristmill-progress"'),
        lambda: (out / "progress.json").write_text((out / "progress.json").read_text().replace('"mark"', '"Mark"')),
        lambda: (out / ".request.json").write_text("{}"),
        lambda: (out / ".request.json").unlink(),
    ]
    for damage in damages:
        unfinished(corpus, tok, out)
        damage()
        with pytest.raises(gm.ShardsFormatError, match="overwrite=True"):
            encode_corpus(corpus, tok, out=out, **OPTIONS)
        run = encode_corpus(corpus, tok, out=out, overwrite=True, **OPTIONS)
        assert not run.resumed
        assert digest(out) == digest(tmp_path / "judge" / "out")
        shutil.rmtree(out)


# The disk (row 13)


def _failing(call, number, code):
    left = number

    def failing(*arguments, **options):
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(code, os.strerror(code))
        return call(*arguments, **options)

    return failing


@pytest.mark.parametrize("call", ["write", "fsync", "fdatasync"])
@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13, 30])
def test_a_disk_that_fails_at_any_write_is_an_error_and_the_next_run_goes_on(
    tok, corpus, tmp_path, monkeypatch, call, number
):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.writer.FLUSHED_BYTES", 100)
    (tmp_path / "judge").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "judge" / "out", **OPTIONS)
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        if call == "write":
            from gristmill.shards.writer import _PartFiles

            failing = staticmethod(_failing(_PartFiles._write, number, errno.ENOSPC))
            patch.setattr("gristmill.shards.writer._PartFiles._write", failing)
        else:
            patch.setattr(os, call, _failing(getattr(os, call), number, errno.EIO))
        with pytest.raises(OSError) as caught:
            encode_corpus(corpus, tok, out=out, checkpoint_seconds=0, **OPTIONS)
    assert caught.value.errno == (errno.ENOSPC if call == "write" else errno.EIO)
    if out.exists():
        assert [path.name for path in out.iterdir() if ".tmp." in path.name] == []
        assert (out / "progress.json").exists()
    encode_corpus(corpus, tok, out=out, **OPTIONS)
    assert digest(out) == digest(tmp_path / "judge" / "out")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="only root can mount a small disk")
def test_a_disk_that_is_really_full(tok, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        corpus = write_jsonl(tmp_path / "a.jsonl", [random_story(i, 400) for i in range(1500)])
        with pytest.raises(OSError) as caught:
            encode_corpus(corpus, tok, out=disk / "out", dtype="uint32", progress=None)
        assert caught.value.errno == errno.ENOSPC
        assert str(disk) in str(caught.value)
        assert list(disk.iterdir()) == []
        encode_corpus(write_jsonl(tmp_path / "b.jsonl", ["small"]), tok, out=disk / "small", progress=None)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# Memory, Ctrl-C, surroundings (rows 4, 14, 15, 21)


def test_a_corpus_larger_than_the_memory_allowed_is_encoded_within_it(tok, tmp_path):
    tok.save(tmp_path / "tok.json")
    block = "\n".join(random_story(i, 2000) for i in range(60)).encode() + b"<|endoftext|>"
    with (tmp_path / "a.txt").open("wb") as file:
        while file.tell() < 400_000_000:
            file.write(block)
    script = """
        import resource, sys, gristmill
        tok = gristmill.Tokenizer.load(sys.argv[1])
        tok.encode("a")
        used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
        resource.setrlimit(resource.RLIMIT_AS, (used + 300_000_000,) * 2)
        run = gristmill.encode_corpus(sys.argv[2], tok, out=sys.argv[3], num_threads=2, progress=None)
        print(run.source_bytes, run.profile.peak_memory_bytes)
    """
    result = run_script(script, tmp_path / "tok.json", tmp_path / "a.txt", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    source_bytes, peak = map(int, result.stdout.split())
    assert source_bytes > 390_000_000
    assert peak < 300_000_000


def test_thousands_of_small_files_and_of_nulls_need_no_more_memory(tok, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "corpus").mkdir()
    for i in range(3000):
        (tmp_path / "corpus" / f"{i:04}.txt").write_text(f"tale {i}")
    parquet.write_table(pa.table({"text": pa.nulls(3_000_000, pa.string())}), tmp_path / "corpus" / "nulls.parquet")
    tok.save(tmp_path / "tok.json")
    script = """
        import resource, sys, gristmill, pyarrow.parquet
        tok = gristmill.Tokenizer.load(sys.argv[1])
        tok.encode("a")
        used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
        resource.setrlimit(resource.RLIMIT_AS, (used + 1_500_000_000,) * 2)
        run = gristmill.encode_corpus(sys.argv[2], tok, out=sys.argv[3], num_threads=2, progress=None)
        print(run.num_documents, run.manifest.num_nulls, run.profile.peak_memory_bytes)
    """
    result = run_script(script, tmp_path / "tok.json", tmp_path / "corpus", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    num_documents, num_nulls, peak = map(int, result.stdout.split())
    assert (num_documents, num_nulls) == (3000, 3_000_000)
    assert peak < 300_000_000


def test_a_gigabyte_of_zeros_in_a_megabyte_is_refused_within_bounded_memory(tok, tmp_path):
    import gzip

    with gzip.open(tmp_path / "zeros.txt.gz", "wb", 1) as file:
        for _ in range(1024):
            file.write(bytes(1 << 20))
    tok.save(tmp_path / "tok.json")
    script = """
        import sys, gristmill
        from gristmill.profile import peak_memory_bytes
        tok = gristmill.Tokenizer.load(sys.argv[1])
        try:
            gristmill.encode_corpus(sys.argv[2], tok, out=sys.argv[3], progress=None)
        except gristmill.CorpusError as error:
            print(peak_memory_bytes(), error)
    """
    result = run_script(script, tmp_path / "tok.json", tmp_path / "zeros.txt.gz", tmp_path / "out")
    peak, _, message = result.stdout.partition(" ")
    assert "max_document_bytes" in message, result.stderr
    assert int(peak) < 400_000_000


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted_on_the_command_line_it_stops_at_once_and_can_go_on(tok, tmp_path, name):
    tok.save(tmp_path / "tok.json")
    path = write_jsonl(tmp_path / "a.jsonl", [random_story(1, 30_000)] * 900)
    arguments = ["encode", str(path), "-t", str(tmp_path / "tok.json"), "-o", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments, "--checkpoint-seconds", "0.02"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if (tmp_path / "out" / "progress.json").exists():
            break
        time.sleep(0.005)
    process.send_signal(getattr(signal, name))
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == {"SIGINT": 130, "SIGTERM": 143}[name], stderr
    assert "Traceback" not in stderr
    assert (tmp_path / "out" / "progress.json").exists()
    assert encode_corpus(path, tok, out=tmp_path / "out", progress=None).resumed


def test_ctrl_c_ends_the_work_on_a_hostile_piece(tok, tmp_path):
    tok.save(tmp_path / "tok.json")
    with (tmp_path / "a.txt").open("wb") as file:
        for _ in range(20):
            file.write(b"a" * 60_000_000 + b" ")
    script = """
        import os, signal, sys, threading, time, gristmill
        tok = gristmill.Tokenizer.load(sys.argv[1])
        sent = []
        def interrupt():
            time.sleep(1.5)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            gristmill.encode_corpus(sys.argv[2], tok, out=sys.argv[3], progress=None)
            print("done")
        except KeyboardInterrupt:
            seconds = time.monotonic() - sent[0]
            time.sleep(1)
            print(seconds, threading.active_count(), os.path.exists(sys.argv[3]))
    """
    result = run_script(script, tmp_path / "tok.json", tmp_path / "a.txt", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    seconds, threads, exists = result.stdout.split()
    # A loaded machine may take a while; without the interruption it would be a minute.
    assert float(seconds) < 10, result.stdout
    assert (int(threads), exists) == (1, "False"), result.stdout


def test_surroundings_and_threads_change_nothing(tok, tmp_path):
    tok.save(tmp_path / "tok.json")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    write_text(corpus / "é.txt", documents(8))
    write_jsonl(corpus / "b.jsonl", [random_story(i, 40) for i in range(50)])
    script = """
        import sys, gristmill
        tok = gristmill.Tokenizer.load(sys.argv[1])
        gristmill.encode_corpus(sys.argv[2], tok, out=sys.argv[3], shard_tokens=900, val_fraction=0.2,
                                num_threads=int(sys.argv[4]), progress=None)
    """
    found = []
    for i, (threads, environment) in enumerate(
        [(1, {}), (2, {"LC_ALL": "C", "PYTHONHASHSEED": "1"}), (7, {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2"})]
    ):
        (tmp_path / f"{i}").mkdir()
        with pytest.MonkeyPatch.context() as patch:
            for key, value in environment.items():
                patch.setenv(key, value)
            result = run_script(script, tmp_path / "tok.json", corpus, tmp_path / f"{i}" / "out", threads)
        assert result.returncode == 0, result.stderr
        found.append(digest(tmp_path / f"{i}" / "out"))
    assert found[0] == found[1] == found[2]


def test_an_input_that_changes_while_it_is_read_is_an_error(tok, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    path = write_text(tmp_path / "a.txt", documents(9, 30))
    monkeypatch.setattr("gristmill.shards.encoding.PROGRESS_SECONDS", 0)

    def append(_):
        with path.open("ab") as file:
            file.write(b"more")

    with pytest.raises(gm.InputChangedError, match=r"a\.txt"):
        encode_corpus(path, tok, out=tmp_path / "out", progress=append)
    assert not (tmp_path / "out").exists()


def test_ids_are_what_numpy_maps(tok, tmp_path):
    encode_corpus(["aab b"], tok, out=tmp_path / "out", progress=None)
    ids = np.memmap(tmp_path / "out" / "shard-00000.bin", np.uint16, "r")
    assert tok.decode(ids[:-1]) == "aab b"
