"""Folders and files that someone else has prepared: planted links, files of other users, values without end.

More tests of hostile files are in test_forged_files.py, tests/lm/test_hostile_runs.py and the tests of the formats.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from pathlib import Path

import pytest

import gristmill as gm
from gristmill.analysis import named_tokenizers
from gristmill.lm.data import conversation_files
from gristmill.shards.journal import Journal

SOURCES = sorted(Path(gm.__file__).parent.rglob("*.py"))

# Modules that may use pickle or marshal, and why that is safe.
MAY_UNPICKLE = {
    "compat/cs336.py": "only with allow_pickle=True, and only plain values: classes and functions are refused",
    "lm/data/sequences/workers.py": "from a pipe between a run and its own child process",
    "pretokenize/worker.py": "marshal, from a pipe between a process and its own child process",
    "compat/chunked.py": "writes a pickle when asked, and never reads one",
}
# Modules that may import a module by a name that is not written out in the source, and where the name comes from.
MAY_IMPORT_BY_NAME = {
    "executors/calls.py": "from the driver; only names below gristmill",
    "pretokenize/worker.py": "from the parent process, as an argument",
    "bench/fresh_process.py": "from the parent process, as an argument",
}


def name_of(path):
    return path.relative_to(Path(gm.__file__).parent).as_posix()


def found_in(pattern):
    """Return the modules in which a line matches, with the matches. Comments and docstrings count too."""
    expression = re.compile(pattern, re.MULTILINE)
    matches = {name_of(path): expression.findall(path.read_text(encoding="utf-8")) for path in SOURCES}
    return {name: found for name, found in matches.items() if found}


def test_only_the_known_modules_unpickle():
    names = "pickle|marshal|shelve|dill|cloudpickle|joblib"
    assert set(found_in(rf"^\s*(?:import|from) (?:{names})\b")) == set(MAY_UNPICKLE)


def test_nothing_evaluates_code_or_loads_arrays_of_objects():
    assert found_in(r"(?<![.\w`])(?:eval|exec)\((?!\))") == {}
    assert found_in(r"torch\.load\(|yaml\.(?:unsafe_|full_)?load\(|load\(.*allow_pickle=True") == {}
    loads = [call for calls in found_in(r"n(?:um)?py?\.load\(.*$").values() for call in calls]
    assert all("allow_pickle=False" in call or "mmap_mode" in call for call in loads), loads


def test_the_file_after_plugin_is_the_only_file_that_is_executed():
    assert set(found_in(r"\.exec_module\(|runpy\.|spec_from_file_location\(")) == {"cli/plugins.py"}
    by_name = set(found_in(r"import_module\((?![\"'])"))
    assert set(MAY_IMPORT_BY_NAME) <= by_name


def test_a_link_in_a_run_of_someone_else_is_not_written_through_by_its_report(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    from recorded_runs import write_run

    run, mine = write_run(tmp_path / "run"), tmp_path / "mine"
    mine.mkdir()
    (run / "plots").symlink_to(mine)
    with pytest.raises(FileExistsError, match="symbolic link, which is not followed"):
        gm.report.write_report(run)
    assert list(mine.iterdir()) == []


def test_the_cache_of_another_user_in_the_shared_temporary_folder_is_not_used(tmp_path, monkeypatch):
    if not hasattr(os, "chown") or os.geteuid() != 0:
        pytest.skip("needs root, to give a folder to another user")
    content = b"".join(base64.b64encode(bytes([i])) + b" %d\n" % i for i in range(256))
    path = tmp_path / hashlib.sha1(named_tokenizers._URL.format("r50k_base").encode()).hexdigest()
    path.write_bytes(content)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(named_tokenizers.CHECKSUMS, "r50k_base", hashlib.sha256(content).hexdigest())
    assert named_tokenizers._in_tiktoken_cache("r50k_base") == path
    os.chown(tmp_path, 12345, 12345)
    assert named_tokenizers._in_tiktoken_cache("r50k_base") is None


def test_a_conversation_of_empty_lists_is_refused_before_it_takes_thirty_times_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(conversation_files, "MAX_LINE_ITEMS", 1000)
    (tmp_path / "a.jsonl").write_text('{"messages": [' + "[]," * 1000 + "[]]}\n")
    with pytest.raises(gm.CorpusError, match=r"a\.jsonl:1: the line has up to 2,003 values; at most 1,000"):
        list(conversation_files.read_conversations([tmp_path / "a.jsonl"]))


def test_lines_of_conversations_end_at_newlines_however_the_blocks_end(tmp_path, monkeypatch):
    records = [{"prompt": f"p{i}", "response": "r" * (i * 7 % 90)} for i in range(60)]
    text = "\n".join(map(json.dumps, records))
    for end in ("", "\n"):
        (tmp_path / "a.jsonl").write_text(text + end)
        for size in (1, 2, 3, 17, 64, 1000):
            monkeypatch.setattr(conversation_files, "BLOCK_BYTES", size)
            found = list(conversation_files.read_conversations([tmp_path / "a.jsonl"]))
            assert [each.messages[1]["content"] for each in found] == [record["response"] for record in records]
            assert [each.place.rpartition(":")[2] for each in found] == [str(i + 1) for i in range(60)]


def test_a_journal_of_more_values_than_a_manifest_may_have_is_refused(tmp_path, monkeypatch):
    data = b'{"split": "train", "file": "a"}\n' + b"[" * 50 + b"\n"
    (tmp_path / ".shards.jsonl").write_bytes(data)
    monkeypatch.setattr("gristmill.shards.journal.MAX_ITEMS", 10)
    monkeypatch.setattr(json, "loads", None)  # is not reached
    with pytest.raises(gm.ShardsFormatError, match="missing or damaged"):
        Journal(tmp_path).read({"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "shards/../../secret"])
def test_an_entry_of_a_cache_that_names_files_outside_of_it_is_made_again(name, tmp_path):
    pytest.importorskip("torch")
    from gristmill.lm.data.sequences import cache

    def make(folder):
        (folder / "train.bin").write_bytes(b"data")
        return {}

    entry = cache.find_or_make(tmp_path, {"a": 1}, make, keep_unfinished=False)
    (tmp_path / "secret").write_bytes(b"secret")
    content = json.loads((entry.folder / "meta.json").read_bytes())
    status = (tmp_path / "secret").stat()
    content["files"][name] = {"bytes": 6, "modified_ns": status.st_mtime_ns, "xxh64": "0"}
    del content["checksum"]
    content["checksum"] = hashlib.sha256(cache._dump(content)).hexdigest()
    (entry.folder / "meta.json").write_bytes(cache._dump(content))
    again = cache.find_or_make(tmp_path, {"a": 1}, make, keep_unfinished=False)
    assert again.is_new and set(again.files) == {"train.bin"}


def test_a_checkpoint_with_planted_links_is_changed_without_writing_to_their_targets(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from gristmill.lm.training import checkpoint

    folder, precious = tmp_path / "step-000001", tmp_path / "precious"
    folder.mkdir()
    precious.write_bytes(b"precious")
    for number in (os.getpid(), os.getpid() + 1):
        for name in ("state.json", "model.safetensors"):
            (folder / f".{name}.tmp.{number}").symlink_to(precious)
    state = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "step": 1, "files": {}}
    (folder / "state.json").symlink_to(precious)
    checkpoint._write_state(folder / "state.json", state)
    checkpoint.update_state(folder, {"val_loss": 2.0})
    assert checkpoint.read_state(folder)["val_loss"] == 2.0
    with pytest.raises(FileExistsError):
        checkpoint.write_tensors(folder / f".model.safetensors.tmp.{os.getpid()}", {}, None)
    assert precious.read_bytes() == b"precious"
