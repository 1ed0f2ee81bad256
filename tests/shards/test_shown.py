"""Runs, shards and reports in a shell and in a notebook: a few lines, however large they are."""

import pytest

import gristmill as gm
from gristmill.shards import Shards, verify_shards
from shards.builder import END_OF_TEXT, build_folder, train


def encoded(tmp_path, **options):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for i in range(30):
        (corpus / f"{i}.txt").write_text(END_OF_TEXT.join(f"low lower {i} {j}" for j in range(20)))
    return gm.encode_corpus(corpus, train(), out=tmp_path / "out", shard_tokens=100, progress=None, **options)


def test_a_run_of_many_files_prints_one_line_with_its_figures(tmp_path):
    run = encoded(tmp_path, val_fraction=0.2)
    shown = repr(run)
    assert len(shown) < 400 and "\n" not in shown
    assert f"{run.num_documents:,} documents" in shown and f"{run.num_tokens:,} tokens" in shown
    assert "out" in shown and "val" in shown
    assert len(repr(run.manifest)) < 400
    assert len(repr(run.profile)) < 400 and "encode" in repr(run.profile) and "thread" in repr(run.profile)
    again = gm.encode_corpus(
        tmp_path / "corpus", train(), out=tmp_path / "out", shard_tokens=100, progress=None, val_fraction=0.2
    )
    assert "complete already" in repr(again)


def test_a_name_with_a_line_break_is_escaped_once_wherever_it_is_shown(tmp_path):
    folder = tmp_path / "a\nb"
    run = gm.encode_corpus(["low"], train(), out=folder, progress=None)
    for shown in (repr(run), repr(verify_shards(folder)), repr(Shards(folder))):
        assert r"a\nb" in shown and r"a\\nb" not in shown and "\n" not in shown
    (folder / "manifest.json").unlink()
    with pytest.raises(gm.ShardsFormatError) as caught:
        Shards(folder)
    assert str(caught.value).startswith(str(tmp_path) + r"/a\nb: ")


def test_a_run_opens_its_shards(tmp_path):
    run = encoded(tmp_path, val_fraction=0.2)
    assert isinstance(run.shards(), Shards)
    assert run.shards().num_tokens + run.shards("val").num_tokens == run.num_tokens
    assert run.shards(split="val").split == "val"


def test_a_report_prints_its_verdict_and_the_first_problems(tmp_path):
    build_folder(tmp_path / "s", ["low"] * 40, shard_tokens=2, tokenizer=train())
    sound = verify_shards(tmp_path / "s")
    assert "no problems found" in repr(sound) and repr(sound).count("\n") == 0
    for path in list((tmp_path / "s").glob("shard-*.bin"))[:20]:
        path.unlink()
    broken = verify_shards(tmp_path / "s")
    assert len(broken.problems) == 20
    assert "20 problems" in repr(broken) and "the file is missing" in repr(broken)
    assert 2 < repr(broken).count("\n") < 10
    assert str(broken) == repr(broken)


def test_notebooks_show_tables_in_which_names_are_escaped(tmp_path):
    folder = tmp_path / "<script>"
    build_folder(folder, ["low", "lower"], tokenizer=train())
    run = encoded(tmp_path)
    for shown in (Shards(folder), verify_shards(folder), run, run.profile):
        html = shown._repr_html_()
        assert html.startswith("<table>") and html.endswith("</table>")
        assert "<script>" not in html
    assert "&lt;script&gt;" in Shards(folder)._repr_html_()
    assert "&lt;script&gt;" in verify_shards(folder)._repr_html_()
