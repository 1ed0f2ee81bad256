"""What may be in the output folder before a run, and what is never touched (rows 16 and 17)."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

import gristmill as gm
from faults.broken_runs import OPTIONS, Enough, stop_after, unfinished
from gristmill import encode_corpus
from shards.shard_corpora import digest, small_batches, write_jsonl
from texts import random_story


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"shard_tokens": 900}, "shard_tokens was 700 and is now 900"),
        ({"format": "npy"}, "layout was gristmill and is now npy"),
        ({"end_of_text": "<|pad|>"}, "end-of-text token was '<|endoftext|>' (id "),
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


def test_another_tokenizer_is_refused_and_what_differs_is_named(tok, corpus, existing):
    specials = list(tok.special_tokens)
    for other, message in (
        (tok.truncated(390), r"vocab_size was 400 and is now 390, .*merge 132 is gone: b'.+' \+ b'.+', and 9 after it"),
        (gm.Tokenizer(tok.merges, special_tokens=specials, pattern="o200k"), "the pattern was .* and is now 'o200k'"),
        (gm.Tokenizer(tok.merges, special_tokens=[*specials[:1], "<x>"]), r"'<\|pad\|>' is gone, .*'<x>' is new"),
        (gm.Tokenizer(tok.merges, special_tokens=specials[::-1]), r"had the id 39\d and now has 39\d"),
        (gm.Tokenizer([*tok.merges[:-1], (b"a", b"\x01")], special_tokens=specials), r"merge 141 was .* now b'a' \+"),
    ):
        with pytest.raises(gm.ShardsMismatchError, match=rf"the tokenizer is different \(.*{message}"):
            encode_corpus(corpus, other, out=existing, **{**OPTIONS, "end_of_text": specials[0]})


def test_another_tokenizer_is_refused_where_that_of_the_shards_is_gone(tok, corpus, existing):
    (existing / "tokenizer.json").unlink()
    with pytest.raises(gm.ShardsMismatchError, match=r"missing or damaged.*overwrite=True"):
        encode_corpus(corpus, tok.truncated(390), out=existing, **OPTIONS)


def test_a_tokenizer_that_differs_in_its_tie_break_alone_is_the_same_one(tok, corpus, existing):
    other = gm.Tokenizer(tok.merges, special_tokens=list(tok.special_tokens), tie_break="huggingface")
    assert other.fingerprint == tok.fingerprint
    encode_corpus(corpus, other, out=existing, **OPTIONS)


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
        gm.ShardsMismatchError,
        match=r"a\.txt has changed|b\.jsonl was an input of the earlier run|c\.jsonl is new|order of the inputs",
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
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    out = tmp_path / "out"
    encode_corpus(corpus, tok, out=out, **OPTIONS)
    before = digest(out)
    with pytest.raises(Enough):
        encode_corpus(
            corpus, tok, out=out, overwrite=True, **{**OPTIONS, "seed": 3, "progress": stop_after(2000)},
            checkpoint_seconds=0,
        )  # fmt: skip
    assert digest(out) == before
    run = encode_corpus(corpus, tok, out=out, overwrite=True, **{**OPTIONS, "seed": 3})
    assert run.resumed and run.manifest.options["seed"] == 3
    assert digest(out) != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "out"]


def test_a_shard_that_is_gone_is_detected_when_a_run_resumes_or_is_complete(tok, corpus, existing):
    shard = sorted(existing.glob("shard-*.bin"))[0]
    data = shard.read_bytes()
    shard.unlink()
    with pytest.raises(gm.ShardsFormatError, match=shard.name):
        encode_corpus(corpus, tok, out=existing, **OPTIONS)
    shard.write_bytes(data[:-2])
    with pytest.raises(gm.ShardsFormatError, match="its size has changed"):
        encode_corpus(corpus, tok, out=existing, **OPTIONS)
    shard.write_bytes(data)
    encode_corpus(corpus, tok, out=existing, **OPTIONS)


def test_leftovers_of_a_kill_right_after_the_manifest_are_removed(tok, corpus, tmp_path):
    encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    expected = digest(tmp_path / "out")
    for name in ("progress.json", ".request.json", ".shard-00001.bin.ends.part", ".manifest.json.tmp.123"):
        (tmp_path / "out" / name).write_text("left")
    assert encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS).profile is None
    assert digest(tmp_path / "out") == expected


def test_a_run_whose_batches_end_elsewhere_is_not_resumed(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    unfinished(corpus, tok, tmp_path / "out")
    monkeypatch.setattr("gristmill.corpus.batches.VERSION", 99)
    with pytest.raises(gm.ShardsFormatError, match="another version"):
        encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    run = encode_corpus(corpus, tok, out=tmp_path / "out", overwrite=True, **OPTIONS)
    assert not run.resumed


def test_an_input_that_was_skipped_ahead_of_a_checkpoint_is_judged_again(tok, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    paths = [write_jsonl(tmp_path / f"{i}.jsonl", [random_story(i, 100)] * 20) for i in range(4)]
    read = gm.corpus.threads.read_batches
    failing = [True]

    def sometimes(input, *arguments, **options):
        if input.name.endswith("3.jsonl") and failing[0]:
            raise OSError(errno.EIO, "Input/output error", input.name)
        return read(input, *arguments, **options)

    monkeypatch.setattr("gristmill.corpus.threads.read_batches", sometimes)
    options = {"on_error": "skip", "num_threads": 4, "checkpoint_seconds": 0}
    with pytest.raises(Enough):
        encode_corpus(paths, tok, out=tmp_path / "out", progress=stop_after(1), **options)
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
    with pytest.raises(FileNotFoundError, match="The parent of the output folder does not exist"):
        encode_corpus(corpus, tok, out=tmp_path / "none" / "out", **OPTIONS)
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(PermissionError):
            encode_corpus(corpus, tok, out=tmp_path / "closed" / "out", **OPTIONS)
    assert list((tmp_path / "real").iterdir()) == []
    assert (tmp_path / "other" / "thesis.tex").read_text() == (tmp_path / "file").read_text() == "precious"


def test_links_inside_the_folder_are_not_followed(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
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
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    unfinished(corpus, tok, tmp_path / "out")
    before = digest(tmp_path / "out")
    with pytest.raises(gm.ShardsMismatchError, match="iterable"):
        encode_corpus(["a"], tok, out=tmp_path / "out", **OPTIONS)
    assert digest(tmp_path / "out") == before


def test_the_output_may_be_in_the_folder_of_the_corpus(tok, tmp_path):
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


def test_damaged_progress_and_a_missing_part_are_reported_and_overwrite_starts_again(
    tok, corpus, tmp_path, monkeypatch
):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
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


# Hidden names that look like ours, but that no run with this layout uses in this folder.
FOREIGN = [".notes.part", ".draft.tmp.12", ".train-00000.npy.part", ".shard-7.bin.part", ".thesis.ends.part"]


def test_hidden_files_of_others_are_not_removed_when_the_shards_are_asked_for_again(tok, corpus, existing):
    for name in FOREIGN:
        (existing / name).write_text("precious")
    encode_corpus(corpus, tok, out=existing, **OPTIONS)
    assert [name for name in FOREIGN if not (existing / name).exists()] == []
    with pytest.raises(FileExistsError, match=r"\.draft\.tmp\.12, \.notes\.part"):
        encode_corpus(corpus, tok, out=existing, overwrite=True, **{**OPTIONS, "seed": 9})


def test_hidden_files_of_others_are_not_removed_when_a_run_fails(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    out = tmp_path / "out"

    def put_files_and_stop(report):
        for name in FOREIGN:
            (out / name).write_text("precious")
        stop_after(2000)(report)

    for checkpoint_seconds in (1000, 0):  # without and with a checkpoint
        with pytest.raises(Enough):
            encode_corpus(
                corpus, tok, out=out, checkpoint_seconds=checkpoint_seconds, shard_tokens=100_000,
                progress=put_files_and_stop,
            )  # fmt: skip
        assert [name for name in FOREIGN if not (out / name).exists()] == []
        shutil.rmtree(out)


def broken_corpus():
    yield "fine"
    raise RuntimeError("the source broke")


def test_a_progress_file_of_another_program_does_not_make_the_folder_ours(tok, tmp_path):
    for name, data in {"progress.json": '{"epoch": 3}', "train.bin": "weights", "tokenizer.json": "{}"}.items():
        (tmp_path / name).write_text(data)
    before = digest(tmp_path)
    with pytest.raises(FileExistsError, match="The folder holds other files"):
        encode_corpus(broken_corpus(), tok, out=tmp_path, format="nanogpt", overwrite=True, progress=None)
    assert digest(tmp_path) == before


def test_a_failed_run_leaves_an_empty_folder_that_was_there_before_it(tok, tmp_path):
    (tmp_path / "mine").mkdir(mode=0o750)
    for out in ("mine", "new"):
        with pytest.raises(RuntimeError, match="the source broke"):
            encode_corpus(broken_corpus(), tok, out=tmp_path / out, progress=None)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize("overwrite", ["no", "False", 1, None])
def test_only_true_and_false_say_whether_to_overwrite(tok, tmp_path, overwrite):
    with pytest.raises(gm.OptionError, match=r"overwrite=.*Pass True or False"):
        encode_corpus(["text"], tok, out=tmp_path / "out", overwrite=overwrite, progress=None)


def test_an_empty_name_of_the_folder_is_refused(tok):
    with pytest.raises(gm.OptionError, match="out is empty"):
        encode_corpus(["text"], tok, out="", progress=None)


def test_an_unfinished_run_whose_files_are_named_after_the_folder_notices_that_it_was_renamed(
    tok, corpus, tmp_path, monkeypatch
):
    options = {**OPTIONS, "format": "llmc"}
    encode_corpus(corpus, tok, out=tmp_path / "new", **options)
    expected = digest(tmp_path / "new")
    shutil.rmtree(tmp_path / "new")

    def stop(self, checkpoint):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gristmill.shards.folder.Folder._put_in_order", lambda self: None)  # as after a kill
        patch.setattr("gristmill.shards.folder.Folder.save", stop)
        with pytest.raises(KeyboardInterrupt):
            encode_corpus(corpus, tok, out=tmp_path / "old", checkpoint_seconds=0, **options)
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(gm.ShardsMismatchError, match="the old name 'old'"):
        encode_corpus(corpus, tok, out=tmp_path / "new", **options)
    encode_corpus(corpus, tok, out=tmp_path / "new", overwrite=True, **options)
    assert digest(tmp_path / "new") == expected


@pytest.mark.parametrize("damage", ["tokenizer.json", "shard-00000.idx"])
def test_finished_shards_are_not_called_complete_without_their_tokenizer_or_with_a_cut_index(
    tok, corpus, tmp_path, damage
):
    encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
    path = tmp_path / "out" / damage
    if path.suffix == ".idx":
        os.truncate(path, 8)
    else:
        path.unlink()
    with pytest.raises(gm.ShardsFormatError, match=damage):
        encode_corpus(corpus, tok, out=tmp_path / "out", **OPTIONS)
