"""`gristmill bench train`: a row for every system, merges before times, and nothing measured is lost."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from bench_tables import is_alive, rows_of

from gristmill.bench import tables, train
from gristmill.bench.fresh_process import measure

SMALL = ("--vocab-size", 400, "--threads", 1, "--quick")


def test_every_system_has_a_row_with_its_time_or_the_reason(bench, fakes, small_corpus, tmp_path):
    systems = [
        "gristmill",
        "tokenizers",
        *(f"fakes.{name}" for name in ["equal", "wrong", "raising", "needs_more", "broken", "incomplete", "odd_rule"]),
    ]
    code, out, err = bench("train", "--corpus", small_corpus, *SMALL, "--systems", *systems)
    assert code == 0, err
    rows = rows_of(out)
    assert [rows[name]["merges"] for name in systems] == [
        "143 equal",
        "143 equal",
        "143 equal",
        "other merges",
        "crashed (exit status 1): second line",
        "not installed: no_such_package_anywhere",
        "cannot be imported: RuntimeError: the native library is too old",
        "cannot be used: the module has no FOLLOWS",
        "not compared, because gristmill failed",
    ]
    assert [rows[name]["median s"] == "–" for name in systems] == [False] * 3 + [True] * 6
    assert "round 1 of 1: fakes.equal" in err

    result = json.loads((tmp_path / "out" / "train_stories_400_1t.json").read_text())
    assert [bool(entry["problem"]) for entry in result["entries"]] == [False] * 3 + [True] * 6
    assert result["about"]["command"].startswith("`") and "gristmill" in result["about"]["versions"]
    page = (tmp_path / "out" / "train_stories_400_1t.md").read_text()
    assert "(train_stories_400_1t.svg)" in page and "original guides" in page
    chart = ET.fromstring((tmp_path / "out" / "train_stories_400_1t.svg").read_text())
    texts = [text.text for text in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert "other merges" in texts and "fakes.equal" in texts


def test_gristmill_is_wrong_if_tokenizers_learned_other_merges(bench, small_corpus, monkeypatch):
    monkeypatch.setattr(train.reference_digests, "tokenizers_digest", lambda *_, **__: "another digest")
    code, out, _ = bench("train", "--corpus", small_corpus, *SMALL, "--systems", "gristmill")
    assert code == 1
    assert rows_of(out)["gristmill"]["merges"].startswith("other merges than tokenizers")


def test_a_corpus_too_small_for_the_vocabulary_is_skipped_with_the_largest_size(
    bench, small_corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(train.reference_digests, "tokenizers_digest", lambda *_, **__: None)
    tiny = tmp_path / "tiny.txt"
    tiny.write_text("one fish two fish " * 3)
    code, out, err = bench("train", "--corpus", tiny, small_corpus, *SMALL, "--systems", "gristmill")
    assert code == 0
    assert "skipped tiny: tiny (0.0 MB) is too small for the vocabulary" in err and "stories" in out
    largest = int(err.partition("Pass --vocab-size ")[2].split()[0])
    code, out, err = bench("train", "--corpus", tiny, "--vocab-size", largest + 1, *SMALL[2:], "--systems", "gristmill")
    assert (code, out) == (2, "")
    assert f"Pass --vocab-size {largest} or less" in err


def test_ctrl_c_writes_what_was_measured_and_ends_the_measured_process(fakes, small_corpus, tmp_path):
    call = "import sys; from gristmill.cli import main; sys.exit(main())"
    options = ["--corpus", small_corpus, "--systems", "gristmill", "fakes.hanging", "--output", tmp_path / "out"]
    process = subprocess.Popen(
        [sys.executable, "-c", call, "bench", "train", *map(str, SMALL), *map(str, options)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        assert any(line.startswith("round 1 of 1: gristmill") for line in lines)
        pids = Path(os.environ["PID_FILE"])
        while not (pids.exists() and pids.read_text()):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(30) == 130, rest
    finally:
        process.kill()
        process.stderr.close()
    assert "interrupted: writing what was measured" in rest and "Traceback" not in rest
    assert not any(map(is_alive, pids.read_text().split()))
    result = json.loads((tmp_path / "out" / "train_stories_400_1t.json").read_text())
    assert result["interrupted"] and result["title"].endswith("(interrupted)")
    ours, hanging = result["entries"]
    assert (len(ours["runs"]), ours["problem"], hanging["problem"]) == (1, None, "not measured")


def test_a_full_disk_is_one_error_and_the_table_is_printed_before(bench, small_corpus, monkeypatch, tmp_path):
    def write(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "out" / "x.json"))

    monkeypatch.setattr("gristmill.bench.pages.write_result", write)
    code, out, err = bench("train", "--corpus", small_corpus, *SMALL, "--systems", "gristmill")
    assert code == 1
    assert rows_of(out)["gristmill"]["merges"] == "143 equal"
    assert err.splitlines()[-1] == f"gristmill: error: {tmp_path / 'out' / 'x.json'}: No space left on device"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--systems", "gristmil"], "unknown system 'gristmil'. Did you mean 'gristmill'?"),
        (["--corpus", "no-such-file.txt"], "no-such-file.txt: no such file, and no corpus of that name"),
        (["--corpus", "english"], "Set GRISTMILL_DATA to a folder of real text"),
        (["--vocab-size", "257"], "--vocab-size 257 leaves no merge. Pass 258 or more."),
        (["--rounds", "0"], "--rounds must be >= 1, got 0."),
        (["--threads", "0"], "--threads must be >= 1, got 0."),
        (["--timeout", "0"], "--timeout must be > 0, got 0."),
    ],
)
def test_wrong_options_are_errors_before_anything_is_measured(bench, arguments, message, monkeypatch):
    monkeypatch.setattr("gristmill.bench.fresh_process.subprocess.Popen", None)
    code, out, err = bench("train", *arguments)
    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1


def test_an_output_that_is_a_file_is_an_error_before_anything_is_measured(bench, small_corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.bench.fresh_process.subprocess.Popen", None)
    (tmp_path / "out").write_text("a file")
    code, _, err = bench("train", "--corpus", small_corpus)
    assert code == 1
    assert "Is not a folder" in err
    assert (tmp_path / "out").read_text() == "a file"
    with pytest.raises(NotADirectoryError):
        tables.prepare_folder(tmp_path / "out")


def test_a_crash_of_gristmill_itself_is_a_row_and_exit_code_1(bench, small_corpus, monkeypatch):
    def failing(module, job, **options):
        if module == "gristmill.bench.rivals.gristmill":
            raise train.ChildFailed("crashed (killed by SIGSEGV)")
        return measure(module, job, **options)

    monkeypatch.setattr(train, "measure", failing)
    code, out, _ = bench("train", "--corpus", small_corpus, *SMALL, "--systems", "gristmill", "tokenizers")
    assert code == 1
    assert rows_of(out)["gristmill"]["merges"] == "crashed (killed by SIGSEGV)"
    assert "no merges were compared" in out
    rival = rows_of(out)["tokenizers"]
    assert (rival["median s"], rival["merges"]) == ("–", "not compared, because gristmill failed")
