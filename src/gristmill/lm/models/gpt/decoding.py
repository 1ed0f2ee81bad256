"""GPTRows: many texts of a GPT generated at once, with one cache for all of them.

Each row has its own position. Prompts are padded on the right, where causal attention never looks; a step reads one id
per row. On a GPU a step is a CUDA graph: one launch instead of hundreds. Elsewhere, under autocast and in a model that
is being trained, steps run without graphs, with the same result up to rounding.

When a row has filled the context, it continues from the last half of it, which is read again.

Shapes: L layers, B rows, N new rows, T tokens per row, S attended tokens, G key and value heads of size K, V vocabulary
size.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from gristmill.lm.models.gpt.attention import View
from gristmill.lm.models.gpt.cache import Cache, RowCache, activation_dtype
from gristmill.lm.models.rows import STEPS_AHEAD, Choice

if TYPE_CHECKING:
    from gristmill.lm.models.gpt.network import GPT

__all__ = ["GPTRows"]

MAX_ROWS = {"cpu": 64, "cuda": 256}
PROMPT_TOKENS_AT_ONCE = 16_384
CPU_CACHE_BYTES = 2**30
KEPT_CACHE_BYTES = 2**29
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
MAX_GRAPHS = 64  # each uses memory, and a server may see many different temperatures
SPAN_MULTIPLE = 128  # graphs are captured for this many cached tokens, and for 2, 4, 8 … times as many


class GPTRows:
    """Reads the ids of several rows at once; see `RowReader`."""

    def __init__(self, model: GPT, *, max_rows: int | None, num_rows: int, longest: int, use_graphs: bool) -> None:
        """Allocate the cache.

        max_rows: None: as many as fit into memory, for `num_rows` texts of at most `longest` tokens, including prompts.
        """
        weight = model.embedding.weight
        self.device = weight.device
        self.runs_ahead = self.device.type == "cuda"
        self._model = model
        self._vocab_size = model.config.required_vocab_size
        context_length = model.config.context_length
        span = min(context_length, longest + STEPS_AHEAD)  # a row may be computed some tokens past its end
        self.max_rows = min(num_rows, max_rows or _rows_in_memory(model, span))
        self._state = _taken(model, self.max_rows, span, activation_dtype(weight))
        self._uses_graphs = use_graphs and self.device.type == "cuda"
        self._lengths: list[int] = []  # cached tokens per row

    # The interface of RowReader

    @torch.no_grad()
    def start(self, windows: Sequence[list[int]]) -> Tensor:
        """Append new rows; return the logits after each window. A window that is too long is truncated to its end."""
        limit = self._model.config.context_length
        cut = [window if len(window) <= limit else window[-max(1, limit // 2) :] for window in windows]
        places_of: dict[tuple[int, ...], list[int]] = {}  # a prompt shared by several rows is read once
        for place, window in enumerate(cut, start=len(self._lengths)):
            places_of.setdefault(tuple(window), []).append(place)
        self._lengths += [len(window) for window in cut]
        logits_of: dict[tuple[int, ...], Tensor] = {}
        for group in _groups(sorted(places_of, key=len)):
            lengths = [len(window) for window in group]
            tokens_NT = torch.tensor([[*window, *[0] * (lengths[-1] - len(window))] for window in group])
            logits_NV = self._read(tokens_NT.to(self.device), lengths, [places_of[window] for window in group])
            logits_of.update(zip(group, logits_NV, strict=True))
        self._state.set_positions(self._lengths)
        return torch.stack([logits_of[tuple(window)] for window in cut])

    @torch.no_grad()
    def step(self, ids_B: Tensor, draws_B: Tensor, choice: Choice) -> Tensor:
        """Read one more id per row; return the ids that the draws select after them."""
        ids_B = ids_B.to(self.device)
        limit = self._model.config.context_length
        full = [row for row, length in enumerate(self._lengths) if length >= limit]
        if not full:
            return self._stepped(ids_B, draws_B, choice)[0]
        half = max(1, limit // 2)
        windows_NT = torch.cat([self._state.history_BS[full, limit - half + 1 : limit], ids_B[full, None]], dim=1)
        for row in full:
            self._lengths[row] = 0  # the values that this step writes there are overwritten below
        self._state.set_positions(self._lengths)
        logits_BV = None if len(full) == len(self._lengths) else self._stepped(ids_B, draws_B, choice)[1]
        for row in full:
            self._lengths[row] = half
        self._state.set_positions(self._lengths)
        logits_NV = self._read(windows_NT, [half] * len(full), [[row] for row in full])
        if logits_BV is not None:
            logits_NV = logits_BV.index_copy(0, torch.tensor(full, device=self.device), logits_NV)
        return choice.ids(logits_NV, draws_B)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only these rows, in this order."""
        for target, source in enumerate(rows):
            if target != source:
                self._state.copy_row(source, target, self._lengths[source])
        self._lengths = [self._lengths[row] for row in rows]
        self._state.set_positions(self._lengths)

    def close(self) -> None:
        """Keep cache and graphs for the next texts of this model, unless they are large."""
        if self._uses_graphs and self._state.num_bytes <= KEPT_CACHE_BYTES:
            _KEPT[self._model] = self._state

    # Implementation

    def _read(self, tokens_NT: Tensor, lengths: list[int], copies: list[list[int]]) -> Tensor:
        """Read windows, padded on the right, into the rows `copies`; return the logits after `lengths` tokens."""
        num_tokens = tokens_NT.shape[1]
        cache = self._state.new_cache(len(tokens_NT), num_tokens)
        with _attention_without_plans(self.device):
            x_NTD = self._model.stream(tokens_NT, cache=cache)
        for index, places in enumerate(copies):
            self._state.fill(places, cache, index, tokens_NT[index])
        last_N = torch.tensor(lengths, device=self.device) - 1
        return self._logits(x_NTD[torch.arange(len(tokens_NT), device=self.device), last_N])

    def _stepped(self, ids_B: Tensor, draws_B: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
        """Return the ids that the draws select, and the logits they select from."""
        num_rows, first = len(self._lengths), self._lengths[0]
        if self.runs_ahead:
            next_B, logits_BV = self._stepped_in_place(ids_B, draws_B, choice)
        elif all(length == first for length in self._lengths):
            # Rows of equal length need no mask, and share one position in the cache.
            cache = self._state.of_equal_rows(num_rows, first)
            logits_BV = self._logits(self._model.stream(ids_B[:, None], cache=cache)[:, -1])
            self._state.history_BS[:num_rows, first] = ids_B
            next_B = choice.ids(logits_BV, draws_B)
        else:
            self._state.ids_B[:num_rows] = ids_B
            self._state.set_positions(self._lengths)  # steps of equal rows do not update them
            logits_BV = self._computed(num_rows, max(self._lengths) + 1)
            next_B = choice.ids(logits_BV, draws_B)
        self._lengths = [length + 1 for length in self._lengths]
        return next_B, logits_BV

    def _stepped_in_place(self, ids_B: Tensor, draws_B: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
        """Run a step whose size has a graph: rows and cached tokens rounded up to a power of two."""
        state, num_rows = self._state, len(self._lengths)
        size = min(_power_of_two(num_rows, 1), state.max_rows)
        span = min(_power_of_two(max(self._lengths) + 1, SPAN_MULTIPLE), state.span)
        state.ids_B[:num_rows].copy_(ids_B)
        state.draws_B[:num_rows].copy_(draws_B)
        key = (size, span, choice)
        graph = state.graphs.get(key)
        if graph is None and key in state.seen and self._uses_graphs:
            graph = state.graphs[key] = self._captured(*key)
        if graph is None:
            state.seen.add(key)  # the first step of a size loads kernels, the second is captured
            next_B, logits_BV = self._computed_ids(*key)
            return next_B[:num_rows], logits_BV[:num_rows]
        graph.graph.replay()
        return graph.next_B[:num_rows].clone(), graph.logits_BV[:num_rows]

    def _captured(self, size: int, span: int, choice: Choice) -> _Graph:
        """Capture a step as a graph, which reads and writes the tensors of the state."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(self.device)
        if len(self._state.graphs) >= MAX_GRAPHS:
            self._state.graphs.clear()
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=self._state.pool, capture_error_mode="thread_local")
            try:
                next_B, logits_BV = self._computed_ids(size, span, choice)
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        return _Graph(graph, next_B, logits_BV)

    def _computed_ids(self, size: int, span: int, choice: Choice) -> tuple[Tensor, Tensor]:
        logits_BV = self._computed(size, span)
        return choice.ids(logits_BV, self._state.draws_B[:size]), logits_BV

    def _computed(self, size: int, span: int) -> Tensor:
        """Return the logits after the ids in the state, for its first `size` rows, and advance their positions."""
        from gristmill.lm.models.gpt.network import to_stream

        model, state = self._model, self._state
        positions_B = state.positions_B[:size]
        view = _view_of_rows(model, positions_B, span, state.cache.keys_LBHSK.dtype)
        x_B1D = to_stream(model.embedding(state.ids_B[:size, None]), model.config)
        rows = state.of_rows(size, span)
        with _attention_without_plans(self.device):
            for index, block in enumerate(model.blocks):
                x_B1D = block(x_B1D, view, rows.layer(index))
        state.remember(state.ids_B[:size])
        return self._logits(model.final_norm(x_B1D)[:, -1])

    def _logits(self, x_ND: Tensor) -> Tensor:
        return F.linear(x_ND, self._model.head_weight)[:, : self._vocab_size]


class _Graph(NamedTuple):
    """A captured step, and its output tensors."""

    graph: torch.cuda.CUDAGraph
    next_B: Tensor
    logits_BV: Tensor


class _State:
    """State that persists between steps: cache, positions and ids of the rows, and the graphs that use them."""

    def __init__(self, model: GPT, max_rows: int, span: int, dtype: torch.dtype) -> None:
        device, c = model.embedding.weight.device, model.config
        self.max_rows = max_rows
        self.span = min(c.context_length, _multiple(span, SPAN_MULTIPLE))
        self._shape = (c.num_layers, max_rows, c.kv_heads, self.span, c.head_dim)
        # Zeros, because masked values are multiplied by 0, and uninitialized memory may contain NaN.
        keys, values = (torch.zeros(self._shape, device=device, dtype=dtype) for _ in range(2))
        self.cache = Cache(keys, values)
        self.positions_B = torch.zeros(max_rows, dtype=torch.long, device=device)
        self.ids_B = torch.zeros(max_rows, dtype=torch.long, device=device)
        self.history_BS = torch.zeros(max_rows, self.span, dtype=torch.long, device=device)
        self.draws_B = torch.zeros(max_rows, dtype=torch.float32 if device.type == "mps" else torch.float64).to(device)
        # By rows, cached tokens and choice.
        self.graphs: dict[tuple[int, int, Choice], _Graph] = {}
        self.seen: set[tuple[int, int, Choice]] = set()
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.places, self.config = _places(model), model.config

    @property
    def num_bytes(self) -> int:
        """Size of the cache."""
        return 2 * self.cache.keys_LBHSK.nbytes

    def fits(self, model: GPT, max_rows: int, span: int, dtype: torch.dtype) -> bool:
        """Whether it can be reused: large enough, and with graphs of this model and its weights."""
        is_large = self.max_rows >= max_rows and self.span >= span
        is_same = self.config == model.config and self.places == _places(model)
        return is_large and is_same and self.cache.keys_LBHSK.dtype == dtype

    def set_positions(self, lengths: Sequence[int]) -> None:
        """Set the position of the next id of each row. Padding rows start at 0, so they never exceed the other rows."""
        positions = [min(length, self.span - 1) for length in lengths]
        positions_B = torch.tensor(positions + [0] * (self.max_rows - len(positions)), dtype=torch.long)
        is_cuda = self.positions_B.device.type == "cuda"
        self.positions_B.copy_(positions_B.pin_memory() if is_cuda else positions_B, non_blocking=is_cuda)

    def remember(self, ids_B: Tensor) -> None:
        """Store the ids at their positions, and advance the positions."""
        positions_B = self.positions_B[: len(ids_B)]
        self.history_BS[: len(ids_B)].scatter_(1, positions_B[:, None], ids_B[:, None])
        positions_B.add_(1).clamp_(max=self.span - 1)  # a full row restarts before its next step

    def new_cache(self, num_rows: int, num_tokens: int) -> Cache:
        """Return an empty cache for prompts."""
        num_layers, _, num_heads, _, width = self._shape
        like = self.cache.keys_LBHSK
        keys, values = (like.new_empty(num_layers, num_rows, num_heads, num_tokens, width) for _ in range(2))
        return Cache(keys, values)

    def fill(self, places: list[int], cache: Cache, index: int, tokens_T: Tensor) -> None:
        """Copy row `index` of a prompt cache into the rows `places`."""
        for place in places:
            self.cache.keys_LBHSK[:, place, :, : cache.capacity] = cache.keys_LBHSK[:, index]
            self.cache.values_LBHSK[:, place, :, : cache.capacity] = cache.values_LBHSK[:, index]
            self.history_BS[place, : cache.capacity] = tokens_T

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Replace row `target` by row `source`."""
        for tensor in (self.cache.keys_LBHSK, self.cache.values_LBHSK):
            tensor[:, target, :, :length] = tensor[:, source, :, :length]
        self.history_BS[target] = self.history_BS[source]

    def of_equal_rows(self, num_rows: int, length: int) -> Cache:
        """Return the cache of the first rows, which all have this length."""
        return Cache(self.cache.keys_LBHSK[:, :num_rows], self.cache.values_LBHSK[:, :num_rows], length)

    def of_rows(self, num_rows: int, span: int) -> RowCache:
        """Return the cache of the first rows, each at its own position."""
        keys, values = self.cache.keys_LBHSK, self.cache.values_LBHSK
        return RowCache(keys[:, :num_rows, :, :span], values[:, :num_rows, :, :span], self.positions_B[:num_rows])


# State of the last texts per model, so that graphs are not captured again for every text.
_KEPT: WeakKeyDictionary[GPT, _State] = WeakKeyDictionary()


def _taken(model: GPT, max_rows: int, span: int, dtype: torch.dtype) -> _State:
    """Return the kept state if it fits, or a new one. The state is exclusive until `close` returns it."""
    kept = _KEPT.pop(model, None)
    return kept if kept and kept.fits(model, max_rows, span, dtype) else _State(model, max_rows, span, dtype)


def _places(model: GPT) -> tuple[int, ...]:
    """Return the addresses of the weights, which graphs read."""
    return tuple(parameter.data_ptr() for parameter in model.parameters())


def _view_of_rows(model: GPT, positions_B: Tensor, span: int, dtype: torch.dtype) -> View:
    """Return the view of one token per row at its position: it attends to itself and what is before it in its row."""
    distances_BS = positions_B[:, None] - torch.arange(span, device=positions_B.device)
    is_seen_BS = distances_BS >= 0
    if model.config.sliding_window is not None:
        is_seen_BS &= distances_BS < model.config.sliding_window
    # An additive mask: kernels would convert a boolean mask to this form again in every layer.
    mask_BS = torch.zeros(is_seen_BS.shape, dtype=dtype, device=positions_B.device)
    mask_BS.masked_fill_(~is_seen_BS, -torch.inf)
    cos_B111K, sin_B111K = (table[positions_B][:, None, None, None] for table in (model.cos_TK, model.sin_TK))
    return View(cos_B111K, sin_B111K, mask_BS[:, None, None], is_causal=False)


def _attention_without_plans(device: torch.device) -> AbstractContextManager[object]:
    """Select attention kernels that start immediately. cuDNN plans each new shape, and prompts have many shapes."""
    return sdpa_kernel(KERNELS) if device.type == "cuda" else contextlib.nullcontext()


def _groups(windows: Sequence[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Group windows, sorted by length, to be read at once: few enough tokens, and little padding."""
    groups: list[list[tuple[int, ...]]] = []
    for window in windows:
        group = groups[-1] if groups else []
        is_close = bool(group) and len(window) <= 2 * len(group[0]) + 16
        if is_close and len(window) * (len(group) + 1) <= PROMPT_TOKENS_AT_ONCE:
            group.append(window)
        else:
            groups.append([window])
    return groups


def _rows_in_memory(model: GPT, span: int) -> int:
    """Return the default number of rows at once: as many as fit with their cache into half of the free memory."""
    c, weight = model.config, model.embedding.weight
    row_bytes = 2 * c.num_layers * c.kv_heads * c.head_dim * span * activation_dtype(weight).itemsize
    row_bytes += 64 * c.padded_vocab_size  # logits, probabilities and their sums, some in float64
    kind = weight.device.type
    free = torch.cuda.mem_get_info(weight.device)[0] // 2 if kind == "cuda" else CPU_CACHE_BYTES
    return max(1, min(MAX_ROWS.get(kind, MAX_ROWS["cpu"]), free // row_bytes))


def _power_of_two(number: int, least: int) -> int:
    return max(least, 1 << (number - 1).bit_length())


def _multiple(number: int, of: int) -> int:
    return -(-number // of) * of
