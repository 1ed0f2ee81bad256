"""`gristmill bench ablation`: every row has a time or a reason, the merges are compared, estimates are marked."""

import json
import random
import sys
import textwrap
from itertools import pairwise
from xml.etree import ElementTree

import pytest

import gristmill as gm
from gristmill.bench.ablation import contest, rows
from gristmill.bench.ablation.contest import run_ablation
from gristmill.bench.ablation.extrapolation import (
    check_rule,
    course_of,
    estimate_merge_seconds,
    fit,
)
from gristmill.bench.ablation.page import chart_of, notes_of, table_of, write_page
from gristmill.bench.ablation.rows import Row, chosen_rows, parse_letters
from gristmill.bench.ablation.suites import cases_of
from gristmill.bench.corpora import resolve
from gristmill.reference.ablation import PROGRAMS, train

VOCAB_SIZE = 257 + 40
ALL = "abcdefghi"


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
        return run_ablation(
            corpus, vocab_size=VOCAB_SIZE, letters=list(ALL), threads=[1, 2], time_limit=0.02, report=lambda _line: None
        )


def test_every_row_has_a_time_or_a_reason(ablation):
    letters = [result.row.letter for result in ablation.results]
    assert letters == ["a", "b", "c", "d", "e", "f", "g", "h", "h", "i"]
    for result in ablation.results:
        assert (result.measured is None) == bool(result.reason), result
        if result.measured is not None:
            assert result.measured.total_seconds >= result.measured.merge_seconds > 0
            assert result.measured.peak_bytes > 5_000_000
    assert ablation.is_core_right


def test_the_gpu_row_is_skipped_until_its_module_exists(ablation, corpus, monkeypatch):
    assert ablation.results[-1].reason == "skipped: needs a CUDA device and gristmill[gpu]"
    monkeypatch.setattr(rows.importlib.util, "find_spec", lambda name: name == "gristmill.gpu" or None)
    assert rows.reason_to_skip(ablation.results[-1].row, corpus.path) is None


def test_a_row_that_reaches_its_time_limit_is_extrapolated_and_marked(ablation):
    result = next(each for each in ablation.results if each.row.letter == "b")
    measured = result.measured
    assert measured is not None
    assert 0 < measured.num_measured_merges < measured.num_merges == 40
    line = next(line for line in table_of(ablation).splitlines() if "(b)" in line)
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[2][0] == cells[3][0] == cells[4][0] == "~"
    assert cells[7] == f"yes, first {measured.num_measured_merges}"
    assert any("`~` marks extrapolated numbers" in note for note in notes_of(ablation))


def test_the_note_says_how_far_the_inexact_row_differs(ablation):
    measured = next(each.measured for each in ablation.results if each.row.letter == "e")
    assert measured is not None
    note = next(note for note in notes_of(ablation) if note.startswith("(e)"))
    assert "drops words that occur fewer than 10 times" in note
    if measured.num_differing:
        assert f"{measured.num_differing:,} differ" in note


def test_the_files_of_a_result_can_be_read_again(ablation, tmp_path):
    page = write_page(ablation, tmp_path)
    data = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert [row["letter"] for row in data["rows"]] == [result.row.letter for result in ablation.results]
    assert {"CPU", "cores", "memory", "versions", "command"} <= data["about"].keys()
    assert table_of(ablation) in page.read_text(encoding="utf-8")
    chart = ElementTree.fromstring(page.with_suffix(".svg").read_text(encoding="utf-8"))
    words = "".join(chart.itertext())
    assert all(result.row.label in words for result in ablation.results)
    assert chart_of(ablation) == page.with_suffix(".svg").read_text(encoding="utf-8")


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
    monkeypatch.setattr(contest, "MORE_SECONDS", 2)
    monkeypatch.setattr(contest, "CORE_ROUNDS", 1)
    faked = [Row("a", name, name, 1) for name in FAKES]
    monkeypatch.setattr(contest, "chosen_rows", lambda _letters, threads: [*faked, *chosen_rows("h", threads=threads)])
    ablation = run_ablation(
        corpus, vocab_size=VOCAB_SIZE, letters=["a"], threads=[1], time_limit=0.1, report=lambda _line: None
    )
    reasons = [result.reason for result in ablation.results]
    assert "no luck" in reasons[0]
    assert reasons[1].startswith("timed out after 2 s")
    assert reasons[2].startswith("other merges than the native core, from merge 1 on")
    assert reasons[3].startswith("other merges than the native core, 0 instead of 40")
    assert reasons[4] == ""
    assert [result.measured is None for result in ablation.results] == [True] * 4 + [False]
    assert not ablation.is_core_right
    assert "no luck" in table_of(ablation)


def test_an_interruption_keeps_what_was_measured(corpus, tmp_path, monkeypatch):
    real, calls = contest.measure, []

    def interrupted(module, job, **options):
        calls.append(job["letter"])
        if job["letter"] == "f":
            raise KeyboardInterrupt
        return real(module, job, **options)

    monkeypatch.setattr(contest, "measure", interrupted)
    ablation = run_ablation(
        corpus, vocab_size=VOCAB_SIZE, letters=["a", "f", "g"], threads=[1], time_limit=5, report=lambda _line: None
    )
    assert calls == ["h", "a", "f"]
    assert isinstance(ablation.interruption, KeyboardInterrupt)
    assert [result.reason for result in ablation.results] == ["", *["not measured: interrupted"] * 2]
    page = write_page(ablation, tmp_path)
    assert json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["is_interrupted"]
    assert "interrupted" in page.read_text(encoding="utf-8")


def test_a_corpus_with_one_document_skips_parallel_pretokenization(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("low lower lowest " * 10, encoding="utf-8")
    row = chosen_rows(["g"], threads=[2])[0]
    assert "two documents" in str(rows.reason_to_skip(row, path))


def test_a_corpus_with_too_few_merges_is_reported(tmp_path):
    path = tmp_path / "small.txt"
    path.write_text("low low<|endoftext|>low lower", encoding="utf-8")
    ablation = run_ablation(
        resolve(path), vocab_size=4096, letters=["f"], threads=[1], time_limit=5, report=lambda _line: None
    )
    assert ablation.results[0].measured is not None
    assert ablation.num_merges == ablation.results[0].measured.num_merges < ablation.num_wanted
    assert any("The corpus has" in note for note in notes_of(ablation))


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
        run_ablation(resolve(path), **arguments, report=lambda _line: None)


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
