"""From a corpus to a tokenizer with `device=`: the files and the tokenizers of the CPU, on every way through."""

from __future__ import annotations

import gc
import gzip
import json
import signal
import threading
import warnings
import weakref
from contextlib import contextmanager

import pytest

import gristmill as gm
from gristmill import _core
from gristmill.arguments import TIE_BREAKS
from gristmill.cli import main
from gristmill.count import counting
from gristmill.count.words import device_table
from gristmill.errors import DeviceError, DeviceMemoryError, DeviceWarning, EmptyCorpusError, OptionError
from gristmill.gpu import devices
from gristmill.gpu.counting import DeviceTable, GpuCounter
from gristmill.gpu.merge_run import MergeRun
from gristmill.merge import learning
from gristmill.tokenizer import extending
from texts import STORY, random_story

SPECIAL = "<|endoftext|>"
STORIES = [STORY, random_story(1, 300), random_story(2, 300), "aaaa bbbb", ""]


@pytest.fixture
def stories(tmp_path):
    """A folder with two text files, which are counted with special tokens between the stories."""
    folder = tmp_path / "stories"
    folder.mkdir()
    (folder / "a.txt").write_text(SPECIAL.join(STORIES), "utf-8", newline="")
    (folder / "b.txt").write_text("\r\n".join(STORIES), "utf-8", newline="")
    return folder


@pytest.fixture
def small_texts_pay(monkeypatch):
    """Let `auto` choose a GPU for every text."""
    for name in ("TEXT", "WORDS"):
        crossover = getattr(devices, name)
        small = devices.Crossover(crossover.unit, warm=1, cold=1, per_thread=0)
        monkeypatch.setattr(devices, name, small)


def assert_same_training(corpus, *, device, vocab_size=400, **options):
    trained = gm.train_tokenizer(corpus, vocab_size=vocab_size, device=device, progress=None, **options)
    assert trained == gm.train_tokenizer(corpus, vocab_size=vocab_size, device="cpu", progress=None, **options)
    return trained


def devices_of(tokenizer) -> dict[str, str]:
    return {stage.stage: stage.device for stage in tokenizer.profile.stages}


def is_gpu(name: str) -> bool:
    return name != "cpu" and not name.endswith(", cpu")


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_files_give_the_tokenizer_of_the_cpu(device, stories, tie_break):
    trained = assert_same_training(stories, device=device, tie_break=tie_break)
    assert all(is_gpu(name) for name in devices_of(trained).values())


@pytest.mark.parametrize("pattern", _core.PATTERNS)
def test_saved_counts_are_the_file_of_the_cpu_byte_for_byte(device, stories, tmp_path, pattern):
    for where in (device, "cpu"):
        gm.count_words(stories, pattern=pattern, device=where, progress=None).save(tmp_path / f"{where}.gmw")
    assert (tmp_path / f"{device}.gmw").read_bytes() == (tmp_path / "cpu.gmw").read_bytes()


@pytest.mark.parametrize("min_frequency", [1, 2, 7])
def test_rare_words_are_dropped_as_on_the_cpu(device, stories, min_frequency):
    on_gpu, on_cpu = (
        gm.count_words(stories, min_frequency=min_frequency, device=where, progress=None) for where in (device, "cpu")
    )
    assert on_gpu == on_cpu and list(on_gpu.items()) == list(on_cpu.items())
    assert on_gpu.num_pieces == on_cpu.num_pieces and on_gpu.source_bytes == on_cpu.source_bytes


def test_documents_in_memory(device):
    assert_same_training(STORIES, device=device)
    trained = gm.train_tokenizer((story for story in STORIES), vocab_size=400, device=device, progress=None)
    assert trained == gm.train_tokenizer(STORIES, vocab_size=400, device="cpu", progress=None)


def test_compressed_files_json_lines_and_tables_go_through_the_readers_of_the_cpu(device, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    texts = [story for story in STORIES if story]
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(SPECIAL.join(texts).encode()))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "c.parquet")
    trained = assert_same_training(tmp_path, device=device)
    assert all(is_gpu(name) for name in devices_of(trained).values())


