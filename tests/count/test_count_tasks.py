"""Counting in parts gives the same file as `count_words` in one process, even if files of the job were damaged."""

import contextlib
import errno
import json
import os
import random
import stat
import tempfile
import warnings
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as gm
from gristmill import _core
from gristmill.corpus.packages import load_zstd
from gristmill.count import distributed, tasks
from gristmill.count.counting import CountOptions, count
from gristmill.count.tasks import RunPlace, added_runs, pack_runs
from gristmill.executors.done import Done, read_done, write_done
from gristmill.executors.work_folder import LocalWorkFolder

WORDS = ["low", "lower", "newest", "Über", "日本語", "x" * 20, "y" * 40, "1234", "a-b", "<|endoftext|>", "\n"]
REGEX = r"\w+|[^\w\s]+|\s"


def text(seed, num_words=1500):
    rng = random.Random(seed)
    endings = ["", *map(str, range(300))]
    return " ".join(rng.choice(WORDS) + rng.choice(endings) for _ in range(num_words))


def saved(words):
    with tempfile.TemporaryDirectory() as folder:
        words.save(Path(folder, "words.gmw"))
        return Path(folder, "words.gmw").read_bytes()


def in_parts(corpus, tmp_path, *, part_bytes=4000, num_partitions=4, num_workers=2, **options):
    executor = gm.Local(num_workers=num_workers, work_folder=tmp_path / "work", part_bytes=part_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "default_partitions", lambda *_: num_partitions)
        return gm.count_words(corpus, executor=executor, progress=None, **options)


def write_corpus(folder, kind):
    """Return three files of one format, and the options to read them."""
    texts = [text(seed) for seed in range(3)]
    if kind == "text":
        for i, content in enumerate(texts):
            (folder / f"{i}.txt").write_text(content)
    elif kind == "jsonl.zst":
        for i, content in enumerate(texts):
            lines = "".join(json.dumps({"text": line}) + "\n" for line in content.split("\n"))
            (folder / f"{i}.jsonl.zst").write_bytes(load_zstd().compress(lines.encode()))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        for i, content in enumerate(texts):
            table = arrow.table({"text": content.split("\n")})
            parquet.write_table(table, folder / f"{i}.parquet", row_group_size=20)
    return gm.Files(str(folder))


@pytest.mark.parametrize("kind", ["text", "jsonl.zst", "parquet"])
@pytest.mark.parametrize(("num_partitions", "part_bytes"), [(1, 3000), (4, 10**9), (7, 7000)])
def test_same_file_for_every_number_of_partitions_and_size_of_parts(tmp_path, kind, num_partitions, part_bytes):
    (tmp_path / "corpus").mkdir()
    corpus = write_corpus(tmp_path / "corpus", kind)
    for options in ({}, {"min_frequency": 3}):
        expected = saved(gm.count_words(corpus, **options))
        counted = in_parts(corpus, tmp_path, part_bytes=part_bytes, num_partitions=num_partitions, **options)
        assert saved(counted) == expected
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"pattern": REGEX},
        {"pattern": REGEX, "documents": "line", "min_frequency": 2},
        {"pattern": "cl100k", "special_tokens": []},
        {"documents": "line"},
        {"documents": "separator", "special_tokens": ["1234"]},
        {"on_error": "skip"},
    ],
)
@pytest.mark.filterwarnings("ignore::gristmill.SlowPatternWarning")
def test_same_file_for_regex_patterns_and_other_ways_to_read(tmp_path, options):
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text(text(i))
    corpus = gm.Files(str(tmp_path / "?.txt"))
    assert saved(in_parts(corpus, tmp_path, part_bytes=25_000, **options)) == saved(gm.count_words(corpus, **options))


@pytest.mark.filterwarnings("ignore::gristmill.SlowPatternWarning")
def test_positions_of_a_regex_are_those_of_the_native_pattern(tmp_path):
    """Separators are not text: a word after one begins where the text before it ends."""
    (tmp_path / "a.txt").write_text("ab\ncd\nab\nef")
    native = gm.count_words(gm.Files(tmp_path / "a.txt"), documents="line", pattern="whitespace")
    regex = gm.count_words(gm.Files(tmp_path / "a.txt"), documents="line", pattern=r"\S+|\s+")
    assert native.table.firsts.tolist() == regex.table.firsts.tolist() == [0, 2, 6]
    assert native.source_bytes == regex.source_bytes == 8


