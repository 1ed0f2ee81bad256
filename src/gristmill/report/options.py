"""Options: what the configuration of a run holds that its model takes.

A folder of today holds the options of the run and of its model. An older one holds the options of every model that
Gristmill knew. Which of them counted shows in the records: a run with latents recorded their KL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gristmill.report.records import Records

# Older folders have all of these. What each group belongs to:
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
    """The options of the run and of its model, those of other models left out; nested ones under `outer.inner`.

    A run that has recorded nothing yet keeps all: nothing shows which of them count.
    """
    config = dict(flat(records.config))
    if not config.keys() >= OF_WINDOWS | OF_LATENTS or not (len(records.train) or len(records.val)):
        return config
    foreign = OF_WINDOWS if records.has_latents else OF_LATENTS
    return {name: value for name, value in config.items() if name not in foreign}


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The entries of a nested object in one row, under names such as `outer.inner`.

    >>> list(flat({"seed": 0, "model": {"num_layers": 12}}))
    [('seed', 0), ('model.num_layers', 12)]
    """
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
