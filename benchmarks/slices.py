"""Return the first megabytes of a corpus: `english:5MB`, truncated after a whole character."""

import re

import corpora

UNITS = {"kB": 10**3, "MB": 10**6}


def resolve(name: str) -> corpora.Corpus:
    """Return the corpus, or its start if the name ends in `:<number>MB` or `:<number>kB`."""
    asked = re.fullmatch(r"(.+):(\d+)(kB|MB)", name)
    if asked is None:
        return corpora.resolve(name)
    base_name, number, unit = asked.groups()
    base = corpora.resolve(base_name)
    name = f"{base.name}_{number}{unit}"
    path = corpora.CACHE / "slices" / f"{name}.txt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with base.path.open("rb") as file:
            path.write_bytes(_whole_characters(file.read(int(number) * UNITS[unit])))
    return corpora.Corpus(name, path, f"the first {number} {unit} of {base.what}")


def _whole_characters(data: bytes) -> bytes:
    """Return `data` without an incomplete character at its end.

    >>> _whole_characters("aä".encode()[:2])
    b'a'
    """
    return data.decode(errors="ignore").encode()
