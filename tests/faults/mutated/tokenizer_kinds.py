"""Kinds: tokenizer files of every format, folders of tokenizers, tables of words."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import gristmill as gm
from faults.mutated.kind import Kind

END = "<|endoftext|>"
TEXT = "low lower lowest newer newest wider widest it's 2024 don't " * 20
SAMPLE = "lower than the newest 12345 don't\n\n é <|endoftext|>"


def small_tokenizer(**options) -> gm.Tokenizer:
    return gm.train_tokenizer(
        [TEXT], vocab_size=290, special_tokens=[END, "<|pad|>"], progress=None, **{"num_threads": 1, **options}
    )


def other_ids() -> gm.Tokenizer:
    """A tokenizer without Gristmill's layout of ids, as other tools make them."""
    ranks = {bytes([255 - i]): i for i in range(256)} | {b"lo": 256, b"low": 257, b"er": 258, b"xyz": 300}
    return gm.Tokenizer.from_parts(_parts(ranks))


def _parts(ranks):
    from gristmill.pretokenize.patterns import resolve_pattern
    from gristmill.tokenizer.parts import TokenizerParts
    from gristmill.tokenizer.vocabulary import Vocabulary

    vocabulary = Vocabulary.from_ranks(ranks, {END: 1000})
    return TokenizerParts(vocabulary, resolve_pattern("cl100k"), "greatest-bytes", states_tie_break=False)


# Readers


def load(folder: Path) -> None:
    """Load the tokenizer, and look at all of it."""
    name = next(
        name
        for name in ("tokenizer.json", "vocab.json", "t.tiktoken", "t.tiktoken.gz", "t.model")
        if (folder / name).exists()
    )
    options = {"pattern": "gpt2"} if name.startswith(("vocab", "t.tik")) else {}
    use(gm.Tokenizer.load(folder / name, **options))


def load_folder(folder: Path) -> None:
    options = {} if (folder / "tokenizer.json").exists() or (folder / "t.model").exists() else {"pattern": "gpt2"}
    use(gm.Tokenizer.from_pretrained(folder, **options))


def find(folder: Path) -> None:
    """What `gristmill view` does with a folder."""
    from gristmill.report.kinds import kind_of
    from gristmill.view.artefacts import find_artefacts

    kind_of(folder)
    for found in find_artefacts([folder], pattern="gpt2").tokenizers:
        use(found.tokenizer)


def use(tokenizer: gm.Tokenizer) -> None:
    """Decode each id, and encode a text if that needs no worker process."""
    ids = list(tokenizer.vocab)
    assert tokenizer.decode_bytes(ids) == b"".join(tokenizer.vocab.values())
    repr(tokenizer), tokenizer.fingerprint, tokenizer.merges
    if tokenizer.pattern in gm.pattern_names():
        ids = tokenizer.encode(SAMPLE, disallowed_special=())
        assert tokenizer.decode(ids) == SAMPLE


def inspect(folder: Path) -> None:
    """What `gristmill inspect` prints, without the text that it encodes."""
    from gristmill.cli import inspect as command

    name = next(name for name in ("tokenizer.json", "t.model") if (folder / name).exists())
    tokenizer = gm.Tokenizer.load(folder / name)
    made = command.Command(path=folder / name)
    made._sizes(tokenizer), command._lengths(tokenizer), command._longest(tokenizer), command._merges(tokenizer)


def convert(folder: Path) -> None:
    """Load the tokenizer, write it in another format, and load that."""
    name = next(name for name in ("tokenizer.json", "t.model") if (folder / name).exists())
    tokenizer = gm.Tokenizer.load(folder / name)
    assert gm.Tokenizer.load(tokenizer.export(folder / "other.json", format="huggingface")[0]).vocab == tokenizer.vocab
    (folder / "other.json").unlink()


# Seals

_CHECKSUM = re.compile(rb',\s*"sha256": "[0-9a-f]{64}"')


def seal_gristmill(folder: Path) -> None:
    """Make the checksum of a tokenizer file match."""
    path = folder / "tokenizer.json"
    data = path.read_bytes()
    end = data.rfind(b',\n"sha256"')
    if end > 0:
        path.write_bytes(data[:end] + b',\n"sha256": "%s"\n}\n' % hashlib.sha256(data[:end]).hexdigest().encode())
    else:  # in another layout the checksum is removed, as by a user who edits the file
        path.write_bytes(_CHECKSUM.sub(b"", data))


