"""Counting and merging on a GPU: the way of the bytes, and the phases of a round."""

from __future__ import annotations

from gristmill.gpu import counting
from pictures.svg import Picture


def draw_counting() -> Picture:
    """Draw the way from files to words in the memory of the GPU."""
    slots = counting.RING_BYTES // counting.SLOT_BYTES
    picture = Picture(
        "Counting on a GPU",
        "Files are read by several threads into a ring of pinned memory, copied to two chunks on the GPU in turns, and "
        "counted tile by tile into one table of words.",
    )
    half = picture.width / 2
    picture.text(16, 24, "host", bold=True, colour="second")
    _box(picture, 16, 34, 96, 44, "files", "of any size")
    picture.arrow(112, 56, 134, 56)
    _box(picture, 136, 34, 126, 44, "readers", f"up to {counting.MAX_READERS} threads")
    picture.arrow(262, 56, 296, 56)
    picture.text(
        424, 28, f"pinned ring: {slots} × {counting.SLOT_BYTES >> 20} MiB", size=12, colour="muted", anchor="end"
    )
    # Only every second slot is drawn; the text above has the number.
    for i in range(slots // 2):
        picture.rect(302 + 15.5 * i, 38, 13, 36, fill="second-fill" if i < 5 else "cell", line="second", r=2)
    picture.line(8, 100, picture.width - 8, 100, dashed=True)
    picture.text(16, 122, "GPU", bold=True, colour="accent")
    picture.arrow(368, 78, 368, 132)
    picture.text(358, 118, "copy", size=12, colour="muted", anchor="end")
    _box(picture, half + 6, 134, half - 22, 44, f"chunk A, {counting.CHUNK_BYTES >> 20} MiB", "filled from the ring")
    _box(picture, 16, 134, half - 26, 44, f"chunk B, {counting.CHUNK_BYTES >> 20} MiB", "counted at that time")
    picture.arrow(half / 2, 178, half / 2, 204)
    picture.text(half / 2 + 10, 196, "tiles, two per multiprocessor", size=12, colour="muted")
    for i in range(12):
        picture.rect(16 + 34 * i, 206, 30, 22, fill="accent-fill", line="accent", r=2)
    picture.text(16, 248, "In a tile: classes → boundaries → one thread per piece", size=12, colour="muted")
    picture.arrow(110, 256, 110, 280)
    picture.arrow(320, 256, 320, 280)
    _box(picture, 16, 282, 196, 44, "frequent words", "shared memory, per block")
    picture.arrow(212, 304, 234, 304)
    _box(picture, 236, 282, 188, 44, "table of words", "memory of the GPU")
    picture.prose(16, 348, "The words stay there for the merge stage. Only the merges return to the host.")
    return picture


def draw_round() -> Picture:
    """Draw the phases of a round, with the barriers of all blocks."""
    phases = (
        ("choose", "the best pairs in order, each block for itself"),
        ("scan", "the cells of the block; list words with such pairs"),
        ("count", "new pairs in these words, when a merge makes them"),
        ("barrier", ""),
        ("cut", "the batch where a new pair overtakes (rare)"),
        ("commit", "subtract old pairs, rewrite words, append tokens"),
        ("barrier", ""),
    )
    picture = Picture(
        "A round of merges on a GPU",
        "Every block chooses the same batch, scans its own cells, counts new pairs, waits for all blocks, cuts the "
        "batch if needed, commits it, and waits again.",
    )
    picture.text(16, 22, "one launch, one block per multiprocessor", size=12, colour="muted")
    y = 34.0
    for name, about in phases:
        if name == "barrier":
            picture.line(16, y + 6, picture.width - 16, y + 6, colour="second", dashed=True)
            picture.text(picture.width - 16, y + 22, "all blocks wait here", size=12, colour="second", anchor="end")
            y += 30
            continue
        picture.rect(16, y, 84, 32, fill="accent-fill", line="accent")
        picture.text(58, y + 21, name, bold=True, anchor="middle", colour="accent")
        picture.text(110, y + 21, about, size=11.5)
        y += 38
    picture.arrow(58, y - 2, 58, y + 16)
    picture.prose(70, y + 12, "next round, in the same launch")
    return picture


def _box(picture: Picture, x: float, y: float, width: float, height: float, name: str, about: str) -> None:
    picture.rect(x, y, width, height)
    picture.text(x + width / 2, y + 19, name, anchor="middle", bold=True)
    picture.text(x + width / 2, y + 35, about, size=11.5, anchor="middle", colour="muted")
