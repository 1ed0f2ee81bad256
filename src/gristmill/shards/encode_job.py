"""The job of encoding a corpus in parts: writing a plan as a job, and reading it in a worker."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from gristmill.corpus import FoundFiles, Reading
from gristmill.corpus.inputs import Input, is_url
from gristmill.corpus.stretches import (
    Part,
    cut_into_parts,
    default_part_bytes,
    inputs_from_json,
    inputs_to_json,
    part_from_json,
    part_to_json,
)
from gristmill.encode.document_encoder import DocumentEncoder
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import FormatError
from gristmill.executors.job import JOB_FILE, Job
from gristmill.executors.work_folder import WorkFolder, open_work_folder
from gristmill.forks import call_in_forked_child
from gristmill.shards.inputs import recorded_name
from gristmill.shards.layouts import Layout, layout_of
from gristmill.shards.manifest import TOKENIZER_FILE, EndOfText, InputEntry
from gristmill.shards.plan import Plan
from gristmill.shards.request import Request
from gristmill.tokenizer.formats import gristmill_json

KIND = "encode"


def job_of_plan(plan: Plan, *, name: str, target: str | None, part_bytes: int | None) -> Job:
    """Return the job for a plan, without its parts.

    name: the name of the folder of shards, after which some layouts name their files.
    target: where to write the shards; None for the parent of the work folder.
    """
    assert isinstance(plan.source, FoundFiles) and plan.request.inputs is not None
    options = plan.request.to_json()
    del options["inputs"], options["command"]
    if target is not None:
        options["out"] = target
    inputs = [
        {**entry, "samples": recorded.samples}
        for entry, recorded in zip(inputs_to_json(plan.source), plan.request.inputs, strict=True)
    ]
    settings = {
        "part_bytes": part_bytes or default_part_bytes(plan.source.num_bytes),
        "name": name,
        "command": plan.request.command,
        "current_folder": os.getcwd(),  # noqa: PTH109
    }
    return Job(KIND, inputs, options, settings, ())


def make_parts(plan: Plan, job: Job, folder: WorkFolder) -> list[Any]:
    """Save the tokenizer in the folder of a new job, and return the parts of the job."""
    assert isinstance(plan.source, FoundFiles)
    folder.write(TOKENIZER_FILE, gristmill_json.content(plan.tokenizer.parts))
    parts = cut_into_parts(
        plan.source, plan.reading, part_bytes=job.settings["part_bytes"], cutting=plan.encoder.cutting
    )
    return [part_to_json(part) for part in parts]


class EncodeWork:
    """An encode job as a worker sees it. Thread-safe."""

    def __init__(self, folder: WorkFolder, job: Job) -> None:
        self.folder, self.job = folder, job
        self.request = _request_of(job)
        self._lock = threading.Lock()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer in the work folder."""
        try:
            with self.folder.as_local_file(TOKENIZER_FILE) as local:
                tokenizer = Tokenizer.load(local.path)
        except (FileNotFoundError, FormatError) as error:
            raise self._lost_tokenizer("missing or damaged") from error
        if tokenizer.fingerprint != self.request.tokenizer_fingerprint:
            raise self._lost_tokenizer("not the tokenizer of this job")
        return tokenizer

    def _lost_tokenizer(self, why: str) -> FormatError:
        location = self.folder.location
        return FormatError(f"{location}/{TOKENIZER_FILE}: {why}. Remove the folder {location} to start again.")

    def encoder(self) -> DocumentEncoder:
        """Return an encoder for one thread; the caller closes it."""
        with self._lock:  # the first one loads the tokenizer
            tokenizer = self.tokenizer
        end_of_text = self.request.end_of_text
        return tokenizer.document_encoder(
            allowed_special=self.request.options["allowed_special"],
            end_of_text=None if end_of_text is None else end_of_text.id,
            before=end_of_text is not None and end_of_text.position == "before",
            num_threads=1,
        )

    @cached_property
    def files(self) -> FoundFiles:
        """The inputs, with paths that are valid in this process."""
        files, folder = inputs_from_json(self.job.inputs), self.job.settings["current_folder"]
        if folder == os.getcwd():  # noqa: PTH109
            return files
        return FoundFiles(tuple(_made_absolute(input, folder) for input in files.inputs))

    def part(self, number: int) -> Part:
        """Return one of the parts."""
        return part_from_json(self.job.parts[number])

    @cached_property
    def reading(self) -> Reading:
        """How to read the inputs."""
        options = self.request.options
        return Reading(**{name: options[name] for name in Reading().options()})

    @cached_property
    def layout(self) -> Layout:
        """The layout of the shards."""
        return layout_of(self.request.layout, self.request.options)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the ids in the files."""
        return np.dtype(self.request.dtype).newbyteorder("<")

    @property
    def shard_tokens(self) -> int | None:
        """Ids per shard."""
        number: int | None = self.request.options["shard_tokens"]
        return number

    @property
    def val_fraction(self) -> float:
        """Share of the documents for validation."""
        return float(self.request.options["val_fraction"])

    @property
    def splits(self) -> list[str]:
        """Names of the splits."""
        return ["train", "val"] if self.val_fraction else ["train"]

    @property
    def name(self) -> str:
        """Name of the folder of shards."""
        return str(self.job.settings["name"])

    @property
    def target(self) -> WorkFolder:
        """The folder that the shards are written to."""
        location = self.job.options.get("out") or parent_of(self.folder.location)
        return open_work_folder(location)

    def num_bytes(self, number: int) -> int:
        """Return the approximate number of input bytes in a part."""
        return sum(self._num_bytes(*stretch[:3]) for stretch in self.part(number))

    def _num_bytes(self, index: int, begin: int, end: int | None) -> int:
        whole = self.job.inputs[index]["num_bytes"]
        if begin == 0 and end is None:
            return int(whole)
        if self.job.inputs[index]["format"] in ("text", "jsonl"):
            return int(whole if end is None else end) - begin
        return min(int(whole), int(self.job.settings["part_bytes"]))

    def name_as_given(self, index: int, message: str) -> str:
        """Return the error message of an input, with the input's name as the user gave it."""
        return message.replace(
            self.files.inputs[index].shown, inputs_from_json([self.job.inputs[index]]).inputs[0].shown
        )


