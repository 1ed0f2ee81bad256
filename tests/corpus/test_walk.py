"""Folders and globs: the files that the glob module finds, links, and no repeated files because of loops."""

from __future__ import annotations

import glob
import os
import random
from pathlib import Path

import pytest

import gristmill as gm
from gristmill.corpus import Reading, find_files, open_corpus, walk


def names(*corpus):
    return list(find_files(corpus, Reading()).paths)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """data/a.txt, data/deep/b.txt and, outside of it, shared/c.txt, in the current folder."""
    for name in ("data/a.txt", "data/deep/b.txt", "shared/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"text ")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def link(path, target):
    Path(path).symlink_to(target)


@pytest.mark.parametrize("corpus", ["data", "data/**/*.txt", "data/**", "**/data/**/*.txt", "file:data"])
def test_folders_and_globs_follow_links_and_read_no_file_again_after_a_loop(folder, corpus):
    """The glob module reads a.txt 41 times here, and a walk without links misses c.txt."""
    link("data/loop", "../data")
    link("data/deep/up", "..")
    link("data/shared", "../shared")
    link("shared/back", "../data")  # a loop: data/shared/back is data
    if corpus == "file:data":
        corpus = f"file://{folder}/data"
    found = [os.path.relpath(name, folder) for name in names(corpus)]
    assert found == ["data/a.txt", "data/deep/b.txt", "data/shared/c.txt"]


def test_many_loops_do_not_take_exponential_time(folder):
    for i in range(12):
        link(f"data/loop{i}", ".")
        link(f"data/deep/loop{i}", "..")
    assert names("data/**/*.txt") == names("data") == ["data/a.txt", "data/deep/b.txt"]


def test_a_link_that_leads_above_the_folder_is_followed_until_the_folder_comes_again(folder):
    link("data/up", "..")
    assert names("data") == ["data/a.txt", "data/deep/b.txt", "data/up/shared/c.txt"]
    assert names("data/**/*.txt") == names("data")


def test_a_folder_that_several_links_lead_to_is_read_once(folder):
    link("data/two", "../shared")
    link("data/one", "../shared")
    expected = ["data/a.txt", "data/deep/b.txt", "data/one/c.txt"]
    assert names("data") == names("data/**/*.txt") == expected
    assert gm.count_words("data", progress=None, special_tokens=()).count("text") == 3


def test_a_link_beside_the_folder_that_it_leads_to_does_not_double_the_corpus(folder):
    link("data/current", "deep")
    assert names("data") == names("data/**/*.txt") == ["data/a.txt", "data/deep/b.txt"]
    assert names("data/*/*.txt") == ["data/current/b.txt", "data/deep/b.txt"]  # `*` matches both names


def test_a_link_into_a_hidden_folder_is_followed_because_nothing_else_leads_there(folder):
    (folder / "data/.store/v1").mkdir(parents=True)
    (folder / "data/.store/v1/c.txt").write_bytes(b"text ")
    link("data/current", ".store/v1")
    assert names("data") == names("data/**/*.txt") == ["data/a.txt", "data/current/c.txt", "data/deep/b.txt"]


def test_folders_that_link_to_each_other_are_each_read_once(folder):
    siblings = [f"data/{letter}" for letter in "tuvwxyz"]
    for sibling in siblings:
        Path(sibling).mkdir()
        (Path(sibling) / "x.txt").write_bytes(b"text ")
        for other in siblings:
            link(f"{sibling}/to-{Path(other).name}", Path(other).resolve())
    expected = ["data/a.txt", "data/deep/b.txt", *(f"{sibling}/x.txt" for sibling in siblings)]
    assert names("data") == names("data/**/*.txt") == expected


def test_a_link_that_is_named_is_followed_wherever_it_leads(folder):
    link("data/loop", ".")
    assert names("data/loop") == ["data/loop/a.txt", "data/loop/deep/b.txt"]
    assert names("data/loop/*.txt") == ["data/loop/a.txt"]
    assert names("dat*/loop/*.txt") == ["data/loop/a.txt"]
    assert names("data/*/*.txt") == ["data/deep/b.txt"]


@pytest.mark.parametrize("corpus", ["data", "data/**/*.txt", "data/*.txt", "data/broken.txt"])
def test_a_broken_link_is_an_error_that_names_the_link_and_its_target(folder, corpus):
    link("data/broken.txt", "nowhere/x.txt")
    with pytest.raises(FileNotFoundError, match=r"Broken symbolic link to 'nowhere/x\.txt'") as caught:
        names(corpus)
    assert str(caught.value.filename) == "data/broken.txt"


def test_a_broken_link_that_no_suffix_makes_an_input_is_passed_over_like_any_other_file(folder):
    link("data/broken", "nowhere")
    link("data/self", "self")
    assert names("data") == names("data/**/*.txt") == ["data/a.txt", "data/deep/b.txt"]


def test_a_link_to_itself_is_a_broken_link(folder):
    link("data/self.txt", "self.txt")
    with pytest.raises(FileNotFoundError, match=r"Broken symbolic link to 'self\.txt'"):
        names("data")


@pytest.mark.parametrize("corpus", ["data", "data/**/*.txt", "data/*/*.txt", ["data/**/*.txt"]])
def test_a_folder_that_cannot_be_listed_is_an_error_and_not_left_out(folder, monkeypatch, corpus):
    def scandir(path, real=os.scandir):
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError, match=r"data/deep"):
        open_corpus(corpus)


