"""The `Encoder` for native patterns, which runs in the core."""

from __future__ import annotations

from gristmill import _core
from gristmill.errors import TokenizerFormatError
from gristmill.tokenizer import Vocabulary


class NativeEncoder(_core.Encoder):
    """The encoder of the core. Threads share it, and it releases the GIL."""

    may_cut = True

    def for_threads(self, num_threads: int) -> NativeEncoder:
        """Itself."""
        return self

    def stop(self) -> None:
        """Do nothing: a cancellation stops the core."""

    def close(self) -> None:
        """Do nothing: no process was started."""


def native_encoder(vocabulary: Vocabulary, pattern: str | None) -> NativeEncoder:
    """Return the encoder of the core. Without a pattern it encodes single pieces only."""
    try:
        return NativeEncoder(
            byte_ids=vocabulary.byte_ids,
            merges=vocabulary.merges,
            other_tokens=list(vocabulary.other_tokens.values()),
            other_ids=list(vocabulary.other_tokens),
            whole_pieces=vocabulary.whole_pieces,
            pattern=pattern,
            special_tokens=[special.encode() for special in vocabulary.special_tokens],
            special_ids=list(vocabulary.special_tokens.values()),
        )
    except ValueError as error:  # such as tokens of gigabytes
        raise TokenizerFormatError(f"these merges cannot be used: {error}. Load or train another tokenizer.") from None
