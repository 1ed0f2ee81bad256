"""Chat templates in Jinja: reading them, the built-in ones, and the sandbox that renders them.

A template comes from a file, so it is rendered in Jinja's immutable sandbox, where it can access only the messages. The
features that Hugging Face templates rely on are available: {% generation %}, {% break %}, `raise_exception`,
`strftime_now` and a `tojson` without HTML escapes.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from gristmill.errors import OptionError
from gristmill.packages import load_package
from gristmill.small_files import parse_json, read_small_file
from gristmill.tokenizer.formats.tokenizer_config import NAME as TOKENIZER_CONFIG
from gristmill.tokenizer.formats.tokenizer_config import ROLES

__all__ = [
    "CHATML",
    "CHAT_TEMPLATE_FILE",
    "PLAIN",
    "TEMPLATES",
    "compiled",
    "has_template",
    "read_template",
    "rendered",
]

CHAT_TEMPLATE_FILE = "chat_template.jinja"
MAX_TEMPLATE_BYTES = 1 << 20  # typical templates have a few kilobytes
COUNT_TURN = "_gristmill_count_turn"  # called in every loop iteration of a template
MAX_CONFIG_BYTES = 16 << 20  # a tokenizer_config.json may list thousands of tokens

# Each turn starts on a new line, and the prompt of a response ends with a newline, so that no token spans the start of
# a response.
PLAIN = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "{{ 'Assistant:\\n' }}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{{ '\\n' }}"
    "{% else %}"
    "{{ message['role'].capitalize() + ':\\n' + message['content'] + '\\n\\n' }}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:\\n' }}{% endif %}"
)
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}"
    "{{ message['content'] + '<|im_end|>' }}"
    "{% endif %}"
    "{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TEMPLATES: Mapping[str, str] = {"plain": PLAIN, "chatml": CHATML}


def read_template(template: str | os.PathLike[str]) -> str:
    """Return the template with a built-in name, or from a file, or from a folder of a run or of Hugging Face."""
    if template in TEMPLATES:
        return TEMPLATES[str(template)]
    path = Path(template)
    if path.is_dir():
        return _of_folder(path)
    if not path.is_file():
        raise OptionError(
            f"chat_template={str(template)!r} is neither a file nor a built-in template. Pass the path of a Jinja "
            f"file, or one of {', '.join(map(repr, TEMPLATES))}."
        )
    return _of_file(path)


def has_template(folder: Path) -> bool:
    """Whether a folder of a run or of Hugging Face has a chat template."""
    return (folder / CHAT_TEMPLATE_FILE).is_file() or _in_config(folder)[0] is not None


def _of_file(path: Path) -> str:
    data = read_small_file(path, what="a chat template", max_bytes=MAX_TEMPLATE_BYTES, error=OptionError)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise OptionError(f"{path}: the file is not UTF-8 text. Pass a Jinja file.") from None


def _of_folder(folder: Path) -> str:
    """Return the template of a folder. Special tokens that only its config names are set at the top of the template."""
    source, roles = _in_config(folder)
    if (folder / CHAT_TEMPLATE_FILE).is_file():
        source = _of_file(folder / CHAT_TEMPLATE_FILE)
    if source is None:
        raise OptionError(
            f"chat_template={str(folder)!r}: the folder has neither {CHAT_TEMPLATE_FILE} nor a template in "
            f"{TOKENIZER_CONFIG}. Pass the path of a Jinja file, or one of {', '.join(map(repr, TEMPLATES))}."
        )
    settings = [_setting(role, token) for role, token in roles.items() if role in source]
    return "".join(line for line in settings if line not in source) + source


def _setting(role: str, token: str) -> str:
    """Return a line that sets a variable. Jinja outputs nothing for it, not even the newline."""
    return f"{{% set {role} = {json.dumps(token, ensure_ascii=False)} %}}\n"


def _in_config(folder: Path) -> tuple[str | None, dict[str, str]]:
    """Return (template, special tokens by role) from tokenizer_config.json, where present."""
    path = folder / TOKENIZER_CONFIG
    if not path.is_file():
        return None, {}
    data = read_small_file(path, what="a tokenizer config", max_bytes=MAX_CONFIG_BYTES, error=OptionError)
    content = parse_json(data, source=path, error=OptionError)
    if not isinstance(content, dict):
        return None, {}
    named = {role: content.get(role) for role in ROLES}
    tokens = {role: token.get("content") if isinstance(token, dict) else token for role, token in named.items()}
    found = content.get("chat_template")
    if isinstance(found, list):  # several templates by name
        by_name = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = by_name.get("default")
    template = found if isinstance(found, str) else None
    return template, {role: token for role, token in tokens.items() if isinstance(token, str)}


def compiled(source: str, name: str, *, around: tuple[str, str] = ("", "")) -> Any:
    """Return the compiled template; `around` is written before and after each {% generation %} block."""
    jinja2 = load_package("jinja2", needed_by="a chat template")
    environment = _environment(*around)
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise OptionError(f"{name}: not a valid Jinja template: line {error.lineno}: {error.message:.1000}") from None
    except (RecursionError, SyntaxError, MemoryError, OverflowError):
        # Jinja writes Python code, for whose parser the expressions may be nested too deeply, and numbers too long.
        raise OptionError(f"{name}: not a valid Jinja template: its expressions are nested too deeply.") from None


@cache
def _environment(before: str, after: str) -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Counted(ImmutableSandboxedEnvironment):  # type: ignore[misc]
        def _parse(self, source: str, name: str | None, filename: str | None) -> Any:
            return _with_counted_loops(super()._parse(source, name, filename))

    environment = Counted(
        trim_blocks=True, lstrip_blocks=True, extensions=[_generation_blocks(before, after), "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _as_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _with_counted_loops(tree: Any) -> Any:
    """Insert a call of `count_turn` at the start of every loop iteration."""
    from jinja2 import nodes

    for loop in tree.find_all(nodes.For):
        call = nodes.Call(nodes.Name(COUNT_TURN, "load"), [], [], None, None)
        loop.body.insert(0, nodes.ExprStmt(call).set_lineno(loop.lineno))
    return tree


def rendered(template: Any, values: Mapping[str, Any], *, limit: int) -> str:
    """Return the output of a `compiled` template; `ValueError` for more than `limit` characters or loop iterations.

    Jinja limits a range to 100,000 numbers. Without this limit, nested loops could still run for years.
    """
    turns = itertools.count(1)

    def count_turn() -> None:
        if next(turns) > limit:
            raise ValueError(f"its loops have more than {limit:,} iterations. Pass another template.")

    parts, length = [], 0
    for part in template.generate({**values, COUNT_TURN: count_turn}):
        parts.append(part)
        length += len(part)
        if length > limit:
            raise ValueError(f"it writes more than {limit:,} characters. Pass another template.")
    return "".join(parts)


def _generation_blocks(before: str, after: str) -> type[Any]:
    """Return the extension for {% generation %} ... {% endgeneration %}."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):  # type: ignore[misc]
        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("surrounded"), [], [], body).set_lineno(line)

        def surrounded(self, caller: Callable[[], str]) -> str:
            return f"{before}{caller()}{after}"

    return Generation


def _as_json(value: Any, indent: int | None = None, **settings: Any) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=settings.get("ensure_ascii", False))


def _raise(message: str) -> NoReturn:
    jinja2 = load_package("jinja2", needed_by="a chat template")
    raise jinja2.TemplateError(message)


def _now(format: str) -> str:
    return datetime.datetime.now().astimezone().strftime(format)