@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(st.text(alphabet="ab é\n<|endoftext|>", max_size=60), min_size=1, max_size=5),
    part_bytes=st.integers(10, 200),
    num_partitions=st.integers(1, 5),
    min_frequency=st.integers(1, 2),
)
def test_any_small_corpus_is_counted_as_in_one_process(texts, part_bytes, num_partitions, min_frequency):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, content in enumerate(texts):
            (folder / f"{i}.txt").write_text(content)
        corpus = gm.Files(*sorted(folder.glob("*.txt")))
        options = {"part_bytes": part_bytes, "num_partitions": num_partitions, "num_workers": 1}
        try:
            expected = saved(gm.count_words(corpus, min_frequency=min_frequency))
        except gm.EmptyCorpusError as error:
            with pytest.raises(gm.EmptyCorpusError) as raised:
                in_parts(corpus, folder, min_frequency=min_frequency, **options)
            assert str(raised.value) == str(error)
        else:
            assert saved(in_parts(corpus, folder, min_frequency=min_frequency, **options)) == expected


def test_a_memory_limit_that_makes_parts_spill_changes_nothing(tmp_path):
    rng = random.Random(5)
    words = (f"{rng.getrandbits(100):x}"[: rng.randrange(1, 25)] for _ in range(400_000))
    (tmp_path / "a.txt").write_text(" ".join(words))
    corpus = gm.Files(tmp_path / "a.txt")
    expected = saved(gm.count_words(corpus))
    counter = _core.Counter(
        pattern="gpt2", num_threads=1, memory_limit=32 << 20, spill_folder=str(tmp_path), num_partitions=3
    )
    counter.add_files([tmp_path / "a.txt"])
    assert counter.finish_runs(lambda data: None)[1]["num_spilled_runs"] > 1, "the limit is too large for this test"
    counted = in_parts(corpus, tmp_path, part_bytes=10**9, memory_limit=32 << 20)
    assert saved(counted) == expected


def test_skipped_inputs_are_reported_once_and_left_out_whole(tmp_path):
    for i in range(4):
        data = load_zstd().compress(text(i).encode())
        (tmp_path / f"{i}.txt.zst").write_bytes(data[:-9] if i == 2 else data)
    corpus = gm.Files(str(tmp_path / "*.zst"))
    with warnings.catch_warnings(record=True) as here:
        warnings.simplefilter("always")
        expected = saved(gm.count_words(corpus, on_error="skip"))
    with warnings.catch_warnings(record=True) as there:
        warnings.simplefilter("always")
        counted = in_parts(corpus, tmp_path, part_bytes=10, on_error="skip")
    assert saved(counted) == expected
    assert [str(warning.message) for warning in there] == [str(warning.message) for warning in here]
    assert "1 of 4 inputs could not be read" in str(there[0].message)


def test_a_corpus_without_words_is_the_error_of_count_words(tmp_path):
    (tmp_path / "a.txt").write_text("<|endoftext|>")
    with pytest.raises(gm.EmptyCorpusError, match="contains only special tokens"):
        in_parts(gm.Files(tmp_path / "a.txt"), tmp_path)
    (tmp_path / "a.txt").write_text("a b c")
    with pytest.raises(gm.EmptyCorpusError, match=r"none of the 3 words .* occurs min_frequency=5 times"):
        in_parts(gm.Files(tmp_path / "a.txt"), tmp_path, min_frequency=5)


def test_a_table_that_passes_the_memory_limit_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(text(1))
    monkeypatch.setattr(tasks.CountPlan, "memory_bytes", 32 << 20)
    monkeypatch.setattr("gristmill.arguments.MIN_MEMORY_LIMIT", 1)
    with pytest.raises(gm.MemoryLimitError, match="more than memory_limit=1000"):
        in_parts(gm.Files(tmp_path / "a.txt"), tmp_path, memory_limit=1000)


