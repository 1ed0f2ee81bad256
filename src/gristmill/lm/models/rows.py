"""Generation of many texts at once: the rows of a batch, each with its own prompt, length and seed, and their loop.

A row that ends makes room for a waiting one. On a GPU the host never waits for a token: ids are chosen on the device
and fetched some steps later. So a row may be computed a few tokens past its end; those tokens are discarded. Other rows
of the batch change the text of a row by rounding at most, because its random numbers are drawn separately.

Shapes: B active rows, N new rows, V vocabulary size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from gristmill.lm.models.sampling import check_chosen, check_sampling, chosen_by, draw

if TYPE_CHECKING:
    from gristmill.lm.models.generation import Reader
    from gristmill.lm.models.model import Model

__all__ = ["Choice", "OneByOne", "Row", "RowReader", "write_rows"]

# Steps that a GPU runs before its ids are fetched. More steps would only compute rows further past their end.
STEPS_AHEAD = 16


@dataclass(frozen=True)
class Choice:
    """The options for choosing the next token; `OptionError` if one is out of range."""

    temperature: float
    top_k: int | None
    top_p: float | None

    def __post_init__(self) -> None:
        check_sampling(self.temperature, self.top_k, self.top_p)

    def ids(self, logits_NV: Tensor, draws_N: Tensor) -> Tensor:
        """Return the id that each draw selects from its row of logits."""
        return chosen_by(logits_NV, draws_N, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)


@dataclass(eq=False)
class Row:
    """One text: its prompt, its random generator, and the number of tokens it may still have."""

    prompt_ids: list[int]
    dice: torch.Generator
    num_left: int
    is_open: bool = True  # False: no more tokens are needed
    num_ahead: int = 0  # tokens computed or scheduled, but not fetched yet
    number: int = 0  # among the texts generated together

    @property
    def wants_more(self) -> bool:
        """Whether more tokens of it must be computed."""
        return self.is_open and self.num_ahead < self.num_left


class RowReader(Protocol):
    """Reads the ids of several rows at once, and returns the logits of the next ids."""

    device: torch.device  # device of its logits
    max_rows: int  # maximum number of rows at once
    runs_ahead: bool  # whether its device works asynchronously

    def start(self, windows: Sequence[list[int]]) -> Tensor:
        """Append new rows; return the logits after each window: N x V."""

    def step(self, ids_B: Tensor, draws_B: Tensor, choice: Choice) -> Tensor:
        """Read one more id per row; return the ids that the draws select after them."""

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only these rows, in this order. Row i of them was at i or later."""

    def close(self) -> None:
        """Release the rows."""


class OneByOne:
    """Rows of any model, computed one at a time with its own reader."""

    device = torch.device("cpu")
    max_rows = 1
    runs_ahead = False

    def __init__(self, model: Model, *, use_cache: bool) -> None:
        self._model, self._use_cache = model, use_cache
        self._readers: list[Reader] = []

    def start(self, windows: Sequence[list[int]]) -> Tensor:
        """Create a reader per row."""
        new = [self._model.new_reader(use_cache=self._use_cache) for _ in windows]
        self._readers += new
        return torch.stack([reader.read(window) for reader, window in zip(new, windows, strict=True)])

    def step(self, ids_B: Tensor, draws_B: Tensor, choice: Choice) -> Tensor:
        """Step each row separately."""
        logits = [reader.read([id]) for reader, id in zip(self._readers, ids_B.tolist(), strict=True)]
        return choice.ids(torch.stack(logits), draws_B)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only these rows."""
        self._readers = [self._readers[row] for row in rows]

    def close(self) -> None:
        """Do nothing."""


def write_rows(
    reader: RowReader, rows: Iterable[Row], choice: Choice, *, stop_id: int | None = None
) -> Iterator[tuple[Row, int]]:
    """Yield (row, id) as ids become known. Set `row.is_open` to False to end a row. Rows end before `stop_id`.

    A row is taken from `rows` when there is room for it, so an iterator may create it then.
    `NotFiniteError` if the logits of an open row are not finite.
    """
    loop = _Loop(reader, rows, choice)
    depth = 1 if reader.runs_ahead else 0  # chunks of steps computed while the host processes others
    try:
        while True:
            loop.advance()
            if not loop.unseen:
                return
            while len(loop.unseen) > depth or (loop.unseen and not loop.has_more):
                yield from _seen(*loop.unseen.popleft().fetched(), stop_id)
    finally:
        reader.close()


def _seen(rows: list[Row], table: list[list[int]], stop_id: int | None) -> Iterator[tuple[Row, int]]:
    """Yield the ids of rows that have not ended, step by step."""
    for ids in table:
        for row, id in zip(rows, ids, strict=True):
            row.num_ahead -= 1
            if not row.is_open or row.num_left <= 0:
                continue
            check_chosen(id)
            if id == stop_id:
                row.is_open = False
                continue
            row.num_left -= 1
            yield row, id


class _Chunk:
    """The ids of some steps, being copied to main memory."""

    def __init__(self, rows: list[Row], steps: list[Tensor]) -> None:
        self._rows = rows
        ids_TB = torch.stack(steps) if len(steps) > 1 else steps[0][None]
        self._arrived: torch.cuda.Event | None = None
        if ids_TB.device.type != "cuda":
            self._ids_TB = ids_TB
            return
        self._ids_TB = torch.empty(ids_TB.shape, dtype=ids_TB.dtype, pin_memory=True)
        self._ids_TB.copy_(ids_TB, non_blocking=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._arrived.record(torch.cuda.current_stream(ids_TB.device))

    def fetched(self) -> tuple[list[Row], list[list[int]]]:
        """Return the rows, and a list of their ids per step."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._rows, self._ids_TB.tolist()


