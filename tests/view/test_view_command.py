"""`gristmill view` as a process: its address, Ctrl-C, and paths that it cannot show."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request

import pytest

import gristmill as gm
from gristmill.view.server import listen


@pytest.fixture
def tok(tmp_path):
    gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None).save(tmp_path / "tok.json")
    return tmp_path / "tok.json"


def view(*arguments):
    command = [sys.executable, "-m", "gristmill", "view", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_prints_an_address_that_works_and_ctrl_c_ends_it(tok):
    process = view(tok)
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:") and len(address.rstrip("/").rpartition("/")[2]) >= 32
        with urllib.request.urlopen(address, timeout=20) as reply:
            assert reply.status == 200 and b"Gristmill" in reply.read()
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0 and "Stopped." in messages and "Traceback" not in messages


@pytest.mark.parametrize("name", ["missing", "corpus.txt", "empty"])
def test_a_path_that_it_cannot_show_says_what_it_could(tmp_path, name):
    (tmp_path / "corpus.txt").write_text("Once upon a time.")
    (tmp_path / "empty").mkdir()
    process = view(tmp_path / name)
    _, messages = process.communicate(timeout=60)
    assert process.returncode in (1, 2)
    assert name in messages and "a tokenizer" in messages and "a run folder" in messages and "Traceback" not in messages


def test_a_device_that_is_not_there_and_a_broken_plugin_are_reported_before_the_start(tok, tmp_path):
    (tmp_path / "plugin.py").write_text("1 / 0")
    for options, message in ((["--device", "mps"], "--device"), (["--plugin", tmp_path / "plugin.py"], "ZeroDivision")):
        process = view(tok, *options)
        _, messages = process.communicate(timeout=60)
        assert process.returncode == 2 and message in messages and "Traceback" not in messages


@pytest.mark.parametrize("host", ["no such host", "a" * 70, "203.0.113.7"])
def test_a_host_that_is_not_ours_is_named_in_the_error(host):
    with pytest.raises(gm.OptionError, match=r"host=.* is not an address of this machine"):
        listen(host, None)
