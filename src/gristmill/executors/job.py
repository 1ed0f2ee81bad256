"""Jobs: the description of the work, written once so that every worker reads the same.

`job.json` is small for any number of inputs: every task reads it, to check whether the job is the one that its process
has in memory. A process reads `inputs.jsonl` and `parts.jsonl` once; `job.json` has their checksums.

The id of a job is a hash of everything that decides its result: inputs, options and the version of this format. The cut
into parts is recorded too, but it is not part of the id: a run that resumes uses the existing parts.

Counting and encoding open their work folder with `open_job`:

    location = job_location(job, work_folder=executor.work_folder, default=f"{out}/.parts")
    with open_job(location, job, make_parts) as opened:  # locked: one driver at a time
        run_stages(workers, opened.folder, …)  # opened.job has the parts; opened.is_resumed
        …
        opened.folder.remove()
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from gristmill.errors import FormatError
from gristmill.executors.work_folder import LocalWorkFolder, WorkFolder, open_work_folder
from gristmill.lock import create_and_lock
from gristmill.small_files import parse_json

JOB_FILE = "job.json"
INPUTS_FILE = "inputs.jsonl"
PARTS_FILE = "parts.jsonl"
FORMAT = "gristmill-job"
VERSION = 1
KINDS = ("count", "encode")
# Name of the folder of a job in a work folder; see `job_location`.
JOB_NAME = re.compile(rf"(?:{'|'.join(KINDS)})-[0-9a-f]{{16}}")
IN_USE = "Another process is running this job"
WHAT_TO_DO = "Wait until it has ended, or stop it"


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its parts. `options` and `inputs` are JSON."""

    kind: str  # "count" or "encode"
    inputs: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any]
    settings: Mapping[str, Any]  # with no effect on the result: sizes of parts, number of partitions
    parts: Sequence[Any]  # description of each part, JSON

    @property
    def id(self) -> str:
        """16 hexadecimal digits, the same for the same request everywhere."""
        decisive = {"version": VERSION, "kind": self.kind, "inputs": list(self.inputs), "options": dict(self.options)}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]

    def write(self, folder: WorkFolder) -> None:
        """Write the job; `job.json` last, so a folder with that file is complete."""
        checksums = {
            "inputs_sha256": _write_lines(folder, INPUTS_FILE, self.inputs),
            "parts_sha256": _write_lines(folder, PARTS_FILE, self.parts),
        }
        content = {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "kind": self.kind,
            "options": dict(self.options),
            "settings": dict(self.settings),
            "settings_sha256": _sha256_of(self.settings),
            "num_inputs": len(self.inputs),
            "num_parts": len(self.parts),
            **checksums,
        }
        folder.write(JOB_FILE, json.dumps(content, indent=1).encode())

    @classmethod
    def read(cls, folder: WorkFolder) -> Job:
        """Return the job of a folder. Raises FileNotFoundError if there is no job, FormatError if it is damaged."""
        data = folder.read(JOB_FILE)
        try:
            content = parse_json(data, error=FormatError)
            _check_content(content)
            inputs = _read_lines(folder, INPUTS_FILE, content["inputs_sha256"])
            if not all(isinstance(input, dict) for input in inputs):
                raise FormatError("an input is not an object")
            parts = _read_lines(folder, PARTS_FILE, content["parts_sha256"])
            job = cls(content["kind"], inputs, content["options"], content["settings"], parts)
            if job.id != content["id"]:
                raise FormatError("its id does not match its content")
            if content["settings_sha256"] != _sha256_of(job.settings):  # they are not part of the id
                raise FormatError("the checksum of its settings does not match")
        except FormatError as error:
            why = str(error)
            raise FormatError(
                f"{folder.location}: {JOB_FILE} is damaged, or from another version of Gristmill ({why.rstrip('.')}"
                f"). Remove the folder to start again."
            ) from error
        return job


def _sha256_of(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode()).hexdigest()


_TYPES: dict[str, type] = {
    "id": str,
    "kind": str,
    "options": dict,
    "settings": dict,
    "num_inputs": int,
    "settings_sha256": str,
    "num_parts": int,
    "inputs_sha256": str,
    "parts_sha256": str,
}


def _write_lines(folder: WorkFolder, name: str, values: Sequence[Any]) -> str:
    """Write one value per line; return the checksum of the file."""
    lines = "".join(json.dumps(value) + "\n" for value in values).encode()
    folder.write(name, lines)
    return hashlib.sha256(lines).hexdigest()


def _read_lines(folder: WorkFolder, name: str, checksum: str) -> list[Any]:
    try:
        lines = folder.read(name)
    except (FileNotFoundError, IsADirectoryError):
        raise FormatError(f"{name} is missing") from None
    if hashlib.sha256(lines).hexdigest() != checksum:
        raise FormatError(f"the checksum of {name} does not match")
    values: list[Any] = parse_json(b"[" + b",".join(lines.splitlines()) + b"]", error=FormatError)
    return values


