"""Every example in a docstring runs and gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import gristmill

MODULES = ["gristmill"] + [
    module.name
    for module in pkgutil.walk_packages(gristmill.__path__, "gristmill.")
    if not module.name.endswith(("._core", ".__main__"))
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_first_functions_a_newcomer_meets_have_examples():
    finder = doctest.DocTestFinder()
    for thing in (gristmill.train_tokenizer, gristmill.count_words, gristmill.Tokenizer.encode, gristmill.Words):
        assert any(test.examples for test in finder.find(thing)), thing