def _request_of(job: Job) -> Request:
    """Return the request of the job."""
    options = {name: value for name, value in job.options.items() if name != "out"}
    end_of_text = options.pop("end_of_text")
    return Request(
        **options,
        end_of_text=None if end_of_text is None else EndOfText(**end_of_text),
        inputs=tuple(map(_entry_of, job.inputs)),
        command=job.settings["command"],
    )


def _entry_of(input: Mapping[str, Any]) -> InputEntry:
    return InputEntry(
        path=recorded_name(input["name"]),
        format=input["format"],
        compression=input["compression"],
        bytes=input["num_bytes"],
        modified_ns=input["modified_ns"],
        samples=input["samples"],
        skipped=None,
    )


def _made_absolute(input: Input, folder: str) -> Input:
    if is_url(input.name):
        return input
    return dataclasses.replace(input, name=os.path.join(folder, input.name))  # noqa: PTH118


def parent_of(location: str) -> str:
    """Return the parent folder of a path or URL.

    >>> parent_of("s3://bucket/out/.parts"), parent_of("/data/out/.parts")
    ('s3://bucket/out', '/data/out')
    """
    return location.rstrip("/").rpartition("/")[0] or "/"


_lock = threading.Lock()  # held while a job is read
_latest: tuple[tuple[str, bytes], EncodeWork] | None = None


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


call_in_forked_child(_renew_lock)


def load_work(folder: WorkFolder) -> EncodeWork:
    """Return the work of a folder; the same object again if the job is the same, so that its tokenizer stays loaded."""
    global _latest
    key = folder.location, hashlib.sha256(folder.read(JOB_FILE)).digest()
    with _lock:
        if _latest is None or _latest[0] != key:
            _latest = key, EncodeWork(folder, Job.read(folder))
        return _latest[1]
