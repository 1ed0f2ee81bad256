"""A run of encode_corpus that was killed resumes, and gives the same bytes (rows 11 and 12)."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import textwrap
import time

import pytest

import gristmill as gm
from faults.broken_runs import OPTIONS, Enough, run_and_die, stop_after
from gristmill import encode_corpus
from shards.shard_corpora import digest, small_batches, write_jsonl
from texts import random_story


@pytest.mark.parametrize(("format", "num_attempts"), [("gristmill", 12), ("llmc", 8), ("megatron", 8), ("parquet", 8)])
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

        # Killed once, twice, three times: early, late, and right after it resumed.
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
        encode_corpus(corpus, tok, out=tmp_path / "out", **{**options, "progress": stop_after(num_whole // 2)})
    written.clear()
    run = encode_corpus(corpus, tok, out=tmp_path / "out", **options)
    assert run.resumed
    assert sum(written) < 0.7 * num_whole
    assert digest(tmp_path / "out") == digest(tmp_path / "judge")


def _counting_write(written):
    from gristmill.shards.writer import SplitWriter

    write = SplitWriter.write

    def counting(self, ids, ends, *, source_bytes):
        written.append(len(ids))
        write(self, ids, ends, source_bytes=source_bytes)

    return counting


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
    steps = [*range(12), *range(12, 10_000, 61)]
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
