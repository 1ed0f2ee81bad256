"""The code of all pages together stays small: there is no build step that would shrink it."""

from __future__ import annotations

from gristmill.view.app import STATIC


def test_the_code_of_all_pages_is_at_most_200_kb():
    assert sum(path.stat().st_size for path in STATIC.iterdir()) <= 200_000
