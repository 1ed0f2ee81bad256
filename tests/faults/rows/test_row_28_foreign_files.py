"""Row 28: files from someone else, with code in place of data."""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import subprocess
import sys
import traceback
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import gristmill as gm
from faults.mutated.guard import Guard
from faults.mutated.kind import Inputs
from faults.mutated.kinds import KIND_NAMES, NEED_TORCH, find_kind
from faults.rows.fault import Fault
from gristmill.cli import main
from recorded_runs import write_run

FAULT = Fault(
    row=28,
    injected="Every file of tokenizers, word tables, shards, runs, checkpoints, exported models, caches and corpora "
    "replaced by code: pickles, a checkpoint of torch, an array of objects, YAML tags, JSON that names functions, "
    "Python, an Arrow type that pyarrow once unpickled",
    promise="Nothing is executed, and no process or connection is started: the file is an error, or plain data. "
    "Plugins run only if `--plugin` names them",
    undetectable="What a plugin does, which is Python of the user's choice",
    see_also=(
        "tests/lm/test_init_from_huggingface.py",
        "tests/lm/test_hostile_runs.py",
        "tests/compat/test_compat_cs336.py",
        "tests/view/test_view_security.py",
        "tests/view/test_view_runs_page.py",
        "tests/report/test_tokenizer_report.py",
    ),
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guard reads /proc")

CANARY = "GRISTMILL_CANARY"


class Payload:
    """Its pickle creates the file whose name is in an environment variable, wherever it is loaded."""

    def __reduce__(self):
        return os.system, (f'touch "${CANARY}"',)


def torch_checkpoint() -> bytes:
    """Return what torch.save writes: an archive with a pickle."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Payload(), 2))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return buffer.getvalue()


def array_of_objects() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Payload()], dtype=object), allow_pickle=True)
    return buffer.getvalue()


COMMAND = f'touch "${CANARY}"'
PYTHON = f"__import__('os').system({COMMAND!r})"
PAYLOADS = {
    "pickle 0": pickle.dumps(Payload(), 0),
    "pickle 5": pickle.dumps(Payload(), 5),
    "torch": torch_checkpoint(),
    "npy": array_of_objects(),
    "yaml": f"!!python/object/apply:os.system [{json.dumps(COMMAND)}]\n".encode(),
    "json": json.dumps(
        {"__class__": "os.system", "py/object": "os.system", "model": PYTHON, "_target_": PYTHON}
    ).encode(),
    "python": f"{PYTHON}\n".encode(),
    "jinja": b"{{ ''.__class__.__mro__[1].__subclasses__() }}{{ cycler.__init__.__globals__.os.system('true') }}",
}


def test_row_28_the_payloads_would_run(tmp_path, monkeypatch):
    for number, load in enumerate((pickle.loads, lambda data: np.load(io.BytesIO(data), allow_pickle=True))):
        monkeypatch.setenv(CANARY, str(tmp_path / f"canary-{number}"))
        load(PAYLOADS[("pickle 5", "npy")[number]])
        assert (tmp_path / f"canary-{number}").exists()
    monkeypatch.setenv(CANARY, str(tmp_path / "canary-python"))
    eval(PAYLOADS["python"].decode())
    assert (tmp_path / "canary-python").exists()


def findings_of(name: str, folder: Path) -> list[str]:
    """Put every payload in place of every file of a kind, for its readers in turn; return what they must not do."""
    kind = find_kind(name)
    inputs = Inputs(kind, folder)
    for reader in dict.fromkeys(kind.readers):  # imports of packages are no fault
        inputs.show(inputs.valid_folders()[0])
        reader(inputs.now)
    guard = Guard(folder, max_growth=kind.max_growth, executes=kind.executes, limit_memory=False)
    readers = itertools.cycle(dict.fromkeys(kind.readers))
    found, seen = [], set()
    for valid in inputs.valid_folders():
        files = {path.relative_to(valid) for path in valid.rglob("*") if path.is_file()} - seen
        seen |= files
        for file, payload in itertools.product(sorted(files), PAYLOADS):
            inputs.show(valid)
            (inputs.now / file).write_bytes(PAYLOADS[payload])
            _, finding = guard.call(next(readers), inputs.now)
            if finding is not None:
                found.append(f"{name}: {payload} as {valid.name}/{file}: {finding}")
    return found


def in_a_child(names: list[str], folder: Path) -> str:
    """Return the findings of some kinds. An audit hook cannot be removed, so each call has a process of its own."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            report = "\n".join(text for name in names for text in findings_of(name, folder / name))
        except BaseException:
            report = traceback.format_exc()
        os.write(sender, report.encode()[:60_000])
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as report:
        text = report.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


@pytest.mark.parametrize("needs_torch", [False, True])
def test_row_28_no_reader_executes_what_is_in_a_file(tmp_path, monkeypatch, needs_torch):
    if needs_torch:
        pytest.importorskip("torch")
    canary = tmp_path / "canary"
    monkeypatch.setenv(CANARY, str(canary))
    # Unfinished shards differ from finished ones in their records, which are the same in all layouts.
    unlike = [name for name in KIND_NAMES if not name.startswith("unfinished") or name == "unfinished-gristmill"]
    names = [name for name in unlike if (name in NEED_TORCH) is needs_torch]
    assert in_a_child(names, tmp_path / "kinds") == ""
    assert not canary.exists()


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_row_28_an_extension_type_of_arrow_is_not_unpickled(tmp_path, monkeypatch, suffix):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.ipc
    import pyarrow.parquet  # noqa: F401 - pa.parquet

    canary = tmp_path / "canary"
    monkeypatch.setenv(CANARY, str(canary))
    marks = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": PAYLOADS["pickle 5"]}
    schema = pa.schema([pa.field("text", pa.string(), metadata=marks)])
    table = pa.table({"text": ["some text"]}, schema=schema)
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        pa.parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), schema) as writer:
            writer.write_table(table)
    assert dict(gm.count_words(path, progress=None).items()) == {b"some": 1, b" text": 1}
    assert not canary.exists()


