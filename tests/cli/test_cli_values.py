"""Values of options: numbers with units, and misspelled names."""

import pytest

from gristmill.cli.values import UsageError, parse_count


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("300", 300), ("50_000", 50_000), ("50,000", 50_000), ("32k", 32_000), ("32K", 32_000), ("1.5M", 1_500_000)],
        *[("64Ki", 65_536), ("1Mi", 1 << 20), ("1e6", 1_000_000), ("2.5e3", 2500), ("0.5k", 500), ("-3", -3)],
        *[("100G", 10**11), ("9007199254740993", 2**53 + 1), (" 7 ", 7)],
    ],
)
def test_k_is_a_thousand_and_ki_is_1024(text, number):
    assert parse_count(text, "--vocab-size") == number


@pytest.mark.parametrize("text", ["", "k", "32kB", "32 apples", "1.5", "0.0001k", "0x10", "1,5k", "1__0", "٣", "nan"])
def test_what_is_no_whole_number_is_refused(text):
    with pytest.raises(
        UsageError, match=r"^--vocab-size .* is not a whole number\. Pass digits, or a form such as 32k"
    ):
        parse_count(text, "--vocab-size")


def test_a_vocabulary_of_0_3k_is_one_of_300(gristmill, stories_path, tmp_path):
    for name, size in (("a", "300"), ("b", "0.3k")):
        options = ["--vocab-size", size, "-o", tmp_path / name, "--min-frequency", "0.002k", "--max-token-bytes", "1kB"]
        assert gristmill("train-tokenizer", stories_path, *options, "--progress", "none")[0] == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "t", "-o", "x", "-f", "hf"], "--format 'hf' is not valid. Did you mean 'huggingface'? Pass one of"),
        (["encode", "c", "-t", "t", "-o", "x", "-f", "nanogtp"], "'nanogtp' is not valid. Did you mean 'nanogpt'?"),
        (["encode", "c", "-t", "t", "-o", "x", "--dtype", "int16"], "--dtype 'int16' is not valid. Did you mean"),
        (
            ["encode", "c", "-t", "t", "-o", "x", "--shard-tokens", "lots"],
            "--shard-tokens 'lots' is not a whole number.",
        ),
        (["train-tokenizer", "c", "-o", "x", "--vocab-size", "32kB"], "--vocab-size '32kB' is not a whole number."),
        (["train-tokenizer", "c", "-o", "x", "--vocab-size", "3k", "--progress", "no"], "Did you mean 'none'?"),
        (["sample-corpus", "-o", "x", "--size", "big"], "--size 'big' is not a size."),
        (["train-model", "s", "-o", "x", "--max-steps", "many"], "'many' is not a whole number. Pass digits"),
        (["train-model", "s", "-o", "x", "--model", "gtp"], "--model gtp is not valid. Did you mean 'gpt'?"),
        (["generate", "run", "--device", "cudda"], "'cudda' is not valid. Did you mean 'cuda'?"),
        (["inspect", "s", "--seed", "x"], "'x' is not a whole number."),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_option(gristmill, arguments, message):
    code, out, err = gristmill(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("gristmill: error: ") and err.count("\n") == 1
    assert message in err
