"""compat.huggingface with transformers: which class is returned, and that its ids are Gristmill's."""

from __future__ import annotations

import pickle
import subprocess
import sys
import types

import pytest

import gristmill as gm
from gristmill.compat.huggingface import PreTrainedTokenizerFast, StandInTokenizerFast
from texts import STORY, random_story

END, PAD, USER = "<|endoftext|>", "<pad>", "<|user|>"
TEXTS = [
    *("the miller ground", "", " ", "\n\n", f"héllo 😀{END}", f"{USER}hi{END}{END}", "<|user", "naïve café — ½"),
    *("it's 12345 o'clock\t \r\n", "日本語のテキスト", "\x00\x7f", "  double  spaces  ", f" {PAD} {USER} ", "a" * 300),
    STORY,
]


@pytest.fixture(scope="module", params=["gpt2", "cl100k", "o200k", "llama3", "qwen2", "whitespace"])
def tok(request):
    return gm.train_tokenizer(
        [STORY, random_story(1, 2000)],
        vocab_size=500,
        pattern=request.param,
        special_tokens=[END, PAD, USER],
        progress=None,
    )


def test_importing_the_module_imports_neither_transformers_nor_torch():
    code = "import sys, gristmill.compat.huggingface; print({'transformers', 'tokenizers', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_without_transformers_it_is_the_stand_in(tok, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    tokenizer = PreTrainedTokenizerFast(tok, eos_token=END)
    assert type(tokenizer) is StandInTokenizerFast
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    tokenizer.save_pretrained(tmp_path / "saved")
    assert type(PreTrainedTokenizerFast.from_pretrained(tmp_path / "saved")) is StandInTokenizerFast
    assert not isinstance(tok, PreTrainedTokenizerFast)


def test_a_broken_transformers_is_a_warning_and_the_stand_in(tok, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", types.ModuleType("transformers"))  # without the class
    with pytest.warns(RuntimeWarning, match="cannot be imported"):
        tokenizer = PreTrainedTokenizerFast(tok, eos_token=END)
    assert type(tokenizer) is StandInTokenizerFast


@pytest.fixture(scope="module")
def theirs():
    return pytest.importorskip("transformers")


@pytest.fixture
def tokenizer(theirs, tok):
    return PreTrainedTokenizerFast(tok, eos_token=END, pad_token=PAD)


def test_it_is_an_instance_of_their_class(theirs, tok, tokenizer):
    assert type(tokenizer) is theirs.PreTrainedTokenizerFast
    assert isinstance(tokenizer, theirs.PreTrainedTokenizerBase)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    assert type(StandInTokenizerFast(tok)) is StandInTokenizerFast


def test_ids_are_those_of_gristmill(tok, tokenizer):
    stand_in = StandInTokenizerFast(tok, eos_token=END, pad_token=PAD)
    for text in TEXTS:
        assert tokenizer(text).input_ids == tok.encode(text, allowed_special="all") == stand_in(text).input_ids
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=20)
    assert batch.data == stand_in(TEXTS, padding=True, truncation=True, max_length=20).data


def test_special_tokens_are_all_known_as_such(tok, tokenizer):
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (tok.special_tokens[END], tok.special_tokens[PAD])
    assert set(tokenizer.all_special_ids) == set(tok.special_tokens.values())
    assert len(tokenizer) == tok.vocab_size
    assert tokenizer.decode(tok.encode(f"{USER}hi{END}", allowed_special="all"), skip_special_tokens=True) == "hi"
    assert list(tokenizer("hi")) == ["input_ids", "attention_mask"]


def test_what_it_saves_is_read_by_both(theirs, tok, tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "real")
    for read in (theirs.AutoTokenizer, PreTrainedTokenizerFast, StandInTokenizerFast):
        again = read.from_pretrained(tmp_path / "real")
        assert again(TEXTS).input_ids == tokenizer(TEXTS).input_ids
        assert again.pad_token_id == tokenizer.pad_token_id
    StandInTokenizerFast(tok, eos_token=END).save_pretrained(tmp_path / "ours")
    assert PreTrainedTokenizerFast.from_pretrained(tmp_path / "ours")(TEXTS).input_ids == tokenizer(TEXTS).input_ids
    with pytest.raises(FileNotFoundError, match="nothing is downloaded"):
        PreTrainedTokenizerFast.from_pretrained(tmp_path / "missing")


def test_a_folder_with_a_file_of_gristmill_is_read_as_their_class(theirs, tok, tokenizer, tmp_path):
    tok.save(tmp_path / "tokenizer.json")
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path, eos_token=END)
    assert isinstance(again, theirs.PreTrainedTokenizerFast)
    assert again(TEXTS).input_ids == tokenizer(TEXTS).input_ids
    assert again.eos_token == END


def test_their_collators_and_templates_work(theirs, tok, tokenizer):
    pytest.importorskip("torch")
    collate = theirs.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    batch = collate([tokenizer("the miller"), tokenizer("rye")])
    assert (batch["labels"] == -100).tolist() == (batch["attention_mask"] == 0).tolist()
    assert (batch["labels"] == -100).any()
    template = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}"
    chat = PreTrainedTokenizerFast(tok, eos_token=END, chat_template=template)
    ids = chat.apply_chat_template([{"role": "user", "content": "hi"}], return_dict=False)
    assert ids == tok.encode(f"{USER}hi", allowed_special="all")


def test_a_copy_in_another_process_gives_the_same_ids(tokenizer):
    assert pickle.loads(pickle.dumps(tokenizer))(TEXTS).input_ids == tokenizer(TEXTS).input_ids


def test_a_file_of_any_format_is_wrapped(theirs, tok, tmp_path):
    tok.save(tmp_path / "tok.json")
    assert PreTrainedTokenizerFast(tokenizer_file=tmp_path / "tok.json")(TEXTS).input_ids == [
        tok.encode(text, allowed_special="all") for text in TEXTS
    ]
    with pytest.raises(ValueError, match="got neither"):
        PreTrainedTokenizerFast()
