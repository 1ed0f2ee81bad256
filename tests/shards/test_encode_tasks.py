"""Encoding in parts, by the tasks of an executor: the same bytes as a run without one, whatever fails."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_corpora import EOT, digest, documents, small_batches, text_documents, tokenizer, write_jsonl, write_text

import gristmill as gm
from gristmill import encode_corpus
from gristmill.corpus.packages import load_zstd
from gristmill.errors import EmptyCorpusError, InputChangedError, OptionError, ShardsFormatError, ShardsMismatchError
from gristmill.executors import Local, Processes
from gristmill.executors.calls import perform
from gristmill.executors.job import Job
from gristmill.executors.work_folder import LocalWorkFolder
from gristmill.shards import LAYOUTS, part_files, tasks, verify_shards
from gristmill.shards.steps import calls_of_encode, finish_encode, plan_encode
from texts import random_story


@pytest.fixture(scope="module")
def tok():
    return tokenizer()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Text with documents of all sizes, compressed JSON lines with nulls, Parquet with several row groups."""
    folder = tmp_path_factory.mktemp("corpus")
    write_text(folder / "a.txt", [*documents(1), random_story(5, 3000).encode(), b"", b""])
    write_text(folder / "b.txt", documents(2))
    lines = write_jsonl(folder / "c.jsonl", [*text_documents(3, 20), None, None])
    (folder / "c.jsonl.zst").write_bytes(load_zstd().compress(lines.read_bytes()))
    lines.unlink()
    pq.write_table(pa.table({"text": text_documents(4)}), folder / "d.parquet", row_group_size=7)
    return sorted(folder.iterdir())


def encode(corpus, tok, out, **options):
    out.parent.mkdir(exist_ok=True)
    return encode_corpus(corpus, tok, out=out, **{"progress": None, "shard_tokens": 3000, **options})


def in_parts(corpus, tok, out, *, part_bytes=3000, num_workers=2, **options):
    return encode(corpus, tok, out, executor=Local(num_workers=num_workers, part_bytes=part_bytes), **options)


def parts_of(out):
    return sorted(path.name for path in (out / ".parts").glob("encode-*.ok"))


@pytest.mark.parametrize("val_fraction", [0.0, 0.3])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_parts_give_the_folder_of_a_run_without_an_executor(tok, corpus, tmp_path, monkeypatch, layout, val_fraction):
    small_batches(monkeypatch)
    options = {"format": layout, "val_fraction": val_fraction}
    if LAYOUTS[layout].shard_tokens is None:
        options["shard_tokens"] = None
    plain = encode(corpus, tok, tmp_path / "plain" / "out", **options)
    run = in_parts(corpus, tok, tmp_path / "parts" / "out", **options)
    assert digest(tmp_path / "parts" / "out") == digest(tmp_path / "plain" / "out")
    assert run.manifest == plain.manifest
    assert run.manifest.num_nulls == 2
    assert len([task for task in run.profile.tasks if task.stage == "encode"]) > 5
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["out"]


@pytest.mark.parametrize("part_bytes", [20, 500, 10**9])
@pytest.mark.parametrize("options", [{"end_of_text_position": "before"}, {"end_of_text": None, "separator": EOT}])
def test_parts_of_any_size_give_the_same_files(tok, corpus, tmp_path, monkeypatch, part_bytes, options):
    small_batches(monkeypatch, 64)
    options = {**options, "format": "datatrove", "val_fraction": 0.3, "shard_tokens": 20_000}
    encode(corpus[:1], tok, tmp_path / "plain", **options)
    in_parts(corpus[:1], tok, tmp_path / "parts", part_bytes=part_bytes, num_workers=3, **options)
    assert digest(tmp_path / "parts") == digest(tmp_path / "plain")


def test_a_document_across_many_parts_is_one_document_in_one_split(tok, tmp_path, monkeypatch):
    small_batches(monkeypatch, 64)
    path = write_text(tmp_path / "a.txt", [random_story(i, 800).encode() for i in range(8)])
    options = {"val_fraction": 0.5, "shard_tokens": 4000}
    plain = encode(path, tok, tmp_path / "plain", **options)
    run = in_parts(path, tok, tmp_path / "parts", part_bytes=1200, **options)
    assert len([task for task in run.profile.tasks if task.stage == "encode"]) > 20
    assert all(split.documents for split in plain.manifest.splits.values())
    assert digest(tmp_path / "parts") == digest(tmp_path / "plain")


