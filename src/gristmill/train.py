"""From a corpus to a tokenizer, through count, merge and tokenizer: `train_tokenizer` and `extend_tokenizer`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from gristmill.arguments import check_max_token_bytes, check_vocab_size, show_options
from gristmill.corpus import Corpus, Reading, ReadOptions
from gristmill.count import CountOptions, Words
from gristmill.encode import AnyTokenizer, Tokenizer, as_tokenizer
from gristmill.executors import Executor
from gristmill.progress import ProgressOption
from gristmill.tokenizer import learn

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
    executor: Executor | str = "local",
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
    executor: who counts the words of files: "local" (threads of this process), "processes", "ray", or an object such as
        `gm.Ray(address="auto")`. The tokenizer is the same; merges are learned in this process.
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
        executor=executor,
    )
    empty = Tokenizer((), pattern=str(options.pattern), special_tokens=options.special_tokens, tie_break=tie_break)
    parts, profile = learn(
        empty.parts,
        corpus,
        options,
        vocab_size=check_vocab_size(vocab_size, len(options.special_tokens)),
        max_token_bytes=check_max_token_bytes(max_token_bytes),
        progress=progress,
    )
    return Tokenizer.from_parts(parts, profile=profile)


@show_options(ReadOptions, Reading(documents="file").options())
def extend_tokenizer(
    tokenizer: AnyTokenizer,
    corpus: Corpus | Words,
    *,
    vocab_size: int,
    tie_break: str | None = None,
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    memory_limit: int | None = None,
    num_threads: int | None = None,
    progress: ProgressOption = "auto",
    **reading: Unpack[ReadOptions],
) -> Tokenizer:
    """Return `tokenizer.extended(corpus, …)`: its merges, and those that `corpus` teaches after them.

    tokenizer: a `Tokenizer`, the path of one, a `tiktoken.Encoding`, or a tokenizer of Hugging Face.

    >>> small = train_tokenizer(["low low low lower lowest"], vocab_size=259, progress=None)
    >>> large = extend_tokenizer(small, ["low low low lower lowest"], vocab_size=261, progress=None)
    >>> large == train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None)
    True
    """
    return as_tokenizer(tokenizer).extended(
        corpus,
        vocab_size=vocab_size,
        tie_break=tie_break,
        min_frequency=min_frequency,
        max_token_bytes=max_token_bytes,
        memory_limit=memory_limit,
        num_threads=num_threads,
        progress=progress,
        **reading,
    )
