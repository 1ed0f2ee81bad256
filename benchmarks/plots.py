"""Draw plots of the tables in results/ from their JSON files.

    python benchmarks/plots.py        draws all plots

Needs matplotlib; without it nothing is drawn.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from results_folder import RESULTS

# One color per system, the same in every plot; gristmill has the strongest.
COLOURS = {
    "gristmill": "#c2410c",
    "gigatoken": "#1d4ed8",
    "fastokens": "#60a5fa",
    "tokie": "#0f766e",
    "wordchipper": "#5eead4",
    "bpe_openai": "#a8a29e",
    "tiktoken": "#57534e",
    "tokenizers": "#d6d3d1",
}
CORPORA = ("english", "english_5MB", "code", "multilingual")
OURS = "gristmill"
RIVAL = "gigatoken"
INK = "#292524"

Page = dict[str, Any]


def draw_encode(folder: Path) -> list[Path]:
    """Draw encode.png (one thread) and encode_<n>t.png from the encode_*.json files; return the paths."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed", file=sys.stderr)
        return []
    matplotlib.use("Agg")
    pages = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("encode_*.json"))]
    pages = [page for page in pages if "entries" in page and "to a uint16 file" not in page["title"]]
    drawn = []
    for num_threads in sorted({page["num_threads"] for page in pages}):
        name = "encode.png" if num_threads == 1 else f"encode_{num_threads}t.png"
        chosen = sorted((page for page in pages if page["num_threads"] == num_threads), key=_place)
        _draw(chosen, num_threads, folder / name)
        drawn.append(folder / name)
        print(f"drawn: {name}", file=sys.stderr)
    return drawn


def _place(page: Page) -> tuple[str, int, str]:
    name = page["corpus_name"]
    return page["vocabulary"] != "gpt2", CORPORA.index(name) if name in CORPORA else len(CORPORA), name


def _draw(pages: Sequence[Page], num_threads: int, path: Path) -> None:
    import matplotlib.pyplot as plt

    best = [{passes: _best(page, passes) for passes in ("cold", "warm")} for page in pages]
    systems = [name for name in COLOURS if any(name in found["cold"] for found in best)]
    width = max(9.0, 1.6 + 1.75 * len(pages))
    figure, axes = plt.subplots(2, 1, figsize=(width, 7.4), sharex=True, layout="constrained")
    for axis, passes in zip(axes, ("cold", "warm"), strict=True):
        _bars(axis, [found[passes] for found in best], systems)
        axis.set_ylabel(f"{'first pass (cold)' if passes == 'cold' else 'further passes (warm)'}\nMB/s", color=INK)
        axis.margins(y=0.16)
    axes[1].set_xlim(-0.55, len(pages) - 0.45)
    axes[1].set_xticks(range(len(pages)), [_label(page) for page in pages])
    threads = f"{num_threads} thread{'s' if num_threads > 1 else ''}"
    figure.suptitle(f"Text to token ids through Python, {threads}: MB/s, higher is better", color=INK, weight="bold")
    about = pages[0]["about"]
    hatched = " Hatched: CPU/wall at most 1.3, little of it ran in parallel." if num_threads > 1 else ""
    figure.supxlabel(
        f"{about['CPU']}, {about['cores']} cores. Median of fresh processes, whiskers min–max; the fastest API\n"
        f"of each system, equal ids only. Above the bars: MB/s, and {OURS} as a multiple of {RIVAL}.{hatched}",
        fontsize=8,
        color=INK,
    )
    handles = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    axes[0].legend(
        [handles[system] for system in systems],
        systems,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.01),
        ncols=len(systems),
        frameon=False,
        columnspacing=1.3,
        handlelength=1.2,
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)


@dataclass(frozen=True)
class Best:
    """The MB/s of each run of a system's fastest API."""

    speeds: list[float]
    starved: bool  # several threads were requested, but CPU/wall was at most 1.3

    @property
    def middle(self) -> float:
        """The height of the bar."""
        return median(self.speeds)


def _best(page: Page, passes: str) -> dict[str, Best]:
    """Return the bars of every system with the right ids."""
    found: dict[str, Best] = {}
    for entry in page["entries"]:
        if entry["problem"] or not entry["runs"]:
            continue
        taken = [_seconds(run["facts"], passes) for run in entry["runs"]]
        busy = median(cpu / wall for wall, cpu in taken)
        best = Best([page["num_bytes"] / 1e6 / wall for wall, _ in taken], page["num_threads"] > 1 and busy <= 1.3)
        if entry["system"] not in found or best.middle > found[entry["system"]].middle:
            found[entry["system"]] = best
    return found


def _seconds(facts: Mapping[str, Any], passes: str) -> tuple[float, float]:
    """Return wall and CPU time of the cold pass, or the medians of the warm ones."""
    found = [facts["cold"]] if passes == "cold" else facts["warm"]
    return median(one["seconds"] for one in found), median(one["cpu_seconds"] for one in found)


def _bars(axis: Any, groups: Sequence[Mapping[str, Best]], systems: Sequence[str]) -> None:
    width = 0.86 / len(systems)
    named = set()
    for place, group in enumerate(groups):
        present = [system for system in systems if system in group]
        for i, system in enumerate(present):
            x = place + (i - (len(present) - 1) / 2) * width
            _bar(axis, x, group[system], width * 0.92, system, label="" if system in named else system)
            named.add(system)
            if system == OURS and RIVAL in group:
                _write(axis, x, group[OURS], f"{group[OURS].middle / group[RIVAL].middle:.2f}x", above=11, size=8)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(length=0, colors=INK)
    axis.yaxis.grid(True, color="#e7e5e4", linewidth=0.8)
    axis.set_axisbelow(True)


def _bar(axis: Any, x: float, best: Best, width: float, system: str, *, label: str) -> None:
    low, high = best.middle - min(best.speeds), max(best.speeds) - best.middle
    axis.bar(
        x,
        best.middle,
        width,
        color=COLOURS[system],
        label=label,
        hatch="///" if best.starved else None,
        edgecolor="white" if best.starved else None,
        linewidth=0,
        yerr=[[low], [high]] if len(best.speeds) > 1 else None,
        error_kw={"ecolor": INK, "elinewidth": 0.8, "capsize": 2, "alpha": 0.6},
    )
    _write(axis, x, best, f"{best.middle:.0f}", above=2, size=6.5)


def _write(axis: Any, x: float, best: Best, text: str, *, above: float, size: float) -> None:
    strong = text.endswith("x")
    axis.annotate(
        text,
        (x, max(best.speeds)),
        (0, above),
        textcoords="offset points",
        ha="center",
        fontsize=size,
        weight="bold" if strong else "normal",
        color=COLOURS[OURS] if strong else INK,
    )


def _label(page: Page) -> str:
    return f"{page['corpus_name'].replace('_', ', ')}\n{page['vocabulary']}"


if __name__ == "__main__":
    draw_encode(RESULTS)