def test_row_28_a_run_cannot_name_a_plugin(tmp_path, monkeypatch, capsys):
    canary = tmp_path / "canary"
    monkeypatch.setenv(CANARY, str(canary))
    run = tmp_path / "run"
    run.mkdir()
    (run / "plugin.py").write_text(PYTHON)
    for name in ("conftest.py", "sitecustomize.py", "gristmill_plugin.py"):
        (run / name).write_text(PYTHON)
    for config in ({"model": str(run / "plugin.py")}, {"plugin": str(run / "plugin.py"), "model": "gpt"}):
        (run / "config.json").write_text(json.dumps(config))
        for command in (["generate", str(run)], ["report", str(run)], ["inspect", str(run)]):
            monkeypatch.chdir(run)
            assert main(command) in (1, 2)
            assert "Traceback" not in capsys.readouterr().err
    assert not canary.exists()


def test_row_28_a_plugin_runs_only_if_it_is_named(tmp_path):
    plugin = tmp_path / "my_plugin.py"
    plugin.write_text(PYTHON)
    (tmp_path / "run").mkdir()
    environment = {**os.environ, CANARY: str(tmp_path / "canary")}
    command = [sys.executable, "-m", "gristmill", "generate", "run"]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=120)
    assert not (tmp_path / "canary").exists()
    command += ["--plugin", plugin.name]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=120)
    assert (tmp_path / "canary").exists()


MARKUP = '</script></style></title><b data-canary>"\' data-canary="x" onclick=alert(1)<svg onload=alert(1)></b>'


class Tags(HTMLParser):
    """The tags and attributes that a browser would find in a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)


def with_markup(content):
    """Put markup into every text of a recorded value."""
    if isinstance(content, dict):
        return {key: value if key == "kind" else with_markup(value) for key, value in content.items()}
    if isinstance(content, list):
        return [with_markup(value) for value in content]
    return f"{content}{MARKUP}" if isinstance(content, str) else content


def test_row_28_markup_in_texts_names_and_records_is_escaped_on_every_page(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    folder = tmp_path / "<b data-canary>&quot;'"
    folder.mkdir()
    tok = gm.train_tokenizer(
        [f"{MARKUP[:-1]} {MARKUP[1:]}" * 9], vocab_size=310, pattern=r"[^ ]+", special_tokens=[MARKUP], progress=None
    )
    tok.save(folder / "<i data-canary>.json")
    (folder / "<u data-canary>.txt").write_text(MARKUP)
    corpus = [f"{MARKUP} {number}" for number in range(5)]
    run = gm.encode_corpus(corpus, tok, out=folder / "s", end_of_text=MARKUP, progress=None)
    recorded = write_run(folder / "run <b data-canary>")
    lines = (recorded / "metrics.jsonl").read_text().splitlines()
    forged = [json.dumps(with_markup(json.loads(line))) for line in lines]
    (recorded / "metrics.jsonl").write_text("\n".join(forged) + "\n")
    for name in ("config.json", "machine.json"):
        (recorded / name).write_text(json.dumps(with_markup(json.loads((recorded / name).read_text()))))
    words = gm.count_words(corpus, special_tokens=[f"{MARKUP}x"], progress=None)
    pages = [each._repr_html_() for each in (tok, gm.Shards(folder / "s"), run, words)]
    texts = ["--text", str(folder / "<u data-canary>.txt")]
    for number, arguments in enumerate(([str(folder / "<i data-canary>.json"), *texts], [str(folder / "s")])):
        assert main(["report", *arguments, "-o", str(tmp_path / f"{number}.html")]) == 0
        pages.append((tmp_path / f"{number}.html").read_text())
    assert main(["report", str(recorded)]) == 0
    pages.append((recorded / "report.html").read_text())
    for page in pages:
        assert "data-canary" in page  # the text is shown
        tags = Tags(page)
        assert not tags.attributes & {"data-canary", "onclick", "onload", '"'}
        assert "script" not in tags.names
