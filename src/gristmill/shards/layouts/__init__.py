"""layouts: formats of token files.

| module | files |
|---|---|
| `layout.py` | what a layout says of itself: `Layout` |
| `gristmill.py` | our own, read by `Shards` |
| `nanogpt.py`, `llmc.py`, `megatron.py`, `datatrove.py` | those of the trainers of these names |
| `npy.py`, `parquet.py` | NumPy and Parquet |

A layout is a module with one subclass of `Layout`: what its files are called, which ids they hold, and what stands in
them beside the tokens. Adding one is the module, a line in `LAYOUTS`, and a test parameter in
tests/shards/test_layouts.py with a reader of its own:

    class MyLayout(Layout):
        name = "mine"                                        raw tokens after four bytes
        header_bytes = 4                                     where the tokens begin; the writer leaves room

        def token_file(self, name, split, number): …         "train-00000.mine"
        def header(self, num_tokens, dtype): …               these four bytes, once the shard is complete

An index beside the tokens is `index_file` and `write_index` (with `read_ends`, so that `gristmill verify` can check
it); a file in which the tokens do not lie as they are `converts` and has `write_tokens` and `read_rows`. A layout of
other programs has `find_files`, by which `Shards` recognizes folders that have no manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gristmill.arguments import check_choice
from gristmill.shards.layouts.datatrove import DatatroveLayout
from gristmill.shards.layouts.gristmill import GristmillLayout
from gristmill.shards.layouts.layout import FoundFile, Layout, Part
from gristmill.shards.layouts.llmc import LlmcLayout
from gristmill.shards.layouts.megatron import MegatronLayout
from gristmill.shards.layouts.nanogpt import NanogptLayout
from gristmill.shards.layouts.npy import NpyLayout
from gristmill.shards.layouts.parquet import ParquetLayout

__all__ = ["LAYOUTS", "FoundFile", "Layout", "Part", "check_layout", "layout_of", "recognize"]

LAYOUTS: dict[str, Layout] = {
    "gristmill": GristmillLayout(),
    "nanogpt": NanogptLayout(),
    "llmc": LlmcLayout(),
    "megatron": MegatronLayout(),
    "npy": NpyLayout(),
    "parquet": ParquetLayout(),
    "datatrove": DatatroveLayout(),
}


def layout_of(name: str, options: Mapping[str, Any]) -> Layout:
    """The layout of shards whose manifest has this name for it and these options."""
    layout, column = LAYOUTS[name], options.get("tokens_column")
    # Anything may stand among the options of a forged manifest.
    return layout.with_tokens_column(column) if isinstance(column, str) and layout.converts else layout


def recognize(folder: Path) -> tuple[Layout, list[FoundFile]] | None:
    """The layout of the token files in a folder without a manifest, and those files in order; None where there is none.

    nanoGPT's files have no mark of their own, so that layout is asked last.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))
    for layout in sorted(LAYOUTS.values(), key=lambda layout: layout.name == NanogptLayout.name):
        if found := layout.find_files(folder, names):
            return layout, found
    return None


def check_layout(layout: Any) -> Layout:
    """The layout of this name; `OptionError` if there is none.

    >>> check_layout("llmc").token_file("tales", "train", 0)
    'tales_train_000001.bin'
    """
    return LAYOUTS[check_choice("format", layout, LAYOUTS)]