class _Loop:
    """The active rows, the waiting rows, and the ids that were not fetched yet."""

    def __init__(self, reader: RowReader, rows: Iterable[Row], choice: Choice) -> None:
        self._reader, self._choice = reader, choice
        self._waiting = iter(rows)
        self._next = next(self._waiting, None)  # the first waiting row
        self._rows: list[Row] = []
        self._ids_B = torch.empty(0, dtype=torch.long)  # chosen, but not read by the model yet
        self.unseen: deque[_Chunk] = deque()

    @property
    def has_more(self) -> bool:
        """Whether anything is left to compute."""
        return any(row.wants_more for row in self._rows) or self._first_waiting() is not None

    @torch.no_grad()
    def advance(self) -> None:
        """Start rows for which there is room, or else compute the next tokens of all rows."""
        self._retire()
        new: list[Row] = []
        while len(self._rows) + len(new) < self._reader.max_rows and (row := self._first_waiting()) is not None:
            new.append(row)
            self._next = next(self._waiting, None)
        if new:
            self._begin(new)
        elif self._rows:
            self._compute()

    def _first_waiting(self) -> Row | None:
        """Return the first waiting row that is still needed; drop those before it."""
        while self._next is not None and not self._next.wants_more:
            self._next = next(self._waiting, None)
        return self._next

    def _retire(self) -> None:
        """Remove finished rows, and fill the gaps with rows from the end."""
        kept = [place for place, row in enumerate(self._rows) if row.wants_more]
        if len(kept) == len(self._rows):
            return
        movers = [place for place in kept if place >= len(kept)]
        order = [place if self._rows[place].wants_more else movers.pop() for place in range(len(kept))]
        self._reader.keep(order)
        self._rows = [self._rows[place] for place in order]
        self._ids_B = self._ids_B[order]

    def _begin(self, new: list[Row]) -> None:
        logits_NV = self._reader.start([row.prompt_ids for row in new])
        ids_N = self._choice.ids(logits_NV, self._draws(new, 1)[0])
        self._ids_B = torch.cat([self._ids_B, ids_N]) if self._rows else ids_N
        self._rows += new
        self._send(new, [ids_N])

    def _compute(self) -> None:
        most = max(row.num_left - row.num_ahead for row in self._rows)
        draws_TB = self._draws(self._rows, min(STEPS_AHEAD, most) if self._reader.runs_ahead else 1)
        steps = []
        for draws_B in draws_TB:
            # An id of -1 means that no token could be chosen. It becomes an error only if the id is fetched.
            ids_B = self._ids_B.clamp(min=0) if self._reader.runs_ahead else self._ids_B
            self._ids_B = self._reader.step(ids_B, draws_B, self._choice)
            steps.append(self._ids_B)
        self._send(list(self._rows), steps)

    def _send(self, rows: list[Row], steps: list[Tensor]) -> None:
        for row in rows:
            row.num_ahead += len(steps)
        self.unseen.append(_Chunk(rows, steps))

    def _draws(self, rows: Sequence[Row], num_steps: int) -> Tensor:
        """Return random numbers per step and row, from the generator of the row, so they depend on its seed only."""
        device = self._reader.device
        if self._choice.temperature == 0:
            return torch.zeros(num_steps, len(rows), device=device)
        drawn = [draw(row.dice, (num_steps,)) for row in rows]
        draws_TN = torch.stack(drawn, dim=1) if len(drawn) > 1 else drawn[0][:, None]
        # A copy from pinned memory does not wait for the device.
        return draws_TN.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else draws_TN
