"""What `gristmill view` shows for a path: artefacts, folders that contain them, and names of published tokenizers."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

import gristmill as gm
from gristmill.analysis import named_tokenizers
from gristmill.errors import OptionError
from gristmill.view import artefacts
from gristmill.view.app import make_app
from gristmill.view.artefacts import find_artefacts

TOKENIZER = gm.Tokenizer([(b"l", b"o"), (b"lo", b"w")])


def names(found):
    return [[each.name for each in kind] for kind in (found.tokenizers, found.shards, found.runs)]


def make_run(folder):
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.json").write_text("{}")


def test_a_folder_gives_everything_directly_inside_it_and_nothing_else(tmp_path):
    TOKENIZER.save(tmp_path / "tok.json")
    (tmp_path / "from_hub").mkdir()
    TOKENIZER.export(tmp_path / "from_hub", format="huggingface", overwrite=True)
    make_run(tmp_path / "run")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "manifest.json").write_text("{}")
    (tmp_path / "config.json").write_text('{"vocab_size": 1}')
    (tmp_path / "damaged.json").write_text('{"format": "gristmill-tokenizer"')
    (tmp_path / "empty").mkdir()
    found = find_artefacts([tmp_path, tmp_path / "run"])
    assert names(found) == [["from_hub", "tok.json"], ["shards"], ["run"]]


def test_several_tokenizers_in_a_folder_are_several_and_files_of_one_are_one(tmp_path):
    (tmp_path / "two").mkdir()
    for name in ("a.json", "b.json"):
        TOKENIZER.save(tmp_path / "two" / name)
    (tmp_path / "one").mkdir()
    TOKENIZER.export(tmp_path / "one", format="gpt2", overwrite=True)
    assert names(find_artefacts([tmp_path / "two"]))[0] == ["a.json", "b.json"]
    assert names(find_artefacts([tmp_path / "one"]))[0] == ["one"]


def test_more_artefacts_than_a_page_can_follow_are_an_error_and_not_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(artefacts, "MAX_INSIDE", 2)
    for name in "abc":
        make_run(tmp_path / name)
    with pytest.raises(OptionError, match=r"more than 2 runs.*Pass some of them"):
        find_artefacts([tmp_path])
    assert names(find_artefacts(sorted(tmp_path.iterdir())))[2] == ["a", "b", "c"]


@pytest.mark.filterwarnings("ignore::gristmill.FormatWarning")
def test_the_pattern_of_a_file_without_one_is_kept_when_the_file_changes(tmp_path):
    path = tmp_path / "mine.tiktoken"
    TOKENIZER.export(path, format="tiktoken")
    with pytest.raises(OptionError, match=r"pattern="):
        find_artefacts([path])
    client = TestClient(make_app(find_artefacts([path], pattern="gpt2"), token="t"), base_url="http://127.0.0.1")
    gm.Tokenizer([(b"a", b"b")]).export(path, format="tiktoken", overwrite=True)
    facts = client.get("/t/api/tokenizers").json()["tokenizers"][0]
    assert (facts["version"], facts["note"], facts["pattern"], facts["num_merges"]) == (1, "", "gpt2", 1)


def test_a_published_name_is_shown_and_a_file_of_that_name_that_appears_later_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(named_tokenizers, "_published", lambda name: TOKENIZER)
    found = find_artefacts(["gpt2"])
    assert names(found)[0] == ["gpt2"]
    client = TestClient(make_app(found, token="t"), base_url="http://127.0.0.1")
    (tmp_path / "gpt2").write_text("not a tokenizer")
    facts = client.get("/t/api/tokenizers").json()["tokenizers"][0]
    assert (facts["version"], facts["note"], facts["vocab_size"]) == (0, "", 258)


def test_a_published_name_that_is_not_on_this_machine_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(named_tokenizers, "_published", lambda name: None)
    monkeypatch.setattr(named_tokenizers, "_from_hub_cache", lambda name, pattern: None)
    with pytest.raises(FileNotFoundError, match=r"gpt2: .*cache of tiktoken.*download=True"):
        find_artefacts(["gpt2"])
    with pytest.raises(FileNotFoundError, match=r"a run folder.*gpt2.*folder that contains.*download=True"):
        find_artefacts(["runs/missing"])
    with pytest.raises(FileNotFoundError, match="folder that contains") as error:
        find_artefacts(["missing"])
    assert "download" not in str(error.value)


def test_a_failed_download_from_the_hub_keeps_its_reason(tmp_path, monkeypatch):
    def fail(name, **_):
        raise FileNotFoundError(f"{name}: the download from the Hugging Face Hub failed: 404")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(named_tokenizers, "_from_hub_cache", lambda name, pattern: None)
    monkeypatch.setattr(named_tokenizers.Tokenizer, "from_pretrained", fail)
    with pytest.raises(FileNotFoundError, match=r"owner/name: the download .* failed: 404"):
        find_artefacts(["owner/name"], download=True)
