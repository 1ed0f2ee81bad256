"""The documentation site: it builds without a warning, is complete, and needs no network."""

import fcntl
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gristmill
from gristmill import errors
from gristmill.cli import COMMANDS
from gristmill.cli.usage import options_of
from public_modules import PUBLIC_MODULES

pytest.importorskip("mkdocs", reason="needs the extra docs")

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))

import look_at_site  # noqa: E402
import site_commands  # noqa: E402
import site_docstrings  # noqa: E402
import site_hooks  # noqa: E402

REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
# compat is not part of `gristmill.__all__`, but users import its modules.
REFERENCE_MODULES = (
    *PUBLIC_MODULES,
    *(f"gristmill.compat.{name}" for name in ("chunked", "cs336", "huggingface", "minbpe", "tiktoken")),
)
# In the reference by another path: the package of a stage has the name of its function.
PATHS = {"gristmill.pretokenize": "gristmill.pretokenize.cutting.pretokenize"}
# In the reference, and not imported from the top of the package.
ALSO = {"gristmill.corpus.ReadOptions"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. Processes of `pytest -n` share one build."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder = root / "site"
    with (root / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            source = Path(gristmill.__file__).parent.parent
            environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(source)}
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
            built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
            assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
            (folder / "done").touch()
    return folder


def read(page):
    return page.read_text(encoding="utf-8")


def test_no_page_loads_anything_from_another_host(site):
    tags = re.compile(r"<(?:script|link|img|iframe|source|video|audio|object|embed)\b[^>]*(?:https?:)?//[^>]*>", re.I)
    assert {page.name: tag for page in site.rglob("*.html") for tag in tags.findall(read(page))} == {}
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']*", read(sheet)) == [], sheet.name


def test_no_page_shows_a_table_or_a_list_as_its_markdown(site):
    code = re.compile(r"<pre\b.*?</pre>", re.S)
    marks = re.compile(r"^(?:<p>)?(?:[|].*[|]|[*-] .*)$", re.M)
    assert {
        page.name: found for page in site.rglob("*.html") if (found := marks.findall(code.sub("", read(page))))
    } == {}


def public_names():
    for module in REFERENCE_MODULES:
        for name in importlib.import_module(module).__all__:
            path = f"{module}.{name}"
            if path not in REFERENCE_MODULES and name != "__version__":
                yield PATHS.get(path, path)


def test_the_reference_has_every_public_name_once():
    shown = [name for page in REFERENCE for name in re.findall(r"^::: (\S+)", read(page), re.M)]
    assert sorted(shown) == sorted({*public_names(), *ALSO})


def test_every_public_name_has_an_anchor_in_the_site(site):
    built = "".join(read(page) for page in (site / "reference").glob("*.html"))
    assert [name for name in public_names() if f'id="{name}"' not in built] == []


def test_inherited_methods_of_the_tokenizer_are_shown(site):
    built = read(site / "reference" / "tokenizers.html")
    methods = [name for name, _ in inspect.getmembers(gristmill.Tokenizer, callable) if not name.startswith("_")]
    assert len(methods) > 20
    assert [name for name in methods if f'id="gristmill.Tokenizer.{name}"' not in built] == []


def every_form():
    """Each command, and each form of a command with options of its own."""
    for name in COMMANDS:
        yield (name,), ()
        yield from site_commands.FORMS.get(name, {}).items()


@pytest.mark.parametrize(("words", "base"), list(every_form()), ids=lambda words: " ".join(words))
def test_every_option_is_in_the_command_line_reference(words, base, site):
    module = importlib.import_module(f"gristmill.cli.{words[0].replace('-', '_')}")
    command = module.command_class(list(words[1:])) if hasattr(module, "command_class") else module.Command
    built = read(site / "reference" / "command-line.html")
    shown = site_commands.read_help(words)
    spellings = {form.split(" ")[0] for option in shown.options for form in option.forms}
    assert {spelling for option in options_of(command) for spelling in option.spellings} <= spellings
    assert f'id="{shown.anchor}"' in built
    if not base:  # otherwise the page has only the options that differ
        names = [option.name for option in shown.options if option.name.startswith("-")]
        assert [name for name in names if f'<dt id="{shown.anchor}-{name.strip("-")}">' not in built] == []


def test_options_of_the_help_are_parsed():
    printed = """\
usage: gristmill grind [-h] [OPTIONS] GRAIN…

╭─ positional arguments ───────────────────────────────╮
│ GRAIN…                Grain to grind.                │
╰──────────────────────────────────────────────────────╯
╭─ options ────────────────────────────────────────────╮
│ -h, --help            show this help message and exit│
│ -o FOLDER, --output FOLDER                           │
│                       Folder to write,               │
│                       as a path. (required)          │
│ --stones N            Number of stones. (default: 2) │
╰──────────────────────────────────────────────────────╯

examples:
  # Grind.
  gristmill grind wheat -o flour

  gristmill grind rye -o flour
"""
    shown = site_commands.parse_help(printed, ("grind",), "Grind grain.")
    assert shown.usage == "gristmill grind GRAIN… --output FOLDER [OPTIONS]"
    assert shown.examples == ["# Grind.", "gristmill grind wheat -o flour", "", "gristmill grind rye -o flour"]
    assert [(option.forms, option.text, option.hint) for option in shown.groups["options"]] == [
        (["-o FOLDER", "--output FOLDER"], "Folder to write, as a path.", "(required)"),
        (["--stones N"], "Number of stones.", "(default: 2)"),
    ]


def pages_in_nav(entry):
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_in_nav(each)


def test_every_page_of_docs_is_in_the_navigation_once():
    from mkdocs.utils.yaml import yaml_load

    nav = list(pages_in_nav(yaml_load(read(ROOT / "mkdocs.yml"))["nav"]))
    assert len(nav) == len(set(nav))
    docs = ROOT / "docs"
    assert [page for path in sorted(docs.rglob("*.md")) if (page := path.relative_to(docs).as_posix()) not in nav] == []


def test_the_tree_of_exceptions_is_that_of_the_code():
    def draw(cls, line, below):
        kinds = [base.__name__ for base in cls.__bases__ if base.__module__ == "builtins" and base is not Exception]
        yield line + cls.__name__ + f" ({', '.join(kinds)})" * bool(kinds)
        children = [child for child in classes if cls in child.__bases__]
        for child in children:
            is_last = child is children[-1]
            yield from draw(child, below + ("└── " if is_last else "├── "), below + ("    " if is_last else "│   "))

    classes = [each for each in vars(errors).values() if inspect.isclass(each) and each.__module__ == errors.__name__]
    roots = [each for each in classes if not set(each.__bases__) & set(classes)]
    tree = re.search(r"```text\n(.*?)```", read(ROOT / "docs" / "reference" / "errors.md"), re.S)[1]
    assert tree.split() == [word for root in roots for line in draw(root, "", "") for word in line.split()]


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](docs/shards.md#resuming)", "[a](shards.md#resuming)"),
        ("[a](examples/03_encode.py)", "[a](examples/03_encode.md)"),
        ("[![a](docs/images/a.png)](CHANGELOG.md)", "[![a](images/a.png)](changelog.md)"),
        ('<img src="docs/images/a.png">', '<img src="images/a.png">'),
        ('<a href="docs/shards.md#resuming">', '<a href="shards.html#resuming">'),
        ("[`a`](src/gristmill/train.py)", "`a`"),  # the site has no source files
        ("`[a](docs/shards.md)`", "`[a](docs/shards.md)`"),
        ("```\n[a](docs/shards.md)\n```", "```\n[a](docs/shards.md)\n```"),
        ("[a](https://example.org/docs/shards.md)", "[a](https://example.org/docs/shards.md)"),
        ("[a](#install)", "[a](#install)"),
    ],
)
def test_links_of_the_readme_become_links_of_the_site(link, expected):
    known = {"index.md", "shards.md", "changelog.md", "examples/03_encode.md", "images/a.png"}
    assert site_hooks.rewrite_links(link, Path("README.md"), "index.md", known) == expected


