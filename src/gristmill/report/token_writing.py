"""Token writing: reports of tokenizers and shards, and comparisons of tokenizers, as HTML pages."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from gristmill.analysis.named_tokenizers import find_tokenizer
from gristmill.analysis.texts import Text, read_texts
from gristmill.encode.special_rules import NONE, Specials
from gristmill.encode.tokenizer import AnyTokenizer, Tokenizer, as_tokenizer
from gristmill.errors import OptionError, ShardsFormatError
from gristmill.packages import require_packages
from gristmill.profile import Profile
from gristmill.publish import publish
from gristmill.report.comparison import distinct_names
from gristmill.report.document import Document, document_page
from gristmill.report.shard_pages import shards_document
from gristmill.report.tokenizer_comparison import comparison_document
from gristmill.report.tokenizer_pages import measure_texts, tokenizer_document
from gristmill.shards.folder_kind import is_shard_folder
from gristmill.shards.run import STAGE_MEANINGS

REPORT_FILE = "report.html"
COMPARISON_FILE = "comparison.html"

Texts: TypeAlias = (
    Mapping[str, str | os.PathLike[str]] | Sequence[str | os.PathLike[str]] | str | os.PathLike[str] | None
)


def write_tokenizer_report(
    tokenizer: AnyTokenizer,
    *,
    texts: Texts = None,
    allowed_special: Specials = NONE,
    pattern: str | None = None,
    download: bool = False,
    name: str | None = None,
    out: str | os.PathLike[str] = REPORT_FILE,
    overwrite: bool = False,
) -> Path:
    """Write one page about a tokenizer: its figures on texts, its tokens, and its training if it was just trained.

    The page has bytes per token, fertility, Rényi efficiency, unused tokens, token lengths, token frequencies, bytes
    per token at every smaller vocabulary size, coverage by script and by text, and tokens of each class. A tokenizer
    that was trained in this process also has stage times, memory and the counts of the merged pairs. The same input
    gives the same bytes.

    Args:
        tokenizer: A `Tokenizer`, the path of a tokenizer file or folder, a `tiktoken.Encoding`, or a Hugging Face
            tokenizer. A `str` may also be the name of a published tokenizer whose files are on this machine, such as
            "gpt2", "cl100k_base" or "openai-community/gpt2".
        texts: The text files to measure on: one path, several, or paths by name, such as
            `{"English": "en.txt", "Japanese": "ja.txt"}`. Of each, the first 10 MB are used. Default: 1 MB of the
            built-in sample corpus.
        allowed_special: Special tokens that become their ids where a text contains them, or "all".
        pattern: Pattern of a file whose format does not store it, such as .tiktoken.
        download: Whether a published tokenizer that is not on this machine may be downloaded.
        name: Title of the page. Default: the name of the file or folder, or the published name.
        out: The page to write.
        overwrite: Whether to replace an existing file at `out`.

    Returns:
        The path of the page.

    Raises:
        FileExistsError: `out` exists, and `overwrite` is False.
        FileNotFoundError: The tokenizer is neither a file nor a name that is known on this machine.
        TokenizerFormatError: The file is not a tokenizer.
        SpecialTokenError: `allowed_special` names an unknown token.
        OptionError: `texts` is empty.
        MissingPackageError: matplotlib or Jinja2 is not installed.
        OSError: A file cannot be read or written.

    Examples:
        ```python
        gm.report.write_tokenizer_report("tok.json", texts={"English": "en.txt", "Japanese": "ja.txt"})
        ```
    """
    require_packages("gm.report.write_tokenizer_report", "matplotlib", "jinja2")
    with publish(out, overwrite=overwrite) as file:  # first, because it refuses to replace an existing file
        title = _name_of(tokenizer, "Tokenizer") if name is None else name
        loaded = _load(tokenizer, pattern, download)
        measured = measure_texts(title, loaded, read_texts(texts), allowed_special=allowed_special)
        file.write(_page(tokenizer_document(measured)))
    return Path(out)


def write_tokenizer_comparison(
    tokenizers: Sequence[AnyTokenizer] | Mapping[str, AnyTokenizer],
    *,
    texts: Texts = None,
    allowed_special: Specials = NONE,
    pattern: str | None = None,
    download: bool = False,
    out: str | os.PathLike[str] = COMPARISON_FILE,
    overwrite: bool = False,
) -> Path:
    """Write one page that compares tokenizers on the same texts.

    The page has their figures on all texts and on each text with the best of each row marked, bytes per token against
    vocabulary size, token frequencies and lengths, bytes per token by script, shared tokens, and the first places that
    they split differently.

    Args:
        tokenizers: Two or more tokenizers, as in `write_tokenizer_report`, or tokenizers by title.
        texts: As in `write_tokenizer_report`.
        allowed_special: As in `write_tokenizer_report`.
        pattern: Pattern of the files whose format does not store it, such as .tiktoken.
        download: Whether a published tokenizer that is not on this machine may be downloaded.
        out: The page to write.
        overwrite: Whether to replace an existing file at `out`.

    Returns:
        The path of the page.

    Raises:
        OptionError: There are fewer than two tokenizers, or `texts` is empty.
        FileExistsError: `out` exists, and `overwrite` is False.
        FileNotFoundError: A tokenizer is neither a file nor a name that is known on this machine.
        TokenizerFormatError: A file is not a tokenizer.
        SpecialTokenError: `allowed_special` names a token that one of them does not have.
        MissingPackageError: matplotlib or Jinja2 is not installed.
        OSError: A file cannot be read or written.

    Examples:
        ```python
        gm.report.write_tokenizer_comparison(["a.json", "b.json", "cl100k_base"], texts="corpus.txt")
        ```
    """
    require_packages("gm.report.write_tokenizer_comparison", "matplotlib", "jinja2")
    named = _named(tokenizers)
    with publish(out, overwrite=overwrite) as file:  # first, because it refuses to replace an existing file
        given = read_texts(texts)
        measured = [
            measure_texts(name, _load(each, pattern, download), given, allowed_special=allowed_special)
            for name, each in named
        ]
        file.write(_page(comparison_document(measured, allowed_special=allowed_special)))
    return Path(out)


def write_shards_report(
    folder: str | os.PathLike[str],
    *,
    profile: Profile | None = None,
    out: str | os.PathLike[str] = REPORT_FILE,
    seed: int = 0,
    overwrite: bool = False,
) -> Path:
    """Write one page about a folder of shards: splits, document lengths, token frequencies, samples and sources.

    A large folder is read at evenly spaced places, so a terabyte takes no longer than a gigabyte. The same folder and
    profile give the same bytes.

    Args:
        folder: A folder made by `encode_corpus`, or token files of nanoGPT, llm.c, Megatron-LM or datatrove.
        profile: The profile of the run that made the folder (`EncodeRun.profile`). With it, the page also has the time
            and the throughput of each stage. It has memory over time if the run was inside `gm.recording`.
        out: The page to write.
        seed: Seed that selects the sample documents.
        overwrite: Whether to replace an existing file at `out`.

    Returns:
        The path of the page.

    Raises:
        OptionError: `profile` is not the profile of an encoding.
        ShardsFormatError: The folder is unfinished, damaged or not a folder of shards.
        FileExistsError: `out` exists, and `overwrite` is False.
        MissingPackageError: matplotlib or Jinja2 is not installed.
        OSError: A file cannot be read or written.

    Examples:
        ```python
        gm.report.write_shards_report("shards", out="shards.html")
        run = gm.encode_corpus("corpus.txt", "tok.json", out="new")
        gm.report.write_shards_report("new", profile=run.profile, out="new.html")
        ```
    """
    require_packages("gm.report.write_shards_report", "matplotlib", "jinja2")
    _check_profile(profile)
    path = Path(folder)
    if not path.exists():
        raise FileNotFoundError(2, "No such folder of shards", str(path))
    if not is_shard_folder(path):
        raise ShardsFormatError(f"{path} is not a folder of shards. Make one with encode_corpus().")
    with publish(out, overwrite=overwrite) as file:  # first, because it refuses to replace an existing file
        file.write(_page(shards_document(path, profile=profile, seed=seed)))
    return Path(out)


def _check_profile(profile: Profile | None) -> None:
    if profile is None:
        return
    if not isinstance(profile, Profile):
        raise OptionError(f"profile is of type {type(profile).__name__}. Pass EncodeRun.profile.")
    stages = [stage.stage for stage in profile.stages]
    if not set(stages) <= set(STAGE_MEANINGS) or "encode" not in stages:
        raise OptionError(
            f"profile has the stages {', '.join(stages) or '(none)'}, so it is not that of an encoding. Pass "
            f"EncodeRun.profile, from the result of encode_corpus()."
        )


def write_training_report(
    tokenizer: Tokenizer, text: Text, *, name: str, out: str | os.PathLike[str], overwrite: bool = False
) -> Path:
    """Write the page about a tokenizer that was just trained, measured on a part of its corpus; return its path."""
    with publish(out, overwrite=overwrite) as file:
        measured = measure_texts(name, tokenizer, [text], allowed_special="all")
        file.write(_page(tokenizer_document(measured)))
    return Path(out)


def _load(tokenizer: AnyTokenizer, pattern: str | None, download: bool) -> Tokenizer:
    if isinstance(tokenizer, str | os.PathLike):
        return find_tokenizer(tokenizer, pattern=pattern, download=download)
    return as_tokenizer(tokenizer)


def _page(document: Document) -> bytes:
    return document_page(document).encode()


def _name_of(tokenizer: AnyTokenizer, other: str) -> str:
    """Return the name of the file or folder of a tokenizer, its published name, or `other` if it has neither."""
    if not isinstance(tokenizer, str | os.PathLike):
        return other
    path = Path(tokenizer)
    return path.resolve().name if path.exists() else str(tokenizer)


def _named(tokenizers: Sequence[AnyTokenizer] | Mapping[str, AnyTokenizer]) -> list[tuple[str, AnyTokenizer]]:
    if isinstance(tokenizers, str | os.PathLike | Tokenizer):
        raise OptionError("tokenizers must be a list of two or more tokenizers, got one.")
    named = (
        list(tokenizers.items())
        if isinstance(tokenizers, Mapping)
        else list(zip(titles(tokenizers), tokenizers, strict=True))
    )
    if len(named) < 2:
        raise OptionError(f"tokenizers must have two or more tokenizers, got {len(named)}.")
    return named


def titles(tokenizers: Sequence[AnyTokenizer]) -> list[str]:
    """Return a distinct title for each tokenizer: the name of its file, a published name, or a number.

    >>> titles([Tokenizer([]), "cl100k_base", "cl100k_base"])
    ['tokenizer 1', 'cl100k_base', 'cl100k_base (3)']
    """
    is_path = [isinstance(each, str | os.PathLike) and Path(each).exists() for each in tokenizers]
    paths = [Path(str(each)) for each, is_file in zip(tokenizers, is_path, strict=True) if is_file]
    names = iter(distinct_names(paths))
    found: list[str] = []
    for number, (each, is_file) in enumerate(zip(tokenizers, is_path, strict=True), 1):
        title = next(names) if is_file else each if isinstance(each, str) else f"tokenizer {number}"
        found.append(f"{title} ({number})" if title in found else title)
    return found