def test_a_file_that_a_glob_matches_in_two_ways_is_read_once(folder):
    assert names("data/**/**/*.txt") == ["data/a.txt", "data/deep/b.txt"]


def test_a_tree_deeper_than_the_recursion_limit_is_walked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = Path.cwd()
    try:
        for _ in range(1500):
            Path("d").mkdir()
            os.chdir("d")
        Path("a.txt").write_bytes(b"text")
    finally:
        os.chdir(place)
    path = "d/" * 1500 + "a.txt"
    found = [walk.files_below("d"), walk.files_that_match("**/*.txt")]
    Path(path).unlink()
    os.removedirs(path[: -len("/a.txt")])  # shutil.rmtree, which pytest would call, is recursive
    assert found == [[path], [path]]


@pytest.mark.parametrize("seed", range(4))
def test_without_links_the_glob_module_finds_the_same(tmp_path, monkeypatch, seed):
    source = random.Random(seed)
    parts = ["**", "**", "*", "*.txt", "a", "?", "[ab]*", ".*", "c*", "..", ".", "", "**a", "[[]z]", "a.txt", "[!a]*"]
    num_found = 0
    for tree in range(15):
        base = tmp_path / str(tree) / "x" / "y" / "z" / "w"  # ".." stays inside
        base.mkdir(parents=True)
        monkeypatch.chdir(base)
        folders = [""]
        for _ in range(10):
            path = str(Path(source.choice(folders)) / source.choice(["a", "b", ".h", "c d", "x.txt", "é", "[z]"]))
            if not os.path.lexists(path):
                Path(path).mkdir()
                folders.append(path)
        for _ in range(15):
            path = str(Path(source.choice(folders)) / source.choice(["a", "a.txt", ".h.txt", "b.txt", "q?", "c.md"]))
            if not os.path.lexists(path):
                Path(path).touch()
        for _ in range(80):
            pattern = "/".join(source.choices(parts, k=source.randrange(1, 5)))
            pattern = source.choice(["", "", "./", f"{base}/", f"{base}//"]) + pattern.lstrip("/")
            expected = {path for path in glob.iglob(pattern, recursive=True) if not Path(path).is_dir()}  # noqa: PTH207
            expected = {path for path in expected if not path.endswith("/")}  # "a.txt/**" is not a file
            if glob.has_magic(pattern):
                assert walk.files_that_match(pattern) == sorted(expected, key=os.fsencode), pattern
                num_found += len(expected)
    assert num_found > 300
