"""Tasks for the tests of executors. Each does what its file `chore-NUMBER.json` in the work folder specifies."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from gristmill.errors import CorruptInputError, EmptyCorpusError, InputChangedError, OptionError
from gristmill.executors.calls import Call, Check
from gristmill.executors.done import Done
from gristmill.executors.work_folder import DamagedPartError, WorkFolder

ERRORS: dict[str, Any] = {
    "changed": lambda: InputChangedError("a.txt: it changed while it was read."),
    "corrupt": lambda: CorruptInputError("a.zst: damaged.", path="a.zst", offset=17),
    "empty": lambda: EmptyCorpusError("the corpus is empty."),
    "option": lambda: OptionError("text_field='x' is not there."),
    "damaged": lambda: DamagedPartError("encode-00003.tokens: checksum.", task="encode-00003"),
    "full": lambda: OSError(28, "No space left on device", "part-00001"),
    "missing": lambda: FileNotFoundError(2, "No such file or directory", "a.txt"),
    "memory": lambda: MemoryError("bad allocation"),
    "bug": lambda: ZeroDivisionError("division by zero"),
}


def chores(folder: Path, *contents: dict[str, object], num_bytes: int = 10) -> list[Call]:
    """Return a call for each of `contents`, the content of its file."""
    for number, content in enumerate(contents):
        (folder / f"chore-{number}.json").write_text(json.dumps(content))
    return [Call("count", "gristmill_chores:chore", str(folder), number, num_bytes) for number in range(len(contents))]


def chore(folder: WorkFolder, number: int, check: Check) -> Done:
    """Do what the file specifies; the result is always the same."""
    content = json.loads(folder.read(f"chore-{number}.json"))
    with open(Path(folder.location) / f"began-{number}", "a", encoding="ascii") as log:  # noqa: PTH123
        log.write(f"{os.getpid()}\n")
    if "raise" in content:
        raise ERRORS[content["raise"]]()
    if _comes_first(folder, content.get("kill_once")):
        os.kill(os.getpid(), signal.SIGKILL)
    if content.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if _comes_first(folder, content.get("stop_once")):
        os.kill(os.getpid(), signal.SIGSTOP)
    while "until" in content and not (Path(folder.location) / content["until"]).exists():
        time.sleep(0.01)
        check()
    for _ in range(content.get("steps", 0)):
        time.sleep(0.01)
        if not content.get("is_deaf"):
            check()
    return Done((), {"square": number**2, "threads": os.environ.get("OMP_NUM_THREADS")})


def attempts(folder: Path, number: int) -> list[int]:
    """Return the process id of each attempt at a chore."""
    path = folder / f"began-{number}"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _comes_first(folder: WorkFolder, name: str | None) -> bool:
    """Whether no task has asked for this name before."""
    if name is None:
        return False
    try:
        (Path(folder.location) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
