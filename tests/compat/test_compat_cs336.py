"""compat.cs336: what the course's tests require, and what they leave out."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import textwrap
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as gm
from gristmill import reference
from gristmill.compat.cs336 import Tokenizer, train_bpe
from gristmill.tokenizer.formats.byte_alphabet import spell
from texts import STORY, random_story, random_text

END = "<|endoftext|>"
TEXTS = [
    "",
    "s",
    "🙃",
    "Héllò hôw are ü? 🙃",
    STORY,
    "  \n\n ",
    "a" * 1000,
    random_text(5, 400, invalid=False).decode(),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("cs336") / "corpus.en"
    path.write_text(END.join([STORY, random_story(1, 2000), random_story(2, 2000)]), "utf-8")
    return path


@pytest.fixture(scope="module")
def trained(corpus):
    return train_bpe(corpus, 500, [END])


def test_merges_are_those_of_the_naive_algorithm_with_the_rule_of_the_course(corpus, trained):
    vocab, merges = trained
    assert merges == reference.train([corpus.read_text("utf-8")], 500, special_tokens=[END])
    assert set(vocab) == set(range(500))
    assert set(vocab.values()) == {END.encode(), *(bytes([i]) for i in range(256)), *(a + b for a, b in merges)}


def test_ids_are_given_as_in_the_reference_of_the_course(trained):
    vocab, merges = trained
    assert [vocab[0], vocab[1], vocab[2], vocab[189]] == [END.encode(), b"!", b'"', b"\0"]
    assert vocab[257] == b"".join(merges[0])
    assert vocab[499] == b"".join(merges[-1])


def test_special_tokens_are_no_part_of_any_merge(trained):
    vocab, _ = trained
    assert not any(b"<|" in token for token in vocab.values() if token != END.encode())


def test_keywords_set_the_number_of_threads_and_others_are_ignored(corpus, trained):
    for options in (
        {"num_processes": 2},
        {"num_workers": 1, "verbose": True},
        {"chunk_size": 10},
        {"num_threads": None},
    ):
        assert train_bpe(input_path=str(corpus), vocab_size=500, special_tokens=[END], **options) == trained
    assert train_bpe(corpus, 300, [])[1] == train_bpe(corpus, 300)[1]


def test_a_file_is_the_text_it_is_whatever_its_suffix(corpus, trained, tmp_path):
    for name in ("corpus.jsonl", "corpus.json", "corpus.parquet"):
        (tmp_path / name).write_bytes(corpus.read_bytes())
        assert train_bpe(tmp_path / name, 500, [END]) == trained


def test_bad_arguments_of_training_are_errors(corpus, tmp_path):
    with pytest.raises(gm.VocabSizeError):
        train_bpe(corpus, 256, [END])
    with pytest.raises(FileNotFoundError):
        train_bpe(tmp_path / "missing", 300, [END])


@pytest.fixture(scope="module")
def tokenizer(trained):
    return Tokenizer(*trained, special_tokens=[END])


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_and_ids_are_those_of_the_plain_algorithm(tokenizer, trained, text):
    vocab, merges = trained
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert [vocab[id] for id in ids] == _tokens(text, merges)
    assert list(tokenizer.encode_iterable([text])) == ids


def _tokens(text, merges):
    plain = [bytes([i]) for i in range(256)] + [left + right for left, right in merges]
    return [plain[id] for id in reference.encode(text, merges)]


def test_specials_are_always_recognised(tokenizer):
    ids = tokenizer.encode(f"Hello, how {END}{END} are you?{END}")
    assert ids.count(0) == 3
    assert tokenizer.decode(ids) == f"Hello, how {END}{END} are you?{END}"


def test_the_longest_of_overlapping_specials_wins(trained):
    tokenizer = Tokenizer(*trained, special_tokens=[END, END + END])
    ids = tokenizer.encode(f"Hello, how {END}{END} are you?{END}")
    assert ids.count(500) == 1
    assert ids.count(0) == 1


def test_specials_that_the_vocabulary_lacks_get_the_next_ids(trained):
    tokenizer = Tokenizer(*trained, special_tokens=["<pad>", END, "<mask>"])
    assert tokenizer.encode(f"<pad>{END}<mask>") == [500, 0, 501]
    assert tokenizer.vocab[500] == b"<pad>"
    assert tokenizer.special_tokens == ["<pad>", END, "<mask>"]
    vocab, merges = trained
    gaps = {id + (id > 300) * 50: token for id, token in vocab.items()}
    assert Tokenizer(gaps, merges, ["<pad>"]).encode("<pad>") == [550]


def test_a_special_that_is_not_named_is_text_to_encode_and_known_to_decode(trained):
    tokenizer = Tokenizer(*trained)
    ids = tokenizer.encode(END)
    assert 0 not in ids
    assert tokenizer.decode(ids) == END
    assert tokenizer.decode([0]) == END


def test_any_ids_will_do(trained):
    vocab, merges = trained
    turned = {499 - id: token for id, token in vocab.items()}
    ours, other = Tokenizer(vocab, merges, [END]), Tokenizer(turned, merges, [END])
    text = STORY + END
    assert other.encode(text) == [499 - id for id in ours.encode(text)]
    assert (other.vocab, other.merges) == (dict(sorted(turned.items())), merges)


def test_a_vocabulary_without_some_bytes_encodes_what_it_can():
    vocab = {0: b" ", 1: b"a", 2: b"c", 3: b"e", 4: b"h", 5: b"t", 6: b"th", 7: b" c", 8: b" a", 9: b"the", 10: b" at"}
    merges = [(b"t", b"h"), (b" ", b"c"), (b" ", b"a"), (b"th", b"e"), (b" a", b"t")]
    tokenizer = Tokenizer(vocab, merges)
    assert tokenizer.encode("the cat ate") == [9, 7, 1, 5, 10, 3]
    assert tokenizer.decode([9, 7, 1, 5, 10, 3]) == "the cat ate"
    assert tokenizer.vocab == vocab
    with pytest.raises(KeyError, match="b'z'"):
        tokenizer.encode("the zebra")
    with pytest.raises(KeyError, match="b'z'"):
        list(tokenizer.encode_iterable(["the z", "ebra"]))
    with pytest.raises(KeyError, match="no token has id 11"):
        tokenizer.decode([11])


def test_unsound_vocabularies_are_refused(trained):
    vocab, merges = trained
    with pytest.raises(gm.TokenizerFormatError, match="the same"):
        Tokenizer({**vocab, 500: b"a"}, merges)
    with pytest.raises(gm.TokenizerFormatError, match="not in the vocabulary"):
        Tokenizer(vocab, [*merges, (b"qqq", b"zzz")])
    with pytest.raises(gm.SpecialTokenError):
        Tokenizer(vocab, merges, [END, END])


@given(cuts=st.lists(st.integers(0, len(STORY)), max_size=12))
def test_parts_of_a_text_give_the_ids_of_the_whole(tokenizer, cuts):
    text = STORY[:200] + END + STORY[200:] + END + END + "\n\n  x"
    ends = [0, *sorted(cuts), len(text)]
    parts = [text[begin:end] for begin, end in pairwise(ends)]
    assert list(tokenizer.encode_iterable(parts)) == tokenizer.encode(text)


def test_lines_of_a_file_give_the_ids_of_the_whole(tokenizer, corpus):
    with corpus.open(encoding="utf-8", newline="") as file:
        ids = list(tokenizer.encode_iterable(file))
    assert ids == tokenizer.encode(corpus.read_bytes().decode())


def test_encode_iterable_is_lazy(tokenizer):
    def endless():
        while True:
            yield "one more line\n"

    ids = tokenizer.encode_iterable(endless())
    assert tokenizer.decode(next(ids) for _ in range(1000)).startswith("one more line\none")


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")
def test_encode_iterable_starts_no_thread_and_stays_within_a_megabyte(trained, tmp_path):
    # a cache that only grows, piece by piece, would not fit
    source = random.Random(7)
    lines = ["".join(source.choices("aeinorst   \n😀é中", k=60)) for _ in range(40_000)]
    (tmp_path / "text.txt").write_text("\n".join([random_story(7, 300_000), *lines])[:4_000_000], "utf-8")
    (tmp_path / "vocab.json").write_text(json.dumps({spell(token): id for id, token in trained[0].items()}), "utf-8")
    merges = "".join(f"{spell(left)} {spell(right)}\n" for left, right in trained[1])
    (tmp_path / "merges.txt").write_text(merges, "utf-8")
    script = """
        import os, re, resource
        from gristmill.compat.cs336 import Tokenizer

        tokenizer = Tokenizer.from_files("vocab.json", "merges.txt", ["<|endoftext|>"])
        num_ids = 0
        with open("text.txt", encoding="utf-8") as file:
            status = open("/proc/self/status").read()
            limit = int(re.search(r"VmSize:\\s*(\\d+)", status)[1]) * 1024 + 1_000_000
            num_threads = len(os.listdir("/proc/self/task"))
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            for _ in tokenizer.encode_iterable(file):
                num_ids += 1
        assert len(os.listdir("/proc/self/task")) == num_threads
        print(num_ids)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    tokenizer = Tokenizer(*trained, special_tokens=[END])
    assert int(run.stdout) == len(tokenizer.encode((tmp_path / "text.txt").read_text("utf-8")))


