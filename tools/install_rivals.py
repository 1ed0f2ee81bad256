"""Install the packages of the extra `bench` one by one, and report those that pip cannot install.

`make bench` runs this. A single `pip install '.[bench]'` installs nothing if one package has no wheel for this Python.
`gristmill bench` lists a missing package as a row without a time, so the exit code is 0. Further arguments are options
of pip: `python tools/install_rivals.py --constraint constraints.txt`.
"""

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(options: Sequence[str]) -> None:
    """Install each package, with these options of pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options]
    missing = []
    for package in project["optional-dependencies"]["bench"]:
        print(f"installing {package}", flush=True)
        if subprocess.run([*pip, package]).returncode:
            missing.append(package)
    if missing:
        print(f"not installed: {', '.join(missing)}. pip's messages above name the reasons. Continuing without them.")


if __name__ == "__main__":
    main(sys.argv[1:])
