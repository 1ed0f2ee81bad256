"""gristmill view: show tokenizers, shards and runs on local web pages."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, UsageError
from gristmill.cli.plugins import Plugin, load_plugin
from gristmill.cli.values import whole_number
from gristmill.lm.training.config import DeviceName


@dataclass(frozen=True, kw_only=True)
class Command:
    """Show tokenizers, shards and runs on local web pages, live.

    Prints the address of the pages and serves them until Ctrl-C. The address contains a random token, and only this
    machine can open it unless --host is given.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Watch a run while it trains, and generate text with its checkpoints.", "gristmill view run"),
        ("Overlay the curves of two runs.", "gristmill view run-a run-b"),
        (
            "Compare two tokenizers, one of them published, on text that you type.",
            "gristmill view tok.json cl100k_base",
        ),
        ("Show everything in a folder, and open the browser.", "gristmill view quickstart --open"),
    )

    paths: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PATH…", help_behavior_hint="")]
    """Tokenizers, folders of shards, run folders, or folders that contain them. A name such as gpt2, cl100k_base
    or openai-community/gpt2 stands for a published tokenizer whose files are on this machine."""

    host: str = "127.0.0.1"
    """Address to listen on. Pass 0.0.0.0 to let other machines open the pages; they need the token too."""

    port: Annotated[
        int | None, whole_number("--port"), tyro.conf.arg(help_behavior_hint="(default: 8765, or the next free port)")
    ] = None
    """Port to listen on."""

    open: Flag = False
    """Open the pages in the browser."""

    device: Annotated[DeviceName, tyro.conf.arg(metavar="DEVICE")] = "auto"
    """Device of the playground: cpu, cuda, mps, or auto (a GPU, but the CPU while one of these runs is trained)."""

    pattern: Annotated[str | None, tyro.conf.arg(metavar="NAME|REGEX", help_behavior_hint="")] = None
    """Pattern of tokenizers whose format does not store it, such as .tiktoken."""

    download: Flag = False
    """Download a published tokenizer that is not on this machine."""

    plugin: Plugin = None

    def run(self) -> int:
        from gristmill.packages import require_packages
        from gristmill.view.security import is_loopback
        from gristmill.view.server import serve

        require_packages("gristmill view", "starlette", "uvicorn")
        if not self.paths:
            raise UsageError("no path given. Pass a tokenizer, a folder of shards or a run folder.")
        load_plugin(self.plugin)
        if self.device not in ("auto", "cpu"):
            require_packages("gristmill view --device", "torch")
            from gristmill.lm.use.device import find_device

            find_device(self.device)
        if not is_loopback(self.host):
            print(
                "gristmill: warning: other machines can reach these pages. Anyone who knows the address, with its "
                "token, can read these artefacts and generate text. The connection is not encrypted.",
                file=sys.stderr,
            )
        serve(
            self.paths,
            host=self.host,
            port=self.port,
            open_browser=self.open,
            device=self.device,
            pattern=self.pattern,
            download=self.download,
            announce=_announce,
        )
        print("Stopped.", file=sys.stderr)
        _end_threads()
        return 0


def _announce(address: str) -> None:
    print(address, flush=True)
    print("Open this address in a browser. Press Ctrl-C to stop.", file=sys.stderr)


def _end_threads() -> None:
    """End the process if the playground still imports torch or reads a checkpoint.

    Waiting could take a minute, and the normal exit of Python would crash in the middle of that work.
    """
    from gristmill.view.turns import PLAYGROUND_THREAD

    if any(thread.name == PLAYGROUND_THREAD for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