def seal_words(folder: Path) -> None:
    path = folder / "words.gmw"
    data = path.read_bytes()
    path.write_bytes(data[:-32] + hashlib.sha256(data[:-32]).digest())


# Valid files


def _folder(root: Path, name: str) -> Path:
    (root / name).mkdir()
    return root / name


def make_gristmill(root: Path) -> None:
    small_tokenizer().save(_folder(root, "plain") / "tokenizer.json")
    other_ids().save(_folder(root, "ids") / "tokenizer.json")
    small_tokenizer(pattern=r"\w+|\s+").save(_folder(root, "regex") / "tokenizer.json")


def make_huggingface(root: Path) -> None:
    small_tokenizer().export(_folder(root, "plain") / "tokenizer.json", format="huggingface")
    small_tokenizer(pattern=r"\w+|\s+").export(_folder(root, "regex") / "tokenizer.json", format="huggingface")
    other_ids().export(_folder(root, "ids") / "tokenizer.json", format="huggingface", legacy_merges=True)
    path = _folder(root, "steps") / "tokenizer.json"  # as other programs write them
    content = json.loads((root / "plain/tokenizer.json").read_bytes())
    steps = [
        {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated", "invert": False},
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ]
    content |= {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "normalizer": None}
    content["post_processor"] = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": False,
        "use_regex": True,
    }
    path.write_text(json.dumps(content))


def make_gpt2(root: Path) -> None:
    small_tokenizer().export(_folder(root, "plain"), format="gpt2")


def make_tiktoken(root: Path) -> None:
    for name, tokenizer in (("plain", small_tokenizer()), ("ids", other_ids())):
        tokenizer.export(_folder(root, name) / "t.tiktoken", format="tiktoken")
    data = (root / "plain/t.tiktoken").read_bytes()
    (_folder(root, "gzip") / "t.tiktoken.gz").write_bytes(gzip.compress(data, mtime=0))


def make_minbpe(root: Path) -> None:
    small_tokenizer().export(_folder(root, "plain") / "t.model", format="minbpe")
    (root / "plain/t.vocab").unlink()
    small_tokenizer(pattern=r"\w+|\s+").export(_folder(root, "regex") / "t.model", format="minbpe")
    (root / "regex/t.vocab").unlink()


def make_pretrained(root: Path) -> None:
    small_tokenizer().export(
        _folder(root, "new"),
        format="huggingface",
        bos_token=END,
        eos_token=END,
        pad_token="<|pad|>",
        model_max_length=99,
    )
    old = _folder(root, "old")
    small_tokenizer().export(old, format="gpt2")
    config = {
        "tokenizer_class": "GPT2Tokenizer",
        "bos_token": END,
        "eos_token": {"content": END},
        "add_prefix_space": False,
    }
    (old / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": "{{ messages }}"}))


def make_words(root: Path) -> None:
    words = gm.count_words([TEXT[:120]], special_tokens=[END], progress=None)
    words.save(_folder(root, "plain") / "words.gmw")
    gm.count_words([TEXT[:60]], pattern=r"\w+|\s+", progress=None).save(_folder(root, "regex") / "words.gmw")


def load_words(folder: Path) -> None:
    words = gm.Words.load(folder / "words.gmw")
    assert sum(count for _, count in words.most_common(len(words))) == words.num_pieces
    repr(words), words.special_tokens, words.pattern


def train(folder: Path) -> None:
    """A table of words is an input of training."""
    words = gm.Words.load(folder / "words.gmw")
    gm.train_tokenizer(words, vocab_size=262 + len(words.special_tokens), progress=None, num_threads=1)


KINDS = [
    Kind("tokenizer-gristmill", make_gristmill, [load, load, load_folder, inspect, convert], seal_gristmill),
    Kind("tokenizer-huggingface", make_huggingface, [load, load, load_folder, inspect, convert]),
    Kind("tokenizer-gpt2", make_gpt2, [load, load_folder, find]),
    Kind("tokenizer-tiktoken", make_tiktoken, [load, load_folder]),
    Kind("tokenizer-minbpe", make_minbpe, [load, load_folder, inspect]),
    Kind("tokenizer-folder", make_pretrained, [load_folder, load_folder, find]),
    Kind("words", make_words, [load_words, train], seal_words),
]
