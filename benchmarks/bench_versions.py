"""Compare two versions of Gristmill, task by task, to check that a refactoring changes neither results nor speed.

    pip install . --target /tmp/old             the old version, from its own checkout
    python benchmarks/bench_versions.py --old /tmp/old
    python benchmarks/bench_versions.py --old /tmp/old --tasks encode_corpus,short --rounds 9

Each measurement is a fresh process, with the versions in alternation. Their output is compared too: a difference is
reported in the table, with exit code 1. No result is written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from gristmill.bench import corpora
from gristmill.bench.tables import markdown_table

ROOT = Path(__file__).resolve().parent.parent
NUM_SHORT = 200_000


def main() -> int:
    """Measure, and print a table. Return 1 if the outputs of the versions differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, type=Path, help="folder with the old package `gristmill`")
    parser.add_argument("--new", type=Path, help="folder with the new package; default: the installed one")
    parser.add_argument("--corpus", default="english")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows, differ = [], False
    corpus = corpora.resolve(arguments.corpus)
    corpus.distinct_byte_values()  # reads the file into the page cache
    for task in arguments.tasks.split(","):
        samples: dict[str, list[dict[str, Any]]] = {"old": [], "new": []}
        for number in range(arguments.rounds):
            for version in ("old", "new") if number % 2 else ("new", "old"):
                folder = getattr(arguments, version)
                samples[version].append(_measure(folder, task, corpus.path, arguments.threads))
        digests = {sample["digest"] for version in samples.values() for sample in version}
        differ |= len(digests) > 1
        rows.append(_row(task, samples, same=len(digests) == 1))
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    header = ["task", "old s", "new s", "old / new", "spread old", "spread new", "CPU old", "CPU new", "output"]
    print(markdown_table(header, rows))
    return int(differ)


def _row(task: str, samples: dict[str, list[dict[str, Any]]], *, same: bool) -> list[str]:
    seconds = {version: [sample["seconds"] for sample in runs] for version, runs in samples.items()}
    cpu = {version: median(sample["cpu_seconds"] for sample in runs) for version, runs in samples.items()}
    middle = {version: median(values) for version, values in seconds.items()}
    spread = {version: f"{min(values):.4f}–{max(values):.4f}" for version, values in seconds.items()}
    return [
        task,
        f"{middle['old']:.4f}",
        f"{middle['new']:.4f}",
        f"{middle['old'] / middle['new']:.3f}",
        spread["old"],
        spread["new"],
        f"{cpu['old']:.3f}",
        f"{cpu['new']:.3f}",
        "same" if same else "DIFFERENT",
    ]


def _measure(folder: Path | None, task: str, corpus: Path, num_threads: int) -> dict[str, Any]:
    environment = dict(os.environ)
    if folder is not None:
        environment["PYTHONPATH"] = str(folder.resolve())
    command = [sys.executable, __file__, "--child", task, str(corpus), str(num_threads)]
    child = subprocess.run(command, env=environment, capture_output=True, check=True, cwd=ROOT)
    return dict(json.loads(child.stdout.splitlines()[-1]))


# The tasks. Each takes the corpus and the number of threads, prepares, and returns the function to measure.

Work = Callable[[], Any]


def _import(corpus: Path, num_threads: int) -> Work:
    return lambda: __import__("gristmill").__version__


def _train(corpus: Path, num_threads: int) -> Work:
    import gristmill as gm

    options: dict[str, Any] = {"special_tokens": ["<|endoftext|>"], "num_threads": num_threads, "progress": None}
    return lambda: gm.train_tokenizer(corpus, vocab_size=32_000, **options).merge_ids


def _count(corpus: Path, num_threads: int) -> Work:
    import gristmill as gm

    options: dict[str, Any] = {"special_tokens": ["<|endoftext|>"], "num_threads": num_threads, "progress": None}
    return lambda: gm.count_words(corpus, **options).most_common(1000)


