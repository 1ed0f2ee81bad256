"""`tokenizer_config.json`, which transformers reads in addition to the tokenizer files.

Without it, `AutoTokenizer` of transformers 4 picks a class by the name of the folder: a name with "llama" gets Llama's
class, which puts a token before every text. The file names the class, the special tokens with their ids, and the tokens
that begin, end and pad texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gristmill.errors import OptionError, TokenizerFormatError
from gristmill.tokenizer.formats.content import parse_json, read_content

NAME = "tokenizer_config.json"
ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")
NO_LIMIT = int(1e30)  # transformers' value for a model without a limit
# Other properties of a special token in Hugging Face files.
SPECIAL_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}

# Roles of special tokens by their usual names. Unlike in GGUF, `<|endoftext|>` is not also the token that begins texts,
# because transformers does not need one.
OBVIOUS_ROLES = {
    "bos_token": ("<s>", "<|begin_of_text|>", "<|bos|>", "<bos>"),
    "eos_token": ("<|endoftext|>", "</s>", "<|end_of_text|>", "<|eos|>", "<eos>"),
    "pad_token": ("<pad>", "<|pad|>", "[PAD]", "<|padding|>"),
}


def chosen_roles(specials: Mapping[str, int], given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the special token of each role: the given one, otherwise one with a usual name.

    Raises OptionError if a given token is not a special token.
    """
    roles = {}
    for role, names in OBVIOUS_ROLES.items():
        token = given.get(role)
        if token is None:
            token = next((name for name in names if name in specials), None)
        elif token not in specials:
            known = ", ".join(map(repr, specials)) or "none"
            raise OptionError(f"{role}={token!r} is not a special token of this tokenizer. It has {known:.200}.")
        if token is not None:
            roles[role] = token
    return roles


def dump_config(
    specials: Mapping[str, int],
    roles: Mapping[str, str | None],
    *,
    tokenizer_class: str = "PreTrainedTokenizerFast",
    **settings: Any,
) -> bytes:
    """Return the content of the file for special tokens with these ids and roles.

    settings: more keys of the file, such as model_max_length.
    """
    by_id = sorted(specials.items(), key=lambda item: item[1])
    config = {
        "tokenizer_class": tokenizer_class,
        "model_max_length": NO_LIMIT,
        "clean_up_tokenization_spaces": False,  # decoding must return the original text
        # Otherwise version 4 adds token_type_ids, which GPT-2's model adds to its embeddings and Llama's rejects.
        "model_input_names": ["input_ids", "attention_mask"],
        **roles,
        "additional_special_tokens": [special for special, _ in by_id if special not in roles.values()],
        "added_tokens_decoder": {str(id): {"content": special, **SPECIAL_FLAGS} for special, id in by_id},
        **settings,
    }
    return json.dumps(config, indent=2, ensure_ascii=False).encode() + b"\n"


def read_added_tokens(folder: Path) -> Iterable[str]:
    """Yield the special tokens in the file of a folder; nothing if there is no file."""
    path = folder / NAME
    try:
        config = parse_json(read_content(path)) if path.is_file() else None
    except TokenizerFormatError as error:
        raise TokenizerFormatError(f"{NAME}: {str(error).removeprefix(f'{path}: ')}") from None
    rows = config.get("added_tokens_decoder") if isinstance(config, dict) else None
    for row in rows.values() if isinstance(rows, dict) else ():
        if isinstance(row, dict) and row.get("special") is True and isinstance(row.get("content"), str):
            yield row["content"]
