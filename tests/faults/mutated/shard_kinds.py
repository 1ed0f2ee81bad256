"""Kinds: finished shards of every layout, folders of other programs, unfinished runs, jobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import xxhash

import gristmill as gm
from faults.mutated.kind import GROWTH, PARQUET_GROWTH, Kind
from faults.mutated.tokenizer_kinds import END, small_tokenizer
from gristmill.corpus import batches
from gristmill.shards.layouts import LAYOUTS
from gristmill.shards.manifest import checksum_fits
from shards.builder import build_folder

TEXTS = ["low lower", "", "newest wider"]

# Readers


def read_all(folder: Path) -> None:
    """Every document and token of every split."""
    shards = gm.Shards(folder / "s")
    for split in shards.manifest.splits:
        read_split(shards.other_split(split))


def read_split(shards: gm.Shards) -> None:
    np.asarray(shards.tokens[:])
    shards.document_ends.tolist()
    list(shards)
    [shards.decode(i) for i in range(len(shards))]
    shards.checksums() if shards.has_manifest else None
    repr(shards)


def read_foreign(folder: Path) -> None:
    """Token files without a manifest, with and without a tokenizer."""
    tokenizer = _foreign_tokenizer()
    for split in ("train", "val"):
        for options in ({}, {"tokenizer": tokenizer}):
            try:
                shards = gm.Shards(folder / "s", split=split, **options)
            except gm.OptionError:
                continue
            np.asarray(shards.tokens[:])
            if options:
                list(shards)


_FOREIGN: list[gm.Tokenizer] = []


def _foreign_tokenizer() -> gm.Tokenizer:
    if not _FOREIGN:
        _FOREIGN.append(small_tokenizer())
    return _FOREIGN[0]


def verify(folder: Path) -> None:
    gm.verify_shards(folder / "s")


def inspect(folder: Path) -> None:
    from gristmill.cli.inspect_shards import inspect_shards

    inspect_shards(folder / "s", 0)


def view(folder: Path) -> None:
    """What the pages of `gristmill view` show of a folder."""
    from gristmill.view.shard_folder import OpenFolder, written_so_far

    opened = OpenFolder.from_path(folder / "s")
    for split in opened.manifest.splits:
        opened.counts(split), opened.lengths(split)
    written_so_far(folder / "s")


def train_data(folder: Path) -> None:
    """The batches that a model is trained on."""
    from gristmill.lm.data.token_source import TokenSource

    TokenSource(gm.Shards(folder / "s"))


# Seals. What cannot be sealed, because it is no JSON any more, stays as it is.


def seal_manifest(folder: Path) -> None:
    """Make the checksums in the manifest match the files, and its own checksum its content."""
    path = folder / "s/manifest.json"
    with suppress(Exception):
        path.write_bytes(_with_checksums_of_files(path.read_bytes(), folder / "s"))
    body = path.read_bytes().rpartition(b',\n "checksum": "')[0]
    if body:
        checksum = hashlib.sha256(body + b"\n}\n").hexdigest().encode()
        path.write_bytes(body + b',\n "checksum": "' + checksum + b'"\n}\n')


def _with_checksums_of_files(data: bytes, folder: Path) -> bytes:
    text = data.decode()
    for split in json.loads(text)["splits"].values():
        for entry in split["shards"]:
            for name, key in ((entry["file"], "xxh64"), (entry["index"], "index_xxh64")):
                if name is not None and (folder / name).parent == folder:
                    found = (folder / name).read_bytes()
                    text = text.replace(f'"{entry[key]}"', f'"{xxhash.xxh64_hexdigest(found)}"')
                    if key == "xxh64":
                        text = text.replace(f'"bytes": {entry["bytes"]},', f'"bytes": {len(found)},')
    return text.encode()


def seal_record(path: Path) -> None:
    """Make the checksum of progress.json or .request.json match."""
    content = json.loads(path.read_bytes())
    content.pop("checksum", None)
    text = json.dumps(content, indent=1).encode() + b"\n"
    path.write_bytes(json.dumps({**content, "checksum": hashlib.sha256(text).hexdigest()}, indent=1).encode() + b"\n")


def seal_unfinished(folder: Path) -> None:
    """Make the checksum of the journal in progress.json match, and those of the records."""
    path = folder / "s/progress.json"
    with suppress(Exception):
        content = json.loads(path.read_bytes())
        journal = (folder / "s/.shards.jsonl").read_bytes()
        content["journal"] |= {"bytes": len(journal), "sha256": hashlib.sha256(journal).hexdigest()}
        path.write_bytes(json.dumps(content, indent=1).encode() + b"\n")
    for name in ("s/progress.json", "s/.request.json"):
        with suppress(Exception):
            seal_record(folder / name)


# Valid folders


def make_layout(root: Path, *, layout: str) -> None:
    for name, options in (("two", {"shard_tokens": 8, "val_texts": ["low"]}), ("one", {})):
        (root / name).mkdir()
        build_folder(root / name / "s", TEXTS, layout=layout, tokenizer=small_tokenizer(), **options)
        assert checksum_fits((root / name / "s/manifest.json").read_bytes())


def make_foreign(root: Path) -> None:
    for layout in ("nanogpt", "llmc", "megatron", "datatrove"):
        (root / layout).mkdir()
        build_folder(root / layout / "s", TEXTS, layout=layout, tokenizer=small_tokenizer(), val_texts=["low"])
        (root / layout / "s/manifest.json").unlink()
        (root / layout / "s/tokenizer.json").unlink()


class Interrupted(Exception):
    pass


@contextmanager
def stopping_at_checkpoint(number: int) -> Iterator[None]:
    """Interrupt a run at its n-th checkpoint."""
    from gristmill.shards.folder import Folder

    save, saved = Folder.save, []

    def save_and_stop(self: Folder, checkpoint: object) -> None:
        save(self, checkpoint)
        saved.append(checkpoint)
        if len(saved) == number:
            raise Interrupted

    Folder.save = save_and_stop
    try:
        yield
    except Interrupted:
        pass
    finally:
        Folder.save = save


def encode(folder: Path, layout: str) -> None:
    gm.encode_corpus(
        [folder / "a.txt", folder / "b.txt"],
        _foreign_tokenizer(),
        out=folder / "s",
        format=layout,
        end_of_text=END,
        separator="\n",
        num_threads=1,
        checkpoint_seconds=0,
        progress=None,
        **({"shard_tokens": 100} if layout not in ("nanogpt", "megatron") else {}),
        val_fraction=0.3,
    )


def make_unfinished(root: Path, *, layout: str) -> None:
    """Interrupted runs. The inputs are recorded with their paths, so they are made where the readers find them."""
    batches.BATCH_BYTES, batches.MIN_STRETCH_BYTES = 256, 16  # in this process, so that there are several checkpoints
    now = root.parent / "now"
    for number in (1, 3):
        now.mkdir()
        for name in "ab":
            (now / f"{name}.txt").write_text("\n".join(f"low lower {i}" for i in range(40)))
        with stopping_at_checkpoint(number):
            encode(now, layout)
        assert (now / "s/progress.json").exists(), layout
        now.rename(root / f"after-{number}")


def resume(folder: Path, *, layout: str) -> None:
    encode(folder, layout)


def look(folder: Path) -> None:
    """What other commands do with an unfinished folder."""
    from gristmill.view.shard_folder import written_so_far

    written_so_far(folder / "s")
    gm.verify_shards(folder / "s")


def look_at_valid(folder: Path) -> None:
    """As `look`, but a folder that is unfinished is an error that is expected."""
    with suppress(gm.ShardsFormatError):
        look(folder)


def _is_of_run(name: str) -> bool:
    return name.startswith("s/") and not name.endswith(".lock")


def _named(function: Callable[..., object], **options: object) -> Callable[[Path], object]:
    made = partial(function, **options)
    made.__name__ = f"{function.__name__}_{'_'.join(map(str, options.values()))}"  # type: ignore[attr-defined]
    return made


# Jobs of executors


def make_job(root: Path) -> None:
    from gristmill.executors.done import Done, write_done
    from gristmill.executors.job import Job
    from gristmill.executors.work_folder import FileEntry, LocalWorkFolder

    (root / "job").mkdir()
    folder = LocalWorkFolder(root / "job")
    inputs = [{"path": "a.txt", "bytes": 10}, {"path": "b.txt", "bytes": 20}]
    Job("encode", inputs, {"layout": "gristmill"}, {"part_bytes": 4}, [[0, 1], [1, 2]]).write(folder)
    folder.write("part-0.bin", b"0123456789")
    write_done(folder, "part-0", Done((FileEntry("part-0.bin", 10, "f" * 16),), {"tokens": 3}))


def read_job(folder: Path) -> None:
    from gristmill.executors.job import Job
    from gristmill.executors.work_folder import LocalWorkFolder

    Job.read(LocalWorkFolder(folder))


def read_result(folder: Path) -> None:
    from gristmill.executors.done import read_all_done, read_done
    from gristmill.executors.work_folder import LocalWorkFolder

    read_done(LocalWorkFolder(folder), "part-0")
    read_all_done(LocalWorkFolder(folder), ["part-0", "part-1"])


def seal_job(folder: Path) -> None:
    """Make the checksums of a result and of a job match."""
    with suppress(Exception):
        record = json.loads((folder / "part-0.ok").read_bytes())
        record["xxh64"] = xxhash.xxh64_hexdigest(record["content"].encode("utf-8", "surrogatepass"))
        (folder / "part-0.ok").write_bytes(json.dumps(record).encode())
    content = json.loads((folder / "job.json").read_bytes())
    for name in ("inputs", "parts"):
        content[f"{name}_sha256"] = hashlib.sha256((folder / f"{name}.jsonl").read_bytes()).hexdigest()
    content["settings_sha256"] = hashlib.sha256(json.dumps(content["settings"], sort_keys=True).encode()).hexdigest()
    inputs = [json.loads(line) for line in (folder / "inputs.jsonl").read_bytes().splitlines()]
    decisive = {"version": 1, "kind": content["kind"], "inputs": inputs, "options": content["options"]}
    content["id"] = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]
    (folder / "job.json").write_bytes(json.dumps(content, indent=1).encode())


FINISHED = [read_all, verify, inspect, view]

KINDS = [
    *(
        Kind(
            f"shards-{layout}",
            partial(make_layout, layout=layout),
            FINISHED if layout != "parquet" else [verify, inspect],
            seal_manifest,
            max_growth=PARQUET_GROWTH if layout == "parquet" else GROWTH,
        )
        for layout in LAYOUTS
    ),
    Kind("shards-foreign", make_foreign, [read_foreign, inspect]),
    *(
        Kind(
            f"unfinished-{layout}",
            partial(make_unfinished, layout=layout),
            [_named(resume, layout=layout), _named(resume, layout=layout), look_at_valid],
            seal_unfinished,
            mutated=_is_of_run,
            writes=True,
        )
        for layout in LAYOUTS
    ),
    Kind("job", make_job, [read_job, read_result], seal_job),
]
