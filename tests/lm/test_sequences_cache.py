"""The cache: built once, atomically, and rebuilt when it is damaged or the input changes."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gristmill as gm
from gristmill import lock
from gristmill.lm.data.sequences import cache, open_sequences
from gristmill.lm.data.sequences.cache import cache_root
from gristmill.lock import waiting_lock
from lm.tiny_runs import texts, tokenizer
from scripts import run_script

KINDS = ["text", "tokens", "vectors"]
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")


def write(path, kind, seed=0, number=60):
    rng = np.random.default_rng(seed)
    column = {
        "text": texts(number, seed),
        "tokens": [rng.integers(0, 300, 1 + i % 9).tolist() for i in range(number)],
        "vectors": [rng.standard_normal((1 + i % 5, 3)).tolist() for i in range(number)],
    }[kind]
    pq.write_table(pa.table({kind: column}), path)
    return path


def opened(path, kind, folder, **options):
    named = {"text": {"tokenizer": tokenizer()}, "tokens": {}, "vectors": {"embedding_columns": "vectors"}}[kind]
    return open_sequences(path, cache_dir=folder, **{"val_fraction": 0.1, **named, **options})


def content(data):
    return [
        [source.read(i).tolist() for i in range(source.num_sequences)]
        for source in (data.train, data.val)
        if source is not None
    ]


def entries(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def was_made(data):
    return any("converted to a cache" in message for message in data.messages)


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_run_reads_the_cache_and_not_the_input(tmp_path, kind, monkeypatch):
    path = write(tmp_path / "a.parquet", kind)
    first = opened(path, kind, tmp_path / "cache")
    monkeypatch.setattr(cache, "_make", None)
    second = opened(path, kind, tmp_path / "cache")
    assert was_made(first) and not was_made(second)
    assert content(first) == content(second) and first.identity == second.identity
    assert first.embedding_dim == second.embedding_dim and first.vocab_size == second.vocab_size
    # Another maximum length uses the same cache.
    assert opened(path, kind, tmp_path / "cache", max_sequence_length=2).train.lengths_N.max() == 2


@pytest.mark.parametrize("kind", KINDS)
def test_another_input_or_option_is_another_cache(tmp_path, kind):
    path, folder = write(tmp_path / "a.parquet", kind), tmp_path / "cache"
    datas = [opened(path, kind, folder), opened(path, kind, folder, val_fraction=0.3)]
    datas.append(opened(path, kind, folder, seed=4))
    os.utime(write(path, kind, seed=1), ns=(1, 1))
    datas.append(opened(path, kind, folder))
    assert len(entries(folder)) == 4
    assert len({data.identity["fingerprint"] for data in datas}) == 4
    assert all(map(was_made, datas))


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_cache_is_made_again(tmp_path, kind):
    path, folder = write(tmp_path / "a.parquet", kind), tmp_path / "cache"
    expected = content(opened(path, kind, folder))
    (entry,) = entries(folder)
    files = [file for file in (folder / entry).rglob("*") if file.is_file()]
    assert len(files) >= 5
    for file in files:
        data = file.read_bytes()
        for damaged in (data[:-1], data[: len(data) // 2] + b"\0" + data[len(data) // 2 + 1 :] + b" ", None):
            file.unlink(missing_ok=True)
            if damaged is not None:
                file.write_bytes(damaged)
            again = opened(path, kind, folder)
            assert was_made(again) and content(again) == expected
        flipped = bytearray(file.read_bytes())
        flipped[len(flipped) // 2] ^= 1
        file.write_bytes(flipped)  # of the same size
        again = opened(path, kind, folder)
        assert was_made(again) and content(again) == expected


def test_a_cache_that_was_copied_is_compared_by_its_checksums_and_kept(tmp_path):
    path, folder = write(tmp_path / "a.parquet", "tokens"), tmp_path / "cache"
    opened(path, "tokens", folder)
    (entry,) = entries(folder)
    for file in (folder / entry).iterdir():
        os.utime(file, ns=(5, 5))
    assert not was_made(opened(path, "tokens", folder))


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path):
    path, folder = write(tmp_path / "a.parquet", "tokens"), tmp_path / "cache"
    opened(path, "tokens", folder)
    file = folder / entries(folder)[0] / "train.bin"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert was_made(opened(path, "tokens", folder)) and not file.is_symlink()


def test_the_place_of_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root(None) == tmp_path / "xdg" / "gristmill"
    assert cache_root(tmp_path / "own") == tmp_path / "own"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root(None) == tmp_path / ".cache" / "gristmill"
    opened(write(tmp_path / "a.parquet", "tokens"), "tokens", None)
    assert len(entries(tmp_path / ".cache" / "gristmill")) == 1


def test_a_place_that_cannot_be_written_to_names_the_option(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Pass another cache_dir"):
        opened(write(tmp_path / "a.parquet", "tokens"), "tokens", tmp_path / "file" / "cache")


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_leaves_no_files(tmp_path, kind, monkeypatch):
    path, folder = write(tmp_path / "a.parquet", kind), tmp_path / "cache"

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_describe", full)
    with pytest.raises(OSError, match="No space left"):
        opened(path, kind, folder)
    assert entries(folder) == []
    monkeypatch.undo()
    assert was_made(opened(path, kind, folder))


def test_a_file_that_changes_while_it_is_read_is_an_error_and_not_cached(tmp_path, monkeypatch):
    path, folder = write(tmp_path / "a.parquet", "tokens"), tmp_path / "cache"
    write_rows = gm.lm.data.sequences.parquet_cache._write

    def and_touch(*arguments):
        write_rows(*arguments)
        os.utime(path, ns=(7, 7))

    monkeypatch.setattr(gm.lm.data.sequences.parquet_cache, "_write", and_touch)
    with pytest.raises(gm.InputChangedError):
        opened(path, "tokens", folder)
    assert entries(folder) == []


# Several processes, and processes that are killed

# Children of one process that has imported everything already, which starts them faster.
SCRIPT = """
    import os, random, signal, sys, time
    import pyarrow.parquet
    from gristmill.lm.data.sequences import cache, open_sequences
    path, folder, kind, tok, task = sys.argv[1:]
    named = {"text": {"tokenizer": tok}, "tokens": {}, "vectors": {"embedding_columns": "vectors"}}[kind]

    def child():
        number = os.fork()
        if number:
            return number
        data = open_sequences(path, cache_dir=folder, val_fraction=0.1, **named)
        os.write(1, f"{data.identity} {any('to a cache' in message for message in data.messages)}\\n".encode())
        os._exit(0)

    if task == "together":
        for number in [child() for _ in range(4)]:
            assert os.waitpid(number, 0)[1] == 0
    elif task == "killed":
        source = random.Random(1)
        for _ in range(8):
            number = child()
            time.sleep(source.uniform(0, 0.1))
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
    else:
        print("about to wait", flush=True)
        open_sequences(path, cache_dir=folder, val_fraction=0.1, **named)
