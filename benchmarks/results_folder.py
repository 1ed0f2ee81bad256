"""The folder of the committed results."""

from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
