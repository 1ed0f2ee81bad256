"""Count two corpora once, add the tables, and train several tokenizers from the sum. Counting is most of the work."""

import gristmill as gm
from gristmill.sample_corpus import stories


def main() -> None:
    tales = stories(seed=0)
    monday = [next(tales) for _ in range(500)]
    tuesday = [next(tales) for _ in range(500)]

    words = gm.count_words(monday) + gm.count_words(tuesday)
    print(f"{len(words):,} words, {words.num_pieces:,} pieces; the most frequent: {words.most_common(3)}")

    for vocab_size in (500, 1_000, 2_000):
        tok = gm.train_tokenizer(words, vocab_size=vocab_size)
        num_tokens = sum(len(tok.encode(text, allowed_special="all")) for text in monday)
        num_bytes = sum(len(text.encode()) for text in monday)
        print(f"vocab_size {vocab_size:5,}: {num_bytes / num_tokens:.2f} bytes per token")


if __name__ == "__main__":
    main()
