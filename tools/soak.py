"""Run mixed work under load for some minutes, and check that there are no errors and that nothing grows.

    python tools/soak.py --minutes 30                    all kinds of work
    python tools/soak.py --minutes 1 --kinds training    one kind

The kinds are in tools/soaking. The report is written as soak.md and soak.json. The exit code is 1 if a bar fails.
"""

import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path

from gristmill.bench.machine import describe_run
from gristmill.bench.tables import prepare_folder, write_result
from soaking import KINDS
from soaking.conductor import soak
from soaking.report import bars, body_of, data_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["gristmill", "numpy", "torch", "starlette", "uvicorn", "pyarrow"]


def main() -> int:
    """Work, report, and return the exit code."""
    options = read_options()
    prepare_folder(options.output)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="gristmill-soak-", ignore_cleanup_errors=True) as folder:
        outcome = soak(
            options.kinds,
            root=Path(folder) / "run",
            seconds=60 * options.minutes,
            num_pauses=options.pauses,
            patience=options.patience,
            seed=options.seed,
        )
    about = describe_run(PACKAGES)
    about["command"] = f"`{shlex.join(['python', 'tools/soak.py', *sys.argv[1:]])}`"
    about["load average of the last minute"] = f"{load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end"
    body = body_of(outcome, most_growth=options.growth)
    data = data_of(outcome, most_growth=options.growth)
    path = write_result("soak", title="Long run under load", about=about, body=body, data=data, folder=options.output)
    print(body)
    print(f"\nWritten to {path}")
    return int(not all(holds for _, _, holds in bars(outcome, most_growth=options.growth)))


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--minutes", type=float, default=30.0, help="length of the work (default: 30)")
    add("--seed", type=int, default=0, help="seed of the inputs and of all random choices (default: 0)")
    add("--kinds", nargs="+", default=list(KINDS), help=f"kinds of work, or module:Class (default: {' '.join(KINDS)})")
    add("--pauses", type=int, default=30, help="pauses in which memory and open files are compared (default: 30)")
    add("--patience", type=float, default=300.0, help="seconds after which an operation is a hang (default: 300)")
    add("--growth", type=float, default=2.0, help="memory growth that is allowed, in percent (default: 2)")
    add("--output", type=Path, default=ROOT / "build" / "soak", help="folder of the report (default: build/soak)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
