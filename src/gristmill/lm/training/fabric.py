"""The names of Lightning Fabric that training uses, imported without the 1.5 seconds that torchmetrics takes.

Fabric asks for the version of torchmetrics by importing it, and torchmetrics imports transformers, matplotlib and what
else it finds. Training uses none of it, so a stand-in answers the question; a later import finds the real package.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
import types
from collections.abc import Iterator

__all__ = [
    "ClusterEnvironment",
    "Fabric",
    "LightningEnvironment",
    "MixedPrecision",
    "ModelParallelStrategy",
    "Precision",
    "SLURMEnvironment",
    "TorchElasticEnvironment",
]


@contextlib.contextmanager
def _version_alone(package: str) -> Iterator[None]:
    """While the block imports, `package` is a module with nothing but its version, unless it has been imported."""
    try:
        stand_in = types.ModuleType(package)
        stand_in.__dict__["__version__"] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        yield
        return
    is_first = sys.modules.setdefault(package, stand_in) is stand_in
    try:
        yield
    finally:
        if is_first:
            del sys.modules[package]


with _version_alone("torchmetrics"):
    from lightning_fabric import Fabric
    from lightning_fabric.plugins import MixedPrecision, Precision
    from lightning_fabric.plugins.environments import (
        ClusterEnvironment,
        LightningEnvironment,
        SLURMEnvironment,
        TorchElasticEnvironment,
    )
    from lightning_fabric.strategies import ModelParallelStrategy
