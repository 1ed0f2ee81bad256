"""The sizes and times of examples/cluster_size.py, compared with values computed by hand."""

import doctest
import importlib.util
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "beyond-one-machine.md"


@pytest.fixture(scope="module")
def sizing():
    path = ROOT / "examples" / "cluster_size.py"
    spec = importlib.util.spec_from_file_location("cluster_size", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["cluster_size"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["cluster_size"]


def printed(sizing, monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["cluster_size.py", *arguments])
    sizing.main()
    return capsys.readouterr().out


def test_examples_in_its_docstrings_hold(sizing):
    assert doctest.testmod(sizing).failed == 0


def test_the_page_shows_what_it_prints(sizing, monkeypatch, capsys):
    output = printed(sizing, monkeypatch, capsys)
    assert output.strip() in PAGE.read_text(encoding="utf-8")


def test_a_stage_is_bound_by_its_cpus_its_network_or_its_storage(sizing):
    """100 GB in 400 tasks on 2 x 4 cores: 50 waves of 0.25 GB at 100 MB/s, with a second to start each task."""
    slow = sizing.Cluster(nodes=2, cores=4, network_rate=1e6)
    assert sizing.stage(slow, 400, 100e9, 100, 100e9, 1) == sizing.Stage(400, pytest.approx(50 * 3.5), "CPU")
    network = sizing.Cluster(nodes=2, cores=4, network_rate=200)
    assert sizing.stage(network, 400, 100e9, 100, 100e9, 1) == sizing.Stage(400, pytest.approx(250), "network")
    storage = sizing.Cluster(nodes=2, cores=4, network_rate=200, storage_rate=100)
    assert sizing.stage(storage, 400, 100e9, 100, 100e9, 1) == sizing.Stage(400, pytest.approx(1000), "storage")


def test_a_last_wave_that_is_not_full_takes_as_long_as_a_full_one(sizing):
    cluster = sizing.Cluster(nodes=1, cores=8, network_rate=1e6)
    one_more = sizing.stage(cluster, 9, 9e9, 100, 0, 0)
    assert one_more.seconds == pytest.approx(2 * 10)


def test_all_figures_of_a_terabyte(sizing):
    rates = sizing.Rates(words_per_gb=1e6, growth=0.5, record_bytes=32, bytes_per_token=4, id_bytes=2)
    figures = sizing.plan(10**12, sizing.Cluster(nodes=10, cores=16), rates)
    assert figures.num_parts == 3728
    assert figures.merge.num_tasks == 63
    assert figures.num_words == pytest.approx(1e6 * math.sqrt(1000))
    assert figures.run_bytes == pytest.approx(3728 * 1e6 * math.sqrt(0.268240344) * 32)
    assert figures.num_tokens == pytest.approx(250e9)
    assert figures.id_bytes == pytest.approx(500e9)
    assert figures.assemble.num_tasks == 2500


def test_ten_times_the_nodes_never_take_longer(sizing):
    for corpus in (10**9, 10**12, 10**13):
        few, many = (sizing.plan(corpus, sizing.Cluster(nodes=nodes), sizing.Rates()) for nodes in (10, 100))
        for name in ("count", "merge", "encode", "assemble"):
            assert getattr(many, name).seconds <= getattr(few, name).seconds


def test_own_figures_are_used_and_shown(sizing, monkeypatch, capsys):
    output = printed(sizing, monkeypatch, capsys, "--corpus-size", "3TB", "--nodes", "4", "--encode-rate", "120")
    assert "| 3 TB, 4 x 16" in output and "encode 120 MB/s" in output and "10 TB" not in output


@pytest.mark.parametrize("wrong", [("--corpus-size", "much"), ("--count-rate", "0"), ("--nodes", "0")])
def test_a_wrong_figure_is_refused_with_exit_code_2(sizing, monkeypatch, capsys, wrong):
    with pytest.raises(SystemExit) as ended:
        printed(sizing, monkeypatch, capsys, *wrong)
    assert ended.value.code == 2
    assert wrong[1] in capsys.readouterr().err
