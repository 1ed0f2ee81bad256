"""Conversations, and a tokenizer with the special tokens of ChatML, for the tests of fine-tuning."""

from __future__ import annotations

import functools
import gzip
import json

import gristmill as gm
from lm.tiny_runs import texts

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@functools.cache
def tokenizer():
    corpus = " ".join([*texts(200), "User:\nAssistant:\nSystem:\n" * 20])
    return gm.train_tokenizer([corpus], vocab_size=330, special_tokens=SPECIALS, progress=None)


def turns(*contents, system=None):
    """A conversation: contents of user and assistant in turn."""
    roles = ("user", "assistant")
    first = [] if system is None else [{"role": "system", "content": system}]
    return first + [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]


def write_lines(path, rows):
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def questions(number=12):
    """Prompts that each have one response."""
    names = [f"{size} {animal}" for size in ("old", "big", "red") for animal in ("cat", "dog", "fox", "bird")]
    return [{"prompt": f"what did the {name} do?", "response": f"the {name} sat."} for name in names[:number]]
