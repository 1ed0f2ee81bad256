"""Every public name has a complete docstring: what it does, arguments, result, errors, example.

Griffe reads the docstrings as it does for the site, so what passes here is what the API reference shows.
"""

import inspect
from functools import cache
from pathlib import Path

import griffe
import pytest

from public_modules import PUBLIC_MODULES

# Functions and classes with arguments that raise nothing, and why; every other one has a section `Raises:`.
# A key is the public name, or for a method that classes inherit the name where it is defined.
RAISES_NOTHING: dict[str, str] = {
    "gristmill.StreamDecoder": "stores its arguments",
    "gristmill.Words": "stores its arguments",
    "gristmill.lm.Model": "stores its argument",
    "gristmill.lm.TokenDataset.epoch": "arithmetic on sizes",
    "gristmill.lm.TokenDataset.starts_from": "arithmetic on places",
    "gristmill.lm.TokenDataset.tokens_in_step": "arithmetic on sizes",
    "gristmill.lm.TokenDataset.tokens_per_step": "arithmetic on sizes",
    "gristmill.lm.functional.cosine_schedule": "arithmetic on numbers",
    "gristmill.lm.functional.silu": "defined for every floating-point tensor",
    "gristmill.lm.models.config.ModelConfig.num_masked_pairs": "arithmetic on checked options",
    "gristmill.lm.models.config.ModelConfig.schedule": "arithmetic on checked options",
    "gristmill.lm.models.config.ModelConfig.start_messages": "looks at checked options only",
    "gristmill.lm.models.model.Model.flops_per_token": "arithmetic on sizes",
    "gristmill.lm.models.model.Model.new_reader": "builds an object",
    "gristmill.lm.models.model.Model.new_row_reader": "builds an object",
    "gristmill.lm.models.model.Model.new_watch": "builds an object",
    "gristmill.lm.models.model.Model.warnings": "looks at recorded numbers",
    "gristmill.lm.models.vae.network.SequenceVAE.starts": "returns a view of a parameter",
    "gristmill.posterior.PosteriorMetricsCallback.on_exception": "called by the trainer",
    "gristmill.posterior.PosteriorMetricsCallback.on_train_end": "called by the trainer",
    "gristmill.posterior.PosteriorMetricsCallback.on_train_start": "called by the trainer",
    "gristmill.posterior.PosteriorMetricsMonitor.resume_after": "takes any step",
    "gristmill.posterior.PosteriorMetricsMonitor.wants": "takes any step",
}


@cache
def package():
    return griffe.load(
        "gristmill",
        search_paths=[Path(__file__).resolve().parent.parent / "src"],
        docstring_parser="google",
        resolve_aliases=True,
    )


def find(path):
    found = package()[path.removeprefix("gristmill.")]
    return found.final_target if found.is_alias else found


def public_objects():
    """Each public function and class once, by the name that users import."""
    seen = set()
    for module in PUBLIC_MODULES:
        for name in __import__(module, fromlist=["__all__"]).__all__:
            if (
                name.startswith("__")
                or f"{module}.{name}" in PUBLIC_MODULES
                or (module, name) == ("gristmill", "pretokenize")
            ):
                continue
            path = f"{module}.{name}"
            target = find(path)
            if target.path not in seen:
                seen.add(target.path)
                yield path
    yield "gristmill.pretokenize.cutting.pretokenize"


def sections(item, kind):
    if item.docstring is None:
        return []
    return [section for section in item.docstring.parsed if section.kind.value == kind]


def summary(item):
    return inspect.cleandoc(item.docstring.value).splitlines()[0] if item.docstring else ""


def documented_names(item, kind):
    return {entry.name.lstrip("*") for section in sections(item, kind) for entry in section.value}


def missing_of_function(function, path, *, examples="", overridden=()):
    """What the docstring of a function lacks.

    `examples` is text that shows the function in use. The docstrings of `overridden` methods count too, so that an
    override documents only its differences.
    """
    if not summary(function):
        return [f"{path}: no docstring"]
    lacks = []
    chain = [function, *overridden]
    parameters = [each.name for each in function.parameters if each.name not in ("self", "cls")]
    known = set().union(*(documented_names(each, "parameters") for each in chain))
    absent = [name for name in parameters if name not in known]
    if absent:
        lacks.append(f"{path}: Args: {', '.join(absent)}")
    gives_nothing = str(function.returns) == "None" or "property" in function.labels
    says_result = any(summary(each).startswith(("Return", "Yield")) or sections(each, "returns") for each in chain)
    if not gives_nothing and not says_result and not sections(function, "yields"):
        lacks.append(f"{path}: Returns:")
    raises = any(sections(each, "raises") or each.path in RAISES_NOTHING for each in chain)
    if parameters and not raises and path not in RAISES_NOTHING:
        lacks.append(f"{path}: Raises:")
    name = path.rpartition(".")[2]
    text = "".join(each.docstring.value for each in chain if each.docstring)
    if ">>>" not in text and "```" not in text and f"{name}(" not in examples:
        lacks.append(f"{path}: Examples:")
    return lacks


def is_error(cls):
    return cls.name.endswith(("Error", "Warning"))


def members_of(cls):
    """Public members of a class and of its bases in Gristmill."""
    found = {}
    for each in reversed([cls, *(base for base in cls.mro() if base.path.startswith("gristmill."))]):
        for name, member in each.members.items():
            if not name.startswith("_"):
                found[name] = member.final_target if member.is_alias else member
    return found


def overridden_by(member, cls):
    """The methods of the same name in the bases of a class."""
    found = [base.members.get(member.name) for base in cls.mro() if base.path.startswith("gristmill.")]
    return [each for each in found if each is not None and each.is_function and each.path != member.path]


def missing_of_constructor(constructor, cls, path):
    """The arguments and errors that neither the docstring of the class nor that of `__init__` names."""
    places = [cls, constructor]
    documented = set().union(*(documented_names(each, "parameters") for each in places))
    parameters = [each.name for each in constructor.parameters if each.name != "self"]
    lacks = []
    if absent := [name for name in parameters if name not in documented]:
        lacks.append(f"{path}: Args: {', '.join(absent)}")
    if parameters and path not in RAISES_NOTHING and not any(sections(each, "raises") for each in places):
        lacks.append(f"{path}: Raises:")
    return lacks


def missing_of_class(cls, path):
    if not summary(cls):
        return [f"{path}: no docstring"]
    if is_error(cls):
        return []
    lacks = []
    text = cls.docstring.value
    if ">>>" not in text and "```" not in text:
        lacks.append(f"{path}: Examples:")
    bases = [base for base in cls.mro() if base.path.startswith("gristmill.") and base.docstring]
    examples = "".join(each.docstring.value for each in (cls, *bases))
    named = documented_names(cls, "attributes") | documented_names(cls, "parameters")
    for name, member in members_of(cls).items():
        if member.is_function:
            overridden = overridden_by(member, cls)
            lacks += missing_of_function(member, f"{path}.{name}", examples=examples, overridden=overridden)
        elif name not in named and not summary(member):
            lacks.append(f"{path}.{name}: no docstring")
    if (constructor := cls.members.get("__init__")) is not None and "dataclass" not in cls.labels:
        lacks += missing_of_constructor(constructor, cls, path)
    return lacks


@pytest.mark.parametrize("path", sorted(public_objects()))
def test_the_docstring_is_complete(path):
    item = find(path)
    if item.is_class:
        assert missing_of_class(item, path) == []
    elif item.is_function:
        assert missing_of_function(item, path) == []
    else:
        assert summary(item), f"{path}: no docstring"
