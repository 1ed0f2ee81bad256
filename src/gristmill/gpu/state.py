"""Structs that kernels and host share. Every field has eight bytes, so a struct is an array of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gristmill.gpu.driver import DeviceArray, Driver


class DeviceState:
    """A struct in the memory of the GPU, and a copy of it in this process."""

    def __init__(self, driver: Driver, fields: Sequence[str]) -> None:
        self._driver = driver
        self._places = {name: place for place, name in enumerate(fields)}
        self._host: NDArray[np.uint64] = np.zeros(len(fields), np.uint64)
        self.array: DeviceArray = driver.arrays.zeros(len(fields), np.uint64)

    def __getitem__(self, name: str) -> int:
        return int(self._host[self._places[name]])

    def __setitem__(self, name: str, value: int | DeviceArray) -> None:
        self._host[self._places[name]] = value if isinstance(value, int) else self._driver.address_of(value)

    def upload(self) -> None:
        """Give the fields of this process to the kernels."""
        self._driver.upload(self.array, self._host)

    def download(self) -> None:
        """Read the fields that kernels have changed."""
        self._host[:] = self._driver.to_host(self.array)