@pytest.mark.parametrize("executor", [gm.Processes(num_workers=2), "processes"])
def test_options_that_do_not_fit_an_executor_are_errors(tmp_path, executor):
    (tmp_path / "a.txt").write_text("low lower")
    with pytest.raises(gm.OptionError, match="cannot count documents in memory"):
        gm.count_words(["low low lower"], executor=executor)
    with pytest.raises(gm.OptionError, match="num_threads=2 does not apply to executor='processes'"):
        gm.count_words(gm.Files(tmp_path / "a.txt"), executor=executor, num_threads=2)
    with pytest.raises(gm.OptionError, match="the words are already counted"):
        gm.train_tokenizer(gm.count_words(["low"]), vocab_size=300, executor=executor)


def test_threads_and_workers_that_differ_are_an_error():
    with pytest.raises(gm.OptionError, match="num_threads=2 contradicts num_workers=3"):
        gm.count_words(["low"], executor=gm.Local(num_workers=3), num_threads=2)
    assert gm.count_words(["low"], executor=gm.Local(num_workers=2), num_threads=2).count("low") == 1


class Watched(gm.Local):
    """Records which jobs exist when its workers have ended."""

    found: ClassVar[list[Path]] = []

    @contextlib.contextmanager
    def open(self):
        with gm.Local.open(self) as workers:
            yield workers
        self.found[:] = Path(self.work_folder).glob("count-*/job.json")


def test_the_job_is_removed_after_its_workers_have_ended(tmp_path):
    (tmp_path / "a.txt").write_text("low lower")
    gm.count_words(gm.Files(tmp_path / "a.txt"), executor=Watched(work_folder=str(tmp_path / "work")))
    assert len(Watched.found) == 1
    assert not Watched.found[0].exists()


def test_num_threads_is_the_number_of_workers_of_local_tasks(tmp_path):
    (tmp_path / "a.txt").write_text("low lower")
    executor = gm.Local(work_folder=str(tmp_path / "work"))
    assert gm.count_words(gm.Files(tmp_path / "a.txt"), executor=executor, num_threads=2).count("low") == 1


def test_an_input_that_changed_after_the_plan_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(text(1))
    cut_into_parts = distributed.cut_into_parts

    def cut_and_change(*arguments, **options):
        parts = cut_into_parts(*arguments, **options)
        path.write_text(text(2))
        return parts

    with pytest.MonkeyPatch.context() as patch, pytest.raises(gm.InputChangedError, match=r"a\.txt changed"):
        patch.setattr(distributed, "cut_into_parts", cut_and_change)
        in_parts(gm.Files(path), tmp_path)


# Interrupted jobs, and damage to their files.


class Interrupted(Exception):
    pass


@pytest.fixture
def corpus(tmp_path):
    for i in range(5):
        (tmp_path / f"{i}.txt").write_text(text(i))
    return gm.Files(str(tmp_path / "?.txt"))


def interrupted(corpus, tmp_path, before):
    """Return the folder of a job that was stopped before `before`, a function of `distributed`."""
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Interrupted):
        patch.setattr(distributed, before, raise_interrupted)
        in_parts(corpus, tmp_path)
    (folder,) = (tmp_path / "work").iterdir()
    return folder


def raise_interrupted(*_, **__):
    raise Interrupted


def resumed(corpus, tmp_path):
    """Return the words of the job, and the parts that were counted again."""
    again = set()
    count_part = tasks.count_part

    def noted(folder, number, check):
        again.add(f"count-{number:05d}")
        return count_part(folder, number, check)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "count_part", noted)
        return in_parts(corpus, tmp_path), again


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def damage_nothing(folder):
    return set()


def cut_short(folder):
    path = folder / "count-00001.runs"
    path.write_bytes(path.read_bytes()[:-1])
    return {"count-00001"}


