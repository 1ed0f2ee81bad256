"""What encoding and decoding share: the encoder of the core, built when it is first needed."""

from __future__ import annotations

from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.arguments import check_kernel
from gristmill.encode.regex_encoder import RegexEncoder
from gristmill.encode.special_rules import NONE, SpecialRules
from gristmill.errors import TokenizerFormatError
from gristmill.tokenizer.vocabulary_methods import VocabularyMethods


class HasEncoder(VocabularyMethods):
    """A tokenizer with its encoder: what `EncodeMethods` and `DecodeMethods` build on."""

    @cached_property
    def _encoder(self) -> _core.Encoder:
        # Two threads that come here at the same time build two; both are right, and one is kept.
        check_kernel()
        vocabulary, pattern = self._parts.vocabulary, self._parts.pattern
        try:
            encoder = _core.Encoder(
                byte_ids=vocabulary.byte_ids,
                merges=vocabulary.merges,
                other_tokens=list(vocabulary.other_tokens.values()),
                other_ids=list(vocabulary.other_tokens),
                whole_pieces=vocabulary.whole_pieces,
                pattern=pattern.name,
                special_tokens=[special.encode() for special in vocabulary.special_tokens],
                special_ids=list(vocabulary.special_tokens.values()),
            )
        except ValueError as error:  # such as tokens of gigabytes
            raise TokenizerFormatError(f"these merges cannot be used: {error}.") from None
        if pattern.name is None:  # the methods are the same
            return cast(_core.Encoder, RegexEncoder(encoder, pattern.regex, vocabulary.special_tokens))
        return encoder

    @cached_property
    def _token_lengths(self) -> NDArray[np.uint32]:
        return self._encoder.token_lengths

    @cached_property
    def _rules(self) -> SpecialRules[_core.SpecialRule]:
        return SpecialRules(self._vocabulary.special_tokens, self._encoder.special_rule)

    @cached_property
    def _default_rule(self) -> _core.SpecialRule:
        return self._rules.rule()

    @cached_property
    def _ordinary_rule(self) -> _core.SpecialRule:
        return self._rules.rule(disallowed_special=NONE)
