"""Corpora by name, by path and by size."""

import lzma

import pytest

from gristmill.bench import corpora, train
from gristmill.bench.scaling import _incomplete
from gristmill.errors import OptionError


def test_the_start_of_a_corpus_ends_after_a_whole_character(tmp_path):
    path = tmp_path / "greek.txt"
    path.write_text("α" * 2000)
    start = corpora.resolve(f"{path}:1kB")
    assert (start.name, start.path.read_text()) == ("greek_1kB", "α" * 500)
    path.write_text("aα" * 2000)
    assert corpora.resolve(f"{path}:1kB").path.read_bytes() == ("aα" * 333).encode() + b"a"
    assert corpora.resolve(f"{path}:1MB").num_bytes == 6000
    with pytest.raises(OptionError, match="Pass a size > 0"):
        corpora.resolve(f"{path}:0MB")


def test_a_sample_of_any_size_is_made_once(tmp_path, capsys):
    first, second = corpora.resolve("sample:30kB"), corpora.resolve("sample:30kB")
    assert first == second and first.path.parent == tmp_path / "cache"
    assert 20_000 < first.num_bytes <= 30_000
    assert capsys.readouterr().err.count("generating") == 1


def test_real_text_is_found_in_the_folder_of_the_user_and_decompressed(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_DATA", str(tmp_path))
    (tmp_path / "code_40M.txt.xz").write_bytes(lzma.compress(b"int main() {}"))
    corpus = corpora.resolve("code")
    assert (corpus.name, corpus.path.read_bytes()) == ("code", b"int main() {}")
    (tmp_path / "code.txt").write_bytes(b"newer")
    assert corpora.resolve("code").path.read_bytes() == b"newer"
    with pytest.raises(OptionError, match=r"no english\.txt or english_\*\.txt in "):
        corpora.resolve("large")


def test_an_empty_file_is_an_error(tmp_path):
    (tmp_path / "empty.txt").touch()
    with pytest.raises(OptionError, match="the file is empty"):
        corpora.resolve(tmp_path / "empty.txt")


@pytest.mark.parametrize(
    ("action", "options"),
    [
        ("train", ["--systems", "gristmill"]),
        ("encode", ["--systems", "gristmill:encode_array"]),
        ("pipeline", ["--systems", "gristmill:nanogpt"]),
        ("scaling", []),
        ("ablation", ["--rows", "h"]),
    ],
)
def test_a_corpus_without_text_is_skipped_and_the_next_one_is_measured(
    bench, small_corpus, tmp_path, monkeypatch, action, options
):
    monkeypatch.setattr(train.reference_digests, "tokenizers_digest", lambda *_, **__: None)
    empty = tmp_path / "separators.txt"
    empty.write_text("<|endoftext|>" * 2)
    small = ["--vocab-size", 400, "--threads", 1, "--quick", *options]
    code, out, err = bench(action, "--corpus", empty, small_corpus, *small)
    assert code == 0, err
    assert "skipped separators: " in err and "Traceback" not in err
    assert "separators" not in out
    assert [path.name.split("_")[1] for path in (tmp_path / "out").glob("*.json")] == ["stories"]
    code, out, err = bench(action, "--corpus", empty, *small)
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("gristmill: error: ")


@pytest.mark.parametrize("text", ["a", "aä", "a€", "a😀"])
def test_the_incomplete_character_at_the_end_of_a_part_is_measured(text):
    data = text.encode()
    assert _incomplete(data) == 0
    assert [_incomplete(data[:i]) for i in range(2, len(data))] == list(range(1, len(data) - 1))
