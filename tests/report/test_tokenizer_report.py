"""Report pages of tokenizers and shards, and comparisons of tokenizers."""

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

import gristmill as gm
from gristmill.analysis.texts import Text
from gristmill.errors import OptionError, ShardsFormatError
from gristmill.profile import Profile, Stage, TaskTime
from gristmill.report import write_shards_report, write_tokenizer_comparison, write_tokenizer_report
from gristmill.report.document import Plots, Table, Tokens, document_page
from gristmill.report.profile_sections import encoding_figures, encoding_sections, training_sections
from gristmill.report.shard_pages import shards_document
from gristmill.report.tokenizer_comparison import comparison_document
from gristmill.report.tokenizer_pages import measure_texts, tokenizer_document
from gristmill.sample_corpus import stories
from shards.builder import build_folder

STORIES = [story for story, _ in zip(stories(), range(20), strict=False)]
TOKENIZER = gm.train_tokenizer(STORIES, vocab_size=500, progress=None)
LARGER = gm.train_tokenizer(STORIES, vocab_size=800, progress=None)


def text_of(page):
    """The words that a reader sees."""
    content = page.read_text(encoding="utf-8")
    return " ".join(unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", content, flags=re.S)).split())


def section(document, title):
    return next(section for section in document.sections if section.title == title)


def plots_of(document):
    return [plot.name for section in document.sections if isinstance(section, Plots) for plot in section.plots]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "en.txt").write_text("".join(STORIES[:3]), encoding="utf-8")
    (folder / "ja.txt").write_text("これは日本語の文章です。" * 20, encoding="utf-8")
    TOKENIZER.save(folder / "tok.json")
    LARGER.save(folder / "larger.json")
    return folder


def test_a_page_has_the_figures_of_each_text_and_is_the_same_twice(files, tmp_path):
    texts = {"English": files / "en.txt", "Japanese": files / "ja.txt"}
    page = write_tokenizer_report(files / "tok.json", texts=texts, out=tmp_path / "a.html")
    (tmp_path / "b.html").touch()
    again = write_tokenizer_report(files / "tok.json", texts=texts, out=tmp_path / "b.html", overwrite=True)
    assert page.read_bytes() == again.read_bytes()
    words = text_of(page)
    for path in texts.values():
        data = path.read_bytes()
        ratio = len(data) / len(TOKENIZER.encode(data))
        assert f"{ratio:.3f}" in words
    for expected in ("Rényi efficiency", "fertility", "unused tokens", "Hiragana", "Partial UTF-8", "<|endoftext|>"):
        assert expected in words
    assert "http" not in page.read_text(encoding="utf-8").replace("http://www.w3.org", "")
    with pytest.raises(FileExistsError, match="overwrite"):
        write_tokenizer_report(files / "tok.json", out=page)


HOSTILE = {
    "empty": b"",
    "one token": b"a",
    "invalid UTF-8": b"\xff\xfe" * 50 + b"caf\xc3",
    "spaces": b" " * 1_000_000,
    "markup": b"<script>alert(1)</script> &amp; $x^2$ \x1b[31m",
}


@pytest.mark.parametrize("tokenizer", [TOKENIZER, gm.Tokenizer([])], ids=["trained", "only bytes"])
def test_any_text_and_any_tokenizer_has_a_page(tokenizer, tmp_path):
    texts = []
    for name, data in HOSTILE.items():
        (tmp_path / name).write_bytes(data)
        texts.append(tmp_path / name)
    page = write_tokenizer_report(tokenizer, texts=texts, name="<b>$name$", out=tmp_path / "all.html")
    content = page.read_text(encoding="utf-8")
    assert "<script" not in content and "\x1b" not in content and "<b>" not in content
    assert "1 MB" in text_of(page)


def test_an_empty_text_has_no_figures():
    measured = [measure_texts(f"{i}", tokenizer, [Text("a", b"")]) for i, tokenizer in enumerate((TOKENIZER, LARGER))]
    single, several = tokenizer_document(measured[0]), comparison_document(measured)
    assert single.result == "500 tokens. There is no text to measure: a (0 B)."
    assert several.result == "There is no text to measure: a (0 B)."
    for document in (single, several):
        assert not {"zipf", "compression"} & set(plots_of(document))
        assert "no place" not in document_page(document)
    assert [figure.value for figure in single.figures][1:4] == ["–", "–", "–"]


