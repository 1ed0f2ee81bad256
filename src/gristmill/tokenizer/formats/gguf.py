"""GGUF: the keys of a tokenizer in the file format of llama.cpp, without tensors. Written, not read.

Version 3, little-endian: `GGUF`, u32 version, u64 number of tensors, u64 number of keys; each key with the type of its
value and the value. `general.architecture` is there so that llama.cpp loads the file by itself (`vocab_only`).

`tokenizer.ggml.pre` is one of the names that llama.cpp knows a pattern by. An export that does not warn gives the same
ids there, whether the caller names `pre` or not. What each name means to llama.cpp, and where it differs from ours:

| our pattern | name | differs |
|---|---|---|
| gpt2 | `gpt-2` | nowhere |
| llama3 | `dbrx`; `llama-bpe` for `whole_pieces` | `LONG_S` |
| cl100k | as llama3 | `LONG_S`; `LINE_BREAK`: white space that ends a text is cut after its last line break |
| qwen2 | `qwen2` | `LONG_S` |
| o200k | `granite-embed-multi-97m`, else `gpt-4o` | always warns: cases outside ASCII, and for `gpt-4o` marks as well |

A place where llama.cpp cuts and we do not, or the reverse, changes ids only if some token lies across it. So `LONG_S`
and `LINE_BREAK` are looked for in the tokens, and an export warns only if the vocabulary has such a token.

For o200k no name is right. `gpt-4o` cuts words at combining marks: ids differ in every text in Thai, Hindi, or Arabic
with vowel signs. `granite-embed-multi-97m` does not. Both tell capitals from small letters in ASCII only: "ÉCOLE" is
cut after its É, and "deÉ" is not cut. `granite-embed-multi-97m` also sets ignore_merges: a piece that is a token is
that token. That changes nothing where the merges make every token out of its own bytes, as in all trained vocabularies;
the export checks it and writes `gpt-4o` otherwise. Versions of llama.cpp that do not know the name refuse to load the
file, which is better than other ids.
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
# Under these names, a piece that is a token is that token, whatever the merges make of it (ignore_merges).
WHOLE_PIECES_PRE_NAMES = {"llama3": "llama-bpe", "cl100k": "llama-bpe", "o200k": "granite-embed-multi-97m"}
O200K_WITHOUT_MARKS = "gpt-4o"
# Tokens that lie across a place where llama.cpp cuts text and we do not, or the reverse.
LONG_S = re.compile(rb"(?:\A|\xc5)\xbf[^\x80-\xbf]", re.DOTALL)
LINE_BREAK = re.compile(rb"[\r\n][^\r\n]", re.DOTALL)
ARCHITECTURE = "llama"
END_OF_TEXT = "<|endoftext|>"

LISTS_OF_TEXT = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")

Value: TypeAlias = str | int | bool | list[str] | list[int]


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
    """The file of a tokenizer. Options as in `metadata`."""
    keys = [_string("general.architecture", ARCHITECTURE)]
    keys += [_packed(key, value) for key, value in metadata(parts, pre, bos_token, eos_token).items()]
    return b"GGUF" + struct.pack("<IQQ", VERSION, 0, len(keys)) + b"".join(keys)


def metadata(
    parts: TokenizerParts, pre: str | None = None, bos_token: str | None = None, eos_token: str | None = None
) -> dict[str, Value]:
    """What a GGUF file says about its tokenizer: str, int (written as uint32), bool, and lists of str and int (int32).

    pre: the name of the pattern in llama.cpp, where Gristmill knows none or another is wanted.
    bos_token, eos_token: special tokens that begin and end a text; `<|endoftext|>`, where there is one, unless given.
    """
    if not isinstance(pre, str | None):
        raise OptionError(f"pre={pre!r} is a {type(pre).__name__}. Pass the name of a pattern in llama.cpp.")
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
    # Some names make llama.cpp put a token before every text, unless it is told not to.
    keys["tokenizer.ggml.add_bos_token"] = False
    return keys


def _pre_name(parts: TokenizerParts) -> str | None:
    """The name of the pattern in llama.cpp, or None; warns unless it gives the same ids there."""
    pattern, vocabulary = parts.pattern.name or "", parts.vocabulary
    if pattern == "o200k":
        return _o200k_name(vocabulary)
    name = (WHOLE_PIECES_PRE_NAMES if vocabulary.whole_pieces else PRE_NAMES).get(pattern)
    if name is not None:
        _warn_of_crossing_tokens(pattern, vocabulary)
    elif vocabulary.whole_pieces:
        raise TokenizerFormatError(
            "the vocabulary takes a piece that is a token as that token, whatever the merges make of it, and "
            "llama.cpp knows no such rule for this pattern: ids would differ. Pass pre= to write it all the same."
        )
    else:
        warn_user(
            f"llama.cpp has no name for the pattern {str(parts.pattern)!r}, so the file does not say how text is cut, "
            f"and llama.cpp will cut it in its own way. Pass pre= with the name of a pattern that is close enough.",
            FormatWarning,
        )
    return name


def _given_name(pre: str, parts: TokenizerParts) -> str:
    """The name that the caller gave; warns unless it gives the same ids in llama.cpp."""
    pattern, vocabulary = parts.pattern.name or "", parts.vocabulary
    usual = O200K_WITHOUT_MARKS if pattern == "o200k" else PRE_NAMES.get(pattern)
    if pre == WHOLE_PIECES_PRE_NAMES.get(pattern):
        fits = vocabulary.whole_pieces or _merges_make_every_token(vocabulary)
    else:
        fits = pre == usual and not vocabulary.whole_pieces
    if not fits:
        known = WHOLE_PIECES_PRE_NAMES.get(pattern) if vocabulary.whole_pieces else usual
        advice = "Compare some ids with those of llama.cpp." if known is None else "Leave pre= out for the nearest one."
        warn_user(
            f"pre={pre!r} is not known to cut text in llama.cpp as this tokenizer does (pattern "
            f"{str(parts.pattern)!r}): ids may differ there. {advice}",
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
            f"llama.cpp's pattern {name!r} for o200k cuts words at combining marks and tells capitals from small "
            f"letters in ASCII only: ids differ in languages such as Thai, Hindi and Arabic.",
            FormatWarning,
        )
        return
    warn_user(
        f"llama.cpp's nearest pattern to o200k, {name!r}, tells capitals from small letters in ASCII only: ids "
        f"differ in words such as 'ÉCOLE'. Versions of llama.cpp that do not know this name refuse the file; for those "
        f"pass pre={O200K_WITHOUT_MARKS!r}, which also cuts words at combining marks (Thai, Hindi, Arabic, …).",
        FormatWarning,
    )


def _merges_make_every_token(vocabulary: Vocabulary) -> bool:
    """Whether the ids of each token's bytes are its own id: then it does not matter if whole pieces are looked up."""
    if vocabulary.other_tokens:
        return False
    encoder = _core.Encoder(
        byte_ids=vocabulary.byte_ids, merges=vocabulary.merges, other_tokens=[], other_ids=[], pattern=None
    )
    return all(encoder.encode_piece(token) == [id] for id, token in vocabulary.tokens.items())