def test_other_processes_give_the_same_files_from_another_current_folder(tok, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(corpus[0].parent)
    names = [path.name for path in corpus]
    encode(names, tok, tmp_path / "plain")
    run = encode(names, tok, tmp_path / "parts", executor=Processes(num_workers=2, part_bytes=5000))
    assert digest(tmp_path / "parts") == digest(tmp_path / "plain")
    assert {task.worker for task in run.profile.tasks}.isdisjoint({str(os.getpid())})


def test_a_pattern_without_a_native_matcher_gives_the_same_files(tmp_path):
    tok = tokenizer(pattern=r"\w+|\W")
    path = write_text(tmp_path / "a.txt", documents(1, 20))
    encode(path, tok, tmp_path / "plain")
    in_parts(path, tok, tmp_path / "parts", part_bytes=1500)
    assert digest(tmp_path / "parts") == digest(tmp_path / "plain")


def test_a_work_folder_elsewhere_holds_the_parts_and_is_removed(tok, corpus, tmp_path):
    encode(corpus, tok, tmp_path / "plain" / "out")
    encode(corpus, tok, tmp_path / "parts" / "out", executor=Local(work_folder=str(tmp_path / "work")))
    assert digest(tmp_path / "parts" / "out") == digest(tmp_path / "plain" / "out")
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("stage", ["encode_part", "assemble"])
def test_a_failure_with_a_work_folder_elsewhere_leaves_the_parts_there_and_no_output(
    tok, corpus, tmp_path, monkeypatch, stage
):
    encode(corpus, tok, tmp_path / "plain" / "out")
    out, executor = tmp_path / "parts" / "out", Local(num_workers=1, part_bytes=3000, work_folder=str(tmp_path / "w"))
    original = getattr(tasks, stage)
    with monkeypatch.context() as patch:

        def fail_late(folder, number, check):
            return original(folder, number, check) if number == 0 else 1 / 0

        patch.setattr(tasks, stage, fail_late)
        with pytest.raises(ZeroDivisionError):
            encode(corpus, tok, out, executor=executor)
    assert not out.exists()
    run = encode(corpus, tok, out, executor=Processes(num_workers=1, work_folder=str(tmp_path / "w")))
    assert run.resumed
    assert digest(out) == digest(tmp_path / "plain" / "out")
    assert list((tmp_path / "w").iterdir()) == []


def test_shards_named_after_a_folder_with_any_name(tok, corpus, tmp_path):
    encode(corpus, tok, tmp_path / "plain" / "märchen 1", format="llmc")
    in_parts(corpus, tok, tmp_path / "parts" / "märchen 1", format="llmc")
    assert digest(tmp_path / "parts" / "märchen 1") == digest(tmp_path / "plain" / "märchen 1")


def test_a_file_that_ends_right_after_a_flush_began_waits_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(part_files, "FLUSHED_BYTES", 1)

    def write_many():
        for number in range(30):
            with part_files.create_checked(LocalWorkFolder(tmp_path), f"{number}") as file:
                file.write(b"ids")

    thread = threading.Thread(target=write_many, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(list(tmp_path.iterdir())) == 30


def test_damaged_inputs_are_skipped_as_without_an_executor(tok, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", text_documents(1, 10))
    (tmp_path / "b.jsonl").write_text('{"text": "good"}\nno JSON\n')
    write_jsonl(tmp_path / "c.jsonl", text_documents(2, 10))
    names = ["a.jsonl", "b.jsonl", "c.jsonl"]
    with pytest.warns(gm.SkippedInputWarning, match="1 of 3"):
        encode(names, tok, tmp_path / "plain", on_error="skip")
    with pytest.warns(gm.SkippedInputWarning, match="1 of 3"):
        executor = Processes(num_workers=1, part_bytes=10)
        encode(names, tok, tmp_path / "parts", on_error="skip", executor=executor)
    assert digest(tmp_path / "parts") == digest(tmp_path / "plain")


def test_a_corpus_without_documents_leaves_no_folder(tok, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    (tmp_path / "b.jsonl").write_text('{"text": null}\n')
    with pytest.raises(EmptyCorpusError, match=r"no documents \(1 text is null\)"):
        in_parts([tmp_path / "a.txt", tmp_path / "b.jsonl"], tok, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.jsonl"]


# Failures


def failing(monkeypatch, function, *, after, error):
    """Make a task fail after this many calls have succeeded."""
    original, calls = getattr(tasks, function), []

    def task(folder, number, check):
        calls.append(number)
        if len(calls) > after:
            raise error
        return original(folder, number, check)

    monkeypatch.setattr(tasks, function, task)
    return calls


@pytest.mark.parametrize("executor", ["local", "parts", "processes"])
@pytest.mark.parametrize("function", ["encode_part", "assemble"])
def test_what_was_finished_is_not_done_again_by_whichever_executor(
    tok, corpus, tmp_path, monkeypatch, function, executor
):
    encode(corpus, tok, tmp_path / "plain" / "out", shard_tokens=2000)
    out = tmp_path / "parts" / "out"
    with monkeypatch.context() as patch:
        failing(patch, function, after=3, error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            in_parts(corpus, tok, out, num_workers=1, shard_tokens=2000)
    done = len(parts_of(out))
    assert done >= 3
    options = {
        "local": {},
        "parts": {"executor": Local(part_bytes=77)},  # existing parts are used, whatever their size
        "processes": {"executor": Processes(num_workers=1)},
    }[executor]
    run = encode(corpus, tok, out, shard_tokens=2000, **options)
    assert run.resumed
    assert len([task for task in run.profile.tasks if task.stage == "encode" and task.is_reused]) == done
    assert any(task.is_reused for task in run.profile.tasks if task.stage == "assemble") == (function == "assemble")
    assert digest(out) == digest(tmp_path / "plain" / "out")


def test_a_full_disk_in_one_task_is_its_error_and_the_run_resumes(tok, corpus, tmp_path, monkeypatch):
    encode(corpus, tok, tmp_path / "plain" / "out")
    out = tmp_path / "parts" / "out"
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def write(self, stream, data, original=tasks.PartWriter.write):
            original(self, stream, data)
            if "00002" in self._task:
                raise full

        patch.setattr(tasks.PartWriter, "write", write)
        with pytest.raises(OSError, match="No space left") as caught:
            in_parts(corpus, tok, out, num_workers=1)
    assert caught.value.errno == errno.ENOSPC
    assert not [path for path in (out / ".parts").iterdir() if "00002" in path.name or ".tmp." in path.name]
    with pytest.raises(ShardsFormatError, match=r"unfinished"):
        gm.Shards(out)
    assert in_parts(corpus, tok, out).resumed
    assert digest(out) == digest(tmp_path / "plain" / "out")


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing", "corrupt ok"])
def test_a_damaged_file_of_a_part_is_made_again(tok, corpus, tmp_path, monkeypatch, damage):
    encode(corpus, tok, tmp_path / "plain" / "out")
    out = tmp_path / "parts" / "out"
    with monkeypatch.context() as patch:
        failing(patch, "assemble", after=0, error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            in_parts(corpus, tok, out)
    path = out / ".parts" / "encode-00001.train.ids"
    if damage == "flipped":
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
    elif damage == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    elif damage == "missing":
        path.unlink()
    else:
        (out / ".parts" / "encode-00001.ok").write_text('{"xxh64": "0", "content": "{}"}')
    run = in_parts(corpus, tok, out)
    again = {task.number for task in run.profile.tasks if task.stage == "encode" and not task.is_reused}
    assert again == {1}
    assert digest(out) == digest(tmp_path / "plain" / "out")


def test_a_shard_that_is_gone_is_assembled_again(tok, corpus, tmp_path, monkeypatch):
    encode(corpus, tok, tmp_path / "plain" / "out")
    out = tmp_path / "parts" / "out"
    with monkeypatch.context() as patch:
        patch.setattr("gristmill.shards.folder.Folder.finish", lambda self, manifest: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            in_parts(corpus, tok, out)
    (out / "shard-00001.bin").unlink()
    run = in_parts(corpus, tok, out)
    again = [(task.stage, task.number) for task in run.profile.tasks if not task.is_reused]
    assert again == [("assemble", 1)]
    assert digest(out) == digest(tmp_path / "plain" / "out")


def test_an_input_that_changed_between_plan_and_task_is_refused(tok, tmp_path):
    path = write_text(tmp_path / "a.txt", documents(1))
    planned = plan_encode(path, tok, out=tmp_path / "out", executor=Local(part_bytes=2000))
    write_text(path, documents(2))
    with pytest.raises(InputChangedError, match=r"a\.txt"):
        perform(calls_of_encode(planned.location)[0], lambda: None)
    with pytest.raises(ShardsMismatchError, match=r"a\.txt has changed"):
        in_parts(path, tok, tmp_path / "out")


def test_a_finished_folder_is_left_alone_and_other_options_are_refused(tok, corpus, tmp_path):
    out = tmp_path / "out"
    in_parts(corpus, tok, out)
    assert in_parts(corpus, tok, out).profile is None
    assert encode(corpus, tok, out).profile is None
    with pytest.raises(ShardsMismatchError, match="seed was 0 and is now 1"):
        in_parts(corpus, tok, out, seed=1)
    before = digest(out)
    in_parts(corpus, tok, out, val_fraction=0.3, overwrite=True)
    assert digest(out) != before
    assert not verify_shards(out).problems
    assert not (out / ".new").exists()


def test_unfinished_parts_of_other_options_are_refused_or_replaced(tok, corpus, tmp_path):
    out = tmp_path / "out"
    plan_encode(corpus, tok, out=out, shard_tokens=3000)
    with pytest.raises(ShardsMismatchError, match=r"unfinished.*seed was 0 and is now 1"):
        in_parts(corpus, tok, out, seed=1)
    assert not in_parts(corpus, tok, out, seed=1, overwrite=True).resumed


def test_an_unfinished_run_without_an_executor_is_refused_with_the_reason(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch, 5000)
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("gristmill.shards.output.Output.finish", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encode(corpus, tok, out, checkpoint_seconds=0)
    assert (out / "progress.json").exists()
    with pytest.raises(ShardsMismatchError, match=r"without an executor.*Run again without executor="):
        in_parts(corpus, tok, out)
    assert (out / "progress.json").exists()
    in_parts(corpus, tok, out, overwrite=True)
    assert not verify_shards(out).problems


def test_a_file_of_another_program_in_the_folder_is_never_removed(tok, corpus, tmp_path):
    out = tmp_path / "out"
    (out / ".parts").mkdir(parents=True)
    (out / ".parts" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"other files \(\.parts\)"):
        in_parts(corpus, tok, out)
    assert (out / ".parts" / "notes.txt").read_text() == "mine"


# Steps that the caller runs


def test_steps_in_any_order_give_the_same_files(tok, corpus, tmp_path):
    encode(corpus, tok, tmp_path / "plain" / "out", format="llmc")
    out = tmp_path / "steps" / "out"
    out.parent.mkdir()
    options = {"shard_tokens": 3000, "format": "llmc", "executor": Local(part_bytes=2000)}
    planned = plan_encode(corpus, tok, out=out, **options)
    assert not planned.is_resumed
    calls = calls_of_encode(planned.location)
    assert len(calls) == planned.num_parts
    for call in calls[:0:-1]:
        perform(call, lambda: None)
    with pytest.raises(ShardsFormatError, match=r"1 of \d+ parts are not encoded: 0\."):
        finish_encode(planned.location, progress=None)
    perform(calls[0], lambda: None)
    more = calls_of_encode(planned.location)[planned.num_parts :]
    assert {call.stage for call in more} == {"assemble"}
    perform(more[-1], lambda: None)
    run = finish_encode(planned.location, progress=None)
    assert len([task for task in run.profile.tasks if not task.is_reused]) == len(more) - 1
    assert digest(out) == digest(tmp_path / "plain" / "out")
    assert plan_encode(corpus, tok, out=out, **options).location is None


def test_planning_twice_takes_the_parts_that_are_there(tok, corpus, tmp_path):
    first = plan_encode(corpus, tok, out=tmp_path / "out", executor=Local(part_bytes=2000))
    second = plan_encode(corpus, tok, out=tmp_path / "out", executor=Local(part_bytes=200))
    assert second.is_resumed
    assert (second.location, second.num_parts) == (first.location, first.num_parts)


# Arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "processes", "num_threads": 2}, "num_threads=2 does not apply to executor='processes'"),
        ({"executor": Local(num_workers=2), "num_threads": 3}, "num_threads=3 contradicts num_workers=2"),
        ({"executor": "slurm"}, "executor='slurm'"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(tok, corpus, tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        encode(corpus, tok, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_documents_of_this_process_cannot_be_read_by_others(tok, tmp_path):
    with pytest.raises(OptionError, match="Pass files"):
        encode(["a tale"], tok, tmp_path / "out", executor="processes")
    assert not (tmp_path / "out").exists()


def test_a_worker_of_another_tokenizer_file_refuses_it(tok, corpus, tmp_path):
    planned = plan_encode(corpus, tok, out=tmp_path / "out", executor=Local(part_bytes=2000))
    tokenizer(300).save(tmp_path / "out" / ".parts" / "tokenizer.json")
    with pytest.raises(gm.FormatError, match="not the tokenizer of this job"):
        perform(calls_of_encode(planned.location)[0], lambda: None)


def test_a_worker_without_its_tokenizer_says_what_to_do(tok, corpus, tmp_path):
    planned = plan_encode(corpus, tok, out=tmp_path / "out", executor=Local(part_bytes=2000))
    path = tmp_path / "out" / ".parts" / "tokenizer.json"
    for damage in (lambda: path.write_bytes(path.read_bytes()[:100]), path.unlink):
        damage()
        with pytest.raises(gm.FormatError, match=r"missing or damaged. Remove the folder \S*\.parts to start again"):
            perform(calls_of_encode(planned.location)[0], lambda: None)


def test_the_job_holds_all_that_decides_the_bytes(tok, corpus, tmp_path):
    planned = plan_encode(corpus, tok, out=tmp_path / "out", val_fraction=0.25, executor=Local(part_bytes=2000))
    job = Job.read(LocalWorkFolder(tmp_path / "out" / ".parts"))
    assert job.options["options"]["val_fraction"] == 0.25
    assert [entry["name"] for entry in job.inputs] == list(map(str, corpus))
    assert len(job.parts) == planned.num_parts


KILLED = """
import os, signal, sys
import gristmill as gm
from gristmill.executors import Local
from gristmill.shards import tasks

where, out, tokenizer, *corpus = sys.argv[1:]
calls = []

def kill(original):
    def call(*arguments):
        calls.append(1)
        if len(calls) > 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)
    return call

if where == "part":
    tasks.PartWriter.finish = kill(tasks.PartWriter.finish)  # its files are there under temporary names
elif where == "shard":
    tasks._copy_tokens = kill(tasks._copy_tokens)
executor = Local(num_workers=1, part_bytes=2000)
gm.encode_corpus(corpus, tokenizer, out=out, shard_tokens=2000, progress=None, executor=executor)
"""


@pytest.mark.parametrize("where", ["part", "shard"])
def test_a_driver_that_was_killed_inside_a_task_loses_that_task_alone(tok, corpus, tmp_path, where):
    encode(corpus, tok, tmp_path / "plain" / "out", shard_tokens=2000)
    tok.save(tmp_path / "tokenizer.json")
    out = tmp_path / "parts" / "out"
    out.parent.mkdir()
    arguments = [where, out, tmp_path / "tokenizer.json", *corpus]
    killed = subprocess.run([sys.executable, "-c", KILLED, *map(str, arguments)], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run = encode(corpus, tok, out, shard_tokens=2000)
    assert run.resumed
    stage = "encode" if where == "part" else "assemble"
    assert len([task for task in run.profile.tasks if task.stage == stage and task.is_reused]) == 3
    assert digest(out) == digest(tmp_path / "plain" / "out")
    assert sorted(path.name for path in out.iterdir() if path.name.startswith(".")) == []
