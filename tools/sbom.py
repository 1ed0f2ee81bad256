"""Write the software bill of materials of a wheel: CycloneDX JSON, for `.dist-info/sboms/` (PEP 770).

CMakeLists.txt runs it when a wheel is built. It lists what is compiled into the wheel (the core, the code of nanobind
that is linked statically, tables made from the Unicode Character Database) and the dependencies that the wheel
declares, which pip installs beside it. The same sources give the same bytes: the bill contains no time and no random
number.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAME = "gristmill.cdx.json"
SPEC_VERSION = "1.6"

Component = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Write the bill of materials to the path in `arguments`."""
    (path,) = map(Path, arguments)
    path.write_text(json.dumps(bill_of_materials(nanobind_folder()), indent=1) + "\n", encoding="utf-8")
    return 0


def bill_of_materials(nanobind: Path) -> dict[str, Any]:
    """Return the bill of a wheel that is built with the nanobind in this folder."""
    project = tomllib.loads(_text(ROOT / "pyproject.toml"))["project"]
    version = _found(r'__version__ = "([^"]+)"', ROOT / "src" / "gristmill" / "version.py")
    wheel = _python_package("gristmill", version, project["description"], license=project["license"])
    compiled, declared = compiled_parts(nanobind), declared_dependencies(project)
    references = [part["bom-ref"] for part in compiled]
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": wheel},
        "components": [*compiled, *declared],
        "dependencies": [
            {
                "ref": wheel["bom-ref"],
                "dependsOn": [*references, *(part["bom-ref"] for part in declared if part["scope"] == "required")],
            },
            *({"ref": reference} for reference in references),
        ],
        # Nothing else is in the wheel. What the declared dependencies contain is in their own bills.
        "compositions": [{"aggregate": "complete", "assemblies": [wheel["bom-ref"], *references]}],
    }


def compiled_parts(nanobind: Path) -> list[Component]:
    """Return the code and data of others in `gristmill/_core.*.so`."""
    headers = nanobind / "ext" / "robin_map" / "include" / "tsl"
    header = next(path for path in sorted(headers.glob("*.h")) if "define TSL_RH_VERSION_MAJOR" in _text(path))
    robin = ".".join(_found(rf"TSL_RH_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH"))
    unicode = _found(r'kUnicodeVersion\[\] = "([^"]+)"', ROOT / "cpp" / "src" / "pretokenize" / "unicode_tables.cpp")
    return [
        _python_package(
            "nanobind",
            _found(r'__version__(?:: \w+)? = "([^"]+)"', nanobind / "__init__.py"),
            "C++ bindings for Python, linked statically into gristmill/_core",
            license="BSD-3-Clause",
            how="static",
        ),
        {
            "type": "library",
            "bom-ref": f"pkg:github/Tessil/robin-map@v{robin}",
            "name": "robin-map",
            "version": robin,
            "description": "Hash map that nanobind includes, compiled into gristmill/_core",
            "scope": "required",
            "licenses": [{"license": {"id": "MIT"}}],
            "purl": f"pkg:github/Tessil/robin-map@v{robin}",
            "properties": [{"name": "gristmill:linked", "value": "static"}],
        },
        {
            "type": "data",
            "bom-ref": f"unicode-character-database@{unicode}",
            "name": "Unicode Character Database",
            "version": unicode,
            "description": "Classes of characters, as tables in gristmill/_core",
            "scope": "required",
            "licenses": [{"license": {"id": "Unicode-3.0"}}],
            "properties": [{"name": "gristmill:linked", "value": "static"}],
        },
    ]


def declared_dependencies(project: dict[str, Any]) -> list[Component]:
    """Return the requirements in the metadata of the wheel, one component per package. None is in the wheel itself."""
    optional = project["optional-dependencies"]
    wanted = [("", line) for line in project["dependencies"]]
    wanted += [(extra, line) for extra in sorted(optional) for line in optional[extra]]
    found: dict[str, Component] = {}
    for extra, requirement in wanted:
        name = normalized(requirement)
        if name == "gristmill":  # an extra that includes another one
            continue
        new: Component = {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}",
            "name": name,
            "scope": "optional" if extra else "required",
            "purl": f"pkg:pypi/{name}",
            "properties": [],
        }
        value = f"{requirement} (extra {extra})" if extra else requirement
        found.setdefault(name, new)["properties"].append({"name": "gristmill:requirement", "value": value})
    return list(found.values())


def normalized(requirement: str) -> str:
    """Return the name of the package of a requirement, as package indexes spell it.

    >>> normalized("backports.zstd>=1.0; python_version < '3.14'"), normalized("PyYAML[all]>=6")
    ('backports-zstd', 'pyyaml')
    """
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def nanobind_folder() -> Path:
    """Return the folder of the installed nanobind."""
    spec = importlib.util.find_spec("nanobind")
    if spec is None or spec.origin is None:
        raise SystemExit("nanobind is not installed: the bill of materials needs its version.")
    return Path(spec.origin).parent


def _python_package(name: str, version: str, description: str, *, license: str, how: str | None = None) -> Component:
    reference = f"pkg:pypi/{name}@{version}"
    component: Component = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "description": description,
        "scope": "required",
        "licenses": [{"license": {"id": license}}],
        "purl": reference,
    }
    return component if how is None else {**component, "properties": [{"name": "gristmill:linked", "value": how}]}


def _found(pattern: str, path: Path) -> str:
    match = re.search(pattern, _text(path))
    if match is None:
        raise SystemExit(f"{path}: no version was found, so the bill of materials would be incomplete.")
    return match[1]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
