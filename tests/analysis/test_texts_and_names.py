"""Texts to measure on, and tokenizers by name."""

import gzip
import hashlib

import pytest

import gristmill as gm
from gristmill.analysis import named_tokenizers
from gristmill.analysis.named_tokenizers import find_tokenizer
from gristmill.analysis.texts import read_texts, sample_text
from gristmill.errors import OptionError, TokenizerFormatError


def test_a_long_file_is_cut_at_the_end_of_a_character(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("aé日👩" * 10, encoding="utf-8")
    whole = path.read_bytes()
    for size in range(1, 30):
        (text,) = read_texts(path, max_bytes=size)
        assert text.is_cut and whole.startswith(text.data)
        text.data.decode()
        assert size - 3 <= len(text.data) <= size
    (text,) = read_texts(path)
    assert (text.data, text.is_cut, text.description) == (whole, False, str(path))


def test_texts_keep_their_names_and_compressed_files_are_read(tmp_path):
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"low"))
    (tmp_path / "c.txt").write_bytes(b"\xff")
    texts = read_texts({"English": tmp_path / "b.txt.gz", "other": str(tmp_path / "c.txt")})
    assert [(text.name, text.data) for text in texts] == [("English", b"low"), ("other", b"\xff")]
    with pytest.raises(OptionError, match="texts is empty"):
        read_texts([])


def test_without_a_text_the_sample_corpus_is_named():
    (text,) = read_texts(None)
    assert text == sample_text() and text.is_sample
    assert text.name == "the built-in sample corpus" and 1_000_000 <= len(text.data) < 1_010_000


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """tiktoken's cache with a small r50k_base, which is then what the name gpt2 means too."""
    gm.Tokenizer([(b"l", b"o"), (b"lo", b"w")]).export(tmp_path / "small.tiktoken", format="tiktoken")
    data = (tmp_path / "small.tiktoken").read_bytes()
    url = "https://openaipublic.blob.core.windows.net/encodings/r50k_base.tiktoken"
    path = tmp_path / hashlib.sha1(url.encode()).hexdigest()
    path.write_bytes(data)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(named_tokenizers.CHECKSUMS, "r50k_base", hashlib.sha256(data).hexdigest())
    monkeypatch.setitem(named_tokenizers.PUBLISHED, "r50k_base", ("gpt2", {"<|endoftext|>": 258}))
    monkeypatch.setattr(named_tokenizers, "_in_bpe_openai", lambda encoding: None)
    monkeypatch.setattr(named_tokenizers, "_from_hub_cache", lambda name, pattern: None)
    return path


@pytest.mark.filterwarnings("ignore::gristmill.FormatWarning")
def test_a_published_name_is_found_in_the_cache_of_tiktoken(cache):
    for name in ("r50k_base", "gpt2"):
        tokenizer = find_tokenizer(name)
        assert tokenizer.encode("low") == [257] and tokenizer.special_tokens == {"<|endoftext|>": 258}
        assert tokenizer.pattern == "gpt2"


@pytest.mark.filterwarnings("ignore::gristmill.FormatWarning")
def test_a_damaged_or_switched_off_cache_is_not_used_and_nothing_is_downloaded(cache, monkeypatch):
    monkeypatch.setattr(gm.Tokenizer, "from_tiktoken", classmethod(lambda *_: pytest.fail("a download")))
    cache.write_bytes(cache.read_bytes()[:-5])
    with pytest.raises(FileNotFoundError, match=r"the cache of tiktoken.*no tokenizer of this name.*download=True"):
        find_tokenizer("gpt2")
    assert cache.exists(), "the cache belongs to tiktoken"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    with pytest.raises(FileNotFoundError):
        find_tokenizer("gpt2")


@pytest.mark.filterwarnings("ignore::gristmill.FormatWarning")
def test_only_download_asks_the_network(cache, monkeypatch):
    cache.unlink()
    asked = []
    monkeypatch.setattr(gm.Tokenizer, "from_tiktoken", classmethod(lambda _, name: asked.append(name) or "it"))
    assert find_tokenizer("gpt2", download=True) == "it"
    assert asked == ["gpt2"]


def test_a_file_of_the_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gm.Tokenizer([(b"a", b"b")]).save("gpt2")
    assert find_tokenizer("gpt2").encode("ab") == [256]


@pytest.mark.parametrize("name", ["tok.json", "folder/tok.json", "no such thing"])
def test_a_missing_file_names_what_is_known(name):
    with pytest.raises(FileNotFoundError, match=f"{name}: no such file or folder. Pass a tokenizer file.*cl100k_base"):
        find_tokenizer(name)


@pytest.mark.filterwarnings("ignore::gristmill.FormatWarning")
def test_the_pattern_is_used_only_where_the_file_has_none(tmp_path):
    tokenizer = gm.Tokenizer([(b"a", b"b")], pattern="cl100k")
    tokenizer.save(tmp_path / "tok.json")
    tokenizer.export(tmp_path / "mine.tiktoken", format="tiktoken")
    assert find_tokenizer(tmp_path / "tok.json", pattern="gpt2").pattern == "cl100k"
    assert find_tokenizer(tmp_path / "mine.tiktoken", pattern="gpt2").pattern == "gpt2"
    with pytest.raises(TokenizerFormatError, match="pattern="):
        find_tokenizer(tmp_path / "mine.tiktoken")


def test_names_that_come_with_bpe_openai_need_no_network():
    pytest.importorskip("bpe_openai")
    tokenizer = find_tokenizer("cl100k_base")
    assert (tokenizer.vocab_size, tokenizer.encode("tiktoken is great!")) == (100277, [83, 1609, 5963, 374, 2294, 0])


def test_a_name_on_the_hub_is_found_in_its_cache_without_the_network(tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--owner--model"
    for folder in ("refs", "snapshots/0123456789abcdef0123456789abcdef01234567"):
        (model / folder).mkdir(parents=True)
    (model / "refs" / "main").write_text("0123456789abcdef0123456789abcdef01234567")
    gm.Tokenizer([(b"a", b"b")]).export(
        model / "snapshots" / "0123456789abcdef0123456789abcdef01234567", format="huggingface", overwrite=True
    )
    assert find_tokenizer("owner/model").encode("ab") == [256]
    with pytest.raises(FileNotFoundError, match=r"owner/other: no such .*cache of the Hugging Face Hub"):
        find_tokenizer("owner/other")
