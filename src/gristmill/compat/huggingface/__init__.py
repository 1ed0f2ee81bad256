"""transformers' `PreTrainedTokenizerFast` for a Gristmill tokenizer: the real class, or a stand-in for it.

>>> import gristmill
>>> tok = gristmill.Tokenizer([(b"h", b"i")], special_tokens=["<|endoftext|>"])
>>> tokenizer = PreTrainedTokenizerFast(tok, eos_token="<|endoftext|>", pad_token="<|endoftext|>")
>>> batch = tokenizer(["hi", "hi hi<|endoftext|>"], padding=True)
>>> batch.input_ids
[[256, 257, 257, 257], [256, 32, 256, 257]]
>>> batch["attention_mask"]
[[1, 0, 0, 0], [1, 1, 1, 1]]

`PreTrainedTokenizerFast(tok, …)` returns an instance of transformers' class if transformers can be imported, and a
`StandInTokenizerFast` otherwise. Both give the same ids. The real one passes `isinstance` checks, works with `Trainer`
and data collators, has `apply_chat_template`, and encodes with the `tokenizers` library. The stand-in needs neither
library, encodes with Gristmill's encoder on all cores, and has the methods that training scripts call; `stand_in.py`
lists the differences. `StandInTokenizerFast(tok, …)` always returns the stand-in.

transformers is imported by the first call, not by this module.

| in reading order | contents |
|---|---|
| `__init__.py` | the choice between the two, and the real one |
| `stand_in.py` | `StandInTokenizerFast` |
| `roles.py`, `opening.py` | its attributes; loading its tokenizer |
| `padding.py` | `pad`, and values as arrays and tensors |
| `batch_encoding.py` | `BatchEncoding` |
"""

from __future__ import annotations

import os
import sys
from typing import Any

from gristmill.compat.huggingface.batch_encoding import BatchEncoding
from gristmill.compat.huggingface.opening import check_folder, given_tokenizer, has_their_file, read_settings
from gristmill.compat.huggingface.roles import ROLES
from gristmill.compat.huggingface.stand_in import StandInTokenizerFast
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import warn_user

__all__ = ["BatchEncoding", "PreTrainedTokenizerFast", "StandInTokenizerFast"]


class _EitherClass(type):
    """Makes `isinstance(tokenizer, PreTrainedTokenizerFast)` true for both classes that a call returns."""

    def __instancecheck__(cls, instance: object) -> bool:
        theirs = getattr(sys.modules.get("transformers"), "PreTrainedTokenizerFast", StandInTokenizerFast)
        return isinstance(instance, StandInTokenizerFast | theirs)


class PreTrainedTokenizerFast(metaclass=_EitherClass):
    """transformers' `PreTrainedTokenizerFast` of a Gristmill tokenizer, or a `StandInTokenizerFast`."""

    def __new__(
        cls,
        tokenizer_object: Tokenizer | None = None,
        *,
        tokenizer_file: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Any:
        """Wrap a tokenizer, or the one in a file of any format that `Tokenizer.load` reads.

        options: bos_token, eos_token, unk_token, pad_token, padding_side, truncation_side, model_max_length; with
            transformers, everything its class accepts, such as chat_template.
        """
        tokenizer = given_tokenizer(tokenizer_object, tokenizer_file)
        theirs = _transformers_class()
        return StandInTokenizerFast(tokenizer, **options) if theirs is None else _of_theirs(theirs, tokenizer, options)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], **options: Any) -> Any:
        """Return the tokenizer in a folder of any format that `Tokenizer.load` reads; nothing is downloaded."""
        path = check_folder(folder)
        theirs = _transformers_class()
        if theirs is None:
            return StandInTokenizerFast.from_pretrained(folder, **options)
        if not has_their_file(path):
            return _of_theirs(theirs, Tokenizer.load(folder), {**read_settings(path), **options})
        return theirs.from_pretrained(os.fspath(folder), **{"local_files_only": True, **options})


def _transformers_class() -> Any:
    """Return transformers' class, or None if transformers cannot be imported."""
    try:
        from transformers import PreTrainedTokenizerFast as theirs
    except ImportError as error:
        if not (isinstance(error, ModuleNotFoundError) and error.name == "transformers"):
            warn_user(
                f"transformers is installed but cannot be imported ({' '.join(str(error).split())}), so a "
                f"StandInTokenizerFast is used. Repair the installation, or call StandInTokenizerFast.",
                RuntimeWarning,
            )
        return None
    return theirs


def _of_theirs(theirs: Any, tokenizer: Tokenizer, options: dict[str, Any]) -> Any:
    settings: dict[str, Any] = {
        "clean_up_tokenization_spaces": False,  # decoding must return the text unchanged
        # Version 4 would add token_type_ids, which GPT-2's model adds to its embeddings and Llama's rejects.
        "model_input_names": ["input_ids", "attention_mask"],
    }
    in_roles = {str(options[role]) for role in ROLES if options.get(role) is not None}
    others = [special for special in tokenizer.special_tokens if special not in in_roles]
    if others and "extra_special_tokens" not in options:  # so that all_special_ids has every special token
        settings["additional_special_tokens"] = others
    return theirs(tokenizer_object=tokenizer.to_huggingface(), **{**settings, **options})
