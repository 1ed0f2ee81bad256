"""Model: the interface of networks that the trainer, `generate` and the meters use.

Your own model inherits from `Model` and implements `forward`: tokens in, logits of the next token out. That is enough
to train, resume, evaluate and generate text. A model with another loss also implements `loss`.

Shapes: B sequences, T tokens per sequence, V vocabulary size.
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

__all__ = ["Kernels", "Model", "Watch"]


class Watch(Protocol):
    """Observer of the training of a model, such as a monitor of its posterior.

    It never changes weights or generators.
    """

    def look(self, step: int, batch: Batch, stats: Mapping[str, Tensor], schedule: Mapping[str, float]) -> None:
        """Observe the last micro-batch of a step, after the weights were updated. Must not wait for the device."""

    def news(self) -> list[dict[str, Any]]:
        """Return the records since the last call, for metrics.jsonl. Records of kind "event" are also displayed."""

    def state_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the state to store in a checkpoint."""

    def load_state(self, step: int, tensors: Mapping[str, Tensor] | None, values: Mapping[str, Any] | None) -> None:
        """Resume after `step` with the state of `state_tensors`; None where the checkpoint has no such state."""

    def close(self) -> None:
        """Stop threads and close files."""


class Kernels(Protocol):
    """The kernels of a model in a run: what the trainer has to do for them between steps."""

    copies: Any
    """Copies of the weights (`WeightCopies`), which an optimizer may write."""

    @property
    def needs_calibration(self) -> bool:
        """Whether a forward and backward pass without an update must come first, to find scales."""

    def opened(self, batch: Batch) -> Batch:
        """Allocate what batches like this one need before a CUDA graph is captured, and return the batch."""

    def refresh(self) -> None:
        """Make the copies of changed weights. `loss` does that too, but the replay of a CUDA graph does not."""

    def changed(self) -> list[Tensor]:
        """Return the tensors that a forward and backward pass changes."""

    def largest(self) -> Tensor | None:
        """Return numbers of which all processes need the maximum before `after_update`, to change in place."""

    def after_update(self) -> None:
        """Prepare the next step, after the weights were updated."""

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as values for JSON."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""


