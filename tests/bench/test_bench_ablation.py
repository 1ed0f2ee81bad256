"""`gristmill bench ablation`: every row has a time or a reason, the merges are compared, estimates are marked."""

import dataclasses
import json
import random
import signal
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gristmill as gm
from gristmill import cli
from gristmill.bench.ablation import contest, core_row, gpu_row, python_row, rows
from gristmill.bench.ablation.contest import run_ablation
from gristmill.bench.ablation.extrapolation import (
    check_rule,
    course_of,
    estimate_merge_seconds,
    fit,
)
from gristmill.bench.ablation.page import chart_of, notes_of, publish_ablation, similar_figures, table_of
from gristmill.bench.ablation.rows import Row, chosen_rows, parse_letters
from gristmill.bench.ablation.suites import cases_of
from gristmill.bench.corpora import resolve
from gristmill.bench.published import encoding_table, training_table
from gristmill.gpu.devices import missing_gpu
from gristmill.reference.ablation import PROGRAMS, train

ROOT = Path(__file__).resolve().parent.parent.parent
VOCAB_SIZE = 257 + 40
ALL = "abcdefghi"
ONCE = {"num_extra_runs": 0, "report": lambda _line: None}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 8))) for _ in range(60)]
    path = tmp_path_factory.mktemp("ablation") / "corpus.txt"
    documents = (" ".join(draw.choices(words, weights=range(1, 61), k=40)) for _ in range(12))
    path.write_text("<|endoftext|>".join(documents), encoding="utf-8")
    return resolve(path)


@pytest.fixture(scope="module")
def ablation(corpus):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contest, "CORE_ROUNDS", 1)
        patch.setattr(contest, "MIN_FITTED", 1)
        patch.setattr(contest, "MIN_FITTED_INCREMENTAL", 1)
        return run_ablation(corpus, vocab_size=VOCAB_SIZE, letters=list(ALL), threads=[1, 2], time_limit=0.02, **ONCE)


def test_every_row_has_a_time_or_a_reason(ablation):
    letters = [result.row.letter for result in ablation.results]
    assert letters == ["a", "b", "c", "d", "e", "f", "g", "h", "h", "i"]
    for result in ablation.results:
        assert (result.measured is None) == bool(result.reason), result
        if result.measured is not None:
            assert result.measured.total_seconds >= result.measured.merge_seconds > 0
            assert result.measured.peak_bytes > 5_000_000
    assert ablation.is_core_right


def test_the_gpu_row_is_skipped_with_the_reason(ablation):
    reason = missing_gpu()
    if reason is None:
        pytest.skip("this machine has a GPU")
    assert ablation.results[-1].reason == f"skipped: {reason}"
    assert table_of(ablation).splitlines()[-1].split("|")[-2].strip() == "skipped"
    assert f"(i) GPU: skipped: {reason}." in notes_of(ablation)


def test_the_gpu_row_trains_as_the_core_does(monkeypatch, tmp_path):
    asked = []
    tokenizer = gm.Tokenizer([(b"l", b"o")])

    def train_on(_path, *, device, **_options):
        asked.append(device)
        return tokenizer

    monkeypatch.setattr(core_row, "train_tokenizer", train_on)
    job = gpu_row.JOB(letter="i", path=str(tmp_path), vocab_size=300, num_workers=2, time_limit=1)
    assert gpu_row.describe(gpu_row.run(job)) == core_row.describe(core_row.run(job))
    assert asked == ["cuda", "cpu"]


def test_a_row_that_reaches_its_time_limit_is_extrapolated_and_marked(ablation):
    result = next(each for each in ablation.results if each.row.letter == "b")
    measured = result.measured
    assert measured is not None
    assert 0 < measured.num_measured_merges < measured.num_merges == 40
    line = next(line for line in table_of(ablation).splitlines() if "(b)" in line)
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[2][0] == cells[3][0] == cells[4][0] == "~"
    assert cells[6] == f"yes, first {measured.num_measured_merges}"
    assert any("`~` marks extrapolated numbers" in note for note in notes_of(ablation))


