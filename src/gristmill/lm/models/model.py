"""Model: what the trainer, `generate` and the meters need of a network.

A model of your own inherits from `Model` and implements `forward`: tokens in, logits of the next token out. That alone
trains, resumes, is evaluated and writes text. A model with another loss implements `loss` too.

Shapes: B sequences, T tokens each, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gristmill.errors import OptionError
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.models.generation import Reader, TextStream, WindowReader, continued
from gristmill.lm.models.rows import OneByOne, RowReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.models.foreign import ForeignModel
    from gristmill.lm.models.requests import TextRequest

__all__ = ["Model", "Watch"]


class Watch(Protocol):
    """What a model wants to observe of its training, such as its posterior. It never changes weights or generators."""

    def look(self, step: int, batch: Batch, stats: Mapping[str, Tensor], schedule: Mapping[str, float]) -> None:
        """See the last micro-batch of a step, after the weights have moved; nothing may wait for the device."""

    def news(self) -> list[dict[str, Any]]:
        """The records since the last call, for metrics.jsonl; those of kind "event" are shown too."""

    def state_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a checkpoint keeps."""

    def load_state(self, step: int, tensors: Mapping[str, Tensor] | None, values: Mapping[str, Any] | None) -> None:
        """Resume after `step`, with what `state_tensors` gave; None where the checkpoint has none."""

    def close(self) -> None:
        """End threads and files."""


