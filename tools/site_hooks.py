"""MkDocs hook: adds files from outside docs/ to the site and makes one relative link work in both places.

Pages link to each other by the path of the real file, so that links also work on a code-hosting site. The hook turns
each such link into the address of the page in the site:

| file | page |
|---|---|
| `docs/NAME.md` | `NAME.html` |
| `README.md` | `index.html` |
| `ARCHITECTURE.md`, `CONTRIBUTING.md`, `CHANGELOG.md` | the same name in lower case |
| `benchmarks/README.md`, `benchmarks/results/NAME.md` | `benchmarks.html`, `benchmarks/results/NAME.html` |
| `examples/NAME.py`, `examples/NAME.yaml` | `examples/NAME.html`, with the file as a code block |
| the folders `examples` and `benchmarks/results` | a generated list of their pages |
| `benchmarks/results/NAME.json`, `.png`, `.svg` | copied |

A link to another file of the repository, such as a source file or LICENSE, becomes plain text: the site does not have
that file. A link to a file that does not exist is a warning, which fails `mkdocs build --strict`.

`<!-- commands -->` in a page is replaced by the command-line reference (see `site_commands.py`).
"""

from __future__ import annotations

import ast
import logging
import os
import re
import textwrap
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_commands import command_reference

ROOT = Path(__file__).resolve().parent.parent
log = logging.getLogger("mkdocs.hooks.site")

# Repository path -> page, for the files outside docs/ with a fixed name.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks": "benchmarks.md",
    "examples": "examples/index.md",
    "benchmarks/results": "benchmarks/results/index.md",
    "docs": "index.md",
}
COPIED = (".json", ".png", ".svg")
COMMANDS = "<!-- commands -->"

# Code is matched first, so that a link inside of it stays as it is.
_FENCE = r"^(?P<fence>[ ]*(?:```+|~~~+))[^\n]*\n.*?^(?P=fence)[ ]*$"
_CODE = r"(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
_LABEL = r"(?:[^\[\]`]|`[^`]*`|\[[^\[\]]*\])*"
_LINK = rf"(?P<bang>!?)\[(?P<label>{_LABEL})\]\((?P<target>[^()\s]+)(?P<title>\s+\"[^\"]*\")?\)"
_ATTRIBUTE = r"(?P<name>\b(?:src|href|srcset)=)\"(?P<value>[^\"]+)\""
_DEFINITION = r"^(?P<key>\[[^\]]+\]:\s+)(?P<place>\S+)"
_PARTS = re.compile("|".join([_FENCE, _CODE, _LINK, _ATTRIBUTE, _DEFINITION]), re.M | re.S)
_HAS_HOST = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.I)


