"""gristmill inspect FOLDER, for a folder of shards."""

import numpy as np
import pytest

import gristmill as package
from gristmill.analysis import shard_contents
from gristmill.sample_corpus import stories
from gristmill.shards import LAYOUTS, Shards
from shards.builder import build_folder, train

TEXTS = [story for story, _ in zip(stories(), range(60), strict=False)]
TOKENIZER = train(text=" ".join(TEXTS), vocab_size=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "s"
    build_folder(path, TEXTS, shard_tokens=2000, tokenizer=TOKENIZER, val_texts=TEXTS[:3])
    return path


def figures(line):
    return [int(part.replace(",", "")) for part in line.split() if part.replace(",", "").isdigit()]


def test_the_table_of_splits_is_that_of_the_shards(gristmill, folder):
    code, out, err = gristmill("inspect", folder)
    assert (code, err) == (0, "")
    shards = Shards(folder)
    for part in ("gristmill", "uint16", "vocabulary 600", "<|endoftext|> = 599, after each document"):
        assert part in out, part
    train_line = next(line for line in out.splitlines() if line.startswith("  train"))
    assert figures(train_line) == [60, shards.num_tokens, shards.source_bytes, len(shards.paths)]
    assert f"{shards.source_bytes / shards.num_tokens:.3f}" in train_line
    assert any(line.startswith("  val ") for line in out.splitlines())
    assert max(map(len, out.splitlines())) <= 80


def test_tens_of_shards_are_not_all_listed(gristmill, folder):
    _, out, _ = gristmill("inspect", folder)
    table = out.split("\n\n")[2].splitlines()
    assert len(Shards(folder).paths) > 10
    assert [line.split()[0] for line in table] == [
        *("shard", "shard-00000.bin", "shard-00001.bin", "shard-00002.bin", "shard-00003.bin", "shard-00004.bin", "…"),
        *[path.name for path in Shards(folder).paths[-4:]],
        "val-00000.bin",
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tokens_are_counted_exactly_whatever_the_layout(gristmill, layout, tmp_path):
    build_folder(tmp_path / "s", TEXTS[:9], layout=layout, tokenizer=TOKENIZER)
    code, out, err = gristmill("inspect", tmp_path / "s")
    assert (code, err) == (0, "")
    ids = np.concatenate([TOKENIZER.encode_array(text) for text in TEXTS[:9]] + [np.full(9, 599)])
    counts = np.bincount(ids, minlength=600)
    section = out.split("Most frequent tokens\n")[1].split("\n\n")[0].splitlines()
    for line, id in zip(section, np.argsort(-counts, kind="stable")[:15], strict=False):
        assert line.split()[0] == str(id)
        assert f" {counts[id]:,} " in line
    assert f"{np.count_nonzero(counts):,} of 600 ids occur" in section[-1]


@pytest.mark.parametrize("layout", ["gristmill", "megatron", "datatrove", "parquet"])
def test_percentiles_of_lengths_count_documents_that_lie_across_shards_once(gristmill, layout, tmp_path):
    size = 300 if LAYOUTS[layout].shard_tokens else None
    build_folder(tmp_path / "s", TEXTS[:21], layout=layout, tokenizer=TOKENIZER, shard_tokens=size)
    lengths = [len(TOKENIZER.encode(text)) + 1 for text in TEXTS[:21]]
    _, out, _ = gristmill("inspect", tmp_path / "s")
    head, line = out.split("Document lengths, end of text included\n")[1].split("\n\n")[0].splitlines()
    assert head.replace(" %", "%").split() == ["min", "10%", "25%", "median", "75%", "90%", "99%", "max", "mean"]
    values = line.replace(",", "").split()
    assert (int(values[1]), int(values[4]), int(values[8])) == (min(lengths), int(np.median(lengths)), max(lengths))
    assert float(values[9]) == pytest.approx(np.mean(lengths), abs=0.06)


def test_a_large_folder_is_sampled_and_reported_as_sampled(gristmill, folder, monkeypatch):
    monkeypatch.setattr(shard_contents, "MAX_TOKENS", 5000)
    monkeypatch.setattr(shard_contents, "CHUNK_TOKENS", 100)
    monkeypatch.setattr(shard_contents, "MAX_DOCUMENTS", 10)
    _, out, _ = gristmill("inspect", folder)
    assert "in a sample of" in out.split("Most frequent tokens")[1].split("\n\n")[0]
    assert "Document lengths, end of text included, in a sample of" in out


def test_sample_documents_are_chosen_by_the_seed_and_shortened(gristmill, folder):
    runs = {seed: gristmill("inspect", folder, *seed)[1].split("Sample documents\n")[1] for seed in ((), ("--seed", 1))}
    assert runs[()] != runs["--seed", 1]
    assert gristmill("inspect", folder, "--seed", 0)[1].split("Sample documents\n")[1] == runs[()]
    for samples in runs.values():
        headings = [line for line in samples.splitlines() if line.startswith("  document ")]
        assert len(headings) == 3
        for heading in headings:
            number, num_tokens = figures(heading.replace(",", ""))
            assert num_tokens == len(TOKENIZER.encode(TEXTS[number]))
            assert " ".join(TEXTS[number].split())[:50] in samples
        assert len(samples.splitlines()) <= 3 * 5


def test_documents_cannot_command_the_terminal(gristmill, tmp_path):
    build_folder(tmp_path / "s", ["\x1b[31mred\x07 \u202e", ""], tokenizer=TOKENIZER)
    _, out, _ = gristmill("inspect", tmp_path / "s")
    assert not {"\x1b", "\x07", "\u202e"} & set(out)
    assert "(empty)" in out


def test_an_empty_folder_of_shards_has_something_to_show(gristmill, tmp_path):
    build_folder(tmp_path / "s", [], tokenizer=TOKENIZER)
    code, out, err = gristmill("inspect", tmp_path / "s")
    assert (code, err) == (0, "")
    assert "  train          0" in out


@pytest.mark.parametrize(
    "option", [("--text", "x"), ("--string", "x"), ("--pattern", "gpt2"), ("--special-tokens", "x")]
)
def test_an_option_of_tokenizers_is_a_usage_error(gristmill, folder, option):
    code, out, err = gristmill("inspect", folder, *option)
    assert (code, out) == (2, "")
    assert (
        err == f"gristmill: error: {option[0]} applies to a tokenizer, but {folder} is a folder of shards. "
        f"Omit {option[0]}.\n"
    )


def test_a_seed_for_a_tokenizer_is_a_usage_error(gristmill, tokenizer_path):
    code, _, err = gristmill("inspect", tokenizer_path, "--seed", 3)
    assert code == 2
    assert "--seed applies to a folder of shards" in err


def test_an_unfinished_folder_says_how_to_resume(gristmill, tmp_path):
    (tmp_path / "progress.json").touch()
    code, out, err = gristmill("inspect", tmp_path)
    assert (code, out) == (1, "")
    assert err == f"gristmill: error: {tmp_path}: unfinished: run the same command again to resume.\n"


def test_the_folder_of_a_tokenizer_is_still_a_tokenizer(gristmill, tmp_path):
    package.Tokenizer([]).export(tmp_path / "tokenizer.json", format="huggingface")
    code, out, _ = gristmill("inspect", tmp_path)
    assert code == 0
    assert "merges" in out


@pytest.mark.parametrize("layout", ["nanogpt", "megatron", "llmc"])
def test_token_files_of_another_program_are_shown(gristmill, tmp_path, layout):
    build_folder(tmp_path / "s", TEXTS, tokenizer=TOKENIZER, layout=layout)
    for name in ("manifest.json", "tokenizer.json"):
        (tmp_path / "s" / name).unlink()
    code, out, err = gristmill("inspect", tmp_path / "s")
    assert (code, err) == (0, "")
    shards = Shards(tmp_path / "s")
    assert f"{layout}, written by another program" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("  train "))
    documents = f"{len(TEXTS)}" if layout == "megatron" else "-"
    assert row == ["train", documents, f"{shards.num_tokens:,}", f"{len(shards.paths)}"]
