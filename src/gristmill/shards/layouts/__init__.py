"""layouts: formats of token files.

| module | files |
|---|---|
| `layout.py` | `Layout`: the interface of a layout |
| `gristmill.py` | Gristmill's format, read by `Shards` |
| `nanogpt.py`, `llmc.py`, `megatron.py`, `datatrove.py` | the formats of these programs |
| `npy.py`, `parquet.py` | NumPy and Parquet |

A layout is a module with one subclass of `Layout`: the names of its files, the type of the ids, and any header or
index. To add one, write the module, and add a line to `LAYOUTS` and a test parameter with an independent reader in
tests/shards/test_layouts.py:

    class MyLayout(Layout):
        name = "mine"                                        raw tokens after four bytes
        header_bytes = 4                                     position of the tokens; the writer leaves room

        def token_file(self, name, split, number): …         "train-00000.mine"
        def header(self, num_tokens, dtype): …               these four bytes, when the shard is complete

An index beside the tokens needs `index_file` and `write_index` (and `read_ends`, so that `gristmill verify` can check
it). A file that does not contain the plain tokens `converts`, and has `write_tokens` and `read_rows`. A layout of other
programs has `find_files`, by which `Shards` recognizes folders without a manifest.
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
    """Return the layout with the name and options of a manifest."""
    layout, column = LAYOUTS[name], options.get("tokens_column")
    # The options of a forged manifest may have any value.
    return layout.with_tokens_column(column) if isinstance(column, str) and layout.converts else layout


def recognize(folder: Path) -> tuple[Layout, list[FoundFile]] | None:
    """Return the layout of the token files in a folder without a manifest, and the files in order; None if unknown.

    nanoGPT's files have no magic number, so that layout is tried last.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))
    for layout in sorted(LAYOUTS.values(), key=lambda layout: layout.name == NanogptLayout.name):
        if found := layout.find_files(folder, names):
            return layout, found
    return None


def check_layout(layout: Any) -> Layout:
    """Return the layout with this name; raise `OptionError` if there is no such layout.

    >>> check_layout("llmc").token_file("tales", "train", 0)
    'tales_train_000001.bin'
    """
    return LAYOUTS[check_choice("format", layout, LAYOUTS)]