def test_a_handful_of_merges_is_not_extrapolated(corpus):
    ablation = run_ablation(corpus, vocab_size=VOCAB_SIZE, letters="b", threads=[2], time_limit=1e-9, **ONCE)
    assert ablation.results[0].measured is None
    assert ablation.results[0].reason == "too few merges to extrapolate: 1 in 1e-09 s; 10 are needed"


def test_the_note_says_how_far_the_inexact_row_differs(ablation):
    measured = next(each.measured for each in ablation.results if each.row.letter == "e")
    assert measured is not None
    note = next(note for note in notes_of(ablation) if note.startswith("(e)"))
    assert "drops words that occur fewer than 10 times" in note
    if measured.num_differing:
        assert f"{measured.num_differing:,} differ" in note


def test_the_files_of_a_result_can_be_read_again(ablation, tmp_path):
    page = publish_ablation(ablation, tmp_path)
    data = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert [row["letter"] for row in data["rows"]] == [result.row.letter for result in ablation.results]
    assert {"CPU", "cores", "memory", "versions", "command"} <= data["about"].keys()
    assert table_of(ablation) in page.read_text(encoding="utf-8")
    chart = ElementTree.fromstring(page.with_suffix(".svg").read_text(encoding="utf-8"))
    words = "".join(chart.itertext())
    assert all(result.row.label in words for result in ablation.results)
    assert chart_of(ablation, data["about"]) == page.with_suffix(".svg").read_text(encoding="utf-8")


FAKES = {
    "crashing_row": "def run(job): raise RuntimeError('no luck')",
    "hanging_row": "import time\ndef run(job): time.sleep(60)",
    "wrong_row": "def run(job): return [['61', '62']] * 40",
    "short_row": "def run(job): return []",
}
REST = """
from gristmill.bench.ablation.python_row import AblationJob as JOB
def describe(merges):
    return {"merges": merges, "pretokenize_seconds": 1.0, "merge_seconds": [0.1] * len(merges), "is_complete": True}
"""


def test_a_row_that_crashes_hangs_or_learns_other_merges_has_no_time_and_the_run_goes_on(corpus, tmp_path, monkeypatch):
    for name, code in FAKES.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code + REST), encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(contest, "CORE_ROUNDS", 1)
    real = contest.measure

    def measure(module, job, *, timeout_seconds, **options):
        return real(module, job, timeout_seconds=0.2 if module == "hanging_row" else timeout_seconds, **options)

    monkeypatch.setattr(contest, "measure", measure)
    faked = [Row("a", name, name, 1) for name in FAKES]
    monkeypatch.setattr(contest, "chosen_rows", lambda _letters, threads: [*faked, *chosen_rows("h", threads=threads)])
    ablation = run_ablation(corpus, vocab_size=VOCAB_SIZE, letters=["a"], threads=[1], time_limit=0.1, **ONCE)
    reasons = [result.reason for result in ablation.results]
    assert "no luck" in reasons[0]
    assert reasons[1].startswith("timed out after 0 s")
    assert reasons[2].startswith("other merges than the native core, from merge 1 on")
    assert reasons[3].startswith("other merges than the native core, 0 instead of 40")
    assert reasons[4] == ""
    assert [result.measured is None for result in ablation.results] == [True] * 4 + [False]
    assert not ablation.is_core_right
    assert any("no luck" in note for note in notes_of(ablation))
    outcomes = [line.split("|")[-2].strip() for line in table_of(ablation).splitlines()[2:]]
    assert outcomes == ["crashed (exit status 1)", "timed out after 0 s", "other merges", "other merges", "yes"]