"""


@pytest.fixture
def saved_tokenizer(tmp_path):
    tokenizer().save(tmp_path / "tok.json")
    return tmp_path / "tok.json"


@linux
@pytest.mark.parametrize("kind", ["text", "vectors"])
def test_several_processes_make_it_once(tmp_path, saved_tokenizer, kind):
    path, folder = write(tmp_path / "a.parquet", kind, number=2000), tmp_path / "cache"
    answer = run_script(SCRIPT, path, folder, kind, saved_tokenizer, "together")
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = [line.rpartition(" ") for line in answer.stdout.splitlines()]
    assert len({identity for identity, _, _ in lines}) == 1
    assert sorted(made for _, _, made in lines) == ["False", "False", "False", "True"]


@linux
@pytest.mark.parametrize("kind", KINDS)
def test_processes_that_are_killed_at_any_moment_do_no_harm(tmp_path, saved_tokenizer, kind):
    path, folder = write(tmp_path / "a.parquet", kind, number=3000), tmp_path / "cache"
    expected = opened(path, kind, tmp_path / "undisturbed")
    answer = run_script(SCRIPT, path, folder, kind, saved_tokenizer, "killed")
    assert (answer.returncode, answer.stderr) == (0, "")
    data = opened(path, kind, folder)
    assert content(data) == content(expected) and data.identity == expected.identity
    assert len(entries(folder)) == 1


@linux
def test_waiting_for_another_process_can_be_interrupted(tmp_path, saved_tokenizer):
    path, folder = write(tmp_path / "a.parquet", "tokens"), tmp_path / "cache"
    opened(path, "tokens", folder)
    (entry,) = entries(folder)
    (folder / entry / "meta.json").unlink()
    arguments = [path, folder, "tokens", saved_tokenizer, "alone"]
    with waiting_lock(folder / f".{entry}.lock"):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "about to wait\n"
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert error.rstrip().endswith("KeyboardInterrupt")


@linux
def test_a_long_wait_for_another_process_is_a_warning_that_names_it(tmp_path, monkeypatch):
    path, folder = write(tmp_path / "a.parquet", "tokens"), tmp_path / "cache"
    opened(path, "tokens", folder)
    (entry,) = entries(folder)
    (folder / entry / "meta.json").unlink()
    monkeypatch.setattr(lock, "PATIENCE", 0)
    script = """
        import sys
        from pathlib import Path
        from gristmill.lock import waiting_lock
        with waiting_lock(Path(sys.argv[1])):
            print("locked", flush=True)
            sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(folder / f".{entry}.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "locked\n"
        threading.Timer(0.5, process.stdin.close).start()
        with pytest.warns(UserWarning, match=f"waiting until process {process.pid} on .* the same Parquet files"):
            opened(path, "tokens", folder)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_progress_goes_from_nothing_to_all_bytes(tmp_path):
    path = write(tmp_path / "a.parquet", "vectors", number=5000)
    reports = []
    opened(path, "vectors", tmp_path / "cache", progress=reports.append)
    done = [report.done for report in reports]
    assert done == sorted(done) and done[-1] == reports[-1].total == path.stat().st_size
