"""Manifests, states and records with any value in any place: a result, or an error of the tree; never another one."""

import contextlib
import hashlib
import json
import os
import shutil
import sys

import pytest

import gristmill as gm
from faults.forging import dump, forgeries
from gristmill.cli.inspect_shards import inspect_shards
from gristmill.shards import verify_shards
from shards.builder import END_OF_TEXT, build_folder, train

ALLOWED = (gm.GristmillError, OSError)
needs_devices = pytest.mark.skipif(sys.platform != "linux", reason="pipes with names, and devices")


def check(call, what):
    """Let only errors of the tree out of `call`."""
    try:
        return call()
    except ALLOWED:
        return None
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def sealed_manifest(content):
    body = dump({key: value for key, value in content.items() if key != "checksum"}).removesuffix(b"\n}")
    checksum = hashlib.sha256(body + b"\n}\n").hexdigest().encode()
    return body + b',\n "checksum": "' + checksum + b'"\n}\n'


def read_everything(folder):
    shards = gm.Shards(folder)
    documents = list(shards)
    shards.document_ends.tolist()
    return documents, [shards.decode(i) for i in range(len(shards))]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("finished")
    (root / "tales.txt").write_text("low lower lowest")
    texts = ["low lower", "", "newest wider"]
    build_folder(root / "shards", texts, val_texts=["low"], shard_tokens=8, inputs=[root / "tales.txt"])
    return root / "shards"


def inspect(folder):
    return inspect_shards(folder, 0)


@pytest.mark.parametrize("read", [read_everything, verify_shards, inspect])
def test_any_value_in_any_place_of_a_manifest(read, finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "shards")
    content = json.loads((folder / "manifest.json").read_bytes())
    assert sealed_manifest(content) == (folder / "manifest.json").read_bytes()
    for what, forged in forgeries(content):
        (folder / "manifest.json").write_bytes(sealed_manifest(forged))
        check(lambda: read(folder), what)


# Unfinished folders


def reseal(content):
    content = {key: value for key, value in content.items() if key != "checksum"}
    text = dump(content) + b"\n"
    with contextlib.suppress(ValueError):  # as Folder computes it: from what the parsed content is written as
        text = json.dumps(json.loads(text), indent=1).encode() + b"\n"
    checksum = hashlib.sha256(text).hexdigest()
    return dump({**content, "checksum": checksum}) + b"\n"


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """A corpus, a tokenizer, and the folder of a run over it that was interrupted at a checkpoint."""
    root = tmp_path_factory.mktemp("unfinished")
    for name in "ab":
        (root / f"{name}.txt").write_text("\n".join(f"low lower {i}" for i in range(40)))
    tokenizer = train()

    class Interrupted(Exception):
        pass

    from gristmill.shards.folder import Folder

    save, saved = Folder.save, []

    def save_and_stop(self, state, parts, shards):
        save(self, state, parts, shards)
        saved.append(state)
        raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folder, "save", save_and_stop)
        with pytest.raises(Interrupted):
            encode(root, root / "shards", tokenizer)
    assert saved and (root / "shards/progress.json").exists()
    return root, tokenizer


def encode(root, out, tokenizer):
    return gm.encode_corpus(
        [root / "a.txt", root / "b.txt"],
        tokenizer,
        out=out,
        end_of_text=END_OF_TEXT,
        shard_tokens=100,
        val_fraction=0.3,
        separator="\n",
        num_threads=1,
        checkpoint_seconds=0,
        progress=None,
    )


@pytest.mark.parametrize("name", ["progress.json", ".request.json"])
def test_any_value_in_any_place_of_what_an_unfinished_run_wrote(name, unfinished, tmp_path):
    root, tokenizer = unfinished
    content = json.loads((root / "shards" / name).read_bytes())
    assert reseal(content) == (root / "shards" / name).read_bytes()
    for what, forged in forgeries(content):
        folder = shutil.copytree(root / "shards", tmp_path / "shards")
        (folder / name).write_bytes(reseal(forged))
        check(lambda: encode(root, folder, tokenizer), what)  # noqa: B023
        shutil.rmtree(folder)


# Pipes and devices


def read_manifest_of(root, tokenizer):
    gm.Manifest.read(root / "shards")


def go_on(root, tokenizer):
    encode(root, root / "shards", tokenizer)


@needs_devices
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
@pytest.mark.parametrize(
    "name, call",
    [
        ("manifest.json", read_manifest_of),
        ("manifest.json", go_on),
        ("manifest.json", lambda root, _: verify_shards(root / "shards")),
        ("progress.json", go_on),
        (".request.json", go_on),
        (".replaced.json", go_on),
    ],
)
def test_a_pipe_or_device_in_the_place_of_a_file_of_shards_is_an_error(name, call, kind, unfinished, tmp_path):
    root = shutil.copytree(unfinished[0], tmp_path / "root")
    path = root / "shards" / name
    path.unlink(missing_ok=True)
    if name == ".replaced.json":  # read when new shards are complete and the old ones are being replaced
        shutil.rmtree(root / "shards")
        build_folder(root / "shards", ["low"])
        build_folder(root / "shards/.new", ["lower"])
        (root / "shards/manifest.json").unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(kind)
    with pytest.raises(ALLOWED):
        call(root, unfinished[1])
