"""Seven programs that train BPE on a file, each with one more optimization.

Read them in this order. Each docstring says what the program does, what it costs and why the next one is better.

    naive.py                    (a) recounts all pairs before every merge, in one process
    pool_for_every_merge.py     (b) starts a process pool for every merge, with one task per word
    one_pool.py                 (c) reuses one pool
    batches.py                  (d) sends batches of words instead of single words
    rare_words.py               (e) drops rare words; the only program that may learn other merges
    inverted_index.py           (f) updates the counts of the words that contain the merged pair, and of no others
    parallel_counting.py        (g) counts the words of chunks of the file in parallel
    training.py                 `train`: runs a program and times its stages

All programs read the file in the same way: documents end at `<|endoftext|>`, the pattern is that of GPT-2, an invalid
UTF-8 byte is a character of its own, and among pairs with equal counts the greatest bytes win. So all of them, except
(e), return the merges of `gristmill.reference.train` and of the native core.

>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     path = Path(folder) / "corpus.txt"
...     _ = path.write_text("low low low<|endoftext|>lower lowest")
...     train(PROGRAMS["f"], path, 260).merges
[(b'o', b'w'), (b'l', b'ow'), (b' ', b'low')]
"""

from gristmill.reference.ablation import (
    batches,
    inverted_index,
    naive,
    one_pool,
    parallel_counting,
    pool_for_every_merge,
    rare_words,
)
from gristmill.reference.ablation.training import Program, Training, train

__all__ = ["PROGRAMS", "Program", "Training", "train"]

PROGRAMS = {
    program.letter: program
    for program in (
        Program("a", "naive, one process", naive.count_words, naive.learn_merges),
        Program("b", "a process pool for every merge", naive.count_words, pool_for_every_merge.learn_merges),
        Program("c", "one process pool", naive.count_words, one_pool.learn_merges),
        Program("d", "+ batches of words", naive.count_words, batches.learn_merges),
        Program("e", "+ rare words dropped", rare_words.count_words, batches.learn_merges, is_exact=False),
        Program("f", "incremental counts, inverted index", naive.count_words, inverted_index.learn_merges),
        Program("g", "+ parallel pretokenization", parallel_counting.count_words, inverted_index.learn_merges),
    )
}
