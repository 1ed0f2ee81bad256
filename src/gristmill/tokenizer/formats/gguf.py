"""GGUF: the keys of a tokenizer in the file format of llama.cpp, without tensors. Written, not read.

Version 3, little-endian: `GGUF`, u32 version, u64 number of tensors, u64 number of keys; each key with the type of its
value and the value. `tokenizer.ggml.pre` is one of the names that llama.cpp knows a pattern by. A pattern that it does
not know has none: then the key is left out, which is said, unless `pre=` names one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from gristmill.errors import FormatWarning, OptionError, TokenizerFormatError, warn_user
from gristmill.tokenizer.formats.byte_alphabet import spell
from gristmill.tokenizer.formats.given import Given
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

OPTIONS = frozenset({"pre", "bos_token", "eos_token"})

VERSION = 3
U32, I32, BOOL, STRING, ARRAY = 4, 5, 7, 8, 9
NORMAL, CONTROL, UNUSED = 1, 3, 5
# How llama.cpp calls the patterns. llama3's has two names: under the second, a piece that is a token is that token.
PRE_NAMES = {"gpt2": "gpt-2", "o200k": "gpt-4o", "qwen2": "qwen2", "llama3": "dbrx"}
WHOLE_PIECES_PRE_NAMES = {"llama3": "llama-bpe"}
END_OF_TEXT = "<|endoftext|>"


def recognizes(path: Path, head: bytes) -> bool:
    """Whether the file looks like one of this format."""
    return head.startswith(b"GGUF")


def read(path: Path, given: Given) -> TokenizerParts:
    """Nothing: the format is only written."""
    raise TokenizerFormatError("GGUF is only written, not read. Load the tokenizer that the file was made from.")


def files(
    parts: TokenizerParts,
    path: Path,
    *,
    pre: str | None = None,
    bos_token: str | None = None,
    eos_token: str | None = None,
) -> dict[Path, bytes]:
    """The file to write, by its path."""
    return {path: dump(parts, pre=pre, bos_token=bos_token, eos_token=eos_token)}


def dump(
    parts: TokenizerParts, *, pre: str | None = None, bos_token: str | None = None, eos_token: str | None = None
) -> bytes:
    """The file of a tokenizer.

    pre: the name of the pattern in llama.cpp, where Gristmill knows none or another is wanted.
    bos_token, eos_token: special tokens that begin and end a text; `<|endoftext|>`, where there is one, unless given.
    """
    if not isinstance(pre, str | None):
        raise OptionError(f"pre={pre!r} is a {type(pre).__name__}. Pass the name of a pattern in llama.cpp.")
    vocabulary = parts.vocabulary
    tokens, kinds = _token_rows(vocabulary)
    merges = [f"{tokens[left]} {tokens[right]}" for left, right, _ in vocabulary.merges.tolist()]
    name = _pre_name(parts) if pre is None else pre
    keys = [
        _string("tokenizer.ggml.model", "gpt2"),
        *([] if name is None else [_string("tokenizer.ggml.pre", name)]),
        _strings("tokenizer.ggml.tokens", tokens),
        _key("tokenizer.ggml.token_type", ARRAY) + struct.pack(f"<IQ{len(kinds)}i", I32, len(kinds), *kinds),
        _strings("tokenizer.ggml.merges", merges),
    ]
    for option, text, key in (("bos_token", bos_token, "bos_token_id"), ("eos_token", eos_token, "eos_token_id")):
        id = _special_id(vocabulary, option, text)
        if id is not None:
            keys.append(_key(f"tokenizer.ggml.{key}", U32) + struct.pack("<I", id))
    # Some names make llama.cpp put a token before every text, unless it is told not to.
    keys.append(_key("tokenizer.ggml.add_bos_token", BOOL) + b"\0")
    return b"GGUF" + struct.pack("<IQQ", VERSION, 0, len(keys)) + b"".join(keys)


def _pre_name(parts: TokenizerParts) -> str | None:
    if parts.vocabulary.whole_pieces:
        name = WHOLE_PIECES_PRE_NAMES.get(parts.pattern.name or "")
        if name is None:
            raise TokenizerFormatError(
                "the vocabulary takes a piece that is a token as that token, whatever the merges make of it, and "
                "llama.cpp knows no such rule for this pattern: ids would differ. Pass pre= to write it all the same."
            )
        return name
    name = PRE_NAMES.get(parts.pattern.name or "")
    if name is None:
        warn_user(
            f"llama.cpp has no name for the pattern {str(parts.pattern)!r}, so the file does not say how text is cut, "
            f"and llama.cpp will cut it in its own way. Pass pre= with the name of a pattern that is close enough.",
            FormatWarning,
        )
    return name


def _token_rows(vocabulary: Vocabulary) -> tuple[list[str], list[int]]:
    """The text and the kind of every id; ids that no token has are filled up."""
    tokens = [f"[PAD{id}]" for id in range(vocabulary.size)]
    kinds = [UNUSED] * vocabulary.size
    for id, token in vocabulary.tokens.items():
        tokens[id], kinds[id] = spell(token), NORMAL
    for special, id in vocabulary.special_tokens.items():
        tokens[id], kinds[id] = special, CONTROL
    id_of: dict[str, int] = {}
    for id, text in enumerate(tokens):
        if id_of.setdefault(text, id) != id:
            raise TokenizerFormatError(
                f"ids {id_of[text]} and {id} are both spelled {text!r:.80} in GGUF, and llama.cpp would take "
                f"one for the other. Give the special token another name."
            )
    return tokens, kinds


def _special_id(vocabulary: Vocabulary, option: str, text: str | None) -> int | None:
    if text is None:
        return vocabulary.special_tokens.get(END_OF_TEXT)
    if text not in vocabulary.special_tokens:
        known = ", ".join(map(repr, vocabulary.special_tokens)) or "none at all"
        raise OptionError(f"{option}={text!r} is not a special token of this tokenizer. It has {known:.200}.")
    return vocabulary.special_tokens[text]


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _key(name: str, kind: int) -> bytes:
    return _text(name) + struct.pack("<I", kind)


def _string(name: str, value: str) -> bytes:
    return _key(name, STRING) + _text(value)


def _strings(name: str, values: Sequence[str]) -> bytes:
    return _key(name, ARRAY) + struct.pack("<IQ", STRING, len(values)) + b"".join(map(_text, values))
