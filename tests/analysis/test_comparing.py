"""Places that tokenizers split differently, against a plain search for common token boundaries."""

from itertools import accumulate, pairwise

import pytest

import gristmill as gm
from gristmill.analysis.comparing import find_differences
from gristmill.sample_corpus import stories

TEXT = next(iter(stories())).encode()
TRAINED = gm.train_tokenizer([TEXT.decode()], vocab_size=330, progress=None)
TOKENIZERS = [TRAINED, TRAINED.truncated(280), gm.Tokenizer([]), gm.Tokenizer(TRAINED.merges, pattern=r"\w+|\W+")]


@pytest.mark.parametrize("data", [b"", b"a", TEXT, "é\ud7ff".encode() + b"\xff\xfe", b"low" * 20])
@pytest.mark.parametrize("chosen", [(0, 1), (0, 0), (0, 3), (2, 0, 1, 3)])
def test_places_are_those_between_common_boundaries_where_tokens_differ(data, chosen):
    tokenizers = [TOKENIZERS[number] for number in chosen]
    split = [[tokenizer.token_bytes(id) for id in tokenizer.encode(data)] for tokenizer in tokenizers]
    ends = [list(accumulate(map(len, tokens))) for tokens in split]
    common = sorted(set.intersection(*map(set, ends)))
    expected = []
    for begin, end in pairwise([0, *common]):
        inside = [
            [token for token, stop in zip(tokens, stops, strict=True) if begin < stop <= end]
            for tokens, stops in zip(split, ends, strict=True)
        ]
        if any(tokens != inside[0] for tokens in inside):
            expected.append((begin, end, inside))
    ids = [tokenizer.encode_array(data) for tokenizer in tokenizers]
    found = find_differences(tokenizers, ids, data, num_places=7)
    assert [(place.begin, place.end, place.tokens) for place in found.places] == expected[:7]
    assert found.num_places == len(expected)
    assert found.num_bytes == sum(end - begin for begin, end, _ in expected)
