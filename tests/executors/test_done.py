"""`.ok` files: only files that `write_done` has written are trusted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import _core
from gristmill.executors.done import MAX_BYTES, Done, read_done, write_done
from gristmill.executors.work_folder import FileEntry, LocalWorkFolder

NAME = "encode-00003"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    return LocalWorkFolder(tmp_path / "work")


def _sealed(content):
    """Write an `.ok` file with a matching checksum, as a forger would."""
    text = content if isinstance(content, str) else json.dumps(content)
    return json.dumps({"xxh64": f"{_core.xxh64(text.encode()):016x}", "content": text}).encode()


def _content(**changes):
    entry = {"name": "a.ids", "num_bytes": 3, "xxh64": "0"}
    return {"version": 1, "task": NAME, "files": [entry], "result": {}, **changes}


def test_what_was_written_is_read(folder):
    folder.write("a.ids", b"abc")
    done = Done((FileEntry("a.ids", 3, "00"),), {"tokens": [1, 2], "skipped": {"7": "damaged"}})
    write_done(folder, NAME, done)
    assert read_done(folder, NAME) == done


def test_the_sealed_form_of_these_tests_is_the_real_one(folder):
    folder.write("a.ids", b"abc")
    folder.write(f"{NAME}.ok", _sealed(_content()))
    assert read_done(folder, NAME) == Done((FileEntry("a.ids", 3, "0"),))


@pytest.mark.parametrize("data", [b"ab", b"abcd", None])
def test_a_file_of_another_size_or_a_missing_one_makes_the_task_run_again(folder, data):
    write_done(folder, NAME, Done((FileEntry("a.ids", 3, "00"),)))
    if data is not None:
        folder.write("a.ids", data)
    assert read_done(folder, NAME) is None


def test_every_flipped_bit_and_every_cut_is_noticed(folder):
    folder.write("a.ids", b"abc")
    write_done(folder, NAME, Done((FileEntry("a.ids", 3, "00"),), {"n": 1}))
    whole = folder.read(f"{NAME}.ok")
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        for data in (bytes(damaged), whole[:position]):
            (folder.path / f"{NAME}.ok").write_bytes(data)
            done = read_done(folder, NAME)
            # Replacing a space by other white space changes nothing.
            assert done is None or json.loads(data) == json.loads(whole)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "[" * 100_000,
        _content(version=2),
        _content(task="encode-00004"),
        _content(files={}),
        _content(files=[[]]),
        _content(files=None),
        _content(result=[]),
        _content(files=[{"name": "a.ids", "num_bytes": -1, "xxh64": "0"}]),
        _content(files=[{"name": "a.ids", "num_bytes": 3.0, "xxh64": "0"}]),
        _content(files=[{"name": "a.ids", "num_bytes": True, "xxh64": "0"}]),
        _content(files=[{"name": "a.ids", "num_bytes": 3, "xxh64": 0}]),
        _content(files=[{"name": "a.ids", "num_bytes": 3}]),
        _content(files=[{"name": "a.ids", "num_bytes": 3, "xxh64": "0", "more": 1}]),
        _content(files=[{"name": ["a.ids"], "num_bytes": 3, "xxh64": "0"}]),
        _content(files=[{"name": "../secret", "num_bytes": 3, "xxh64": "0"}]),
        _content(files=[{"name": "..", "num_bytes": 3, "xxh64": "0"}]),
        _content(files=[{"name": "sub/a.ids", "num_bytes": 3, "xxh64": "0"}]),
        _content(files=[{"name": "link", "num_bytes": 3, "xxh64": "0"}]),
    ],
)
def test_a_forged_ok_is_as_good_as_none(folder, content):
    folder.write("a.ids", b"abc")
    (folder.path.parent / "secret").write_bytes(b"abc")
    (folder.path / "link").symlink_to("../secret")
    folder.write(f"{NAME}.ok", _sealed(content))
    assert read_done(folder, NAME) is None


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"{}", b"[1]", b'"x"', b'{"content": 1, "xxh64": 2}', b"[" * 9999])
def test_a_damaged_ok_is_as_good_as_none(folder, data):
    folder.write(f"{NAME}.ok", data)
    assert read_done(folder, NAME) is None


def test_a_huge_ok_is_not_read(folder):
    with (folder.path / f"{NAME}.ok").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert read_done(folder, NAME) is None


def test_a_folder_in_the_place_of_an_ok_is_as_good_as_none(folder):
    (folder.path / f"{NAME}.ok").mkdir()
    assert read_done(folder, NAME) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["a.ids", NAME, "0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["version", "task", "files", "result", "name", "num_bytes", "xxh64"]), inner, max_size=7
        )
    ),
    max_leaves=12,
)


@given(content=_JSON, changes=st.dictionaries(st.sampled_from(["version", "task", "files", "result"]), _JSON))
def test_no_content_of_an_ok_is_a_crash(tmp_path_factory, content, changes):
    folder = LocalWorkFolder(tmp_path_factory.getbasetemp())
    for forged in (content, _content(**changes)):
        (folder.path / f"{NAME}.ok").write_bytes(_sealed(forged))
        done = read_done(folder, NAME)
        assert done is None or all("/" not in entry.name for entry in done.files)
