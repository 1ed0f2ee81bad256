"""Export of a trained model to the format of another program.

    gm.lm.export("run", "folder")                                  # transformers, vLLM, lm-evaluation-harness
    gm.lm.export("run", "model.gguf", format="gguf", dtype="q8_0")  # llama.cpp, Ollama

The exported model computes the same logits. Padding rows of the vocabulary, which belong to no token, are not exported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gristmill.arguments import check_choice
from gristmill.encode import as_tokenizer
from gristmill.errors import CheckpointError, OptionError
from gristmill.lm.data.chat_jinja import CHAT_TEMPLATE_FILE, read_template
from gristmill.lm.data.chat_template import ChatTemplate
from gristmill.lm.models.generation import end_of_text_id
from gristmill.lm.models.registry import MODELS, find_model
from gristmill.lm.training.checkpoint import find_checkpoint, load_model, read_state
from gristmill.lm.training.config import load_config
from gristmill.lm.use.exports import ALIASES, FORMATS
from gristmill.lm.use.exports.source import Chat, Source, Written
from gristmill.lm.use.generation import find_tokenizer
from gristmill.notebook import html_table
from gristmill.report import figures
from gristmill.trace import span

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import AnyTokenizer, Tokenizer
    from gristmill.lm.models.model import Model

__all__ = ["ModelExport", "export"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelExport:
    """Files and properties of an exported model, as `export` returns them.

    Examples:
        >>> written = ModelExport(
        ...     files=(), format="gguf", dtype="float16", architecture="llama", checkpoint="step-000100",
        ...     num_parameters=1000, vocab_size=512, how_to_load="llama-server -m model.gguf",
        ... )
        >>> written
        ModelExport(format='gguf', architecture='llama', files=0)
        >>> written.rows()[0]
        ('checkpoint', 'step-000100')
    """

    files: tuple[Path, ...]
    """Files that were written."""

    format: str
    """Format of the files: "huggingface" or "gguf"."""

    dtype: str
    """Type of the weights."""

    architecture: str
    """Name of the architecture in the other program."""

    checkpoint: str
    """Name of the exported checkpoint."""

    num_parameters: int
    """Number of exported parameters."""

    vocab_size: int
    """Number of tokens."""

    how_to_load: str
    """Line of code, or command, that loads the model."""

    notes: tuple[str, ...] = ()
    """Differences to note, such as tensors in another type."""

    def __repr__(self) -> str:
        return f"ModelExport(format={self.format!r}, architecture={self.architecture!r}, files={len(self.files)})"

    def _repr_html_(self) -> str:
        return html_table("ModelExport", self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the printed table as (name, value)."""
        return [
            ("checkpoint", self.checkpoint),
            ("format", f"{self.format}  ({self.architecture})"),
            ("parameters", f"{self.num_parameters:,}"),
            ("vocabulary", f"{self.vocab_size:,}"),
            ("dtype", self.dtype),
            *(("saved to", f"{path}  ({figures.size(path.stat().st_size)})") for path in self.files),
            *(("note", note) for note in self.notes),
            ("load it with", self.how_to_load),
        ]


def export(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: str = "huggingface",
    which: str = "best",
    dtype: str = "float32",
    overwrite: bool = False,
    tokenizer: AnyTokenizer | None = None,
) -> ModelExport:
    """Export the model of a run and its tokenizer to the format of another program.

    An interrupted export leaves no partial output.

    Args:
        run: Folder of the run.
        out: Folder to write ("huggingface"), or file to write ("gguf").
        format: "huggingface" for transformers, vLLM and tools built on them; "gguf" for llama.cpp and Ollama, which
            needs `pip install 'gristmill[export]'`.
        which: Checkpoint: "best", "latest" or a name such as "step-000100".
        dtype: Type of the weights: "float32", "bfloat16", "float16", and for "gguf" also "q8_0".
        overwrite: Replace an existing export. Other files, and folders that contain them, are never replaced.
        tokenizer: Tokenizer of the training data, or its path, for a run that does not store one.

    Returns:
        The written files and how to load them.

    Raises:
        OptionError: An option is invalid, or the model has no equivalent in the other program.
        CheckpointError: The run or checkpoint does not exist, or the tokenizer does not match the model.
        FileExistsError: `out` exists and may not be replaced.
        MissingPackageError: A package that writes the format is not installed.

    Examples:
        ```python
        gm.lm.export("run", "exported", dtype="bfloat16")
        gm.lm.export("run", "model.gguf", format="gguf", dtype="q8_0")
        ```
    """
    module = FORMATS[check_choice("format", format, FORMATS)]
    dtype = _checked_dtype(format, dtype)
    folder, target = _path("run", run), _path("out", out)
    given = None if tokenizer is None else as_tokenizer(tokenizer)
    checkpoint = find_checkpoint(folder, which)
    _check_exports(load_config(folder).model.name, format)
    module.check_target(target, overwrite=overwrite)
    model, found = _load(folder, checkpoint, given)
    chat = _chat(folder, found)
    foreign = model.exported(format, vocab_size=found.vocab_size)
    source = Source(
        model=foreign,
        tokenizer=found,
        name=folder.resolve().name,
        context_length=model.config.sequence_length,
        dtype=dtype,
        overwrite=overwrite,
        eos_token=_end_of_text(found),
        chat=chat,
    )
    with span("write model"):
        written: Written = module.write(source, target)
    return ModelExport(
        files=tuple(written.files),
        format=format,
        dtype=dtype,
        architecture=written.architecture,
        checkpoint=checkpoint.name,
        num_parameters=sum(tensor.numel() for tensor in foreign.weights.values()),
        vocab_size=found.vocab_size,
        how_to_load=written.how_to_load,
        notes=(*written.notes, *(chat.notes if chat is not None else ())),
    )


