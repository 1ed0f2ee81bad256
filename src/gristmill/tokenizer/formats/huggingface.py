"""Hugging Face `tokenizer.json`: byte-level BPE as `tokenizers` and `transformers` load it.

A folder also gets a `tokenizer_config.json`, without which `AutoTokenizer` guesses the class (`tokenizer_config.py`).

The pattern is a `Split` before a `ByteLevel` that does not cut, or a `ByteLevel` alone for GPT-2's pattern.
`pre_tokenizer.py` has the other forms. Special tokens are `added_tokens`. `tokenizers` finds them in every text, like
`allowed_special="all"`.

A setting that would change ids raises an error with its name: another normalizer, `add_prefix_space`, dropout, and so
on. Steps before and after encoding are ignored with a warning: the tokens that a post-processor puts around a text,
truncation, padding, and NFC, the normal form that most text already has.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gristmill.arguments import check_special_tokens, check_whole_number
from gristmill.errors import FormatWarning, OptionError, TokenizerFormatError, warn_user
from gristmill.packages import load_package
from gristmill.tokenizer.formats.byte_alphabet import spell, unspell, warn_of_decoding
from gristmill.tokenizer.formats.content import check_content, parse_json, read_content
from gristmill.tokenizer.formats.given import Given
from gristmill.tokenizer.formats.pre_tokenizer import byte_level, dump_pre_tokenizer, read_pre_tokenizer
from gristmill.tokenizer.formats.tokenizer_config import NAME as CONFIG_NAME
from gristmill.tokenizer.formats.tokenizer_config import NO_LIMIT, SPECIAL_FLAGS, chosen_roles, dump_config
from gristmill.tokenizer.parts import ASSUMED_TIE_BREAK, TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

OPTIONS = frozenset({"legacy_merges", "bos_token", "eos_token", "pad_token", "model_max_length"})

TOKENIZER_NAME = "tokenizer.json"
SECTIONS = (
    *("version", "truncation", "padding", "added_tokens", "normalizer"),
    *("pre_tokenizer", "post_processor", "decoder", "model"),
)
# GPT-2's vocab.json also begins with a key, but its values are numbers.
_HEAD = re.compile(rb'\s*\{\s*"(?:%s)"\s*:\s*["\[{n]' % "|".join(SECTIONS).encode())


def recognizes(path: Path, head: bytes) -> bool:
    """Whether the file looks like this format."""
    return _HEAD.match(head) is not None


def read(path: Path, given: Given) -> TokenizerParts:
    """Return the tokenizer in the file at `path`."""
    parts = parse(read_content(path))
    given.agree_with(parts.pattern, parts.vocabulary.special_tokens)
    return parts


def files(
    parts: TokenizerParts,
    path: Path,
    *,
    legacy_merges: bool = False,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    model_max_length: int | None = None,
) -> dict[Path, bytes]:
    """Return the files to write: one if `path` ends in `.json` and is not a folder, otherwise two in the folder `path`.

    bos_token, eos_token, pad_token: special tokens with these roles. Default: those with the usual names.
    """
    limit = NO_LIMIT if model_max_length is None else check_whole_number("model_max_length", model_max_length)
    if limit < 1:
        raise OptionError(
            f"model_max_length={limit} is less than 1. Pass the maximum length of a text in tokens, or leave "
            f"model_max_length= out."
        )
    roles = chosen_roles(
        parts.vocabulary.special_tokens, {"bos_token": bos_token, "eos_token": eos_token, "pad_token": pad_token}
    )
    data = dump(parts, legacy_merges=legacy_merges)
    check_content(data)
    warn_of_decoding(parts.vocabulary.special_tokens)
    if path.suffix == ".json" and not path.is_dir():
        if not {bos_token, eos_token, pad_token, model_max_length} <= {None}:
            raise OptionError(
                f"bos_token, eos_token, pad_token and model_max_length are stored in {CONFIG_NAME}, but {path.name} "
                f"is a single file. Pass the name of a folder."
            )
        _warn_of_bare_file(path)
        return {path: data}
    if path.exists() and not path.is_dir():
        message = "Is a file; pass the name of a folder, or one that ends in .json for a single file"
        raise NotADirectoryError(errno.ENOTDIR, message, str(path))
    config = dump_config(parts.vocabulary.special_tokens, roles, model_max_length=limit)
    return {path / CONFIG_NAME: config, path / TOKENIZER_NAME: data}


def _warn_of_bare_file(path: Path) -> None:
    if path.name == TOKENIZER_NAME and not path.with_name(CONFIG_NAME).exists():
        warn_user(
            f"transformers 4 picks the tokenizer class from the folder name if there is no {CONFIG_NAME} next to "
            f"{TOKENIZER_NAME}. Pass the name of a folder to write both; `tokenizers` needs only {TOKENIZER_NAME}.",
            FormatWarning,
        )


def from_object(tokenizer: Any) -> TokenizerParts:
    """Return the parts of a `tokenizers.Tokenizer`, or of a fast tokenizer of `transformers`."""
    tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(tokenizer, "to_str"):
        raise TypeError(
            f"{type(tokenizer).__name__} is neither a tokenizers.Tokenizer nor a fast tokenizer of transformers. "
            f"Pass one of these, or the path of a tokenizer.json."
        )
    return parse(tokenizer.to_str().encode())


def to_object(parts: TokenizerParts) -> Any:
    """Return a `tokenizers.Tokenizer` that gives the same ids."""
    tokenizers = load_package("tokenizers", needed_by="to_huggingface()")
    warn_of_decoding(parts.vocabulary.special_tokens)
    return tokenizers.Tokenizer.from_str(dump(parts).decode())


# Writing


def dump(parts: TokenizerParts, *, legacy_merges: bool = False) -> bytes:
    """Return the content of the file, with merges as `["a", "b"]`.

    With `legacy_merges`, merges are `"a b"`, for `tokenizers` before 0.20.
    """
    vocabulary = parts.vocabulary
    spelling = {id: spell(token) for id, token in vocabulary.tokens.items()}
    specials = sorted(vocabulary.special_tokens.items(), key=lambda item: item[1])
    ids = {text: id for id, text in spelling.items()}
    for special, id in specials:
        if special in ids:
            raise TokenizerFormatError(
                f"the special token {special!r} ({id}) is spelled like the token with id {ids[special]}, so Hugging "
                f"Face would confuse them. Rename the special token."
            )
    ids |= dict(specials)  # also in the model, so that its vocab_size includes them
    pairs = [[spelling[left], spelling[right]] for left, right, _ in vocabulary.merges.tolist()]
    merges = [" ".join(pair) for pair in pairs] if legacy_merges else pairs
    head = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": special, **SPECIAL_FLAGS} for special, id in specials],
        "normalizer": None,
        "pre_tokenizer": dump_pre_tokenizer(parts.pattern),
        "post_processor": None,
        "decoder": byte_level(use_regex=True),
    }
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": vocabulary.whole_pieces,
    }
    entries = [f"{_json(text)}: {id}" for text, id in sorted(ids.items(), key=lambda item: item[1])]
    lines = [f'  "{key}": {_json(value)}' for key, value in head.items()]
    inner = [f'    "{key}": {_json(value)}' for key, value in model.items()]
    inner.append(f'    "vocab": {{\n      {_joined(entries)}\n    }}')
    inner.append(f'    "merges": [\n      {_joined([_json(merge) for merge in merges])}\n    ]')
    lines.append('  "model": {\n' + ",\n".join(inner) + "\n  }")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _joined(lines: list[str]) -> str:
    return ",\n      ".join(lines)


# Reading


def parse(data: bytes) -> TokenizerParts:
    """Return the tokenizer in a file. Warns with FormatWarning of settings that are not applied."""
    content = parse_json(data)
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict):
        raise TokenizerFormatError('not a Hugging Face tokenizer: "model" is missing.')
    _check_model(model)
    pattern = read_pre_tokenizer(content.get("pre_tokenizer"))
    notes = [
        *_notes_on_normalizer(content.get("normalizer")),
        *_notes_on_surroundings(content),
    ]
    specials, added_notes = _read_added_tokens(content.get("added_tokens"))
    vocabulary = _read_vocabulary(model, specials)
    for note in [*notes, *added_notes]:
        warn_user(note, FormatWarning)
    return TokenizerParts(vocabulary, pattern, ASSUMED_TIE_BREAK, states_tie_break=False)


def _refuse(what: str, why: str) -> TokenizerFormatError:
    return TokenizerFormatError(f"has {what}, {why}")


def _check_model(model: dict[str, Any]) -> None:
    kind = model.get("type", "BPE")
    if kind != "BPE":
        raise _refuse(f"a model of type {kind!r:.80}", "but only byte-level BPE is supported.")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        value = model.get(option)
        if value:
            raise _refuse(f"{option}={value!r:.80} in its model", "which is not supported: ids would differ.")


def _read_vocabulary(model: dict[str, Any], specials: dict[str, int]) -> Vocabulary:
    vocab, rows = model.get("vocab"), model.get("merges")
    if not isinstance(vocab, dict) or not isinstance(rows, list):
        raise TokenizerFormatError('"model" must have an object "vocab" and a list "merges".')
    pairs = list(_read_pairs(rows))
    merged = {text for pair in pairs for text in (*pair, "".join(pair))} if specials else set()
    for special, id in specials.items():
        if special in vocab and (vocab[special] != id or special in merged):
            in_vocabulary = f"it has id {vocab[special]!r} in the vocabulary"
            why = "merges create or use it" if vocab[special] == id else in_vocabulary
            raise TokenizerFormatError(
                f"the added token {special!r} has id {id}, but {why}. A special token cannot be part of merges."
            )
    token_of: dict[str, bytes] = {}
    for text in vocab:
        if text not in specials:
            token = unspell(text)
            if token is None:
                raise TokenizerFormatError(
                    f"the token {text[:80]!r} has characters that are not in the byte alphabet. If it is a special "
                    f'token, add it to "added_tokens". Otherwise the vocabulary is not byte-level BPE, and Gristmill '
                    f"cannot load it."
                )
            token_of[text] = token
    ignore_merges = model.get("ignore_merges", False)
    if type(ignore_merges) is not bool:
        raise TokenizerFormatError(f'"ignore_merges" is {ignore_merges!r:.80} instead of true or false.')
    return Vocabulary.from_pairs(
        {token: vocab[text] for text, token in token_of.items()},
        [(_token(token_of, left), _token(token_of, right)) for left, right in pairs],
        specials,
        whole_pieces=ignore_merges,
    )


def _token(token_of: dict[str, bytes], text: str) -> bytes:
    try:
        return token_of[text]
    except KeyError:
        raise TokenizerFormatError(f"a merge joins {text[:80]!r}, which is not in the vocabulary.") from None


def _read_pairs(rows: list[Any]) -> Iterator[tuple[str, str]]:
    for i, row in enumerate(rows):
        match row.split(" ") if isinstance(row, str) else row:
            case [str(left), str(right)] if left and right:
                yield left, right
            case _:
                raise TokenizerFormatError(f'merge {i} is {json.dumps(row)[:80]} instead of ["a", "b"] or "a b".')


def _read_added_tokens(rows: Any) -> tuple[dict[str, int], list[str]]:
    """Return the special tokens, and warnings about them."""
    rows = [] if rows is None else rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TokenizerFormatError('"added_tokens" is not a list of objects.')
    texts = check_special_tokens([row.get("content") for row in rows])
    for row in rows:
        for option in ("single_word", "lstrip", "rstrip"):
            if row.get(option):
                raise _refuse(f"{option}=true for the added token {row['content']!r}", "which is not supported.")
    notes = []
    ordinary = [text for text, row in zip(texts, rows, strict=True) if not row.get("special")]
    if ordinary:
        notes.append(
            f"{len(ordinary)} added tokens, the first is {ordinary[0]!r}, are not marked special; Gristmill treats all "
            f'added tokens as special. Pass allowed_special="all" for the ids of Hugging Face.'
        )
    first = [text for text, row in zip(texts, rows, strict=True) if not row.get("normalized")]
    second = [text for text, row in zip(texts, rows, strict=True) if row.get("normalized")]
    # If there are too many pairs to check, they are assumed to overlap.
    if len(first) * len(second) > 100_000 or any(_overlap(a, b) for a in first for b in second):
        notes.append(
            "added tokens with normalized=false overlap others. Hugging Face matches them first; in Gristmill the "
            "leftmost wins, then the longest."
        )
    return {text: row.get("id") for text, row in zip(texts, rows, strict=True)}, notes  # from_pairs checks the ids


def _overlap(a: str, b: str) -> bool:
    """Whether occurrences of both in a text can overlap."""
    sizes = range(1, min(len(a), len(b)))
    return a in b or b in a or any(a[-size:] == b[:size] or b[-size:] == a[:size] for size in sizes)


def _is(section: Any, kind: str) -> bool:
    return isinstance(section, dict) and section.get("type") == kind


def _notes_on_normalizer(section: Any) -> Iterator[str]:
    steps = section.get("normalizers") if _is(section, "Sequence") else [section]
    for step in steps if isinstance(steps, list) else [steps]:
        if _is(step, "NFC"):
            yield (
                "this tokenizer requires texts in normal form NFC, but texts are not normalized. Most text is already "
                'NFC; otherwise pass unicodedata.normalize("NFC", text).'
            )
        elif step is not None:
            kind = step.get("type") if isinstance(step, dict) else step
            raise _refuse(f"the normalizer {kind!r:.80}", "which changes texts before encoding and is not supported.")


def _notes_on_surroundings(content: dict[str, Any]) -> Iterator[str]:
    """Yield warnings about steps before and after encoding, which are left to the caller."""
    added = sorted(set(_post_processor_tokens(content.get("post_processor"))))
    if added:
        yield f"the post-processor's tokens are not added to texts: {', '.join(added[:8])}. Add their ids yourself."
    for section in ("truncation", "padding"):
        if content.get(section) is not None:
            yield f"the {section} of this tokenizer is not applied. Use encode_batch(max_tokens=…) and Ragged.padded()."
    decoder = content.get("decoder")
    if decoder is not None and not _is(decoder, "ByteLevel"):
        kind = decoder.get("type") if isinstance(decoder, dict) else decoder
        yield f"the decoder {kind!r:.80} is not used: decode() returns the bytes of the tokens."


def _post_processor_tokens(section: Any) -> Iterator[str]:
    match section:
        case None | {"type": "ByteLevel"}:
            return
        case {"type": "Sequence", "processors": list(steps)}:
            for step in steps:
                yield from _post_processor_tokens(step)
        case {"type": "TemplateProcessing", "single": list(single), "pair": list(pair)}:
            for item in [*single, *pair]:
                if isinstance(item, dict) and "SpecialToken" in item:
                    yield str(item["SpecialToken"].get("id") if isinstance(item["SpecialToken"], dict) else item)
        case {"type": "BertProcessing" | "RobertaProcessing", "sep": [sep, *_], "cls": [cls, *_]}:
            yield from (str(cls), str(sep))
        case _:
            kind = section.get("type") if isinstance(section, dict) else section
            raise _refuse(f"the post-processor {kind!r:.80}", "which is not supported.")
