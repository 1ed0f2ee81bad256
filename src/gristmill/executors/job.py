"""Jobs: what is to be done, written down once (`job.json`, `parts.jsonl`), so that every worker reads the same.

The id of a job is a hash of what decides its result: inputs, options and the version of this format. How it is cut into
parts is written down too, but is no part of the id: a run that resumes takes the parts that are there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.errors import FormatError
from gristmill.executors.work_folder import WorkFolder

JOB_FILE = "job.json"
PARTS_FILE = "parts.jsonl"
FORMAT = "gristmill-job"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its parts. `options` and `inputs` are JSON."""

    kind: str  # "count" or "encode"
    inputs: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any]
    settings: Mapping[str, Any]  # that do not change the result: sizes of parts, number of partitions
    parts: Sequence[Any]  # what each part is, JSON

    @property
    def id(self) -> str:
        """16 hexadecimal digits, the same wherever and whenever the same is asked for."""
        decisive = {"version": VERSION, "kind": self.kind, "inputs": list(self.inputs), "options": dict(self.options)}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]

    def write(self, folder: WorkFolder) -> None:
        """Write the job down; `job.json` last, so a folder with one is complete."""
        lines = "".join(json.dumps(part) + "\n" for part in self.parts).encode()
        folder.write(PARTS_FILE, lines)
        content = {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "kind": self.kind,
            "inputs": list(self.inputs),
            "options": dict(self.options),
            "settings": dict(self.settings),
            "num_parts": len(self.parts),
            "parts_sha256": hashlib.sha256(lines).hexdigest(),
        }
        folder.write(JOB_FILE, json.dumps(content, indent=1).encode())

    @classmethod
    def read(cls, folder: WorkFolder) -> Job:
        """The job of a folder; FileNotFoundError if there is none, FormatError if it is damaged."""
        data = folder.read(JOB_FILE)
        try:
            content = json.loads(data)
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise ValueError("another version")
            lines = folder.read(PARTS_FILE)
            if hashlib.sha256(lines).hexdigest() != content["parts_sha256"]:
                raise ValueError("checksum of the parts")
            parts = [json.loads(line) for line in lines.splitlines()]
            job = cls(content["kind"], content["inputs"], content["options"], content["settings"], parts)
            if job.id != content["id"]:
                raise ValueError("the id")
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"{folder.location}: {JOB_FILE} is damaged, or not one of this version of Gristmill ({error}). Remove "
                f"the folder to start again."
            ) from error
        return job
