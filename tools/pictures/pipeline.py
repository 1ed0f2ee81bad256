"""The whole pipeline in one picture, with the real value of a small example after each stage."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import gristmill as gm
from pictures.svg import Picture, show_token, text_width

TEXT = "low low low lower lowest"
VOCAB_SIZE = 261


def draw_pipeline() -> Picture:
    """Draw the stages from text to a report."""
    words = gm.count_words(gm.Documents([TEXT]), progress=None)
    tok = gm.train_tokenizer(words, vocab_size=VOCAB_SIZE, progress=None)
    merges = [f"{show_token(left)}+{show_token(right)}" for left, right in tok.merges]
    with tempfile.TemporaryDirectory() as folder:
        run = gm.encode_corpus([TEXT], tok, out=Path(folder) / "shards", progress=None)
        files = sorted(path.name for path in run.folder.iterdir())
        ids = run.shards().tokens[:].tolist()
    rows: list[tuple[str, str, Sequence[str]]] = [
        ("corpus", "documents, as bytes", [TEXT.replace(" ", "␣")]),
        ("pretokenize", "pieces, by a pattern", [show_token(piece.encode()) for piece in gm.pretokenize(TEXT)]),
        ("count", "distinct pieces: words", [f"{show_token(word)} ×{count}" for word, count in words.most_common(9)]),
        ("merge", "the most frequent pairs", merges),
        ("tokenizer", "a vocabulary", ["256 bytes", f"{len(tok.merges)} merges", "<|endoftext|>"]),
        ("encode", "ids, with an end of text", [str(id) for id in ids]),
        ("shards", "files of a folder", files),
        ("data", "windows, shuffled by a seed", ["batch 0", "batch 1", "…"]),
        ("models", "a transformer or a VAE", ["gpt", "vae", "your own"]),
        ("training", "a run folder", ["checkpoints", "metrics.jsonl"]),
        ("use", "text, or other tools", ["generate", "evaluate", "export"]),
        ("report", "one page per run", ["report.html"]),
    ]
    picture = Picture(
        "The stages of Gristmill",
        "Twelve stages from corpus to report, in order, with what each one makes of a small example text.",
    )
    y = 12.0
    for number, (stage, makes, values) in enumerate(rows):
        height = _draw_stage(picture, y, stage, makes, values)
        if number + 1 < len(rows):
            picture.arrow(66, y + height, 66, y + height + 12)
        y += height + 12
    return picture


def _draw_stage(picture: Picture, y: float, stage: str, makes: str, values: Sequence[str]) -> float:
    x, top, lines = 136.0, y + 22, 1
    placed = []
    for value in values:
        width = text_width(value, 13, mono=True) + 10
        if x + width > picture.width - 10 and x > 136:
            x, top, lines = 136.0, top + 26, lines + 1
        placed.append((x, top, value))
        x += width + 6
    height = 22 + lines * 26 + 4
    picture.rect(8, y, picture.width - 16, height, fill="paper", r=5)
    picture.rect(8, y, 116, height, fill="accent-fill", r=5)
    picture.text(66, y + height / 2 + 5, stage, bold=True, anchor="middle", colour="accent")
    picture.text(136, y + 16, makes, size=12, colour="muted")
    for left, row, value in placed:
        picture.chip(left, row, value)
    return height
