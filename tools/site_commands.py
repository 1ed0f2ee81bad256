"""The command-line reference of the site: every command with usage, examples and options, from the real `--help`.

The text of `--help` is parsed, because tyro has no public interface that lists the options of a parser.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import inspect
import io
import os
import re
from dataclasses import dataclass, field

# Wide enough that few help texts wrap, and narrow enough that tyro prints one column of boxes.
HELP_WIDTH = "100"
# Forms of a command with options that the plain command does not have, and the command that has the other options.
FORMS: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {
    "task": {
        ("task", "plan", "encode"): ("encode",),
        ("task", "plan", "count-words"): ("count-words",),
        ("task", "run"): (),
        ("task", "finish"): (),
        ("task", "status"): (),
    },
    "train-model": {("train-model", "--model", "vae"): ("train-model",)},
}


@dataclass(slots=True)
class Option:
    """One option or positional argument as `--help` shows it."""

    forms: list[str]  # "-o FOLDER", "--output FOLDER"
    text: str
    hint: str  # "(default: auto)", "(required)" or ""

    @property
    def name(self) -> str:
        """Return the longest spelling without its metavar: "--output"."""
        names = [form.split(" ")[0] for form in self.forms]
        return max(names, key=lambda name: (not name.startswith("--no-"), len(name)))


@dataclass(slots=True)
class Help:
    """The parsed `--help` of a command."""

    words: tuple[str, ...]  # ("task", "plan", "encode")
    description: str
    examples: list[str]
    groups: dict[str, list[Option]] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """Return the command as typed: "gristmill encode"."""
        return " ".join(("gristmill", *self.words))

    @property
    def anchor(self) -> str:
        """Return the id of the section: "task-plan-encode", "train-model-vae"."""
        return "-".join(word for word in self.words if not word.startswith("-"))

    @property
    def usage(self) -> str:
        """Return the usage line."""
        given = [option.forms[0] for option in self.groups.get("positional arguments", [])]
        options = [option for option in self.options if option.name.startswith("-")]
        required = [option.forms[-1] for option in options if option.hint == "(required)"]
        rest = ["[OPTIONS]"] if len(options) > len(required) else []
        return " ".join([self.command, *given, *required, *rest])

    @property
    def options(self) -> list[Option]:
        """Return the options of all groups."""
        return [option for group in self.groups.values() for option in group]


def command_reference() -> str:
    """Return the command-line reference as Markdown."""
    from gristmill.cli import GROUPS

    parts = []
    for title, commands in GROUPS.items():
        parts.append(f"## {title[0].upper()}{title[1:]}")
        for name in commands:
            parts.append(_section(read_help((name,))))
            for words, base in FORMS.get(name, {}).items():
                parts.append(_section(read_help(words), base=read_help(base) if base else None))
    return "\n\n".join(parts)


def read_help(words: tuple[str, ...]) -> Help:
    """Run `gristmill WORDS… --help` in this process and return what it prints."""
    from gristmill import cli

    module = importlib.import_module(f"gristmill.cli.{words[0].replace('-', '_')}")
    command = module.command_class(list(words[1:])) if hasattr(module, "command_class") else module.Command
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # tyro draws other boxes where there is no encoding
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = HELP_WIDTH
    try:
        with contextlib.redirect_stdout(printed):
            code = cli.main([*words, "--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    if code != 0:
        raise RuntimeError(f"gristmill {' '.join(words)} --help exited with {code}")
    printed.seek(0)
    return parse_help(printed.read(), words, inspect.getdoc(command) or "")


def parse_help(printed: str, words: tuple[str, ...], description: str) -> Help:
    """Return the options, groups and examples in the output of `--help`."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    outside = [line.strip() for line in plain.splitlines() if line[:1] not in "│╭╰" or not line]
    found = Help(words, description, _examples(outside))
    group: list[Option] = []
    for line in plain.splitlines():
        if line.startswith("╭─"):
            group = found.groups.setdefault(line.strip("╭─╮ "), [])
        elif line.startswith("│"):
            _add_line(group, line.strip("│").rstrip())
    for options in found.groups.values():
        for option in options:
            option.text, option.hint = _split_hint(option.text)
    groups = {title: [each for each in group if each.name != "--help"] for title, group in found.groups.items()}
    found.groups = {title: group for title, group in groups.items() if group}
    return found


