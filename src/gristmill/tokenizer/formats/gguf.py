"""GGUF, the file format of llama.cpp: the keys of a tokenizer, without tensors. Write only.

Version 3, little-endian: `GGUF`, u32 version, u64 number of tensors, u64 number of keys, then each key with the type of
its value and the value. With `general.architecture`, llama.cpp loads the file without a model (`vocab_only`).

`tokenizer.ggml.pre` is llama.cpp's name of a pattern. If an export does not warn, llama.cpp gives the same ids, whether
the caller passes `pre` or not. The names, and where llama.cpp's patterns differ from Gristmill's:

| pattern | name | differs |
|---|---|---|
| gpt2 | `gpt-2` | nowhere |
| llama3 | `dbrx`; `llama-bpe` for `whole_pieces` | `LONG_S` |
| cl100k | as llama3 | `LONG_S`; `LINE_BREAK`: white space at the end of a text is cut after its last line break |
| qwen2 | `qwen2` | `LONG_S` |
| o200k | `granite-embed-multi-97m`, else `gpt-4o` | always warns: case outside ASCII; for `gpt-4o` also marks |

A cut that only one of the two makes changes ids only if some token crosses it. The export therefore searches the tokens
for `LONG_S` and `LINE_BREAK`, and warns only if the vocabulary has such a token.

For o200k no name is exact. `gpt-4o` cuts words at combining marks, so ids differ in every text in Thai, Hindi, or
Arabic with vowel signs. `granite-embed-multi-97m` does not. Both distinguish upper and lower case in ASCII only:
"ÉCOLE" is cut after its É, and "deÉ" is not cut. `granite-embed-multi-97m` also sets ignore_merges: a piece that is a
token becomes that token. This makes no difference if the bytes of every token encode to that token, as in all trained
vocabularies; the export checks this and writes `gpt-4o` otherwise. Versions of llama.cpp without the name refuse to
load the file, which is better than wrong ids.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from gristmill import _core
from gristmill.errors import FormatWarning, OptionError, TokenizerFormatError, warn_user
from gristmill.tokenizer.formats.byte_alphabet import spell
from gristmill.tokenizer.formats.given import Given
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

OPTIONS = frozenset({"pre", "bos_token", "eos_token"})

VERSION = 3
U32, I32, BOOL, STRING, ARRAY = 4, 5, 7, 8, 9
NORMAL, CONTROL, UNUSED = 1, 3, 5
PRE_NAMES = {"gpt2": "gpt-2", "qwen2": "qwen2", "llama3": "dbrx", "cl100k": "dbrx"}
# With these names, a piece that is a token becomes that token, whatever the merges would give (ignore_merges).
WHOLE_PIECES_PRE_NAMES = {"llama3": "llama-bpe", "cl100k": "llama-bpe", "o200k": "granite-embed-multi-97m"}
O200K_WITHOUT_MARKS = "gpt-4o"
# Tokens that cross a position where only one of llama.cpp and Gristmill cuts.
LONG_S = re.compile(rb"(?:\A|\xc5)\xbf[^\x80-\xbf]", re.DOTALL)
LINE_BREAK = re.compile(rb"[\r\n][^\r\n]", re.DOTALL)
ARCHITECTURE = "llama"
END_OF_TEXT = "<|endoftext|>"

LISTS_OF_TEXT = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")

Value: TypeAlias = str | int | bool | list[str] | list[int]


def recognizes(path: Path, head: bytes) -> bool:
    """Whether the file looks like this format."""
    return head.startswith(b"GGUF")


def read(path: Path, given: Given) -> TokenizerParts:
    """Raise TokenizerFormatError: the format is write only."""
    raise TokenizerFormatError("GGUF is only written, not read. Load the tokenizer that the file was made from.")


def files(
    parts: TokenizerParts,
    path: Path,
    *,
    pre: str | None = None,
    bos_token: str | None = None,
    eos_token: str | None = None,
) -> dict[Path, bytes]:
    """Return the content of the file to write, by path."""
    return {path: dump(parts, pre=pre, bos_token=bos_token, eos_token=eos_token)}


def dump(
    parts: TokenizerParts, *, pre: str | None = None, bos_token: str | None = None, eos_token: str | None = None
) -> bytes:
    """Return the content of the file. Options as in `metadata`."""
    keys = [_string("general.architecture", ARCHITECTURE)]
    keys += [_packed(key, value) for key, value in metadata(parts, pre, bos_token, eos_token).items()]
    return b"GGUF" + struct.pack("<IQQ", VERSION, 0, len(keys)) + b"".join(keys)


def metadata(
    parts: TokenizerParts, pre: str | None = None, bos_token: str | None = None, eos_token: str | None = None
) -> dict[str, Value]:
    """Return the GGUF keys of a tokenizer: str, int (written as uint32), bool, and lists of str and int (int32).

    pre: llama.cpp's name of the pattern, if Gristmill has none or another is wanted.
    bos_token, eos_token: special tokens that begin and end a text. Default: `<|endoftext|>` if the tokenizer has it.
    """
    if not isinstance(pre, str | None):
        raise OptionError(f"pre={pre!r} is of type {type(pre).__name__}. Pass the name of a pattern in llama.cpp.")
    if pre == "":
        raise OptionError("pre='' is empty. Pass the name of a pattern in llama.cpp, or leave pre= out.")
    vocabulary = parts.vocabulary
    tokens, kinds = _token_rows(vocabulary)
    name = _pre_name(parts) if pre is None else _given_name(pre, parts)
    keys: dict[str, Value] = {"tokenizer.ggml.model": "gpt2"}
    if name is not None:
        keys["tokenizer.ggml.pre"] = name
    keys["tokenizer.ggml.tokens"] = tokens
    keys["tokenizer.ggml.token_type"] = kinds
    keys["tokenizer.ggml.merges"] = [f"{tokens[left]} {tokens[right]}" for left, right, _ in vocabulary.merges.tolist()]
    for option, text, key in (("bos_token", bos_token, "bos_token_id"), ("eos_token", eos_token, "eos_token_id")):
        id = _special_id(vocabulary, option, text)
        if id is not None:
            keys[f"tokenizer.ggml.{key}"] = id
    # With some pattern names, llama.cpp puts a token before every text unless this key is false.
    keys["tokenizer.ggml.add_bos_token"] = False
    return keys


def _pre_name(parts: TokenizerParts) -> str | None:
    """Return llama.cpp's name of the pattern, or None. Warns unless llama.cpp gives the same ids."""
    pattern, vocabulary = parts.pattern.name or "", parts.vocabulary
    if pattern == "o200k":
        return _o200k_name(vocabulary)
    name = (WHOLE_PIECES_PRE_NAMES if vocabulary.whole_pieces else PRE_NAMES).get(pattern)
    if name is not None:
        _warn_of_crossing_tokens(pattern, vocabulary)
    elif vocabulary.whole_pieces:
        raise TokenizerFormatError(
            "this vocabulary encodes a piece that is a token as that token, even if the merges give other ids. "
            "llama.cpp does not support this for this pattern, so ids would differ. Pass pre= to write the file anyway."
        )
    else:
        warn_user(
            f"llama.cpp has no name for the pattern {str(parts.pattern)!r}, so it will cut text with its default "
            f"pattern. Pass pre= with the name of a similar pattern.",
            FormatWarning,
        )
    return name