def test_plots_and_tables_of_a_tokenizer_that_was_just_trained():
    measured = measure_texts("tok", TOKENIZER, [Text("a", STORIES[0].encode())])
    document = tokenizer_document(measured)
    assert {"compression", "zipf", "lengths", "vocabulary_scripts", "stages"} <= set(plots_of(document))
    merge = next(row for row in section(document, "Stages of the training").rows if row[0].value == "merge")
    assert merge[3].value.startswith("243 merges at ")
    loaded = replace(measured, tokenizer=gm.Tokenizer(TOKENIZER.merges))
    assert not {"stages", "winners"} & set(plots_of(tokenizer_document(loaded)))


def test_a_profile_with_memory_and_counts_is_drawn():
    stages = (Stage(stage="count", seconds=2.0, num_bytes=10**9), Stage(stage="merge", seconds=0.5, num_merges=1000))
    profile = Profile(
        stages=stages,
        seconds=3.0,
        num_threads=4,
        peak_memory_bytes=2 * 10**9,
        merge_counts=np.arange(1000, 0, -1).astype(np.uint64),
        memory=((0.0, 10**8), (1.0, 2 * 10**9), (3.0, 10**9)),
    )
    plots, table = training_sections(profile)
    assert [plot.name for plot in plots.plots] == ["winners", "stages", "memory"]
    assert [[cell.value for cell in row] for row in table.rows] == [
        ["count", "2 s", "80 %", "1 GB at 500 MB/s"],
        ["merge", "0.5 s", "20 %", "1,000 merges at 2k/s"],
    ]
    assert table.note == "4 threads. Peak memory of the process: 2 GB."
    bare = replace(profile, merge_counts=None, memory=(), stages=())
    assert [plot.name for plot in training_sections(bare)[0].plots] == []


def test_special_tokens_that_were_encoded_as_plain_text_are_reported():
    texts = [Text("a", b"one<|endoftext|>two")]
    plain, special = (measure_texts("t", TOKENIZER, texts, allowed_special=rule) for rule in ((), "all"))
    for document in (tokenizer_document(plain), comparison_document([special, plain])):
        assert document.troubles[0].startswith(
            "The text contains special tokens (<|endoftext|>), which were encoded as"
        )
    assert not tokenizer_document(special).troubles
    assert special.total.counts[TOKENIZER.special_tokens["<|endoftext|>"]] == 1
    named = measure_texts("t", TOKENIZER, texts, allowed_special={"<|endoftext|>"})
    assert not named.plain_specials


def test_never_used_tokens_are_those_that_the_text_does_not_have():
    document = tokenizer_document(measure_texts("tok", TOKENIZER, [Text("a", b"the the the")]))
    groups = {group.title: group for group in section(document, "Tokens").groups}
    assert isinstance(section(document, "Tokens"), Tokens)
    ids = [int(token.note) for token in groups["Never used"].tokens]
    assert not set(ids) & set(TOKENIZER.encode("the the the"))
    assert groups["Most frequent"].tokens[0].text == "␣the"


def test_a_comparison_marks_the_best_and_shows_where_splits_differ(files, tmp_path):
    texts = [Text("a", STORIES[0].encode())]
    measured = [measure_texts(name, tok, texts) for name, tok in (("small", TOKENIZER), ("large", LARGER))]
    document = comparison_document(measured)
    table = section(document, "Figures")
    assert isinstance(table, Table)
    ratios = next(row for row in table.rows if row[0].value == "bytes per token")
    expected = [len(texts[0].data) / len(tok.encode(texts[0].data)) for tok in (TOKENIZER, LARGER)]
    assert [cell.value for cell in ratios[1:]] == [f"{ratio:.3f}" for ratio in expected]
    assert [cell.is_best for cell in ratios[1:]] == [False, True]
    assert document.result.startswith("large has the most bytes per token")
    places = section(document, "Different splits").splits
    assert places and all(rows[0][1] != rows[1][1] for rows in (place.rows for place in places))
    same = comparison_document([measured[0], replace(measured[0], name="copy")])
    assert "All have" in same.result
    assert not any(cell.is_best for row in section(same, "Figures").rows for cell in row)
    page = write_tokenizer_comparison(
        [files / "tok.json", str(files / "larger.json")], texts=files / "en.txt", out=tmp_path / "c.html"
    )
    assert "tok.json and larger.json" in text_of(page)


