"""gristmill tokenize and decode: same ids as Python, exact round trip, colours only on request."""

import subprocess
import sys

import pytest

import gristmill as gm

TEXT = "Once upon a time, Zoë said: 世界!\n"


@pytest.fixture(scope="module")
def tokenizer(tokenizer_path):
    return gm.Tokenizer.load(tokenizer_path)


@pytest.fixture
def piped():
    """Run a command with these bytes on stdin: (exit code, stdout, stderr)."""

    def run(data, *arguments, **environment):
        command = [sys.executable, "-m", "gristmill", *map(str, arguments)]
        done = subprocess.run(command, input=data, capture_output=True, timeout=120, env=environment or None)
        return done.returncode, done.stdout, done.stderr

    return run


def test_ids_are_one_line_per_text(gristmill, tokenizer, tokenizer_path):
    code, out, err = gristmill("tokenize", "-t", tokenizer_path, TEXT, "", "the end")
    assert (code, err) == (0, "")
    assert [[int(id) for id in line.split()] for line in out.split("\n")] == [
        tokenizer.encode(TEXT),
        [],
        tokenizer.encode("the end"),
        [],
    ]


def test_tokens_are_separated_by_spaces_and_read_back(gristmill, tokenizer, tokenizer_path):
    _, out, _ = gristmill("tokenize", "-t", tokenizer_path, "the end\n", "--show", "tokens")
    assert len(out.split()) == len(tokenizer.encode("the end\n"))
    assert out.replace(" ", "") == "the␣end\\n\n"


def test_both_shows_each_id_below_its_token_and_fits(gristmill, tokenizer, tokenizer_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    _, out, _ = gristmill("tokenize", "-t", tokenizer_path, "Once upon a time there was a fox", "--show", "both")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 40
    ids = [int(id) for line in lines[1::2] for id in line.split()]
    assert ids == tokenizer.encode("Once upon a time there was a fox")
    for tokens, below in zip(lines[::2], lines[1::2], strict=True):
        for token, id in zip(tokens.split(), below.split(), strict=True):
            assert tokenizer.token_bytes(int(id)).decode().replace(" ", "␣") == token


def test_a_special_is_plain_text_unless_it_is_allowed(gristmill, tokenizer, tokenizer_path):
    end = tokenizer.special_tokens["<|endoftext|>"]
    _, plain, _ = gristmill("tokenize", "-t", tokenizer_path, "a<|endoftext|>")
    assert str(end) not in plain.split()
    for allowed in ("all", "<|endoftext|>"):
        _, out, _ = gristmill("tokenize", "-t", tokenizer_path, "a<|endoftext|>", "--allowed-special", allowed)
        assert out.split()[-1] == str(end)


def test_a_text_after_allowed_special_is_explained(gristmill, tokenizer_path):
    code, _, err = gristmill("tokenize", "-t", tokenizer_path, "--allowed-special", "<|endoftext|>", "Hello")
    assert code == 2
    assert "put it before --allowed-special" in err


@pytest.mark.parametrize("command", ["tokenize", "count", "encode"])
def test_what_is_no_special_token_is_blamed_and_not_the_word_all(gristmill, tokenizer_path, tmp_path, command):
    (tmp_path / "a.txt").write_text("the end")
    more = {"tokenize": [], "count": [tmp_path / "a.txt"], "encode": [tmp_path / "a.txt", "-o", tmp_path / "out"]}
    code, out, err = gristmill(command, *more[command], "-t", tokenizer_path, "--allowed-special", "all", "hello")
    assert (code, out) == (2, "")
    assert f"--allowed-special 'hello' is not a special token of {tokenizer_path}." in err
    assert "put it before --allowed-special" in err
    assert not (tmp_path / "out").exists()


def test_all_with_a_special_token_is_all(gristmill, tokenizer_path):
    texts = ("tokenize", "-t", tokenizer_path, "a<|endoftext|>", "--allowed-special", "all")
    assert gristmill(*texts, "<|endoftext|>") == gristmill(*texts)


def test_stdin_is_named_once(gristmill, tokenizer_path):
    code, out, err = gristmill("tokenize", "-t", tokenizer_path, "-", "-")
    assert (code, out) == (2, "")
    assert err == "gristmill: error: - is given twice, but stdin can be read only once. Pass it once.\n"


def test_a_text_that_looks_like_an_option_gets_a_hint(gristmill, tokenizer, tokenizer_path):
    code, _, err = gristmill("tokenize", "-t", tokenizer_path, "-x")
    assert code == 2
    assert err == "gristmill: error: 'tokenize' has no option '-x'. If it is a text, put -- before it: -- -x\n"
    ids = " ".join(map(str, tokenizer.encode("-x")))
    assert gristmill("tokenize", "-t", tokenizer_path, "--", "-x") == (0, f"{ids}\n", "")


def test_colours_come_when_asked_for_and_not_in_a_pipe(gristmill, tokenizer_path, monkeypatch):
    arguments = ["tokenize", "-t", tokenizer_path, "the end", "--show", "tokens"]
    assert "\033[" not in gristmill(*arguments)[1]
    assert "\033[" in gristmill(*arguments, "--color", "always")[1]
    assert "\033[" not in gristmill(*arguments[:-1], "ids", "--color", "always")[1]


def in_a_terminal(arguments, **environment):
    """Return the output of the command on a pseudo-terminal of 60 columns."""
    import os
    import pty

    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "60", "TERM": "xterm-256color", **environment}
    command = [sys.executable, "-m", "gristmill", *map(str, arguments)]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    written = b""
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:
            break
        if not data:
            break
        written += data
    os.close(master)
    return process.wait(timeout=60), written.decode()


