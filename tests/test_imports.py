"""What `import gristmill` gives and loads; import-linter checks in `make check` which module may import which."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import gristmill as gm

PACKAGE = Path(gm.__file__).parent
# Users of the whole package, not parts of it.
ABOVE = ("cli", "compat")
# Subpackages that `import gristmill` makes known to type checkers and imports when they are first used.
LAZY = {"lm", "posterior", "reference", "report"}


def test_importing_gristmill_imports_nothing_heavy():
    code = (
        "import sys, gristmill; "
        "heavy = ('torch', 'ray', 'pyarrow', 'matplotlib', 'tqdm', 'tyro', 'regex', 'msgspec'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_public_names_are_sorted_and_exist():
    assert gm.__all__ == sorted(gm.__all__)
    assert all(hasattr(gm, name) for name in gm.__all__)
    assert gm.__version__ == "0.1.0"


def test_dir_shows_the_public_names_alone_and_loads_nothing():
    code = (
        "import sys, gristmill as gm\n"
        "from gristmill import lm, posterior, report\n"
        "for module in (gm, lm, posterior):\n"
        "    assert dir(module) == sorted(module.__all__), module\n"
        "assert {'lm', 'posterior', 'reference', 'report'} <= set(dir(gm))\n"
        "assert not {'_core', 'annotations', 'errors', 'train'} & set(dir(gm))\n"
        "print([name for name in ('torch', 'matplotlib') if name in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_error_is_public_and_in_the_drawn_tree():
    from gristmill import errors

    for name in errors.__all__:
        assert getattr(gm, name) is getattr(errors, name)
        assert name in errors.__doc__
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert defined == set(errors.__all__)


def test_a_module_takes_only_the_core_from_the_package_itself():
    """import-linter cannot see the compiled `_core`, so its contracts ignore `from gristmill import …`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] in ABOVE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "gristmill":
                allowed = {"_core", "errors"} | (LAZY | {"pretokenize"} if path == PACKAGE / "__init__.py" else set())
                assert {alias.name for alias in node.names} <= allowed, f"{path}:{node.lineno}"
            if isinstance(node, ast.Import):
                assert "gristmill" not in [alias.name for alias in node.names], f"{path}:{node.lineno}"
