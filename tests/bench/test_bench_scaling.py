"""`gristmill bench scaling`: every stage by threads and size; results of all numbers of threads are equal."""

import json
from fractions import Fraction

import pytest
from bench_tables import rows_of

from gristmill.bench import scaling
from gristmill.bench.contest import Rounds
from gristmill.bench.corpora import resolve
from gristmill.bench.fresh_process import ChildFailed, Sample

ONCE = Rounds(1, 1, 0)


def test_every_stage_by_threads_and_size_and_a_part_too_small_skips_training(small_corpus, tmp_path, capsys):
    corpus = resolve(small_corpus)
    code = scaling.bench_scaling(
        corpus, vocab_size=1500, num_threads=[1, 2], rounds=ONCE, folder=tmp_path, sizes=[Fraction(1, 50), Fraction(1)]
    )
    out = capsys.readouterr().out
    assert code == 0
    assert "Skipped: train, 0.0 MB. The text gives only" in out
    result = json.loads((tmp_path / "scaling_stories_2t.json").read_text())
    small = result["entries"][0]["num_bytes"]
    assert small == corpus.num_bytes // 50
    assert [(each["form"], each["num_bytes"], each["num_threads"]) for each in result["entries"]] == [
        (stage, size, number)
        for stage in ("count", "train", "encode")
        for size in (small, corpus.num_bytes)
        for number in (1, 2)
        if (stage, size) != ("train", small)
    ]
    assert rows_of(out)["count"]["result"] == "equal"
    assert {path.name for path in tmp_path.glob("*.svg")} == {"scaling_stories_2t.svg", "scaling_stories_2t_sizes.svg"}


def test_a_part_without_text_is_skipped_and_the_other_parts_are_measured(bench, small_corpus, tmp_path):
    tiny = tmp_path / "tiny.txt"
    tiny.write_text("low low low")
    code, out, err = bench("scaling", "--corpus", tiny, small_corpus, "--vocab-size", 258, "--threads", 1, "--quick")
    assert code == 0, err
    assert "Skipped: the first 1/16 of the corpus (0 bytes). This part has no text." in out
    result = json.loads((tmp_path / "out" / "scaling_tiny_1t.json").read_text())
    assert {each["num_bytes"] for each in result["entries"]} == {len("low low low") // 4, len("low low low")}
    assert (tmp_path / "out" / "scaling_stories_1t.json").exists()


def test_a_result_that_depends_on_the_number_of_threads_has_no_time(monkeypatch):
    facts = {"seconds": 1.0, "cpu_seconds": 1.0, "foreign_cpu_seconds": 0.0}
    monkeypatch.setattr(
        scaling, "measure", lambda _, job, **__: Sample(1, 1, 0, 1, 1, facts | {"digest": f"of {job['num_threads']}"})
    )
    seen = {}
    job = scaling.StageJob("count", "corpus.txt", 1, 300, "")
    assert scaling._run(job, seen, ONCE).seconds == 1.0
    with pytest.raises(ChildFailed, match="other result than with another number of threads"):
        scaling._run(scaling.StageJob("count", "corpus.txt", 2, 300, ""), seen, ONCE)