def test_a_terminal_shows_tokens_in_colours_unless_no_color_is_set(tokenizer_path):
    arguments = ["tokenize", "-t", tokenizer_path, "the end"]
    code, shown = in_a_terminal(arguments, NO_COLOR="")
    assert code == 0
    assert "\033[" in shown and "end" in shown
    assert "\033[" not in in_a_terminal(arguments, NO_COLOR="1")[1]
    assert "\033[" not in in_a_terminal([*arguments, "--color", "never"])[1]


def test_a_terminal_is_not_waited_for(tokenizer_path):
    for command in ("tokenize", "decode", "count"):
        code, shown = in_a_terminal([command, "-t", tokenizer_path])
        assert code == 2
        assert "Pass" in shown


@pytest.mark.parametrize("data", [b"", b"\n", TEXT.encode(), bytes(range(256)) * 300, b"a" * 200_000, b"\x00\r\n\xff"])
def test_tokenize_piped_into_decode_gives_the_same_bytes(piped, tokenizer_path, data):
    code, ids, err = piped(data, "tokenize", "-t", tokenizer_path)
    assert (code, err) == (0, b"")
    assert piped(ids, "decode", "-t", tokenizer_path) == (0, data, b"")


def test_a_file_and_a_dash_are_read(piped, gristmill, tokenizer, tokenizer_path, stories_path):
    data = stories_path.read_bytes()
    expected = " ".join(map(str, tokenizer.encode(data))) + "\n"
    assert gristmill("tokenize", "-t", tokenizer_path, "--file", stories_path) == (0, expected, "")
    assert piped(data, "tokenize", "-t", tokenizer_path, "-") == (0, expected.encode(), b"")


@pytest.mark.parametrize("ids", [["72", "101"], ["72 101"], ["72,101"], ["[72, 101]"], ["(72,", "101)"], ["72\n\t101"]])
def test_ids_may_be_written_in_many_ways(gristmill, tokenizer_path, ids):
    assert gristmill("decode", "-t", tokenizer_path, *ids) == (0, "He", "")


def test_an_id_split_between_two_reads_of_stdin_is_one_id(piped, tokenizer_path):
    ids = b"104 " * 40_000 + b"105"  # longer than the buffer of a pipe
    assert piped(ids, "decode", "-t", tokenizer_path) == (0, b"h" * 40_000 + b"i", b"")


@pytest.mark.parametrize(
    ("ids", "code", "message"),
    [
        (["72", "x"], 2, "'x' is not an id. Pass whole numbers, separated by spaces or commas."),
        (["1.5"], 2, "'1.5' is not an id."),
        (["9" * 30], 2, "9 is too large for an id. The largest possible id is 16777215."),
        (["1000"], 1, "no token has id 1000: the ids of this tokenizer are 0 to 999."),
    ],
)
def test_what_is_no_id_is_named(gristmill, tokenizer_path, ids, code, message):
    got, _, err = gristmill("decode", "-t", tokenizer_path, *ids)
    assert got == code
    assert message in err


def test_special_tokens_can_be_left_out(gristmill, tokenizer_path):
    assert gristmill("decode", "-t", tokenizer_path, "72 999")[1] == "H<|endoftext|>"
    assert gristmill("decode", "-t", tokenizer_path, "72 999", "--skip-special")[1] == "H"


@pytest.mark.parametrize("command", ["tokenize", "decode", "count"])
def test_a_closed_stdin_is_a_usage_error(tokenizer_path, command):
    code = f'"{sys.executable}" -m gristmill {command} -t "{tokenizer_path}" <&-'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("gristmill: error: no") and done.stderr.count("\n") == 1


def test_texts_and_a_file_together_are_a_usage_error(gristmill, tokenizer_path):
    code, _, err = gristmill("tokenize", "-t", tokenizer_path, "a", "--file", tokenizer_path)
    assert (code, err) == (2, "gristmill: error: texts and --file exclude each other. Pass one of them.\n")


def test_a_reader_that_goes_away_causes_no_traceback(tokenizer_path, stories_path):
    code = f'"{sys.executable}" -m gristmill tokenize -t "{tokenizer_path}" --file "{stories_path}" | head -c 5'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60)
    assert (len(done.stdout), done.stderr) == (5, "")
