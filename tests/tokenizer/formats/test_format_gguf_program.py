"""GGUF in llama.cpp, if llama-cpp-python is installed: an export that does not warn gives the same ids."""

from __future__ import annotations

import ctypes
import warnings

import pytest
from format_cases import whole_pieces
from llama_cpp_rules import LlamaCpp, varied_texts
from test_format_gguf_ids import trained_on_scripts

import gristmill as gm
from gristmill.errors import FormatWarning

llama_cpp = pytest.importorskip("llama_cpp")

TEXTS = list(varied_texts(13, 3000))


class Program:
    """Return the tokenizer of a file without tensors, loaded by llama.cpp."""

    def __init__(self, path) -> None:
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
        assert self._model, "llama.cpp does not load the file"
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)

    def encode(self, text: str, *, specials: bool = False) -> list[int]:
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        number = llama_cpp.llama_tokenize(self._vocab, data, len(data), ids, len(ids), True, specials)
        assert number >= 0
        return list(ids[:number])


def exported(tok, path, **options) -> tuple[Program, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tok.export(path, format="gguf", **options)
    return Program(path), [str(warning.message) for warning in caught if warning.category is FormatWarning]


@pytest.mark.parametrize("pattern", ["gpt2", "llama3", "cl100k", "qwen2"])
def test_ids_are_the_same_for_3000_texts(pattern, tmp_path):
    tok = trained_on_scripts(pattern)
    program, warned = exported(tok, tmp_path / "t.gguf")
    assert warned == []
    assert [text for text in TEXTS if program.encode(text) != tok.encode(text)] == []
    marked = [f"{text}<|endoftext|>{text[:5]}" for text in TEXTS[:300]]
    assert [program.encode(text, specials=True) for text in marked] == [
        tok.encode(text, allowed_special="all") for text in marked
    ]


def test_whole_pieces_are_the_same(tmp_path):
    tok = gm.Tokenizer.from_parts(whole_pieces())
    program, warned = exported(tok, tmp_path / "t.gguf")
    assert warned == []
    texts = [*TEXTS[:1000], "abc cab bca xyz abcd the"]
    assert [program.encode(text) for text in texts] == [tok.encode(text) for text in texts]


@pytest.mark.parametrize("pre", ["granite-embed-multi-97m", "gpt-4o"])
def test_o200k_is_cut_as_the_expressions_in_these_tests_say(pre, tmp_path):
    tok = trained_on_scripts("o200k")
    program, _ = exported(tok, tmp_path / "t.gguf", pre=pre)
    expected = LlamaCpp(tok.parts, pre)
    assert [text for text in TEXTS if program.encode(text) != expected.encode(text)] == []
