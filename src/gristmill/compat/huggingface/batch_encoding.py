"""BatchEncoding: the result of calling a tokenizer."""

from __future__ import annotations

from collections import UserDict
from typing import Any

__all__ = ["BatchEncoding"]


class BatchEncoding(UserDict[str, Any]):
    """The result of a call: a mapping whose values are attributes too, `batch["input_ids"]` and `batch.input_ids`."""

    def __getattr__(self, name: str) -> Any:
        if name == "data" or name not in self.data:  # pickle asks before `data` is set
            raise AttributeError(name)
        return self.data[name]

    def to(self, device: Any, **options: Any) -> BatchEncoding:
        """Move every tensor to a device; other values stay."""
        self.data = {
            name: value.to(device, **options) if hasattr(value, "to") else value for name, value in self.data.items()
        }
        return self