def on_files(files: Files, config: Any) -> Files:
    """Add the files from outside docs/, and keep files that are no pages of the site out of it."""
    for path, page in PAGES.items():
        if (ROOT / path).is_file():
            files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for path in sorted((ROOT / "benchmarks" / "results").iterdir()):
        if path.suffix in (".md", *COPIED):
            uri = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    examples = [path for path in sorted((ROOT / "examples").iterdir()) if path.suffix in (".py", ".yaml")]
    for path in examples:
        files.append(File.generated(config, f"examples/{path.stem}.md", content=_example_page(path)))
    files.append(File.generated(config, "examples/index.md", content=_example_list(examples)))
    files.append(File.generated(config, "benchmarks/results/index.md", content=_result_list()))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Rewrite the links of a page, and put the command-line reference where it belongs."""
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, command_reference())
    if page.file.src_uri.startswith("benchmarks/results/"):
        page.meta["search"] = {"exclude": True}  # tables of numbers, which would come before the guide
    source = page.file.abs_src_path
    if source is None:  # generated here, with links of the site
        return markdown
    return rewrite_links(markdown, Path(source).relative_to(ROOT), page.file.src_uri, set(files.src_uris))


def rewrite_links(markdown: str, source: Path, page: str, known: set[str]) -> str:
    """Return `markdown` with each relative link as an address in the site.

    Args:
        markdown: Text of the page.
        source: The file that the text is from, relative to the repository.
        page: The page it becomes, such as "index.md".
        known: All pages and files of the site.
    """

    def target_in_site(link: str) -> str | None:
        """Return the link as the site needs it, or None if the site does not have the file."""
        place, hash_, anchor = link.partition("#")
        if not place or _HAS_HOST.match(link):
            return link
        file = os.path.normpath(source.parent / place)
        uri = site_uri(Path(file).as_posix())
        if uri in known:
            return os.path.relpath(uri, Path(page).parent) + hash_ + anchor
        if not (ROOT / file).exists():
            log.warning(f"{source} links to {link}, which does not exist.")
        return None

    def replaced(match: re.Match[str]) -> str:
        groups = match.groupdict()
        if groups["target"]:
            label = _PARTS.sub(replaced, groups["label"])
            target = target_in_site(groups["target"])
            if target is None:
                return label
            return f"{groups['bang']}[{label}]({target}{groups['title'] or ''})"
        if groups["value"]:
            # MkDocs does not rewrite links in HTML, so these name the built page.
            target = target_in_site(groups["value"]) or groups["value"]
            return f'{groups["name"]}"{target if _HAS_HOST.match(target) else re.sub(r"[.]md(?=#|$)", ".html", target)}"'
        if groups["place"]:
            return f"{groups['key']}{target_in_site(groups['place']) or groups['place']}"
        return match[0]

    return _PARTS.sub(replaced, markdown)


def site_uri(path: str) -> str:
    """Return the page or file of the site that a file of the repository becomes.

    >>> site_uri("README.md"), site_uri("docs/shards.md"), site_uri("examples/03_encode.py")
    ('index.md', 'shards.md', 'examples/03_encode.md')
    """
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/"):
        return f"{path.rpartition('.')[0]}.md"
    return path


def _example_page(path: Path) -> str:
    """Return a page with the docstring or leading comment of an example as text and the rest as code."""
    text, code = _split_example(path)
    summary, _, rest = text.partition("\n")
    language = {".py": "python", ".yaml": "yaml"}[path.suffix]
    note = f"File: `examples/{path.name}`"
    return f"# {path.name}\n\n{summary}\n\n{_as_markdown(rest)}\n\n{note}\n\n````{language}\n{code.strip()}\n````\n"


def _example_list(paths: list[Path]) -> str:
    """Return the page that lists the examples."""
    rows = [f"- [{path.name}]({path.stem}.md): {_split_example(path)[0].partition(chr(10))[0]}" for path in paths]
    intro = "Each example is one file that runs in a fresh checkout. Its first lines describe it."
    return f"# Examples\n\n{intro}\n\n" + "\n".join(rows) + "\n"


def _split_example(path: Path) -> tuple[str, str]:
    """Return the description of an example and its code."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(content)) or ""
        return text, content.split('"""', 2)[2] if text else content
    lines = content.splitlines()
    length = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(line[1:].removeprefix(" ") for line in lines[:length]), "\n".join(lines[length:])


def _as_markdown(text: str) -> str:
    """Return a docstring as Markdown: indented blocks become code blocks without a language."""
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n\n".join(
        f"```text\n{textwrap.dedent(block)}\n```" if block.startswith("  ") else block for block in blocks
    )


def _result_list() -> str:
    """Return the page that lists the benchmark results."""
    rows = []
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.md")):
        title = re.search(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.M)
        rows.append(f"- [{path.stem}]({path.name})" + (f": {title[1]}" if title else ""))
    intro = "Results of the benchmarks as committed, with the machine and the versions they were measured on."
    return f"# Benchmark results\n\n{intro} [Benchmarks](../../benchmarks.md) describes how to run them.\n\n" + "\n".join(rows) + "\n"