def test_an_interruption_keeps_what_was_measured(corpus, tmp_path, monkeypatch):
    real, calls = contest.measure, []

    def interrupted(module, job, **options):
        calls.append(job["letter"])
        if job["letter"] == "f":
            raise KeyboardInterrupt
        return real(module, job, **options)

    monkeypatch.setattr(contest, "measure", interrupted)
    ablation = run_ablation(corpus, vocab_size=VOCAB_SIZE, letters=["a", "f", "g"], threads=[1], time_limit=5, **ONCE)
    assert calls == ["h", "a", "f"]
    assert isinstance(ablation.interruption, KeyboardInterrupt)
    assert [result.reason for result in ablation.results] == ["", *["not measured"] * 2]
    page = publish_ablation(ablation, tmp_path)
    assert json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["interrupted"]
    assert "interrupted" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("cpus", [(1.0, 1.0, 1.0), (1.0, 1.0, 1.9)])
def test_threads_that_kept_one_cpu_busy_are_repeated_once_and_marked_if_that_did_not_help(corpus, monkeypatch, cpus):
    real, calls, cpus_of_two_threads = contest.measure, [], iter(cpus)

    def measure(module, job, **options):
        sample = real(module, job, **options)
        calls.append(f"{job['letter']}{job['num_workers']}")
        busy = next(cpus_of_two_threads) if calls[-1] == "h2" else 1.0
        return dataclasses.replace(sample, cpu_seconds=busy * sample.seconds, foreign_cpu_seconds=0.0)

    monkeypatch.setattr(contest, "measure", measure)
    monkeypatch.setattr(contest, "CORE_ROUNDS", 1)
    options = {"vocab_size": VOCAB_SIZE, "letters": "agh", "threads": [1, 2], "time_limit": 5}
    ablation = run_ablation(corpus, **options, report=lambda _line: None)
    assert calls == ["h2", "a1", "g2", "h1", "h2", "h2"]  # the first run gives the merges that the others must learn
    marked = [cells.split("|")[1].strip() for cells in table_of(ablation).splitlines() if "†" in cells]
    starved = ["(h) native core, 2 threads†"] if cpus[-1] == 1.0 else []
    assert marked == ["(g) + parallel pretokenization†", *starved]
    assert any(note.startswith("† CPU time / wall time at most 1.3") for note in notes_of(ablation))
    measured = ablation.results[-1].measured
    assert measured is not None and measured.total_seconds > 0
    assert (measured.cpu_per_wall, len(measured.repeated_seconds)) == (pytest.approx(cpus[-1]), 1)
    chart = chart_of(ablation, {"CPU": "a CPU", "cores": "2", "versions": "", "date": ""})
    assert "(g) + parallel pretokenization†" in chart and "†: kept at" in chart


def test_a_corpus_with_one_document_skips_parallel_pretokenization(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("low lower lowest " * 10, encoding="utf-8")
    row = chosen_rows(["g"], threads=[2])[0]
    assert "two documents" in str(rows.reason_to_skip(row, path))


def test_a_corpus_with_too_few_merges_is_reported(tmp_path):
    path = tmp_path / "small.txt"
    path.write_text("low low<|endoftext|>low lower", encoding="utf-8")
    ablation = run_ablation(resolve(path), vocab_size=4096, letters=["f"], threads=[1], time_limit=5, **ONCE)
    assert ablation.results[0].measured is not None
    assert ablation.num_merges == ablation.results[0].measured.num_merges < ablation.num_wanted
    assert any("The corpus has" in note for note in notes_of(ablation))


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("low low<|endoftext|>low lower", ["–", "–", "skipped"]),  # no word occurs 10 times
        ("low" + " low" * 12 + " slow" * 3, ["–", "no: 2 of 5 missing"]),
    ],
)
def test_an_inexact_row_with_too_few_words_is_not_compared_with_the_others(text, cells, tmp_path):
    path = tmp_path / "small.txt"
    path.write_text(text, encoding="utf-8")
    ablation = run_ablation(resolve(path), vocab_size=4096, letters="ae", threads=[1], time_limit=5, **ONCE)
    line = next(line for line in table_of(ablation).splitlines() if "(e)" in line)
    found = [cell.strip() for cell in line.split("|")[1:-1]]
    assert found[4] == "–" and found[-1] == cells[-1]
    assert "inf" not in line
    (note,) = [note for note in notes_of(ablation) if "no pair" in note and "(e)" in note]
    assert note.startswith("(e)")


