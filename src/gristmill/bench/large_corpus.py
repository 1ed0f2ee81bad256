"""Make a large English corpus from a small one: a synthetic extension, to measure how time and memory grow.

Plain copies would not be realistic: in real text new words never stop appearing (Heaps' law), and the cost of the merge
stage depends on the number of distinct words. So every copy after the first has its documents in another order and a
share of its rare words replaced by new ones, each made of the start of one rare word and the end of another. The share
is chosen so that after n copies there are n ** 0.6 times the distinct words of the first; 0.6 is the exponent between
100 MB and 1.9 GB of real English books and documentation (270 thousand and 1.56 million distinct words). Measured on
english_90M: 227,759 distinct words in the base, 1,306,094 in the 1.5 GB made from it.

The extension does not model new topics, numbers and punctuation. Frequent words are those of the base, so the first
merges are those of the base too. Mark every result from it as "synthetic extension".
"""

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

VERSION = "v1_1500MB"  # part of the cached file's name: change it with anything that changes the text
NUM_BYTES = 1_500_000_000
SEPARATOR = b"<|endoftext|>\n"
EXPONENT = 0.6
RARE = 8  # occurrences in the base, at most
WORD = re.compile(rb"(?<= )[A-Za-z]{4,}(?![A-Za-z'\x80-\xff])")
PIECE = re.compile(rb" ?[A-Za-z\x80-\xff]+| ?[0-9]+| ?[^\sA-Za-z0-9\x80-\xff]+")  # close enough to gpt2's for a count

Document = list[bytes]  # common text and rare words in turn: text, word, text, word, …, text


def write(base: Path, out: BinaryIO, *, num_bytes: int = NUM_BYTES, seed: int = 0) -> None:
    """Write the corpus to `out`: the base, then changed copies, to the end of the document that reaches `num_bytes`."""
    texts = [text for text in base.read_bytes().split(SEPARATOR) if text]
    rare = _rare_words(texts)
    documents = [_cut_at_words(text, rare) for text in texts]
    num_distinct, words = _num_distinct_pieces(texts), sorted(rare)
    num_written = _write_documents(map(_joined, documents), out, num_bytes)
    num_copies, num_new = 1, 0
    while num_written < num_bytes:
        chooser = random.Random(f"{seed} {num_copies}")
        num_copies += 1
        # The early copies have too few rare words to follow the law; the later ones compensate.
        replacements = _novel_words(words, round(num_distinct * (num_copies**EXPONENT - 1)) - num_new, chooser)
        num_new += len(replacements)
        num_written += _write_documents(_copy(documents, replacements, chooser), out, num_bytes - num_written)


def _write_documents(documents: Iterable[bytes], out: BinaryIO, num_bytes: int) -> int:
    num_written = 0
    for document in documents:
        num_written += out.write(document)
        if num_written >= num_bytes:
            break
    return num_written


def _rare_words(texts: Iterable[bytes]) -> set[bytes]:
    counts: Counter[bytes] = Counter()
    for text in texts:
        counts.update(WORD.findall(text))
    return {word for word, count in counts.items() if count <= RARE}


def _num_distinct_pieces(texts: Iterable[bytes]) -> int:
    pieces: set[bytes] = set()
    for text in texts:
        pieces.update(PIECE.findall(text))
    return len(pieces)


def _cut_at_words(document: bytes, rare: set[bytes]) -> Document:
    parts, end = [], 0
    for match in WORD.finditer(document):
        if match[0] in rare:
            parts += [document[end : match.start()], match[0]]
            end = match.end()
    return [*parts, document[end:]]


def _novel_words(words: list[bytes], num_wanted: int, chooser: random.Random) -> dict[bytes, bytes]:
    """Return a new word for `num_wanted` of `words` (all of them when there are fewer)."""
    replaced = chooser.sample(words, min(num_wanted, len(words)))
    endings = chooser.choices(words, k=len(replaced))
    return {word: _spliced(word, ending) for word, ending in zip(replaced, endings, strict=True)}


def _spliced(first: bytes, second: bytes) -> bytes:
    return first[: (len(first) + 1) // 2 + 1] + second[len(second) // 2 :].lower()


def _copy(documents: list[Document], replacements: dict[bytes, bytes], chooser: random.Random) -> Iterator[bytes]:
    """Yield the documents in another order with words replaced."""
    for document in chooser.sample(documents, len(documents)):
        parts = document.copy()
        parts[1::2] = [replacements.get(word, word) for word in parts[1::2]]
        yield _joined(parts)


def _joined(document: Document) -> bytes:
    return b"".join(document) + SEPARATOR