def _path(name: str, value: str | os.PathLike[str]) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise OptionError(f"{name}={value!r:.60} is not a path. Pass a str or a pathlib.Path.")
    return Path(value)


def _checked_dtype(format: str, dtype: str) -> str:
    offered = FORMATS[format].DTYPES
    if dtype in ALIASES:
        return ALIASES[dtype]
    if dtype == "q8_0" and dtype not in offered:
        raise OptionError(
            f"dtype={dtype!r} needs format='gguf'. Pass that format, or one of {', '.join(map(repr, offered))}."
        )
    return check_choice("dtype", dtype, offered)


def _check_exports(name: str, format: str) -> None:
    """Raise `OptionError` if other programs do not support the model, before its weights are read."""
    # Inherited EXPORTS do not count: a subclass that computes something else would be exported as its base class.
    exports = vars(find_model(name).network_class()).get("EXPORTS", ())
    if format in exports:
        return
    if exports:
        others = " or ".join(f"format={other!r}" for other in exports)
        raise OptionError(f"model={name!r} cannot be exported as format={format!r}. Pass {others}.")
    able = [other for other in MODELS if "EXPORTS" in vars(MODELS[other].network_class())]
    raise OptionError(
        f"model={name!r} cannot be exported: its network declares no EXPORTS, because other programs have no "
        f"equivalent model. Models with an export: {', '.join(map(repr, able))}."
    )


def _load(run: Path, checkpoint: Path, given: Tokenizer | None) -> tuple[Model, Tokenizer]:
    """Return the model and its tokenizer. Raise `CheckpointError` if the tokenizer has more tokens than the model."""
    model, _ = load_model(run, which=checkpoint.name)
    num_rows = model.config.required_vocab_size
    fingerprint = read_state(checkpoint)["shards"].get("tokenizer_fingerprint")
    tokenizer = find_tokenizer(run, fingerprint, model, given)
    if tokenizer.vocab_size > num_rows:
        raise CheckpointError(
            f"{run}: the tokenizer has {tokenizer.vocab_size:,} tokens, but the model has {num_rows:,}, because the "
            f"last ones did not occur in its training data. Train it with vocab_size={tokenizer.vocab_size}."
        )
    return model, tokenizer


def _end_of_text(tokenizer: Tokenizer) -> str | None:
    id = end_of_text_id(tokenizer)
    return next((name for name, other in tokenizer.special_tokens.items() if other == id), None)


def _chat(run: Path, tokenizer: Tokenizer) -> Chat | None:
    """Return the chat template of a run and the token that ends a response; None if the run has no template."""
    path = run / CHAT_TEMPLATE_FILE
    if not path.is_file():
        return None
    template = read_template(path)
    try:
        end_of_turn, text = ChatTemplate(template, tokenizer, name=str(path)).end_of_turn
    except OptionError as error:  # other programs may render templates that Gristmill rejects
        return Chat(template=template, end_of_turn=None, notes=(f"the token that ends a response is unknown: {error}",))
    if end_of_turn is not None:
        return Chat(template=template, end_of_turn=end_of_turn)
    advice = f": pass {text!r:.60} as a stop string to the other program" if text else ""
    note = f"the chat template ends responses without a special token{advice}"
    return Chat(template=template, end_of_turn=None, notes=(note,))