def test_a_comparison_has_each_measure_by_text(files):
    texts = [Text("English", STORIES[0].encode()), Text("one word", b"abcabcabc"), Text("empty", b"")]
    pair = {"small": TOKENIZER, "large": LARGER}
    document = comparison_document([measure_texts(name, tok, texts) for name, tok in pair.items()])
    tables = {table.title: table for table in section(document, "By text").tables}
    assert list(tables) == ["Bytes per token", "Fertility", "Rényi efficiency", "Unused tokens"]
    for title, table in tables.items():
        assert [row[0].value for row in table.rows] == ["English", "one word", "empty"]
        assert [column.name for column in table.columns] == ["text", "small", "large"], title
    for number, text in enumerate(texts):
        for column, tokenizer in enumerate(pair.values(), 1):
            ids = tokenizer.encode(text.data)
            ordinary = tokenizer.vocab_size - len(tokenizer.special_tokens)
            expected = {
                "Bytes per token": f"{len(text.data) / len(ids):.3f}" if ids else "–",
                "Fertility": f"{len(ids) / len(text.data.split()):.3f}" if ids else "–",
                "Unused tokens": f"{ordinary - len(set(ids)):,}",
            }
            assert {title: tables[title].rows[number][column].value for title in expected} == expected
    assert [cell.is_best for cell in tables["Bytes per token"].rows[0][1:]] == [False, True]
    assert not any(cell.is_best for row in tables["Unused tokens"].rows for cell in row)
    assert "Sizes of the texts: English" in section(document, "By text").note
    page = document_page(document)
    assert page.count('<div class="one">') == 4
    one = comparison_document([measure_texts(name, tok, texts[:1]) for name, tok in pair.items()])
    assert '<div class="one">' not in document_page(one)


def test_wrong_lists_of_tokenizers(files, tmp_path):
    for wrong in ([files / "tok.json"], [], files / "tok.json", TOKENIZER):
        with pytest.raises(OptionError, match="two or more tokenizers"):
            write_tokenizer_comparison(wrong, out=tmp_path / "c.html")
    with pytest.raises(OptionError, match="texts is empty"):
        write_tokenizer_report(TOKENIZER, texts=[], out=tmp_path / "c.html")
    assert list(tmp_path.iterdir()) == [], "the folder is empty afterwards"


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "shards"
    build_folder(path, STORIES, shard_tokens=2000, tokenizer=TOKENIZER, val_texts=STORIES[:2])
    return path


def test_the_page_of_shards_has_splits_lengths_frequencies_and_samples(shards, tmp_path):
    page = write_shards_report(shards, out=tmp_path / "s.html")
    assert page.read_bytes() == write_shards_report(shards, out=tmp_path / "t.html").read_bytes()
    samples = [section(shards_document(shards, seed=seed), "Sample documents").samples for seed in (0, 1)]
    assert samples[0] != samples[1] and len(samples[0]) == 5
    words = text_of(page)
    lengths = [len(TOKENIZER.encode(story)) + 1 for story in STORIES + STORIES[:2]]
    assert f"{sum(lengths):,} tokens in 22 documents" in words
    assert f"{max(lengths):,}" in words and f"{np.mean(lengths):,.1f}" in words
    assert "Token frequencies" in words and "Sample documents" in words and "Document lengths" in words


ENCODED = Profile(
    stages=(
        Stage(stage="read", seconds=0.5, num_bytes=4 * 10**9, num_tokens=10**9),
        Stage(stage="find", seconds=2.0, num_bytes=4 * 10**9, num_tokens=10**9),
        Stage(stage="encode", seconds=16.0, num_bytes=4 * 10**9, num_tokens=10**9),
    ),
    seconds=20.0,
    num_threads=8,
    peak_memory_bytes=3 * 10**9,
    memory=((0.0, 10**8), (20.0, 3 * 10**9)),
)


