"""SequenceVAE: encodes a whole sequence as a small vector, its latent, and reconstructs the sequence from it.

Read from top to bottom: posterior, measures against collapse, model.

    encoder    reads the whole sequence          -> mu, logvar of a Gaussian over latents, the posterior
    latent     z = mu + exp(logvar / 2) * noise
    decoder    z and the tokens so far           -> the next token

The layers are those of the GPT. The loss is the negative ELBO per token: the nats of the tokens given z, plus the KL
divergence of the posterior from the prior N(0, I). A decoder that predicts well without z stops using it, and the
posterior collapses to the prior. The options `free_bits` to `bag_of_words_weight` of `VAEConfig` work against that.

Shapes: B sequences, T tokens (or vectors of E numbers) per sequence, S attended tokens, D d_model, Z latent dimensions,
M memory positions, V vocabulary size, N = B * T, K head size, P = 2 * D pooled, Y = 2 * Z.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gristmill.errors import OptionError
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.models.generation import Reader, TextStream
from gristmill.lm.models.gpt.attention import RMSNorm, View, causal_view, rope_tables
from gristmill.lm.models.gpt.cache import Cache
from gristmill.lm.models.gpt.network import (
    INIT_STD,
    STREAM_WEIGHTS,
    Block,
    head_loss,
    stacked_in_blocks,
    to_stream,
)
from gristmill.lm.models.model import Model, Watch
from gristmill.lm.models.vae.health import health_of
from gristmill.lm.models.vae.options import VAEConfig
from gristmill.lm.models.vae.texts import requested_texts

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.models.requests import TextRequest
    from gristmill.lm.models.vae.posterior_watch import PosteriorWatch

__all__ = ["SequenceVAE"]

# A logvar outside of this range is far from the prior's 0, and its exp() would dominate the loss.
MAX_LOGVAR = 10.0
MOMENTUM = 0.1  # of the running statistics of mu, as in torch's batch norm
NORM_EPS = 1e-5
LOGVAR_STD = 0.1  # at initialization, where mu has 1: all posteriors are about as wide as the prior
# Initial scale of a latent in memory, relative to an embedding. At scale 1 the decoder started to use the latent much
# later among all the tokens, often only after the encoder had learned to ignore it.
MEMORY_LOUDNESS = 5.0
COUNTS_KEPT = 0.999  # decay of the token counts per batch
UNSEEN = 0.1  # count of a token that has not occurred yet
TOKENS_AT_ONCE = 8192  # tokens whose logits are in memory at once when nats are computed per sequence


# The posterior


class Posterior(nn.Module):
    """Compute mu and logvar of each sequence from the encoder's output, always in float32.

    The tokens are pooled by their mean and by their maximum, each normalized over its D numbers. The last token alone,
    or an extra token that attends to the others, gives nearly the same vector for every sequence before training, which
    starts a collapse. The mean reflects how much of everything a text has, but in long texts of one language all means
    are similar. The maximum reflects what occurs at all, and stays different between texts.

    With `encoder_shortcut` the embeddings are pooled too, bypassing the encoder. In the first ten steps, the gradients
    of all sequences push the latents in the same direction, and every encoder layer follows: the difference between
    sequences falls from half of the pooled vector to a thousandth, and takes hundreds of steps to recover. The
    embeddings keep their differences. The shortcut trains only its own matrix, so it cannot make the embeddings alike.
    """

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * config.d_model, 2 * config.latent_dim)
        has_shortcut = config.encoder_shortcut
        self.shortcut = nn.Linear(2 * config.d_model, 2 * config.latent_dim, bias=False) if has_shortcut else None
        self.batch_norm = BatchNormMu(config) if config.batch_norm_mu else None

    def forward(self, x_BTD: Tensor, embedded_BTD: Tensor, real_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Return (mu, logvar), B x Z each; `real_BT` is False on padding."""
        with torch.autocast(x_BTD.device.type, enabled=False):
            both_BY = self.linear(pooled(x_BTD, real_BT))
            if self.shortcut is not None:
                both_BY = both_BY + self.shortcut(pooled(embedded_BTD.detach(), real_BT))
            mu_BZ, logvar_BZ = both_BY.chunk(2, dim=-1)
            if self.batch_norm is not None:
                mu_BZ = self.batch_norm(mu_BZ, real_BT.any(1))
            return mu_BZ, logvar_BZ.clamp(-MAX_LOGVAR, MAX_LOGVAR)


