"""gristmill train-model corpus.txt: training on text."""

import json
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gristmill as gm

pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")

TINY = (
    *("--context_length=16", "--num_layers=1", "--num_heads=2", "--d_model=16", "--batch_size=2", "--max_steps=2"),
    *("--device=cpu", "--progress=none"),
)


@pytest.fixture(autouse=True)
def work_folder(tmp_path, monkeypatch, stories_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stories.txt").write_bytes(stories_path.read_bytes()[:60_000])
    return tmp_path


def test_text_becomes_a_model_in_one_go_and_the_shards_serve_again(gristmill, work_folder):
    code, _, err = gristmill("train-model", "stories.txt", "-o", "run", *TINY)
    assert (code, err) == (0, "")
    shards = gm.Shards("run-shards")
    assert set(shards.splits) == {"train", "val"}
    assert shards.vocab_size == json.loads((work_folder / "run/config.json").read_bytes())["vocab_size"] == 600
    made = (work_folder / "run-shards/manifest.json").stat().st_mtime_ns
    code, _, err = gristmill("train-model", "stories.txt", "-o", "run", "--resume", "--max_steps=3", "--progress=none")
    assert (code, err) == (0, "")
    assert (work_folder / "run-shards/manifest.json").stat().st_mtime_ns == made
    code, out, _ = gristmill("generate", "run", "--prompt", "Once", "--max-tokens", 5, "--device", "cpu")
    assert code == 0 and out.startswith("Once")


def test_a_tokenizer_that_is_given_encodes_the_text(gristmill, tokenizer_path):
    assert gristmill("train-model", "stories.txt", "-o", "run", *TINY, "--tokenizer", tokenizer_path)[0] == 0
    assert gm.Shards("run-shards").tokenizer_fingerprint == gm.Tokenizer.load(tokenizer_path).fingerprint


def test_vocab_size_is_that_of_the_tokenizer_that_is_trained(gristmill):
    assert gristmill("train-model", "stories.txt", "-o", "run", *TINY, "--vocab_size", 400)[0] == 0
    assert gm.Shards("run-shards").vocab_size == 400


def test_another_corpus_is_refused_and_overwrite_replaces_run_and_shards(gristmill, work_folder):
    assert gristmill("train-model", "stories.txt", "-o", "run", *TINY)[0] == 0
    before = gm.Shards("run-shards").num_tokens
    (work_folder / "stories.txt").write_text("Another story. " * 3000, encoding="utf-8")
    code, _, err = gristmill("train-model", "stories.txt", "-o", "run", *TINY, "--resume")
    assert code == 1 and "run-shards" in err and err.count("\n") == 1
    assert gm.Shards("run-shards").num_tokens == before
    assert gristmill("train-model", "stories.txt", "-o", "run", *TINY, "--overwrite")[0] == 0
    assert gm.Shards("run-shards").num_tokens != before


def test_a_folder_with_a_run_is_refused_before_anything_is_made(gristmill, work_folder):
    assert gristmill("train-model", "stories.txt", "-o", "run", *TINY)[0] == 0
    (work_folder / "run-shards").rename(work_folder / "other")
    code, _, err = gristmill("train-model", "stories.txt", "-o", "run", *TINY)
    assert code == 1 and "Already contains a run" in err
    assert not (work_folder / "run-shards").exists()


def test_json_lines_globs_folders_and_parquet_are_text_too(gristmill, work_folder):
    texts = [f"Story {number}. Once upon a time there was a cat." for number in range(300)]
    (work_folder / "many").mkdir()
    (work_folder / "many/a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    pq.write_table(pa.table({"text": texts}), work_folder / "texts.parquet")
    for number, data in enumerate(["many/a.jsonl", "many/*.jsonl", "many", "texts.parquet"]):
        code, _, err = gristmill("train-model", data, "-o", f"run{number}", *TINY)
        assert code == 0, err
        assert gm.Shards(f"run{number}-shards").num_tokens > 1000


def test_a_dry_run_on_text_makes_nothing_and_gives_three_commands_that_work(gristmill, work_folder):
    code, out, err = gristmill("train-model", "stories.txt", "-o", "run", *TINY, "--dry-run")
    assert (code, out) == (2, "")
    assert [path.name for path in work_folder.iterdir()] == ["stories.txt"]
    commands = [shlex.split(command) for command in err.strip().partition("Run: ")[2].split(" && ")]
    assert [command[1] for command in commands] == ["train-tokenizer", "encode", "train-model"]
    for _, *arguments in commands[:2]:
        assert gristmill(*arguments, "--progress", "none")[0] == 0
    code, out, _ = gristmill(*commands[2][1:], *TINY, "--dry-run")
    assert code == 0 and "nothing was written" in out


def test_a_tokenizer_beside_shards_is_refused(gristmill, tokenizer_path):
    assert gristmill("train-model", "stories.txt", "-o", "run", *TINY)[0] == 0
    code, _, err = gristmill("train-model", "run-shards", "-o", "two", *TINY, "--tokenizer", tokenizer_path)
    assert code == 2 and "--tokenizer applies to text" in err


def test_text_for_a_model_that_is_trained_further_is_encoded_with_the_tokenizer_of_that_model(gristmill, work_folder):
    assert gristmill("train-model", "stories.txt", "-o", "base", *TINY)[0] == 0
    (work_folder / "more.txt").write_text("Quite another text, with qualities of its own. " * 500, encoding="utf-8")
    code, _, err = gristmill(
        *("train-model", "more.txt", "-o", "run", "--init-from", "base"),
        *("--max-steps", 2, "--batch-size", 2, "--device", "cpu", "--progress", "none"),
    )
    assert (code, err) == (0, "")
    assert gm.Shards("run-shards").tokenizer_fingerprint == gm.Shards("base-shards").tokenizer_fingerprint


def test_a_chat_template_for_text_that_is_no_conversation_is_refused_before_anything_is_made(gristmill, work_folder):
    code, _, err = gristmill("train-model", "stories.txt", "-o", "run", *TINY, "--chat-template", "plain")
    assert code == 2 and "--conversations" in err
    assert not (work_folder / "run-shards").exists()
