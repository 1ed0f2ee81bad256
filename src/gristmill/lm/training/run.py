"""Run: the model, the optimizer and the data of a run, how far it has come, and what it tells and saves on the way.

The loop that uses it is in trainer.py. Everything that a step depends on is reckoned from its number, so nothing here
needs to be told in which order, or after which interruption, a step is taken.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gristmill.errors import NotFiniteError
from gristmill.lm.data.batch import Batch
from gristmill.lm.data.training_data import TrainingData
from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training.advice import NOT_FINITE, Situation, advice
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.losses import LossModule, mean_loss, num_val_batches
from gristmill.lm.training.meters import Pending, Reading, first_bad_step, measured_matmul_flops, memory_bytes
from gristmill.lm.training.records import Display, MetricsFile, Record, Writer, open_writer, read_records
from gristmill.lm.training.restoring import find_latest, restore, take_weights
from gristmill.lm.training.result import TrainResult, result_of
from gristmill.lm.training.run_folder import describe_machine, write_description
from gristmill.lm.training.run_parts import (
    DTYPES,
    mark_length,
    new_meter,
    new_module,
    new_optimizers,
    new_watch,
    open_datasets,
    sample_text,
    settled,
    share_buffers,
)
from gristmill.lm.training.schedules import kl_weight, learning_rate, step_seed
from gristmill.lm.training.stopping import StopSignals
from gristmill.lm.training.weight_updates import WeightUpdates, are_finite

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Run"]


class Run:
    """A run in its folder, at a step."""

    def __init__(self, fabric: Fabric, config: TrainConfig, data: TrainingData, folder: Path) -> None:
        """Set everything up, and take up the latest checkpoint in the folder, if there is one."""
        self.fabric, self.data, self.folder = fabric, data, folder
        self.display, self.signals = Display(), StopSignals()
        self.step, self.num_tokens, self.best_val_loss = 0, 0, math.inf
        self._messages: list[str] = []  # for when the display is there
        self._readings: list[Reading] = []
        self._learning_rate, self._kl_weight = 0.0, 1.0
        self._num_tokens, self._num_slots = 0, 0  # of the step, without and with padding
        self._advised: set[str] = set()  # the troubles that were told
        self._validated: tuple[int, float | None] = (-1, None)  # the last validation on the subset: its step and loss

        latest, state = find_latest(fabric, folder)
        self.config = config = settled(fabric, config, data, state, self._messages.append)
        # First, because it knows whether there is enough text; a model for an absurd context would fill the memory.
        self.dataset, self.val_dataset = open_datasets(config, data, fabric.device, self._messages.append)
        self.model = checkpoints.build_model(config)
        self.module = new_module(fabric, config, self.model)
        # To compile it once more for evaluation takes longer than a few validations do.
        is_eager = config.compile_model and config.model == "vae" and not self._is_sharded
        self._val_module = LossModule(self.model) if is_eager else self.module
        self.optimizers = new_optimizers(config, self.model)
        self.updates = WeightUpdates(fabric, self.optimizers, self.model, clip_norm=config.clip_norm)
        self.schedule: dict[str, Tensor] = {}
        self.watch = new_watch(fabric, config, self.model, folder)
        self._matmul_flops = measured_matmul_flops(fabric.device, DTYPES[config.precision])
        self.meter = new_meter(
            fabric,
            config,
            self.model,
            sequence_length=data.tokens_per_sequence(config),
            matmul_flops=self._matmul_flops,
            seconds_before=state["seconds"] if state else 0.0,
        )
        if latest is not None and state is not None:
            restore(self, latest, state, self._messages.append)
        elif config.init_from is not None:
            take_weights(self.model, Path(config.init_from), self._messages.append)
        self._saved_step = self.step if latest else -1
        self._open_folder()

    @property
    def max_steps(self) -> int:
        """The step at which the run ends."""
        assert self.config.max_steps is not None  # it is resolved
        return self.config.max_steps

    # A step

    def begin_step(self) -> None:
        """Put dropout and the learning rate where they are at this step, whatever was done before it."""
        torch.manual_seed(step_seed(self.config.seed, self.step, self.fabric.global_rank))
        scale = learning_rate(
            self.step,
            peak=1.0,
            warmup_steps=int(self.config.warmup_steps),
            total_steps=self.max_steps,
            shape=self.config.schedule,
            final_fraction=self.config.final_fraction,
            decay_fraction=self.config.decay_fraction,
        )
        self.optimizers.set_learning_rate(scale)
        self._learning_rate = scale * self.config.learning_rate
        world = {"world_size": self.fabric.world_size, "num_micro_steps": self.config.gradient_accumulation_steps}
        self._num_tokens, self._num_slots = self.dataset.tokens_in_step(self.step, **world)
        if self.config.model == "vae":
            self._kl_weight = self._find_kl_weight()
            # A tensor: a number would be part of the compiled code, which each new one would have made anew.
            self.schedule = {"kl_weight": torch.full((), self._kl_weight, device=self.fabric.device)}

    def _find_kl_weight(self) -> float:
        return kl_weight(
            self.step,
            peak=self.config.kl_weight,
            shape=self.config.kl_schedule,
            warmup_steps=int(self.config.kl_warmup_steps),
            total_steps=self.max_steps,
            num_cycles=self.config.kl_cycles,
        )

    def next_batch(self, micro_step: int) -> Batch:
        """The micro-batch of this step on this device."""
        with self.meter.waiting_for_data():
            batch = self.dataset.batch(
                self.step,
                rank=self.fabric.global_rank,
                world_size=self.fabric.world_size,
                micro_step=micro_step,
                num_micro_steps=self.config.gradient_accumulation_steps,
            )
        return mark_length(batch) if self.config.compile_model and self.config.use_dynamic_padding else batch

    def share_of_step(self, batch: Batch) -> Tensor | float:
        """The weight of a micro-batch in its step, so that every token of the step, on all devices, counts the same.

        Windows are all of one length. Sequences are not, and buckets make micro-batches of very different sizes.
        """
        if self.config.model == "gpt":
            return 1 / self.config.gradient_accumulation_steps
        share: Tensor = batch.num_targets * (self.fabric.world_size / self._num_tokens)  # devices are averaged over
        return share

    def update_weights(self) -> Tensor:
        """Change the weights along their clipped gradients, and return the norm of the gradients."""
        return self.updates.update()

    def end_step(self, losses: Tensor, grad_norm: Tensor, batch: Batch, stats: dict[str, Tensor]) -> None:
        """Count the step and note what is known of it: its losses, and of its last micro-batch the rest of `stats`."""
        self.step += 1
        self.num_tokens += self._num_tokens
        self.meter.add(self.step, losses, grad_norm, self._num_tokens, self._num_slots)
        if self.watch is not None:
            self.watch.look(self.step, batch, stats, self._kl_weight)

    def is_due(self, interval: int | float) -> bool:
        """Whether something that is done every `interval` steps is to be done now; 0 is never."""
        return interval > 0 and self.step % interval == 0

    # Stopping

    @property
    def stopped(self) -> bool:
        """Whether a signal asks to stop."""
        return self.signals.received is not None

    def should_stop(self) -> bool:
        """Whether to stop here. Several devices must agree, and ask each other only when they have to wait anyway."""
        if self.fabric.world_size == 1:
            return self.stopped
        if not self.is_due(self.config.log_interval):
            return False
        noted = torch.tensor(float(self.signals.received or 0))
        agreed = int(self.fabric.all_reduce(noted, reduce_op="max"))
        self.signals.received = agreed or None
        return bool(agreed)

    # What it tells

    def log(self) -> None:
        """Read the losses since the last time, and record them; the only thing in a step that waits for the device."""
        reading = self.meter.read()
        self._check_finite(reading.first_bad_step, reading.bad_value)
        self._readings.append(reading)
        self._record(
            {
                "kind": "train",
                "step": self.step,
                "loss": reading.loss,
                **reading.stats,
                **({"kl_weight": self._kl_weight, "padding": reading.padding} if self.schedule else {}),
                "lr": self._learning_rate,
                "grad_norm": reading.grad_norm,
                "tokens": self.num_tokens,
                "tokens_per_second": reading.tokens_per_second,
                "mfu": reading.mfu,
                "mfu_matmul": reading.mfu_matmul,
                "data_wait": reading.data_wait,
                "memory_bytes": memory_bytes(self.fabric.device),
                "seconds": reading.seconds,
            }
        )
        self._tell_posterior()
        # The first readings hold compilation and cold caches.
        if len(self._readings) > 2:
            workers = getattr(self.dataset, "num_workers", None) if self.data.uses_workers else None
            situation = Situation(reading, self.fabric.device, self.config, workers)
            for trouble, message in advice(situation).items():
                if trouble not in self._advised:
                    self._advised.add(trouble)
                    self.tell(message)

    def _tell_posterior(self) -> None:
        """Record what the monitor has found, and tell its alarms."""
        if self.watch is None:
            return
        found, messages = self.watch.news()
        for metrics in found:
            self._record(metrics.to_record())
            for alarm in metrics.alarms:
                self._record({"kind": "event", "step": metrics.step, "message": alarm.message})
                self.display.say(alarm.message)
        for message in messages:
            self.tell(message)

    def _check_finite(self, bad_step: int | None, bad_value: str) -> None:
        if bad_step is None:
            return
        self.writer.wait()
        there = checkpoints.list_checkpoints(self.folder)
        kept = f"{there[-1].name} is the last good checkpoint." if there else "there was no checkpoint yet."
        half = "precision='bf16-mixed', " if self.config.precision == "16-mixed" else ""
        message = NOT_FINITE.format(what=bad_value, step=bad_step, kept=kept, precision=half)
        self._record({"kind": "event", "step": self.step, "message": message})
        raise NotFiniteError(message)

    def tell(self, message: str) -> None:
        """Record something that a person should know, and show it."""
        self._record({"kind": "event", "step": self.step, "message": message})
        self.display.say(message)

    def tell_beginning(self, messages: list[str]) -> None:
        """Tell these, and what was found while everything was set up."""
        for message in messages + self._messages:
            self.tell(message)

    def _record(self, record: Record) -> None:
        if self.fabric.is_global_zero:
            self.metrics.add(record)
            if self.log_writer is not None:
                self.log_writer.add(record)
            self.display.show(record)

    def validate(self, *, full: bool = False) -> None:
        """Record the loss on the fixed subset of the validation split, or on all of it; save the best so far."""
        if self.val_dataset is None:
            return
        begin, fabric = time.perf_counter(), self.fabric
        share_buffers(fabric, self.model)
        limit = None if full else num_val_batches(self.config.limit_val_batches, self.val_dataset)
        found = mean_loss(
            self._val_module,
            self.val_dataset.validation_batches(limit, rank=fabric.global_rank, world_size=fabric.world_size),
            reduce_sum=partial(fabric.all_reduce, reduce_op="sum"),
            stopped=lambda: self.stopped and fabric.world_size == 1,
            autocast=fabric.autocast,
            seed=step_seed(self.config.seed, 0, fabric.global_rank),
        )
        if found is None:
            return
        parts = {} if found.kl is None else {"reconstruction": found.reconstruction, "kl": found.kl}
        self._record(
            {
                "kind": "val",
                "step": self.step,
                "loss": found.loss,
                **parts,
                "bits_per_byte": self.data.bits_per_byte(found.loss, "val"),
                "num_tokens": found.num_tokens,
                "full": limit is None,
                "seconds": time.perf_counter() - begin,
            }
        )
        if not full:
            self._validated = (self.step, found.loss)
            if found.loss < self.best_val_loss:
                self.best_val_loss = found.loss
                self.save()
        self.meter.restart()

    def write_sample(self) -> None:
        """Record a text of the model. Not with weights in parts: no device has them all."""
        if self.fabric.is_global_zero and not self._is_sharded and self.data.tokenizer is not None:
            with self.fabric.autocast():
                prompt, text = sample_text(self.model, self.data.tokenizer, self.config)
            self._record({"kind": "sample", "step": self.step, "prompt": prompt, "text": text})
        self.meter.restart()

    # Checkpoints

    def save(self) -> None:
        """Save a checkpoint of this step; the run waits while it is copied, not while it is written."""
        if self._saved_step == self.step:
            return
        pending = self.meter.pending()
        self._check_finite(*first_bad_step(pending["steps"], pending["losses"], pending["grad_norms"]))
        if not are_finite(self.model.state_dict().values()):
            self._check_finite(self.step, "a weight after")
        self._tell_posterior()  # a run that goes on from here does not see these again
        share_buffers(self.fabric, self.model)
        if self.fabric.is_global_zero or self._is_sharded:
            tensors, numbers = self.optimizers.state_tensors()
            files = {
                checkpoints.MODEL_FILE: _copies(self.model.state_dict()),
                checkpoints.OPTIMIZER_FILE: _copies(tensors),
            }
            if self.fabric.is_global_zero:
                self.metrics.flush()
                state = {**self._state(pending), "optimizer": numbers}
                if self.watch is not None:
                    watched, state["monitor"] = self.watch.monitor.state_tensors()
                    files[checkpoints.MONITOR_FILE] = _copies(watched)
                self.writer.write(state, files)
        self._saved_step = self.step
        self.meter.restart()
        gc.collect()

    def _state(self, pending: Pending) -> dict[str, Any]:
        validated_step, val_loss = self._validated
        return {
            "step": self.step,
            "num_tokens": self.num_tokens,
            "config": self.config.to_json(),
            "shards": self.data.identity,
            "val_loss": val_loss if validated_step == self.step else None,
            "best_val_loss": self.best_val_loss if math.isfinite(self.best_val_loss) else None,
            "pending": pending,
            "seconds": self.meter.seconds,
            "scaler": self.fabric.strategy.precision.state_dict(),
        }

    # The folder

    @property
    def _is_sharded(self) -> bool:
        return self.config.strategy == "fsdp"

    def _open_folder(self) -> None:
        """Write what describes the run, and open what it writes to; only the first process does."""
        self.writer = checkpoints.CheckpointWriter(self.folder, keep=self.config.keep)
        self.log_writer: Writer | None = None
        self.fabric.barrier()  # nobody may still be reading what is cleaned up
        if self.fabric.is_global_zero:
            checkpoints.clean_up(self.folder)
            machine = describe_machine(self.fabric.device, world_size=self.fabric.world_size)
            machine |= {"precision": self.config.precision, "matmul_flops": self._matmul_flops}
            write_description(self.folder, self.config, self.data.tokenizer, machine)
            self.metrics = MetricsFile(self.folder, up_to_step=self._saved_step)
            self.log_writer = open_writer(self.config.log, self.folder, self.config.to_json())

    # The end

    def finish(self) -> None:
        """After the last step: the records and validations that are still missing, and the last checkpoint."""
        if self.meter.has_pending:
            self.log()
        if self._validated[0] != self.step and self._saved_step != self.step:
            self.validate()
        self.save()
        done = any(record["step"] == self.step for record in self._full_validations())
        if not self.fabric.broadcast(done):
            self.validate(full=True)

    def _full_validations(self) -> list[Record]:
        return [record for record in read_records(self.folder) if record["kind"] == "val" and record["full"]]

    def close(self) -> None:
        """Wait for what is being written, and close all files; each, whatever becomes of the others."""
        with contextlib.ExitStack() as closed:
            if self.fabric.is_global_zero:
                closed.callback(self.metrics.close)
                if self.log_writer is not None:
                    closed.callback(self.log_writer.close)
            if self.val_dataset is not None:
                closed.callback(self.val_dataset.close)
            closed.callback(self.dataset.close)
            if self.watch is not None:
                closed.callback(self.watch.close)
            closed.callback(self.writer.close)

    def result(self) -> TrainResult:
        """What the run came to."""
        return result_of(
            self.folder,
            num_steps=self.step,
            num_tokens=self.num_tokens,
            num_parameters=int(self.model.num_parameters),  # type: ignore[arg-type]
            readings=self._readings,
            full_validations=self._full_validations(),
            memory_bytes=memory_bytes(self.fabric.device),
            seconds=self.meter.seconds,
        )


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: checkpoints.whole_copy(tensor) for name, tensor in tensors.items()}