def test_counted_words_are_merged_on_the_gpu(device, stories):
    words = gm.count_words(stories, device="cpu", progress=None)
    trained = assert_same_training(words, device=device)
    assert list(devices_of(trained)) == ["setup", "merge"] and all(map(is_gpu, devices_of(trained).values()))


def test_a_regular_expression_is_counted_on_the_cpu_and_merged_on_the_gpu(device, stories):
    trained = assert_same_training(stories, device=device, pattern=r"\w+|\W+", num_threads=1)
    where = devices_of(trained)
    assert where["count"] == "cpu" and is_gpu(where["merge"])


def test_tasks_of_an_executor_count_on_the_cpu(device, stories, tmp_path):
    trained = assert_same_training(
        stories, device=device, executor=gm.Local(num_workers=1, work_folder=str(tmp_path / "work"))
    )
    where = devices_of(trained)
    assert where["count"] == "cpu" and is_gpu(where["merge"])


def test_a_tokenizer_is_extended_on_the_gpu(device, stories):
    small = gm.train_tokenizer(stories, vocab_size=300, device="cpu", progress=None)
    large = gm.train_tokenizer(stories, vocab_size=400, device="cpu", progress=None)
    assert small.extended(stories, vocab_size=400, device=device, progress=None) == large
    assert gm.extend_tokenizer(small, stories, vocab_size=400, device=device, progress=None) == large


@pytest.mark.parametrize(
    "options", [{"max_token_bytes": 3}, {"min_frequency": 3, "vocab_size": 350}, {"special_tokens": ["the", "e"]}]
)
def test_options_of_training(device, stories, options):
    assert_same_training(stories, device=device, **options)


def test_an_early_stop_is_the_warning_of_the_cpu(device):
    with pytest.warns(gm.EarlyStopWarning, match="learned 3 of 40 merges"):
        trained = gm.train_tokenizer(["low low"], vocab_size=297, device=device, progress=None)
    assert trained.vocab_size == 260


@pytest.mark.parametrize("corpus", [[], [""], [SPECIAL]])
def test_a_corpus_without_words_is_the_error_of_the_cpu(device, corpus):
    with pytest.raises(EmptyCorpusError) as on_cpu:
        gm.train_tokenizer(corpus, vocab_size=300, device="cpu", progress=None)
    with pytest.raises(EmptyCorpusError) as on_gpu:
        gm.train_tokenizer(corpus, vocab_size=300, device=device, progress=None)
    assert str(on_gpu.value) == str(on_cpu.value)


def test_auto_trains_on_a_gpu_and_says_why(device, small_texts_pay, stories):
    trained = assert_same_training(stories, device="auto")
    assert all(is_gpu(name) for name in devices_of(trained).values())
    reasons = {stage.stage: stage.device_reason for stage in trained.profile.stages}
    assert "bytes of text; a GPU is used from 1" in reasons["count"] and reasons["merge"] == "it has counted the words"


@pytest.mark.parametrize(
    ("corpus", "options", "reason"),
    [
        ("words", {}, "the words are already counted"),
        ("files", {"executor": "processes"}, "count on the CPU"),
        ("files", {"pattern": r"\w+|\W+"}, "only the CPU matches"),
        ("files", {"memory_limit": 1 << 30}, "memory_limit=1073741824 applies only to counting on the CPU"),
    ],
)
def test_counting_on_a_gpu_that_would_not_count_is_an_error(device, stories, corpus, options, reason):
    given = stories if corpus == "files" else gm.Words.from_counts({"low": 2})
    with pytest.raises(OptionError, match=reason):
        gm.count_words(given, device=device, progress=None, **options)


def test_a_memory_limit_keeps_counting_on_the_cpu_with_auto(device, small_texts_pay, stories):
    where = devices_of(assert_same_training(stories, device="auto", memory_limit=1 << 30))
    assert where["count"] == "cpu" and is_gpu(where["merge"])


def test_a_memory_limit_is_no_obstacle_if_only_the_merges_are_learned_on_the_gpu(device, stories):
    words = gm.count_words(stories, device="cpu", progress=None)
    assert_same_training(words, device=device, memory_limit=1 << 30)


