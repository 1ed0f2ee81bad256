"""Folders of shards, built from a layout and a manifest, for the tests of the readers."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import xxhash

import gristmill as gm
from gristmill.shards.inputs import sample_input
from gristmill.shards.layouts import LAYOUTS, Part
from gristmill.shards.manifest import EndOfText, InputEntry, Manifest, ShardEntry, Split

END_OF_TEXT = "<|endoftext|>"


def train(vocab_size=275, text="low lower lowest newer newest wider widest " * 50):
    return gm.train_tokenizer([text], vocab_size=vocab_size, special_tokens=[END_OF_TEXT], progress=None)


def build_folder(
    folder,
    texts,
    *,
    layout="gristmill",
    shard_tokens=None,
    tokenizer=None,
    val_texts=None,
    end_of_text=True,
    position=None,
    inputs=(),
):
    """Make a finished folder of `texts`; return its manifest too."""
    tokenizer = tokenizer or train()
    id = tokenizer.special_tokens[END_OF_TEXT]
    side = position or LAYOUTS[layout].end_of_text
    mark = EndOfText(id=id, token=END_OF_TEXT, position=side) if end_of_text else None
    folder = Path(folder)
    folder.mkdir()
    splits = {}
    for split, documents in {"train": texts, "val": val_texts}.items():
        if documents is not None:
            rows = [with_end(tokenizer.encode(text, disallowed_special=()), mark) for text in documents]
            shards = write_shards(folder, split, rows, tokenizer.vocab_size, layout, shard_tokens)
            splits[split] = Split(
                documents=len(rows),
                tokens=sum(map(len, rows)),
                source_bytes=sum(len(text.encode()) for text in documents),
                shards=shards,
            )
    manifest = Manifest(
        layout=layout,
        dtype=LAYOUTS[layout].dtype(tokenizer.vocab_size).name,
        vocab_size=tokenizer.vocab_size,
        tokenizer_fingerprint=tokenizer.fingerprint,
        end_of_text=mark,
        splits=splits,
        inputs=tuple(map(input_entry, inputs)),
        num_nulls=0,
        options={"shard_tokens": shard_tokens},
        command="gristmill encode",
    )
    tokenizer.save(folder / "tokenizer.json")
    for name in LAYOUTS[layout].extra_names:
        (folder / name).write_bytes(LAYOUTS[layout].extra_file(name, tokenizer.vocab, tokenizer.vocab_size))
    write_manifest(folder, manifest)
    return manifest


def write_manifest(folder, manifest):
    (Path(folder) / "manifest.json").write_bytes(manifest.to_json())


def change_shard(folder, number=0, *, split="train", **changes):
    """Rewrite the manifest with another entry for a shard and a matching checksum."""
    manifest = Manifest.read(folder)
    shards = list(manifest.splits[split].shards)
    shards[number] = dataclasses.replace(shards[number], **changes)
    entry = dataclasses.replace(manifest.splits[split], shards=tuple(shards))
    write_manifest(folder, dataclasses.replace(manifest, splits=manifest.splits | {split: entry}))


def rehash(folder, number=0, *, split="train"):
    """Make the manifest match the current files of a shard: a forgery that no checksum detects."""
    entry = Manifest.read(folder).splits[split].shards[number]
    data = (Path(folder) / entry.file).read_bytes()
    changes = {"bytes": len(data), "xxh64": xxhash.xxh64_hexdigest(data)}
    if entry.index is not None:
        changes["index_xxh64"] = xxhash.xxh64_hexdigest((Path(folder) / entry.index).read_bytes())
    change_shard(folder, number, split=split, **changes)


def with_end(ids, mark):
    return ids if mark is None else [*ids, mark.id] if mark.position == "after" else [mark.id, *ids]


def cut_into_shards(rows, shard_tokens, splits_documents):
    """(tokens, document ends) of each shard."""
    shards = [([], [])]
    for row in rows:
        rest = list(row)
        while True:
            tokens, ends = shards[-1]
            if shard_tokens is not None and len(tokens) >= shard_tokens and (rest or not row):
                shards.append(([], []))
                continue
            room = len(rest) if shard_tokens is None or not splits_documents else shard_tokens - len(tokens)
            tokens += rest[:room]
            rest = rest[room:]
            if not rest:
                ends.append(len(tokens))
                break
    return shards


def write_shards(folder, split, rows, vocab_size, name, shard_tokens):
    layout = LAYOUTS[name]
    return tuple(
        write_shard(folder, split, number, tokens, ends, layout, layout.dtype(vocab_size))
        for number, (tokens, ends) in enumerate(cut_into_shards(rows, shard_tokens, layout.splits_documents))
    )


def write_shard(folder, split, number, tokens, ends, layout, dtype):
    folder = Path(folder)
    part = Part(
        tokens=folder / ".part.tokens",
        ends=folder / ".part.ends",
        num_tokens=len(tokens),
        num_documents=len(ends),
        dtype=dtype,
    )
    header = layout.header(len(tokens), dtype)
    assert len(header) == layout.header_bytes
    part.tokens.write_bytes(header + np.array(tokens, dtype).tobytes())
    part.ends.write_bytes(np.array(ends, "<i8").tobytes())
    data = published(layout.write_tokens, part) if layout.converts else part.tokens.read_bytes()
    file = layout.token_file(folder.name, split, number)
    index_file = layout.index_file(folder.name, split, number)
    index = None if index_file is None else published(layout.write_index, part)
    (folder / file).write_bytes(data)
    if index is not None:
        (folder / index_file).write_bytes(index)
    part.tokens.unlink()
    part.ends.unlink()
    return ShardEntry(
        file=file,
        tokens=len(tokens),
        documents=len(ends),
        bytes=len(data),
        xxh64=xxhash.xxh64_hexdigest(data),
        index=index_file,
        index_xxh64=None if index is None else xxhash.xxh64_hexdigest(index),
    )


def published(write, part):
    file = io.BytesIO()
    write(file, part)
    return file.getvalue()


def input_entry(path):
    path = Path(path)
    data = path.read_bytes()
    return InputEntry(
        path=str(path),
        format="text",
        compression="",
        bytes=len(data),
        modified_ns=path.stat().st_mtime_ns,
        samples=sample_input(lambda offset, size: data[offset : offset + size], len(data)),
        skipped=None,
    )
