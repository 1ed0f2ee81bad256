"""Manifests, states and records with any value in any place give a result or a Gristmill error, never another one."""

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
from recorded_runs import write_run
from shards.builder import END_OF_TEXT, build_folder, train

ALLOWED = (gm.GristmillError, OSError)
needs_devices = pytest.mark.skipif(sys.platform != "linux", reason="pipes with names, and devices")


@pytest.fixture(autouse=True)
def no_flushing(monkeypatch):
    """Skip flushes: the tests write a thousand small files, and no disk fails."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None, raising=False)


def check(call, what):
    """Allow only Gristmill errors from `call`."""
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
    with contextlib.suppress(ValueError):  # as Folder computes it: from the parsed content, written again
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

    def save_and_stop(self, checkpoint):
        save(self, checkpoint)
        saved.append(checkpoint)
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


def resume(root, tokenizer):
    encode(root, root / "shards", tokenizer)


@needs_devices
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
@pytest.mark.parametrize(
    "name, call",
    [
        ("manifest.json", read_manifest_of),
        ("manifest.json", resume),
        ("manifest.json", lambda root, _: verify_shards(root / "shards")),
        ("progress.json", resume),
        (".request.json", resume),
        (".replaced.json", resume),
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


# Runs

RECORDS = [
    {"kind": "train", "step": 10, "loss": 5.0, "lr": 1e-3, "grad_norm": 1.0, "tokens": 40, "tokens_per_second": 4.0}
    | {"mfu": 0.3, "mfu_matmul": None, "data_wait": 0.1, "memory_bytes": 1000, "seconds": 1.5},
    {"kind": "val", "step": 10, "loss": 5.5, "bits_per_byte": 2.0, "num_tokens": 10, "full": True, "seconds": 0.5},
    {"kind": "posterior", "step": 20, "kl": 1.0, "kl_per_dimension": [0.5, 0.25], "active_units": 2}
    | {"mutual_information": 1.0, "mutual_information_limit": 2.0}
    | {"alarms": [{"kind": "collapse", "change": "raised", "step": 20, "message": "it collapsed."}]},
    {"kind": "sample", "step": 20, "prompt": "Once", "text": "Once upon"},
    {"kind": "event", "step": 20, "message": "written"},
]


def report(folder):
    """Everything in a report except the plots."""
    from gristmill.report.page import markdown_page
    from gristmill.report.plots import all_plots
    from gristmill.report.records import read_records
    from gristmill.report.summary import summarise
    from gristmill.report.writing import _write

    records = read_records(folder)
    _write(folder / "report.md", markdown_page(summarise(records), all_plots(records), "plots").encode())


def take_up_records(folder):
    from gristmill.lm.training.records import MetricsFile

    MetricsFile(folder, up_to_step=15).close()


@pytest.mark.parametrize("read", [report, take_up_records])
def test_any_value_in_any_place_of_the_records_of_a_run(read, tmp_path):
    write_run(tmp_path, num_records=3)
    for what, forged in forgeries(RECORDS):
        lines = [dump(record).replace(b"\n", b"") + b"\n" for record in forged]
        (tmp_path / "metrics.jsonl").write_bytes(b"".join(lines))
        check(lambda: read(tmp_path), what)


@pytest.mark.parametrize("name", ["config.json", "machine.json"])
def test_any_value_in_any_place_of_the_description_of_a_run(name, tmp_path):
    from gristmill.lm.training.config import TrainConfig, load_config

    write_run(tmp_path, num_records=3)
    content = (
        TrainConfig.from_options({}, preset="quickstart").to_json() if name == "config.json" else {"a": {"b": [1, "c"]}}
    )
    for what, forged in forgeries(content):
        (tmp_path / name).write_bytes(dump(forged))
        read = load_config if name == "config.json" else report
        check(lambda: read(tmp_path), what)  # noqa: B023


def test_numbers_that_cannot_be_drawn_are_an_error_of_the_tree(tmp_path):
    from gristmill.report import write_report

    write_run(tmp_path, num_records=3)
    posterior = [record | {"active_units": 2**63 - 1} for record in RECORDS if record["kind"] == "posterior"]
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(dump(record).replace(b"\n", b"") + b"\n" for record in posterior))
    with pytest.raises(gm.CheckpointError, match=r"'posterior_units' cannot be drawn"):
        write_report(tmp_path)


@pytest.mark.parametrize("depth", [40, 51, 400, 900])
def test_settings_nested_deeper_than_functions_may_call_each_other(depth, tmp_path):
    write_run(tmp_path, num_records=3)
    for begin, end in ((b"[", b"]"), (b'{"a":', b"}")):
        text = b'{"a": ' + depth * begin + b"1" + depth * end + b"}"
        (tmp_path / "config.json").write_bytes(text)
        if depth <= 40:
            report(tmp_path)
        else:
            with pytest.raises(gm.CheckpointError, match=r"config\.json: "):
                report(tmp_path)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b'{"step": 1' + b"0" * 5000 + b"}"])
@pytest.mark.parametrize("name", ["config.json", "machine.json", "metrics.jsonl"])
def test_deep_nesting_and_long_numbers_in_the_files_of_a_run(name, text, tmp_path):
    from gristmill.lm.training.config import load_config, read_config
    from gristmill.lm.training.records import read_records

    write_run(tmp_path, num_records=3)
    (tmp_path / name).write_bytes(text + b"\n{}\n" if name == "metrics.jsonl" else text)
    with pytest.raises(gm.CheckpointError, match=name):
        report(tmp_path)
    assert all(record["step"] < 100 for record in read_records(tmp_path))
    if name == "config.json":
        with pytest.raises(gm.CheckpointError, match=name):
            load_config(tmp_path)
        with pytest.raises(gm.OptionError, match=name):
            read_config(tmp_path / name)


@needs_devices
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
@pytest.mark.parametrize("name", ["config.json", "machine.json", "metrics.jsonl", "checkpoints/step-000001/state.json"])
def test_a_pipe_or_device_in_the_place_of_a_file_of_a_run_is_an_error(name, kind, tmp_path):
    from gristmill.lm.training.checkpoint import read_state
    from gristmill.lm.training.config import load_config, read_config
    from gristmill.lm.training.records import read_records

    write_run(tmp_path, num_records=3)
    path = tmp_path / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(kind)
    calls = {
        "config.json": [lambda: report(tmp_path), lambda: load_config(tmp_path), lambda: read_config(path)],
        "machine.json": [lambda: report(tmp_path)],
        "metrics.jsonl": [lambda: report(tmp_path), lambda: read_records(tmp_path)],
        "checkpoints/step-000001/state.json": [lambda: read_state(path.parent)],
    }
    for call in calls[name]:
        with pytest.raises(ALLOWED):
            call()
