"""`gristmill bench encode` and `pipeline`: ids before times, tokens per second by workers."""

import json
import xml.etree.ElementTree as ET

import pytest
from bench_tables import rows_of

from gristmill.bench import encode, encode_report
from gristmill.bench.contest import OURS, Entry
from gristmill.bench.fresh_process import Sample, measure

SMALL = ("--vocab-size", 400, "--threads", 1, "--quick")


def test_encoding_is_compared_with_tiktoken_and_other_ids_have_no_time(bench, fakes, small_corpus, tmp_path):
    systems = ("gristmill:encode_array", "tiktoken:encode_to_numpy", "fakes.other_ids")
    code, out, err = bench("encode", "--corpus", small_corpus, *SMALL, "--systems", *systems)
    assert code == 0, err
    rows = rows_of(out)
    assert rows["gristmill, encode_array"]["ids"] == rows["tiktoken, encode_to_numpy"]["ids"]
    assert rows["gristmill, encode_array"]["ids"].endswith(" equal")
    assert rows["fakes.other_ids, reversed"]["ids"] == "other ids"
    assert rows["fakes.other_ids, reversed"]["cold MB/s"] == "–"
    workers = rows_of(out[out.index("by number of workers") :])
    assert (workers["1"]["speed-up"], workers["1"]["tokens"][-1]) == ("1.00x", "M")
    assert "15,100" in out and "16 processes" in out
    result = json.loads((tmp_path / "out" / "encode_stories_trained_1t.json").read_text())
    assert result["workers"][0]["num_threads"] == 1
    ET.fromstring((tmp_path / "out" / "encode_stories_trained_1t.svg").read_text())


def test_workers_that_kept_one_cpu_busy_are_marked_in_the_table_of_workers():
    entry = Entry(OURS, "encode_file", 2, lambda: pytest.fail("is not run"))
    for cpu_seconds, name in ((1.0, "2†"), (1.9, "2")):
        facts = {"cold": {"seconds": 1.0, "cpu_seconds": cpu_seconds}, "warm": [], "num_ids": 3_000_000}
        entry.runs = [Sample(1.0, cpu_seconds, 0.0, 1, 1, facts)]
        table, *notes, _published = encode_report._worker_parts([entry])
        assert table.splitlines()[-1].split("|")[1:5] == [f" {name.ljust(7)} ", "   3.0M ", " 1.000 ", "      3,000 "]
        assert any(note.startswith("† CPU/wall at most 1.3") for note in notes) == (name == "2†")


@pytest.mark.parametrize("has_tiktoken", [True, False])
def test_without_gristmill_a_rival_is_compared_with_tiktoken_or_has_no_time(
    bench, small_corpus, monkeypatch, has_tiktoken
):
    def failing(module, job, **options):
        if job.get("module", "").endswith("encoders.gristmill"):
            raise encode.ChildFailed("crashed (killed by SIGSEGV)")
        return measure(module, job, **options)

    monkeypatch.setattr(encode, "measure", failing)
    if not has_tiktoken:
        monkeypatch.setattr(encode, "version", lambda _name: "-")
    systems = ("gristmill:encode_array", "tokenizers:encode_batch_fast, documents")
    code, out, _ = bench("encode", "--corpus", small_corpus, *SMALL, "--systems", *systems)
    assert code == 1
    rows = rows_of(out)
    assert rows["gristmill, encode_array"]["ids"] == "crashed (killed by SIGSEGV)"
    rival = rows["tokenizers, encode_batch_fast, documents"]
    outcome = rival["ids"].partition(" ")[2] if has_tiktoken else rival["ids"]
    assert outcome == ("equal" if has_tiktoken else "not compared, because gristmill failed")
    assert (rival["cold MB/s"] == "–") != has_tiktoken


def test_an_unknown_api_names_those_of_the_system(bench, small_corpus):
    code, _, err = bench("encode", "--corpus", small_corpus, *SMALL, "--systems", "gristmill:encode")
    assert code == 2
    assert "gristmill has no API 'encode'. Pass gristmill:API with one of encode_array, encode_file." in err


def test_without_the_files_of_gpt2_the_error_names_the_other_vocabulary(bench, small_corpus):
    code, _, err = bench("encode", "--corpus", small_corpus, "--vocabulary", "gpt2", "--systems", "gristmill")
    assert code == 2
    assert "gpt2_vocab.json: not found" in err and "--vocabulary trained" in err


def test_token_files_are_compared_and_other_ids_have_no_time(bench, fakes, small_corpus, tmp_path):
    systems = ("gristmill:nanogpt", "tiktoken", "fakes.other_files")
    code, out, err = bench("pipeline", "--corpus", small_corpus, *SMALL, "--systems", *systems)
    assert code == 0, err
    rows = rows_of(out)
    assert [rows[name]["ids"] for name in ("gristmill, nanogpt", "tiktoken, map")] == ["equal", "equal"]
    assert rows["fakes.other_files, short"]["ids"].startswith("other ids: 0 at token 0, expected")
    assert float(rows["gristmill, nanogpt"]["peak MB"]) > 10
    assert (tmp_path / "out" / "pipeline_stories_1t.svg").exists()


def test_a_vocabulary_that_does_not_fit_uint16_is_refused(bench, small_corpus):
    code, _, err = bench("pipeline", "--corpus", small_corpus, "--vocab-size", "65537")
    assert code == 2
    assert "--vocab-size 65537 does not fit uint16" in err