def _tokenizer(corpus: Path) -> Any:
    """Return a tokenizer trained on the first megabytes, the same for both versions."""
    import gristmill as gm

    with corpus.open("rb") as file:
        text = file.read(4_000_000)
    return gm.train_tokenizer([text], vocab_size=16_000, special_tokens=["<|endoftext|>"], progress=None)


def _encode(corpus: Path, num_threads: int) -> Work:
    tok, data = _tokenizer(corpus), corpus.read_bytes()
    return lambda: tok.encode_array(data, allowed_special="all", num_threads=num_threads)


def _encode_batch(corpus: Path, num_threads: int) -> Work:
    tok, texts = _tokenizer(corpus), corpus.read_text(encoding="utf-8")[:20_000_000].splitlines()
    return lambda: tok.encode_batch(texts, disallowed_special=(), num_threads=num_threads).ids


def _encode_file(corpus: Path, num_threads: int) -> Work:
    tok = _tokenizer(corpus)
    return lambda: tok.encode_file(corpus, allowed_special="all", num_threads=num_threads)


def _encode_corpus(corpus: Path, num_threads: int) -> Work:
    import gristmill as gm

    tok, out = _tokenizer(corpus), Path(tempfile.mkdtemp(dir=corpora.cache_folder()))
    tok.encode("a")  # the encoder is built

    def encode() -> Path:
        options: dict[str, Any] = {"val_fraction": 0.01, "num_threads": num_threads, "progress": None}
        gm.encode_corpus(corpus, tok, out=out / "shards", **options)
        return out

    return encode


def _decode(corpus: Path, num_threads: int) -> Work:
    tok = _tokenizer(corpus)
    ids = tok.encode_file(corpus, allowed_special="all")
    return lambda: tok.decode_bytes(ids)


def _regex(corpus: Path, num_threads: int) -> Work:
    """A pattern without a native matcher, on many short texts and one thread."""
    import gristmill as gm

    tok = gm.Tokenizer([(b"a", b"n")], pattern=r"\p{L}+|\p{N}|[^\p{L}\p{N}]+")
    texts = corpus.read_text(encoding="utf-8")[:4_000_000].splitlines()
    return lambda: tok.encode_batch(texts, disallowed_special=(), num_threads=1).ids


def _short(corpus: Path, num_threads: int) -> Work:
    tok = _tokenizer(corpus)
    return lambda: [tok.encode("Once upon a time, in") for _ in range(NUM_SHORT)][-1]


def _load(corpus: Path, num_threads: int) -> Work:
    import gristmill as gm

    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "tok.json"
    _tokenizer(corpus).save(path)

    def load() -> Any:
        with folder:
            return [gm.Tokenizer.load(path).encode("Once upon") for _ in range(10)]

    return load


def _digest(made: Any) -> str:
    """Return the SHA-256 of the output of a task; removes an output folder."""
    if isinstance(made, Path):
        files = [path for path in sorted(made.rglob("*")) if path.is_file()]
        data = b"".join(path.name.encode() + path.read_bytes() for path in files)
        shutil.rmtree(made)
    else:
        data = made.tobytes() if hasattr(made, "tobytes") else repr(made).encode()
    return hashlib.sha256(data).hexdigest()


TASKS: dict[str, Callable[[Path, int], Work]] = {
    "import": _import,
    "train": _train,
    "count": _count,
    "encode": _encode,
    "encode_batch": _encode_batch,
    "encode_file": _encode_file,
    "encode_corpus": _encode_corpus,
    "decode": _decode,
    "short": _short,
    "regex": _regex,
    "load": _load,
}


def _child(task: str, corpus: str, num_threads: str) -> None:
    work = TASKS[task](Path(corpus), int(num_threads))
    cpu, wall = time.process_time(), time.perf_counter()
    made = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "digest": _digest(made)}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(*sys.argv[2:5])
    else:
        sys.exit(main())
