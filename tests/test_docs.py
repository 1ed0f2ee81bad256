"""What the documentation shows is what happens: README, pages, examples and docstrings are run."""

import contextlib
import doctest
import importlib
import json
import pkgutil
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import gristmill
from gristmill.corpus.packages import load_zstd
from gristmill.sample_corpus import write_sample_corpus
from page_commands import registries_restored, run_lines

ROOT = Path(__file__).resolve().parent.parent
# Read from top to bottom in an empty folder, as a newcomer does.
READ_IN_ORDER = [
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("tutorial.md", "command-line.md", "own-models.md")),
    *sorted(ROOT.glob("docs/how-to/*.md")),
]
# The first line of a snippet that is a file, or the next part of one.
FILE = re.compile(r"# (\w+\.py)(, continued)?\n")
# Pages to look things up in. Their snippets start from the files that the page mentions.
PAGES = sorted(page for page in ROOT.glob("docs/**/*.md") if page not in READ_IN_ORDER)
LINKED = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"])
# Pages whose anchors are made when the site is built: `mkdocs build --strict` checks links to them.
GENERATED = ROOT / "docs" / "reference"
# Set-up commands, which have already run when tests start.
SET_UP = ("pip ", "make ", "git ", "source ", "cd ")
MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(gristmill.__path__, "gristmill.")
    if not info.name.endswith(("_core", "__main__"))
)


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def name_of(page):
    """The path of a page in the repository, as the name of a test."""
    return page.relative_to(ROOT).as_posix()


def anchors_of(page):
    """The anchors of a page as code-hosting sites make them: of headings, and those written as HTML."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+?)\s*$", text, re.M)
    # The text of a link counts, and its address does not.
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    return {*slugs, *re.findall(r"\b(?:id|name)=\"([^\"]+)\"", text)}


def snippets(page):
    """The Python and shell snippets of a page, in the order in which they are read."""
    return re.findall(r"^```(python|bash)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture
def registries():
    """Restore the registries after a page."""
    with registries_restored():
        yield


@pytest.mark.parametrize("page", READ_IN_ORDER, ids=name_of)
def test_the_page_works_from_top_to_bottom_in_an_empty_folder(page, tmp_path, monkeypatch, registries):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = {"__name__": page.stem}
    for language, snippet in snippets(page):
        if language == "bash":
            run_lines([line for line in snippet.splitlines() if not line.startswith(SET_UP)], timeout=300)
            continue
        if part := FILE.match(snippet):
            with (tmp_path / part[1]).open("a" if part[2] else "w", encoding="utf-8") as file:
                file.write(snippet)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gristmill.EarlyStopWarning)
            exec(compile(snippet, str(page), "exec"), names)


@pytest.fixture(scope="module")
def corpus_files(tmp_path_factory):
    """The files that the pages mention."""
    folder = tmp_path_factory.mktemp("corpus_files")
    (folder / "corpus").mkdir()
    for name, seed in (("corpus.txt", 0), ("more.txt", 1), ("corpus/a.txt", 2)):
        write_sample_corpus(folder / name, size=2_000_000, seed=seed)
    write_json_lines(folder / "stories", (folder / "corpus.txt").read_text(encoding="utf-8"))
    return folder


@pytest.fixture
def corpus_folder(corpus_files, tmp_path, monkeypatch):
    """A copy of the files that the pages speak of, in a folder that becomes the current one."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(corpus_files, tmp_path, dirs_exist_ok=True)
    return tmp_path


def write_json_lines(folder, text):
    """A folder of `.jsonl.zst` with the documents of `text`."""
    folder.mkdir()
    documents = [document.strip() for document in text.split("<|endoftext|>")[:-1]]
    for part in range(4):
        lines = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(documents[part::4]))
        (folder / f"part-{part}.jsonl.zst").write_bytes(load_zstd().compress(lines.encode()))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_python_of_the_page_runs_from_top_to_bottom(page, corpus_folder):
    names = {"__name__": page.stem}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gristmill.EarlyStopWarning)
        for block in blocks(page, "python"):
            exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_gristmill_commands_of_the_page_run(page, tmp_path):
    """In the order of the page, in one folder; pipes and redirections by a real shell."""
    lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("gristmill ") or "| gristmill " in line]
    with contextlib.chdir(tmp_path):
        run_lines(commands, timeout=120)


def test_every_command_has_an_example_on_the_page_of_the_command_line():
    from gristmill.cli import COMMANDS

    page = ROOT / "docs" / "command-line.md"
    shown = "\n".join([*blocks(page, "bash"), *blocks(page, "sh")])  # sh: view serves until Ctrl-C, so no test runs it
    assert [name for name in COMMANDS if f"gristmill {name} " not in shown] == []


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_links_of_the_page_lead_somewhere(page):
    text = re.sub(r"^```.*?^```|`[^`\n]+`(?!\])", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", text):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), f"{name_of(page)} links to {target}"
        if anchor and linked.suffix == ".md" and linked.parent != GENERATED:
            assert anchor in anchors_of(linked), f"{name_of(page)} links to {target}#{anchor}"


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda example: example.stem)
def test_example_runs(example, tmp_path):
    subprocess.run([sys.executable, example], cwd=tmp_path, check=True, timeout=120)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_hold(module):
    if module.startswith(("gristmill.bench.encoders.", "gristmill.bench.pipelines.", "gristmill.bench.rivals.")):
        pytest.importorskip(module)  # an adapter imports the library that it compares
    assert doctest.testmod(importlib.import_module(module)).failed == 0


STAGES = ("corpus", "pretokenize", "count", "merge", "tokenizer", "encode", "shards")
FOLDERS = [*STAGES, "corpus/formats", "tokenizer/formats", "shards/layouts"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_folder_of_a_stage_lists_its_modules(folder):
    listed = importlib.import_module("gristmill." + folder.replace("/", ".")).__doc__
    for path in (Path(gristmill.__file__).parent / folder).iterdir():
        if path.suffix == ".py" and path.name != "__init__.py":
            assert f"`{path.name}`" in listed
        elif path.is_dir() and path.name != "__pycache__":
            assert f"`{path.name}/`" in listed


LM_FOLDERS = ["lm", *(f"lm/{name}" for name in ("data", "data/sequences", "models", "training", "use"))]
LM_FOLDERS += ["lm/models/gpt", "lm/models/vae"]


@pytest.mark.parametrize("folder", LM_FOLDERS)
def test_the_folder_of_lm_lists_its_modules_and_no_other(folder):
    listed = set(
        re.findall(
            r"[\w/]+(?:\.py|/)(?=[\s,])", importlib.import_module(f"gristmill.{folder}".replace("/", ".")).__doc__
        )
    )
    entries = [path for path in (Path(gristmill.__file__).parent / folder).iterdir() if not path.name.startswith("__")]
    there = {path.name + "/" * path.is_dir() for path in entries}
    assert {name for name in listed if name.count("/") == name.endswith("/")} == there


def test_the_architecture_has_a_row_for_every_module_and_for_no_other():
    package = Path(gristmill.__file__).parent
    rows = re.findall(r"^\| `([\w/]+\.py)` \| \S", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.M)
    modules = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    stories = {module for module in modules if module.startswith("sample_corpus/")} - {"sample_corpus/__init__.py"}
    assert len(rows) == len(set(rows))
    assert set(rows) == modules - stories