def write_json(path, content, **options):
    path.write_text(json.dumps(content, **options), "utf-8")
    return path


def test_files_of_every_common_form(trained, tmp_path):
    vocab, merges = trained
    spelled = {id: spell(token) for id, token in vocab.items()}
    lines = [f"{spell(left)} {spell(right)}" for left, right in merges]
    vocabs = [
        write_json(tmp_path / "a.json", {text: id for id, text in spelled.items()}),
        write_json(tmp_path / "b.json", spelled),
        write_json(tmp_path / "c.json", {id: list(token) for id, token in vocab.items()}),
    ]
    (tmp_path / "a.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n", "utf-8")
    (tmp_path / "b.txt").write_text("\n".join(lines), "utf-8")
    merge_files = [
        tmp_path / "a.txt",
        tmp_path / "b.txt",
        write_json(tmp_path / "m.json", [line.split(" ") for line in lines]),
        write_json(tmp_path / "n.json", [[list(left), list(right)] for left, right in merges]),
        write_json(tmp_path / "o.json", [line.split(" ") for line in lines], indent=2),
    ]
    expected = Tokenizer(vocab, merges, [END]).encode(STORY + END)
    for vocab_file, merge_file in [
        *((file, merge_files[0]) for file in vocabs),
        *((vocabs[0], m) for m in merge_files),
    ]:
        loaded = Tokenizer.from_files(str(vocab_file), merge_file, special_tokens=[END])
        assert (loaded.vocab, loaded.merges) == (vocab, merges)
        assert loaded.encode(STORY + END) == expected


