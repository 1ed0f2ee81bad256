"""From a corpus to a tokenizer, through count, merge and tokenizer: `train_tokenizer` and `extend_tokenizer`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Unpack

from gristmill.arguments import MAX_TOKEN_BYTES, check_max_token_bytes, check_vocab_size, show_options
from gristmill.corpus import Corpus, Reading, ReadOptions
from gristmill.count import CountOptions, Words, count
from gristmill.encode import Tokenizer, check_tokenizer
from gristmill.errors import EarlyStopWarning, VocabSizeError, warn_user
from gristmill.merge import learn_merges
from gristmill.profile import Profile, peak_memory_bytes
from gristmill.progress import ProgressOption, open_progress
from gristmill.tokenizer import TokenizerParts, extended, plain_merges

__all__ = ["extend_tokenizer", "train_tokenizer"]


@show_options(ReadOptions, Reading(documents="file").options())
def train_tokenizer(
    corpus: Corpus | Words,
    *,
    vocab_size: int,
    special_tokens: Iterable[str] | None = None,
    pattern: str | None = None,
    tie_break: str = "greatest-bytes",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    memory_limit: int | None = None,
    num_threads: int | None = None,
    progress: ProgressOption = "auto",
    **reading: Unpack[ReadOptions],
) -> Tokenizer:
    """Return the byte-level BPE tokenizer of `corpus` with `vocab_size` tokens.

    The merges are exactly those of the naive algorithm (`gristmill.reference`), whatever the number of threads. A
    corpus in which no pair is left before `vocab_size` is reached gives a smaller tokenizer and an `EarlyStopWarning`.

    corpus: a path, several, globs, folders, URLs, an iterable of `str` or `bytes` documents, a table with a text column
        (pyarrow, pandas, polars, datasets), or counted `Words`. A bare `str` is a path; to train from one text, pass
        `[text]`. `Files` and `Documents` say what a list of strings is; `gristmill.corpus` has the whole table.
    vocab_size: 256 bytes, the merges and the special tokens together.
    special_tokens: hard boundaries in the text, which no piece crosses; their ids come last. Pass () for none. Default:
        ["<|endoftext|>"], or those that `Words` were counted with.
    pattern: what cuts text into pieces: gpt2, cl100k, o200k, llama3, nanochat, qwen2, whitespace, or any regular
        expression of the `regex` module (slower). Default: gpt2, or the one that `Words` were counted with.
    tie_break: which pair wins among equal counts: greatest-bytes (Stanford CS336), smallest-ids (rustbpe), huggingface
        (tokenizers) or first-seen (minbpe).
    min_frequency: words (distinct pieces) that occur less often are left out.
    max_token_bytes: no token becomes longer; 1 MiB at most, which is also the default.
    memory_limit: bytes that counting may use; beyond them it works through the temporary folder ($TMPDIR).
    num_threads: default: every core this process may use.
    progress: "auto" (bars on a terminal), "bar", "jsonl", None (silence), or a callable that gets a `Progress`.
    reading: how files are read: input_format, text_field, documents, separator, on_error, max_document_bytes;
        `gristmill.corpus.ReadOptions` explains them.

    >>> tok = train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None)
    >>> tok.merges
    [(b'o', b'w'), (b'l', b'ow'), (b' ', b'low'), (b' low', b'e')]
    >>> tok.special_tokens
    {'<|endoftext|>': 260}
    >>> tok.decode(tok.encode("lowest"))
    'lowest'
    """
    options = CountOptions.checked(
        corpus,
        pattern=pattern,
        special_tokens=special_tokens,
        min_frequency=min_frequency,
        memory_limit=memory_limit,
        num_threads=num_threads,
        reading=reading,
    )
    empty = Tokenizer((), pattern=str(options.pattern), special_tokens=options.special_tokens, tie_break=tie_break)
    return _go_on(
        empty,
        corpus,
        options,
        vocab_size=check_vocab_size(vocab_size, len(options.special_tokens)),
        max_token_bytes=check_max_token_bytes(max_token_bytes),
        progress=progress,
    )


@show_options(ReadOptions, Reading(documents="file").options())
def extend_tokenizer(
    tokenizer: Tokenizer,
    corpus: Corpus | Words,
    *,
    vocab_size: int,
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    memory_limit: int | None = None,
    num_threads: int | None = None,
    progress: ProgressOption = "auto",
    **reading: Unpack[ReadOptions],
) -> Tokenizer:
    """Return a tokenizer of `vocab_size` that starts with the merges of `tokenizer` and goes on learning from `corpus`.

    On the corpus that `tokenizer` was trained on, this gives what a longer run would have given. Pattern, specials and
    tie-break are those of `tokenizer`. Special tokens stay last, so **their ids move up**; all other ids stay. A
    tokenizer that keeps the ids of another tool keeps all of them, and new tokens get the ids from its `vocab_size` on.
    `corpus` and `reading` are what `train_tokenizer` takes.

    >>> small = train_tokenizer(["low low low lower lowest"], vocab_size=258, progress=None)
    >>> large = extend_tokenizer(small, ["low low low lower lowest"], vocab_size=260, progress=None)
    >>> large == train_tokenizer(["low low low lower lowest"], vocab_size=260, progress=None)
    True
    """
    check_tokenizer(tokenizer)
    options = CountOptions.checked(
        corpus,
        pattern=tokenizer.pattern,
        special_tokens=list(tokenizer.special_tokens),
        min_frequency=min_frequency,
        memory_limit=memory_limit,
        num_threads=num_threads,
        reading=reading,
    )
    vocab_size = check_vocab_size(vocab_size, len(options.special_tokens))
    if vocab_size < tokenizer.vocab_size:
        raise VocabSizeError(
            f"vocab_size={vocab_size} is smaller than that of the tokenizer, {tokenizer.vocab_size}. "
            f"Pass a larger one, or call tokenizer.truncated({vocab_size})."
        )
    return _go_on(
        tokenizer,
        corpus,
        options,
        vocab_size=vocab_size,
        max_token_bytes=check_max_token_bytes(max_token_bytes),
        progress=progress,
    )


def _go_on(
    tokenizer: Tokenizer,
    corpus: Corpus | Words,
    options: CountOptions,
    *,
    vocab_size: int,
    max_token_bytes: int,
    progress: ProgressOption,
) -> Tokenizer:
    """Count the corpus, learn the merges that `tokenizer` lacks, and return the tokenizer that has them."""
    start = time.perf_counter()
    vocabulary = tokenizer.parts.vocabulary
    given = plain_merges(vocabulary)
    with open_progress(progress) as on_progress:
        words, stages = count(corpus, options, on_progress)
        learned, merge_stages = learn_merges(
            words,
            num_merges=vocab_size - tokenizer.vocab_size,
            tie_break=tokenizer.tie_break,
            max_token_bytes=max_token_bytes,
            given=given,
            num_threads=options.num_threads,
            on_progress=on_progress,
        )
    if tokenizer.vocab_size + len(learned) < vocab_size:
        _warn_of_early_stop(len(learned), tokenizer.vocab_size, vocab_size, max_token_bytes)
    return Tokenizer.of_parts(
        TokenizerParts(extended(vocabulary, given, learned), tokenizer.parts.pattern, tokenizer.tie_break),
        profile=Profile(
            stages=(*stages, *merge_stages),
            seconds=time.perf_counter() - start,
            num_threads=options.num_threads,
            peak_memory_bytes=peak_memory_bytes(),
        ),
    )


def _warn_of_early_stop(num_learned: int, size_before: int, size_asked: int, max_token_bytes: int) -> None:
    bound = f" that makes a token of at most {max_token_bytes} bytes" if max_token_bytes < MAX_TOKEN_BYTES else ""
    warn_user(
        f"learned {num_learned:,} of {size_asked - size_before:,} merges: no pair{bound} is left to merge in this "
        f"corpus. The tokenizer has vocab_size {size_before + num_learned:,} instead of {size_asked:,}.",
        EarlyStopWarning,
    )