def test_a_link_between_folders_is_relative_to_the_page():
    known = {"benchmarks/results/a.md", "how-to/resume.md"}
    link = "[a](../../benchmarks/results/a.md)"
    changed = site_hooks.rewrite_links(link, Path("docs/how-to/resume.md"), "how-to/resume.md", known)
    assert changed == "[a](../benchmarks/results/a.md)"


def test_a_link_with_a_file_name_shows_the_title_of_the_page():
    known = {"index.md", "shards.md", "benchmarks/results/a.md"}
    text = "[docs/shards.md](docs/shards.md#resuming), [a.md](benchmarks/results/a.md), [more](docs/shards.md)"
    changed = site_hooks.rewrite_links(text, Path("README.md"), "index.md", known, {"shards.md": "Shards"})
    assert changed == "[Shards](shards.md#resuming), [a](benchmarks/results/a.md), [more](shards.md)"


def test_a_link_to_a_file_that_does_not_exist_is_a_warning(caplog):
    site_hooks.rewrite_links("[a](docs/no_such_page.md)", Path("README.md"), "index.md", {"index.md"})
    assert "README.md links to docs/no_such_page.md, which does not exist." in caplog.text


def test_markdown_of_code_hosting_sites_becomes_that_of_the_site():
    assert site_hooks.separate_blocks("Files:\n* one\n* two") == "Files:\n\n* one\n* two"
    assert site_hooks.separate_blocks("```\na\n- b\n```") == "```\na\n- b\n```"
    assert site_hooks.separate_blocks("1. one\n2. two\n   more\n3. three") == "1. one\n2. two\n   more\n3. three"
    assert site_hooks.separate_blocks("```\na\n```\n| b |\n|---|") == "```\na\n```\n\n| b |\n|---|"
    assert site_hooks.unescape_pipes(r"| `<\|end\|>` | a \| b |") == r"| `<|end|>` | a \| b |"
    assert site_docstrings.fenced("Add.\n\n>>> 1 + 1\n2\n\nDone.") == "Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nDone."


@pytest.fixture(scope="module")
def chromium():
    pytest.importorskip("playwright", reason="needs the extra docs")
    if look_at_site.find_chromium() is None:
        pytest.skip("needs Chromium")
    with look_at_site.browser() as found:
        yield found


def test_pages_look_right_in_a_browser_and_search_works_from_the_disk(site, chromium):
    pages = ["index.html", "reference/command-line.html", "reference/tokenizers.html"]
    assert look_at_site.look(chromium, site, pages) == []
    found = look_at_site.search(chromium, site, "--val-fraction")
    assert any("reference/command-line.html" in address for address in found)


def test_a_broken_page_is_reported(tmp_path, chromium):
    (tmp_path / "a.html").write_text(
        '<article><img src="none.png"><div style="width: 2000px">wide</div></article><script>nothing()</script>'
    )
    problems = "\n".join(look_at_site.look(chromium, tmp_path, ["a.html"]))
    for text in (
        "image does not load",
        "wider than the window",
        "script error",
        "request failed",
        "characters of text",
    ):
        assert text in problems
