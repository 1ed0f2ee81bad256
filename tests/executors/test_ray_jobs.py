"""Counting and encoding on a real Ray cluster: the same bytes as one process, whatever fails."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gristmill as gm
from gristmill.corpus.packages import load_zstd
from gristmill.executors.calls import perform
from gristmill.shards.steps import calls_of_encode, plan_encode
from shards.shard_corpora import digest, documents, text_documents, tokenizer, write_jsonl, write_text
from texts import random_story

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def tok():
    return tokenizer()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Text, compressed JSON lines and Parquet with several row groups."""
    folder = tmp_path_factory.mktemp("corpus")
    write_text(folder / "a.txt", [*documents(1), random_story(5, 3000).encode()])
    lines = write_jsonl(folder / "b.jsonl", [*text_documents(3, 20), None])
    (folder / "b.jsonl.zst").write_bytes(load_zstd().compress(lines.read_bytes()))
    lines.unlink()
    pq.write_table(pa.table({"text": text_documents(4)}), folder / "c.parquet", row_group_size=7)
    return sorted(folder.iterdir())


def encode(corpus, tok, out, **options):
    return gm.encode_corpus(corpus, tok, out=out, **{"progress": None, "shard_tokens": 3000, **options})


@pytest.fixture(scope="module")
def expected(corpus, tok, tmp_path_factory):
    """Return the digest of the shards, and the counted words, of one process without parts."""
    folder = tmp_path_factory.mktemp("expected")
    encode(corpus, tok, folder / "shards", val_fraction=0.2)
    gm.count_words(corpus, progress=None).save(folder / "words.gmw")
    return digest(folder / "shards"), (folder / "words.gmw").read_bytes()


@pytest.mark.parametrize(("num_workers", "num_partitions"), [(1, 1), (2, 4), (3, 7)])
def test_any_number_of_workers_and_partitions_gives_the_bytes_of_one_process(
    cluster, corpus, tok, expected, tmp_path, monkeypatch, num_workers, num_partitions
):
    asked = []
    monkeypatch.setattr(
        "gristmill.count.distributed.default_partitions", lambda *sizes: asked.append(sizes) or num_partitions
    )
    executor = gm.Ray(num_workers=num_workers, part_bytes=5000)
    run = encode(corpus, tok, tmp_path / "shards", val_fraction=0.2, executor=executor)
    assert digest(tmp_path / "shards") == expected[0]
    assert len([task for task in run.profile.tasks if task.stage == "encode"]) > 3
    words = gm.count_words(corpus, progress=None, executor=executor)
    words.save(tmp_path / "words.gmw")
    assert (tmp_path / "words.gmw").read_bytes() == expected[1]
    assert asked
    assert {task.worker for task in run.profile.tasks}.isdisjoint({str(os.getpid())})


def kill_workers(stage: str, killed: list[int], enough: int) -> None:
    """Kill processes of Ray while they run a task of this stage. Ray names them after their task."""
    deadline = time.monotonic() + 30
    while len(killed) < enough and time.monotonic() < deadline:
        for process in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{process}/cmdline").read_bytes()
                if title.startswith(b"ray::" + stage.encode()) and int(process) not in killed:
                    os.kill(int(process), signal.SIGKILL)
                    killed.append(int(process))
                    break
        time.sleep(0.002)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_workers_that_are_killed_change_no_byte(cluster, tok, tmp_path):
    path = write_text(tmp_path / "a.txt", [random_story(i, 20_000).encode() for i in range(12)])
    encode(path, tok, tmp_path / "plain", shard_tokens=100_000)
    killed: list[int] = []
    killer = threading.Thread(target=kill_workers, args=("encode-", killed, 2))
    killer.start()
    encode(path, tok, tmp_path / "ray", shard_tokens=100_000, executor=gm.Ray(part_bytes=50_000))
    killer.join()
    assert digest(tmp_path / "ray") == digest(tmp_path / "plain")
    assert len(killed) == 2


def test_a_job_that_threads_began_is_finished_although_its_files_were_damaged(cluster, corpus, tok, expected, tmp_path):
    out = tmp_path / "shards"
    options = {"shard_tokens": 3000, "val_fraction": 0.2, "executor": gm.Local(part_bytes=5000)}
    planned = plan_encode(corpus, tok, out=out, **options)
    calls = calls_of_encode(planned.location)
    for call in calls[:4]:
        perform(call, lambda: None)
    (out / ".parts" / "encode-00001.ok").write_bytes(b"{}")
    data = next((out / ".parts").glob("encode-00002.*[!k]"))
    data.write_bytes(data.read_bytes()[:-7])
    run = encode(corpus, tok, out, val_fraction=0.2, executor=gm.Ray())
    assert digest(out) == expected[0]
    reused = {task.number for task in run.profile.tasks if task.stage == "encode" and task.is_reused}
    assert reused == {0, 3}


def test_an_input_that_changes_after_the_plan_is_refused_and_nothing_is_published(cluster, corpus, tok, tmp_path):
    path = write_text(tmp_path / "a.txt", documents(1))
    planned = plan_encode(path, tok, out=tmp_path / "shards", executor=gm.Local(part_bytes=3000))
    path.write_bytes(path.read_bytes() + b"more")
    calls = calls_of_encode(planned.location)
    with gm.Ray().open() as workers:
        ticket = workers.submit(calls[0])
        finished = []
        while not finished:
            finished = workers.wait(1)
    assert [one.ticket for one in finished] == [ticket]
    assert isinstance(finished[0].error, gm.InputChangedError)
    assert not list((tmp_path / "shards").glob("*.bin")) and not (tmp_path / "shards" / "manifest.json").exists()


def test_a_damaged_input_is_the_error_of_a_run_without_a_cluster(cluster, corpus, tok, tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(corpus[1].read_bytes()[:-20])
    errors = []
    for executor in (gm.Local(), gm.Ray()):
        with pytest.raises(gm.TruncatedInputError) as caught:
            encode(path, tok, tmp_path / executor.name, executor=executor)
        errors.append((str(caught.value), caught.value.path, caught.value.offset))
        assert not (tmp_path / executor.name / "manifest.json").exists()
    assert errors[0] == errors[1]