def test_a_long_word_is_a_reason_for_the_cpu(device):
    trained = assert_same_training(["=" * 70_000 + " low lower lowest"], device=device, vocab_size=270)
    merge = trained.profile.stages[-1]
    assert merge.device == "cpu" and merge.device_reason.startswith("a word has 70,000 bytes")


def test_the_memory_of_a_failed_gpu_is_free_while_the_cpu_works(
    emulated, install, small_texts_pay, stories, monkeypatch
):
    install(emulated)
    used = []
    learn = learning.learn_on_cpu

    def record(*arguments):
        gc.collect()
        used.append(emulated.used)
        return learn(*arguments)

    def lose(*_):
        raise DeviceError("the device was lost")  # a new error, because LOST keeps its traceback

    monkeypatch.setattr(learning, "learn_on_cpu", record)
    monkeypatch.setattr(MergeRun, "advance", lose)
    with pytest.warns(DeviceWarning):
        gm.train_tokenizer(gm.count_words(stories, device="cpu"), vocab_size=400, device="auto", progress=None)
    assert used == [0]


def test_several_gpus_count_together(emulated, kernel_folder, install, stories, monkeypatch):
    other = type(emulated)(kernel_folder)
    other.name = "the other emulator"
    install(emulated, other)
    monkeypatch.setattr(counting, "GpuCounter", small_chunks(GpuCounter))
    trained = assert_same_training(stories, device="cuda")
    assert devices_of(trained) == {
        "count": "the emulator, the other emulator",
        "join": "the emulator",
        "setup": "the emulator",
        "merge": "the emulator",
    }
    one = gm.train_tokenizer(stories, vocab_size=400, device="cuda:1", progress=None)
    assert one == trained and set(devices_of(one).values()) == {"the other emulator"}


def small_chunks(counter):
    def make(*arguments, **options):
        return counter(*arguments, **options, chunk_bytes=1000, slot_bytes=300, ring_bytes=3000)

    return make


# Failures


def test_an_error_of_a_gpu_keeps_no_memory_of_it(emulated, install, stories, monkeypatch):
    install(emulated)
    monkeypatch.setattr(emulated, "memory", 160_000_000)  # enough to begin
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(DeviceMemoryError):
            gm.train_tokenizer(stories, vocab_size=400, device="cuda", progress=None)
        assert emulated.used == 0
    finally:
        gc.enable()


def failing(error):
    def fail(*_arguments, **_options):
        raise error

    return fail


LOST = DeviceError("the device was lost")
FULL = DeviceMemoryError("the memory of the GPU is full")


@pytest.mark.parametrize("error", [LOST, FULL])
@pytest.mark.parametrize(
    ("owner", "method"),
    [(GpuCounter, "__init__"), (GpuCounter, "finish"), (MergeRun, "__init__"), (MergeRun, "advance")],
)
def test_a_gpu_that_fails_is_an_error_with_cuda_and_the_result_of_the_cpu_with_auto(
    device, small_texts_pay, stories, monkeypatch, owner, method, error
):
    monkeypatch.setattr(owner, method, failing(error))
    with pytest.raises(type(error), match=str(error)):
        gm.train_tokenizer(stories, vocab_size=400, device=device, progress=None)
    monkeypatch.setattr(devices.gpus, "failure", "")
    with expected_warning(error):
        trained = assert_same_training(stories, device="auto")
    where = devices_of(trained)
    assert where["merge"] == "cpu" and is_gpu(where["count"]) == (owner is MergeRun)
    assert str(error) in trained.profile.stages[-1].device_reason


@contextmanager
def expected_warning(error):
    if isinstance(error, DeviceMemoryError):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    else:
        with pytest.warns(DeviceWarning, match=str(error)):
            yield


def test_words_that_are_lost_with_the_gpu_are_counted_again(device, small_texts_pay, stories, monkeypatch):
    monkeypatch.setattr(MergeRun, "advance", failing(LOST))
    monkeypatch.setattr(DeviceTable, "to_host", failing(LOST))
    with pytest.warns(DeviceWarning, match="the device was lost") as caught:
        trained = assert_same_training(stories, device="auto")
    assert len(caught) == 1 and set(devices_of(trained).values()) == {"cpu"}