@pytest.mark.parametrize(
    ("content", "options", "error", "message"),
    [
        ("ab ab", {"vocab_size": 257}, gm.OptionError, "leaves no merge"),
        ("ab ab", {"vocab_size": 100}, gm.VocabSizeError, "too small"),
        ("ab ab", {"time_limit": 0}, gm.OptionError, "time_limit must be > 0"),
        ("<|endoftext|>", {}, gm.CorpusError, "cannot train on this corpus"),
        ("a<|endoftext|>b", {}, gm.CorpusError, "no pair to merge"),
    ],
)
def test_arguments_that_cannot_be_measured_are_refused(content, options, error, message, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(content, encoding="utf-8")
    arguments = {"vocab_size": 300, "letters": ["a"], "threads": [1], "time_limit": 1.0} | options
    with pytest.raises(error, match=message):
        run_ablation(resolve(path), **arguments, **ONCE)


def test_unknown_rows_are_refused_with_the_known_ones():
    assert parse_letters("h,a") == ["h", "a"]
    with pytest.raises(gm.OptionError, match=r"unknown row 'x'\. Pass letters from a to i"):
        parse_letters("a,x")
    with pytest.raises(gm.OptionError, match="no row"):
        parse_letters(" , ")


def test_the_places_that_merges_change_are_those_of_training(corpus):
    training = train(PROGRAMS["a"], corpus.path, VOCAB_SIZE)
    words = PROGRAMS["a"].count_words(corpus.path, 1)
    course = course_of(list(words), training.merges)
    tokens_of = [[bytes([byte]) for byte in word] for word in words]
    for i, pair in enumerate(training.merges):
        merged = [gm.reference.merge_pair(tokens, pair) for tokens in tokens_of]
        assert course.tokens[i] == sum(map(len, tokens_of))
        assert course.pairs[i] == len({pair for tokens in tokens_of for pair in pairwise(tokens)})
        assert course.changes[i] == sum(map(len, tokens_of)) - sum(map(len, merged))
        tokens_of = merged
    assert course.work(is_incremental=False)[:2] == [(1, course.tokens[0]), (1, course.tokens[1])]
    assert course.work(is_incremental=True)[1] == (course.pairs[1], course.changes[0])


def test_the_estimate_is_exact_for_times_that_follow_the_rule():
    work = [(i + 1, 1000 / (i + 1)) for i in range(200)]
    seconds = [0.5, *(0.01 * u + 0.002 * v for u, v in work[1:])]  # the first merge includes the setup
    assert estimate_merge_seconds(seconds[:20], work) == pytest.approx(sum(seconds))
    check = check_rule(seconds, work)
    assert check is not None
    assert check["error"] == pytest.approx(0)
    assert check_rule(seconds[:99], work[:99]) is None


@pytest.mark.parametrize("measured", [[3.0], [3.0, 2.0]])
def test_one_or_two_measured_merges_are_enough_for_an_estimate(measured):
    assert estimate_merge_seconds(measured, [(1, 4), (1, 4), (1, 4)]) == pytest.approx(
        sum(measured) + measured[-1] * (3 - len(measured))
    )


def test_the_fitted_times_never_fall_below_zero():
    draw = random.Random(1)
    for _ in range(200):
        work = [(draw.uniform(0, 10), draw.uniform(0, 10)) for _ in range(5)]
        assert min(fit(work, [draw.uniform(0, 10) for _ in work])) >= 0


def test_the_suite_takes_no_file_or_one_per_table():
    cases = cases_of("guides", ["a.txt", "b.txt", "c.txt"])
    assert [(case.corpus, case.vocab_size) for case in cases] == [("a.txt", 4096), ("b.txt", 32000), ("c.txt", 10000)]
    assert all(case.published for case in cases[1:])
    with pytest.raises(gm.OptionError, match="3 corpora, got 1 files"):
        cases_of("guides", ["a.txt"])


def command_line(*arguments):
    return [sys.executable, "-m", "gristmill", "bench", "ablation", *map(str, arguments)]


def test_the_command_prints_the_table_and_writes_it(corpus, tmp_path):
    output = tmp_path / "results"
    options = ["--rows", "f", "--threads", "1", "--vocab-size", VOCAB_SIZE, "--quick", "-o", output]
    run = subprocess.run(
        command_line("--corpus", corpus.path, *options), capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert {path.name for path in output.iterdir()} == {
        f"ablation_corpus_{VOCAB_SIZE}.{end}" for end in ("json", "md", "svg")
    }
    assert "(f) incremental counts, inverted index" in run.stdout
    assert f"written: {output}" in run.stderr
    assert "40 of 40 merges learned" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "x"], "unknown row 'x'"),
        (["--threads", "two"], "--threads 'two' is not a list of numbers"),
        (["--threads", "0"], "--threads must be >= 1"),
        (["--time-limit", "nan"], "--time-limit nan is not a positive number"),
        (["--suite", "guides", "--quick"], "do not pass --quick"),
        (["--suite", "guides", "--vocab-size", "300"], "do not pass --vocab-size"),
        (["--corpus", "missing.txt"], "missing.txt: no such file"),
    ],
)
def test_wrong_options_end_with_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "ablation", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("bench-results/*"))


