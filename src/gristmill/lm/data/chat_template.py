r"""ChatTemplate: converts a conversation to tokens with a Jinja template in the Hugging Face format.

A template renders `messages`, a list of {"role": ..., "content": ...}, to text. Special tokens in the text of the
template become their ids. The contents of messages are data: a special token spelled out there stays plain text.
To distinguish the two, a conversation is rendered twice: once with a mark instead of each content, which shows the
places of contents (the layout, the same for all conversations with the same roles), and once unchanged. Both must
agree, so the tokens are those of the text that transformers renders from the same template.

Tokens inside {% generation %} blocks are trained on. In a template without such blocks, these are the contents of
assistant messages, each with the special token that ends its turn.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import OptionError
from gristmill.lm.data.chat_jinja import CHATML, PLAIN, compiled, read_template, rendered
from gristmill.packages import load_package
from gristmill.shards.end_of_text import KNOWN
from gristmill.tokenizer.formats.tokenizer_config import chosen_roles

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "EncodedChat", "Message", "WrittenChat"]

# Marks in a layout. Unicode reserves these code points for internal use by programs.
CONTENT_BEGIN, CONTENT_END, TRAINED_BEGIN, TRAINED_END = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
_MARK = re.compile(f"{CONTENT_BEGIN}(\\d+){CONTENT_END}|({TRAINED_BEGIN})|({TRAINED_END})")
# Text in a template that looks like a special token.
_LIKE_A_SPECIAL = re.compile(r"<\|[^|<>\s]+\|>")
CHATML_TOKENS = ("<|im_start|>", "<|im_end|>")
# A template that exceeds these limits of output or loop iterations is assumed not to terminate.
FREE_CHARACTERS, TIMES_CONTENTS = 1_000_000, 64

Message: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class _Content:
    """The place of the content of a message in a layout."""

    index: int


@dataclass(frozen=True)
class _Border:
    """Start or end of a part that is trained on."""

    is_begin: bool


Part: TypeAlias = "str | _Content | _Border"


class EncodedChat(NamedTuple):
    """The ids of a conversation, and which of them are trained on."""

    ids: NDArray[Any]
    is_trained: NDArray[np.bool_]
    crosses: bool  # whether a token spans the start of a response


@dataclass
class WrittenChat:
    """A conversation as runs of plain text and ids of special tokens, with the byte ranges to train on."""

    runs: list[str | int] = field(default_factory=list)
    trained: list[tuple[int, int]] = field(default_factory=list)
    num_bytes: int = 0

    def add(self, piece: str, runs: Sequence[str | int]) -> None:
        """Append a piece of text, given with its runs. Adjacent runs of plain text are joined."""
        self.num_bytes += len(piece.encode("utf-8", "surrogatepass"))
        for run in runs:
            if isinstance(run, str) and self.runs and isinstance(self.runs[-1], str):
                self.runs[-1] += run
            elif run != "":
                self.runs.append(run)

    def add_border(self, border: _Border) -> None:
        """Start or end a range to train on here."""
        if border.is_begin:
            self.trained.append((self.num_bytes, self.num_bytes))
        else:
            self.trained[-1] = (self.trained[-1][0], self.num_bytes)


class ChatTemplate:
    r"""A chat template and the tokenizer that it is used with.

    >>> from gristmill import Tokenizer
    >>> template = ChatTemplate(PLAIN, Tokenizer([], special_tokens=["<|endoftext|>"]))
    >>> template.render([{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}])
    'User:\n2 + 2?\n\nAssistant:\n4<|endoftext|>\n'
    """

    def __init__(self, source: str, tokenizer: Tokenizer, *, name: str = "chat_template") -> None:
        """Compile the template `source`; `name` refers to it in messages."""
        self.source, self.name = source, name
        self._tokenizer = tokenizer
        self._specials = tokenizer.special_tokens
        self._plain = compiled(source, name)
        self._marked = compiled(source, name, around=(TRAINED_BEGIN, TRAINED_END))
        self._roles = _roles(self._specials)
        self._layout = cache(self._make_layout)
        self._check_tokens()

    @classmethod
    def load(cls, template: str | os.PathLike[str], tokenizer: Tokenizer) -> ChatTemplate:
        """Return the template with this name, or from this file or folder."""
        return cls(read_template(template), tokenizer, name=f"chat_template={os.fspath(template)!r}")

    def _check_tokens(self) -> None:
        if self.source == PLAIN and "eos_token" not in self._roles:
            raise OptionError(
                f"{self.name}: the plain template ends each response with an end-of-text token, but the tokenizer has "
                f"none of the usual ones ({', '.join(KNOWN)}). Pass a chat_template that ends responses with a special "
                f"token of this tokenizer."
            )
        missing = [token for token in CHATML_TOKENS if self.source == CHATML and token not in self._specials]
        if missing:
            raise OptionError(
                f"{self.name}: ChatML needs the special token {missing[0]!r}, which the tokenizer does not have. Pass "
                f"chat_template='plain', or a tokenizer with the special tokens {' and '.join(CHATML_TOKENS)}."
            )

    # Text

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
        """Return the conversation as text, identical to that of transformers."""
        return self._rendered(self._plain, messages, add_generation_prompt)

    def _rendered(self, template: Any, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        jinja2 = load_package("jinja2", needed_by="a chat template")
        given = [dict(message) for message in messages]
        values = {"tools": None, "documents": None, "add_generation_prompt": add_generation_prompt, **self._roles}
        limit = FREE_CHARACTERS + TIMES_CONTENTS * sum(len(str(message.get("content"))) for message in given)
        try:
            return rendered(template, {"messages": given, **values}, limit=limit)
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise OptionError(f"{self.name} cannot render the conversation: {error!s:.1000}") from None
        except (RecursionError, MemoryError):
            raise OptionError(
                f"{self.name} cannot render the conversation: the template recurses without end, or its output does "
                f"not fit into memory. Pass another template."
            ) from None

    # Tokens

    def encode(self, chats: Sequence[Sequence[Message]], *, num_threads: int | None = None) -> list[EncodedChat]:
        """Return the ids of each conversation and which of them are trained on.

        Raises `OptionError` if the template does not fit a conversation.
        """
        return self.encode_written([self.write(messages) for messages in chats], num_threads=num_threads)

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation, up to the start of the assistant's next response."""
        written = self.write(messages, add_generation_prompt=True)
        ids: list[int] = self.encode_written([written])[0].ids.tolist()
        return ids

    @cached_property
    def end_of_turn(self) -> tuple[int | None, str]:
        """The end of a response: the id of a special token, or None, and the text after a response."""
        layout = self._layout(("user", "assistant"), (True, True), False)
        after = itertools.takewhile(
            lambda part: part != _Border(is_begin=False), layout[layout.index(_Content(1)) + 1 :]
        )
        text = "".join(part for part in after if isinstance(part, str))
        first = next((run for run in self._split(text) if isinstance(run, int)), None)
        return first, text

    def unknown_specials(self) -> list[str]:
        """Return text in the template that looks like a special token but is not one of the tokenizer's."""
        layout = self._layout(("user", "assistant"), (True, True), True)
        text = "".join(part for part in layout if isinstance(part, str))
        return sorted({found for found in _LIKE_A_SPECIAL.findall(text) if found not in self._specials})

    def encode_written(self, written: Sequence[WrittenChat], *, num_threads: int | None = None) -> list[EncodedChat]:
        """Return the ids of conversations from `write`, encoded together on several threads."""
        texts = [run for chat in written for run in chat.runs if isinstance(run, str)]
        encoded = iter(self._tokenizer.encode_batch(texts, dtype=np.int64, num_threads=num_threads))
        found = []
        for chat in written:
            runs = [next(encoded) if isinstance(run, str) else np.array([run], np.int64) for run in chat.runs]
            ids = np.concatenate(runs) if runs else np.empty(0, np.int64)
            found.append(self._with_targets(ids, chat.trained))
        return found

    def _with_targets(self, ids: NDArray[np.int64], trained: list[tuple[int, int]]) -> EncodedChat:
        """Mark the tokens to train on: those with any byte in a trained range, as in transformers."""
        lengths = self._tokenizer._token_lengths[ids].astype(np.int64)
        ends = np.cumsum(lengths)
        is_trained = np.zeros(len(ids), np.bool_)
        crosses = False
        for begin, end in trained:
            overlaps = (ends > begin) & (ends - lengths < end)
            is_trained |= overlaps
            crosses = crosses or bool((ends - lengths)[overlaps][0] < begin)
        return EncodedChat(ids, is_trained, crosses)

    def write(self, messages: Sequence[Message], *, add_generation_prompt: bool = False) -> WrittenChat:
        """Return the conversation as runs of text and special tokens.

        Raises `OptionError` if the template changes contents.
        """
        roles = tuple(message["role"] for message in messages)
        has_content = tuple(message["content"] != "" for message in messages)
        layout = self._layout(roles, has_content, add_generation_prompt)
        text = self.render(messages, add_generation_prompt=add_generation_prompt)
        written, place = WrittenChat(), 0
        for index, part in enumerate(layout):
            if isinstance(part, _Border):
                written.add_border(part)
            elif isinstance(part, _Content):
                following = next((each for each in layout[index + 1 :] if not isinstance(each, _Border)), "")
                content = messages[part.index]["content"]
                piece = self._found(content, text, place, following if isinstance(following, str) else "")
                written.add(piece, [piece])
                place += len(piece)
            else:
                written.add(part, self._split(part))
                place += len(part)
        if place != len(text):
            raise self._changes_contents()
        written.trained = [(begin, end) for begin, end in written.trained if begin < end]
        return written

    def _found(self, content: str, text: str, place: int, following: str) -> str:
        """Return the content as it appears in the text: unchanged, or without surrounding whitespace."""
        for piece in dict.fromkeys((content, content.strip(), content.lstrip(), content.rstrip())):
            if text.startswith(piece + following, place):
                return piece
        raise self._changes_contents()

    def _changes_contents(self) -> OptionError:
        return OptionError(
            f"{self.name} changes the contents of messages, or places them depending on their content, so special "
            f"tokens of the template cannot be distinguished from text of the messages. Pass a template that writes "
            f"each content once, unchanged."
        )

    def _split(self, text: str) -> list[str | int]:
        """Return the text of the template with its special tokens as ids."""
        if self._special_pattern is None:
            return [text]
        parts = self._special_pattern.split(text)
        return [self._specials[part] if number % 2 else part for number, part in enumerate(parts)]

    @cached_property
    def _special_pattern(self) -> re.Pattern[str] | None:
        longest_first = sorted(self._specials, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None

    # Layouts

    def _make_layout(self, roles: tuple[str, ...], has_content: tuple[bool, ...], is_prompt: bool) -> list[Part]:
        """Return the parts of a conversation with these roles, with borders around the trained parts."""
        parts = self._parts(roles, has_content, is_prompt)
        if any(isinstance(part, _Border) for part in parts):
            return parts
        return [each for index, part in enumerate(parts) for each in self._bordered(parts, index, roles, has_content)]

    def _parts(self, roles: tuple[str, ...], has_content: tuple[bool, ...], is_prompt: bool) -> list[Part]:
        marks = [f"{CONTENT_BEGIN}{index}{CONTENT_END}" if has else "" for index, has in enumerate(has_content)]
        messages = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
        parts = list(_parts(self._rendered(self._marked, messages, is_prompt)))
        there = [part.index for part in parts if isinstance(part, _Content)]
        if there != [index for index, has in enumerate(has_content) if has]:
            raise OptionError(
                f"{self.name} does not write the content of each message once and in order for a conversation of "
                f"{', '.join(roles)}. Pass a template that does."
            )
        return parts

    def _bordered(
        self, parts: list[Part], index: int, roles: tuple[str, ...], has_content: tuple[bool, ...]
    ) -> Iterator[Part]:
        """Yield a part of a template without {% generation %}, with borders around a response and its end of turn."""
        part, before = parts[index], parts[index - 1] if index else ""
        if isinstance(part, _Content) and roles[part.index] == "assistant":
            yield from (_Border(is_begin=True), part)
            if index + 1 == len(parts) or not isinstance(parts[index + 1], str):
                yield _Border(is_begin=False)
        elif isinstance(part, str) and isinstance(before, _Content) and roles[before.index] == "assistant":
            end = self._end_of_turn(part, before.index, roles, has_content)
            yield from (part[:end], _Border(is_begin=False), part[end:])
        else:
            yield part

    def _end_of_turn(self, text: str, message: int, roles: tuple[str, ...], has_content: tuple[bool, ...]) -> int:
        """Return how much of the text after a response belongs to it: up to its first special token, if it has one."""
        alone = self._parts(roles[: message + 1], has_content[: message + 1], False)
        own = alone[-1] if isinstance(alone[-1], str) else ""
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(own, text, strict=False))
        ending = "".join(letter for letter, _ in same)
        found = self._special_pattern.search(ending) if self._special_pattern is not None else None
        return found.end() if found else len(ending)


def _parts(rendered: str) -> Iterator[Part]:
    place = 0
    for found in _MARK.finditer(rendered):
        if found.start() > place:
            yield rendered[place : found.start()]
        place = found.end()
        yield _Content(int(found[1])) if found[1] else _Border(is_begin=found[2] is not None)
    if place < len(rendered):
        yield rendered[place:]


def _roles(specials: Mapping[str, int]) -> dict[str, str]:
    """Return the special tokens that templates refer to by role, such as `eos_token`."""
    return chosen_roles(specials, {"eos_token": next((name for name in KNOWN if name in specials), None)})
