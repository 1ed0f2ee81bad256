"""docs/bench.md lists the options of every action of `gristmill bench`."""

import re
from pathlib import Path

import pytest

from gristmill.cli.bench import ACTIONS, command_class
from gristmill.cli.usage import options_of

PAGE = Path(__file__).parents[2] / "docs" / "bench.md"


def documented_options():
    """Return the flags of each action in the table of options."""
    section = PAGE.read_text(encoding="utf-8").partition("## Options\n")[2].partition("\n## ")[0]
    flags = {action: set() for action in ACTIONS}
    for line in section.splitlines():
        if line.startswith("| `-"):
            option, actions, *_ = line.strip("|").split("|")
            for action in ACTIONS if actions.strip() == "all" else re.findall(r"`(.*?)`", actions):
                flags[action].update(re.findall(r"`(--?\w[\w-]*)", option))
    return flags


@pytest.mark.parametrize("action", ACTIONS)
def test_the_page_lists_exactly_the_options_of_each_action(action):
    flags = {flag for option in options_of(command_class([action])) for flag in option.spellings}
    assert documented_options()[action] == flags
