"""The charts are well-formed SVG, with lengths in proportion and texts escaped."""

import xml.etree.ElementTree as ET

import pytest

from gristmill.bench.charts import WIDTH, Bar, bar_chart, line_chart
from gristmill.bench.published import ENCODING

SVG = "{http://www.w3.org/2000/svg}"


def bars_of(svg):
    return [float(rect.get("width")) for rect in ET.fromstring(svg).iter(SVG + "rect") if rect.get("rx")]


def test_lengths_are_in_proportion_and_a_missing_value_has_its_reason_instead():
    rows = [Bar("a <b> & c", [2.0], ["2 s"], True), Bar("slow", [8.0], ["8 s"]), Bar("gone", [None], ["crashed"])]
    svg = bar_chart('Title "1" < 2', rows, caption="where & when " * 20)
    short, long = bars_of(svg)
    assert long == pytest.approx(4 * short, rel=1e-2)
    texts = [text.text for text in ET.fromstring(svg).iter(SVG + "text")]
    assert {'Title "1" < 2', "a <b> & c", "crashed"} <= set(texts)
    assert "prefers-color-scheme: dark" in svg and 'role="img"' in svg


def test_a_logarithmic_scale_gives_equal_steps_to_equal_factors():
    widths = bars_of(bar_chart("t", [Bar(str(i), [10.0**i], [""]) for i in (-2, 0, 2)], log_scale=True))
    assert widths[1] - widths[0] == pytest.approx(widths[2] - widths[1], abs=0.2)


def test_no_bar_whisker_or_value_leaves_the_page():
    rows = [Bar("x" * 30, [50.0, None], ["50 MB/s" * 3, "not measured"], spreads=[(1.0, 100.0), None])]
    root = ET.fromstring(bar_chart("t", rows, series=["cold", "warm"]))
    (whisker,) = root.iter(SVG + "path")
    assert float(whisker.get("d").partition("H")[2].partition("M")[0]) < WIDTH - 7 * 21
    assert all(float(rect.get("x", 0)) + float(rect.get("width")) <= WIDTH for rect in root.iter(SVG + "rect"))


@pytest.mark.parametrize("rows", [[], [Bar("only", [None], ["crashed"])], [Bar("zero", [0.0], ["0 s"])]])
@pytest.mark.parametrize("log_scale", [False, True])
def test_a_chart_without_values_is_still_a_chart(rows, log_scale):
    ET.fromstring(bar_chart("empty", rows, log_scale=log_scale))
    ET.fromstring(line_chart("empty", {}, x_label="x", y_label="y"))


def test_points_of_a_line_lie_in_proportion():
    root = ET.fromstring(line_chart("t", {"a": [(1, 1), (2, 2), (4, 4)]}, x_label="threads", y_label="speed-up"))
    x, y = zip(*[(float(dot.get("cx")), float(dot.get("cy"))) for dot in root.iter(SVG + "circle")], strict=True)
    assert x[2] - x[1] == pytest.approx(2 * (x[1] - x[0]), abs=0.2)
    assert y[1] - y[2] == pytest.approx(2 * (y[0] - y[1]), abs=0.2)


def test_published_rates_agree_with_their_tokens_and_seconds():
    for figure in ENCODING:
        assert figure.tokens_per_second == pytest.approx(figure.num_tokens / figure.seconds, rel=0.03)
