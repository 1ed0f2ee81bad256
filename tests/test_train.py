"""Training: from a corpus to a tokenizer, bad input, and the files and threads that remain after a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import gristmill as gm
from gristmill import Words, reference
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from texts import STORY, random_story, random_text

TIE_BREAKS = ["greatest-bytes", "smallest-ids", "huggingface", "first-seen"]
TEXTS = [STORY, random_story(1, 800), "<s>" + STORY, random_text(2, 500)]


def test_same_tokenizer_for_1_2_and_7_threads(tmp_path):
    (tmp_path / "corpus.txt").write_bytes(b"".join(t.encode() if isinstance(t, str) else t for t in TEXTS) * 20)
    trained = [
        gm.train_tokenizer(tmp_path / "corpus.txt", vocab_size=500, special_tokens=["<s>"], num_threads=threads)
        for threads in (1, 2, 7)
    ]
    assert trained[0] == trained[1] == trained[2]


def test_min_frequency_leaves_rare_words_out_of_training():
    counts = {word: count for word, count in reference.count_words(TEXTS, special_tokens=()).items() if count >= 5}
    tok = gm.train_tokenizer(TEXTS, vocab_size=330, min_frequency=5, special_tokens=())
    assert tok.merges == reference.learn_merges(counts, 74)


def test_a_custom_pattern_trains_like_the_reference():
    pattern = r"\p{L}+|\p{N}| "
    tok = gm.train_tokenizer(TEXTS, vocab_size=400, pattern=pattern, num_threads=2, special_tokens=())
    assert tok.pattern == pattern
    assert tok.merges == reference.train(TEXTS, 400, pattern=pattern, learn=reference.learn_merges_incrementally)


def test_training_from_words_takes_their_pattern_and_specials():
    words = gm.count_words(TEXTS, pattern="cl100k", special_tokens=["<s>"])
    tok = gm.train_tokenizer(words, vocab_size=400)
    assert tok == gm.train_tokenizer(TEXTS, vocab_size=400, pattern="cl100k", special_tokens=["<s>"])
    assert tok == gm.train_tokenizer(words, vocab_size=400, pattern="cl100k_base", special_tokens=["<s>"])
    with pytest.raises(gm.PatternError, match="were counted with pattern='cl100k'"):
        gm.train_tokenizer(words, vocab_size=400, pattern="gpt2")
    with pytest.raises(gm.SpecialTokenError, match=r"were counted with special_tokens=\['<s>'\]"):
        gm.train_tokenizer(words, vocab_size=400, special_tokens=[])


def test_a_corpus_of_several_files_is_their_words_together(tmp_path):
    paths = []
    for i, text in enumerate(TEXTS):
        paths.append(tmp_path / f"{i}.txt")
        paths[-1].write_bytes(text.encode() if isinstance(text, str) else text)
    from_list = gm.train_tokenizer(paths, vocab_size=400, special_tokens=())
    assert from_list == gm.train_tokenizer(TEXTS, vocab_size=400, special_tokens=())
    assert from_list == gm.train_tokenizer(str(tmp_path / "*.txt"), vocab_size=400, special_tokens=())
    assert from_list == gm.train_tokenizer([str(path) for path in paths], vocab_size=400, special_tokens=())


def test_a_generator_is_consumed_once_and_lazily():
    tok = gm.train_tokenizer((text for text in TEXTS), vocab_size=400, special_tokens=())
    assert tok == gm.train_tokenizer(TEXTS, vocab_size=400, special_tokens=())


# Fewer and more merges


def test_a_corpus_with_too_few_pairs_stops_early_and_says_how_many_merges_it_learned():
    with pytest.warns(gm.EarlyStopWarning, match=r"learned 2 of 744 merges.*vocab_size 258 instead of 1,000") as caught:
        tok = gm.train_tokenizer(["abc"], vocab_size=1000, special_tokens=())
    assert caught[0].filename == __file__
    assert tok.vocab_size == 258
    assert tok.decode(tok.encode("abcabc")) == "abcabc"


def test_a_vocabulary_of_the_bytes_alone_needs_no_merge_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tok = gm.train_tokenizer(["abc"], vocab_size=257, special_tokens=["<s>"])
    assert tok.merges == []
    assert tok.special_tokens == {"<s>": 256}


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_extending_gives_what_a_longer_run_gives(tie_break):
    options = {"special_tokens": ["<s>"], "tie_break": tie_break}
    short = gm.train_tokenizer(TEXTS, vocab_size=330, **options)
    long = gm.train_tokenizer(TEXTS, vocab_size=500, **options)
    assert gm.extend_tokenizer(short, TEXTS, vocab_size=500) == long
    assert gm.extend_tokenizer(short, TEXTS, vocab_size=330) == short
    assert long.truncated(330) == short
    assert gm.extend_tokenizer(short, gm.count_words(TEXTS, special_tokens=["<s>"]), vocab_size=500) == long


def test_extending_on_another_corpus_keeps_every_id_but_those_of_specials():
    short = gm.train_tokenizer([STORY], vocab_size=300, special_tokens=["<s>"])
    longer = gm.extend_tokenizer(short, [random_story(9, 200)], vocab_size=310)
    assert longer.merges[:43] == short.merges
    assert longer.vocab_size == 310
    assert (short.special_tokens, longer.special_tokens) == ({"<s>": 299}, {"<s>": 309})


def test_extending_to_a_smaller_vocabulary_points_to_truncated():
    tok = gm.train_tokenizer([STORY], vocab_size=300, special_tokens=())
    with pytest.raises(gm.VocabSizeError, match=r"vocab_size=280 is smaller.*300.*truncated\(280\)"):
        gm.extend_tokenizer(tok, [STORY], vocab_size=280)


# Bad input: each has a defined result or a clear error


def test_a_vocab_size_below_bytes_and_specials_names_the_smallest_that_does():
    message = (
        "vocab_size=200 is too small: 256 byte tokens and 1 special token already need 257. Pass vocab_size >= 257."
    )
    with pytest.raises(gm.VocabSizeError) as caught:
        gm.train_tokenizer([STORY], vocab_size=200, special_tokens=["<s>"])
    assert str(caught.value) == message
    with pytest.raises(ValueError, match=r"256 byte tokens already need 256\."):
        gm.train_tokenizer([STORY], vocab_size=0, special_tokens=())
    with pytest.raises(ValueError, match=r"and 2 special tokens already need 258"):
        gm.train_tokenizer([STORY], vocab_size=257, special_tokens=["a", "b"])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("vocab_size", 300.0),
        ("vocab_size", "300"),
        ("vocab_size", True),
        ("vocab_size", None),
        ("vocab_size", 2**40),
        ("num_threads", 0),
        ("num_threads", -1),
        ("num_threads", 1.5),
        ("num_threads", True),
        ("min_frequency", 0),
        ("min_frequency", None),
        ("max_token_bytes", 0),
        ("memory_limit", 0),
        ("memory_limit", 1000),
        ("memory_limit", "1GB"),
        ("tie_break", "random"),
        ("tie_break", None),
        ("pattern", "gpt9"),
        ("progress", "loud"),
    ],
)
def test_an_option_outside_its_range_is_named_with_its_value_before_the_corpus_is_touched(option, value):
    def untouched():
        raise AssertionError("the corpus was read")
        yield

    with pytest.raises(gm.OptionError) as caught:
        gm.train_tokenizer(untouched(), **({"vocab_size": 300} | {option: value}), special_tokens=())
    assert f"{option}={value!r}" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("special_tokens", "message"),
    [
        (["<s>", "<s>"], "'<s>' is given twice"),
        (["<s>", ""], "special token 2 is empty"),
        ([b"<s>"], "is a bytes"),
        ([None], "is a NoneType"),
        ("<s>", r"Pass a list: special_tokens=\['<s>'\]"),
        ({"<s>", "<t>"}, "is a set"),
        (["\ud800"], "lone surrogate"),
        (7, "is not a list"),
    ],
)
def test_invalid_special_tokens(special_tokens, message):
    with pytest.raises(gm.SpecialTokenError, match=message):
        gm.train_tokenizer([STORY], vocab_size=300, special_tokens=special_tokens)


def test_numpy_integers_are_integers():
    assert (
        gm.train_tokenizer([STORY], vocab_size=np.int32(300), num_threads=np.int64(1), special_tokens=()).vocab_size
        == 300
    )


def test_an_empty_corpus_is_an_error_and_an_empty_file_among_others_is_not(tmp_path):
    (tmp_path / "empty.txt").touch()
    for corpus in ([], [""], iter([]), tmp_path / "empty.txt", Words.from_counts({}, special_tokens=())):
        with pytest.raises(gm.EmptyCorpusError, match="the corpus is empty"):
            gm.train_tokenizer(corpus, vocab_size=300, special_tokens=())
    with pytest.raises(gm.EmptyCorpusError, match="only special tokens"):
        gm.train_tokenizer(["<s><s>"], vocab_size=300, special_tokens=["<s>"])
    with pytest.raises(gm.EmptyCorpusError, match="occurs min_frequency=99 times or more"):
        gm.train_tokenizer(["a b"], vocab_size=300, min_frequency=99, special_tokens=())
    with pytest.raises(gm.EmptyCorpusError, match="the corpus is empty"):
        gm.count_words([], pattern=r"\w+|\W+", special_tokens=())
    (tmp_path / "full.txt").write_text("ab")
    assert gm.train_tokenizer(str(tmp_path / "*.txt"), vocab_size=257, special_tokens=()).merges == [(b"a", b"b")]


def test_a_missing_file_and_an_empty_folder_are_the_errors_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        gm.train_tokenizer(tmp_path / "missing.txt", vocab_size=300, special_tokens=())
    with pytest.raises(FileNotFoundError, match="No file with a known suffix in this folder"):
        gm.train_tokenizer(tmp_path, vocab_size=300, special_tokens=())


def test_nul_crlf_bom_and_invalid_utf8_are_counted_byte_by_byte(tmp_path):
    data = b"\xef\xbb\xbfa\0b\r\nc\rd\xff\xfe\x80 \xe2\x82\r\n" * 5
    (tmp_path / "raw.txt").write_bytes(data)
    for pattern in NATIVE_PATTERNS:
        tok = gm.train_tokenizer(tmp_path / "raw.txt", vocab_size=262, pattern=pattern, special_tokens=())
        assert tok.merges == reference.train([data], 262, pattern=pattern)
        assert tok.decode_bytes(tok.encode(data)) == data


# After a run


def test_the_profile_has_one_row_per_stage_and_is_neither_compared_nor_saved(tmp_path):
    tok = gm.train_tokenizer([STORY], vocab_size=300, num_threads=2, special_tokens=())
    rows = {stage.stage: stage for stage in tok.profile.stages}
    assert list(rows) == ["count", "join", "setup", "merge"]
    assert rows["count"].num_bytes == len(STORY.encode())
    assert rows["count"].num_words == rows["join"].num_words == len(gm.count_words([STORY], special_tokens=()))
    assert rows["count"].num_pieces == gm.count_words([STORY], special_tokens=()).num_pieces
    assert rows["merge"].num_merges == 44
    assert tok.profile.seconds >= sum(stage.seconds for stage in tok.profile.stages) > 0
    assert tok.profile.num_threads == 2
    assert tok.profile.peak_memory_bytes > 1 << 20
    tok.save(tmp_path / "tok.json")
    loaded = gm.Tokenizer.load(tmp_path / "tok.json")
    assert loaded.profile is None
    assert loaded == tok


def test_progress_reports_every_stage_to_its_end(tmp_path):
    (tmp_path / "a.txt").write_text(STORY * 100)
    reports = []
    gm.train_tokenizer(tmp_path / "a.txt", vocab_size=300, progress=reports.append, special_tokens=())
    last = {report.stage: report for report in reports}
    assert last["count"].done == last["count"].total == len((STORY * 100).encode())
    assert last["merge"].done == last["merge"].total == 44


def test_what_a_progress_callback_raises_stops_the_run():
    class EnoughError(Exception):
        pass

    def stop(_):
        raise EnoughError

    with pytest.raises(EnoughError):
        gm.train_tokenizer([STORY] * 100, vocab_size=300, progress=stop, special_tokens=())


# Processes


SCRIPT = """
import gristmill as gm, sys, time
def documents():
    print("started", flush=True)
    while True:
        yield "one two three " * 10_000
