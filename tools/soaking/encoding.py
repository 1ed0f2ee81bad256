"""`gristmill encode` killed with SIGKILL at random times and run again. The shards have the same bytes each time."""

from __future__ import annotations

import math
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from soaking.kind import Kind, check_equal, digests

LAYOUTS = ("gristmill", "nanogpt", "llmc", "megatron", "npy", "parquet", "datatrove")
INPUTS = ("stories.txt", "stories.jsonl.zst", "stories.parquet")
MOST_KILLS = 3
# Small batches and many checkpoints, so that a kill can hit many states of the folder.
PROGRAM = """
import sys
from gristmill.corpus import batches
batches.BATCH_BYTES = 50_000
from gristmill.cli import main
if __name__ == "__main__":
    sys.exit(main())
"""


class Encoding(Kind):
    """Encodes corpora in processes of their own, and kills most of them."""

    def prepare(self) -> None:
        """Write the program. The undisturbed run of each layout and input is made when it is first needed."""
        self.program = self.folder / "encode.py"
        self.program.write_text(PROGRAM)
        self.expected: dict[tuple[str, ...], dict[str, str]] = {}
        self.seconds: dict[tuple[str, ...], float] = {}

    def work(self, source: random.Random, thread: int) -> str:
        """Kill a command up to three times, run it to its end, and compare the bytes of all files."""
        case = (source.choice(LAYOUTS), source.choice(INPUTS), source.choice(["local", "local", "processes"]))
        if case not in self.expected:
            self.expected[case] = self._finished(self.folder / "whole", case)
        folder = self.folder / "killed"
        folder.mkdir()
        num_kills = sum(self._killed(source, folder, case) for _ in range(MOST_KILLS))
        check_equal(self._finished(folder, case), self.expected[case], f"{case} after {num_kills} kills")
        return f"encode, killed {num_kills} times"

    def _finished(self, folder: Path, case: tuple[str, ...]) -> dict[str, str]:
        """Run the command to its end in a folder, and return the digests of all files there. Removes the folder."""
        folder.mkdir(exist_ok=True)
        began = time.monotonic()
        done = subprocess.run(self._command(folder, *case), capture_output=True, text=True)
        check_equal(done.returncode, 0, f"{case}: {done.stderr}")
        # Of the fastest run, because most kills would come too late if the machine was slow in the first one.
        self.seconds[case] = min(time.monotonic() - began, self.seconds.get(case, math.inf))
        # Not in this process, where pyarrow would start threads and take memory when it is first used.
        verify = [sys.executable, "-m", "gristmill", "verify", str(folder / "out")]
        verified = subprocess.run(verify, capture_output=True, text=True)
        check_equal(verified.returncode, 0, f"verify {case}: {verified.stderr}")
        found = digests(folder)
        shutil.rmtree(folder)
        return found

    def _killed(self, source: random.Random, folder: Path, case: tuple[str, ...]) -> bool:
        """Run the command and kill it at a random time. Returns whether that was before its end."""
        command = self._command(folder, *case)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(source.uniform(0.2, 1.0) * self.seconds[case])
            except subprocess.TimeoutExpired:
                process.kill()
                return True
        return False

    def _command(self, folder: Path, layout: str, corpus: str, executor: str) -> list[str]:
        command = [sys.executable, str(self.program), "encode", str(self.inputs / corpus), "-f", layout]
        command += ["-t", str(self.inputs / "600.json"), "-o", str(folder / "out"), "--val-fraction", "0.1"]
        if layout not in ("nanogpt", "megatron"):  # have one file per split
            command += ["--shard-tokens", "50000"]
        if executor == "processes":
            command += ["--executor", "processes", "--workers", "2", "--part-size", "1MB"]
        return [*command, "--checkpoint-seconds", "0.01", "--progress", "none"]
