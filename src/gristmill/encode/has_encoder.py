"""A tokenizer with its encoder, which is built on first use."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.arguments import check_kernel
from gristmill.encode.encoder import Encoder
from gristmill.encode.native_encoder import native_encoder
from gristmill.encode.regex_encoder import RegexEncoder
from gristmill.encode.special_rules import SpecialRules
from gristmill.tokenizer import TokenizerParts
from gristmill.tokenizer.vocabulary_methods import VocabularyMethods


class HasEncoder(VocabularyMethods):
    """A tokenizer with its encoder: the base of `EncodeMethods` and `DecodeMethods`."""

    @cached_property
    def _encoder(self) -> Encoder[Any]:
        # Two threads may each build an encoder at the same time. Both are correct, and one is kept.
        return build_encoder(self._parts)

    @cached_property
    def _token_lengths(self) -> NDArray[np.uint32]:
        return self._encoder.token_lengths

    @cached_property
    def _rules(self) -> SpecialRules[Any]:
        return SpecialRules(self._vocabulary.special_tokens, self._encoder.special_rule)

    @cached_property
    def _default_rule(self) -> Any:
        return self._rules.rule()


def build_encoder(parts: TokenizerParts) -> Encoder[Any]:
    """Return the encoder for a vocabulary and a pattern."""
    check_kernel()
    encoder = native_encoder(parts.vocabulary, parts.pattern.name)
    if parts.pattern.name is not None:
        return encoder
    return RegexEncoder(encoder, parts.pattern.regex, parts.vocabulary)
