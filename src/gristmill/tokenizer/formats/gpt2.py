"""GPT-2's two files: `vocab.json` with the id of each token, and `merges.txt` with the merges by rank, one per line.

Neither file stores the pattern, so it is GPT-2's unless `pattern=` is passed. Special tokens are among the others in
`vocab.json`: tokens like `<|…|>` that no merge creates are recognized, and `special_tokens=` names any others. A folder
also gets a `tokenizer_config.json` that names the special tokens, because transformers would treat all but
`<|endoftext|>` as text. In OpenAI's release the same files are called `encoder.json` and `vocab.bpe`.
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
from gristmill.tokenizer.formats.content import check_content, parse_json, read_content, split_lines
from gristmill.tokenizer.formats.given import Given
from gristmill.tokenizer.formats.tokenizer_config import NAME as CONFIG_NAME
from gristmill.tokenizer.formats.tokenizer_config import dump_config, read_added_tokens
from gristmill.tokenizer.parts import ASSUMED_TIE_BREAK, TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

OPTIONS: frozenset[str] = frozenset()

VERSION_LINE = "#version: 0.2"
# Endings of the names of the two files.
NAMES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))

END_OF_TEXT = "<|endoftext|>"

_HEAD = re.compile(rb'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\d')
_LOOKS_SPECIAL = re.compile(r"<\|.*\|>", re.DOTALL)


def recognizes(path: Path, head: bytes) -> bool:
    """Whether the file looks like this format."""
    return path.name.endswith(tuple(name for names in NAMES for name in names)) or _HEAD.match(head) is not None


def read(path: Path, given: Given) -> TokenizerParts:
    """Return the tokenizer whose two files are in the folder `path`, or one of whose files is `path`."""
    vocab_path, merges_path = _find_files(path)
    vocab = parse_json(read_content(vocab_path))
    if not isinstance(vocab, dict):
        raise TokenizerFormatError("is not a JSON object with tokens and their ids.")
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
    """Return the files to write: three in the folder `path`, or two if `path` ends in `vocab.json`."""
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
                f"the special token {special!r} ({id}) is spelled like the token with id {ids[special]}, and "
                f"vocab.json can store only one of them. Rename the special token."
            )
    ids |= vocabulary.special_tokens
    ordered = dict(sorted(ids.items(), key=lambda item: item[1]))
    vocab = json.dumps(ordered, ensure_ascii=False).encode()
    check_content(vocab)
    lines = [f"{spelling[left]} {spelling[right]}\n" for left, right, _ in vocabulary.merges.tolist()]
    warn_of_decoding(vocabulary.special_tokens)
    merges = f"{VERSION_LINE}\n{''.join(lines)}".encode()
    check_content(merges)
    contents = {merges_path: merges, vocab_path: vocab}
    if not is_folder:
        return contents
    # The defaults of transformers' class for these roles.
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
            "in this vocabulary, a piece that is a token becomes that token whatever the merges give, and merges.txt "
            "cannot express that: ids would differ. Export as 'huggingface' or 'gristmill'."
        )
    if parts.pattern.name != DEFAULT_PATTERN:
        warn_user(
            f"vocab.json and merges.txt do not store the pattern. Load them with pattern={str(parts.pattern)!r}. For "
            f"transformers, which always uses GPT-2's pattern, export with format='huggingface' instead.",
            FormatWarning,
        )
    lost = [special for special in vocabulary.special_tokens if special != END_OF_TEXT]
    if lost and not is_folder:
        shown = ", ".join(map(repr, lost[:4])) + ", …" * (len(lost) > 4)
        warn_user(
            f"vocab.json does not mark special tokens, and transformers treats {shown} as text. Pass the name of a "
            f"folder, which gets a {CONFIG_NAME} with them, or load the file with special_tokens=[{shown}].",
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
        "looks like GPT-2's vocab.json, but has another name, so its merges cannot be found. "
        "Name the two files NAME-vocab.json and NAME-merges.txt."
    )


def read_merges(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the pairs in a `merges.txt`, as they are spelled there."""
    try:
        lines = [line.decode() for line in split_lines(data)]
    except UnicodeDecodeError as error:
        raise TokenizerFormatError(f"is not UTF-8: {error}") from None
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, 1):
        if number == 1 and line.startswith("#version"):  # on any other line this is a merge that starts with #
            continue
        match line.removesuffix("\r").split(" "):
            case [left, right] if left and right:
                yield left, right
            case _:
                raise TokenizerFormatError(
                    f"line {number} is {line[:80]!r} instead of two tokens separated by a space."
                )


def _take_specials(
    vocab: dict[str, Any], pairs: list[tuple[str, str]], given: Given, named: set[str]
) -> dict[str, int]:
    """Remove the special tokens from `vocab` and return them with their ids. Tokens in `named` are always special."""
    merged = {text for pair in pairs for text in (*pair, "".join(pair))}
    specials = {
        text: id
        for text, id in vocab.items()
        if text not in merged and (text in named or _LOOKS_SPECIAL.fullmatch(text))
    }
    largest = max((id for id in vocab.values() if type(id) is int), default=-1)
    for special, id in given.numbered(largest + 1, vocab).items():
        if special in vocab and (vocab[special] != id or special in merged):
            why = "merges create or use it" if vocab[special] == id else f"it has id {vocab[special]!r} in vocab.json"
            raise TokenizerFormatError(f"special_tokens names {special!r} with id {id}, but {why}.")
        specials[special] = id
    for special in specials:
        vocab.pop(special, None)
    return specials


def _unspelled(text: str) -> bytes:
    token = unspell(text)
    if token is None:
        raise TokenizerFormatError(
            f"the token {text[:80]!r} has characters that are not in the byte alphabet. If it is a special token, "
            f"name it in special_tokens=[…]."
        )
    return token
