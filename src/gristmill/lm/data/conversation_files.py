"""Read conversations from JSON lines, each as a list of messages. Errors name the file and the line.

A line has one of these forms:

    {"prompt": "What is the capital of France?", "response": "Paris."}
    {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]}

Other fields are ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gristmill.corpus import Input, Reading, find_files
from gristmill.corpus.streams import Stream, open_stream
from gristmill.errors import CorpusError
from gristmill.lm.data.chat_template import Message
from gristmill.small_files import count_items

__all__ = ["Conversation", "read_conversations"]

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 256 << 20
MAX_LINE_ITEMS = 4_000_000  # counting commas in texts; `[],` takes 3 bytes in a file, and 64 in memory
ROLES = ("system", "user", "assistant")
FORMS = '{"prompt": ..., "response": ...} or {"messages": [{"role": ..., "content": ...}, ...]}'


class Conversation(NamedTuple):
    """The messages of a line, and its file and line number for errors."""

    place: str
    messages: list[Message]


def read_conversations(data: Sequence[str | os.PathLike[str]]) -> Iterator[Conversation]:
    """Yield the conversations of files, folders and globs, in order; `CorpusError` names an invalid line."""
    found = find_files(data, Reading.checked({}))
    for input in found.inputs:
        if input.format != "jsonl":
            raise CorpusError(
                f"{input.shown}: conversations=True reads JSON lines, but the file is {input.format}. Pass files that "
                f"end in .jsonl, .jsonl.gz or .jsonl.zst, with one conversation per line: {FORMS}."
            )
        yield from _of_file(input)


def _of_file(input: Input) -> Iterator[Conversation]:
    with open_stream(input) as stream:
        for number, line in enumerate(_lines(stream, input), start=1):
            if line.strip():
                place = f"{input.shown}:{number}"
                yield Conversation(place, _messages(line, place))


def _lines(stream: Stream, input: Input) -> Iterator[bytes]:
    buffer = bytearray(BLOCK_BYTES)
    # The beginning of a line is joined with its rest once, so the time for a line of many blocks is linear.
    begun: list[bytes] = []
    num_begun = 0
    while num_bytes := stream.read(memoryview(buffer)):
        first, *others = bytes(buffer[:num_bytes]).split(b"\n")
        begun.append(first)
        num_begun += len(first)
        if others:
            yield b"".join(begun)
            yield from others[:-1]
            begun, num_begun = others[-1:], len(others[-1])
        if num_begun > MAX_LINE_BYTES:
            raise CorpusError(
                f"{input.shown}: a line is longer than {MAX_LINE_BYTES:,} bytes. Check that the file holds one JSON "
                f"object per line."
            )
    if num_begun:
        yield b"".join(begun)


def _messages(line: bytes, place: str) -> list[Message]:
    if (num_items := count_items(line)) > MAX_LINE_ITEMS:
        raise CorpusError(
            f"{place}: the line has up to {num_items:,} values; at most {MAX_LINE_ITEMS:,} are allowed. Write {FORMS} "
            f"on each line."
        )
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{place}: not valid JSON: {error}. Write {FORMS} on each line.") from None
    if not isinstance(found, dict):
        raise CorpusError(f"{place}: the line is {_kind(found)}. Write {FORMS} on each line.")
    if "messages" in found:
        return _checked(found["messages"], place)
    if "prompt" in found and "response" in found:
        pair = [{"role": "user", "content": found["prompt"]}, {"role": "assistant", "content": found["response"]}]
        return _checked(pair, place, names=("prompt", "response"))
    fields = ", ".join(map(repr, found)) or "none"
    raise CorpusError(
        f"{place}: the line has neither 'messages' nor both 'prompt' and 'response' (fields: {fields:.200}). Write "
        f"{FORMS} on each line."
    )


def _checked(messages: Any, place: str, names: tuple[str, ...] = ()) -> list[Message]:
    if not isinstance(messages, list) or not messages:
        raise CorpusError(
            f"{place}: 'messages' is {_kind(messages)}. Write a list with at least one assistant message."
        )
    for number, message in enumerate(messages):
        where = repr(names[number]) if names else f"messages[{number}]"
        _check_message(message, f"{place}: {where}", is_pair=bool(names))
    if all(message["role"] != "assistant" for message in messages):
        raise CorpusError(f"{place}: no message has the role 'assistant'. Training needs at least one response.")
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _check_message(message: Any, where: str, *, is_pair: bool) -> None:
    if not isinstance(message, dict):
        raise CorpusError(f'{where} is {_kind(message)}. Write {{"role": ..., "content": ...}}.')
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise CorpusError(f"{where} has the role {role!r:.80}. Write one of {', '.join(map(repr, ROLES))}.")
    if message.get("tool_calls"):
        raise CorpusError(f"{where} has tool calls, which are not supported. Remove these conversations.")
    if not isinstance(content, str):
        what = "is" if is_pair else "has a content that is"
        raise CorpusError(f"{where} {what} {_kind(content)}. Write a string.")
    if not _is_unicode(content):
        raise CorpusError(
            f"{where} has an unpaired surrogate (\\ud800 to \\udfff), which is not valid text. Correct it."
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: Any) -> str:
    """Return the JSON type of a value for messages.

    >>> _kind(None), _kind([]), _kind({})
    ('null', 'an empty list', 'an object')
    """
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string"}
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "an object" if isinstance(value, dict) else names.get(type(value), type(value).__name__)
