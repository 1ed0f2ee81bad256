"""The sample corpus: the same stories everywhere, and properties of real stories."""

import hashlib
import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from random import Random

import pytest

from gristmill.errors import OptionError
from gristmill.sample_corpus import SEPARATOR, _plots, cast, grammar, stories, write_sample_corpus
from gristmill.sample_corpus.lexicon import NAMES, WORDS

MEGABYTE_SHA256 = "3a3b72832fa5d0c2e76125d2b896f972a5fe44f1b435f272f4469a013884ce8d"
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def sample():
    """Two megabytes of stories."""
    return list(itertools.islice(stories(0), 1_800))


@pytest.fixture(scope="module")
def words(sample):
    plain = (re.sub(r"['’]s\b", "", story.lower()) for story in sample)
    return Counter(word for story in plain for word in WORD.findall(story))


def write(path, size, seed=0):
    written = write_sample_corpus(path, size, seed)
    data = path.read_bytes()
    assert written == len(data) <= size
    return data


def test_a_megabyte_has_the_same_bytes_on_every_platform_and_python_version(tmp_path):
    assert hashlib.sha256(write(tmp_path / "a.txt", 1_000_000)).hexdigest() == MEGABYTE_SHA256


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_hash_seed_and_locale_do_not_change_a_byte(tmp_path, hash_seed):
    code = f"from gristmill.sample_corpus import write_sample_corpus as w; w({str(tmp_path / 'b.txt')!r}, 1_000_000, 0)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "LC_ALL": "C", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert hashlib.sha256((tmp_path / "b.txt").read_bytes()).hexdigest() == MEGABYTE_SHA256


def test_a_larger_size_starts_with_the_same_stories(tmp_path):
    small = write(tmp_path / "a.txt", 50_000)
    large = write(tmp_path / "b.txt", 200_000)
    assert len(large) > len(small)
    assert large.startswith(small)


def test_another_seed_tells_other_stories():
    firsts = [next(stories(seed)) for seed in range(20)]
    assert len(set(firsts)) == 20


def test_every_story_is_whole_and_ends_with_the_separator_line(tmp_path):
    text = write(tmp_path / "a.txt", 100_000).decode()
    parts = text.split(f"\n{SEPARATOR}\n")
    assert parts.pop() == ""
    assert parts == list(itertools.islice(stories(0), len(parts)))


def test_file_is_as_full_as_whole_stories_allow(tmp_path):
    data = write(tmp_path / "a.txt", 100_000)
    num_written = data.count(SEPARATOR.encode())
    following = next(itertools.islice(stories(0), num_written, None))
    assert len(data) + len(f"{following}\n{SEPARATOR}\n".encode()) > 100_000


@pytest.mark.parametrize("size", [0, 1, 500])
def test_a_size_below_one_story_is_an_error_and_leaves_the_old_file(tmp_path, size):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(OptionError, match=rf"size={size} is too small.*Pass size >= \d+"):
        write_sample_corpus(path, size)
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["a.txt"]


def test_a_negative_seed_is_refused_because_it_would_repeat_a_positive_one():
    with pytest.raises(OptionError, match="seed must be >= 0, got -1"):
        next(stories(-1))


def test_a_few_thousand_word_types(words):
    assert 3_000 <= len(words) <= 6_000


def test_frequencies_fall_as_in_real_text(words):
    counts = [count for _, count in words.most_common()]
    assert words.most_common(1)[0][0] == "the"
    # Zipf's law: at ten times the rank, about a tenth of the count; up to four times more or less here.
    for rank in (10, 100):
        assert 1 / 40 < counts[10 * rank] / counts[rank] < 4 / 10
    assert counts[0] > 10 * counts[100]


def test_stories_are_neither_stubs_nor_novels(sample):
    lengths = [len(story.split()) for story in sample]
    assert min(lengths) >= 80
    assert max(lengths) <= 400


def test_no_two_stories_are_the_same(sample):
    assert len(set(sample)) == len(sample)


def test_text_is_not_all_ascii(sample):
    text = "".join(sample)
    for character in "ëéï“”’—…":
        assert character in text, character
    assert any(ord(character) > 0xFFFF for character in text), "no emoji"
    assert 0.9 < sum(character.isascii() for character in text) / len(text) < 1


def test_numbers_are_written_as_words_and_as_digits(sample):
    text = " ".join(sample)
    assert re.search(r"\b\d\d coins", text)
    assert re.search(r"\btwenty-\w+ coins", text)
    assert re.search(r"\bAt \d+:\d\d,", text)


