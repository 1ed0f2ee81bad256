"""The part of transformers' `PreTrainedTokenizerFast` that training scripts call, without transformers.

Special tokens in text become their ids, as in transformers. For text from users, which must not forge them, use
`tokenizer.tokenizer.encode(text)`. Differences:

* no template is applied: `add_special_tokens=True` adds nothing, as with GPT-2's tokenizer;
* pairs of texts, pre-split words and overflowing tokens are not supported;
* a role whose token is not in the vocabulary (`pad_token="[PAD]"`) is an error;
  `add_special_tokens({"pad_token": "[PAD]"})` adds it;
* `len(tokenizer)` is the largest id plus one, the number of rows of an embedding, also if ids have gaps;
* impossible padding is an error: a text longer than `max_length`, or "max_length" without a length.

torch is imported only for `return_tensors="pt"`. `tokenizer.to_huggingface()` returns a real `tokenizers.Tokenizer`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.arguments import check_whole_number
from gristmill.compat.huggingface.batch_encoding import BatchEncoding
from gristmill.compat.huggingface.opening import check_folder, given_tokenizer, read_settings
from gristmill.compat.huggingface.padding import as_python, pad_columns, tensor_kind, to_columns, to_tensors
from gristmill.compat.huggingface.roles import ROLES, Role, RoleId, SideOfText
from gristmill.compat.specials import with_special_tokens
from gristmill.encode.ragged import Ragged, Side, check_side
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import OptionError
from gristmill.lock import waiting_lock
from gristmill.publish import publish
from gristmill.tokenizer.formats.byte_alphabet import spell
from gristmill.tokenizer.formats.tokenizer_config import NAME as CONFIG_NAME
from gristmill.tokenizer.formats.tokenizer_config import NO_LIMIT, dump_config

__all__ = ["StandInTokenizerFast"]


class StandInTokenizerFast:
    """A tokenizer with the calls of transformers' tokenizers."""

    bos_token, eos_token, unk_token, pad_token = Role(), Role(), Role(), Role()
    bos_token_id, eos_token_id, unk_token_id, pad_token_id = RoleId(), RoleId(), RoleId(), RoleId()
    padding_side, truncation_side = SideOfText(), SideOfText()
    is_fast = True
    model_input_names = ("input_ids", "attention_mask")

    def __init__(
        self,
        tokenizer_object: Tokenizer | None = None,
        *,
        tokenizer_file: str | os.PathLike[str] | None = None,
        bos_token: str | None = None,
        eos_token: str | None = None,
        unk_token: str | None = None,
        pad_token: str | None = None,
        padding_side: str = "right",
        truncation_side: str = "right",
        model_max_length: int | None = None,
    ) -> None:
        """Wrap a tokenizer, or the one in a file of any format that `Tokenizer.load` reads."""
        self._wrap(given_tokenizer(tokenizer_object, tokenizer_file))
        self._num_tokens = len(self._ids)
        self._roles: dict[str, str | None] = {}
        self.bos_token, self.eos_token, self.unk_token, self.pad_token = bos_token, eos_token, unk_token, pad_token
        self._sides: dict[str, Side] = {}
        self.padding_side, self.truncation_side = padding_side, truncation_side
        self.model_max_length = NO_LIMIT if model_max_length is None else model_max_length

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], **options: Any) -> StandInTokenizerFast:
        """Return the tokenizer in a folder of any format that `Tokenizer.load` reads; nothing is downloaded."""
        settings = read_settings(check_folder(folder))
        return cls(Tokenizer.load(folder), **{**settings, **options})

    @property
    def tokenizer(self) -> Tokenizer:
        """The underlying tokenizer."""
        return self._tokenizer

    def __repr__(self) -> str:
        roles = ", ".join(f"{role}={token!r}" for role, token in self._roles.items() if token is not None)
        return f"StandInTokenizerFast(vocab_size={self.vocab_size}, {roles or 'no roles'})"

    # The vocabulary

    @property
    def vocab_size(self) -> int:
        """Number of tokens, without those added later; an embedding needs `len(tokenizer)` rows."""
        return self._num_tokens

    def __len__(self) -> int:
        """Return the largest id plus one."""
        return self._tokenizer.vocab_size

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens."""
        return list(self._tokenizer.special_tokens)

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of the special tokens."""
        return list(self._tokenizer.special_tokens.values())

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The special tokens with a role, by role."""
        return {role: token for role, token in self._roles.items() if token is not None}

    def get_vocab(self) -> dict[str, int]:
        """Return the ids of all tokens, written in GPT-2's alphabet; special tokens are written as they are."""
        vocab = {spell(token): id for id, token in self._tokenizer.parts.vocabulary.tokens.items()}
        return vocab | self._tokenizer.special_tokens

    def add_special_tokens(self, special_tokens_dict: Mapping[str, Any]) -> int:
        """Assign tokens to roles, and add new tokens with the next ids; return the number of new tokens.

        {"pad_token": "[PAD]", "additional_special_tokens": ["<|user|>"]}; existing ids do not change.
        """
        unknown = set(special_tokens_dict) - {*ROLES, "additional_special_tokens"}
        if unknown:
            raise OptionError(f"{sorted(unknown)[0]!r} is not a role. Pass one of {', '.join(ROLES)}.")
        roles = {role: str(token) for role, token in special_tokens_dict.items() if role in ROLES}
        wanted = [*roles.values(), *map(str, special_tokens_dict.get("additional_special_tokens", ()))]
        specials = self._tokenizer.special_tokens
        num_before, next_id = len(specials), len(self)
        for token in wanted:
            if self._id_of(token) is None and token not in specials:
                specials[token] = next_id
                next_id += 1
        if len(specials) > num_before:
            self._wrap(with_special_tokens(self._tokenizer, specials))
        for role, token in roles.items():
            setattr(self, role, token)
        return len(specials) - num_before

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> Any:
        """Return the id of a token, or a list of ids; an unknown token has `unk_token_id`, or None."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        id = self._id_of(tokens)
        return self.unk_token_id if id is None else id

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Return the token of an id, or a list of tokens, written as in `get_vocab`."""
        ids = _as_list(ids)
        if isinstance(ids, int):
            return self._token_of(ids)
        skipped = set(self.all_special_ids) if skip_special_tokens else set[int]()
        return [self._token_of(id) for id in ids if id not in skipped]

    def _wrap(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids = self.get_vocab()
        self._special_of = {id: special for special, id in tokenizer.special_tokens.items()}

    def _id_of(self, token: str) -> int | None:
        return self._ids.get(token)

    def _token_of(self, id: int) -> str:
        return self._special_of.get(id) or spell(self._tokenizer.token_bytes(id))

    # Encoding

    def __call__(
        self,
        text: str | Sequence[str],
        text_pair: None = None,
        *,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        return_tensors: str | None = None,
        return_attention_mask: bool | None = None,
        return_offsets_mapping: bool = False,
        return_token_type_ids: bool | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Return `input_ids` and `attention_mask` of a text, or of a list of texts.

        padding: True or "longest" (to the longest text), "max_length", or False.
        truncation: True cuts texts to `max_length`, or to `model_max_length` without it. None does so if `max_length`
            is given and nothing is padded.
        return_tensors: None for lists, "np" or "pt" for an array or tensor of shape (texts, ids).
        return_offsets_mapping: whether to add `offset_mapping`, the (begin, end) of each token in characters.
        """
        if text_pair is not None or return_token_type_ids:
            raise OptionError("pairs of texts are not supported. Join them with a special token between them.")
        if isinstance(text, bytes) or not isinstance(text, Iterable):
            raise TypeError(f"text must be a str or a list of str, got {type(text).__name__}.")
        is_single = isinstance(text, str)
        texts = [text] if isinstance(text, str) else list(text)
        limit = self._limit(padding, truncation, max_length)
        spans: list[NDArray[np.int64]] | None = None
        if return_offsets_mapping:
            rows, spans = self._encode_with_offsets(texts, limit)
        else:
            rows = self._encode(texts, limit)
        encoding = self._padded(
            rows, spans, padding, max_length, pad_to_multiple_of, return_tensors, return_attention_mask is not False
        )
        if is_single and return_tensors is None:
            return BatchEncoding({name: value[0] for name, value in encoding.items()})
        return encoding

    def encode(self, text: str, text_pair: None = None, **options: Any) -> Any:
        """Return the ids of `text`; the options are those of a call."""
        return self(text, text_pair, **options)["input_ids"]

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of `text`, written as in `get_vocab`."""
        tokens: list[str] = self.convert_ids_to_tokens(self.encode(text))
        return tokens

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Return results of calls as one padded batch: a list of encodings, or one encoding of one or several texts.

        Every key is kept; `padding.py` has the table of padding values. Arrays and tensors give arrays and tensors,
        unless `return_tensors` is given.
        """
        _check_kind(return_tensors)
        columns = to_columns(encoded_inputs)
        kind = tensor_kind(columns["input_ids"])
        if kind is not None:
            columns = {key: as_python(value) for key, value in columns.items()}
        is_single = bool(columns["input_ids"]) and not isinstance(columns["input_ids"][0], list | tuple)
        if is_single:
            columns = {key: [value] for key, value in columns.items()}
        lengths = np.array([len(row) for row in columns["input_ids"]], np.int64)
        padded = pad_columns(
            columns,
            self._padded_length(lengths, padding, max_length, pad_to_multiple_of),
            pad_id=self._pad_id,
            side=self.padding_side if padding_side is None else check_side("padding_side", padding_side),
            with_mask=return_attention_mask is not False,
        )
        if is_single:
            padded = {key: value[0] for key, value in padded.items()}
        return BatchEncoding(to_tensors(padded, return_tensors or kind))

    def _limit(self, padding: bool | str, truncation: bool | str | None, max_length: int | None) -> int | None:
        """Return the maximum number of ids of a text; None for no limit."""
        if truncation not in (None, True, False, "longest_first", "only_first", "do_not_truncate"):
            raise OptionError(f"truncation must be True or False, got {truncation!r}.")
        if truncation is None:
            truncation = max_length is not None and padding is False
        if truncation is False or truncation == "do_not_truncate":
            return None
        limit = self.model_max_length if max_length is None else check_whole_number("max_length", max_length)
        if limit < 1:
            raise OptionError(f"max_length must be >= 1 or None, got {limit}.")
        return None if limit >= NO_LIMIT else limit

    def _encode(self, texts: list[str], limit: int | None) -> Ragged:
        rows: Any = self._tokenizer.encode_batch(
            texts, allowed_special="all", max_tokens=limit, truncate=self.truncation_side
        )
        ragged: Ragged = rows
        return ragged

    def _encode_with_offsets(self, texts: list[str], limit: int | None) -> tuple[Ragged, list[NDArray[np.int64]]]:
        encoded = [self._tokenizer.encode_with_offsets(text, allowed_special="all") for text in texts]
        kept = [_kept(len(offsets.ids), limit, self.truncation_side) for offsets in encoded]
        rows = [offsets.ids[part] for offsets, part in zip(encoded, kept, strict=True)]
        spans = [offsets.char_spans[part] for offsets, part in zip(encoded, kept, strict=True)]
        ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return Ragged(np.concatenate([np.empty(0, np.uint32), *rows]), ends), spans

    def _padded(
        self,
        rows: Ragged,
        spans: list[NDArray[np.int64]] | None,
        padding: bool | str,
        max_length: int | None,
        multiple: int | None,
        return_tensors: str | None,
        has_mask: bool,
    ) -> BatchEncoding:
        """Return the batch as lists, arrays or tensors, padded or not."""
        _check_kind(return_tensors)
        length = self._padded_length(rows.lengths, padding, max_length, multiple)
        if length is None and return_tensors is not None:
            if len(set(rows.lengths.tolist())) > 1:
                raise OptionError(
                    "texts of different lengths cannot form an array. Pass padding=True, and truncation=True with "
                    "max_length if some are too long."
                )
            length = int(rows.lengths.max(initial=0))
        if length is None:
            lists = {"input_ids": rows.tolist()}
            lists["attention_mask"] = [[1] * len(ids) for ids in lists["input_ids"]]
            batch: dict[str, Any] = lists
        else:
            pad_id = 0 if (rows.lengths == length).all() else self._pad_id()
            ids, mask = rows.padded(pad_id, length=length, side=self.padding_side, dtype=np.int64)
            batch = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
        if not has_mask:
            del batch["attention_mask"]
        if spans is not None:
            batch["offset_mapping"] = _padded_spans(spans, length, self.padding_side)
        return BatchEncoding({name: _as_kind(value, return_tensors) for name, value in batch.items()})

    def _padded_length(
        self, lengths: NDArray[np.int64], padding: bool | str, max_length: int | None, multiple: int | None
    ) -> int | None:
        """Return the length to which the texts are padded; None for no padding."""
        longest = int(lengths.max(initial=0))
        if padding is False or padding == "do_not_pad":
            return None
        if padding == "max_length":
            length = self.model_max_length if max_length is None else check_whole_number("max_length", max_length)
            if length >= NO_LIMIT:
                raise OptionError('padding="max_length" needs max_length, or a model_max_length.')
            if length < longest:
                raise OptionError(f"a text has {longest:,} ids, more than max_length={length}. Pass truncation=True.")
        elif padding is True or padding == "longest":
            length = longest
        else:
            raise OptionError(f"padding must be True, False, 'longest' or 'max_length', got {padding!r}.")
        if multiple is None:
            return length
        step = check_whole_number("pad_to_multiple_of", multiple)
        return -(-length // step) * step if step else length

    def _pad_id(self) -> int:
        id: int | None = self.pad_token_id
        if id is None:
            raise OptionError(
                "padding needs a pad token. Set tokenizer.pad_token = tokenizer.eos_token, or add one with "
                "add_special_tokens({'pad_token': '[PAD]'})."
            )
        return id

    # Decoding

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        """Return the text of an id, or of a list, array or tensor of ids."""
        ids = _as_list(token_ids)
        return self._tokenizer.decode([ids] if isinstance(ids, int) else ids, skip_special=skip_special_tokens)

    def batch_decode(self, sequences: Any, skip_special_tokens: bool = False, **_: Any) -> list[str]:
        """Return the texts of several lists of ids, or of the rows of an array or tensor."""
        return [self.decode(ids, skip_special_tokens=skip_special_tokens) for ids in _as_list(sequences)]

    # Files

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> tuple[str, ...]:
        """Write tokenizer.json and tokenizer_config.json for transformers; return their paths."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        config = dump_config(
            self._tokenizer.special_tokens,
            self.special_tokens_map,
            model_max_length=self.model_max_length,
            padding_side=self.padding_side,
            truncation_side=self.truncation_side,
        )
        # transformers follows a link to a folder, so this follows it too.
        folder_there = folder.resolve()
        with waiting_lock(folder_there):  # for both files
            main = self._tokenizer.export(folder_there, format="huggingface")[0]
            with publish(folder / CONFIG_NAME) as file:  # replaces the exported one, which lacks sides and lengths
                file.write(config)
        return str(folder / CONFIG_NAME), str(folder / main.name)


def _check_kind(return_tensors: str | None) -> None:
    if return_tensors not in (None, "np", "pt"):
        raise OptionError(f"return_tensors must be None, 'np' or 'pt', got {return_tensors!r}.")


def _kept(num_ids: int, limit: int | None, side: str) -> slice:
    if limit is None or num_ids <= limit:
        return slice(0, num_ids)
    return slice(0, limit) if side == "right" else slice(num_ids - limit, num_ids)


def _padded_spans(spans: list[NDArray[np.int64]], length: int | None, side: str) -> Any:
    """Return spans as lists of pairs, or as an array in which padding is (0, 0)."""
    if length is None:
        return [list(map(tuple, rows.tolist())) for rows in spans]
    array = np.zeros((len(spans), length, 2), np.int64)
    for padded, rows in zip(array, spans, strict=True):
        padded[slice(0, len(rows)) if side == "right" else slice(length - len(rows), length)] = rows
    return array


def _as_kind(value: Any, return_tensors: str | None) -> Any:
    if return_tensors == "pt":
        import torch  # type: ignore[import-not-found,unused-ignore]

        return torch.from_numpy(value)
    if return_tensors is None and isinstance(value, np.ndarray):
        rows = value.tolist()
        return rows if value.ndim == 2 else [list(map(tuple, row)) for row in rows]
    return value


def _as_list(ids: Any) -> Any:
    """Return ids of an array or a tensor as int or list; other values unchanged."""
    if hasattr(ids, "tolist"):
        return ids.tolist()
    return int(ids) if isinstance(ids, int | np.integer) else list(ids)
