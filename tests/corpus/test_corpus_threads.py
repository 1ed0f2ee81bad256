"""Reading ahead: several inputs at once, in order; errors in order; no thread keeps running."""

from __future__ import annotations

import threading
import time

import pytest
from corpus_files import KINDS, compress, cut_at_spaces, documents_in, write_documents

import gristmill as gm
from gristmill.corpus import Reading, find_files, read_files
from gristmill.corpus import threads as module

DOCUMENTS = [[f"file {i}, document {j} ".encode() * (j % 4) for j in range(30)] for i in range(len(KINDS))]


def reader_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("gristmill-")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    deadline = time.monotonic() + 5
    while reader_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reader_threads() == []


@pytest.fixture
def files(tmp_path):
    return find_files(
        [write_documents(tmp_path / name, texts) for name, texts in zip(KINDS, DOCUMENTS, strict=True)], Reading()
    )


@pytest.mark.parametrize("num_readers", [1, 2, 7, 100])
def test_batches_come_in_order_whatever_the_number_of_readers(files, small_batches, num_readers):
    found = list(read_files(files, Reading(), cut=cut_at_spaces, num_readers=num_readers))
    assert [index for index, _ in found] == sorted(index for index, _ in found)
    for i, texts in enumerate(DOCUMENTS):
        assert documents_in([batch for index, batch in found if index == i]) == texts


def test_reading_continues_from_any_mark_of_any_input(files, small_batches):
    def places(**options):
        found = read_files(files, Reading(), cut=cut_at_spaces, num_readers=3, **options)
        return [(index, batch.mark, batch.next_mark) for index, batch in found]

    all_places = places()
    for i in range(0, len(all_places), 7):
        assert places(first=all_places[i][0], mark=all_places[i][1]) == all_places[i:]


def test_an_error_is_raised_where_its_batch_would_have_come(tmp_path, small_batches):
    (tmp_path / "a.txt").write_bytes(b"good " * 100)
    (tmp_path / "b.txt.gz").write_bytes(b"bad")
    (tmp_path / "c.txt").write_bytes(b"good " * 100)
    files = find_files([tmp_path], Reading())
    found = []
    with pytest.raises(gm.TruncatedInputError, match=r"b\.txt\.gz"):
        for index, batch in read_files(files, Reading(), cut=cut_at_spaces, num_readers=3):
            found.append((index, batch))
    assert {index for index, _ in found} == {0}
    assert documents_in([batch for _, batch in found]) == [b"good " * 100]


def test_only_so_many_inputs_are_open_and_so_many_batches_ready(tmp_path, small_batches, monkeypatch):
    under_way = []
    real = module.read_batches

    def watched(input, *arguments, **options):
        for batch in real(input, *arguments, **options):
            under_way.append(input.name)
            yield batch

    monkeypatch.setattr(module, "read_batches", watched)
    for i in range(6):
        (tmp_path / f"{i}.txt").write_bytes(b"some words " * 200)
    found = read_files(find_files([tmp_path], Reading()), Reading(), cut=cut_at_spaces, num_readers=2)
    next(found)
    time.sleep(0.3)
    assert len(set(under_way)) == 2
    assert len(under_way) <= 2 * (module.NUM_BATCHES_AHEAD + 1) + 1
    found.close()


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_threads_end_when_the_generator_is_closed(files, small_batches, taken):
    found = read_files(files, Reading(), cut=cut_at_spaces, num_readers=4)
    for _ in range(taken):
        next(found)
    assert len(reader_threads()) == (4 if taken else 0)
    found.close()
    assert reader_threads() == []


def test_threads_end_when_the_consumer_fails(files):
    def fail(stage, done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        gm.count_words(files, num_threads=3, progress=lambda report: fail(report.stage, 0, 0), special_tokens=())


@pytest.fixture
def some_bad(tmp_path):
    """Return two good inputs, and three that are truncated or damaged far after their beginning."""
    (tmp_path / "a.txt").write_bytes(b"alpha " * 500)
    (tmp_path / "b.txt.gz").write_bytes(compress(b"beta " * 500, ".gz")[:-3])
    (tmp_path / "c.jsonl").write_bytes(b'{"text": "gamma"}\n' * 100 + b"{\n")
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    (tmp_path / "e.jsonl.zst").write_bytes(compress(b'{"text": "delta"}\n' * 100, ".zst"))
    return tmp_path


def test_a_bad_input_is_skipped_as_a_whole_and_reported(some_bad, small_batches):
    reading = Reading.checked({"on_error": "skip"})
    skipped = []
    found = read_files(
        find_files([some_bad], reading),
        reading,
        cut=cut_at_spaces,
        num_readers=2,
        on_skip=lambda index, error: skipped.append((index, type(error))),
    )
    documents = documents_in([batch for _, batch in found])
    assert documents == [b"alpha " * 500, *[b"delta"] * 100]
    assert skipped == [(1, gm.TruncatedInputError), (2, gm.CorruptInputError), (3, gm.TruncatedInputError)]


@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W+"])
def test_counting_skips_bad_inputs_and_says_so_at_the_end(some_bad, pattern):
    with pytest.warns(gm.SkippedInputWarning, match=r"3 of 5 inputs could not be read and were skipped: .*b\.txt\.gz"):
        words = gm.count_words(some_bad, on_error="skip", pattern=pattern, progress=None, special_tokens=())
    assert words.count("alpha") > 0
    assert words.count("delta") == 100
    assert words.count("beta") == words.count("gamma") == words.count(" beta") == 0


def test_a_corpus_of_bad_inputs_alone_is_empty(some_bad):
    with (
        pytest.warns(gm.SkippedInputWarning, match=r"1 of 1 inputs"),
        pytest.raises(gm.EmptyCorpusError),
    ):
        gm.count_words(some_bad / "b.txt.gz", on_error="skip", progress=None, special_tokens=())


def test_without_skip_the_first_bad_input_is_an_error(some_bad):
    with pytest.raises(gm.TruncatedInputError, match=r"b\.txt\.gz"):
        gm.count_words(some_bad, progress=None, special_tokens=())


def test_a_missing_input_is_an_error_even_with_skip(tmp_path):
    with pytest.raises(FileNotFoundError):
        gm.count_words(tmp_path / "missing.txt", on_error="skip", special_tokens=())


def test_progress_over_files_grows_to_their_size(tmp_path):
    for name in ("a.txt.gz", "b.jsonl", "c.parquet"):
        write_documents(tmp_path / name, [b"some words " * 20] * 2000)
    reports = []
    gm.count_words(tmp_path, num_threads=2, progress=reports.append, special_tokens=())
    counts = [(report.done, report.total) for report in reports if report.stage == "count"]
    assert counts == sorted(counts)
    assert all(done <= total for done, total in counts)
    assert {total for _, total in counts} == {find_files([tmp_path], Reading()).num_bytes}


@pytest.mark.parametrize("num_threads", [1, 2, 7])
def test_a_mixed_corpus_has_the_same_words_in_the_same_order_for_any_number_of_threads(files, num_threads):
    words = gm.count_words(files, documents="separator", num_threads=num_threads, progress=None, special_tokens=())
    texts = [text for documents in DOCUMENTS for text in documents]
    assert words == gm.count_words(iter(texts), num_threads=1, progress=None, special_tokens=())


def test_counting_under_a_memory_limit_takes_every_format(files):
    texts = [text for documents in DOCUMENTS for text in documents]
    words = gm.count_words(
        files, documents="separator", memory_limit=32 << 20, num_threads=2, progress=None, special_tokens=()
    )
    assert words == gm.count_words(iter(texts), progress=None, special_tokens=())