@pytest.mark.parametrize(("owner", "method"), [(GpuCounter, "finish"), (DeviceTable, "to_host")])
def test_a_failed_gpu_of_count_words(device, small_texts_pay, stories, monkeypatch, owner, method):
    monkeypatch.setattr(owner, method, failing(LOST))
    with pytest.raises(DeviceError, match="the device was lost"):
        gm.count_words(stories, device=device, progress=None)
    monkeypatch.setattr(devices.gpus, "failure", "")
    with pytest.warns(DeviceWarning, match="the device was lost"):
        words = gm.count_words(stories, device="auto", progress=None)
    assert words == gm.count_words(stories, device="cpu", progress=None)


def test_files_that_cannot_be_read_are_the_errors_of_the_cpu(device, small_texts_pay, stories):
    (stories / "c.txt").symlink_to("nowhere")
    for where in ("cpu", device, "auto"):
        with pytest.raises(FileNotFoundError):
            gm.train_tokenizer([stories / "a.txt", stories / "c.txt"], vocab_size=300, device=where, progress=None)


def test_ctrl_c_ends_the_run_and_the_next_one_is_right(device, stories):
    def interrupt(_):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        gm.train_tokenizer(stories, vocab_size=400, device=device, progress=interrupt)
    assert_same_training(stories, device=device)


def test_two_threads_train_on_one_gpu(device, stories):
    trained = []
    threads = [
        threading.Thread(
            target=lambda: trained.append(gm.train_tokenizer(stories, vocab_size=400, device=device, progress=None))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trained[0] == trained[1] == gm.train_tokenizer(stories, vocab_size=400, device="cpu", progress=None)


def test_no_memory_of_the_gpu_is_held_after_a_run(device, stories, monkeypatch):
    held = []
    released = extending.count

    def record(*arguments, **options):
        counted = released(*arguments, **options)
        held.append(device_table(counted.words))
        return counted

    monkeypatch.setattr(extending, "count", record)
    gm.train_tokenizer(stories, vocab_size=300, device=device, progress=None)
    assert held[0] is not None
    table = weakref.ref(held.pop())
    gc.collect()
    assert table() is None


def test_progress_has_the_stages_of_training_in_order(device, stories):
    reports = []
    gm.train_tokenizer(stories, vocab_size=400, device=device, progress=reports.append)
    stages = list(dict.fromkeys(report.stage for report in reports))
    assert stages == [stage for stage in ("count", "join", "setup", "merge") if stage in stages]
    last = {report.stage: report for report in reports}
    assert last["count"].done == last["count"].total == sum(path.stat().st_size for path in stories.iterdir())
    assert last["merge"].done == last["merge"].total == 400 - 257


# The command line


def test_the_command_line_names_the_device(device, small_texts_pay, stories, tmp_path, capsys):
    out = str(tmp_path / "tok.json")
    assert main(["train-tokenizer", str(stories), "--vocab-size", "400", "-o", out, "--device", device]) == 0
    assert "device " in capsys.readouterr().out
    arguments = ["train-tokenizer", str(stories), "--vocab-size", "400", "-o", out, "--overwrite"]
    assert main([*arguments, "--device", "cpu"]) == 0
    assert "device " not in capsys.readouterr().out
    assert main([*arguments, "--device", "auto"]) == 0
    assert "a GPU is used from 1)" in capsys.readouterr().out
    words = str(tmp_path / "words.gmw")
    assert main(["count-words", str(stories), "-o", words, "--device", device]) == 0
    assert "device " in capsys.readouterr().out
    assert main(["extend", out, words, "--vocab-size", "450", "-o", out, "--overwrite", "--device", device]) == 0
    assert "device " in capsys.readouterr().out


def test_the_command_line_refuses_a_device_in_its_own_words(device, stories, tmp_path, capsys):
    words = str(tmp_path / "words.gmw")
    assert main(["count-words", str(stories), "-o", words, "--device", "cuba"]) == 2
    assert "--device cuba is not valid" in capsys.readouterr().err
    assert main(["task", "plan", "count-words", str(stories), "-o", words, "--device", device]) == 2
    assert "--device cuda does not apply: tasks count on the CPU" in capsys.readouterr().err