def _examples(lines: list[str]) -> list[str]:
    """Return the lines after "examples:"."""
    start = lines.index("examples:") + 1 if "examples:" in lines else len(lines)
    return "\n".join(lines[start:]).strip().splitlines()


def _add_line(group: list[Option], line: str) -> None:
    """Add one line of a box: the forms of an option with its text, or more text."""
    if re.match(r" \S", line):
        forms, _, text = line.strip().partition("  ")
        group.append(Option(re.split(r", (?=-)", forms), text.strip(), ""))
    elif group:
        group[-1].text = f"{group[-1].text} {line.strip()}".strip()


def _split_hint(text: str) -> tuple[str, str]:
    """Return a help text without the hint at its end, and the hint."""
    match = re.search(r"\s*(\((?:required|repeatable|default: .*)\))$", text)
    return (text[: match.start()], match[1]) if match else (text, "")


def _section(shown: Help, base: Help | None = None) -> str:
    """Return the section of a command; with `base`, only the options that differ from that command's."""
    paragraphs = "\n\n".join(f"<p>{_inline(text)}</p>" for text in re.split(r"\n\s*\n", shown.description))
    parts = [f"### `{shown.command}` {{ #{shown.anchor} data-toc-label='{' '.join(shown.words)}' }}", paragraphs]
    parts.append(f"```text\n{shown.usage}\n```")
    if shown.examples:
        parts.append("Examples:\n\n```sh\n" + "\n".join(shown.examples) + "\n```")
    known = {tuple(option.forms): option for option in base.options} if base else {}
    lists = []
    for title, group in shown.groups.items():
        options = [option for option in group if known.get(tuple(option.forms)) != option]
        if options:
            entries = "".join(_definition(option, shown) for option in options)
            heading = f'<p class="option-group">{title[0].upper()}{title[1:]}</p>'
            lists.append(f'{heading}\n<dl class="options">{entries}\n</dl>')
    if base:
        parts.append(
            f"Takes the options of [`{base.command}`](#{base.anchor}){', and these differ:' if lists else '.'}"
        )
    return "\n\n".join([*parts, *lists])


def _definition(option: Option, shown: Help) -> str:
    """Return the entry of one option: its forms, a link to it, default, choices and text."""
    anchor = f"{shown.anchor}-{re.sub(r'[^a-z0-9-]+', '-', option.name.lower()).strip('-')}"
    forms = ", ".join(_breakable(f"<code>{html.escape(form)}</code>") for form in option.forms)
    hint = option.hint.strip("()")
    badge = f' <span class="option-hint">{_inline(hint)}</span>' if hint else ""
    link = f'<a class="headerlink" href="#{anchor}" title="Permanent link">¶</a>'
    return f'\n<dt id="{anchor}">{forms}{badge}{link}</dt>\n<dd>{_inline(option.text)}</dd>'


def _breakable(code: str) -> str:
    """Allow a line break after each comma and bar of a metavar with many choices."""
    return re.sub(r"([,|])(?=\S)", r"\1<wbr>", code)


def _inline(text: str) -> str:
    """Return help text as HTML, with code for `names`, 'gristmill commands' and --options."""
    text = html.escape(" ".join(text.split()), quote=False)
    parts = re.split(r"`([^`]+)`|'(gristmill [^']+)'", text)
    result = []
    for plain, ticked, quoted in zip(parts[0::3], [*parts[1::3], None], [*parts[2::3], None], strict=True):
        result.append(re.sub(r"(?<![\w-])(--?[a-z][a-z0-9-]*)(?![\w-])", r"<code>\1</code>", plain))
        if ticked or quoted:
            result.append(f"<code>{ticked or quoted}</code>")
    return "".join(result)
