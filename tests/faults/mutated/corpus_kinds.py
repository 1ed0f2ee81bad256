"""Kinds: files of a corpus in every format and compression, conversations, chat templates, prompts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

import gristmill as gm
from corpus.corpus_files import documents_of, jsonl, table, write_documents
from faults.mutated.kind import PARQUET_GROWTH, Kind
from faults.mutated.tokenizer_kinds import END, TEXT
from gristmill.corpus.packages import load_zstd

DOCUMENTS = [b"Once upon a time", b"", 'Zoë\'s 東京   \r\n😀\t\0 "quoted" \\ back'.encode(), b"the end " * 9]


def _path(folder: Path) -> Path:
    return next(path for path in folder.iterdir())


# Readers


def read(folder: Path) -> None:
    documents_of(_path(folder))


def read_column(folder: Path) -> None:
    documents_of(_path(folder), text_field="id")


def read_rest(folder: Path) -> None:
    """Skip what cannot be read, as with on_error="skip"."""
    documents_of(_path(folder), on_error="skip")


def count(folder: Path) -> None:
    gm.count_words(_path(folder), num_threads=1, progress=None)


def first_bytes(folder: Path) -> None:
    """What `gristmill compare` and the reports read of a text."""
    from gristmill.analysis.texts import first_bytes

    first_bytes(_path(folder), 100)


def converse(folder: Path) -> None:
    from gristmill.lm.data.conversation_files import read_conversations

    list(read_conversations([_path(folder)]))


_TOKENIZERS: list[gm.Tokenizer] = []
CHAT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "low?"}]
CHAT += [{"role": "assistant", "content": "lower"}]


def render(folder: Path) -> None:
    """Compile the template, and write a conversation with it."""
    from gristmill.lm.data.chat_template import ChatTemplate

    if not _TOKENIZERS:
        specials = [END, "<|im_start|>", "<|im_end|>"]
        _TOKENIZERS.append(gm.train_tokenizer([TEXT], vocab_size=280, special_tokens=specials, progress=None))
    path = _path(folder)
    template = ChatTemplate.load(path if path.suffix == ".jinja" else folder, _TOKENIZERS[0])
    template.render(CHAT, add_generation_prompt=True)
    template.encode([CHAT], num_threads=1)
    template.prompt_ids(CHAT[:2])


def prompts(folder: Path) -> None:
    from gristmill.cli.generate import _prompts
    from gristmill.cli.options import UsageError

    try:
        _prompts((), _path(folder))
    except UsageError:
        raise gm.OptionError("usage") from None


# Valid files


def _new(root: Path, name: str) -> Path:
    folder = root / name.replace(".", "-")
    folder.mkdir()
    return folder / name


def _make(root: Path, *names: str) -> None:
    for name in names:
        write_documents(_new(root, name), DOCUMENTS)


def make_text(root: Path) -> None:
    _make(root, "a.txt")
    _new(root, "b.txt").write_bytes(bytes(range(256)) + b"\n\n" + END.encode() * 2 + TEXT.encode())


def make_json_lines(root: Path) -> None:
    _make(root, "a.jsonl", "a.ndjson", "crlf.jsonl")


def make_gzip(root: Path) -> None:
    _make(root, "a.txt.gz", "a.jsonl.gz")
    _new(root, "long.txt.gz").write_bytes(gzip.compress(b"low lower " * 3000))


def make_zstd(root: Path) -> None:
    _make(root, "a.txt.zst", "a.jsonl.zst")
    _new(root, "long.txt.zst").write_bytes(load_zstd().compress(b"low lower " * 3000))


def make_parquet(root: Path) -> None:
    _make(root, "a.parquet")
    for name, options in {
        "pages.parquet": {"row_group_size": 2, "data_page_version": "2.0", "compression": "zstd"},
        "plain.parquet": {"use_dictionary": False, "compression": "none", "write_statistics": False},
        "gzip.parquet": {"compression": "gzip", "write_page_checksum": True},
    }.items():
        pa.parquet.write_table(table([*DOCUMENTS, None], pa.large_string()), _new(root, name), **options)


def make_arrow(root: Path) -> None:
    _make(root, "a.arrow", "a.feather", "stream.arrow", "stream.arrows")


def make_conversations(root: Path) -> None:
    rows = [{"messages": CHAT}, {"prompt": "low?", "response": "lower", "id": 1}]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    _new(root, "a.jsonl").write_bytes(data)
    _new(root, "a.jsonl.gz").write_bytes(gzip.compress(data))


def make_templates(root: Path) -> None:
    from gristmill.lm.data.chat_jinja import TEMPLATES

    for name, source in TEMPLATES.items():
        _new(root, f"{name}.jinja").write_text(source)
    config = {"chat_template": TEMPLATES["chatml"], "eos_token": {"content": "<|im_end|>"}, "bos_token": END}
    _new(root, "tokenizer_config.json").write_text(json.dumps(config))


def make_prompts(root: Path) -> None:
    _new(root, "a.jsonl").write_bytes(b"".join(json.dumps({"prompt": "low"}).encode() + b"\n" for _ in range(3)))
    _new(root, "a.txt").write_bytes(b"low\r\nlower\n\n" + jsonl(DOCUMENTS))


FILES = [read, read, read_rest, count]

KINDS = [
    Kind("text", make_text, [read, count, first_bytes]),
    Kind("json-lines", make_json_lines, [*FILES]),
    Kind("gzip", make_gzip, [*FILES, first_bytes]),
    Kind("zstd", make_zstd, [*FILES, first_bytes]),
    Kind("parquet", make_parquet, [read, read, read_rest, count], max_growth=PARQUET_GROWTH),
    Kind("arrow", make_arrow, [read, read, read_rest, count]),
    Kind("conversations", make_conversations, [converse]),
    # Jinja compiles a template to Python code, which it runs in its sandbox.
    Kind("chat-template", make_templates, [render], executes=frozenset({"compile", "exec", "code.__new__"})),
    Kind("prompts", make_prompts, [prompts]),
]