class Model(nn.Module):
    """The base of all models."""

    # The attributes whose layers are the units that fsdp shards, gathers and frees one by one, and that
    # activation_checkpointing computes again in the backward pass.
    SHARDED_UNITS: ClassVar[tuple[str, ...]] = ("blocks",)
    # Weights that exist only while an option is on, by how their names start: `init_from` may lack or bring them.
    SWITCHED_WEIGHTS: ClassVar[tuple[str, ...]] = ()
    # Whether a compiled model is validated without compiling it once more for evaluation.
    VALIDATES_EAGERLY: ClassVar[bool] = False
    # The formats of `gm.lm.export` that `exported` knows. A subclass may compute something else, so it does not inherit
    # them: it names its own.
    EXPORTS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Any) -> None:
        """`config`: the options of the model, with `vocab_size` settled."""
        super().__init__()
        self.config = config

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """The logits of the token after each of `tokens_BT`: B x T x V."""
        raise OptionError(
            f"model={self.config.name!r} cannot write text: {type(self).__name__} has no forward(tokens_BT) that "
            f"returns logits. Add one to have samples and generate()."
        )

    def loss(self, batch: Batch, schedule: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """(loss, stats): the mean nats of the targets that are not -100, and what is worth recording.

        stats: each name in `STATISTICS` of the config, and "loss" where what is recorded is not the loss itself.
        schedule: what `schedule` of the config gives for the step, as tensors; {} in evaluation.
        """
        if batch.document_ids_BT is not None:
            option = "conversations" if getattr(self.config, "conversations", False) else "document_mask"
            raise OptionError(
                f"{option}=True: {type(self).__name__} reads windows across documents. Pass {option}=False, "
                f"or add a loss(batch, schedule) that uses batch.document_ids_BT."
            )
        logits_BTV = self(batch.inputs_BT)
        self._check_logits(logits_BTV, batch)
        nats = F.cross_entropy(
            logits_BTV.flatten(0, 1).float(), batch.targets_BT.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        loss = nats / batch.num_targets.clamp(min=1)
        return loss, {"loss": loss.detach()}

    def _check_logits(self, logits_BTV: Any, batch: Batch) -> None:
        needed = (*batch.targets_BT.shape, self.config.required_vocab_size)
        shape = tuple(logits_BTV.shape) if isinstance(logits_BTV, Tensor) else type(logits_BTV).__name__
        is_right = isinstance(shape, tuple) and shape[:-1] == needed[:-1] and shape[-1] >= needed[-1]
        if not is_right:
            raise OptionError(
                f"{type(self).__name__}.forward returned {shape}, and logits of shape {needed} are needed: sequences x "
                f"tokens x vocab_size."
            )

    # What it reports about itself

    @property
    def num_parameters(self) -> int:
        """All of them."""
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_token(self, context_length: int | None = None) -> int:
        """Floating-point operations per token, forward and backward: 6 per parameter that is not an embedding."""
        tables = sum(m.weight.numel() for m in self.modules() if isinstance(m, nn.Embedding))
        return 6 * (self.num_parameters - tables)

    def stacked_weights(self) -> Mapping[str, int | tuple[int, ...]]:
        """The weights that are several matrices on top of each other: Muon takes them apart.

        With each name, how many matrices of the same size they are, or a tuple with the rows of each.
        """
        return {}

    def random_batch(self, batch_size: int, length: int, device: torch.device) -> Batch:
        """A batch of the largest size, to measure memory with."""
        tokens_BT = torch.randint(self.config.required_vocab_size, (batch_size, length), device=device)
        return Batch(tokens_BT, tokens_BT)

    def new_watch(
        self,
        folder: Path,
        *,
        seed: int,
        autocast: Callable[[], AbstractContextManager[object]],
        is_sharded: bool,
        last_step: int,
    ) -> Watch | None:
        """What observes the training of this model, or None. Its pictures go into `folder`."""
        return None

    def warnings(self, val_stats: Mapping[str, float], watch: Watch | None) -> tuple[str, ...]:
        """What a person should know before using the trained model, by its validation and its watch."""
        return ()

    # Text

    @property
    def can_write(self) -> bool:
        """Whether there is a way to get text from it: a `forward`, or a `write` or `new_reader` of its own."""
        own = type(self)
        return any(getattr(own, name) is not getattr(Model, name) for name in ("forward", "write", "new_reader"))

    def write(self, tokenizer: Tokenizer, request: TextRequest) -> Iterator[TextStream]:
        """The texts that `request` asks for, each as a stream of its parts. Text i has the seed `seed + i`.

        All texts of the first prompt come first, then those of the second.
        """
        for name in ("reconstruct", "between"):
            if getattr(request, name) is not None:
                raise OptionError(
                    f"{name} is for a model with latents, and this one continues a prompt. Pass prompt=… instead."
                )
        return continued(self, tokenizer, request)

    def new_reader(self, *, use_cache: bool = True) -> Reader:
        """What reads ids and gives the logits of the next one; a model with a cache overrides it."""
        return WindowReader(self)

    def new_row_reader(
        self, *, use_cache: bool, max_rows: int | None, num_rows: int, longest: int, use_graphs: bool
    ) -> RowReader:
        """What reads the ids of several texts at once; here one text after the other, by `new_reader`.

        max_rows: the most at once; None: what memory allows, for `num_rows` texts of at most `longest` tokens each.
        use_graphs: a GPU may record its work once and repeat it: the weights stay where they are.
        """
        return OneByOne(self, use_cache=use_cache)

    def use_bfloat16(self) -> None:
        """Write text in bfloat16 from now on: matrix products only, so that it is safe for any model."""
        kind = next(self.parameters()).device.type
        for name in ("forward", "write"):
            setattr(self, name, torch.autocast(kind, torch.bfloat16)(getattr(self, name)))

    # Other libraries

    def exported(self, format: str, *, vocab_size: int) -> ForeignModel:
        """The model in the words of a library that reads `format`, one of `EXPORTS`, with `vocab_size` tokens."""
        raise OptionError(
            f"model={self.config.name!r} cannot be exported: {type(self).__name__} has no exported(format, vocab_size)."
        )

    @classmethod
    def weights_of_huggingface(cls, config: Any, tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
        """The weights of a model with this config from those of transformers; `CheckpointError` if they do not fit.

        source: the path they were read from. The tensors may have no data: then only their shapes matter.
        """
        raise OptionError(f"model={config.name!r} cannot start from a model of transformers, such as {source}.")
