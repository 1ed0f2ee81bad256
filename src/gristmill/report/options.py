"""Options: the part of a run's configuration that its model uses.

A current run folder has the options of the run and of its model. Older folders have the options of every model of that
version. The records show which of them were used: a run with latents recorded their KL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gristmill.report.records import Records

# Older folders have all of these. Options of windows of tokens, and of models with latents:
OF_WINDOWS = frozenset({"context_length", "document_mask", "sample_prompt"})
OF_LATENTS = frozenset(
    {
        *("max_sequence_length", "encoder_layers", "latent_dim", "latent_injection", "memory_tokens", "embedding_dim"),
        *("kl_weight", "kl_schedule", "kl_warmup_steps", "kl_cycles", "free_bits", "free_bits_mode", "word_dropout"),
        *("batch_norm_mu", "bag_of_words_weight", "tokenizer", "text_column", "tokens_column", "embedding_columns"),
        *("val_fraction", "cache_dir", "use_dynamic_padding", "num_buckets", "num_workers", "pin_memory"),
        *("prefetch_factor", "disable_metrics_monitoring", "fast_detection", "update_frequency", "plot_frequency"),
        "window_size",
    }
)


def model_options(records: Records) -> dict[str, Any]:
    """Return the options of the run and of its model, without those of other models; nested ones as `outer.inner`.

    A run without records keeps all: nothing shows which of them are used.
    """
    config = dict(flat(records.config))
    if not config.keys() >= OF_WINDOWS | OF_LATENTS or not (len(records.train) or len(records.val)):
        return config
    foreign = OF_WINDOWS if records.has_latents else OF_LATENTS
    return {name: value for name, value in config.items() if name not in foreign}


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the entries of a nested object, with names such as `outer.inner`.

    >>> list(flat({"seed": 0, "model": {"num_layers": 12}}))
    [('seed', 0), ('model.num_layers', 12)]
    """
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
