"""The interpreter exits while a daemon thread is inside native work: status 0 and no message."""

import sys

import pytest

from scripts import run_script

# A daemon thread that asks for the GIL while the interpreter exits is ended on the spot, up to Python 3.13 by unwinding
# its stack. The unwinding must not reach a destructor, a catch-all or the threads of the core.
SCRIPT = """
    import itertools, sys, threading, time
    import numpy as np
    import gristmill as gm
    from gristmill import _core
    from gristmill.shards.verify import verify_shards

    merges = np.array([[97, 97, 256], [256, 256, 257], [257, 257, 258]], np.uint32)
    encoder = _core.Encoder(byte_ids=np.arange(256, dtype=np.uint32), merges=merges, pattern="gpt2")
    rule = encoder.special_rule([], [])
    one_piece = b"a" * 8_000_000
    text = b" ".join(b"%x" % (i * 7919) for i in range(600_000))
    spans = np.array([0], np.int64), np.array([len(text)], np.int64)
    words = gm.count_words([text[:1_000_000]], progress=None)
    lines = b'{"text": "abc"}\\n' * 500_000
    ids = np.full(8_000_000, 97, np.uint32)
    in_parts = {"before": False, "continued": False, "unfinished": False}
    table, cancellation = words.table, _core.Cancellation()

    corpus, numbers = sys.argv[2] + "/corpus.jsonl", itertools.count()
    with open(corpus, "wb") as file:
        file.write(lines)
    tok = gm.train_tokenizer(["warm up"], vocab_size=257, special_tokens=["<|endoftext|>"], progress=None)
    if sys.argv[1] == "verify":
        gm.encode_corpus(corpus, tok, out=sys.argv[2] + "/shards", progress=None)

    def encode_corpus():
        gm.encode_corpus(corpus, tok, out=f"{sys.argv[2]}/{next(numbers)}", num_threads=3, progress=None)

    def count(on_progress=None, **options):
        counter = _core.Counter(pattern="gpt2", num_threads=3, on_progress=on_progress, **options)
        counter.add_texts([text])
        counter.finish()

    def documents():
        encoder.encode_documents(text, *spans, rule, end_of_text=None, cancellation=cancellation, **in_parts)

    def tell(*figures):
        for _ in range(100_000):  # long enough for the interpreter to switch threads, here in the callback
            pass

    calls = {
        "count": count,
        "on_progress": lambda: count(tell),
        "count_words": lambda: gm.count_words([text], num_threads=3, progress=None),
        "count_lines": lambda: gm.count_words(corpus, num_threads=3, memory_limit=40 << 20, progress=None),
        "train_tokenizer": lambda: gm.train_tokenizer([text], vocab_size=20_000, num_threads=3, progress=None),
        "learn_merges": lambda: _core.learn_merges(table, num_merges=50_000, num_threads=3, loop="rounds"),
        "joined": lambda: table.joined(table),
        "at_least": lambda: table.at_least(2),
        "encode": lambda: encoder.encode(text[:100_000], rule),
        "encode_array": lambda: encoder.encode_array(one_piece, rule, 3),
        "encode_batch": lambda: encoder.encode_batch([one_piece, text, one_piece], rule, 3),
        "encode_documents": documents,
        "encode_corpus": encode_corpus,
        "verify": lambda: verify_shards(sys.argv[2] + "/shards"),
        "count_tokens": lambda: encoder.count_tokens(text, rule, 3),
        "encode_dropout": lambda: encoder.encode_dropout(text, rule, 0.1, 1),
        "decode_bytes": lambda: encoder.decode_bytes(ids),
        "last_cut": lambda: encoder.last_cut(one_piece, 0, rule),
        "extract_json": lambda: _core.extract_json(lines, b"text"),
        "split_spans": lambda: _core.split_spans(text, b" "),
        "find_pieces": lambda: _core.find_pieces(text, "gpt2"),
        "xxh64": lambda: _core.xxh64(text),
    }
    call = calls[sys.argv[1]]

    class Slow:
        def __del__(self, sleep=time.sleep):
            sleep(0.4)  # the interpreter exits meanwhile, and the GIL is free

    slow = Slow()
    begun = threading.Event()

    def repeat():
        begun.set()
        while True:
            call()

    threading.Thread(target=repeat, daemon=True).start()
    begun.wait()
    time.sleep(0.05)
"""
CALLS = [line.split('"')[1] for line in SCRIPT.splitlines() if line.startswith(" " * 8 + '"')]


@pytest.mark.skipif(sys.platform == "win32", reason="no pthreads")
@pytest.mark.parametrize("call", CALLS)
def test_an_interpreter_that_exits_during_native_work_in_a_daemon_thread_does_not_abort(call, tmp_path):
    done = run_script(SCRIPT, call, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_native_work_in_a_destructor_while_the_interpreter_exits_still_gives_its_result():
    # The thread that ends the interpreter may take the GIL again; blocking every thread would hang the process here.
    script = """
        import os
        import numpy as np
        from gristmill import _core

        no_merges = np.empty((0, 3), np.uint32)
        encoder = _core.Encoder(byte_ids=np.arange(256, dtype=np.uint32), merges=no_merges, pattern="gpt2")
        rule = encoder.special_rule([], [])

        class Late:
            def __del__(self, xxh64=_core.xxh64, encode=encoder.encode, rule=rule, write=os.write):
                write(1, b"%016x %d" % (xxh64(b"abc"), len(encode(b"a " * 1_000_000, rule))))

        late = Late()
    """
    done = run_script(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "44bc2cf5ad770999 2000000", "")
