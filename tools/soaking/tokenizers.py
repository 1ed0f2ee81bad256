"""Threads that share tokenizers: every method that takes text or ids, on batches of random sizes."""

from __future__ import annotations

import pickle
import random
import warnings
from dataclasses import dataclass
from functools import partial

import gristmill as gm
from gristmill.encode import native_encoder
from gristmill.reference import encode as encode_plainly
from soaking.inputs import SPECIALS, mixed_texts
from soaking.kind import Kind, check_equal

# Without a native matcher, so that the `regex` module cuts the text.
OWN_PATTERN = r"\s?\p{L}+|\p{N}{1,2}|[^\s\p{L}\p{N}]+|\s+"
NUM_TEXTS = 150
# Of each thread, instead of 64 MiB, so that the caches are full after the warm-up and are cleared many times.
CACHE_BYTES = 64 << 10


@dataclass
class Sample:
    """A text with its ids according to the plain implementation: as plain text, and with special tokens allowed."""

    text: str
    plain: list[int]
    special: list[int]


class Tokenizers(Kind):
    """Operations on three shared tokenizers; each checks its result."""

    num_threads = 8

    def prepare(self) -> None:
        """Train the tokenizers, and encode a pool of texts with the plain implementation."""
        warnings.simplefilter("ignore", gm.SlowPatternWarning)
        native_encoder.NativeEncoder = partial(  # type: ignore[misc, assignment]
            native_encoder.NativeEncoder, cache_bytes=CACHE_BYTES
        )
        texts = mixed_texts(NUM_TEXTS, self.seed)
        self.pools: list[tuple[gm.Tokenizer, list[Sample]]] = []
        for pattern in ("gpt2", "cl100k", OWN_PATTERN):
            corpus = self.inputs / "stories.txt"
            tok = gm.train_tokenizer(
                corpus, vocab_size=1_500, pattern=pattern, special_tokens=SPECIALS, num_threads=2, progress=None
            )

            def ids(text: str, specials: list[str], tok: gm.Tokenizer = tok, pattern: str = pattern) -> list[int]:
                return encode_plainly(text, tok.merges, pattern=pattern, special_tokens=specials)

            self.pools.append((tok, [Sample(text, ids(text, []), ids(text, SPECIALS)) for text in texts]))

    def work(self, source: random.Random, thread: int) -> str:
        """Call one of the methods below with a random tokenizer and random texts of the pool."""
        tok, pool = source.choice(self.pools)
        samples = source.choices(pool, k=source.choice([1, 1, 1, 5, 40, 200]))
        name = source.choice(OPERATIONS)
        getattr(self, f"_{name}")(source, tok, samples)
        return name

    def _encode(self, source: random.Random, tok: gm.Tokenizer, samples: list[Sample]) -> None:
        for sample in samples:
            check_equal(tok.encode(sample.text), sample.plain, "encode")
            check_equal(tok.encode(sample.text.encode(), allowed_special="all"), sample.special, "encode of bytes")
            check_equal(tok.encode_array(sample.text, num_threads=2).tolist(), sample.plain, "encode_array")
            check_equal(tok.count_tokens(sample.text), len(sample.plain), "count_tokens")

    def _refuse_specials(self, source: random.Random, tok: gm.Tokenizer, samples: list[Sample]) -> None:
        for sample in samples:
            try:
                ids = tok.encode(sample.text, disallowed_special="all")
            except gm.SpecialTokenError:
                check_equal(sample.special != sample.plain, True, "refused, although the text has no special token")
            else:
                check_equal(ids, sample.special, "a special token in the text was not refused")

    def _batch(self, source: random.Random, tok: gm.Tokenizer, samples: list[Sample]) -> None:
        texts = [sample.text for sample in samples]
        rows = tok.encode_batch(texts, num_threads=source.choice([None, 1, 3]))
        check_equal(rows.tolist(), [sample.plain for sample in samples], "encode_batch")
        lists = tok.encode_batch(texts, allowed_special="all", as_lists=True)
        check_equal(lists, [sample.special for sample in samples], "encode_batch with special tokens")
        check_equal(tok.decode_batch(rows), texts, "decode_batch")

    def _chunks(self, source: random.Random, tok: gm.Tokenizer, samples: list[Sample]) -> None:
        data = samples[0].text.encode()
        cuts = sorted(source.randrange(len(data) + 1) for _ in range(10))
        chunks = [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        ids = list(tok.encode_iterable(chunks, allowed_special="all"))
        check_equal(ids, samples[0].special, "encode_iterable")

    def _decode(self, source: random.Random, tok: gm.Tokenizer, samples: list[Sample]) -> None:
        for sample in samples:
            check_equal(tok.decode(sample.special), sample.text, "decode")
            kept = [id for id in sample.special if id not in tok.special_tokens.values()]
            check_equal(tok.decode(sample.special, skip_special=True), tok.decode(kept), "decode without specials")
        check_equal(b"".join(map(tok.token_bytes, sample.plain)), sample.text.encode(), "token_bytes")

    def _stream(self, source: random.Random, tok: gm.Tokenizer, samples: list[Sample]) -> None:
        decoder = tok.stream_decoder()
        for sample in samples:
            found, ids = "", sample.special
            while ids:
                number = source.randrange(1, 9)
                found, ids = found + decoder.push(ids[:number]), ids[number:]
            check_equal(found + decoder.finish(), sample.text, "stream_decoder")

    def _offsets(self, source: random.Random, tok: gm.Tokenizer, samples: list[Sample]) -> None:
        found = tok.encode_with_offsets(samples[0].text)
        data = samples[0].text.encode()
        check_equal(found.ids.tolist(), samples[0].plain, "encode_with_offsets")
        parts = [data[begin:end] for begin, end in found.byte_spans.tolist()]
        check_equal(parts, list(map(tok.token_bytes, samples[0].plain)), "byte_spans")

    def _dropout(self, source: random.Random, tok: gm.Tokenizer, samples: list[Sample]) -> None:
        seed, text = source.randrange(1_000), samples[0].text
        ids = tok.encode(text, dropout=0.3, seed=seed)
        check_equal(tok.decode(ids), text, "decode after dropout")
        check_equal(tok.encode(text, dropout=0.3, seed=seed), ids, "dropout with the same seed")

    def _fresh(self, source: random.Random, tok: gm.Tokenizer, samples: list[Sample]) -> None:
        """Texts that no cache has seen, so that entries of the caches are replaced."""
        texts = [f"{source.getrandbits(60):x} {source.getrandbits(90):o} q{source.random()}" for _ in samples]
        rows = tok.encode_batch(texts)
        check_equal(tok.decode_batch(rows), texts, "decode of fresh texts")
        check_equal(rows.tolist(), [tok.encode(text) for text in texts], "encode of fresh texts")

    def _copy(self, source: random.Random, tok: gm.Tokenizer, samples: list[Sample]) -> None:
        copy = pickle.loads(pickle.dumps(tok))
        check_equal(copy.fingerprint, tok.fingerprint, "fingerprint of a copy")
        check_equal(copy.encode(samples[0].text), samples[0].plain, "encode of a copy")


OPERATIONS = (
    "encode",
    "refuse_specials",
    "batch",
    "chunks",
    "decode",
    "stream",
    "offsets",
    "dropout",
    "fresh",
    "copy",
)
