"""What a run shows while it trains."""

import io
import sys

import pytest

from gristmill.lm.training.records import open_display, spelled_by

RECORD = {
    "kind": "train",
    "step": 10,
    "loss": 6.628,
    "tokens_per_second": 155.2,
    "mfu": None,
    "mfu_matmul": 0.12,
    "memory_bytes": 383_000_000,
}


@pytest.mark.parametrize(
    ("rate", "shown"), [(155.2, "155 tokens/s"), (9_999.0, "10k tokens/s"), (1_234_567.0, "1,235k tokens/s")]
)
def test_the_bar_shows_losses_and_speed_in_80_columns(monkeypatch, rate, shown):
    """The rate that tqdm adds by itself pushes them out of the line; a slow run is not one of 0k tokens a second."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with open_display("bar", total=40_000, initial=0) as display:
        display._bar.dynamic_ncols = lambda _: (80, 24)
        display.show({"kind": "val", "loss": 6.7})
        display.show({**RECORD, "tokens_per_second": rate})
        display._bar.refresh()
        lines = sys.stderr.getvalue().replace("\r", "\n").splitlines()
    assert all(part in lines[-1] for part in ("10/40000", "loss 6.628", "val 6.700", shown))
    assert len(lines[-1]) <= 80


def test_messages_name_keyword_arguments_unless_the_caller_spells_options_otherwise(capsys):
    with open_display("auto", total=10, initial=0) as display:
        display.say("Pass resume='auto' to resume.")
        with spelled_by(lambda message: message.replace("resume='auto'", "--resume auto")):
            display.say("Pass resume='auto' to resume.")
    assert capsys.readouterr().err == (
        "gristmill: Pass resume='auto' to resume.\ngristmill: Pass --resume auto to resume.\n"
    )
