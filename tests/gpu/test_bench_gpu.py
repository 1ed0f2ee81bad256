"""benchmarks/bench_gpu.py measures every part, and stops if a GPU gives other merges. On the emulator."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import gristmill as gm

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def bench_gpu(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path))
    import bench_gpu

    return bench_gpu


def run(bench_gpu, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bench_gpu.py", "--quick", *arguments])
    bench_gpu.main()


def test_it_measures_cpu_and_gpu_in_turns(bench_gpu, monkeypatch, install, emulated, capsys, tmp_path):
    install(emulated)
    run(bench_gpu, monkeypatch, "--parts", "merge,count,train")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    rows = {(row[0].split(" ")[0], row[1].split(",")[0]) for row in lines if len(row) == 6}
    assert {("merge", "CPU"), ("merge", "GPU"), ("count", "CPU"), ("count", "GPU"), ("train", "GPU")} <= rows
    assert not list(tmp_path.glob("drawn-*"))


def test_it_stops_if_the_merges_differ(bench_gpu, monkeypatch, install, emulated):
    install(emulated)
    learn = bench_gpu.learn_merges_on

    def learn_wrongly(*arguments, **options):
        learned = learn(*arguments, **options)
        learned.merges[7] += 1
        return learned

    monkeypatch.setattr(bench_gpu, "learn_merges_on", learn_wrongly)
    with pytest.raises(SystemExit, match=r"merge 6,000 words.* the results of .* differ"):
        run(bench_gpu, monkeypatch, "--parts", "merge")


def test_without_a_gpu_it_says_what_is_missing(bench_gpu, monkeypatch, install):
    install(message="CUDA finds no GPU.")
    with pytest.raises(SystemExit, match="needs a GPU, but CUDA finds no GPU"):
        run(bench_gpu, monkeypatch)


def test_drawn_text_has_the_words_by_their_counts(bench_gpu, monkeypatch, tmp_path):
    import drawn_text

    monkeypatch.setattr(drawn_text, "BLOCK_BYTES", 10_000)
    words = gm.Words.from_counts({" a": 9000, " bc": 900, " d": 100})
    for name in ("one", "two"):
        drawn_text.write_drawn_text(words, tmp_path / name, 35_001)
    text = (tmp_path / "one").read_bytes()
    assert text == (tmp_path / "two").read_bytes() and len(text) == 35_001
    counts = gm.count_words([text], device="cpu", progress=None)
    shares = np.array([counts.count(word) for word in (" a", " bc", " d")]) / counts.num_pieces
    assert shares == pytest.approx([0.9, 0.09, 0.01], abs=0.02)


def test_recombined_words_are_new_and_as_many_as_asked(bench_gpu):
    import drawn_text

    words = gm.Words.from_counts({f" {a}{b}{c}x{c}{a}": 1 for a in "abc" for b in "def" for c in "ghi"})
    made = drawn_text.recombined_words(words, 60)
    assert len(made) == 60 and all(word in made for word in words)
    assert made == drawn_text.recombined_words(words, 60)
