"""The tags of object stores: they detect a replacement of the same size within the same second."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import gristmill as gm
from gristmill.corpus import Reading, find_files
from gristmill.corpus.stretches import cut_into_parts, inputs_from_json, inputs_to_json, read_part

TAGS = {}


class TaggedFileSystem(MemoryFileSystem):
    """A store whose clock does not advance, like one with a resolution of whole seconds."""

    protocol = "tagged"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]
    field = "ETag"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("tagged://", "memory://"))

    def ls(self, path, detail=True, **kwargs):
        found = super().ls(path, detail=True, **kwargs)
        found = [self._tagged(about) for about in found]
        return found if detail else [about["name"] for about in found]

    def find(self, path, **kwargs):
        found = super().find(path, **{**kwargs, "detail": True})
        return {name: self._tagged(about) for name, about in found.items()}

    def info(self, path, **kwargs):
        return self._tagged(super().info(path, **kwargs))

    def _tagged(self, about):
        return {**about, "LastModified": datetime(2026, 1, 1, tzinfo=UTC), self.field: TAGS.get(about["name"])}


@pytest.fixture
def put():
    fsspec.register_implementation("tagged", TaggedFileSystem, clobber=True)
    system = fsspec.filesystem("tagged")

    def put(name, data, tag):
        system.pipe(name, data)
        TAGS[name] = tag

    yield put
    TaggedFileSystem.store.clear()
    TAGS.clear()


@pytest.mark.parametrize("field", ["ETag", "etag"])
@pytest.mark.parametrize("corpus", ["tagged://b/a.txt", "tagged://b/*.txt"])
def test_a_remote_input_with_another_tag_is_refused(put, field, corpus, monkeypatch):
    monkeypatch.setattr(TaggedFileSystem, "field", field)
    put("/b/a.txt", b"some text", '"1"')
    reading = Reading()
    files = find_files([corpus], reading)
    entries = json.loads(json.dumps(inputs_to_json(files)))
    assert entries[0]["etag"] == "1"
    (part,) = cut_into_parts(files, reading, part_bytes=1000, cutting=None)
    again = inputs_from_json(entries)
    assert again == files
    assert len(list(read_part(again, part, reading, cut=None))) == 1
    put("/b/a.txt", b"SOME TEXT", '"2"')
    with pytest.raises(gm.InputChangedError, match=r"tagged://.*/a\.txt changed .*written to or replaced"):
        list(read_part(again, part, reading, cut=None))
    put("/b/a.txt", b"some text", None)  # a store that no longer reports tags is accepted
    assert len(list(read_part(again, part, reading, cut=None))) == 1


def test_an_input_that_could_not_be_asked_about_is_left_out_by_workers_too(put):
    put("/b/a.txt", b"some text", '"1"')
    reading = Reading.checked({"on_error": "skip"})
    files = find_files(["tagged://b/a.txt"], reading)
    failed = [{**entry, "failure": "tagged://b/a.txt: its file system failed."} for entry in inputs_to_json(files)]
    skipped = {}
    again = inputs_from_json(failed)
    (part,) = cut_into_parts(again, reading, part_bytes=1, cutting=None)
    assert list(read_part(again, part, reading, cut=None, on_skip=skipped.__setitem__)) == []
    assert "its file system failed" in str(skipped[0])
    assert inputs_to_json(again) == failed
