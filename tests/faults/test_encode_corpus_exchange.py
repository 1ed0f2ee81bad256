"""Replacing finished shards: killed at any step, links in the way, and what readers see meanwhile."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

import gristmill as gm
from faults.broken_runs import OPTIONS, run_and_die, unfinished
from gristmill import encode_corpus
from gristmill.shards import verify_shards
from shards.shard_corpora import digest, small_batches, write_jsonl

# Some file names occur in the old and the new shards, and some in only one of them.
OLD = {**OPTIONS, "shard_tokens": 2000}
NEW = {**OPTIONS, "shard_tokens": 1500, "val_fraction": 0.0, "seed": 3}
OTHER = {**OPTIONS, "shard_tokens": 2500, "format": "npy"}


@pytest.fixture
def judge(tok, corpus, tmp_path):
    """Folders called "out" with the shards of these options, made by undisturbed runs."""
    folders = {}
    for name, options in (("old", OLD), ("new", NEW), ("other", OTHER)):
        (tmp_path / name).mkdir()
        encode_corpus(corpus, tok, out=tmp_path / name / "out", **options)
        folders[name] = tmp_path / name / "out"
    names = {name: set(digest(folder)) for name, folder in folders.items()}
    assert names["old"] - names["new"] and names["new"] - names["old"] and names["old"] & names["new"]
    return folders


def everything(folder):
    """Return all names in the folder, with the content of the files."""
    return sorted(path.name for path in folder.iterdir()), digest(folder)


def before_the_exchange(judge, out):
    """The old shards, and the complete new ones in `.new`, as a run leaves them just before the exchange."""
    shutil.copytree(judge["old"], out)
    shutil.copytree(judge["new"], out / ".new")


def exchange(out):
    from gristmill.shards.exchange import exchange

    exchange(out)


def killed_in_the_exchange(judge, folder):
    """A folder for each step of the exchange, killed before that step."""
    for step in range(1000):
        out = folder / f"{step}" / "out"
        out.parent.mkdir()
        before_the_exchange(judge, out)
        was_killed = run_and_die(step, lambda out=out: exchange(out))
        yield out
        if not was_killed:
            assert step > 15
            return


def test_killed_at_any_step_the_same_command_finishes_and_others_may_follow(tok, corpus, judge, tmp_path):
    (tmp_path / "runs").mkdir()
    for out in killed_in_the_exchange(judge, tmp_path / "runs"):
        is_complete = (out / ".new" / "manifest.json").exists()
        run = encode_corpus(corpus, tok, out=out, overwrite=True, **NEW)
        assert run.profile is None or not is_complete  # complete shards are not made again
        assert everything(out) == everything(judge["new"])
        encode_corpus(corpus, tok, out=out, overwrite=True, **OTHER)
        assert everything(out) == everything(judge["other"])


def test_killed_at_any_step_another_overwrite_or_a_run_without_one_works_at_once(tok, corpus, judge, tmp_path):
    (tmp_path / "runs").mkdir()
    for out in killed_in_the_exchange(judge, tmp_path / "runs"):
        copy = out.parent / "copy" / "out"
        shutil.copytree(out, copy)
        assert encode_corpus(corpus, tok, out=copy, **NEW).profile is None
        assert everything(copy) == everything(judge["new"])
        encode_corpus(corpus, tok, out=out, overwrite=True, **OTHER)
        assert everything(out) == everything(judge["other"])


def test_killed_at_every_second_step_of_a_whole_overwrite(tok, corpus, judge, tmp_path):
    for step in range(0, 1000, 2):
        out = tmp_path / "runs" / f"{step}" / "out"
        shutil.copytree(judge["old"], out)
        was_killed = run_and_die(step, lambda out=out: encode_corpus(corpus, tok, out=out, overwrite=True, **NEW))
        encode_corpus(corpus, tok, out=out, overwrite=True, **NEW)
        assert everything(out) == everything(judge["new"])
        shutil.rmtree(out)
        if not was_killed:
            break
    assert step > 40


def test_readers_in_the_middle_of_the_exchange_get_an_error_that_says_what_to_do(judge, tmp_path):
    (tmp_path / "runs").mkdir()
    num_without = 0
    for out in killed_in_the_exchange(judge, tmp_path / "runs"):
        if (out / "manifest.json").exists():
            assert digest(out)["manifest.json"] in [digest(judge[name])["manifest.json"] for name in ("old", "new")]
            continue
        num_without += 1
        for read in (gm.Shards, verify_shards, gm.Manifest.read):
            with pytest.raises(gm.ShardsFormatError, match=r"being replaced.*encode_corpus\(\) again"):
                read(out)
    assert num_without > 10


def test_a_file_of_another_program_in_the_new_folder_stops_the_exchange_before_it_begins(tok, corpus, judge, tmp_path):
    out = tmp_path / "out"
    before_the_exchange(judge, out)
    (out / ".new" / "thesis.tex").write_text("precious")
    before = digest(out)
    with pytest.raises(FileExistsError, match=r"thesis\.tex"):
        encode_corpus(corpus, tok, out=out, overwrite=True, **NEW)
    assert digest(out) == before
    (out / ".new" / "thesis.tex").unlink()
    encode_corpus(corpus, tok, out=out, overwrite=True, **NEW)
    assert everything(out) == everything(judge["new"])


def test_a_file_of_another_program_with_the_name_of_a_new_shard_is_not_replaced(judge, tmp_path):
    out = tmp_path / "out"
    before_the_exchange(judge, out)
    name = sorted(set(digest(judge["new"])) - set(digest(judge["old"])))[0]
    (out / name).write_text("precious")
    with pytest.raises(FileExistsError, match=name):
        exchange(out)
    assert (out / name).read_text() == "precious"
    assert gm.Manifest.read(out) == gm.Manifest.read(judge["old"])


def test_shards_in_the_folder_of_the_corpus_are_no_input_while_they_are_being_replaced(tok, tmp_path):
    pytest.importorskip("pyarrow")
    write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    options = {"format": "parquet", "progress": None}
    out = tmp_path / "out"
    encode_corpus(tmp_path, tok, out=out, **options)
    (tmp_path / "new").mkdir()
    for path in [path for path in out.iterdir() if path.suffix == ".json"]:
        shutil.copy(path, tmp_path / "new")
    (tmp_path / "new").rename(out / ".new")
    (out / "manifest.json").rename(out / ".replaced.json")
    assert encode_corpus(tmp_path, tok, out=out, **options).profile is None


# Links


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_new_folder_that_is_a_link_is_refused_and_what_it_leads_to_stays(tok, corpus, judge, tmp_path, overwrite):
    out = tmp_path / "out"
    shutil.copytree(judge["old"], out)
    (out / ".new").symlink_to(judge["new"])
    before = everything(judge["new"]), everything(out)
    with pytest.raises(FileExistsError, match=r"symbolic link.*\.new"):
        encode_corpus(corpus, tok, out=out, overwrite=overwrite, **NEW)
    assert (everything(judge["new"]), everything(out)) == before


def test_a_new_folder_that_is_a_link_to_nothing_or_a_file_is_refused(tok, corpus, judge, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(judge["old"], out)
    (out / ".new").symlink_to(tmp_path / "nothing")
    with pytest.raises(FileExistsError, match=r"symbolic link.*\.new"):
        encode_corpus(corpus, tok, out=out, overwrite=True, **NEW)
    (out / ".new").unlink()
    (out / ".new").write_text("precious")
    with pytest.raises(FileExistsError, match=r"not a folder.*\.new"):
        encode_corpus(corpus, tok, out=out, overwrite=True, **NEW)
    assert (out / ".new").read_text() == "precious"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_what_links_in_the_folder_lead_to_is_neither_changed_nor_removed(tok, corpus, tmp_path, monkeypatch, state):
    """As in the cache of a hub, where every file of a folder is a link."""
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    if state == "finished":
        encode_corpus(corpus, tok, out=out, **OPTIONS)
    else:
        unfinished(corpus, tok, out)
    elsewhere.mkdir()
    for path in list(out.iterdir()):
        path.rename(elsewhere / path.name)
        path.symlink_to(elsewhere / path.name)
    before = digest(elsewhere)
    encode_corpus(corpus, tok, out=out, overwrite=True, **NEW)
    assert digest(elsewhere) == before
    assert [path.name for path in out.iterdir() if path.is_symlink()] == []
    (tmp_path / "judge").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "judge" / "out", **NEW)
    assert digest(out) == digest(tmp_path / "judge" / "out")


def test_a_folder_that_has_the_name_of_a_shard_is_refused_and_nothing_is_removed(tok, corpus, existing):
    (existing / "shard-90000.bin").mkdir()
    (existing / ".shard-90000.bin.part").mkdir()
    before = digest(existing)
    with pytest.raises(FileExistsError, match=r"shard-90000\.bin"):
        encode_corpus(corpus, tok, out=existing, overwrite=True, **{**OPTIONS, "seed": 9})
    assert digest(existing) == before


def test_killed_at_any_step_of_giving_up_an_unfinished_run_of_another_kind(tok, corpus, tmp_path, monkeypatch):
    small_batches(monkeypatch)
    monkeypatch.setattr("gristmill.shards.meter.REPORT_SECONDS", 0)
    (tmp_path / "judge").mkdir()
    encode_corpus(corpus, tok, out=tmp_path / "judge" / "out", **OTHER)
    unfinished(corpus, tok, tmp_path / "begun")
    num_files = len(list((tmp_path / "begun").iterdir()))
    for step in range(num_files + 5):
        out = tmp_path / "runs" / f"{step}" / "out"
        shutil.copytree(tmp_path / "begun", out)
        assert run_and_die(step, lambda out=out: encode_corpus(corpus, tok, out=out, overwrite=True, **OTHER))
        encode_corpus(corpus, tok, out=out, overwrite=True, **OTHER)
        assert everything(out) == everything(tmp_path / "judge" / "out")


@pytest.mark.parametrize("call", ["replace", "unlink"])
def test_an_exchange_that_fails_at_any_step_is_finished_by_the_next_run(
    tok, corpus, judge, tmp_path, monkeypatch, call
):
    for step in range(1000):
        out = tmp_path / "runs" / f"{step}" / "out"
        out.parent.mkdir(parents=True)
        before_the_exchange(judge, out)
        with monkeypatch.context() as patch:
            left = step
            real = getattr(Path, call)

            def failing(*arguments, **options):
                nonlocal left
                left -= 1
                if left == -1:
                    raise OSError(errno.EIO, "broken", str(arguments[0]))
                return real(*arguments, **options)  # noqa: B023

            patch.setattr(Path, call, failing)
            try:
                encode_corpus(corpus, tok, out=out, overwrite=True, **NEW)
                has_failed = False
            except OSError as error:
                has_failed = error.errno == errno.EIO
        encode_corpus(corpus, tok, out=out, overwrite=True, **NEW)
        assert everything(out) == everything(judge["new"])
        if not has_failed:
            break
    assert step > 5
