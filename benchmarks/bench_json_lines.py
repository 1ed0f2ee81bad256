"""Extract one field of JSON lines with the core and with JSON libraries, on one thread, with equal output.

Every system gets 2 MiB of whole lines at a time and returns the concatenated texts as UTF-8 with the end of each. The
output is compared before timing. The systems run in alternation. The time is CPU time of the thread, so that other
processes do not matter.

    python benchmarks/bench_json_lines.py                    100 MB of the English corpus, five rounds
    python benchmarks/bench_json_lines.py --corpus PATH --megabytes 10 --rounds 3
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from gristmill import _core
from gristmill.bench import corpora
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, middle_and_spread, write_result
from results_folder import RESULTS

Texts: TypeAlias = tuple[bytes | NDArray[np.uint8], NDArray[np.int64]]
CHUNK_BYTES = 2 << 20


def _two_fields(index: int, text: str, rng: random.Random) -> dict[str, object]:
    return {"id": index, "text": text}


def _many_fields(index: int, text: str, rng: random.Random) -> dict[str, object]:
    """Return records in which more than half of the bytes are not text, as in a web crawl with metadata."""
    others = {f"field_{k}": rng.choice([k, k / 7, True, None, f"value {k}"]) for k in range(40)}
    meta = {"lang": "en", "score": rng.random(), "ids": [rng.randrange(10**6) for _ in range(20)]}
    return {"url": f"https://example.org/{index}", "meta": meta, **others, "title": text[:40], "text": text}


SHAPES = {"2 fields": _two_fields, "44 fields": _many_fields}


class _Record(msgspec.Struct):
    text: str


_RECORDS = msgspec.json.Decoder(_Record)
_PARSER = simdjson.Parser()


def _core_extract(lines: bytes) -> Texts:
    texts, _, ends, _, problem = _core.extract_json(lines, b"text")
    if problem is not None:
        raise ValueError(f"the core refuses line {problem}")
    return texts, ends


def _joined(texts: list[bytes]) -> Texts:
    return b"".join(texts), np.cumsum([len(text) for text in texts])


def _orjson(lines: bytes) -> Texts:
    return _joined([orjson.loads(line)["text"].encode() for line in lines.splitlines()])


def _msgspec(lines: bytes) -> Texts:
    return _joined([record.text.encode() for record in _RECORDS.decode_lines(lines)])


def _pysimdjson(lines: bytes) -> Texts:
    texts = []
    for line in lines.splitlines():
        document: Any = _PARSER.parse(line)
        texts.append(document["text"].encode())
        del document  # the parser cannot parse another line while one is in use
    return _joined(texts)


SIDES: dict[str, Callable[[bytes], Texts]] = {
    "gristmill": _core_extract,
    "msgspec decode_lines": _msgspec,
    "pysimdjson": _pysimdjson,
    "orjson": _orjson,
}


def main() -> int:
    """Compare, measure, show, write."""
    options = _options()
    stories = corpora.resolve(options.corpus).path.read_text(encoding="utf-8").split("<|endoftext|>")
    rows: list[list[str]] = []
    runs: dict[str, dict[str, list[float]]] = {}
    for shape, make in SHAPES.items():
        chunks = _chunks(_lines(stories, make, options.megabytes * 1_000_000))
        _compare(chunks)
        seconds = _measure(chunks, options.rounds)
        rates = {side: [sum(map(len, chunks)) / t / 1e6 for t in times] for side, times in seconds.items()}
        rows += [[side, shape, *middle_and_spread(values, digits=0)] for side, values in rates.items()]
        runs[shape] = seconds
    table = markdown_table(["side", "records", "MB/s", "min–max"], rows)
    print(table)
    about = describe_run(["gristmill", "msgspec", "pysimdjson", "orjson"])
    title = "One field of JSON lines: one thread, median MB/s of CPU time"
    if options.output is not None:
        write_result("json_lines", title=title, about=about, body=table, data={"runs": runs}, folder=options.output)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="english", help=f"{','.join(corpora.NAMES)} | PATH")
    parser.add_argument("--megabytes", type=int, default=100, help="megabytes of JSON lines (default: 100)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per system (default: 5)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the table (default: results)")
    return parser.parse_args()


def _lines(stories: Sequence[str], make: Callable[..., dict[str, object]], num_bytes: int) -> bytes:
    rng = random.Random(0)
    lines = bytearray()
    for index, story in enumerate(cycle(stories)):
        if len(lines) >= num_bytes:
            return bytes(lines)
        lines += json.dumps(make(index, story, rng)).encode() + b"\n"
    return bytes(lines)


def _chunks(lines: bytes) -> list[bytes]:
    def cut() -> Iterator[bytes]:
        begin = 0
        while begin < len(lines):
            end = begin + CHUNK_BYTES
            end = len(lines) if end >= len(lines) else lines.rindex(b"\n", begin, end) + 1
            yield lines[begin:end]
            begin = end

    return list(cut())


def _compare(chunks: Sequence[bytes]) -> None:
    for chunk in chunks:
        expected, expected_ends = _core_extract(chunk)
        for side, extract in SIDES.items():
            texts, ends = extract(chunk)
            if bytes(texts) != bytes(expected) or not np.array_equal(ends, expected_ends):
                raise ValueError(f"{side} finds other texts")


def _measure(chunks: Sequence[bytes], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side, extract in SIDES.items():
            start = time.thread_time()
            for chunk in chunks:
                extract(chunk)
            seconds[side].append(time.thread_time() - start)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
