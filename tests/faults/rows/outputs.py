"""Every kind of output that one command writes, for the tests of rows 12, 13 and 17."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from gristmill.cli import main
from recorded_runs import write_run
from texts import random_story


@dataclass(frozen=True)
class Output:
    """A kind of output, and the command that writes it. All paths are relative to the folder of the inputs."""

    name: str
    arguments: tuple[str, ...]
    target: str  # file or folder
    is_folder: bool = False
    repeats: bool = True  # whether the same command writes the same bytes
    changed: tuple[tuple[str, str], ...] = (("big.json", "small.json"), ("a.txt", "b.txt"))

    def __str__(self) -> str:
        return self.name

    @property
    def earlier(self) -> tuple[str, ...]:
        """The arguments of a command that writes another output to the same path."""
        other = dict(self.changed)
        return tuple(other.get(argument, argument) for argument in self.arguments)

    @property
    def again(self) -> tuple[str, ...]:
        """The arguments that replace an existing output."""
        always = self.name in ("trace", "report of a run")
        return self.arguments if always else (*self.arguments, "--overwrite")


def _export(format: str, target: str, *, is_folder: bool = False) -> Output:
    return Output(f"{format} export", ("export", "big.json", "-f", format, "-o", target), target, is_folder)


def _shards(layout: str) -> Output:
    arguments = ("encode", "a.txt", "-t", "big.json", "-f", layout, "-o", "out", "--progress", "none")
    return Output(f"{layout} shards", arguments, "out", is_folder=True)


TRAIN = ("train-tokenizer", "a.txt", "--vocab-size", "270", "--progress", "none")
COUNT = ("count-words", "a.txt", "--progress", "none")
FILES = [
    Output("tokenizer", (*TRAIN, "-o", "out.json"), "out.json"),
    Output("extended tokenizer", ("extend", "big.json", "a.txt", "--vocab-size", "310", "-o", "out.json"), "out.json"),
    _export("tiktoken", "out.tiktoken"),
    _export("minbpe", "out.model"),
    _export("gguf", "out.gguf"),
    _export("huggingface", "hf", is_folder=True),
    _export("gpt2", "gpt2", is_folder=True),
    Output("words", (*COUNT, "-o", "out.gmw"), "out.gmw"),
    Output(
        "trace",
        ("count-words", "a.txt", "--progress", "none", "-o", "w.gmw", "--overwrite", "--profile-out", "out.trace"),
        "out.trace",
        repeats=False,
    ),
    Output(
        "sample corpus",
        ("sample-corpus", "-o", "out.txt", "--size", "3000", "--seed", "1"),
        "out.txt",
        changed=(("1", "2"),),
    ),
    Output("report of a tokenizer", ("report", "big.json", "--text", "a.txt", "-o", "out.html"), "out.html"),
]
SHARDS = [_shards(layout) for layout in ("gristmill", "nanogpt", "llmc", "megatron", "npy", "parquet", "datatrove")]


def prepare(folder: Path) -> Path:
    """Write the inputs of all commands to `folder`, and run the commands once so that children need no imports."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(("a.txt", "b.txt")):
        (folder / name).write_text("<|endoftext|>".join(random_story(seed * 100 + i, 40) for i in range(12)))
    for name, size in (("big", "300"), ("small", "280")):
        run(folder, "train-tokenizer", "a.txt", "--vocab-size", size, "-o", f"{name}.json", "--progress", "none")
    write_run(folder / "run", num_records=3)
    return folder


def run(folder: Path, *arguments: str) -> None:
    """Run a command in this process, in `folder`."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(list(arguments)) == 0
    finally:
        os.chdir(before)


def contents(path: Path) -> dict[str, str]:
    """Return the SHA-256 of a file, or of all files of a folder, by relative name. Links are listed, not followed."""
    paths = sorted(path.rglob("*")) if path.is_dir() and not path.is_symlink() else [path]
    found = {}
    for each in paths:
        name = each.relative_to(path).as_posix()
        if each.is_symlink():
            found[name] = f"link to {each.readlink()}"
        elif each.is_file():
            found[name] = hashlib.sha256(each.read_bytes()).hexdigest()
    return found


def copy_inputs(inputs: Path, folder: Path) -> Path:
    """Return `folder` with a copy of the inputs."""
    shutil.copytree(inputs, folder, symlinks=True)
    return folder