def test_no_slot_choice_or_double_space_is_left_over(sample):
    wrong = re.compile(r"[{}\[\]@|]|%\(|  | \n|\n\n\n|\.\.|,,| [,.!?]|\?\.|!\.")
    assert [match[0] for story in sample if (match := wrong.search(story))] == []


def test_articles_fit_the_words_after_them(sample):
    text = "\n".join(sample)
    after_a = set(re.findall(r"\b[Aa] ([aeiouAEIOU]\w*)", text))
    after_an = set(re.findall(r"\b[Aa]n ([^\W\d_aeiouéAEIOUÉ]\w*)", text))
    assert {word for word in after_a if not word.lower().startswith(("uni", "use", "uku", "one"))} == set()
    assert {word for word in after_an if not word.startswith(("hour", "honest"))} == set()


def test_sentences_begin_with_a_capital(sample):
    wrong = re.compile(r"""(?:^|[.!?]["”]? |\n\n)["“‘']*([a-zà-ÿ]\S*)""")
    # After a quoted question or cry, the sentence continues: “Who is there?” asked Lily.
    inside = re.compile(r"""[!?]["”] [a-z]|[!?] (?:went|cried|there)""")
    for story in sample:
        for match in wrong.finditer(story):
            assert inside.search(match[0]) or match[0].startswith(('."', ".”")) or "!" in match[0], match[0]


def test_every_quote_that_opens_closes_and_a_story_has_one_kind_of_quotes(sample):
    for story in sample:
        assert story.count("“") == story.count("”")
        assert story.count('"') % 2 == 0
        assert not ("“" in story and '"' in story)
        assert not ("’" in story and '"' in story)


def test_sums_come_out_right(sample):
    value = {cast.number_word(n): n for n in range(100)} | {str(n): n for n in range(100)}
    number = r"([\w-]+)"
    checks = 0
    for story in sample:
        for total, part, rest in re.findall(rf"{number} minus {number} is {number}[,.]", story):
            if part != "one" or "eaten" not in story:
                assert value[total.lower()] - value[part] == value[rest]
                checks += 1
        for rows, columns, product in re.findall(rf"{number} times {number} makes {number}\.", story):
            assert value[rows.lower()] * value[columns] == value[product]
            checks += 1
        for first, second, third, total in re.findall(
            rf"had {number} and {number} and {number}\. That made {number}!", story
        ):
            assert value[first] + value[second] + value[third] == value[total]
            checks += 1
    assert checks > 50


def test_a_hero_keeps_one_set_of_pronouns():
    plots = [plot for plot in _plots() if "child" in plot.beats]
    random = iter(x / 997 for x in itertools.cycle(range(997))).__next__
    for plot in plots:
        people, hero = cast.new_cast(plot, random)
        if hero == "child":
            assert (people["he"], people["kind"]) in {("she", "girl"), ("he", "boy")}
            assert people["himself"] == {"she": "herself", "he": "himself"}[people["he"]]


def test_people_of_one_story_have_different_names():
    random = iter(x / 991 for x in itertools.cycle(range(991))).__next__
    for plot in _plots() * 20:
        people, _ = cast.new_cast(plot, random)
        names = [people["hero"], people["friend"], people["third"], people["elder"].split(" ", 1)[1]]
        assert len(set(names)) == 4
        assert len({people["place"], people["place2"], people["place3"]}) == 3


@pytest.mark.parametrize("plot", _plots(), ids=lambda plot: plot.name)
def test_every_slot_of_every_variant_can_be_filled(plot):
    for hero, beats in plot.beats.items():
        one_kind = grammar.Plot(plot.name, plot.options, {hero: beats})
        known, _ = cast.new_cast(one_kind, Random(0).random)
        for beat in beats:
            assert beat.variants
            for variant in beat.variants:
                slots = {slot for template in variant for slot in re.findall(r"%\(([^)]*)\)s", template)}
                assert slots <= known.keys() | grammar.FILLERS.keys()


def test_no_word_occurs_twice_in_a_list():
    for category, text in (NAMES | WORDS).items():
        twice = [word for word, count in Counter(grammar.split_list(text)).items() if count > 1]
        assert not twice, (category, twice)


def test_importing_the_package_compiles_no_plot():
    code = "import sys, gristmill.sample_corpus; print('gristmill.sample_corpus.lexicon' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
