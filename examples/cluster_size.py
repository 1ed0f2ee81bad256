"""Calculate the parts, memory, disk and time that a corpus needs on a cluster. Starts nothing.

    python examples/cluster_size.py                                        1 TB and 10 TB on 10 and 100 nodes
    python examples/cluster_size.py --corpus-size 3TB --nodes 4,8 --cores 64 --network-rate 3000

The default rates were measured with English text and the gpt2 pattern, per core, with all cores busy, on a machine with
16 cores (Intel Xeon) or with 2 (AMD EPYC). Measure your own with `--profile` on a few GB, on one node, and pass them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

MB, GB, TB = 10**6, 10**9, 10**12
UNITS = {"KB": 10**3, "MB": MB, "GB": GB, "TB": TB, "PB": 10**15}


@dataclass(frozen=True)
class Cluster:
    """The machines. Rates are in MB/s."""

    nodes: int = 10
    cores: int = 16  # per node; one worker each
    network_rate: float = 1250  # per node, to the storage: 10 Gbit/s
    storage_rate: float = math.inf  # of the storage, for all nodes together


@dataclass(frozen=True)
class Rates:
    """Measured rates per core, in MB/s."""

    count_rate: float = 320  # of text: 5.1 GB/s on 16 cores (benchmarks/results/scaling_16t.md)
    merge_rate: float = 140  # of runs: 1 GB of English, two processes on two cores
    encode_rate: float = 150  # of text: 2.4 GB/s on 16 cores (docs/performance.md)
    assemble_rate: float = 325  # of ids: the same
    words_per_gb: float = 1.0e6  # distinct words in the first GB of text
    growth: float = 0.62  # Heaps' law: distinct words grow with size ** growth
    record_bytes: float = 32  # a word in a run, with its count and position
    bytes_per_token: float = 4.0  # English, 32,000 tokens
    id_bytes: int = 2  # uint16; 4 for vocabularies of more than 65,536 tokens
    task_seconds: float = 0.1  # to start a task and to publish its files


@dataclass(frozen=True)
class Stage:
    """One stage of a job: its number of tasks, its time, and the bottleneck."""

    num_tasks: int
    seconds: float
    bound: str  # "CPU", "network" or "storage"


@dataclass(frozen=True)
class Plan:
    """The results for one corpus on one cluster."""

    cluster: Cluster
    corpus_bytes: int
    num_parts: int
    num_words: float
    run_bytes: float
    table_bytes: float
    num_tokens: float
    id_bytes: float
    count: Stage
    merge: Stage
    encode: Stage
    assemble: Stage


def part_size(corpus_bytes: int) -> int:
    """Return the default of `--part-size`: a multiple of eight parts, of 128 to 256 MiB unless the corpus is small.

    >>> part_size(1_000 * GB), part_size(8 * GB), part_size(GB)
    (268240344, 125000000, 125000000)
    """
    most = min(max(corpus_bytes // 64, 128 << 20), 256 << 20)
    number = math.ceil(corpus_bytes / (8 * most)) * 8
    return max(math.ceil(corpus_bytes / max(number, 1)), 16 * MB)


def partitions(corpus_bytes: int) -> int:
    """Return the number of partitions of the word table: one per 16 GB of text, from 8 to 128; fewer below 2 GB.

    >>> partitions(GB), partitions(TB), partitions(100 * TB)
    (4, 63, 128)
    """
    return min(max(math.ceil(corpus_bytes / (16 * GB)), 8), 128, math.ceil(corpus_bytes / (256 * MB)))


def distinct_words(num_bytes: float, rates: Rates) -> float:
    """Return the number of distinct words in `num_bytes` of text, by Heaps' law.

    >>> round(distinct_words(1_000 * GB, Rates(words_per_gb=1e6, growth=0.5)))
    31622777
    """
    return rates.words_per_gb * (num_bytes / GB) ** rates.growth


def stage(cluster: Cluster, num_tasks: int, work_bytes: float, rate: float, moved_bytes: float, start: float) -> Stage:
    """Return the time of a stage: the maximum of the times of CPUs, network and storage.

    The cores work in waves of one task each, so a last wave that is not full takes as long as a full one.
    """
    waves = math.ceil(num_tasks / (cluster.nodes * cluster.cores))
    seconds = {
        "CPU": waves * (work_bytes / num_tasks / (rate * MB) + start),
        "network": moved_bytes / (cluster.nodes * cluster.network_rate * MB),
        "storage": moved_bytes / (cluster.storage_rate * MB),
    }
    bound = max(seconds, key=lambda name: seconds[name])
    return Stage(num_tasks, seconds[bound], bound)


def plan(corpus_bytes: int, cluster: Cluster, rates: Rates, shard_tokens: int = 100_000_000) -> Plan:
    """Calculate all results for a corpus on a cluster."""
    size = part_size(corpus_bytes)
    num_parts = math.ceil(corpus_bytes / size)
    num_words = distinct_words(corpus_bytes, rates)
    run_bytes = num_parts * distinct_words(size, rates) * rates.record_bytes
    table_bytes = num_words * rates.record_bytes
    num_tokens = corpus_bytes / rates.bytes_per_token
    ids = num_tokens * rates.id_bytes
    start = rates.task_seconds

    def of(num_tasks: int, work_bytes: float, rate: float, moved_bytes: float) -> Stage:
        return stage(cluster, num_tasks, work_bytes, rate, moved_bytes, start)

    return Plan(
        cluster=cluster,
        corpus_bytes=corpus_bytes,
        num_parts=num_parts,
        num_words=num_words,
        run_bytes=run_bytes,
        table_bytes=table_bytes,
        num_tokens=num_tokens,
        id_bytes=ids,
        count=of(num_parts, corpus_bytes, rates.count_rate, corpus_bytes + run_bytes),
        merge=of(partitions(corpus_bytes), run_bytes, rates.merge_rate, run_bytes + table_bytes),
        encode=of(num_parts, corpus_bytes, rates.encode_rate, corpus_bytes + ids),
        assemble=of(math.ceil(num_tokens / shard_tokens), ids, rates.assemble_rate, 2 * ids),
    )


def rows(figures: Plan) -> dict[str, str]:
    """Return the column of the table for one corpus on one cluster."""
    workers = figures.cluster.nodes * figures.cluster.cores
    return {
        "corpus, nodes x cores": f"{amount(figures.corpus_bytes)}, {figures.cluster.nodes} x {figures.cluster.cores}",
        "parts": f"{figures.num_parts:,}",
        "partitions (reducers)": f"{figures.merge.num_tasks:,}",
        "distinct words": f"{figures.num_words / 1e6:,.0f} million",
        "tokens": f"{figures.num_tokens / 1e9:,.0f} billion",
        "shards of 100 million tokens": f"{figures.assemble.num_tasks:,}",
        "count: time": timed(figures.count),
        "count: disk for runs": amount(figures.run_bytes),
        "merge: time": timed(figures.merge),
        "finish: memory for the word table": amount(figures.table_bytes),
        "encode: time": timed(figures.encode),
        "assemble: time": timed(figures.assemble),
        "encode: disk, parts and shards": amount(2 * figures.id_bytes),
        "memory of all workers, at most": amount(workers * 400 * MB),
    }


def timed(part: Stage) -> str:
    """Format the time of a stage with its bottleneck.

    >>> timed(Stage(10, 100, "network"))
    '1.7 min (network)'
    """
    minutes = part.seconds / 60
    text = f"{part.seconds:.0f} s" if minutes < 1 else f"{minutes:.1f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    return f"{text} ({part.bound})"


def amount(num_bytes: float) -> str:
    """Format a size.

    >>> amount(1_000_000_000_000), amount(54_600_000_000), amount(2_340_000_000)
    ('1 TB', '55 GB', '2.3 GB')
    """
    unit = next((name for name in ("TB", "GB", "MB") if num_bytes >= UNITS[name]), "KB")
    value = num_bytes / UNITS[unit]
    return f"{value:.1f} {unit}" if value < 10 and value != int(value) else f"{value:.0f} {unit}"


def size(text: str) -> int:
    """Parse a size into bytes.

    >>> size("1.5TB"), size("200GB"), size("1000")
    (1500000000000, 200000000000, 1000)
    """
    number, unit = (text[:-2], text[-2:].upper()) if text[-2:].upper() in UNITS else (text, "")
    try:
        value = float(number) * UNITS.get(unit, 1)
    except ValueError:
        value = 0
    if not 1 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size. Write a number and a unit, as in 500GB or 1TB.")
    return int(value)


def sizes(text: str) -> list[int]:
    return [size(part) for part in text.split(",")]


def count(text: str) -> int:
    """Parse an integer >= 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer >= 1.")
    return int(text)


