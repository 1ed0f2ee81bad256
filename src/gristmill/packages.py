"""Optional packages: imported when first needed. The error for a missing one has the install command."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from gristmill.errors import MissingPackageError

# Argument of `pip install`, by import name.
EXTRAS = {
    "backports": "gristmill[data]",
    "fsspec": "gristmill[data]",
    "pyarrow": "gristmill[data]",
    "lightning_fabric": "gristmill[train]",
    "pytorch_lightning": "gristmill[train]",
    "safetensors": "gristmill[train]",
    "torch": "gristmill[train]",
    "yaml": "gristmill[train]",
    "jinja2": "gristmill[report]",
    "matplotlib": "gristmill[report]",
    "gguf": "gristmill[export]",
    "ray": "gristmill[ray]",
    "starlette": "gristmill[view]",
    "uvicorn": "gristmill[view]",
    "huggingface_hub": "huggingface_hub",
    "tensorboard": "tensorboard",
    "tiktoken": "tiktoken",
    "tokenizers": "tokenizers",
    "trackio": "trackio",
}
# Names on PyPI, where they differ from the import name.
DISTRIBUTIONS = {
    "backports": "backports.zstd",
    "lightning_fabric": "pytorch-lightning",
    "pytorch_lightning": "pytorch-lightning",
    "yaml": "PyYAML",
}


def load_package(name: str, *, needed_by: str) -> Any:
    """Import the module `name` and return it. Raises MissingPackageError with `needed_by` and the install command."""
    with packages_for(needed_by):
        return importlib.import_module(name)


def require_packages(needed_by: str, *names: str) -> None:
    """Raise MissingPackageError for the first of the modules that cannot be imported."""
    for name in names:
        load_package(name, needed_by=needed_by)


@contextlib.contextmanager
def packages_for(needed_by: str) -> Iterator[None]:
    """Turn a failed import of an optional package in the block into a MissingPackageError.

    needed_by: the subject of the message, such as "gm.lm.train" or "a .zst file".
    """
    try:
        yield
    except MissingPackageError:
        raise
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingPackageError(_message(needed_by, package, error), name=error.name, path=error.path) from error


def _message(needed_by: str, package: str, error: ImportError) -> str:
    missing = isinstance(error, ModuleNotFoundError) and error.name in (package, "backports.zstd")
    state = "is not installed" if missing else f"cannot be imported ({' '.join(str(error).split())})"
    target = EXTRAS[package]
    return (
        f"{needed_by} needs {DISTRIBUTIONS.get(package, package)}, which {state}. "
        f"Install it with: pip install {repr(target) if '[' in target else target}"
    )


def lazy_attribute(package: str, name: str, places: Mapping[str, str]) -> object:
    """Import and return the attribute `name` of a package, for the `__getattr__` of the package.

    places: module of each name inside the package; "module:attribute" if the attribute has another name there,
        "module:" for the module itself.
    """
    if name not in places:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    module_name, colon, attribute = places[name].partition(":")
    with packages_for(f"{package.replace('gristmill', 'gm', 1)}.{name}"):
        module = importlib.import_module(f"{package}.{module_name}")
    return module if colon and not attribute else getattr(module, attribute or name)