def flip_a_byte_of_a_run(folder):
    path = folder / "count-00001.runs"
    flip(path, path.stat().st_size // 2)
    return {"count-00001"}


def flip_the_length_of_a_word(folder):
    """A damaged count or length must cause neither high memory use nor a false overflow."""
    data = bytearray((folder / "count-00002.runs").read_bytes())
    for at in range(0, len(data) - 32, 8):
        if data[at + 7] == 0x80:  # the length of a long word
            data[at + 2] ^= 0xFF
    (folder / "count-00002.runs").write_bytes(data)
    return {"count-00002"}


def huge_counts(folder):
    runs = np.fromfile(folder / "count-00000.runs", "<u8")
    runs[2] = 2**63 - 1
    runs.tofile(folder / "count-00000.runs")
    return {"count-00000"}


def corrupt_ok(folder):
    flip(folder / "count-00000.ok", 60)
    return {"count-00000"}


def lose_power(folder):
    """Data that was not flushed to disk may be zeros, or missing."""
    path = folder / "count-00001.runs"
    path.write_bytes(bytes(path.stat().st_size))
    (folder / "count-00002.runs").write_bytes(b"")
    (folder / "count-00003.ok").write_bytes(b"")
    return {"count-00001", "count-00002", "count-00003"}


def remove_a_file(folder):
    (folder / "count-00000.runs").unlink()
    return {"count-00000"}


@pytest.mark.parametrize(
    "damage",
    [
        damage_nothing,
        cut_short,
        flip_a_byte_of_a_run,
        flip_the_length_of_a_word,
        huge_counts,
        corrupt_ok,
        lose_power,
        remove_a_file,
    ],
)
def test_a_damaged_part_is_counted_again_and_the_others_are_reused(tmp_path, corpus, damage):
    expected = saved(gm.count_words(corpus))
    folder = interrupted(corpus, tmp_path, "merge_calls")
    num_parts = len(list(folder.glob("count-*.ok")))
    assert num_parts >= 4
    damaged = damage(folder)
    words, again = resumed(corpus, tmp_path)
    assert saved(words) == expected
    assert again == damaged


def test_only_the_job_itself_is_flushed_to_the_disk(tmp_path, corpus, monkeypatch):
    """A task whose files are damaged runs again; a job that is damaged cannot resume."""
    modes = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: modes.append(os.fstat(descriptor).st_mode))
    in_parts(corpus, tmp_path)
    assert sum(map(stat.S_ISREG, modes)) == 3  # job.json, inputs.jsonl and parts.jsonl


def test_the_profile_has_the_tasks_and_which_were_reused(tmp_path, corpus):
    folder = interrupted(corpus, tmp_path, "merge_calls")
    (folder / "count-00001.ok").unlink()
    executor = gm.Local(num_workers=2, work_folder=tmp_path / "work", part_bytes=4000)
    trained = gm.train_tokenizer(corpus, vocab_size=300, executor=executor, progress=None)
    assert trained == gm.train_tokenizer(corpus, vocab_size=300, progress=None)
    counted = sorted((task.number, task.is_reused) for task in trained.profile.tasks if task.stage == "count")
    assert counted == [(0, True), (1, False), (2, True), (3, True), (4, True)]
    assert sorted(task.number for task in trained.profile.tasks if task.stage == "merge") == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_file_that_is_cut_inside_gives_the_same_file(tmp_path, name):
    content = text(3, 60_000).replace("<|endoftext|>", "")
    if name == "a.jsonl":
        content = "".join(json.dumps({"text": line}) + "\n" for line in content.split("\n"))
    (tmp_path / name).write_text(content)
    corpus = gm.Files(tmp_path / name)
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        count_calls = distributed.count_calls
        patch.setattr(distributed, "count_calls", lambda *given: calls.append(count_calls(*given)) or calls[-1])
        counted = in_parts(corpus, tmp_path, part_bytes=100_000)
    assert len(calls[0]) > 3, "it was not cut"
    assert saved(counted) == saved(gm.count_words(corpus))


def test_a_damaged_partition_is_merged_again(tmp_path, corpus):
    expected = saved(gm.count_words(corpus))
    folder = interrupted(corpus, tmp_path, "finish_count")
    flip(folder / "merge-00001.words", 20)
    flip(folder / "merge-00002.ok", 30)
    assert saved(in_parts(corpus, tmp_path)) == expected


def test_counts_that_pass_63_bits_are_an_overflow(tmp_path, corpus):
    folder = LocalWorkFolder(interrupted(corpus, tmp_path, "merge_calls"))
    for number in range(2):
        task = f"count-{number:05d}"
        table = gm.Words.from_counts({"low": 2**62}).table
        with folder.create(f"{task}.runs") as file:
            runs = _core.write_runs(table, 4, file.write)
        done = read_done(folder, f"count-{number + 2:05d}")
        data = folder.read(f"{task}.runs")
        entry = type(done.files[0])(f"{task}.runs", len(data), f"{_core.xxh64(data):016x}")
        write_done(folder, task, Done((entry,), {**done.result, "runs": pack_runs(runs)}))
    with pytest.raises(gm.CountOverflowError, match="more than 2\\^63 - 1 times"):
        in_parts(corpus, tmp_path)


