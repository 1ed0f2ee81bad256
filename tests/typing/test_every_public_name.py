"""The script that type checkers read names everything public, and the package says that it has types."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import gristmill as gm

SCRIPT = ast.parse(Path(__file__).with_name("every_public_name.py").read_text(encoding="utf-8"))


def dotted(node):
    """`gm.lm.train` for the attribute of that name, None for one of something else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else None
    return None if inner is None else f"{inner}.{node.attr}"


ATTRIBUTES = {node.attr for node in ast.walk(SCRIPT) if isinstance(node, ast.Attribute)}
NAMES = {dotted(node) for node in ast.walk(SCRIPT) if isinstance(node, ast.Attribute)}


def is_deprecated(owner, name):
    return (inspect.getdoc(getattr(owner, name)) or "").startswith("Deprecated")


@pytest.mark.parametrize("module", ["gm", "gm.lm", "gm.posterior", "gm.reference", "gm.report"])
def test_the_script_names_everything_in(module):
    package = gm if module == "gm" else getattr(gm, module.removeprefix("gm."))
    assert [name for name in package.__all__ if f"{module}.{name}" not in NAMES] == []


@pytest.mark.parametrize("owner", [gm.Tokenizer, gm.Shards, gm.Words], ids=lambda owner: owner.__name__)
def test_the_script_uses_every_public_method_of(owner):
    public = {name for name in dir(owner) if not name.startswith("_") and not is_deprecated(owner, name)}
    assert public - ATTRIBUTES == set()


def test_every_public_function_has_a_type_for_each_argument():
    for package in (gm, gm.lm, gm.posterior, gm.report):
        for name in package.__all__:
            function = getattr(package, name)
            if inspect.isfunction(function):
                untyped = [p.name for p in inspect.signature(function).parameters.values() if p.annotation is p.empty]
                assert untyped == [], f"{package.__name__}.{name}"


@pytest.mark.parametrize("name", ["py.typed", "_core.pyi"])
def test_the_package_has_its_types_with_it(name):
    assert Path(gm.__file__).with_name(name).is_file()
