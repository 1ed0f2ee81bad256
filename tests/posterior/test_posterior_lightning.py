"""The monitor as a callback of PyTorch Lightning."""

import logging
import warnings

import pytest
import torch

import gristmill
from posterior.posteriors import quiet_monitor

pytorch_lightning = pytest.importorskip("pytorch_lightning")
PosteriorMetricsCallback = pytest.importorskip("gristmill.posterior").PosteriorMetricsCallback


class Module(pytorch_lightning.LightningModule):
    """A small autoencoder. `gives` selects where its posterior is found."""

    def __init__(self, gives="outputs"):
        super().__init__()
        self.encoder, self.decoder = torch.nn.Linear(6, 4), torch.nn.Linear(2, 6)
        self.dropout = torch.nn.Dropout(0.1)
        self.gives = gives
        self.decoded_in_training = []

    def training_step(self, batch, batch_idx):
        mu, logvar = self.encoder(batch).chunk(2, dim=1)
        z = mu + torch.exp(logvar / 2) * torch.randn_like(mu)
        loss = (self.decoder(self.dropout(z)) - batch).square().sum(1).mean()
        found = {"mu": mu, "logvar": logvar, "z": z, "reconstruction": loss.detach()}
        if self.gives == "attribute":
            self.posterior = found
        return {"loss": loss, **found} if self.gives == "outputs" else loss

    def reconstruction_nats(self, batch, z):
        self.decoded_in_training.append(self.training)
        return (self.decoder(self.dropout(z)) - batch).square().sum(1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def train_dataloader(self):
        rows = torch.randn(400, 6, generator=torch.Generator().manual_seed(0))
        return torch.utils.data.DataLoader(rows, batch_size=8)


class Logger(pytorch_lightning.loggers.logger.DummyLogger):
    """Keeps the metrics it is given."""

    def __init__(self):
        super().__init__()
        self.logged = []

    def log_metrics(self, metrics, step=None):
        self.logged.append((step, metrics))


def fit(callback, *, gives="outputs", max_steps=24, checkpoint=None, **options):
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.manual_seed(0)
    module, logger = Module(gives), Logger()
    trainer = pytorch_lightning.Trainer(
        max_steps=max_steps,
        accelerator="cpu",
        devices=1,
        logger=logger,
        callbacks=[callback],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(module, ckpt_path=checkpoint)
    return trainer, module, logger


def test_it_watches_what_training_step_returns_and_logs_it_at_its_step():
    callback = PosteriorMetricsCallback(quiet_monitor(4, 0, 3, gap_interval=2))
    trainer, module, logger = fit(callback)
    history = callback.monitor.history
    assert [metrics.step for metrics in history] == [4, 8, 12, 16, 20, 24]
    logged = [(step, values) for step, values in logger.logged if "posterior/kl" in values]
    assert [step for step, _ in logged] == [4, 8, 12, 16, 20, 24]
    assert logged[-1][1]["posterior/mutual_information"] == history[-1].mutual_information
    assert "posterior/active_units" in trainer.callback_metrics
    assert history[1].gap_shuffled is not None and history[0].gap_shuffled is None
    assert module.decoded_in_training == [False] * 9  # without dropout


def test_it_finds_the_posterior_that_the_module_keeps():
    kept, returned = (PosteriorMetricsCallback(quiet_monitor(4, 0, 3)) for _ in range(2))
    fit(kept, gives="attribute")
    fit(returned)
    assert kept.monitor.history == returned.monitor.history


def test_a_module_without_a_posterior_is_an_error_that_says_what_to_return():
    with pytest.raises(
        gristmill.OptionError, match=r"so mu and logvar are missing. Return \{\"loss\": loss, \"mu\": mu"
    ):
        fit(PosteriorMetricsCallback(update_frequency=1), gives="nothing")


def test_weights_are_the_same_with_and_without_it():
    weights = []
    for callback in (pytorch_lightning.Callback(), PosteriorMetricsCallback(quiet_monitor(4, 0, 3, gap_interval=1))):
        _, module, _ = fit(callback)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in module.parameters()]))
    assert torch.equal(*weights)


def test_with_accumulation_a_step_is_a_step_of_the_optimizer():
    callback = PosteriorMetricsCallback(quiet_monitor(4, 0, 4))
    fit(callback, accumulate_grad_batches=3, max_steps=8)
    assert [(metrics.step, metrics.num_samples) for metrics in callback.monitor.history] == [(4, 32), (8, 32)]


def test_a_resumed_fit_continues_with_the_same_window(tmp_path):
    whole, first, second = (PosteriorMetricsCallback(quiet_monitor(4, 0, 4)) for _ in range(3))
    fit(whole, max_steps=12)
    trainer, _, _ = fit(first, max_steps=6)
    trainer.save_checkpoint(tmp_path / "there.ckpt")
    fit(second, max_steps=12, checkpoint=tmp_path / "there.ckpt")
    assert [metrics.step for metrics in second.monitor.history] == [8, 12]
    assert second.monitor.history[0].num_samples == whole.monitor.history[1].num_samples == 32


def test_a_monitor_and_options_for_one_are_too_much():
    with pytest.raises(gristmill.OptionError, match=r"cannot be combined with options of a monitor \(seed\)"):
        PosteriorMetricsCallback(quiet_monitor(), seed=1)
