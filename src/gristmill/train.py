"""`train_tokenizer` and `extend_tokenizer`: from a corpus to a tokenizer, by way of count, merge and tokenizer."""

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
    device: str = "auto",
    progress: ProgressOption = "auto",
    **reading: Unpack[ReadOptions],
) -> Tokenizer:
    """Train a byte-level BPE tokenizer with `vocab_size` tokens on `corpus`.

    The merges are identical to those of the naive algorithm in `gristmill.reference`, for any number of threads. If no
    pair is left to merge before `vocab_size` is reached, the tokenizer is smaller and an `EarlyStopWarning` is issued.

    Args:
        corpus: A path, glob, folder or URL, or several of them; an iterable of `str` or `bytes` documents; a table with
            a text column (pyarrow, pandas, polars, datasets); or counted `Words`. A bare `str` is a path: to train on
            one text, pass `[text]`. `Files` and `Documents` state explicitly what a list of strings contains.
        vocab_size: Number of tokens: the 256 bytes, the merges and the special tokens.
        special_tokens: Hard boundaries in the text that no piece crosses. They get the last ids. Pass `()` for none.
            Default: `["<|endoftext|>"]`, or the special tokens that the `Words` were counted with.
        pattern: Pattern that cuts text into pieces: gpt2, cl100k, o200k, llama3, nanochat, qwen2, whitespace, or any
            regular expression of the `regex` module (slower). Default: gpt2, or the pattern of the `Words`.
        tie_break: Which pair wins among pairs with equal counts: greatest-bytes (as in Stanford CS336), smallest-ids
            (rustbpe), huggingface (tokenizers) or first-seen (minbpe).
        min_frequency: Ignore words (distinct pieces) that occur fewer times than this.
        max_token_bytes: Maximum length of a token. Default and upper limit: 1 MiB.
        memory_limit: Memory in bytes that counting may use. Counting spills to the temporary folder (`$TMPDIR`) when it
            needs more.
        num_threads: Number of threads. Default: all cores available to this process.
        executor: Executor that counts the words of files: "local" (threads of this process), "processes", "ray", or an
            object such as `gm.Ray(address="auto")`. The result is the same. Merges are always learned in this process.
        device: Device that counts and merges: "auto", "cpu", "cuda" (all GPUs) or "cuda:0" (one of them). The result is
            the same. "auto" uses one GPU if there is one and the corpus is large enough to gain from it; if the GPU
            fails, the CPU does its work. Needs the extra gpu; see docs/gpu.md.
        progress: "auto" (bars on a terminal), "bar", "jsonl", None (silent), or a callable that receives a `Progress`.
        **reading: How files are read: input_format, text_field, documents, separator, on_error, max_document_bytes;
            see `gristmill.corpus.ReadOptions`.

    Returns:
        The trained tokenizer. Its `profile` has the time and memory of each stage.

    Raises:
        OptionError: An argument is out of range, or does not apply to this corpus. `VocabSizeError`, `PatternError` and
            `SpecialTokenError` are subclasses.
        CorpusError: The corpus is empty, damaged or not a corpus.
        OSError: A file or URL cannot be read, or changed while it was read.
        MemoryLimitError: The result does not fit in `memory_limit`.
        DeviceError: `device` asks for a GPU that cannot be used, or that failed.

    Examples:
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
        device=device,
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
    device: str = "auto",
    progress: ProgressOption = "auto",
    **reading: Unpack[ReadOptions],
) -> Tokenizer:
    """Return a larger tokenizer: the merges of `tokenizer`, followed by merges learned from `corpus`.

    Same as `Tokenizer.extended`, but also accepts tokenizers of other libraries.

    Args:
        tokenizer: A `Tokenizer`, the path of a tokenizer file, a `tiktoken.Encoding`, or a Hugging Face tokenizer.
        corpus: As in `train_tokenizer`.
        vocab_size: Number of tokens of the new tokenizer.
        tie_break: Which pair wins among pairs with equal counts; see `train_tokenizer`. Default: the rule of
            `tokenizer`, with a `FormatWarning` if it was loaded from a file that does not state one.
        min_frequency: Ignore words (distinct pieces) that occur fewer times than this.
        max_token_bytes: Maximum length of a token. Default and upper limit: 1 MiB.
        memory_limit: Memory in bytes that counting may use.
        num_threads: Number of threads. Default: all cores available to this process.
        device: Device that counts and merges; see `train_tokenizer`.
        progress: As in `train_tokenizer`.
        **reading: How files are read; see `gristmill.corpus.ReadOptions`.

    Raises:
        OptionError: An argument is out of range, or `vocab_size` is smaller than the tokenizer.
        CorpusError: The corpus is empty, damaged or not a corpus.
        OSError: A file or URL cannot be read, or changed while it was read.
        DeviceError: `device` asks for a GPU that cannot be used, or that failed.
        TokenizerFormatError: The file at the path `tokenizer` is not a valid tokenizer.
        TypeError: `tokenizer` is none of the supported types.

    Examples:
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
        device=device,
        progress=progress,
        **reading,
    )