def test_ten_thousand_runs_are_merged_with_few_open_files(tmp_path):
    resource = pytest.importorskip("resource")
    folder = LocalWorkFolder(tmp_path)
    runs = []
    for number in range(1000):
        task = f"count-{number:05d}"
        data = bytearray()
        table = gm.Words.from_counts({"every": 1, f"{number % 100}" + "x" * 20: 2, f"w{number}": 3}).table
        entry = _core.write_runs(table, 1, data.extend).tolist()
        (tmp_path / f"{task}.runs").write_bytes(data)
        runs += [(RunPlace(task, 0, *entry), 1000 * (number + repeat * 1000)) for repeat in range(10)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    merged = bytearray()
    merger = _core.RunMerger(by_first=False, spill_folder=str(tmp_path), memory_limit=32 << 20)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
        with added_runs(folder, merger, runs):
            entry, num_words = merger.write_by_first(2, merged.extend)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (num_words, int(entry[2])) == (1_101, 1_101)
    (tmp_path / "merge-00000.words").write_bytes(merged)
    joiner = _core.RunMerger(by_first=True, spill_folder=str(tmp_path), memory_limit=32 << 20)
    with added_runs(folder, joiner, [(RunPlace("merge-00000", 0, *entry.tolist()), 0)]):
        table = joiner.make_table(num_words=1_101, num_bytes=int(entry[3]), source_bytes=1)
    stretches = pairwise(table.offsets.tolist())
    words = {table.data[begin:end].tobytes(): i for i, (begin, end) in enumerate(stretches)}
    assert table.counts[words[b"every"]] == 10_000
    assert table.counts[words[b"7" + b"x" * 20]] == 200
    assert table.counts[words[b"w500"]] == 30
    assert table.firsts[words[b"w500"]] == 500_026
    assert (np.diff(table.firsts.astype(np.int64)) > 0).all()


def test_a_run_is_what_its_description_says(tmp_path):
    data = bytearray()
    table = gm.Words.from_counts({"low": 5, "x" * 16: 7, "tokenizer": 1}).table
    runs = _core.write_runs(table, 1, data.extend)
    records = {
        b"low": [int.from_bytes(b"low\0\0\0\0\x03", "little"), 0, 5, 0],
        b"tokenizer": [*np.frombuffer(b"tokenizer\0\0\0\0\0\0\x09", "<u8").tolist(), 1, 19],
        b"x" * 16: [0, 2**63 + 16, 7, 3],
    }
    expected = b""
    for word in sorted(records, key=_core.xxh64):
        expected += np.array(records[word], "<u8").tobytes() + (word if len(word) > 15 else b"")
    assert bytes(data) == expected
    assert runs.tolist() == [len(data), _core.xxh64(bytes(data)), 3, 28]


def test_partitions_are_those_of_xxh64_without_a_seed():
    words = [f"w{i}" for i in range(50)]
    data = bytearray()
    runs = _core.write_runs(gm.Words.from_counts(dict.fromkeys(words, 1)).table, 4, data.extend).reshape(4, 4)
    expected = [sum(_core.xxh64(word.encode()) * 4 >> 64 == p for word in words) for p in range(4)]
    assert runs[:, 2].tolist() == expected


def test_a_table_that_cannot_be_saved_leaves_a_job_that_resumes(tmp_path, corpus):
    """A full disk at the end of a day of counting loses only the last step."""
    executor = gm.Local(num_workers=1, work_folder=tmp_path / "work", part_bytes=300)
    options = CountOptions.checked(
        corpus,
        pattern=None,
        special_tokens=None,
        min_frequency=1,
        memory_limit=None,
        num_threads=None,
        reading={},
        executor=executor,
    )

    def fail(words):
        raise OSError(errno.ENOSPC, "No space left on device", "words.gmw")

    with pytest.raises(OSError, match="No space left"):
        count(corpus, options, None, save=fail)
    saved_words = []
    counted = count(corpus, options, None, save=saved_words.append)
    assert saved_words == [counted.words] == [gm.count_words(corpus)]
    assert counted.tasks and all(task.is_reused for task in counted.tasks)
    assert list((tmp_path / "work").iterdir()) == []
