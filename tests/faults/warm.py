"""A process that has imported what commands need, and forks one for each request. See `kill_runners.WarmRunner`.

It reads requests from stdin, one JSON object per line, and writes two numbers for each: the id of the forked process,
and its wait status once it has ended. It never starts a thread, which a fork would lose.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import traceback
from typing import Any


def serve(modules: list[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    for line in requests:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(request)
        answers.write(b"%d\n" % child)
        status = os.waitpid(child, 0)[1]
        answers.write(b"%d\n" % status)


def _run(request: dict[str, Any]) -> None:
    code = 70
    try:
        os.setsid()
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        silence = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((silence, log, log)):
            os.dup2(descriptor, number)
        os.closerange(3, 256)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        tempfile.tempdir = None
        sys.argv = ["gristmill", *request["arguments"]]
        from gristmill.cli import main

        code = main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    serve(sys.argv[1:])