def test_the_profile_of_an_encoding_gives_stages_rates_and_memory():
    plots, table, machines = encoding_sections(ENCODED)
    assert [plot.name for plot in plots.plots] == ["stages", "memory"]
    assert [[cell.value for cell in row[:4]] for row in table.rows] == [
        ["read", "0.5 s", "–", "–"],
        ["find", "2 s", "2 GB/s", "500M/s"],
        ["encode", "16 s", "250 MB/s", "62.5M/s"],
    ]
    assert table.note == "8 threads, 20 s. Peak memory of the process: 3 GB." and not machines.rows
    time, throughput = encoding_figures(ENCODED, source_bytes=4 * 10**9)
    assert (time.value, time.note) == ("20 s", "8 threads")
    assert (throughput.value, throughput.note) == ("200 MB/s", "50M tokens per second")
    resumed, _ = encoding_figures(ENCODED, source_bytes=5 * 10**9)
    assert resumed.note == "resumed; for the last 4 GB of text"


def test_the_tasks_of_an_encoding_are_listed_by_machine_and_reused_ones_give_no_rate():
    def task(number, node, **changes):
        values = {"stage": "encode", "worker": "w", "seconds": 2.0, "num_bytes": 10**9, "attempts": 1}
        return TaskTime(number=number, node=node, **{**values, "is_reused": False, **changes})

    profile = replace(ENCODED, tasks=(task(0, "b"), task(1, "a", attempts=2), task(2, "a", is_reused=True)))
    plots, table, machines = encoding_sections(profile)
    assert plots.plots[0].note == "Sums over the workers. The whole run took 20 s." and "8 workers" in table.note
    assert [[cell.value for cell in row] for row in machines.rows] == [
        ["a", "1", "1", "1", "1", "1 GB", "500 MB/s", "–"],
        ["b", "1", "1", "0", "0", "1 GB", "500 MB/s", "–"],
    ]
    (time,) = encoding_figures(profile, source_bytes=4 * 10**9)
    assert time.note == "resumed; 1 of 3 tasks were done before"


def test_the_page_of_shards_shows_the_run_that_made_them(tmp_path):
    with gm.recording():
        run = gm.encode_corpus(STORIES, TOKENIZER, out=tmp_path / "s", num_threads=1, progress=None)
    words = text_of(write_shards_report(run.folder, profile=run.profile, out=tmp_path / "with.html"))
    for expected in ("Stages of the encoding", "Time by stage", "Memory over time", "throughput", "1 thread"):
        assert expected in words
    assert "Stages of the encoding" not in text_of(write_shards_report(run.folder, out=tmp_path / "without.html"))


@pytest.mark.parametrize("wrong", [TOKENIZER.profile, {"seconds": 1}], ids=["of a training", "no profile"])
def test_the_page_of_shards_takes_only_the_profile_of_an_encoding(shards, tmp_path, wrong):
    with pytest.raises(OptionError, match=r"Pass EncodeRun\.profile"):
        write_shards_report(shards, profile=wrong, out=tmp_path / "s.html")
    assert not (tmp_path / "s.html").exists()


@pytest.mark.parametrize("layout", ["nanogpt", "megatron", "parquet"])
def test_shards_of_every_kind_have_a_page(tmp_path, layout):
    build_folder(tmp_path / "s", STORIES[:5], tokenizer=TOKENIZER, layout=layout)
    assert f"format {layout}" in text_of(write_shards_report(tmp_path / "s", out=tmp_path / "own.html"))
    if layout == "parquet":
        return
    for name in ("manifest.json", "tokenizer.json"):
        (tmp_path / "s" / name).unlink()
    words = text_of(write_shards_report(tmp_path / "s", out=tmp_path / "foreign.html"))
    assert "the tokenizer is unknown" in words and "written by another program" in words


def test_empty_shards_have_a_page_and_other_folders_have_an_error(tmp_path):
    build_folder(tmp_path / "s", [], tokenizer=TOKENIZER)
    assert "0 tokens in 0 documents" in text_of(write_shards_report(tmp_path / "s", out=tmp_path / "s.html"))
    with pytest.raises(ShardsFormatError, match="not a folder of shards"):
        write_shards_report(tmp_path, out=tmp_path / "x.html")
    with pytest.raises(FileNotFoundError):
        write_shards_report(tmp_path / "missing", out=tmp_path / "x.html")
