"""quicktok: the release on PyPI has one class, `BasicTokenizer`, which has no pattern."""

from collections.abc import Callable
from typing import Any

import quicktok

from gristmill.bench.encoders import Api, CannotLoad, Takes
from gristmill.bench.encoders.vocabularies import VocabularyFiles

DISTRIBUTION = "quicktok"
THREADS = "one"
SLOW = False


def build(files: VocabularyFiles, num_threads: int) -> Any:
    """Raise: no class of the package supports a vocabulary with a pattern."""
    classes = ", ".join(name for name in dir(quicktok) if isinstance(getattr(quicktok, name), type))
    raise CannotLoad(f"has no tokenizer with a pattern (its classes: {classes})")


def short(tok: Any) -> Callable[[str], Any]:
    """`encode`."""
    encode: Callable[[str], Any] = tok.encode
    return encode


APIS = {"encode": Api(Takes.TEXT, lambda tok, text, num_threads: tok.encode(text), one_thread=True)}