def _given_name(pre: str, parts: TokenizerParts) -> str:
    """Return the name that the caller passed. Warns unless llama.cpp gives the same ids."""
    pattern, vocabulary = parts.pattern.name or "", parts.vocabulary
    usual = O200K_WITHOUT_MARKS if pattern == "o200k" else PRE_NAMES.get(pattern)
    if pre == WHOLE_PIECES_PRE_NAMES.get(pattern):
        fits = vocabulary.whole_pieces or _merges_make_every_token(vocabulary)
    else:
        fits = pre == usual and not vocabulary.whole_pieces
    if not fits:
        known = WHOLE_PIECES_PRE_NAMES.get(pattern) if vocabulary.whole_pieces else usual
        advice = "Compare some ids with those of llama.cpp." if known is None else "Leave pre= out to use the closest."
        warn_user(
            f"pre={pre!r} is not known to cut text like this tokenizer (pattern {str(parts.pattern)!r}): ids may "
            f"differ in llama.cpp. {advice}",
            FormatWarning,
        )
    elif pattern == "o200k":
        _warn_of_o200k(pre)
    else:
        _warn_of_crossing_tokens(pattern, vocabulary)
    return pre


def _o200k_name(vocabulary: Vocabulary) -> str:
    ignores_merges = vocabulary.whole_pieces or _merges_make_every_token(vocabulary)
    name = WHOLE_PIECES_PRE_NAMES["o200k"] if ignores_merges else O200K_WITHOUT_MARKS
    _warn_of_o200k(name)
    return name


