"""Run code written for minbpe, CS336 or tiktoken by changing the import. Takes a second."""

import tempfile
from pathlib import Path

from gristmill.compat.cs336 import Tokenizer, train_bpe
from gristmill.compat.minbpe import RegexTokenizer
from gristmill.compat.tiktoken import Encoding
from gristmill.sample_corpus import write_sample_corpus

END = "<|endoftext|>"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "stories.txt")
        write_sample_corpus(corpus, size=1_000_000, seed=0)

        tokenizer = RegexTokenizer()
        tokenizer.train(corpus.read_text(encoding="utf-8"), vocab_size=512)
        tokenizer.register_special_tokens({END: 512})
        print("minbpe:", tokenizer.encode(f"A small dog.{END}", allowed_special="all"))

        vocab, merges = train_bpe(corpus, vocab_size=1_000, special_tokens=[END])
        student = Tokenizer(vocab, merges, special_tokens=[END])
        with corpus.open(encoding="utf-8") as lines:
            print("CS336:", sum(1 for _ in student.encode_iterable(lines)), "ids")

        enc = Encoding(student.tokenizer, name="stories")
        print("tiktoken:", enc.encode("A small dog."), enc.n_vocab, enc.eot_token)


if __name__ == "__main__":
    main()
