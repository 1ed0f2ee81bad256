"""Parts of a corpus: together they have the documents of the whole, and reading one reads little else."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from corpus_files import KINDS, documents_in, jsonl, table, write_documents
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gristmill as gm
from gristmill import _core
from gristmill.corpus import FoundFiles, Input, Reading, batches, cuts, find_files, read_files
from gristmill.corpus.batches import Cutting
from gristmill.corpus.stretches import (
    Stretch,
    check_part_bytes,
    cut_into_parts,
    default_part_bytes,
    inputs_from_json,
    inputs_to_json,
    part_from_json,
    part_to_json,
    read_part,
)
from gristmill.count.regex_counting import Specials

SPECIALS = ["<|endoftext|>", "a b c", "aa", "  x"]
TALE = b"Once upon a time, there was a mill.\nIt ground and ground; and what it ground was salt! \xe4\xb8\xad "


def counter(specials=SPECIALS):
    return _core.Counter(
        pattern="gpt2",
        special_tokens=[special.encode() for special in specials],
        num_threads=1,
        memory_limit=0,
        spill_folder="",
        min_frequency=1,
        on_progress=None,
    )


NATIVE = counter()
CUTTING = Cutting.of(NATIVE.last_cut, SPECIALS)
PLAIN = Cutting.of(counter([]).last_cut, [])


@pytest.fixture
def small(monkeypatch):
    make_small(monkeypatch)


def make_small(patch):
    """Use sizes at which short texts have many batches, parts and blocks."""
    patch.setattr(batches, "BATCH_BYTES", 100)
    patch.setattr(batches, "MIN_STRETCH_BYTES", 10)
    patch.setattr(cuts, "FIRST_BYTES", 16)
    patch.setattr(cuts, "MAX_BYTES", 64)
    patch.setattr(cuts, "NEAR_BYTES", 40)
    patch.setattr(cuts, "NUM_TOGETHER", 3)


def found(paths, **options):
    reading = Reading.checked(options)
    return find_files(paths, reading), reading


def whole(files, reading, cut=NATIVE.last_cut):
    return documents_in(batch for _, batch in read_files(files, reading, cut=cut, num_readers=2))


def in_parts(files, reading, part_bytes, *, cutting=CUTTING, cut=NATIVE.last_cut):
    """Return the batches of each part, after checking that the flags of adjacent parts agree."""
    planned = cut_into_parts(files, reading, part_bytes=part_bytes, cutting=cutting)
    parts = [part_from_json(json.loads(json.dumps(part_to_json(part)))) for part in planned]
    assert parts == planned
    read = [[batch for _, batch in read_part(files, part, reading, cut=cut)] for part in parts]
    spans = [batch.spans() for part in read for batch in part]
    assert [one.continued for one in spans] == [False, *(one.unfinished for one in spans)][: len(spans)]
    assert not spans or not spans[-1].unfinished
    return read


def joined(parts):
    return documents_in(batch for part in parts for batch in part)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("part_bytes", [30, 300, 1 << 20])
def test_parts_have_the_documents_of_the_corpus_in_every_format(name, part_bytes, tmp_path, small):
    documents = [TALE * (i % 5) + b"%d" % i for i in range(120)]
    write_documents(tmp_path / name, documents)
    files, reading = found([tmp_path / name], **KINDS[name])
    parts = in_parts(files, reading, part_bytes)
    assert joined(parts) == whole(files, reading) == documents
    is_cut = name in ("a.txt", "a.text", "a.jsonl", "a.ndjson", "crlf.jsonl", "a.parquet")
    assert len(parts) > 2 if is_cut and part_bytes < 1000 else len(parts) == 1


TEXTS = st.one_of(
    st.text("a\n -\r", max_size=300).map(str.encode),
    st.lists(
        st.sampled_from(
            [b"a", b"a b c", b"\n", b"--", b"-", b" ", b"word ", b"\r\n", b"\xff", "中".encode(), b"x" * 50]
        ),
        max_size=60,
    ).map(b"".join),
)
SEPARATORS = ["\n\n", "a", "aa", "-a-", "--", " ", "a b", "\r\n", "<|endoftext|>"]
READINGS = st.one_of(
    st.sampled_from([{"documents": "file"}, {"documents": "line"}]),
    st.sampled_from(SEPARATORS).map(lambda separator: {"documents": "separator", "separator": separator}),
)


def plain_documents(data, reading):
    """Return the documents by the plain definition."""
    separator = reading.end_of_document
    if separator is None:
        return [data]
    documents = data.split(separator)
    return documents if documents[-1] else documents[:-1]


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=3), options=READINGS, part_bytes=st.integers(1, 120), cut=st.booleans()
)
@example([b"\n" * 400], {"documents": "separator", "separator": "\n\n"}, 7, True)
@example([b"a" * 301], {"documents": "separator", "separator": "aa"}, 7, True)
@example([b"", b"a", b""], {"documents": "file"}, 1, True)
@example([b"--a", b"a--"], {"documents": "separator", "separator": "--"}, 1, True)
@example([b"word " * 200], {"documents": "line"}, 30, True)
@example([b"x a b c " * 50], {"documents": "file"}, 9, True)
def test_parts_of_texts_have_their_documents_wherever_they_are_cut(tmp_path_factory, texts, options, part_bytes, cut):
    folder = tmp_path_factory.mktemp("texts")
    for i, text in enumerate(texts):
        (folder / f"{i}.txt").write_bytes(text)
    files, reading = found([folder / f"{i}.txt" for i in range(len(texts))], **options)
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        reader = NATIVE.last_cut if cut else None
        parts = in_parts(files, reading, part_bytes, cutting=CUTTING if cut else None, cut=reader)
        assert joined(parts) == [one for text in texts for one in plain_documents(text, reading)]
        words, of_parts = counter(), counter()
        for text in texts:
            for one in plain_documents(text, reading):
                words.add_spans(one, np.array([0]), np.array([len(one)]))
        for spans in (batch.spans() for part in parts for batch in part):
            of_parts.add_spans(spans.text, spans.begins, spans.ends)
        assert words_of(of_parts) == words_of(words)
        check_beginnings(files, reading, part_bytes)


def words_of(counter):
    """Return the words in corpus order, with their counts."""
    table, _ = counter.finish()
    return table.data.tobytes(), table.offsets.tolist(), table.counts.tolist()


def check_beginnings(files, reading, part_bytes, cutting=CUTTING):
    """Return the number of cut documents. The first bytes of each, which decide its split, must be in one part."""
    num_cut = 0
    for part in cut_into_parts(files, reading, part_bytes=part_bytes, cutting=cutting):
        for stretch in part:
            data = Path(files.inputs[stretch.input].name).read_bytes()[stretch.begin : stretch.end]
            documents = plain_documents(data, reading)
            if stretch.ends_inside and not (stretch.begins_inside and len(documents) == 1):
                assert len(documents[-1]) >= batches.MIN_STRETCH_BYTES
                num_cut += 1
    return num_cut


@pytest.mark.parametrize("separator", [None, "--", "a - b", "\n\n"])
def test_places_inside_documents_are_far_from_their_beginning_and_in_no_separator(separator, tmp_path, small):
    options = {"documents": "file"} if separator is None else {"separator": separator}
    end = (separator or " ").encode()
    num_inside = 0
    for size in range(0, 60, 2):
        text = b"word " * 9 + b"x" * size + end + b"word is " * 12 + end + b"no w" + end * 3 + b"to " * 30
        (tmp_path / f"{size}.txt").write_bytes(text)
        files, reading = found([tmp_path / f"{size}.txt"], **options)
        for part_bytes in (3, 17, 50):
            assert joined(in_parts(files, reading, part_bytes, cutting=PLAIN)) == plain_documents(text, reading)
            num_inside += check_beginnings(files, reading, part_bytes, PLAIN)
    assert num_inside > 20


@settings(max_examples=100, deadline=None)
@given(
    text=st.lists(st.sampled_from(["a", "aa", "ab", "ba", "b", "x", " "]), max_size=60).map("".join),
    specials=st.lists(st.sampled_from(["aa", "ab", "aba", "b", "a", "bab"]), min_size=1, max_size=3, unique=True),
    part_bytes=st.integers(1, 20),
)
@example("a" * 50, ["aa"], 3)
def test_a_document_under_any_expression_is_cut_after_special_tokens_only(tmp_path_factory, text, specials, part_bytes):
    path = tmp_path_factory.mktemp("special") / "a.txt"
    path.write_text(text)
    files, reading = found([path], documents="file")
    finder = Specials(specials)
    ends = {0, *(end for _, end in finder.find_in(text.encode()))}
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        for part in cut_into_parts(files, reading, part_bytes=part_bytes, cutting=finder.cutting):
            assert {stretch.begin for stretch in part} <= ends
            assert all(stretch.begins_inside for stretch in part if stretch.begin)


def test_the_ids_of_parts_are_those_of_the_documents(tmp_path, small):
    documents = [b"no end in sight " * 40, b"", b"a b c a b cc", b"short"]
    (tmp_path / "a.txt").write_bytes(b"<|endoftext|>".join(documents))
    files, reading = found([tmp_path / "a.txt"])
    tok = gm.train_tokenizer(gm.Documents([b"no end in sight, a b c " * 20]), vocab_size=265, special_tokens=["a b c"])
    end = 256
    expected = [id for text in documents for id in [*tok.encode(text, allowed_special="all"), end]]
    for before in (False, True):
        with tok.document_encoder(allowed_special="all", end_of_text=end, before=before, num_threads=1) as encoder:
            parts = in_parts(files, reading, 50, cutting=encoder.cutting, cut=encoder.cut)
            ids = [id for part in parts for batch in part for id in encoder.encode(batch.spans())[0].tolist()]
        assert len(parts) > 5
        assert ids == ([end, *expected[:-1]] if before else expected)


def test_a_tokenizer_whose_pattern_is_unknown_to_the_core_cuts_no_document():
    tok = gm.train_tokenizer(gm.Documents([b"some words"]), vocab_size=260, pattern=r"[a-z]+")
    with tok.document_encoder(num_threads=1) as encoder:
        assert encoder.cutting is None


def test_small_inputs_are_gathered_and_large_ones_cut(tmp_path, small):
    sizes = [10, 10, 10, 300, 10, 10]
    for i, size in enumerate(sizes):
        (tmp_path / f"{i}.txt").write_bytes((b"word\n" * size)[:size])
    files, reading = found([tmp_path], documents="line")
    parts = cut_into_parts(files, reading, part_bytes=100, cutting=None)
    assert [[stretch.input for stretch in part] for part in parts] == [[0, 1, 2], [3], [3], [3], [4, 5]]
    assert [stretch for part in parts for stretch in part][3:6] == [
        Stretch(3, 0, 105),
        Stretch(3, 105, 205),
        Stretch(3, 205, None),
    ]


@pytest.mark.parametrize(("num_bytes", "least"), [(10**6, 100), (10**9, 10**5), (10**11, 10**6), (10**14, 10**8)])
def test_parts_so_small_that_there_would_be_too_many_are_refused_with_the_least_size(num_bytes, least):
    with pytest.raises(gm.OptionError, match=rf"Pass part_bytes >= {least}, or leave it out"):
        check_part_bytes(least - 1, num_bytes)
    check_part_bytes(least, num_bytes)


def test_a_job_with_too_many_parts_is_refused_before_its_inputs_are_read(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("word " * 10_000)
    files, reading = found([path])
    path.unlink()
    with pytest.raises(gm.OptionError, match="part_bytes=1 cuts 50,000 bytes into too many parts"):
        cut_into_parts(files, reading, part_bytes=1, cutting=None)


def test_a_part_has_a_limited_number_of_tiny_inputs():
    one = Input("a.txt", "text", "", 1, 0)
    parts = cut_into_parts(FoundFiles((one,) * 10_000), Reading(), part_bytes=64_000_000, cutting=None)
    assert max(map(len, parts)) < 5_000
    assert [stretch.input for part in parts for stretch in part] == list(range(10_000))


@pytest.mark.parametrize("format", ["text", "jsonl", "parquet"])
def test_inputs_that_may_be_left_out_are_never_cut(format, tmp_path, small):
    path = write_documents(tmp_path / {"text": "a.txt"}.get(format, f"a.{format}"), [TALE] * 100)
    (tmp_path / "b.jsonl").write_bytes(b"{")
    files, reading = found([path, tmp_path / "b.jsonl"], on_error="skip")
    parts = cut_into_parts(files, reading, part_bytes=100, cutting=CUTTING)
    assert parts == [(Stretch(0),), (Stretch(1),)]
    skipped = {}
    read = list(read_part(files, parts[1], reading, cut=None, on_skip=skipped.__setitem__))
    assert (read, list(skipped)) == ([], [1])


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_json_lines_are_cut_only_between_lines_wherever_parts_would_end(end, tmp_path, small):
    texts = [b'"a"', b"null", b'"\\n \xc3\xa9"', b'"' + b"long " * 30 + b'"', b'""']
    lines = [b'{"text": ' + text + b"}" for text in texts]
    (tmp_path / "a.jsonl").write_bytes(end.join(lines))
    files, reading = found([tmp_path / "a.jsonl"])
    expected = whole(files, reading)
    assert len(expected) == 4
    for part_bytes in range(1, files.num_bytes + 2):
        parts = in_parts(files, reading, part_bytes)
        assert joined(parts) == expected
        assert sum(batch.spans().num_nulls for part in parts for batch in part) == 1


def test_an_error_in_json_lines_names_the_line_of_the_file(tmp_path, small):
    lines = jsonl([b"%d" % i for i in range(100)]).split(b"\n")
    lines[70] = b'{"text": 1}'
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    files, reading = found([tmp_path / "a.jsonl"])
    parts = cut_into_parts(files, reading, part_bytes=500, cutting=None)
    assert len(parts) > 4
    with pytest.raises(gm.CorpusError, match=r"a\.jsonl:71: field 'text' is a number"):
        for part in parts:
            for _, batch in read_part(files, part, reading, cut=None):
                batch.spans()


def test_a_line_that_is_too_long_is_named_by_its_number_in_the_file(tmp_path, small):
    reading = Reading.checked({"max_document_bytes": 200})
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n' * 50 + b'{"text": "' + b"a" * 500 + b'"}')
    files = find_files([tmp_path / "a.jsonl"], reading)
    last = cut_into_parts(files, reading, part_bytes=100, cutting=None)[-1]
    assert last[0].begin > 0
    with pytest.raises(gm.CorpusError, match=r"a\.jsonl:51: the line is longer"):
        list(read_part(files, last, reading, cut=None))


@pytest.mark.parametrize("row_group_size", [1, 7, 1000])
def test_parquet_is_cut_between_row_groups(row_group_size, tmp_path, small):
    documents = [None if i % 3 == 0 else TALE + b"%d" % i for i in range(60)]
    pa.parquet.write_table(table(documents), tmp_path / "a.parquet", row_group_size=row_group_size)
    files, reading = found([tmp_path / "a.parquet"])
    parts = in_parts(files, reading, 200)
    assert joined(parts) == [text for text in documents if text is not None]
    assert sum(batch.spans().num_nulls for part in parts for batch in part) == 20
    planned = cut_into_parts(files, reading, part_bytes=200, cutting=None)
    assert all(stretch.begin % row_group_size == 0 for part in planned for stretch in part)
    assert len(planned) == 1 if row_group_size == 1000 else len(planned) > 3


def test_empty_row_groups_are_cut_around(tmp_path, small):
    rows = table([b"one", b"two", b"three"])
    with pa.parquet.ParquetWriter(tmp_path / "a.parquet", rows.schema) as writer:
        for part in (rows[:0], rows[:1], rows[:0], rows[:0], rows[1:], rows[:0]):
            writer.write_table(part)
    pa.parquet.write_table(rows[:0], tmp_path / "b.parquet")
    files, reading = found([tmp_path])
    assert joined(in_parts(files, reading, 1)) == [b"one", b"two", b"three"]


def test_a_footer_that_is_damaged_is_found_by_planning(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"x" * 1000)
    files, reading = found([tmp_path / "a.parquet"])
    with pytest.raises(gm.TruncatedInputError, match="the footer of the Parquet file is missing"):
        cut_into_parts(files, reading, part_bytes=100, cutting=None)


def test_a_stretch_reads_nothing_before_it(tmp_path):
    text = b"".join(b"%06d " % i for i in range(300_000)) + b"\n"
    (tmp_path / "a.txt").write_bytes(text)
    files, reading = found([tmp_path / "a.txt"])
    last = cut_into_parts(files, reading, part_bytes=500_000, cutting=CUTTING)[-1]
    before = bytes_read()
    (batch,) = (batch for _, batch in read_part(files, last, reading, cut=NATIVE.last_cut))
    assert batch.spans().continued
    assert bytes_read() - before < 600_000


def test_a_stretch_of_parquet_reads_its_row_groups_only(tmp_path):
    texts = [np.random.default_rng(i).bytes(200_000) for i in range(10)]
    rows = pa.table({"text": pa.array(texts, pa.binary())})
    pa.parquet.write_table(rows, tmp_path / "a.parquet", row_group_size=1, use_dictionary=False)
    files, reading = found([tmp_path / "a.parquet"])
    parts = cut_into_parts(files, reading, part_bytes=files.num_bytes // 5 + 1, cutting=None)
    assert len(parts) == 5
    for part in parts:
        before = bytes_read()
        assert len(joined([[batch for _, batch in read_part(files, part, reading, cut=None)]])) == 2
        assert bytes_read() - before < 600_000


def bytes_read():
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


def test_planning_reads_a_few_kilobytes_for_each_part(tmp_path):
    (tmp_path / "a.txt").write_bytes((TALE * 50 + b"<|endoftext|>") * 4000)
    files, reading = found([tmp_path / "a.txt"])
    before = bytes_read()
    parts = cut_into_parts(files, reading, part_bytes=1_000_000, cutting=CUTTING)
    assert len(parts) == -(-files.num_bytes // 1_000_000)
    assert bytes_read() - before < 2 * cuts.FIRST_BYTES * len(parts)


def test_an_input_that_changed_after_it_was_planned_is_refused(tmp_path, small):
    write_documents(tmp_path / "a.jsonl", [TALE] * 20)
    files, reading = found([tmp_path / "a.jsonl"])
    entries = json.loads(json.dumps(inputs_to_json(files)))
    parts = cut_into_parts(files, reading, part_bytes=500, cutting=None)
    again = inputs_from_json(entries)
    assert again == files
    assert joined([[batch for _, batch in read_part(again, part, reading, cut=None)] for part in parts]) == [TALE] * 20
    write_documents(tmp_path / "a.jsonl", [TALE] * 19 + [TALE.upper()])
    for part in parts:
        with pytest.raises(gm.InputChangedError, match=r"a\.jsonl changed"):
            list(read_part(again, part, reading, cut=None))


def test_an_input_that_changes_while_a_stretch_of_it_is_read_is_refused(tmp_path, small):
    write_documents(tmp_path / "a.jsonl", [TALE] * 20)
    files, reading = found([tmp_path / "a.jsonl"])
    first = cut_into_parts(files, reading, part_bytes=1500, cutting=None)[0]
    read = read_part(files, first, reading, cut=None)
    next(read)
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b"\n")
    with pytest.raises(gm.InputChangedError, match="bytes became"):
        list(read)


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def test_many_small_remote_inputs_come_in_order(memory):
    for i in range(50):
        memory.pipe(f"/corpus/{i:02d}.txt", b"%d" % i)
    files, reading = found(["memory://corpus/*.txt"])
    parts = in_parts(files, reading, 33)
    assert len(parts) == 3
    assert joined(parts) == [b"%d" % i for i in range(50)]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet"])
def test_parts_of_remote_inputs_have_their_documents(name, memory, tmp_path, small):
    documents = [TALE + b"%d" % i for i in range(60)]
    memory.pipe(f"/corpus/{name}", write_documents(tmp_path / name, documents).read_bytes())
    files, reading = found([f"memory://corpus/{name}"])
    parts = in_parts(inputs_from_json(inputs_to_json(files)), reading, 1000)
    assert joined(parts) == documents
    assert len(parts) > 1


def test_the_size_of_parts_depends_on_the_size_of_the_corpus_alone():
    assert [default_part_bytes(size) for size in (0, 10**10, 10**13)] == [16_000_000, 156_250_000, 268_413_142]
