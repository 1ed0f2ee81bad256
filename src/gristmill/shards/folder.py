"""The output folder of a run: its possible contents, how a run resumes, and how a failed run cleans up.

| in the folder | meaning |
|---|---|
| `manifest.json` | finished shards: a run with the same request does nothing, any other raises an error |
| `.request.json` | request of an unfinished run: a run with the same request resumes |
| `progress.json`, `.shards.jsonl` | position of the unfinished run, and the shards it has published |
| `.parts/` | the same for a run of an executor, in parts (`encode_job.py`) |
| `.new/` | shards that will replace finished ones (`overwrite`); the old ones stay until these are complete |
| `.replaced.json` | manifest of the shards that are being replaced |
| anything else | an error; never removed |

All decisions are made while the folder is locked. The lock ends with the process, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from gristmill.corpus import batches
from gristmill.corpus.batches import Mark
from gristmill.corpus.inputs import shown
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import (
    CorpusError,
    EmptyCorpusError,
    ShardsFormatError,
    ShardsMismatchError,
    TruncatedInputError,
)
from gristmill.executors.job import JOB_FILE
from gristmill.publish import publish
from gristmill.shards.exchange import exchange, finish_exchange
from gristmill.shards.journal import Journal
from gristmill.shards.layouts import LAYOUTS, Layout
from gristmill.shards.manifest import (
    MANIFEST_FILE,
    MAX_BYTES,
    MAX_ITEMS,
    NEW_FOLDER,
    PARTS_FOLDER,
    PROGRESS_FILE,
    REQUEST_FILE,
    TOKENIZER_FILE,
    Manifest,
    ShardEntry,
)
from gristmill.shards.names import (
    OwnNames,
    files_of,
    is_folder,
    refuse_other_files,
    remove,
    remove_parts,
    sizes_of,
    temporaries_of,
    tidy,
)
from gristmill.shards.place import check_place, create_and_lock
from gristmill.shards.request import Request, differences, request_of_manifest
from gristmill.shards.state import Checkpoint
from gristmill.shards.tokenizer_changes import explain_tokenizer
from gristmill.small_files import parse_json, read_small_file

FORMAT = "gristmill-progress"
VERSION = 2
_RESTORE = "Restore it, or pass overwrite=True to make all shards again."
UNKNOWN_FILES = (
    "Only the manifest lists the old shards, so overwrite=True cannot replace them either: remove the folder yourself, "
    "or pass another one."
)
LOST_SHARD = f"the shard is missing or its size has changed. {_RESTORE}"
LOST_TOKENIZER = f"the tokenizer of the shards is missing. {_RESTORE}"


class Folder:
    """A folder that one process writes shards to. Use it in a `with` block, which cleans up after a failure."""

    def __init__(self, out: str | os.PathLike[str], request: Request, *, overwrite: bool, tokenizer: Tokenizer) -> None:
        self._out = Path(os.path.abspath(out))  # noqa: PTH100  layouts need a name, not `..` or `.`
        self.request = request
        self._overwrite = overwrite
        self._tokenizer = tokenizer
        self._names = self._names_of(request.layout)
        self.path = self._out  # where to write
        self.finished: Manifest | None = None  # set if the shards are complete
        self.state: dict[str, Any] | None = None  # where to resume; None for a new run

    @property
    def name(self) -> str:
        """Name of the folder, also while the shards are written to `.new`."""
        return self._out.name

    @property
    def location(self) -> str:
        """Path to write to, as workers open it."""
        return str(self.path)

    @property
    def has_parts(self) -> bool:
        """Whether an executor has started the shards."""
        return (self.path / PARTS_FOLDER / JOB_FILE).is_file() and is_folder(self.path / PARTS_FOLDER)

    def refuse_state(self) -> None:
        """Raise if a run without an executor has started the shards and `overwrite` is False."""
        if self.state is None:
            return
        if not self._overwrite:
            raise ShardsMismatchError(
                errno.EEXIST,
                "The folder holds unfinished shards of a run without an executor, which an executor cannot continue. "
                "Run again without executor= and work_folder= to finish it, pass another folder, or overwrite=True to "
                "start again",
                str(self._out),
            )
        self.start_again()

    def __enter__(self) -> Folder:
        check_place(self._out)
        self._lock, self._is_new = create_and_lock(self._out)
        try:
            self._look()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        try:
            if error is not None and self.finished is None:
                self._put_in_order_after(error)
        finally:
            os.close(self._lock)

    def save(self, checkpoint: Checkpoint) -> None:
        """Record the position of the run. Shards of earlier checkpoints are not written again."""
        journal = self._journal.append(checkpoint.shards)
        content = {"state": checkpoint.state, "parts": checkpoint.parts, "journal": journal, "batches": batches.VERSION}
        self._publish(PROGRESS_FILE, _with_checksum(content))

    def save_tokenizer(self, layout: Layout) -> None:
        """Write the tokenizer and the extra files of the layout."""
        self._tokenizer.save(self.path / TOKENIZER_FILE)
        for name in layout.extra_names:
            self._publish(name, layout.extra_file(name, self._tokenizer.vocab, self._tokenizer.vocab_size))

    def start_again(self) -> None:
        """Remove the files of an earlier run and start from the beginning."""
        self._clear(self._names)
        self._begin()

    def finish(self, manifest: Manifest) -> None:
        """Publish the manifest, which makes the shards complete."""
        self._publish(MANIFEST_FILE, manifest.to_json())
        tidy(self.path, self._names)
        if self.path != self._out:
            exchange(self._out)

    # Finding out what is in the folder

    def _look(self) -> None:
        """Find out whether the shards are finished, started, or not started."""
        was_interrupted = finish_exchange(self._out)
        if (self._out / MANIFEST_FILE).is_file():
            manifest = self._read_manifest()
            tidy(self._out, self._names_of(manifest.layout))
            if not self._overwrite or (was_interrupted and self._is_answered_by(manifest)):
                self.finished = self._checked(manifest)
                return
            refuse_other_files(self._out, known=files_of(manifest), known_folder=NEW_FOLDER)
            self.path = self._out / NEW_FOLDER
            self.path.mkdir(exist_ok=True)
        self.state = self._find_state()

    def _read_manifest(self) -> Manifest:
        try:
            return Manifest.read(self._out)
        except ShardsFormatError as error:
            raise ShardsFormatError(f"{error} {UNKNOWN_FILES}") from None

    def _is_answered_by(self, manifest: Manifest) -> bool:
        asked = self.request.to_json()
        return self.request.inputs is not None and not differences(request_of_manifest(manifest), asked)

    def _checked(self, manifest: Manifest) -> Manifest:
        """Return the manifest in the folder if it matches the request and its shards exist; otherwise raise."""
        if self.request.inputs is None:
            raise self._mismatch(
                "The folder already holds finished shards, and an iterable of documents cannot be compared with them"
            )
        self._refuse_if_different(request_of_manifest(manifest), "finished")
        for split in manifest.splits.values():
            check_shards(self._out, split.shards, LAYOUTS[manifest.layout])
        if not (self._out / manifest.tokenizer_file).is_file():
            raise ShardsFormatError(f"{self._out / manifest.tokenizer_file}: {LOST_TOKENIZER}")
        return manifest

    def _find_state(self) -> dict[str, Any] | None:
        """Return the state of an unfinished run to resume; None for a new run, for which the folder is now empty."""
        self._journal = Journal(self.path)
        there = self._read_request()
        if there is not None:
            called = str(there.pop("folder", self.name))
            if self._is_renamed(there, called):
                if not self._overwrite:
                    raise self._mismatch(
                        f"The folder was renamed: its unfinished shards are in files named after the old name "
                        f"{called!r}. Rename it back"
                    )
                self._clear(OwnNames(LAYOUTS[there["layout"]], called))
                self._begin()
                return None
            comparable = there.get("inputs") is not None or self.request.inputs is not None
            if comparable and not differences(there, self.request.to_json()):
                return self._read_state()
            if comparable and self.path == self._out and not self._overwrite:
                self._refuse_if_different(there, "unfinished")
            self._clear(self._names_of(str(there.get("layout"))))
        remove(self.path, temporaries_of(REQUEST_FILE, self.path))  # of a run that was killed at its very start
        refuse_other_files(self.path, known=())
        self._begin()
        return None

    def _is_renamed(self, there: dict[str, Any], called: str) -> bool:
        """Whether the files of the unfinished run have other names than this run would give them."""
        layout = LAYOUTS.get(str(there.get("layout")))
        return layout is not None and layout.token_file(called, "train", 0) != layout.token_file(self.name, "train", 0)

    def _read_request(self) -> dict[str, Any] | None:
        """Return the request of the unfinished run; None if there is no unfinished run."""
        try:
            request = _read(self.path / REQUEST_FILE)
            _schema().check_request({key: value for key, value in request.items() if key != "folder"})
            return request
        except FileNotFoundError:
            if not _is_ours(self.path / PROGRESS_FILE):  # many programs have a progress.json
                return None
        except ShardsFormatError:
            pass
        if not self._overwrite:
            raise ShardsFormatError(
                f"{self.path}: the request of the unfinished run ({REQUEST_FILE}) is missing, damaged or from another "
                f"version of Gristmill, so the run cannot resume. Pass overwrite=True to start again, or another "
                f"folder."
            )
        self._clear(self._names)
        return None

    def _read_state(self) -> dict[str, Any] | None:
        try:
            progress = _read(self.path / PROGRESS_FILE)
            _schema().check_progress(progress, num_inputs=len(self.request.inputs or ()))
        except FileNotFoundError:
            remove(self.path, self._names.leftovers(self.path))
            return None
        except ShardsFormatError:
            progress = {}
        try:
            if progress.get("batches") != batches.VERSION:
                raise ShardsFormatError(
                    f"{self.path / PROGRESS_FILE}: damaged or from another version of Gristmill, so the run cannot "
                    f"resume. Pass overwrite=True to start again, or another folder."
                )
            return self._with_shards(progress["state"], self._journal.read(progress["journal"]))
        except ShardsFormatError:
            if not self._overwrite:
                raise
        self.start_again()
        return None

    @staticmethod
    def _with_shards(state: dict[str, Any], shards: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
        splits = {name: {**split, "shards": shards.get(name, [])} for name, split in state["splits"].items()}
        return {**state, "splits": splits}

    # Changing the folder

    def _begin(self) -> None:
        self.state = None
        self._journal = Journal(self.path)
        try:
            self._publish(REQUEST_FILE, _with_checksum({**self.request.to_json(), "folder": self.name}))
        except BaseException as error:
            self._put_in_order_after(error)
            raise

    def _publish(self, name: str, data: bytes) -> None:
        with publish(self.path / name) as file:
            file.write(data)

    def _refuse_if_different(self, there: dict[str, Any], state: str) -> None:
        explain = partial(explain_tokenizer, self.path / TOKENIZER_FILE, now=self._tokenizer)
        found = differences(there, self.request.to_json(), explain)
        if found:
            raise self._mismatch(
                f"The folder holds {state} shards made with other options or inputs: {'; '.join(found)}"
            )

    def _mismatch(self, why: str) -> ShardsMismatchError:
        remedy = "Pass another folder, or overwrite=True to replace the shards"
        return ShardsMismatchError(errno.EEXIST, f"{why}. {remedy}", str(self._out))

    def _put_in_order_after(self, error: BaseException) -> None:
        """Clean up after `error`. A failure of the cleanup does not replace `error`."""
        try:
            self._put_in_order(error)
        except Exception as second:
            error.add_note(f"{self.path}: could not remove the files of this run: {second!r}")

    def _put_in_order(self, error: BaseException) -> None:
        """Keep what a later run can use after `error`, and remove the rest.

        Decide by what is on the disk: the interruption may have come right after the last step.
        """
        if (self.path / MANIFEST_FILE).is_file():
            return
        try:
            progress = _read(self.path / PROGRESS_FILE)
        except FileNotFoundError:
            if self.has_parts:  # a later run uses the finished parts and shards
                remove(self.path, self._names.leftovers(self.path))
                return
            self._remove_all()
            return
        if isinstance(error, EmptyCorpusError) or self._may_hold_damage(error, progress["state"]["position"]):
            self._remove_all()
            return
        parts = progress["parts"]
        for path in [self.path / name for name in self._names.leftovers(self.path)]:
            size = parts.get(path.name)
            if size is None or path.is_symlink():
                path.unlink()
            elif path.stat().st_size > size:
                os.truncate(path, size)

    def _may_hold_damage(self, error: BaseException, position: dict[str, Any]) -> bool:
        """Whether the shards up to the checkpoint at `position` may contain wrong text from a damaged input.

        The checksum of a compressed file is checked at its end, after checkpoints inside the file were saved. If the
        file is then repaired and keeps its size and time, a resumed run cannot detect that its shards are wrong.
        """
        if not isinstance(error, CorpusError) or not self.request.inputs:
            return False
        input = self.request.inputs[position["index"]]
        if isinstance(error, TruncatedInputError) and error.offset < input.bytes:
            return False  # a server sent only a part of a file that may be sound
        is_inside = position["mark"] != list(Mark())
        return bool(input.compression) and is_inside and getattr(error, "path", input.path) == input.path

    def _remove_all(self) -> None:
        """Remove the files of this run, and the folder if the run has created it."""
        self._clear(self._names)
        if self._is_new or self.path != self._out:
            with contextlib.suppress(OSError):
                self.path.rmdir()  # fails if the folder holds anything else

    def _clear(self, names: OwnNames) -> None:
        """Remove all files that a run with these names has written; raise, and remove nothing, if there are others.

        The process may be killed at any time. The request identifies the files, so it is removed last; progress.json is
        removed first, because without it no run needs the other files.
        """
        refuse_other_files(self.path, known=names, known_folder=PARTS_FOLDER)
        files = {path.name for path in self.path.iterdir() if path.name in names}
        remove(self.path, [PROGRESS_FILE])
        remove_parts(self.path)
        remove(self.path, [*sorted(files - {PROGRESS_FILE, REQUEST_FILE}), REQUEST_FILE])

    def _names_of(self, layout: str) -> OwnNames:
        return OwnNames(LAYOUTS.get(layout), self.name)


def _schema() -> Any:
    # Imported late: importing msgspec takes 20 ms, a tenth of a small run, and a new run has nothing to check.
    from gristmill.shards import schema

    return schema


def check_shards(folder: Path, shards: Iterable[ShardEntry], layout: Layout) -> None:
    """Raise unless every shard and index exists with its recorded size. `gristmill verify` checks the content."""
    for shard in shards:
        for name, size in sizes_of(shard, layout):
            try:
                status = os.lstat(folder / name)
            except FileNotFoundError:
                status = None
            if status is None or status.st_size != size:
                raise ShardsFormatError(f"{shown(folder / name)}: {LOST_SHARD}")


def _with_checksum(content: dict[str, Any]) -> bytes:
    content = {"format": FORMAT, "version": VERSION, **content}
    return _dump({**content, "checksum": hashlib.sha256(_dump(content)).hexdigest()})


def _read(path: Path) -> dict[str, Any]:
    """Return the content that `_with_checksum` wrote; raise `ShardsFormatError` for anything else."""
    try:
        data = read_small_file(path, what="a record of a run", max_bytes=MAX_BYTES, error=ShardsFormatError)
        content = parse_json(data, error=ShardsFormatError, max_items=MAX_ITEMS)
        checksum = content.pop("checksum")
        is_whole = hashlib.sha256(_dump(content)).hexdigest() == checksum
        if is_whole and (content.pop("format"), content.pop("version")) == (FORMAT, VERSION):
            return dict(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise ShardsFormatError(f"{path}: damaged, or written by another version of Gristmill.")


def _is_ours(path: Path) -> bool:
    """Whether the file is a record of a run, of any version and even if damaged; False if it is missing."""
    try:
        data = read_small_file(path, what="a record of a run", max_bytes=MAX_BYTES, error=ShardsFormatError)
    except (OSError, ShardsFormatError):
        return False
    return f'"{FORMAT}"'.encode() in data[:100]


def _dump(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode("ascii") + b"\n"
