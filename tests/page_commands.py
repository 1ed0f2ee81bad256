"""Run the shell lines of a documentation page, without starting Python for every plain `gristmill` command.

Importing torch and matplotlib in a new process takes seconds, and the pages have a hundred commands. A line that a
shell would pass on word for word runs in this process. Every other line (pipes, redirections, globs, variables) runs in
bash.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from gristmill.cli import main

# Characters that mean something to a shell. Inside quotes most do not, but such lines are few: bash runs them.
SHELL = re.compile(r"[|&;<>()$`\\*?\[\]{}~!#]")
# These start processes that run `gristmill` again.
NEW_PROCESSES = ("--executor", "--devices")
PLUGIN = "gristmill_plugin_"  # how modules loaded by --plugin are named


def run_lines(lines, *, timeout):
    """Run the lines in the current folder, from the first to the last; each must succeed."""
    if any(not line.startswith("gristmill ") and "| gristmill " not in line for line in lines if line.strip()):
        run_in_bash("\n".join(lines), timeout=timeout)
        return
    for line in filter(str.strip, lines):
        command = line.partition("  #")[0]  # a comment at the end
        if SHELL.search(command) or any(option in command for option in NEW_PROCESSES):
            run_in_bash(line, timeout=timeout)
        else:
            with registries_restored():
                assert main(shlex.split(command)[1:]) == 0, line


def run_in_bash(script, *, timeout):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, check=True, timeout=timeout)


@contextlib.contextmanager
def registries_restored():
    """Forget the models, optimizers and schedules that are registered inside, and the plugins that did so."""
    from gristmill.lm.models import registry
    from gristmill.lm.training.registries import OPTIMIZERS, SCHEDULES

    entries = [registry._entries, OPTIMIZERS._entries, SCHEDULES._entries]
    kept = [dict(each) for each in entries]
    plugins = {name for name in sys.modules if name.startswith(PLUGIN)}
    try:
        yield
    finally:
        for each, before in zip(entries, kept, strict=True):
            each.clear()
            each.update(before)
        for name in {name for name in sys.modules if name.startswith(PLUGIN)} - plugins:
            del sys.modules[name]
