"""The names of Lightning Fabric that training uses, imported without torchmetrics, which takes 1.5 seconds.

Fabric imports torchmetrics to get its version, and torchmetrics imports transformers, matplotlib and other packages.
Training uses none of them, so Fabric gets a placeholder module with the version. A later import of torchmetrics finds
the real package.
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
    """Within the block, `package` is a placeholder module with only a version, unless it is already imported."""
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