def pooled(x_BTD: Tensor, real_BT: Tensor) -> Tensor:
    """Return the normalized mean and maximum over the tokens, as one vector of length 1: B x 2D, float32.

    Padding is ignored; a row that is all padding gives zeros. The length is 1 because Adam moves every weight by the
    same amount: with 2D inputs of size 1 per mu, a few steps would carry all posteriors far away from the prior.
    """
    real_BT1 = real_BT[..., None]
    num_real_B1 = real_BT.sum(1, keepdim=True)
    mean_BD = torch.where(real_BT1, x_BTD, 0).sum(1, dtype=torch.float32) / num_real_B1.clamp(min=1)
    # `max` by index instead of `amax`: the gradient of `amax` compares with the maximum, and when compiled in bfloat16
    # no element is equal to it.
    max_BD = torch.where(real_BT1, x_BTD, torch.finfo(x_BTD.dtype).min).max(1).values.float()
    max_BD = torch.where(num_real_B1 > 0, max_BD, 0)
    normed = [F.layer_norm(each, each.shape[-1:], eps=NORM_EPS) for each in (mean_BD, max_BD)]
    return torch.cat(normed, dim=-1) / math.sqrt(2 * x_BTD.shape[-1])


class BatchNormMu(nn.Module):
    """Normalize mu to mean 0 and standard deviation `batch_norm_mu` per dimension, so that no dimension has a KL of 0.

    Training uses the rows of the batch, evaluation the running statistics. Rows that are all padding do not count. A
    batch with a single row has no variance, so it is normalized by the running statistics and still updates them. That
    is a poor estimate; batches of at least 16 rows are better. There is no learned offset, because the prior has mean
    0.
    """

    running_mean_Z: Tensor
    running_var_Z: Tensor

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        self.scale = config.batch_norm_mu
        self.register_buffer("running_mean_Z", torch.zeros(config.latent_dim))
        self.register_buffer("running_var_Z", torch.ones(config.latent_dim))

    def forward(self, mu_BZ: Tensor, real_B: Tensor) -> Tensor:
        """Return the normalized mu; `real_B` is False for rows that are all padding."""
        mean_Z, var_Z = self.running_mean_Z, self.running_var_Z
        if self.training:
            num_real = real_B.sum()
            weights_B1 = (real_B / num_real.clamp(min=1))[:, None]
            batch_mean_Z = (mu_BZ * weights_B1).sum(0)
            batch_var_Z = ((mu_BZ - batch_mean_Z).square() * weights_B1).sum(0)
            is_enough = num_real > 1
            mean_Z = torch.where(is_enough, batch_mean_Z, mean_Z)
            var_Z = torch.where(is_enough, batch_var_Z, var_Z)
            self._follow(batch_mean_Z.detach(), batch_var_Z.detach(), num_real)
        return self.scale * (mu_BZ - mean_Z) * torch.rsqrt(var_Z + NORM_EPS)

    @torch.no_grad()
    def _follow(self, mean_Z: Tensor, var_Z: Tensor, num_real: Tensor) -> None:
        """Update the running statistics with these."""
        unbiased_Z = var_Z * num_real / (num_real - 1).clamp(min=1)
        # A single row has no variance: use its squared distance from the running mean.
        seen_var_Z = torch.where(num_real > 1, unbiased_Z, (mean_Z - self.running_mean_Z).square())
        share = torch.where(num_real > 0, MOMENTUM, 0.0)
        self.running_mean_Z.lerp_(mean_Z, share)
        self.running_var_Z.lerp_(seen_var_Z, share)