def _check_content(content: Any) -> None:
    """Raise FormatError unless `job.json` has the fields of a job of this version."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FormatError("it is not a job")
    if content.get("version") != VERSION:
        raise FormatError(f"version {str(content.get('version'))[:20]}, but this Gristmill reads version {VERSION}")
    for name, kind in _TYPES.items():
        if not isinstance(content.get(name), kind):
            raise FormatError(f"{name} is missing or not of type {kind.__name__}")
    if content["kind"] not in KINDS:
        raise FormatError(f"the kind {content['kind'][:20]!r} is unknown")


# Returns the parts of a new job, and may write more files for the workers into the folder, such as a tokenizer.
MakeParts: TypeAlias = Callable[[WorkFolder], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job in its folder, locked until the block of `open_job` ends."""

    folder: WorkFolder
    job: Job  # with its parts
    is_resumed: bool  # an earlier run has started it


def job_location(job: Job, *, work_folder: str | os.PathLike[str] | None, default: str) -> str:
    """Return the folder of a job: `KIND-ID` in the user's work folder, or `default`.

    >>> job_location(Job("count", [], {}, {}, []), work_folder="s3://bucket/work", default="x")
    's3://bucket/work/count-ee4fc7fe99b573fc'
    """
    return default if work_folder is None else f"{os.fspath(work_folder).rstrip('/')}/{job.kind}-{job.id}"


@contextlib.contextmanager
def open_job(location: str, job: Job, make_parts: MakeParts, *, overwrite: bool = False) -> Iterator[OpenJob]:
    """Open the job in its folder: the one that an earlier run has started there, or a new one.

    job: the job, without parts. Its settings are for a new job; an existing job keeps its own.
    make_parts: called for a new job.
    overwrite: replace a different unfinished job. Without it, such a job raises FileExistsError with the differences.

    The folder stays when the block ends, with or without an error; call `OpenJob.folder.remove()` when all is done. It
    is removed only if a new job could not be written. Raises BlockingIOError if another process has the job open.
    """
    with _locked(location) as (folder, is_new):
        there = _find(folder, job, overwrite)
        if there is not None:
            folder.discard_leftovers()
            yield OpenJob(folder, there, True)
            return
        try:
            if not is_new:  # leftovers of a removed job would be taken for results of this one
                folder.clear()
            written = dataclasses.replace(job, parts=list(make_parts(folder)))
            written.write(folder)
        except BaseException:
            if is_new:
                folder.remove()
            raise
        yield OpenJob(folder, written, False)


@contextlib.contextmanager
def reopen_job(location: str) -> Iterator[OpenJob]:
    """Open the job of a folder, to finish it; raise FileNotFoundError if there is no job."""
    folder = open_work_folder(location)
    if folder.size(JOB_FILE) is None:
        raise FileNotFoundError(errno.ENOENT, f"The folder holds no job: it has no {JOB_FILE}", folder.location)
    with _locked(location) as (folder, _):
        yield OpenJob(folder, Job.read(folder), True)


@contextlib.contextmanager
def _locked(location: str) -> Iterator[tuple[WorkFolder, bool]]:
    """The folder, created if missing, and whether it is new. Only a folder of a file system can be locked."""
    folder = open_work_folder(location)
    if not isinstance(folder, LocalWorkFolder):
        yield folder, not folder.names()
        return
    try:
        folder.path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        message = "The work folder is a file, or inside a file. Pass a folder"
        raise NotADirectoryError(errno.ENOTDIR, message, str(folder.path.parent)) from None
    descriptor, is_new = create_and_lock(Path(folder.path), reason=IN_USE, advice=WHAT_TO_DO)
    try:
        yield folder, is_new
    finally:
        os.close(descriptor)


def _find(folder: WorkFolder, job: Job, overwrite: bool) -> Job | None:
    """Return the job in the folder if it is the same; None if there is no job, or it was removed."""
    try:
        there = Job.read(folder)
    except FileNotFoundError:
        return None
    except FormatError:
        if not overwrite:
            raise
        folder.clear()
        return None
    if there.id == job.id:
        return there
    if overwrite:
        folder.clear()
        return None
    raise FileExistsError(
        errno.EEXIST,
        f"The folder holds an unfinished job with other options or inputs: {'; '.join(differences(there, job))}. "
        f"Finish it with the same options, pass overwrite=True to start again, or pass another folder",
        folder.location,
    )


def differences(there: Job, asked: Job) -> list[str]:
    """Describe how two jobs differ."""
    if there.kind != asked.kind:
        return [f"the job was {there.kind!r} and is now {asked.kind!r}"]
    before, now = there.options, asked.options
    found = [
        f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
        for name in dict.fromkeys([*now, *before])
        if before.get(name) != now.get(name)
    ]
    return found + _input_differences(there.inputs, asked.inputs)


def _input_differences(there: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]]) -> list[str]:
    if len(there) != len(asked):
        return [f"the number of inputs was {len(there):,} and is now {len(asked):,}"]
    for before, now in zip(there, asked, strict=True):
        if before != now:
            return [f"the input {now.get('name')} is new, has changed, or has moved in the order"]
    return []
