"""The pictures of the pages: few, small, and each one listed in tools/screenshots.py."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"


@pytest.fixture(scope="module")
def screenshots():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import screenshots
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return screenshots


def test_committed_pictures_are_small_and_have_an_entry(screenshots):
    found = {path.stem.removeprefix("view-"): path for path in IMAGES.glob("view-*.png")}
    assert set(found) == set(screenshots.PICTURES)
    assert max(path.stat().st_size for path in found.values()) <= screenshots.MAX_BYTES
    assert len(screenshots.PICTURES) <= 8


def test_every_picture_is_on_a_page_with_a_description_and_every_page_has_its_pictures(screenshots):
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    described = re.findall(r"!\[[^\]]{20,}\]\((?:docs/|\.\./)?images/view-([\w-]+)\.png\)", text)
    mentioned = re.findall(r"images/view-([\w-]+)", text)
    assert set(described) == set(mentioned) == set(screenshots.PICTURES)


def test_every_picture_is_of_a_page_at_a_tested_width(screenshots):
    for page, width, scheme in screenshots.PICTURES.values():
        assert page in screenshots.PAGES and width in screenshots.HEIGHTS and scheme in screenshots.SCHEMES
    assert set(screenshots.HEIGHTS) == set(screenshots.WIDTHS)


def test_an_unknown_page_is_refused_before_anything_is_made(screenshots, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["screenshots.py", "nowhere"])
    monkeypatch.setattr(screenshots, "gristmill", lambda *_: pytest.fail("artefacts were made"))
    with pytest.raises(SystemExit):
        screenshots.main()
    assert "unknown page nowhere" in capsys.readouterr().err


def test_pages_without_runs_train_nothing(screenshots, monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(screenshots, "gristmill", lambda *arguments: commands.append(arguments[0]))
    paths = screenshots.make_artefacts(tmp_path, with_runs=False)
    assert "train-model" not in commands and tmp_path / "shards" in paths