def kl_divergence(mu_BZ: Tensor, logvar_BZ: Tensor) -> Tensor:
    """Return the KL divergence of each dimension of the posteriors from N(0, 1), in nats.

    >>> kl_divergence(torch.tensor([[0.0, 2.0]]), torch.zeros(1, 2)).tolist()
    [[0.0, 2.0]]
    """
    return (mu_BZ.square() + logvar_BZ.exp() - 1 - logvar_BZ) / 2


def with_free_bits(kl_BZ: Tensor, real_B: Tensor, free_bits: float, mode: str) -> Tensor:
    """Return the penalized KL, summed over the batch.

    `free_bits` nats are free, per sequence ("total") or per dimension. Dimensions are compared by their mean over the
    sequences that are not padding.
    """
    if mode == "total":
        return (kl_BZ.sum(1).clamp(min=free_bits) * real_B).sum()
    num_real = real_B.sum()
    mean_Z = (kl_BZ * real_B[:, None]).sum(0) / num_real.clamp(min=1)
    return mean_Z.clamp(min=free_bits).sum() * num_real


class BagOfWords(nn.Module):
    """Predict all tokens of a sequence, in no order, from its latent alone.

    The overall token frequencies are counted, not learned, so the latent only has to encode how a sequence differs from
    the others. A learned bias moves by the learning rate per step, hundreds of steps too slowly. Until it is learned,
    the fastest way to reduce the loss is one latent for all sequences that encodes the frequencies, and the encoder
    stops distinguishing sequences.
    """

    counts_V: Tensor

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        self.vocab_size = config.blocks.required_vocab_size
        self.head = nn.Linear(config.latent_dim, config.blocks.padded_vocab_size)
        self.register_buffer("counts_V", torch.zeros(self.vocab_size))

    def forward(self, z_BZ: Tensor, targets_BT: Tensor) -> Tensor:
        """Return the nats of all targets that are not -100."""
        real_BT = targets_BT != IGNORED
        # Count first: gathering each target would sum gradients in a different order every time.
        counts_BV = torch.zeros(len(z_BZ), self.vocab_size, device=z_BZ.device)
        counts_BV = counts_BV.scatter_add(1, targets_BT.clamp(min=0), real_BT.to(counts_BV.dtype))
        logits_BV = self.head(z_BZ)[:, : self.vocab_size].float() + self._log_frequencies(counts_BV)
        return cast(Tensor, -(counts_BV * logits_BV.log_softmax(-1)).sum())

    @torch.no_grad()
    def _log_frequencies(self, counts_BV: Tensor) -> Tensor:
        """Return the log-frequency of each token in this batch and about the last thousand batches."""
        self.counts_V.mul_(COUNTS_KEPT).add_(counts_BV.sum(0))
        smooth_V = self.counts_V + UNSEEN
        return (smooth_V / smooth_V.sum()).log()


# The model


