"""Encode texts on which quadratic or recursive encoders fail: megabytes without any place to cut.

Each text is encoded cold, on one thread, in fresh processes with a time-out and a memory limit. If a system fails
(time-out, panic, other ids), its column has the reason instead of a number. Ids are compared with tiktoken's, or with
those of tokenizers or gristmill if tiktoken fails.

    python benchmarks/bench_encode_hostile.py                           all texts of 1 and 10 MB, gpt2
    python benchmarks/bench_encode_hostile.py --texts letter,spaces --sizes 1 --timeout 5
"""

import argparse
import base64
import random
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from gristmill.bench.adapters import Adapter, find_adapters
from gristmill.bench.contest import OURS, Entry, Rounds, attempt
from gristmill.bench.encode import OTHER_IDS, PACKAGE, REFERENCE, Expected, find_entries
from gristmill.bench.encoders import SYSTEMS, vocabularies
from gristmill.bench.encoders.passes import EncodeJob
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from results_folder import RESULTS

MEMORY_LIMIT_BYTES = 12 << 30
REFERENCES = (REFERENCE, "tokenizers", OURS)


def _random_characters(num_bytes: int) -> bytes:
    """Return random assigned characters. Only systems with newer Unicode tables treat an unassigned one as a letter."""
    assigned = [chr(i) for i in range(0x20, 0x110000) if unicodedata.category(chr(i)) not in ("Cn", "Co", "Cs")]
    text = "".join(random.Random(3).choices(assigned, k=num_bytes // 2)).encode()
    return text[:num_bytes].decode(errors="ignore").encode()


def _cjk_run(num_bytes: int) -> bytes:
    rng = random.Random(4)
    return "".join(chr(rng.randrange(0x4E00, 0x9FA6)) for _ in range(num_bytes // 3)).encode()


def _base64_run(num_bytes: int) -> bytes:
    return base64.b64encode(random.Random(5).randbytes(num_bytes * 3 // 4))


TEXTS: dict[str, Callable[[int], bytes]] = {
    "letter": lambda num_bytes: b"a" * num_bytes,
    "spaces": lambda num_bytes: b" " * num_bytes,
    "newlines": lambda num_bytes: b"\n" * num_bytes,
    "carets": lambda num_bytes: b"^" * num_bytes,
    "contractions": lambda num_bytes: b"'s" * (num_bytes // 2),
    "cjk": _cjk_run,
    "base64": _base64_run,
    "random characters": _random_characters,
    "random bytes": lambda num_bytes: random.Random(6).randbytes(num_bytes),
}


def main() -> int:
    """Measure, compare, show, write."""
    options = _options()
    adapters = find_adapters(options.systems, package=PACKAGE, known=SYSTEMS)
    with tempfile.TemporaryDirectory() as folder:
        files = vocabularies.prepare(options.vocabulary, Path(folder))
        results = [
            found
            for text in options.texts
            for found in _measure_text(text, str(files.description), Path(folder), adapters, options)
        ]
    _report(results, adapters, options)
    return 1 if any(entry.system == OURS and entry.problem for found in results for entry in found.entries) else 0


@dataclass(frozen=True)
class Found:
    """One text of one size, and the result of each system."""

    text: str
    num_bytes: int
    entries: list[Entry]

    @property
    def megabytes(self) -> str:
        """For a table."""
        return f"{self.num_bytes / 1e6:.0f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--texts", type=lambda text: text.split(","), default=list(TEXTS), help=",".join(TEXTS))
    add("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=[1, 10], help="in MB (default: 1,10)")
    add("--vocabulary", choices=("gpt2", "cl100k"), default="gpt2")
    add("--systems", type=lambda text: text.split(","), default=list(SYSTEMS), help=",".join(SYSTEMS))
    add("--rounds", type=int, default=3, help="runs per text and system; the table has the median (default: 3)")
    add("--timeout", type=float, default=20, help="time limit of one text in seconds, including loading (default: 20)")
    add("--output", type=Path, default=RESULTS, help="folder for the tables (default: the committed one)")
    options = parser.parse_args()
    if unknown := set(options.texts) - set(TEXTS):
        parser.error(f"unknown text {', '.join(sorted(unknown))}. Known: {', '.join(TEXTS)}.")
    return options


def _measure_text(
    text: str, vocabulary: str, folder: Path, adapters: Sequence[Adapter], options: argparse.Namespace
) -> Iterator[Found]:
    """Yield the sizes from small to large; a system that timed out on a smaller text is not run on a larger one."""
    given_up: dict[str, str] = {}
    for size in sorted(options.sizes):
        path = folder / f"{text.replace(' ', '_')}_{size}MB.txt"
        path.write_bytes(TEXTS[text](size * 10**6))
        print(f"{text}, {size} MB", file=sys.stderr)
        job = EncodeJob("", "", str(path), vocabulary, 1, 0, memory_limit_bytes=MEMORY_LIMIT_BYTES)
        entries = _whole_text_entries(adapters, job, options)
        for entry in entries:
            if entry.system in given_up:
                entry.problem = f"not tried: {given_up[entry.system]} on the smaller text"
            for _ in range(options.rounds):
                if entry.problem is None and (sample := attempt(entry, entry.name)) is not None:
                    entry.runs.append(sample)
            if entry.problem is not None and entry.problem.startswith("timed out"):
                given_up[entry.system] = entry.problem
        finished = {entry.system: entry for entry in entries if entry.runs}
        _judge(entries, next((finished[name] for name in REFERENCES if name in finished), None))
        yield Found(text, path.stat().st_size, entries)


def _whole_text_entries(adapters: Sequence[Adapter], job: EncodeJob, options: argparse.Namespace) -> list[Entry]:
    """Return, for each system, the API that takes one whole text."""
    first = {adapter.system: next(iter(adapter.facts.get("APIS", {"": None}))) for adapter in adapters}
    rounds = Rounds(options.rounds, options.rounds, timeout_seconds=options.timeout)
    entries = find_entries(options.systems, adapters, job, Expected(None, ""), rounds)
    return [entry for entry in entries if entry.form == first[entry.system]]


def _judge(entries: Sequence[Entry], reference: Entry | None) -> None:
    """Mark every entry whose ids differ from the reference, or from run to run."""
    for entry in entries:
        digests = {run.facts["digest"] for run in entry.runs}
        if entry.is_measured and reference is not None and digests != {reference.runs[0].facts["digest"]}:
            entry.problem = OTHER_IDS


def _report(results: Sequence[Found], adapters: Sequence[Adapter], options: argparse.Namespace) -> None:
    title = f"Encoding hostile texts: {options.vocabulary}, one thread, cold, median MB/s"
    body = "\n\n".join(
        filter(None, [_table(results), _explained(options.timeout), _growth(results), _problems(results)])
    )
    print(f"{title}\n\n{body}")
    about = {"vocabulary": options.vocabulary}
    about |= describe_run(adapter.distribution for adapter in adapters)
    texts = [
        {"text": found.text, "num_bytes": found.num_bytes, "systems": list(map(_as_data, found.entries))}
        for found in results
    ]
    name = f"encode_hostile_{options.vocabulary}"
    write_result(name, title=title, about=about, body=body, data={"texts": texts}, folder=options.output)


def _table(results: Sequence[Found]) -> str:
    """One column for every system that encoded anything."""
    able = {entry.system for found in results for entry in found.entries if entry.runs}
    systems = [entry.system for entry in results[0].entries if entry.system in able]
    rows = [
        [found.text, found.megabytes, *(_cell(found, entry) for entry in found.entries if entry.system in systems)]
        for found in results
    ]
    return markdown_table(["text", "MB", *systems], rows)


def _cell(found: Found, entry: Entry) -> str:
    if entry.problem is None:
        return f"{found.num_bytes / 1e6 / median(entry.seconds):.1f}"
    words = ("timed out", "not tried", OTHER_IDS, "crash", "not installed")
    if word := next((word for word in words if entry.problem.startswith(word)), None):
        return "" if word == "not tried" else word
    return "panic" if "Panic" in entry.problem else "error" if entry.problem.startswith("failed") else "cannot"


def _growth(results: Sequence[Found]) -> str:
    """Describe how gristmill's time grows with the size: 10 times the text should take 10 times as long."""
    seconds: dict[str, dict[int, float]] = {}
    for found in results:
        for entry in found.entries:
            if entry.system == OURS and entry.runs:
                seconds.setdefault(found.text, {})[found.num_bytes] = median(entry.seconds)
    grown = [
        f"{text} {took[max(took)] / took[min(took)]:.1f}x for {max(took) / min(took):.0f}x the text"
        for text, took in seconds.items()
        if len(took) > 1
    ]
    return f"Time of {OURS}: " + "; ".join(grown) + "." if grown else ""


def _explained(timeout: float) -> str:
    return (
        f"Time-out: {timeout:.0f} s for one text, loading included; a system that exceeds it is not run on larger "
        f"texts. Memory: {MEMORY_LIMIT_BYTES >> 30} GiB. Random bytes are not UTF-8: systems that take `str` cannot "
        "encode them, and there is no common rule for their ids."
    )


def _problems(results: Sequence[Found]) -> str:
    """List every problem once, with the texts on which it occurred."""
    where: dict[tuple[str, str], list[str]] = {}
    for found in results:
        for entry in found.entries:
            if entry.problem and not entry.problem.startswith("not tried"):
                where.setdefault((entry.system, entry.problem), []).append(f"{found.text} {found.megabytes} MB")
    lines = [
        f"* {system}, {'every text' if len(texts) == len(results) else ', '.join(texts)}: {problem}."
        for (system, problem), texts in where.items()
    ]
    return "What happened:\n" + "\n".join(lines) if lines else ""


def _as_data(entry: Entry) -> dict[str, object]:
    return {"system": entry.system, "api": entry.form, "problem": entry.problem, "runs": list(map(asdict, entry.runs))}


if __name__ == "__main__":
    sys.exit(main())