def counts(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]


def above_zero(text: str) -> float:
    """Parse a number > 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number > 0.")
    return value


def limit(rate: float) -> str:
    return "as fast as all nodes together" if rate == math.inf else f"{rate:g} MB/s in total"


def table(columns: Sequence[dict[str, str]]) -> str:
    """Format the columns as a Markdown table."""
    lines = [[name, *(column[name] for column in columns)] for name in columns[0]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    padded = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    rule = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([f"| {padded[0]} |", f"|{rule}|", *(f"| {line} |" for line in padded[1:])])


def parse_options() -> argparse.Namespace:
    cluster, rates = Cluster(), Rates()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--corpus-size", type=sizes, default="1TB,10TB", help="bytes of text, decompressed; several separated by commas"
    )
    parser.add_argument("--nodes", type=counts, default="10,100", help="machines; several separated by commas")
    parser.add_argument("--cores", type=count, default=cluster.cores, help="per node: %(default)s")
    about = {
        "network_rate": ("MB/s between a node and the storage", cluster.network_rate),
        "storage_rate": ("MB/s of the storage for all nodes together", cluster.storage_rate),
        "count_rate": ("MB/s of text per core", rates.count_rate),
        "merge_rate": ("MB/s of runs per core", rates.merge_rate),
        "encode_rate": ("MB/s of text per core", rates.encode_rate),
        "assemble_rate": ("MB/s of ids per core", rates.assemble_rate),
        "words_per_gb": ("distinct words in the first GB", rates.words_per_gb),
        "growth": ("distinct words grow with size to this power", rates.growth),
        "bytes_per_token": ("bytes of text per token", rates.bytes_per_token),
        "id_bytes": ("bytes of an id, 2 or 4", rates.id_bytes),
    }
    for name, (what, default) in about.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=above_zero, default=default, help=f"{what}: %(default)s"
        )
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    given = vars(options)
    rates = Rates(**{name: given[name] for name in Rates.__dataclass_fields__ if name in given})
    columns = []
    for corpus_bytes in options.corpus_size:
        for nodes in options.nodes:
            cluster = Cluster(nodes, options.cores, options.network_rate, options.storage_rate)
            columns.append(rows(plan(corpus_bytes, cluster, rates)))
    print(table(columns))
    print()
    print(
        f"Per core: count {rates.count_rate:g} MB/s, merge {rates.merge_rate:g} MB/s, encode {rates.encode_rate:g} "
        f"MB/s, assemble {rates.assemble_rate:g} MB/s.\n"
        f"Network {options.network_rate:g} MB/s per node, storage {limit(options.storage_rate)}. "
        f"{rates.words_per_gb:,.0f} distinct words in the first GB, growing with size^{rates.growth:g}."
    )


if __name__ == "__main__":
    main()
