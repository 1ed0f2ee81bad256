"""gristmill compare, truncate, extend and count-words."""

import pytest

import gristmill as gm


@pytest.fixture(scope="module")
def small_path(tokenizer_path, tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.json"
    gm.Tokenizer.load(tokenizer_path).truncated(400).save(path)
    return path


@pytest.fixture(scope="module")
def words_path(stories_path, tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "words.gmw"
    gm.count_words(stories_path, progress=None).save(path)
    return path


def test_compare_gives_tokens_of_each_and_what_they_share(gristmill, tokenizer_path, small_path, stories_path):
    code, out, err = gristmill("compare", tokenizer_path, small_path, "--text", stories_path)
    assert (code, err) == (0, "")
    data = stories_path.read_bytes()
    for path in (tokenizer_path, small_path):
        num_tokens = len(gm.Tokenizer.load(path).encode(data))
        row = next(line for line in out.splitlines() if line.split()[:1] == [str(path)])
        assert f"{num_tokens:,}" in row and f"{len(data) / num_tokens:.3f}" in row
    shared = next(line for line in out.splitlines() if f"{tokenizer_path}, {small_path}" in line)
    assert shared.split()[2:6] == ["400", "600", "0", "40.0"]


def test_compare_shows_the_first_places_where_they_differ(gristmill, tmp_path):
    gm.Tokenizer([(b"a", b"b"), (b"c", b"d")]).save(tmp_path / "one.json")
    gm.Tokenizer([(b"b", b"c"), (b"c", b"d")]).save(tmp_path / "two.json")
    (tmp_path / "text.txt").write_text("xx abcd cd abx", encoding="utf-8")
    code, out, _ = gristmill("compare", tmp_path / "one.json", tmp_path / "two.json", "--text", tmp_path / "text.txt")
    assert code == 0
    shown = [" ".join(line.split()) for line in out.partition("Different splits")[2].splitlines()]
    assert shown[0] == ": 2, covering 42.9 % of the bytes"
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert shown[1:] == ["byte 3", f"{one} [ab][cd]", f"{two} [a][bc][d]", "byte 11", f"{one} [ab]", f"{two} [a][b]"]


def test_compare_of_equals_says_so_and_an_empty_text_is_no_failure(gristmill, tokenizer_path, tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    for more in ([], ["--text", tmp_path / "empty.txt"]):
        code, out, err = gristmill("compare", tokenizer_path, tokenizer_path, *more)
        assert (code, err) == (0, "")
        assert "the same tokens" in out and "100.0 %" in out


def test_one_tokenizer_is_nothing_to_compare(gristmill, tokenizer_path):
    code, _, err = gristmill("compare", tokenizer_path)
    assert (code, err) == (2, "gristmill: error: compare needs at least two tokenizers. Pass their files or folders.\n")


def test_truncate_writes_what_python_gives(gristmill, tokenizer_path, tmp_path):
    code, out, err = gristmill("truncate", tokenizer_path, "--vocab-size", "0.5k", "-o", tmp_path / "t.json")
    assert (code, err) == (0, "")
    assert gm.Tokenizer.load(tmp_path / "t.json") == gm.Tokenizer.load(tokenizer_path).truncated(500)
    assert "<|endoftext|> 999 -> 499" in out
    code, _, err = gristmill("truncate", tokenizer_path, "--vocab-size", 500, "-o", tmp_path / "t.json")
    assert code == 1
    assert "Pass --overwrite" in err


def test_extend_gives_what_a_longer_run_gives_from_text_and_from_words(
    gristmill, tokenizer_path, small_path, stories_path, words_path, tmp_path
):
    for name, corpus in (("text", stories_path), ("words", words_path)):
        options = ["--vocab-size", "1k", "-o", tmp_path / name, "--progress", "none"]
        code, out, err = gristmill("extend", small_path, corpus, *options)
        assert (code, err) == (0, "")
        assert "400 -> 1,000" in out
        assert (tmp_path / name).read_bytes() == tokenizer_path.read_bytes()


@pytest.mark.parametrize(
    ("command", "size", "other"), [("truncate", "2k", "gristmill extend"), ("extend", "300", "gristmill truncate")]
)
def test_a_size_in_the_wrong_direction_names_the_other_command(
    gristmill, tokenizer_path, stories_path, tmp_path, command, size, other
):
    corpus = [stories_path] if command == "extend" else []
    code, _, err = gristmill(command, tokenizer_path, *corpus, "--vocab-size", size, "-o", tmp_path / "t.json")
    assert code == 2
    assert "--vocab-size" in err and other in err
    assert not (tmp_path / "t.json").exists()


def test_counted_words_train_the_same_tokenizer_as_their_corpus(gristmill, tokenizer_path, stories_path, tmp_path):
    words, out_path = tmp_path / "words.gmw", tmp_path / "t.json"
    code, out, err = gristmill("count-words", stories_path, "-o", words, "--progress", "none")
    assert (code, err) == (0, "")
    assert f"{stories_path.stat().st_size:,} bytes" in out
    assert gm.Words.load(words) == gm.count_words(stories_path, progress=None)
    options = ["--vocab-size", "1k", "-o", out_path, "--progress", "none"]
    code, out, err = gristmill("train-tokenizer", words, *options)
    assert (code, err) == (0, "")
    assert out_path.read_bytes() == tokenizer_path.read_bytes()
    assert f"{len(gm.Words.load(words)):,}" in out


def test_the_pattern_and_specials_of_counted_words_stay(gristmill, stories_path, tmp_path):
    words, out_path = tmp_path / "words.gmw", tmp_path / "t.json"
    counting = ["--pattern", "cl100k", "--progress", "none", "--special-tokens", "<s>"]
    assert gristmill("count-words", stories_path, "-o", words, *counting)[0] == 0
    options = ["--vocab-size", 300, "-o", out_path, "--progress", "none"]
    assert gristmill("train-tokenizer", words, *options)[0] == 0
    tokenizer = gm.Tokenizer.load(out_path)
    assert (tokenizer.pattern, list(tokenizer.special_tokens)) == ("cl100k", ["<s>"])
    code, _, err = gristmill("train-tokenizer", words, *options, "--overwrite", "--pattern", "gpt2")
    assert code != 0
    assert "cl100k" in err


def test_several_files_of_words_are_added_up(gristmill, words_path, tmp_path):
    code, _, _ = gristmill("count-words", words_path, words_path, "-o", tmp_path / "twice.gmw", "--progress", "none")
    assert code == 0
    words = gm.Words.load(words_path)
    assert gm.Words.load(tmp_path / "twice.gmw") == words + words


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["stories"], "holds word counts, but"),
        (["--text-field", "body"], "--text-field applies to text, but"),
    ],
)
def test_words_and_text_do_not_mix(gristmill, words_path, stories_path, tmp_path, more, message):
    more = [stories_path if word == "stories" else word for word in more]
    code, _, err = gristmill("train-tokenizer", words_path, *more, "--vocab-size", 300, "-o", tmp_path / "t.json")
    assert code == 2
    assert message in err


