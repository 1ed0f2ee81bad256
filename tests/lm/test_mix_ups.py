"""Wrong folders passed as a run or as shards: the error names what they are and what to pass."""

from __future__ import annotations

import pytest

import gristmill as gm
from gristmill import CheckpointError, OptionError
from lm.tiny_runs import train


@pytest.fixture(scope="module")
def run(tiny_shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mix-ups") / "run"
    train(tiny_shards, folder, max_steps=2, checkpoint_interval=2)
    return folder


def test_shards_where_a_run_belongs(tiny_shards):
    with pytest.raises(CheckpointError, match=r"holds token shards, not a trained model. Train a model"):
        gm.lm.generate(tiny_shards, "low")


def test_a_file_where_a_run_belongs(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="is a file, not the folder of a run"):
        gm.lm.generate(tmp_path / "tokenizer.json", "low")


def test_a_checkpoint_where_its_run_belongs(run):
    with pytest.raises(CheckpointError, match=r"is a single checkpoint of a run. Pass the folder of the run") as caught:
        gm.lm.generate(run / "checkpoints" / "step-000002", "low")
    assert str(run) in str(caught.value) and "'step-000002'" in str(caught.value)


def test_the_checkpoints_where_their_run_belongs(run):
    with pytest.raises(CheckpointError, match=r"holds the checkpoints of a run. Pass the folder of the run"):
        gm.lm.generate(run / "checkpoints", "low")


def test_a_run_and_its_data_the_wrong_way_round(run, tiny_shards):
    with pytest.raises(OptionError, match=r"Pass the run first, then the shards"):
        gm.lm.evaluate(tiny_shards, run)


def test_a_run_where_the_data_belongs(run, tmp_path):
    with pytest.raises(OptionError, match=r"is the folder of a run, .* resume='auto'; .* pass init_from="):
        gm.lm.train(run, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_folder_of_a_run_is_refused_in_words_of_python(run, tiny_shards):
    with pytest.raises(FileExistsError, match="Pass resume='auto' to resume it, overwrite=True to replace it"):
        gm.lm.train(tiny_shards, out=run, max_steps=2)


def test_results_are_shown_in_a_line_and_in_notebooks_as_a_table(run, tiny_shards):
    evaluation = gm.lm.evaluate(run, tiny_shards, limit_batches=1)
    result = train(tiny_shards, run, max_steps=2, resume="auto")
    for shown in (evaluation, result):
        assert len(repr(shown)) < 250 and "\n" not in repr(shown)
        assert repr(shown).startswith(f"{type(shown).__name__}(")
        html = shown._repr_html_()
        assert html.startswith("<table>") and f"{shown.num_tokens:,}" in html
    assert f"loss={evaluation.loss:.4f}" in repr(evaluation)
    assert str(run) in repr(result) and "num_steps=2" in repr(result)


class DataFrame:
    """Stands in for a table of any library."""


@pytest.mark.parametrize("data", [["text"], DataFrame(), None, 3])
def test_texts_and_tables_where_the_data_belongs(data, run, tmp_path):
    words = rf"data is of type {type(data).__name__}\. Pass the path of a folder of token shards.*encode_corpus\(\)"
    with pytest.raises(TypeError, match=words):
        gm.lm.train(data, out=tmp_path / "other")
    with pytest.raises(TypeError, match=words):
        gm.lm.evaluate(run, data)
    assert not (tmp_path / "other").exists()
