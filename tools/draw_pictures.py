"""Draw the pictures of README and docs: `make plots`.

Each picture is a function of tools/pictures, which runs Gristmill or reads committed results, and becomes two files in
docs/images, for light and for dark pages. The files are the same on every machine, and a test compares them.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from pictures.svg import THEMES

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
# File name without theme: (module of tools/pictures, function).
PICTURES = {
    "speed": ("speed", "draw_speed"),
    "how/pipeline": ("pipeline", "draw_pipeline"),
    "how/symbol-array": ("symbol_array", "draw_array"),
    "how/two-merges": ("symbol_array", "draw_merge"),
    "how/one-round": ("rounds", "draw_batch"),
    "how/merges-per-round": ("rounds", "draw_rounds"),
    "how/cuts": ("cuts", "draw_blocks"),
    "how/cuts-newline": ("cuts", "draw_newlines"),
    "how/piece-lookup": ("piece_cache", "draw_lookup"),
    "how/word-coverage": ("piece_cache", "draw_coverage"),
    "how/gpu-count": ("gpu", "draw_counting"),
    "how/gpu-round": ("gpu", "draw_round"),
    "how/run-folder": ("run_folder", "draw_folders"),
    "how/resuming": ("resuming", "draw_resuming"),
}


def draw(name: str) -> dict[Path, str]:
    """Return the two files of a picture, by path."""
    module, function = PICTURES[name]
    picture = getattr(importlib.import_module(f"pictures.{module}"), function)()
    return {IMAGES / f"{name}-{theme}.svg": picture.render(theme) for theme in THEMES}


def main() -> int:
    """Write all pictures, or those named on the command line."""
    for name in sys.argv[1:] or PICTURES:
        for path, content in draw(name).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            print(path.relative_to(IMAGES.parent.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
