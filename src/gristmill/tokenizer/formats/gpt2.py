"""GPT-2's two files: `vocab.json`, the id of each token, and `merges.txt`, the merges by rank, one `a b` a line.

Neither file holds a pattern, so it is GPT-2's unless `pattern=` says otherwise. Special tokens stand among the others
in `vocab.json`: those that no merge makes and that look like `<|…|>` are recognized, and `special_tokens=` names any
others. A folder also gets a `tokenizer_config.json`, which names the special tokens: transformers would take all but
`<|endoftext|>` for text. OpenAI's release calls the same files `encoder.json` and `vocab.bpe`.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gristmill.errors import FormatWarning, TokenizerFormatError, warn_user
from gristmill.pretokenize.patterns import DEFAULT_PATTERN, resolve_pattern
from gristmill.tokenizer.formats.byte_alphabet import spell, unspell, warn_of_decoding
from gristmill.tokenizer.formats.content import check_content, parse_json, read_content
from gristmill.tokenizer.formats.given import Given
from gristmill.tokenizer.formats.tokenizer_config import NAME as CONFIG_NAME
from gristmill.tokenizer.formats.tokenizer_config import dump_config, read_added_tokens
from gristmill.tokenizer.parts import ASSUMED_TIE_BREAK, TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

OPTIONS: frozenset[str] = frozenset()

VERSION_LINE = "#version: 0.2"
# How the names of the two files end.
NAMES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))

END_OF_TEXT = "<|endoftext|>"

_HEAD = re.compile(rb'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\d')
_LOOKS_SPECIAL = re.compile(r"<\|.*\|>", re.DOTALL)


def recognizes(path: Path, head: bytes) -> bool:
    """Whether the file looks like one of this format."""
    return path.name.endswith(tuple(name for names in NAMES for name in names)) or _HEAD.match(head) is not None


def read(path: Path, given: Given) -> TokenizerParts:
    """The tokenizer whose files are in the folder `path`, or of which `path` is one."""
    vocab_path, merges_path = _find_files(path)
    vocab = parse_json(read_content(vocab_path))
    if not isinstance(vocab, dict):
        raise TokenizerFormatError("is not a JSON object of tokens and their ids.")
    try:
        pairs = list(read_merges(read_content(merges_path)))
    except TokenizerFormatError as error:
        raise TokenizerFormatError(f"{merges_path.name}: {str(error).removeprefix(f'{merges_path}: ')}") from None
    named = read_added_tokens(vocab_path.parent) if vocab_path.name in ("vocab.json", "encoder.json") else ()
    specials = _take_specials(vocab, pairs, given, set(named))
    vocabulary = Vocabulary.from_pairs(
        {_unspelled(text): id for text, id in vocab.items()},
        [(_unspelled(left), _unspelled(right)) for left, right in pairs],
        specials,
    )
    return TokenizerParts(
        vocabulary, given.pattern or resolve_pattern(DEFAULT_PATTERN), ASSUMED_TIE_BREAK, states_tie_break=False
    )


def files(parts: TokenizerParts, path: Path) -> dict[Path, bytes]:
    """The files to write: three in the folder `path`, or, where `path` ends in `vocab.json`, that and its pair."""
    vocab_path, merges_path = _paths_to_write(path)
    is_folder = vocab_path.parent == path
    if is_folder and path.exists() and not path.is_dir():
        message = "Is a file; pass the name of a folder, or one that ends in vocab.json for two files"
        raise NotADirectoryError(errno.ENOTDIR, message, str(path))
    _check(parts, is_folder=is_folder)
    vocabulary = parts.vocabulary
    spelling = {id: spell(token) for id, token in vocabulary.tokens.items()}
    ids = {text: id for id, text in spelling.items()}
    for special, id in vocabulary.special_tokens.items():
        if special in ids:
            raise TokenizerFormatError(
                f"the special token {special!r} ({id}) is spelled as the token with id {ids[special]} is, and "
                f"vocab.json can hold only one of them. Give the special another name."
            )
    ids |= vocabulary.special_tokens
    ordered = dict(sorted(ids.items(), key=lambda item: item[1]))
    vocab = json.dumps(ordered, ensure_ascii=False).encode()
    check_content(vocab)
    lines = [f"{spelling[left]} {spelling[right]}\n" for left, right, _ in vocabulary.merges.tolist()]
    warn_of_decoding(vocabulary.special_tokens)
    contents = {merges_path: f"{VERSION_LINE}\n{''.join(lines)}".encode(), vocab_path: vocab}
    if not is_folder:
        return contents
    # What transformers' class takes these roles to be where nobody says so.
    end = END_OF_TEXT if END_OF_TEXT in vocabulary.special_tokens else None
    roles = dict.fromkeys(("bos_token", "eos_token", "unk_token"), end)
    return {
        path / CONFIG_NAME: dump_config(vocabulary.special_tokens, roles, tokenizer_class="GPT2Tokenizer"),
        **contents,
    }


def _check(parts: TokenizerParts, *, is_folder: bool) -> None:
    vocabulary = parts.vocabulary
    if vocabulary.whole_pieces:
        raise TokenizerFormatError(
            "the vocabulary takes a piece that is a token as that token, whatever the merges make of it, and "
            "merges.txt cannot say so: ids would differ. Export as 'huggingface' or 'gristmill'."
        )
    if parts.pattern.name != DEFAULT_PATTERN:
        warn_user(
            f"vocab.json and merges.txt hold no pattern. Load them with pattern={str(parts.pattern)!r}. transformers "
            f"always uses GPT-2's pattern; export with format='huggingface' instead.",
            FormatWarning,
        )
    lost = [special for special in vocabulary.special_tokens if special != END_OF_TEXT]
    if lost and not is_folder:
        shown = ", ".join(map(repr, lost[:4])) + ", …" * (len(lost) > 4)
        warn_user(
            f"vocab.json does not say which tokens are special, and transformers takes {shown} for text. Pass the name "
            f"of a folder, which gets a {CONFIG_NAME} that says it, or read the file with special_tokens=[{shown}].",
            FormatWarning,
        )


def _paths_to_write(path: Path) -> tuple[Path, Path]:
    for vocab_name, merges_name in NAMES:
        if path.name.endswith(vocab_name):
            return path, path.with_name(path.name.removesuffix(vocab_name) + merges_name)
    return path / NAMES[0][0], path / NAMES[0][1]


def _find_files(path: Path) -> tuple[Path, Path]:
    if path.is_dir():
        for vocab_name, merges_name in NAMES:
            if (path / vocab_name).exists():
                return path / vocab_name, path / merges_name
        return path / NAMES[0][0], path / NAMES[0][1]
    for vocab_name, merges_name in NAMES:
        if path.name.endswith(vocab_name):
            return path, path.with_name(path.name.removesuffix(vocab_name) + merges_name)
        if path.name.endswith(merges_name):
            return path.with_name(path.name.removesuffix(merges_name) + vocab_name), path
    raise TokenizerFormatError(
        "looks like GPT-2's vocab.json, but it is not called so, and its merges cannot be found. "
        "Name the two files NAME-vocab.json and NAME-merges.txt."
    )


def read_merges(data: bytes) -> Iterator[tuple[str, str]]:
    """The pairs in a `merges.txt`, as they are spelled there."""
    try:
        lines = data.decode().split("\n")  # not splitlines: only this one separates
    except UnicodeDecodeError as error:
        raise TokenizerFormatError(f"is not UTF-8: {error}") from None
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, 1):
        if number == 1 and line.startswith("#version"):  # elsewhere it is a merge that starts with #
            continue
        match line.removesuffix("\r").split(" "):
            case [left, right] if left and right:
                yield left, right
            case _:
                raise TokenizerFormatError(f"line {number} is {line[:80]!r} instead of two tokens and a space.")


def _take_specials(
    vocab: dict[str, Any], pairs: list[tuple[str, str]], given: Given, named: set[str]
) -> dict[str, int]:
    """The specials with their ids, taken out of `vocab`; those in `named` are special whatever they look like."""
    merged = {text for pair in pairs for text in (*pair, "".join(pair))}
    specials = {
        text: id
        for text, id in vocab.items()
        if text not in merged and (text in named or _LOOKS_SPECIAL.fullmatch(text))
    }
    largest = max((id for id in vocab.values() if type(id) is int), default=-1)
    for special, id in given.numbered(largest + 1, vocab).items():
        if special in vocab and (vocab[special] != id or special in merged):
            why = "merges make or use it" if vocab[special] == id else f"it has id {vocab[special]!r} in vocab.json"
            raise TokenizerFormatError(f"special_tokens names {special!r} with id {id}, but {why}.")
        specials[special] = id
    for special in specials:
        vocab.pop(special, None)
    return specials


def _unspelled(text: str) -> bytes:
    token = unspell(text)
    if token is None:
        raise TokenizerFormatError(
            f"the token {text[:80]!r} holds characters that stand for no byte. If it is a special token, "
            f"name it in special_tokens=[…]."
        )
    return token
