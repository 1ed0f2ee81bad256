"""Encode and decode one text, a batch, a stream and a file. Takes a second."""

import tempfile
from pathlib import Path

import gristmill as gm
from gristmill.sample_corpus import write_sample_corpus

END = "<|endoftext|>"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "stories.txt")
        write_sample_corpus(corpus, size=3_000_000, seed=0)
        tok = gm.train_tokenizer(corpus, vocab_size=4_000, special_tokens=[END])

        print("one text:", tok.encode("A small dog found 3 red apples."))
        print("its length:", tok.count_tokens("A small dog found 3 red apples."), "tokens")

        batch = tok.encode_batch(["A small dog.", "Three red apples fell down.", ""], max_tokens=5)
        ids, mask = batch.padded(tok.special_tokens[END])
        print("a batch, truncated and padded:", ids.tolist(), mask.sum(axis=1).tolist())

        with corpus.open(encoding="utf-8") as lines:  # only a few KB are in memory at a time
            num_ids = sum(1 for _ in tok.encode_iterable(lines, allowed_special="all"))
        whole = tok.encode_file(corpus, allowed_special="all")  # the whole file, on all cores
        print(f"the file: {len(whole):,} ids of {whole.dtype}, as a stream {num_ids:,}")
        assert len(whole) == num_ids
        assert tok.decode_bytes(whole) == corpus.read_bytes()

        decoder = tok.stream_decoder()  # returns whole characters as ids arrive
        print("a stream:", "|".join(decoder.push(id) for id in tok.encode("naïve 東京")) + decoder.finish())


if __name__ == "__main__":
    main()