def test_merges_that_begin_with_a_hash_are_merges(tmp_path):
    vocab = {id: bytes([id]) for id in range(256)} | {256: b"##", 257: b"#v"}
    write_json(tmp_path / "vocab.json", {spell(token): id for id, token in vocab.items()})
    (tmp_path / "merges.txt").write_text("# #\n# v\n", "utf-8")
    loaded = Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt")
    assert loaded.merges == [(b"#", b"#"), (b"#", b"v")]


def test_a_pickle_is_read_only_when_it_is_allowed_and_plain(trained, tmp_path):
    vocab, merges = trained
    (tmp_path / "vocab.pkl").write_bytes(pickle.dumps(vocab))
    (tmp_path / "merges.pkl").write_bytes(pickle.dumps(merges))
    files = tmp_path / "vocab.pkl", tmp_path / "merges.pkl"
    with pytest.raises(gm.TokenizerFormatError, match=r"vocab\.pkl: the file is a pickle.*allow_pickle=True"):
        Tokenizer.from_files(*files)
    assert Tokenizer.from_files(*files, allow_pickle=True).encode(STORY) == Tokenizer(vocab, merges).encode(STORY)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("content", [Evil(), OrderedDict(a=1), {0: Path("x")}], ids=["call", "class", "inside"])
def test_nothing_in_a_pickle_is_executed(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("vocab.pkl").write_bytes(pickle.dumps(content))
    Path("merges.txt").write_text("a b\n")
    with pytest.raises(gm.TokenizerFormatError, match="the pickle needs"):
        Tokenizer.from_files("vocab.pkl", "merges.txt", allow_pickle=True)
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\x80\x04K", b"{", b"[]", b"{}", b'{"a": "b"}', b'{"1": 5.5}', b"\xff"]
)
def test_damaged_files_are_refused(data, tmp_path):
    (tmp_path / "vocab.json").write_bytes(data)
    (tmp_path / "merges.txt").write_text("a b\n")
    with pytest.raises(gm.TokenizerFormatError, match=r"vocab\.json"):
        Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt", allow_pickle=True)


@pytest.mark.skipif("GRISTMILL_DATA" not in os.environ, reason="the GPT-2 vocabulary is not at hand")
def test_ids_of_gpt2_are_those_of_tiktoken():
    tiktoken = pytest.importorskip("tiktoken")
    folder = Path(os.environ["GRISTMILL_DATA"])
    tokenizer = Tokenizer.from_files(folder / "gpt2_vocab.json", folder / "gpt2_merges.txt", [END])
    ranks = {token: id for id, token in tokenizer.vocab.items() if id != 50256}
    enc = tiktoken.Encoding(
        "gpt2",
        pat_str=r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks=ranks,
        special_tokens={END: 50256},
    )
    for text in [*TEXTS, f"{END}\n\n{END} a{END}"]:
        assert tokenizer.encode(text) == enc.encode(text, allowed_special="all")
