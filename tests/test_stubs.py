"""The type stub of the native module matches the module: every name and every parameter, and nothing else."""

import ast
import re
from pathlib import Path

import pytest

import gristmill
from gristmill import _core

STUB = ast.parse(Path(gristmill.__file__).with_name("_core.pyi").read_text(encoding="utf-8"))
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
METHODS = {
    (name, node.name): node
    for name, owner in CLASSES.items()
    for node in owner.body
    if isinstance(node, ast.FunctionDef)
}
CONSTANTS = {node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign)}


def stub_parameters(node):
    return [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]


def native_parameters(function):
    signature = re.sub(r"\[[^\[\]]*\]", "", function.__nb_signature__[0][0])  # ndarray[dtype=…, shape=…] is not Python
    arguments = signature[signature.index("(") + 1 : signature.rindex(")")]
    names = [argument.split(":")[0].strip() for argument in arguments.split(",")]
    return [name for name in names if name not in ("", "*")]


def is_property(node):
    return any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in node.decorator_list)


def test_stub_names_everything_the_module_has_and_nothing_else():
    native = {name for name in vars(_core) if not name.startswith("_")}
    assert native == FUNCTIONS.keys() | CLASSES.keys() | CONSTANTS


@pytest.mark.parametrize("name", CLASSES)
def test_stub_names_every_member_of(name):
    native = {member for member in vars(getattr(_core, name)) if not member.startswith("_")}
    assert native == {method for owner, method in METHODS if owner == name and not method.startswith("_")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_stub_gives_the_parameters_of(name):
    assert stub_parameters(FUNCTIONS[name]) == native_parameters(getattr(_core, name))


@pytest.mark.parametrize(("owner", "name"), [key for key, node in METHODS.items() if not is_property(node)])
def test_stub_gives_the_parameters_of_method(owner, name):
    native = [parameter for parameter in native_parameters(getattr(getattr(_core, owner), name)) if parameter != "self"]
    assert [parameter for parameter in stub_parameters(METHODS[owner, name]) if parameter != "self"] == native