class Model(nn.Module):
    """Base class of all models.

    Args:
        config: The options of the model, with `vocab_size` set.

    Attributes:
        config: The options of the model.

    Examples:
        >>> from gristmill.lm.models.config import WindowModelConfig
        >>> class Bigrams(Model):
        ...     def __init__(self, config):
        ...         super().__init__(config)
        ...         self.table = nn.Embedding(config.vocab_size, config.vocab_size)
        ...
        ...     def forward(self, tokens_BT):
        ...         return self.table(tokens_BT)
        >>> model = Bigrams(WindowModelConfig(vocab_size=300, context_length=8))
        >>> batch = model.random_batch(2, 8, torch.device("cpu"))
        >>> loss, stats = model.loss(batch, {})
        >>> loss.shape, model.num_parameters, model.flops_per_token()
        (torch.Size([]), 90000, 0)
        >>> model.warnings({}, None), dict(model.stacked_weights()), model.can_write
        ((), {}, True)
    """

    SHARDED_UNITS: ClassVar[tuple[str, ...]] = ("blocks",)
    """Attributes with the layers that fsdp shards, gathers and frees one by one, and that activation_checkpointing
    computes again in the backward pass."""
    SWITCHED_WEIGHTS: ClassVar[tuple[str, ...]] = ()
    """Prefixes of weights that exist only while an option is on. A run with `init_from` may lack them or have them in
    addition."""
    VALIDATES_EAGERLY: ClassVar[bool] = False
    """Whether validation of a compiled model runs uncompiled, to save a second compilation."""
    CAPTURES_STEPS: ClassVar[bool] = False
    """Whether a CUDA graph can replay `loss` and its backward pass: they never wait for the device, and do the same
    operations for all batches of one shape. The tensors that a `Watch` receives are then overwritten by the next step,
    so it copies those that it keeps."""
    EXPORTS: ClassVar[tuple[str, ...]] = ()
    """Formats of `gm.lm.export` that `exported` supports. They are not inherited, because a subclass may compute
    something else: each class names its own."""

    def __init__(self, config: Any) -> None:
        """Store the config."""
        super().__init__()
        self.config = config

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of the token after each of `tokens_BT`: B x T x V.

        Args:
            tokens_BT: Token ids.

        Raises:
            OptionError: The model does not implement `forward`.

        Examples:
            ```python
            logits_BTV = model(tokens_BT)
            ```
        """
        raise OptionError(
            f"model={self.config.name!r} cannot generate text: {type(self).__name__} has no forward(tokens_BT) that "
            f"returns logits. Add one to use samples and generate()."
        )

    def loss(self, batch: Batch, schedule: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (loss, stats): the mean nats of the targets that are not -100, and the values to record.

        `stats` has one entry per name in `STATISTICS` of the config, and "loss" where the recorded loss differs from
        the returned one.

        Args:
            batch: The micro-batch.
            schedule: The values of the config's `schedule` for the step, as tensors; {} in evaluation.

        Raises:
            OptionError: The batch has document ids, which this loss does not use, or `forward` returned logits of a
                wrong shape.
        """
        if batch.document_ids_BT is not None:
            option = "conversations" if getattr(self.config, "conversations", False) else "document_mask"
            raise OptionError(
                f"{option}=True is not supported: {type(self).__name__} reads windows across documents. Pass "
                f"{option}=False, or add a loss(batch, schedule) that uses batch.document_ids_BT."
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
                f"{type(self).__name__}.forward returned {shape}. Return logits of shape {needed}: sequences x tokens "
                f"x vocab_size."
            )

    # Kernels

    def why_no_kernels(self) -> str | None:
        """Return why the training step of this model cannot use Triton kernels; None if it can.

        Returns:
            The reason, for a message.

        Examples:
            >>> import gristmill as gm
            >>> config = gm.lm.VAEConfig(vocab_size=300, max_sequence_length=16, d_model=32, num_heads=2, latent_dim=4)
            >>> gm.lm.SequenceVAE(config).why_no_kernels()
            "model='vae' has no kernels"
        """
        return f"model={self.config.name!r} has no kernels"

    def use_kernels(self, *, float8: str = "off", is_deterministic: bool = False) -> Kernels:
        """Compute `loss` with Triton kernels from now on, and return their state.

        Args:
            float8: Products in 8-bit floats: "off", "head", "blocks" or "all".
            is_deterministic: Add all gradients in a fixed order.

        Returns:
            The state of the kernels, which a run saves in its checkpoints.

        Raises:
            OptionError: The model has no kernels, or its sizes do not allow 8-bit floats.

        Examples:
            ```python
            kernels = model.cuda().use_kernels()
            loss, _ = model.loss(batch, {})
            ```
        """
        raise OptionError(f"{self.why_no_kernels()}. Leave out float8, or pass another model.")

    # Sizes and statistics

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_token(self, context_length: int | None = None) -> int:
        """Return the floating-point operations per token, forward and backward: 6 per parameter outside of embeddings.

        Args:
            context_length: Tokens per sequence. None: that of the config.
        """
        tables = sum(m.weight.numel() for m in self.modules() if isinstance(m, nn.Embedding))
        return 6 * (self.num_parameters - tables)

    def stacked_weights(self) -> Mapping[str, int | tuple[int, ...]]:
        """Return the weights that consist of several stacked matrices, which Muon handles separately.

        The value of each name is the number of matrices of equal size, or a tuple with the number of rows of each.
        """
        return {}

    def random_batch(self, batch_size: int, length: int, device: torch.device) -> Batch:
        """Return a random batch of the given size, for measuring memory.

        Args:
            batch_size: Number of sequences.
            length: Tokens per sequence.
            device: Device of the tensors.

        Raises:
            OptionError: `vocab_size` of the config is not set.
        """
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
        """Return the observer of the training of this model, or None.

        Args:
            folder: Folder for its plots.
            seed: Seed of the run.
            autocast: Context manager with the precision of the run.
            is_sharded: Whether the weights are sharded over processes.
            last_step: Last step of the run.

        Examples:
            ```python
            watch = model.new_watch(Path("plots"), seed=0, autocast=nullcontext, is_sharded=False, last_step=1000)
            ```
        """
        return None

    def warnings(self, val_stats: Mapping[str, float], watch: Watch | None) -> tuple[str, ...]:
        """Return warnings about the trained model for the user.

        Args:
            val_stats: Statistics of the last validation.
            watch: The observer of the training, if there was one.
        """
        return ()

    # Text

    @property
    def can_write(self) -> bool:
        """Whether the model can generate text: it implements `forward`, `write` or `new_reader`."""
        own = type(self)
        return any(getattr(own, name) is not getattr(Model, name) for name in ("forward", "write", "new_reader"))

    def write(self, tokenizer: Tokenizer, request: TextRequest) -> Iterator[TextStream]:
        """Return the texts of `request`, each as a stream of its parts.

        Text i uses the seed `seed + i`. All texts of the first prompt come first, then those of the second.

        Args:
            tokenizer: Tokenizer of the model.
            request: Prompts and sampling options.

        Raises:
            OptionError: The model does not support an option of the request.

        Examples:
            ```python
            for stream in model.write(tokenizer, TextRequest(prompt="Once", num_texts=2)):
                print("".join(stream))
            ```
        """
        for name in ("reconstruct", "between"):
            if getattr(request, name) is not None:
                raise OptionError(
                    f"{name} is for models with latents, and this model continues a prompt. Pass prompt=… instead."
                )
        return continued(self, tokenizer, request)

    def new_reader(self, *, use_cache: bool = True) -> Reader:
        """Return an object that reads ids and returns the logits of the next id.

        Models with a cache override this method.

        Args:
            use_cache: Keep the keys and values of earlier tokens.

        Examples:
            ```python
            logits_V = model.new_reader().read([1, 2, 3])
            ```
        """
        return WindowReader(self)

    def new_row_reader(
        self, *, use_cache: bool, max_rows: int | None, num_rows: int, longest: int, use_graphs: bool
    ) -> RowReader:
        """Return an object that reads the ids of several texts at once. This default reads one text after another.

        Args:
            use_cache: Keep the keys and values of earlier tokens.
            max_rows: Maximum number of texts at once. None: as many as fit into memory.
            num_rows: Number of texts in all.
            longest: Maximum tokens per text.
            use_graphs: Allow CUDA graphs, which need weights that stay at their addresses.

        Examples:
            ```python
            reader = model.new_row_reader(use_cache=True, max_rows=None, num_rows=8, longest=256, use_graphs=False)
            ```
        """
        return OneByOne(self, use_cache=use_cache)

    def use_bfloat16(self) -> None:
        """Generate text in bfloat16 from now on. Only matrix products use it, so it is safe for any model.

        Examples:
            ```python
            model.use_bfloat16()
            ```
        """
        kind = next(self.parameters()).device.type
        for name in ("forward", "write"):
            setattr(self, name, torch.autocast(kind, torch.bfloat16)(getattr(self, name)))

    # Other libraries

    def exported(self, format: str, *, vocab_size: int) -> ForeignModel:
        """Return the model in the format of another library.

        Args:
            format: One of `EXPORTS`.
            vocab_size: Number of tokens of the tokenizer.

        Raises:
            OptionError: The model cannot be exported in this format.

        Examples:
            ```python
            foreign = model.exported("huggingface", vocab_size=tokenizer.vocab_size)
            ```
        """
        raise OptionError(
            f"model={self.config.name!r} cannot be exported: {type(self).__name__} has no exported(format, vocab_size)."
        )

    @classmethod
    def weights_of_huggingface(cls, config: Any, tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
        """Return the weights of a model with this config, converted from those of a transformers model.

        Args:
            config: Config of the new model.
            tensors: Weights of the transformers model. Tensors without data are allowed; then only their shapes are
                checked.
            source: Path of the weights, for messages.

        Raises:
            OptionError: This model cannot start from a transformers model.
            CheckpointError: The weights do not fit the config.

        Examples:
            ```python
            state = gm.lm.GPT.weights_of_huggingface(config, tensors, "llama/model.safetensors")
            ```
        """
        raise OptionError(
            f"model={config.name!r} cannot start from a transformers model ({source}). Pass the folder of a run."
        )