def _warn_of_o200k(name: str) -> None:
    if name == O200K_WITHOUT_MARKS:
        warn_user(
            f"llama.cpp's pattern {name!r} for o200k cuts words at combining marks and distinguishes upper and lower "
            f"case in ASCII only: ids differ in languages such as Thai, Hindi and Arabic.",
            FormatWarning,
        )
        return
    warn_user(
        f"llama.cpp's closest pattern to o200k, {name!r}, distinguishes upper and lower case in ASCII only: ids differ "
        f"in words such as 'ÉCOLE'. Versions of llama.cpp without this name refuse the file; for those pass "
        f"pre={O200K_WITHOUT_MARKS!r}, which also cuts words at combining marks (Thai, Hindi, Arabic, …).",
        FormatWarning,
    )


def _merges_make_every_token(vocabulary: Vocabulary) -> bool:
    """Whether the bytes of each token encode to that token, so that looking up whole pieces makes no difference."""
    if vocabulary.other_tokens:
        return False
    encoder = _core.Encoder(
        byte_ids=vocabulary.byte_ids, merges=vocabulary.merges, other_tokens=[], other_ids=[], pattern=None
    )
    return all(encoder.encode_piece(token) == [id] for id, token in vocabulary.tokens.items())


def _warn_of_crossing_tokens(pattern: str, vocabulary: Vocabulary) -> None:
    rules = []
    if pattern == "cl100k":
        rules.append((LINE_BREAK, "white space at the end of a text is cut after its last line break"))
    if pattern != "gpt2":
        rules.append((LONG_S, "a long s (ſ) after an apostrophe begins a word, not a contraction"))
    for crossing, what in rules:
        token = next((token for token in vocabulary.tokens.values() if crossing.search(token)), None)
        if token is not None:
            warn_user(
                f"in llama.cpp, unlike in the pattern {pattern!r}, {what}: ids differ there, because the vocabulary "
                f"has tokens such as {token!r:.80}.",
                FormatWarning,
            )


def _token_rows(vocabulary: Vocabulary) -> tuple[list[str], list[int]]:
    """Return the text and the kind of every id. Ids without a token become padding tokens."""
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
                f"ids {id_of[text]} and {id} are both spelled {text!r:.80} in GGUF, so llama.cpp would confuse them. "
                f"Rename the special token."
            )
    return tokens, kinds


def _special_id(vocabulary: Vocabulary, option: str, text: str | None) -> int | None:
    if text is None:
        return vocabulary.special_tokens.get(END_OF_TEXT)
    if text not in vocabulary.special_tokens:
        known = ", ".join(map(repr, vocabulary.special_tokens)) or "none"
        raise OptionError(f"{option}={text!r} is not a special token of this tokenizer. It has {known:.200}.")
    return vocabulary.special_tokens[text]


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _packed(name: str, value: Value) -> bytes:
    if isinstance(value, bool):
        return _key(name, BOOL) + struct.pack("<?", value)
    if isinstance(value, int):
        return _key(name, U32) + struct.pack("<I", value)
    if isinstance(value, str):
        return _string(name, value)
    if name in LISTS_OF_TEXT:  # by name, because an empty list has no item type
        return _strings(name, [str(item) for item in value])
    return _key(name, ARRAY) + struct.pack(f"<IQ{len(value)}i", I32, len(value), *value)


def _key(name: str, kind: int) -> bytes:
    return _text(name) + struct.pack("<I", kind)


def _string(name: str, value: str) -> bytes:
    return _key(name, STRING) + _text(value)


def _strings(name: str, values: Sequence[str]) -> bytes:
    return _key(name, ARRAY) + struct.pack("<IQ", STRING, len(values)) + b"".join(map(_text, values))
