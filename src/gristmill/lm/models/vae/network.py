"""SequenceVAE: a whole sequence becomes a few numbers, its latent, and the sequence again. Read from top to bottom:
posterior, switches against collapse, model.

    encoder    sees the whole sequence           -> mu, logvar of a Gaussian over latents, the posterior
    latent     z = mu + exp(logvar / 2) * noise
    decoder    z and the tokens so far           -> the next token

The layers are those of the GPT. The loss is the bound -ELBO a token: the nats of the tokens given z, and the KL
divergence of the posterior from the prior N(0, I). A decoder that is good enough without z stops asking for it: the
posterior collapses onto the prior. The switches of `VAEConfig` from `word_dropout` on work against that.

Shapes: B sequences, T tokens (or vectors of E numbers) each, S that are attended to, D d_model, Z latent dimensions,
M memory positions, V tokens of the vocabulary, N = B * T, K numbers of a head, P = 2 * D pooled, Y = 2 * Z.
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

# A posterior narrower or wider than this is nowhere near a prior of width 1, and exp() of it would spoil everything.
MAX_LOGVAR = 10.0
MOMENTUM = 0.1  # of the running statistics of mu, as in torch's batch norm
NORM_EPS = 1e-5
LOGVAR_STD = 0.1  # at the start, when that of mu is 1: all posteriors are about as wide as the prior
# How much larger than an embedding a latent is at the start, in memory: as large as one, among all the tokens, it was
# found much later, and often only after the encoder had learned that it is of no use.
MEMORY_LOUDNESS = 5.0
COUNTS_KEPT = 0.999  # of the counts of tokens, from one batch to the next
UNSEEN = 0.1  # the count of a token that has not been seen
TOKENS_AT_ONCE = 8192  # whose logits are there together when every sequence is reckoned by itself


# The posterior


class Posterior(nn.Module):
    """mu and logvar of each sequence, from what the encoder made of its tokens; in float32, whatever the rest is.

    The tokens are pooled twice, by their mean and by their maximum, each normed over its D numbers. The last token
    alone, or a token of its own that attends to the others, gives nearly the same for every sequence before it is
    trained, which is how a posterior begins to collapse. The mean knows how much of everything there is, but in long
    texts of one language all means come near each other; the maximum knows what is there at all, and stays spread.

    With `encoder_shortcut` the embeddings are pooled too, past the encoder. In the first ten steps all gradients of the
    encoder agree on where the latents of all sequences should move, and every layer moves with them: what differs
    between sequences falls from half of what is pooled to a thousandth, and takes hundreds of steps to come back. The
    embeddings keep their differences. The shortcut trains only its own matrix, so that it cannot move them alike.
    """

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * config.d_model, 2 * config.latent_dim)
        has_shortcut = config.encoder_shortcut
        self.shortcut = nn.Linear(2 * config.d_model, 2 * config.latent_dim, bias=False) if has_shortcut else None
        self.batch_norm = BatchNormMu(config) if config.batch_norm_mu else None

    def forward(self, x_BTD: Tensor, embedded_BTD: Tensor, real_BT: Tensor) -> tuple[Tensor, Tensor]:
        """(mu, logvar), B x Z each; `real_BT` is False on padding."""
        with torch.autocast(x_BTD.device.type, enabled=False):
            both_BY = self.linear(pooled(x_BTD, real_BT))
            if self.shortcut is not None:
                both_BY = both_BY + self.shortcut(pooled(embedded_BTD.detach(), real_BT))
            mu_BZ, logvar_BZ = both_BY.chunk(2, dim=-1)
            if self.batch_norm is not None:
                mu_BZ = self.batch_norm(mu_BZ, real_BT.any(1))
            return mu_BZ, logvar_BZ.clamp(-MAX_LOGVAR, MAX_LOGVAR)


def pooled(x_BTD: Tensor, real_BT: Tensor) -> Tensor:
    """The mean and the maximum over the tokens that are no padding, normed, as one vector of length 1: B x 2D, float32.

    Of length 1, because Adam moves every weight by the same amount: with 2D numbers around 1 behind a mu, a few steps
    would carry all posteriors far away from the prior. A row of nothing but padding gives zeros.
    """
    real_BT1 = real_BT[..., None]
    num_real_B1 = real_BT.sum(1, keepdim=True)
    mean_BD = torch.where(real_BT1, x_BTD, 0).sum(1, dtype=torch.float32) / num_real_B1.clamp(min=1)
    # By index, not `amax`: its gradient looks for what equals the maximum, and compiled in bfloat16 finds nothing.
    max_BD = torch.where(real_BT1, x_BTD, torch.finfo(x_BTD.dtype).min).max(1).values.float()
    max_BD = torch.where(num_real_B1 > 0, max_BD, 0)
    normed = [F.layer_norm(each, each.shape[-1:], eps=NORM_EPS) for each in (mean_BD, max_BD)]
    return torch.cat(normed, dim=-1) / math.sqrt(2 * x_BTD.shape[-1])


class BatchNormMu(nn.Module):
    """mu with mean 0 and deviation `batch_norm_mu` in every dimension, so that KL cannot become 0 in any of them.

    In training by the rows of the batch, otherwise by running statistics. Rows of nothing but padding do not count. A
    batch with a single row, which has no variance, is normed by the running statistics, and moves them too; it is a
    poor estimate, and batches of at least 16 rows are better. There is no learned offset: the prior has mean 0.
    """

    running_mean_Z: Tensor
    running_var_Z: Tensor

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        self.scale = config.batch_norm_mu
        self.register_buffer("running_mean_Z", torch.zeros(config.latent_dim))
        self.register_buffer("running_var_Z", torch.ones(config.latent_dim))

    def forward(self, mu_BZ: Tensor, real_B: Tensor) -> Tensor:
        """The normed mu; `real_B` is False for rows of nothing but padding."""
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
        """Move the running statistics towards these."""
        unbiased_Z = var_Z * num_real / (num_real - 1).clamp(min=1)
        # Of a single row the only spread there is: how far it lies from the mean so far.
        seen_var_Z = torch.where(num_real > 1, unbiased_Z, (mean_Z - self.running_mean_Z).square())
        share = torch.where(num_real > 0, MOMENTUM, 0.0)
        self.running_mean_Z.lerp_(mean_Z, share)
        self.running_var_Z.lerp_(seen_var_Z, share)


def kl_divergence(mu_BZ: Tensor, logvar_BZ: Tensor) -> Tensor:
    """The nats by which each dimension of a posterior differs from N(0, 1).

    >>> kl_divergence(torch.tensor([[0.0, 2.0]]), torch.zeros(1, 2)).tolist()
    [[0.0, 2.0]]
    """
    return (mu_BZ.square() + logvar_BZ.exp() - 1 - logvar_BZ) / 2


def with_free_bits(kl_BZ: Tensor, real_B: Tensor, free_bits: float, mode: str) -> Tensor:
    """The sum of KL that costs something, where a sequence ("total") or a dimension has so many nats for nothing.

    A dimension is judged by its mean over the sequences of the batch that are no padding.
    """
    if mode == "total":
        return (kl_BZ.sum(1).clamp(min=free_bits) * real_B).sum()
    num_real = real_B.sum()
    mean_Z = (kl_BZ * real_B[:, None]).sum(0) / num_real.clamp(min=1)
    return mean_Z.clamp(min=free_bits).sum() * num_real


class BagOfWords(nn.Module):
    """All tokens of a sequence, whatever their order, predicted from its latent alone.

    How frequent a token is anywhere is counted, not learned: the latent is left with what makes a sequence different
    from the others. A learned bias rises by the learning rate per step, hundreds of steps too slowly. Until then the
    quickest way to a good loss is one latent for all sequences that holds the frequencies, and the encoder forgets to
    tell sequences apart.
    """

    counts_V: Tensor

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        self.vocab_size = config.blocks.required_vocab_size
        self.head = nn.Linear(config.latent_dim, config.blocks.padded_vocab_size)
        self.register_buffer("counts_V", torch.zeros(self.vocab_size))

    def forward(self, z_BZ: Tensor, targets_BT: Tensor) -> Tensor:
        """The nats of all targets that are not -100."""
        real_BT = targets_BT != IGNORED
        # Counts first: gathering each target would add up its gradients in another order every time.
        counts_BV = torch.zeros(len(z_BZ), self.vocab_size, device=z_BZ.device)
        counts_BV = counts_BV.scatter_add(1, targets_BT.clamp(min=0), real_BT.to(counts_BV.dtype))
        logits_BV = self.head(z_BZ)[:, : self.vocab_size].float() + self._log_frequencies(counts_BV)
        return cast(Tensor, -(counts_BV * logits_BV.log_softmax(-1)).sum())

    @torch.no_grad()
    def _log_frequencies(self, counts_BV: Tensor) -> Tensor:
        """The log-frequency of each token in this batch and about the last thousand."""
        self.counts_V.mul_(COUNTS_KEPT).add_(counts_BV.sum(0))
        smooth_V = self.counts_V + UNSEEN
        return (smooth_V / smooth_V.sum()).log()


# The model


class SequenceVAE(Model):
    """The model.

    Initialised by torch's global generator as the GPT is, and so that the latent matters from the first step: mu has
    variance 1 over random input (a part of it over texts of one kind), logvar lies near 0, and what a latent of the
    prior becomes in the decoder is as large as an embedding (in memory, five times as large).

    Encoder and decoder share the embedding. Padding is seen by nobody: the encoder masks it, and to the decoder, which
    is causal, it lies in the future. A row comes out the same, however far it is padded and whatever the others are
    (but for `batch_norm_mu` and free bits of dimensions, which are about batches).

    >>> model = SequenceVAE(VAEConfig(vocab_size=300, max_sequence_length=8, num_layers=1, num_heads=2, d_model=16))
    >>> tokens_BT = torch.randint(300, (4, 8))
    >>> loss, stats = model.loss(Batch(tokens_BT, tokens_BT), {"kl_weight": 0.5})
    >>> loss.backward()
    >>> stats["mu"].shape
    torch.Size([4, 32])
    """

    SHARDED_UNITS = ("encoder_blocks", "decoder_blocks")
    SWITCHED_WEIGHTS = ("unknown_D", "bag_of_words.", "posterior.shortcut.", "posterior.batch_norm.")
    # To compile it once more for evaluation takes longer than a few validations do.
    VALIDATES_EAGERLY = True

    config: VAEConfig
    cos_TK: Tensor
    sin_TK: Tensor

    def __init__(self, config: VAEConfig) -> None:
        super().__init__(config)
        if (config.vocab_size is None) == (config.embedding_dim is None):
            raise OptionError(
                f"vocab_size={config.vocab_size} and embedding_dim={config.embedding_dim}: pass vocab_size for "
                f"sequences of tokens, or embedding_dim for sequences of vectors."
            )
        self._sizes = sizes = config.blocks
        # What a switch needs is there only when it is on: processes that share their gradients wait for each of them.
        self.embedding = self._new_embedding()
        self.dropout = nn.Dropout(config.dropout) if config.dropout > 0 else nn.Identity()
        self.encoder_blocks = nn.ModuleList(Block(sizes) for _ in range(config.num_encoder_layers))
        self.encoder_norm = RMSNorm(sizes)
        self.posterior = Posterior(config)
        is_memory = config.latent_injection == "memory"
        # In memory, the bias tells positions apart and keeps the norms from hiding how large a latent is.
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
        # Tied, there is no head: a second name for the same numbers would be a trap for checkpoints and optimizers.
        num_rows = self._sizes.padded_vocab_size
        return None if self.config.tie_embeddings else nn.Linear(self.config.d_model, num_rows, bias=False)

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw all parameters anew."""
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
        """The matrix from the stream to the logits: that of the head, or of the embedding."""
        return self.embedding.weight if self.head is None else self.head.weight

    # Training

    def loss(self, batch: Batch, schedule: Mapping[str, float | Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """(reconstruction + kl_weight * KL) / number of targets, and what is worth knowing of it.

        schedule: "kl_weight"; 1, the bound itself, where there is none. As a tensor it may change from step to step
            without a new compilation.

        In training with word dropout, free bits and the bag of words, as they are switched on; in evaluation without
        any of them, so that with kl_weight=1 it is -ELBO a token. The latent is drawn either way. The stats: loss,
        reconstruction (nats a token), kl (nats a sequence, before free bits), mu, logvar and z (B x Z, float32).
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
        """(mu, logvar) of every sequence, B x Z each."""
        return self._posterior(self._embedded(batch), batch.targets_BT != IGNORED)

    def _embedded(self, batch: Batch) -> Tensor:
        """What stands for each token, or vector, in encoder and decoder alike."""
        num_tokens = batch.inputs_BT.shape[1]
        if num_tokens > self.config.max_sequence_length:
            raise OptionError(
                f"{num_tokens:,} tokens are more than max_sequence_length={self.config.max_sequence_length:,}. Pass "
                f"fewer, or train with a longer max_sequence_length."
            )
        if self.config.embedding_dim is None:
            return cast(Tensor, self.embedding(batch.inputs_BT))
        if batch.vectors_BTE is None:
            raise OptionError("the model takes sequences of vectors, and the batch has none. Pass vectors_BTE.")
        return cast(Tensor, self.embedding(batch.vectors_BTE))

    def _posterior(self, x_BTD: Tensor, real_BT: Tensor) -> tuple[Tensor, Tensor]:
        num_tokens = x_BTD.shape[1]
        # The first position is always seen: a softmax over nothing, in a row that is all padding, is not a number.
        is_first_T = torch.arange(num_tokens, device=x_BTD.device) == 0
        mask_B11S = (real_BT | is_first_T)[:, None, None]
        view = View(self.cos_TK[:num_tokens, None, None], self.sin_TK[:num_tokens, None, None], mask_B11S, False)
        embedded_BTD = x_BTD
        x_BTD = self.dropout(to_stream(x_BTD, self._sizes))
        for block in self.encoder_blocks:
            x_BTD = block(x_BTD, view, None)
        return cast(tuple[Tensor, Tensor], self.posterior(self.encoder_norm(x_BTD), embedded_BTD, real_BT))

    def decoded(self, x_BTD: Tensor, z_BZ: Tensor, cache: Cache | None = None) -> Tensor:
        """The stream after each of these inputs, the first of which is the start, given the latent: B x T x D."""
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
        """What the decoder reads before each token: the start, and the tokens but the last, less those dropped."""
        before_BTD = x_BTD[:, :-1]
        if self.training and self.unknown_D is not None:
            is_dropped_BT1 = torch.rand(before_BTD.shape[:2], device=x_BTD.device)[..., None] < self.config.word_dropout
            before_BTD = torch.where(is_dropped_BT1, self.unknown_D.to(x_BTD.dtype), before_BTD)
        return torch.cat([self.starts(len(x_BTD)).to(x_BTD.dtype), before_BTD], dim=1)

    def starts(self, batch_size: int) -> Tensor:
        """What the decoder reads first in each sequence: B x 1 x D."""
        return self.start_D.expand(batch_size, 1, -1)

    def _reconstruction(self, x_BTD: Tensor, z_BZ: Tensor, batch: Batch) -> Tensor:
        """The mean nats of a target."""
        decoded_BTD = self.decoded(self._shifted(x_BTD), z_BZ)
        if self.config.embedding_dim is None:
            return head_loss(decoded_BTD.flatten(0, 1), self.head_weight, batch.targets_BT.flatten(), self._sizes)
        return self._vector_nats(decoded_BTD, batch).sum() / batch.num_targets.clamp(min=1)

    def _vector_nats(self, decoded_BTD: Tensor, batch: Batch) -> Tensor:
        """The nats of each vector under a Gaussian of variance 1 around what the decoder expects; 0 on padding."""
        assert self.head is not None and batch.vectors_BTE is not None
        squares_BT = (batch.vectors_BTE - self.head(decoded_BTD).float()).square().sum(-1)
        nats_BT = (squares_BT + batch.vectors_BTE.shape[-1] * math.log(2 * math.pi)) / 2
        return cast(Tensor, nats_BT * (batch.targets_BT != IGNORED))

    # Use

    @torch.no_grad()
    def reconstruction_nats(self, batch: Batch, z_BZ: Tensor) -> Tensor:
        """The nats of each whole sequence, decoded from these latents instead of its own; as in evaluation.

        Draws no random numbers, so that looking at a model in training changes nothing.
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
        """The ids that the decoder makes of each latent: none from `stop_id` on, and at most `max_tokens`.

        Nor are there more than `max_sequence_length`, the most it has learned to write. temperature, top_k, top_p and
        seed as in `gristmill.lm.models.generation.generate`.
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
        """The `length` vectors that the decoder expects of each latent, each after those before it: N x length x E."""
        from gristmill.lm.models.vae.latent_decoding import decode_vectors

        with self.evaluating():
            return decode_vectors(self, z_NZ, length)

    def logits(self, x_ND: Tensor) -> Tensor:
        """The logits of the tokens after these positions of the decoded stream, in float32."""
        return F.linear(x_ND, self.head_weight)[..., : self.config.vocab_size].float()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode for a while, then the mode that was."""
        was_training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was_training)

    def write(self, tokenizer: Tokenizer, request: TextRequest) -> Iterator[TextStream]:
        """Texts from latents: of the prior, of a text that is given back, or on the way between two."""
        return (TextStream([text]) for text in requested_texts(self, tokenizer, request))

    def new_reader(self, *, use_cache: bool = True) -> Reader:
        """Refused: the decoder starts from a latent."""
        raise OptionError("a VAE makes whole texts of latents, and continues no prompt. Call gm.lm.sample_texts().")

    # What it reports about itself

    def random_batch(self, batch_size: int, length: int, device: torch.device) -> Batch:
        """Tokens, or vectors."""
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
        """The posterior monitor, unless it is switched off."""
        if self.config.disable_metrics_monitoring:
            return None
        from gristmill.lm.models.vae.posterior_watch import PosteriorWatch

        return PosteriorWatch(
            self, folder, seed=seed, autocast=autocast, can_decode=not is_sharded, last_step=last_step
        )

    def warnings(self, val_stats: Mapping[str, float], watch: Watch | None) -> tuple[str, ...]:
        """Whether the posterior has collapsed."""
        from gristmill.lm.models.vae.posterior_watch import PosteriorWatch

        kl = val_stats.get("kl")
        return (watch.health(kl) if isinstance(watch, PosteriorWatch) else health_of(kl)).warnings

    def stacked_weights(self) -> dict[str, int | tuple[int, ...]]:
        """The weights that are several matrices on top of each other, and how many: what Muon takes apart."""
        return {
            **stacked_in_blocks(self, self._sizes),
            "posterior.linear.weight": 2,
            **({"posterior.shortcut.weight": 2} if self.config.encoder_shortcut else {}),
            "latent.weight": max(self.config.num_memory, 1),
        }

    def flops_per_token(self, context_length: int | None = None) -> int:
        """Floating-point operations of one token, forward and backward, in sequences of T: 6 N + 12 L D T.

        N are the parameters that every token is multiplied with: the layers of encoder and decoder, which are L
        together, and the head without its rows of padding; of vectors, the embedding too. What is done once a sequence
        (posterior, memory, bag of words) is not counted.
        """
        c = self.config
        length = c.max_sequence_length if context_length is None else context_length
        blocks = [*self.encoder_blocks, *self.decoder_blocks]
        norms = [self.encoder_norm, self.decoder_norm]
        num_multiplied: int = sum(p.numel() for module in (*blocks, *norms) for p in module.parameters())
        num_multiplied += c.d_model * (c.vocab_size or 2 * (c.embedding_dim or 0))
        return 6 * num_multiplied + 12 * len(blocks) * c.d_model * length
