"""Code that needs a process of its own, because it sets limits for itself or is interrupted."""

import os
import subprocess
import sys
import textwrap


def run_script(script, *arguments, environment=None):
    """Run Python code in a process of its own, which may then set limits for itself or be interrupted."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **(environment or {}),
        },
    )
