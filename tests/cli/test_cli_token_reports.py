"""gristmill report for tokenizers and shards, compare -o, train-tokenizer --report, and encode --report."""

import pytest

import gristmill as gm
from recorded_runs import write_run


@pytest.fixture
def here(tmp_path, monkeypatch, tokenizer_path, stories_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tok.json").write_bytes(tokenizer_path.read_bytes())
    (tmp_path / "story.txt").write_bytes(stories_path.read_bytes()[:20_000])
    return tmp_path


def test_a_tokenizer_is_reported_on_named_texts(gristmill, here):
    (here / "ja.txt").write_text("これは日本語です。", encoding="utf-8")
    texts = ["--text", "en=story.txt", "--text", "日本語=ja.txt"]
    code, out, err = gristmill("report", "tok.json", *texts, "-o", "p.html")
    assert (code, err) == (0, "")
    assert out == "  page  p.html\n  text  en, 日本語\n"
    page = (here / "p.html").read_text(encoding="utf-8")
    assert ">en<" in page and ">日本語<" in page


def test_several_tokenizers_are_compared_and_shards_have_a_page(gristmill, here):
    gm.Tokenizer.load("tok.json").truncated(400).save("small.json")
    code, out, err = gristmill("report", "tok.json", "small.json", "--text", "story.txt")
    assert (code, err) == (0, "")
    assert "comparison.html" in out and (here / "comparison.html").is_file()
    assert gristmill("encode", "story.txt", "-t", "tok.json", "-o", "shards")[0] == 0
    assert gristmill("report", "shards") == (0, "  page  report.html\n", "")
    code, out, err = gristmill("report", "shards")
    assert (code, out) == (1, "") and "--overwrite" in err
    code, _, err = gristmill("report", "shards", "tok.json")
    assert code == 2 and "shards is a folder of shards, but tok.json is a tokenizer" in err
    code, _, err = gristmill("report", "shards", "shards", "-o", "other.html")
    assert code == 2 and "one folder of shards" in err
    code, _, err = gristmill("report", "shards", "--text", "story.txt")
    assert code == 2 and "--text applies to a tokenizer" in err


def test_what_report_does_not_know_names_what_it_knows(gristmill, here):
    (here / "folder").mkdir()
    for name in ("story.txt", "folder"):
        code, out, err = gristmill("report", name)
        assert (code, out) == (1, "")
        assert err.startswith(f"gristmill: error: {name} is nothing that report knows. Pass a run folder")
        for known in ("metrics.jsonl", "manifest.json", "tokenizer.json", "nanoGPT"):
            assert known in err


def test_compare_writes_a_page_and_shows_all_measures(gristmill, here):
    gm.Tokenizer.load("tok.json").truncated(400).save("small.json")
    code, out, err = gristmill("compare", "tok.json", "small.json", "--text", "a=story.txt", "-o", "c.html")
    assert (code, err) == (0, "")
    head, row = out.splitlines()[1:3]
    assert head.split()[-4:] == ["bytes/token", "tokens/word", "Rényi", "unused"]
    data = (here / "story.txt").read_bytes()
    tokenizer = gm.Tokenizer.load("tok.json")
    ids = tokenizer.encode(data)
    unused = tokenizer.vocab_size - len(tokenizer.special_tokens) - len(set(ids))
    assert row.split()[-4:-2] == [f"{len(data) / len(ids):.3f}", f"{len(ids) / len(data.split()):.3f}"]
    assert row.split()[-1] == str(unused)
    assert "tok.json and small.json" in (here / "c.html").read_text(encoding="utf-8")
    code, out, err = gristmill("compare", "tok.json", "small.json", "-o", "c.html")
    assert (code, out) == (1, "") and "--overwrite" in err


def test_names_that_are_not_on_this_machine_are_one_line(gristmill, here, monkeypatch):
    from gristmill.analysis import named_tokenizers

    monkeypatch.setattr(named_tokenizers, "_published", lambda name: None)
    monkeypatch.setattr(named_tokenizers, "_from_hub_cache", lambda name, pattern: None)
    code, out, err = gristmill("compare", "tok.json", "gpt2")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "gpt2: no such file or folder" in err and "--download to download it" in err


@pytest.fixture
def hub_cache(tmp_path_factory, monkeypatch):
    """A cache of the Hugging Face Hub with the tokenizer owner/model."""
    constants = pytest.importorskip("huggingface_hub.constants")
    cache = tmp_path_factory.mktemp("hub")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    revision = "0123456789abcdef0123456789abcdef01234567"
    model = cache / "models--owner--model"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(revision)
    (model / "snapshots" / revision).mkdir(parents=True)
    tokenizer = gm.Tokenizer([(b"a", b"b")], special_tokens=["<|endoftext|>"])
    tokenizer.export(model / "snapshots" / revision, format="huggingface", overwrite=True)


def test_a_tokenizer_of_the_hub_is_reported_and_compared_by_name(gristmill, here, hub_cache):
    code, out, err = gristmill("report", "owner/model", "--text", "story.txt")
    assert (code, err) == (0, "") and "report.html" in out
    assert "<h1>owner/model</h1>" in (here / "report.html").read_text(encoding="utf-8")
    code, out, err = gristmill("report", "tok.json", "owner/model", "--text", "story.txt")
    assert (code, err) == (0, "")
    assert "<h1>tok.json and owner/model</h1>" in (here / "comparison.html").read_text(encoding="utf-8")


def test_a_name_of_the_hub_that_is_not_on_this_machine_names_download(gristmill, here, hub_cache, monkeypatch):
    code, out, err = gristmill("report", "owner/other", "--text", "story.txt")
    assert (code, out, err.count("\n")) == (1, "", 1) and not (here / "report.html").exists()
    assert "owner/other: no such file or folder, and the cache of the Hugging Face Hub" in err
    assert "--download to download it" in err
    downloaded = classmethod(lambda cls, name, **_: gm.Tokenizer.load("tok.json"))
    monkeypatch.setattr(gm.Tokenizer, "from_pretrained", downloaded)
    assert gristmill("report", "owner/other", "--text", "story.txt", "--download")[0] == 0


def test_a_missing_path_beside_a_run_is_not_taken_for_a_name_of_the_hub(gristmill, here, hub_cache):
    write_run(here / "runs" / "a", num_records=5)
    for paths in (("runs/a", "runs/b"), ("runs/b", "runs/a")):
        code, out, err = gristmill("report", *paths)
        assert (code, out) == (1, "") and "runs/b: no such file or folder" in err
    code, _, err = gristmill("report", "runs/a", "gpt2")
    assert code == 2 and "runs/a is a run, but gpt2 is a tokenizer" in err
    for name in ("missing", "runs/missing.json"):
        code, _, err = gristmill("report", name)
        assert (code, err) == (1, f"gristmill: error: {name}: no such file or folder\n")


def test_a_text_name_twice_is_wrong_usage(gristmill, here):
    code, _, err = gristmill("compare", "tok.json", "tok.json", "--text", "a=story.txt", "--text", "a=tok.json")
    assert code == 2 and "given twice" in err


def test_training_writes_its_report_beside_the_tokenizer(gristmill, here):
    options = ["--vocab-size", 300, "--progress", "none"]
    code, out, err = gristmill("train-tokenizer", "story.txt", *options, "-o", "new.json", "--report")
    assert (code, err) == (0, "")
    assert "report           new.html" in out
    page = (here / "new.html").read_text(encoding="utf-8")
    for words in ("Time by stage", "Count of the winning pair", "Memory over time", "the training corpus"):
        assert words in page
    code, _, err = gristmill("train-tokenizer", "story.txt", *options, "-o", "newer.json", "--report", "new.html")
    assert code == 1 and "new.html" in err and not (here / "newer.json").exists()
    code, _, err = gristmill("train-tokenizer", "--report", "story.txt", *options, "-o", "newer.json")
    assert code == 2 and "ends in .html" in err
    assert gristmill("count-words", "story.txt", "-o", "w.gmw")[0] == 0
    code, _, err = gristmill("train-tokenizer", "w.gmw", *options, "-o", "words.json", "--report", "w.html")
    assert (code, err) == (0, "")
    assert "the built-in sample corpus" in (here / "w.html").read_text(encoding="utf-8")


def test_encoding_writes_its_report_beside_the_shards(gristmill, here):
    options = ["-t", "tok.json", "-o", "shards/", "--progress", "none"]
    code, out, err = gristmill("encode", "story.txt", *options, "--report")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "  report       shards.html"
    page = (here / "shards.html").read_text(encoding="utf-8")
    for words in ("Stages of the encoding", "Memory over time", "throughput", "story.txt"):
        assert words in page
    # A page that exists is refused before the work; complete shards have a page without times.
    code, out, err = gristmill("encode", "story.txt", *options, "--report")
    assert (code, out) == (1, "") and "shards.html" in err and "--overwrite" in err
    code, out, err = gristmill("encode", "story.txt", *options, "--report", "again.html")
    assert (code, err) == (0, "") and "already complete" in out
    assert "Stages of the encoding" not in (here / "again.html").read_text(encoding="utf-8")


def test_encoding_by_tasks_reports_its_machines(gristmill, here):
    options = ["-t", "tok.json", "-o", "parts", "--progress", "none", "--executor", "processes", "--workers", "2"]
    code, _, err = gristmill("encode", "story.txt", *options, "--report", "parts.html")
    assert (code, err) == (0, "")
    page = (here / "parts.html").read_text(encoding="utf-8")
    assert ">Machines<" in page and ">assemble<" in page


def test_pages_of_an_encoding_that_cannot_be_written_are_refused_before_the_work(gristmill, here):
    code, _, err = gristmill("encode", "--report", "story.txt", "-t", "tok.json", "-o", "new")
    assert code == 2 and "ends in .html" in err
    code, _, err = gristmill("encode", "story.txt", "-t", "tok.json", "-o", "memory://new", "--report")
    assert code == 2 and "memory://new is a URL" in err
    arguments = ["task", "plan", "encode", "story.txt", "-t", "tok.json", "-o", "new", "--report", "new.html"]
    code, _, err = gristmill(*arguments)
    assert code == 2 and "--report needs a run" in err
    assert not (here / "new").exists()