def test_ctrl_c_writes_the_rows_so_far_and_ends_with_130(corpus, tmp_path):
    options = ["--rows", "a,b,h", "--threads", "1", "--vocab-size", "400", "--time-limit", "60", "-o", tmp_path]
    with subprocess.Popen(command_line("--corpus", corpus.path, *options), stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.startswith("(b)"):
                run.send_signal(signal.SIGINT)
        assert run.wait(timeout=60) == 130
    data = json.loads((tmp_path / "ablation_corpus_400.json").read_text(encoding="utf-8"))
    assert data["interrupted"]
    reasons = {row["letter"]: row["reason"] for row in data["rows"]}
    assert reasons == {"a": "", "b": "not measured", "h": "not measured"}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # fork in a process with threads
@pytest.mark.parametrize("letter", ["a", "e", "g"])
def test_a_file_that_takes_too_long_to_pretokenize_is_extrapolated_from_its_start(letter, corpus, monkeypatch):
    whole = python_row.run(python_row.AblationJob(letter, str(corpus.path), VOCAB_SIZE, 2, 60.0))
    monkeypatch.setattr(python_row, "HEAD_BYTES", corpus.num_bytes // 4)
    start = python_row.run(python_row.AblationJob(letter, str(corpus.path), VOCAB_SIZE, 2, 1e-9))
    assert not whole.is_pretokenize_extrapolated
    assert start.is_pretokenize_extrapolated
    assert start.training.pretokenize_seconds > 0
    assert start.training.merges == whole.training.merges[: len(start.training.merges)]
    assert python_row.describe(start)["is_complete"] is False


@pytest.mark.parametrize("name", ["ablation_sample_21MB_4096", "ablation_english_32000"])
def test_the_documentation_shows_the_table_of_the_committed_result(name):
    page = (ROOT / "docs" / "how-it-works" / "ablation.md").read_text(encoding="utf-8")
    result = (ROOT / "benchmarks" / "results" / f"{name}.md").read_text(encoding="utf-8")
    table = next(part for part in result.split("\n\n") if part.startswith("| program"))
    assert "(h) native core, 1 thread" in table
    assert table in page


@pytest.mark.parametrize(
    ("page", "table"), [("how-it-works/ablation.md", training_table()), ("bench.md", encoding_table())]
)
def test_the_documentation_shows_the_published_figures(page, table):
    assert table in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_published_figures_are_shown_for_a_similar_corpus_and_the_same_vocabulary(ablation):
    assert similar_figures(ablation) == ()

    class Web:
        num_bytes = 89_000_000

    figures = similar_figures(dataclasses.replace(ablation, corpus=Web(), vocab_size=32_000))
    assert [figure.corpus for figure in figures] == ["OpenWebText"]
