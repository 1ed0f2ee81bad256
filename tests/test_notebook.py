"""HTML tables for notebooks."""

from gristmill.notebook import html_table


def test_markup_in_titles_names_and_values_is_escaped():
    html = html_table("<b>", [("<i>", "a & b</td><script>")])
    assert "<b>" not in html and "<i>" not in html and "<script>" not in html
    assert "a &amp; b&lt;/td&gt;&lt;script&gt;" in html


def test_each_row_is_a_row_of_the_table():
    html = html_table("Shards", [("tokens", "5"), ("documents", "2")])
    assert html.count("<tr>") == 2