gm.train_tokenizer(documents(), vocab_size=300, pattern=PATTERN, num_threads=2)
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for children in /proc")
@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
def test_ctrl_c_stops_within_a_second_and_leaves_no_process(tmp_path, pattern):
    # A plain script without `if __name__ == "__main__"`: multiprocessing would run it again in every worker.
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("PATTERN", repr(pattern)))
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "started\n"
    time.sleep(1.0)
    children = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert "started" not in output
    assert process.returncode != 0
    deadline = time.monotonic() + 10
    while any(is_running(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [child for child in children if is_running(child)]


def children_of(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(status.parent.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("seed", ["0", "1", "12345"])
def test_same_file_for_every_hash_seed_locale_and_time_zone(tmp_path, seed):
    (tmp_path / "corpus.txt").write_bytes(b"".join(t.encode() if isinstance(t, str) else t for t in TEXTS))
    code = (
        "import gristmill, sys; gristmill.train_tokenizer('corpus.txt', vocab_size=500, special_tokens=['<s>', 'é'],"
        " tie_break='first-seen').save('out.json')"
    )
    env = os.environ | {"PYTHONHASHSEED": seed, "LC_ALL": "C", "TZ": "Asia/Kathmandu"}
    subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, check=True)
    here = gm.train_tokenizer(
        tmp_path / "corpus.txt", vocab_size=500, special_tokens=["<s>", "é"], tie_break="first-seen"
    )
    here.save(tmp_path / "here.json")
    assert (tmp_path / "out.json").read_bytes() == (tmp_path / "here.json").read_bytes()