class SequenceVAE(Model):
    """A sequence VAE with a transformer encoder and a causal transformer decoder.

    Weights are drawn from torch's global generator as in the GPT, scaled so that the latent matters from the first
    step: mu has variance 1 over random input (less over similar texts), logvar is close to 0, and the projection of a
    latent from the prior is as large as an embedding (in memory, five times as large).

    Encoder and decoder share the embedding. Padding has no effect: the encoder masks it, and for the causal decoder it
    is in the future. The result of a row does not depend on its padding or on other rows, except through
    `batch_norm_mu` and free bits per dimension, which use batch statistics.

    Args:
        config: The options of the model, with either `vocab_size` or `embedding_dim` set.

    Attributes:
        config: The options of the model.
        embedding: Embedding of tokens, or a linear layer for vectors.
        dropout: Dropout after the embedding.
        encoder_blocks: Layers of the encoder.
        encoder_norm: Norm after the encoder.
        posterior: Layer that computes mu and logvar.
        latent: Projection of the latent into the decoder.
        start_D: First input of the decoder.
        unknown_D: Input that replaces dropped words, or None without `word_dropout`.
        decoder_blocks: Layers of the decoder.
        decoder_norm: Norm after the decoder.
        head: Output head, or None with `tie_embeddings`.
        bag_of_words: Prediction of words from the latent, or None without it.
        cos_TK: Cosines of the rotary positions.
        sin_TK: Sines of the rotary positions.

    Raises:
        OptionError: Both or neither of `vocab_size` and `embedding_dim` are set.

    Examples:
        >>> model = SequenceVAE(VAEConfig(vocab_size=300, max_sequence_length=8, num_layers=1, num_heads=2, d_model=16))
        >>> tokens_BT = torch.randint(300, (4, 8))
        >>> batch = Batch(tokens_BT, tokens_BT)
        >>> loss, stats = model.loss(batch, {"kl_weight": 0.5})
        >>> loss.backward()
        >>> stats["mu"].shape
        torch.Size([4, 32])
        >>> mu_BZ, logvar_BZ = model.encode(batch)
        >>> model.reconstruction_nats(batch, mu_BZ).shape
        torch.Size([4])
        >>> len(model.generate(mu_BZ, max_tokens=5, seed=0))
        4
        >>> decoded_BTD = model.decoded(model.starts(4), mu_BZ)
        >>> model.logits(decoded_BTD[:, -1]).shape
        torch.Size([4, 300])
        >>> with model.evaluating():
        ...     model.training
        False
        >>> model.initialise()
    """

    SHARDED_UNITS = ("encoder_blocks", "decoder_blocks")
    """Attributes with the layers that fsdp shards one by one."""
    SWITCHED_WEIGHTS = ("unknown_D", "bag_of_words.", "posterior.shortcut.", "posterior.batch_norm.")
    """Prefixes of weights that exist only while an option is on."""
    VALIDATES_EAGERLY = True
    """True: compiling again for evaluation takes longer than a few validations."""
    CAPTURES_STEPS = True
    """True: the loss never waits for the device."""

    config: VAEConfig
    cos_TK: Tensor
    sin_TK: Tensor

    def __init__(self, config: VAEConfig) -> None:
        super().__init__(config)
        if (config.vocab_size is None) == (config.embedding_dim is None):
            raise OptionError(
                f"vocab_size={config.vocab_size} and embedding_dim={config.embedding_dim}: exactly one must be set. "
                f"Pass vocab_size for sequences of tokens, or embedding_dim for sequences of vectors."
            )
        self._sizes = sizes = config.blocks
        # Parameters of an option exist only while it is on, because distributed training waits for every gradient.
        self.embedding = self._new_embedding()
        self.dropout = nn.Dropout(config.dropout) if config.dropout > 0 else nn.Identity()
        self.encoder_blocks = nn.ModuleList(Block(sizes) for _ in range(config.num_encoder_layers))
        self.encoder_norm = RMSNorm(sizes)
        self.posterior = Posterior(config)
        is_memory = config.latent_injection == "memory"
        # In memory, the bias distinguishes positions and keeps the norms from hiding the size of a latent.
        self.latent = nn.Linear(config.latent_dim, config.d_model * max(config.num_memory, 1), bias=is_memory)
        self.start_D = nn.Parameter(torch.empty(config.d_model))
        self.unknown_D = nn.Parameter(torch.empty(config.d_model)) if config.word_dropout else None
        self.decoder_blocks = nn.ModuleList(Block(sizes) for _ in range(config.num_layers))
        self.decoder_norm = RMSNorm(sizes)
        self.head = self._new_head()
        self.bag_of_words = BagOfWords(config) if config.bag_of_words_weight else None
        cos_TK, sin_TK = rope_tables(sizes)
        self.register_buffer("cos_TK", cos_TK, persistent=False)
        self.register_buffer("sin_TK", sin_TK, persistent=False)
        self.initialise()

    def _new_embedding(self) -> nn.Embedding | nn.Linear:
        if self.config.embedding_dim is None:
            return nn.Embedding(self._sizes.padded_vocab_size, self.config.d_model)
        return nn.Linear(self.config.embedding_dim, self.config.d_model)

    def _new_head(self) -> nn.Linear | None:
        if self.config.embedding_dim is not None:
            return nn.Linear(self.config.d_model, self.config.embedding_dim)
        # A tied model has no head: with a second name, checkpoints and optimizers would process the same weight twice.
        num_rows = self._sizes.padded_vocab_size
        return None if self.config.tie_embeddings else nn.Linear(self.config.d_model, num_rows, bias=False)

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw all parameters again from torch's global generator."""
        c = self.config
        for name, parameter in self.named_parameters():
            if name.endswith("norm.weight"):
                nn.init.ones_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=INIT_STD)
        for blocks in (self.encoder_blocks, self.decoder_blocks):
            for name, parameter in blocks.named_parameters():
                if name.endswith(STREAM_WEIGHTS):
                    nn.init.normal_(parameter, std=INIT_STD / math.sqrt(2 * len(blocks)))
        ways = [linear for linear in (self.posterior.linear, self.posterior.shortcut) if linear is not None]
        for linear in ways:
            mu_ZP, logvar_ZP = linear.weight.chunk(2)
            nn.init.normal_(mu_ZP, std=1 / math.sqrt(len(ways)))
            nn.init.normal_(logvar_ZP, std=LOGVAR_STD / math.sqrt(len(ways)))
        loudness = MEMORY_LOUDNESS if c.num_memory else 1.0
        nn.init.normal_(self.latent.weight, std=loudness * INIT_STD / math.sqrt(c.latent_dim))
        if self.latent.bias is not None:
            nn.init.normal_(self.latent.bias, std=INIT_STD)
        if c.vocab_size is not None:
            self.embedding.weight[c.vocab_size :] = 0
            self.head_weight[c.vocab_size :] = 0
            if self.bag_of_words is not None:
                self.bag_of_words.head.weight[c.vocab_size :] = 0

    @property
    def head_weight(self) -> Tensor:
        """Matrix from the residual stream to the logits: the head, or the embedding if they are tied."""
        return self.embedding.weight if self.head is None else self.head.weight

    # Training

    def loss(self, batch: Batch, schedule: Mapping[str, float | Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (reconstruction + kl_weight * KL) / number of targets, and the statistics.

        Training applies word dropout, free bits and the bag of words where they are on. Evaluation applies none of
        them, so with kl_weight=1 the loss is the negative ELBO per token. The latent is sampled in both. The statistics
        are loss, reconstruction (nats per token), kl (nats per sequence, before free bits), mu, logvar and z (B x Z,
        float32).

        Args:
            batch: The micro-batch.
            schedule: "kl_weight", 1 if missing. As a tensor it may change between steps without compiling again.

        Raises:
            OptionError: The sequences are longer than `max_sequence_length`, or the model needs vectors and the batch
                has none.
        """
        real_BT = batch.targets_BT != IGNORED
        real_B = real_BT.any(1)
        num_targets = real_BT.sum().clamp(min=1)
        x_BTD = self._embedded(batch)
        mu_BZ, logvar_BZ = self._posterior(x_BTD, real_BT)
        z_BZ = mu_BZ + (logvar_BZ / 2).exp() * torch.randn_like(mu_BZ)
        reconstruction = self._reconstruction(x_BTD, z_BZ, batch)
        kl_BZ = kl_divergence(mu_BZ, logvar_BZ) * real_B[:, None]
        kl_sum = costly_kl = kl_BZ.sum()
        if self.training and self.config.free_bits:
            costly_kl = with_free_bits(kl_BZ, real_B, self.config.free_bits, self.config.free_bits_mode)
        loss = reconstruction + schedule.get("kl_weight", 1.0) * costly_kl / num_targets
        if self.training and self.bag_of_words is not None:
            nats = self.bag_of_words(z_BZ, batch.targets_BT)
            loss = loss + self.config.bag_of_words_weight * nats / num_targets
        stats = {
            "loss": loss,
            "reconstruction": reconstruction,
            "kl": kl_sum / real_B.sum().clamp(min=1),
            "mu": mu_BZ,
            "logvar": logvar_BZ,
            "z": z_BZ,
        }
        return loss, {name: value.detach() for name, value in stats.items()}

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (mu, logvar) of every sequence, B x Z each.

        Args:
            batch: Sequences, with targets of -100 on padding.

        Raises:
            OptionError: The sequences are longer than `max_sequence_length`, or the model needs vectors and the batch
                has none.
        """
        return self._posterior(self._embedded(batch), batch.targets_BT != IGNORED)

    def _embedded(self, batch: Batch) -> Tensor:
        """Return the embedded tokens or vectors, which encoder and decoder share."""
        num_tokens = batch.inputs_BT.shape[1]
        if num_tokens > self.config.max_sequence_length:
            raise OptionError(
                f"{num_tokens:,} tokens are more than max_sequence_length={self.config.max_sequence_length:,}. Pass "
                f"fewer, or train with a longer max_sequence_length."
            )
        if self.config.embedding_dim is None:
            return cast(Tensor, self.embedding(batch.inputs_BT))
        if batch.vectors_BTE is None:
            raise OptionError("the model takes sequences of vectors, but the batch has no vectors. Pass vectors_BTE.")
        return cast(Tensor, self.embedding(batch.vectors_BTE))

    def _posterior(self, x_BTD: Tensor, real_BT: Tensor) -> tuple[Tensor, Tensor]:
        num_tokens = x_BTD.shape[1]
        # The first position is never masked: in a row that is all padding, a softmax over nothing would be NaN.
        is_first_T = torch.arange(num_tokens, device=x_BTD.device) == 0
        mask_B11S = (real_BT | is_first_T)[:, None, None]
        view = View(self.cos_TK[:num_tokens, None, None], self.sin_TK[:num_tokens, None, None], mask_B11S, False)
        embedded_BTD = x_BTD
        x_BTD = self.dropout(to_stream(x_BTD, self._sizes))
        for block in self.encoder_blocks:
            x_BTD = block(x_BTD, view, None)
        return cast(tuple[Tensor, Tensor], self.posterior(self.encoder_norm(x_BTD), embedded_BTD, real_BT))

    def decoded(self, x_BTD: Tensor, z_BZ: Tensor, cache: Cache | None = None) -> Tensor:
        """Return the residual stream after each decoder input: B x T x D.

        Args:
            x_BTD: Inputs, of which the first one is that of `starts`.
            z_BZ: Latents.
            cache: Keys and values of earlier inputs, to which those of `x_BTD` are appended.

        Raises:
            RuntimeError: The shapes do not match.
        """
        num_inputs, begin = x_BTD.shape[1], 0 if cache is None else cache.length
        if self.config.num_memory == 0:
            x_BTD = x_BTD + self.latent(z_BZ)[:, None]
        elif begin == 0:
            memory_BMD = self.latent(z_BZ).unflatten(-1, (self.config.num_memory, -1))
            x_BTD = torch.cat([memory_BMD.to(x_BTD.dtype), x_BTD], dim=1)
        view = causal_view(self.cos_TK, self.sin_TK, begin, x_BTD.shape[1])
        x_BTD = self.dropout(to_stream(x_BTD, self._sizes))
        for index, block in enumerate(self.decoder_blocks):
            x_BTD = block(x_BTD, view, None if cache is None else cache.layer(index))
        if cache is not None:
            cache.length += view.cos_T11K.shape[0]
        return cast(Tensor, self.decoder_norm(x_BTD[:, -num_inputs:]))

    def _shifted(self, x_BTD: Tensor) -> Tensor:
        """Return the decoder inputs: the start, then all tokens but the last one, with word dropout in training."""
        before_BTD = x_BTD[:, :-1]
        if self.training and self.unknown_D is not None:
            is_dropped_BT1 = torch.rand(before_BTD.shape[:2], device=x_BTD.device)[..., None] < self.config.word_dropout
            before_BTD = torch.where(is_dropped_BT1, self.unknown_D.to(x_BTD.dtype), before_BTD)
        return torch.cat([self.starts(len(x_BTD)).to(x_BTD.dtype), before_BTD], dim=1)

    def starts(self, batch_size: int) -> Tensor:
        """Return the first decoder input of each sequence: B x 1 x D.

        Args:
            batch_size: Number of sequences, B.
        """
        return self.start_D.expand(batch_size, 1, -1)

    def _reconstruction(self, x_BTD: Tensor, z_BZ: Tensor, batch: Batch) -> Tensor:
        """Return the mean nats per target."""
        decoded_BTD = self.decoded(self._shifted(x_BTD), z_BZ)
        if self.config.embedding_dim is None:
            return head_loss(decoded_BTD.flatten(0, 1), self.head_weight, batch.targets_BT.flatten(), self._sizes)
        return self._vector_nats(decoded_BTD, batch).sum() / batch.num_targets.clamp(min=1)

    def _vector_nats(self, decoded_BTD: Tensor, batch: Batch) -> Tensor:
        """Return the nats of each vector; 0 on padding.

        The decoder predicts the mean of a Gaussian of variance 1.
        """
        assert self.head is not None and batch.vectors_BTE is not None
        squares_BT = (batch.vectors_BTE - self.head(decoded_BTD).float()).square().sum(-1)
        nats_BT = (squares_BT + batch.vectors_BTE.shape[-1] * math.log(2 * math.pi)) / 2
        return cast(Tensor, nats_BT * (batch.targets_BT != IGNORED))

    # Use

    @torch.no_grad()
    def reconstruction_nats(self, batch: Batch, z_BZ: Tensor) -> Tensor:
        """Return the nats of each whole sequence, decoded from the given latents in evaluation mode.

        Draws no random numbers, so calling it during training does not change the run.

        Args:
            batch: Sequences, with targets of -100 on padding.
            z_BZ: Latents, which may belong to other sequences.

        Raises:
            OptionError: The sequences are longer than `max_sequence_length`, or the model needs vectors and the batch
                has none.
        """
        with self.evaluating():
            decoded_BTD = self.decoded(self._shifted(self._embedded(batch)), z_BZ)
            if self.config.embedding_dim is not None:
                return self._vector_nats(decoded_BTD, batch).sum(1)
            x_ND, targets_N = decoded_BTD.flatten(0, 1), batch.targets_BT.flatten()
            parts = zip(torch.split(x_ND, TOKENS_AT_ONCE), torch.split(targets_N, TOKENS_AT_ONCE), strict=True)
            nats = [F.cross_entropy(self.logits(x_CD), targets_C, reduction="none") for x_CD, targets_C in parts]
            return torch.cat(nats).view_as(batch.targets_BT).sum(1)

    @torch.no_grad()
    def generate(
        self,
        z_NZ: Tensor,
        *,
        max_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop_id: int | None = None,
    ) -> list[list[int]]:
        """Return the ids that the decoder generates from each latent, in evaluation mode.

        A sequence ends before `stop_id`, and has at most `max_tokens` and at most `max_sequence_length` tokens.

        Args:
            z_NZ: Latents.
            max_tokens: Maximum tokens per sequence.
            temperature: 0 picks the most likely token. Below 1 favors likely tokens, above 1 flattens their
                distribution.
            top_k: Choose among the k most likely tokens. None: all.
            top_p: Choose among the fewest tokens with a total probability of at least p. None: all.
            seed: Seed of the random choices. None: a fresh random seed.
            stop_id: Id that ends a sequence. None: no such id.

        Raises:
            OptionError: An option is out of range.
        """
        from gristmill.lm.models.vae.latent_decoding import generate_ids

        with self.evaluating():
            return generate_ids(
                self,
                z_NZ,
                max_tokens=max_tokens,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                stop_id=stop_id,
            )

    @torch.no_grad()
    def decode_vectors(self, z_NZ: Tensor, length: int) -> Tensor:
        """Return the vectors that the decoder predicts from each latent, one after another: N x length x E.

        Args:
            z_NZ: Latents.
            length: Vectors per sequence.

        Raises:
            OptionError: The model is one of tokens, or `length` is out of range.

        Examples:
            >>> config = VAEConfig(embedding_dim=3, max_sequence_length=8, num_layers=1, d_model=16, latent_dim=2)
            >>> SequenceVAE(config).decode_vectors(torch.zeros(1, 2), 5).shape
            torch.Size([1, 5, 3])
        """
        from gristmill.lm.models.vae.latent_decoding import decode_vectors

        with self.evaluating():
            return decode_vectors(self, z_NZ, length)

    def logits(self, x_ND: Tensor) -> Tensor:
        """Return the float32 logits of the token after each position of the decoded stream.

        Args:
            x_ND: Positions of the stream that `decoded` returns.

        Raises:
            RuntimeError: The shapes do not match.
        """
        return F.linear(x_ND, self.head_weight)[..., : self.config.vocab_size].float()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Return a context manager that switches to evaluation mode, and back on exit."""
        was_training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was_training)

    def write(self, tokenizer: Tokenizer, request: TextRequest) -> Iterator[TextStream]:
        """Return texts from latents: samples of the prior, a reconstruction, or interpolations between two texts."""
        return (TextStream([text]) for text in requested_texts(self, tokenizer, request))

    def new_reader(self, *, use_cache: bool = True) -> Reader:
        """Raise `OptionError`: the decoder needs a latent and cannot continue a prompt."""
        raise OptionError(
            "a VAE generates whole texts from latents and cannot continue a prompt. Call gm.lm.sample_texts()."
        )

    # Sizes and statistics

    def random_batch(self, batch_size: int, length: int, device: torch.device) -> Batch:
        """Return a random batch of tokens or vectors, for measuring memory."""
        if self.config.embedding_dim is None:
            return super().random_batch(batch_size, length, device)
        none_BT = torch.zeros(batch_size, length, dtype=torch.int64, device=device)
        return Batch(
            none_BT, none_BT, vectors_BTE=torch.randn(*none_BT.shape, self.config.embedding_dim, device=device)
        )

    def new_watch(
        self,
        folder: Path,
        *,
        seed: int,
        autocast: Callable[[], AbstractContextManager[object]],
        is_sharded: bool,
        last_step: int,
    ) -> PosteriorWatch | None:
        """Return the posterior monitor, or None if it is disabled."""
        if self.config.disable_metrics_monitoring:
            return None
        from gristmill.lm.models.vae.posterior_watch import PosteriorWatch

        return PosteriorWatch(
            self, folder, seed=seed, autocast=autocast, can_decode=not is_sharded, last_step=last_step
        )

    def warnings(self, val_stats: Mapping[str, float], watch: Watch | None) -> tuple[str, ...]:
        """Return a warning if the posterior has collapsed."""
        from gristmill.lm.models.vae.posterior_watch import PosteriorWatch

        kl = val_stats.get("kl")
        return (watch.health(kl) if isinstance(watch, PosteriorWatch) else health_of(kl)).warnings

    def stacked_weights(self) -> dict[str, int | tuple[int, ...]]:
        """Return the weights that consist of several stacked matrices, which Muon handles separately."""
        return {
            **stacked_in_blocks(self, self._sizes),
            "posterior.linear.weight": 2,
            **({"posterior.shortcut.weight": 2} if self.config.encoder_shortcut else {}),
            "latent.weight": max(self.config.num_memory, 1),
        }

    def flops_per_token(self, context_length: int | None = None) -> int:
        """Return the floating-point operations per token, forward and backward, in sequences of T: 6 N + 12 L D T.

        N counts the parameters that every token is multiplied with: the L layers of encoder and decoder, and the head
        without padding rows; for vectors also the embedding. Work done once per sequence (posterior, memory, bag of
        words) is not counted.

        Args:
            context_length: T. None: `max_sequence_length`.
        """
        c = self.config
        length = c.max_sequence_length if context_length is None else context_length
        blocks = [*self.encoder_blocks, *self.decoder_blocks]
        norms = [self.encoder_norm, self.decoder_norm]
        num_multiplied: int = sum(p.numel() for module in (*blocks, *norms) for p in module.parameters())
        num_multiplied += c.d_model * (c.vocab_size or 2 * (c.embedding_dim or 0))
        return 6 * num_multiplied + 12 * len(blocks) * c.d_model * length