def test_words_are_saved_under_a_name_that_training_knows(gristmill, stories_path, tmp_path):
    code, _, err = gristmill("count-words", stories_path, "-o", tmp_path / "words.bin")
    assert code == 2
    assert "must end in .gmw, the suffix of word counts. Pass a name such as words.gmw." in err


def test_python_m_gristmill_is_the_command_line():
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-m", "gristmill", "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"gristmill {gm.__version__}\n")


def test_counting_words_and_training_on_them_warn_of_nothing(gristmill_process, stories_path, tmp_path):
    words, output = tmp_path / "w.gmw", tmp_path / "tok.json"
    for arguments in (
        ["count-words", stories_path, "-o", words],
        ["train-tokenizer", words, "--vocab-size", 300, "-o", output],
    ):
        process = gristmill_process(*arguments, "--progress", "none", PYTHONWARNINGS="always")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, b"")
        assert b"pieces)" in out


@pytest.fixture
def tiktoken_path(small_path, tmp_path):
    """A vocabulary file without pattern, special tokens and tie-break."""
    path = tmp_path / "small.tiktoken"
    with pytest.warns(gm.errors.FormatWarning):
        gm.Tokenizer.load(small_path).export(path, format="tiktoken")
    return path


def test_what_a_format_does_not_hold_is_passed_to_extend_and_truncate(
    gristmill, small_path, tiktoken_path, words_path, tmp_path
):
    tokenizer = gm.Tokenizer.load(small_path)
    missing = ["--pattern", tokenizer.pattern, "--special-tokens", "<|endoftext|>"]
    sized = [tiktoken_path, "--vocab-size", 300, "-o", tmp_path / "small.json"]
    code, _, err = gristmill("truncate", *sized)
    assert code == 1 and "--pattern" in err
    assert gristmill("truncate", *sized, *missing)[0] == 0
    assert gm.Tokenizer.load(tmp_path / "small.json").merges == tokenizer.truncated(300).merges
    extended = [tiktoken_path, words_path, "--vocab-size", 500, "-o", tmp_path / "large.json", "--progress", "none"]
    code, _, err = gristmill("extend", *extended, "--tie-break", "greatest-bytes", *missing)
    assert (code, err) == (0, "")
    expected = tokenizer.extended(gm.Words.load(words_path), vocab_size=500, progress=None)
    assert gm.Tokenizer.load(tmp_path / "large.json") == expected


def test_the_tie_break_that_extend_warns_of_can_be_passed(gristmill, small_path, words_path, tmp_path):
    gm.Tokenizer.load(small_path).export(tmp_path / "hf", format="huggingface")
    options = [tmp_path / "hf", words_path, "--vocab-size", 500, "--progress", "none", "-o"]
    code, _, err = gristmill("extend", *options, tmp_path / "a.json")
    assert code == 0 and "--tie-break huggingface" in err
    code, _, err = gristmill("extend", *options, tmp_path / "b.json", "--tie-break", "huggingface")
    assert (code, err) == (0, "")
    assert gm.Tokenizer.load(tmp_path / "b.json").tie_break == "huggingface"
    code, _, err = gristmill("extend", *options, tmp_path / "c.json", "--tie-break", "hugging")
    assert code == 2 and "Did you mean 'huggingface'?" in err


@pytest.mark.parametrize(
    ("command", "options"),
    [("truncate", ["--vocab-size", "300"]), ("export", ["-f", "minbpe"]), ("sample-corpus", ["--size", "10kB"])],
)
def test_a_dash_as_output_is_refused_and_no_file_of_that_name_is_written(
    gristmill, tokenizer_path, tmp_path, monkeypatch, command, options
):
    monkeypatch.chdir(tmp_path)
    inputs = [] if command == "sample-corpus" else [tokenizer_path]
    code, out, err = gristmill(command, *inputs, *options, "-o", "-")
    assert (code, out) == (2, "")
    assert err.startswith("gristmill: error: --output - (stdout) is not supported. Pass ")
    assert not list(tmp_path.iterdir())