def _warn_of_crossing_tokens(pattern: str, vocabulary: Vocabulary) -> None:
    rules = []
    if pattern == "cl100k":
        rules.append((LINE_BREAK, "white space that ends a text is cut after its last line break"))
    if pattern != "gpt2":
        rules.append((LONG_S, "the long s (ſ) after an apostrophe begins a word and not a contraction"))
    for crossing, what in rules:
        token = next((token for token in vocabulary.tokens.values() if crossing.search(token)), None)
        if token is not None:
            warn_user(
                f"in llama.cpp, {what}, other than in the pattern {pattern!r}: ids differ there, because the "
                f"vocabulary has tokens such as {token!r:.80}.",
                FormatWarning,
            )


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


def _packed(name: str, value: Value) -> bytes:
    if isinstance(value, bool):
        return _key(name, BOOL) + struct.pack("<?", value)
    if isinstance(value, int):
        return _key(name, U32) + struct.pack("<I", value)
    if isinstance(value, str):
        return _string(name, value)
    if name in LISTS_OF_TEXT:  # by name: a list may be empty
        return _strings(name, [str(item) for item in value])
    return _key(name, ARRAY) + struct.pack(f"<IQ{len(value)}i", I32, len(value), *value)


def _key(name: str, kind: int) -> bytes:
    return _text(name) + struct.pack("<I", kind)


def _string(name: str, value: str) -> bytes:
    return _key(name, STRING) + _text(value)


def _strings(name: str, values: Sequence[str]) -> bytes:
    return _key(name, ARRAY) + struct.pack("<IQ", STRING, len(values)) + b"".join(map(_text, values))
