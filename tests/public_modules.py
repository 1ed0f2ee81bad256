"""Modules whose `__all__` is the public API, for the tests of docstrings and of the API reference."""

PUBLIC_MODULES = (
    "gristmill",
    "gristmill.lm",
    "gristmill.lm.functional",
    "gristmill.posterior",
    "gristmill.reference",
    "gristmill.report",
)
