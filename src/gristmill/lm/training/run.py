"""Run: the model, optimizer, data and current step of a run.

The training loop is in trainer.py. Everything that a step depends on is computed from the step number, so an
interruption between steps changes nothing. `recorder` writes the records of a run, `validation` computes its validation
loss, and `saver` writes its checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gristmill.errors import NotFiniteError
from gristmill.lm.data.batch import Batch
from gristmill.lm.data.training_data import TrainingData
from gristmill.lm.models.requests import TextRequest
from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training.advice import NOT_FINITE, Situation, advice
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.graphed_step import CaptureError, GraphedStep
from gristmill.lm.training.graphs import describe_graphs, graphed_step, why_no_graphs
from gristmill.lm.training.kernels import describe_kernels, use_kernels
from gristmill.lm.training.launchers import find_world
from gristmill.lm.training.meters import Reading, first_bad_step, measured_matmul_flops, memory_bytes
from gristmill.lm.training.processes import same_outcome
from gristmill.lm.training.recording import Recorder
from gristmill.lm.training.replacing import Replacement
from gristmill.lm.training.restoring import find_latest, restore, take_weights
from gristmill.lm.training.result import TrainResult, result_of
from gristmill.lm.training.run_folder import describe_machine, write_description
from gristmill.lm.training.saving import Saver
from gristmill.lm.training.schedules import learning_rate, step_seed
from gristmill.lm.training.set_up import (
    DTYPES_OF_PRODUCTS,
    check_mask,
    mark_length,
    new_meter,
    new_model,
    new_module,
    new_optimizers,
    open_datasets,
    precision_of_products,
    resolve_config,
    share_buffers,
    validation_module,
)
from gristmill.lm.training.stopping import LAUNCHER_SECONDS, StopSignals, StopVote
from gristmill.lm.training.validation import Validation
from gristmill.lm.training.weight_updates import WeightUpdates, are_finite
from gristmill.trace import span, spanned

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Run"]


class Run:
    """A run at its current step."""

    def __init__(
        self,
        fabric: Fabric,
        config: TrainConfig,
        data: TrainingData,
        folder: Path,
        replacement: Replacement | None = None,
        *,
        loggers: Sequence[Any] = (),
    ) -> None:
        """Set up the run, and restore the latest checkpoint in the folder unless it is to be replaced."""
        self.fabric, self.data, self.folder = fabric, data, folder
        self._replacement = replacement or Replacement(folder, overwrite=False)
        self.signals = StopSignals(repeat_seconds=LAUNCHER_SECONDS if find_world() is not None else 0.0)
        self._vote = StopVote(self.signals, world_size=fabric.world_size)
        self.recorder = Recorder(folder, is_first=fabric.is_global_zero)
        self.step, self.num_tokens = 0, 0
        self._readings: list[Reading] = []
        self._learning_rate, self._schedule = 0.0, dict[str, float]()
        self._num_tokens, self._num_slots = 0, 0  # of the current step, without and with padding
        self._num_targets = 0  # of the current step; fewer than tokens if only responses count in the loss
        notify = self.recorder.notify_later

        latest, state = find_latest(fabric, folder, overwrite=self._replacement.overwrite)
        self.config = config = resolve_config(fabric, config, data, state, notify)
        with same_outcome():
            check_mask(config, fabric.device)
        # Datasets are opened before the model is built, because they check that there is enough text. A model for an
        # absurdly long context would fill the memory first.
        self.dataset, val_dataset = open_datasets(fabric, config, data, notify)
        self.model = new_model(config)
        self.kernels = use_kernels(config, self.model, fabric.device, notify=notify)
        for message in describe_kernels(config, self.kernels):
            notify(message)
        self.module = new_module(fabric, config, self.model, self.kernels)
        self.graphs: GraphedStep | None = None
        world_size = fabric.world_size
        if not why_no_graphs(
            config, self.model, self.dataset, fabric.device, world_size=world_size, kernels=self.kernels
        ):
            self.graphs = graphed_step(
                config, self.model, self.dataset, fabric.device, self._compute, kernels=self.kernels
            )
            notify(describe_graphs(self.dataset))
        self.validation = Validation(
            fabric, config, data, val_dataset, validation_module(config, self.model, self.module)
        )
        self.optimizers = new_optimizers(config, self.model, self.kernels)
        self.updates = WeightUpdates(fabric, self.optimizers, self.model, clip_norm=config.clip_norm)
        self.watch = None
        if fabric.is_global_zero:
            self.watch = self.model.new_watch(
                folder,
                seed=config.seed,
                autocast=fabric.autocast,
                is_sharded=self.is_sharded,
                last_step=self.max_steps,
            )
        matmul_flops = measured_matmul_flops(fabric.device, DTYPES_OF_PRODUCTS[precision_of_products(config)])
        self.meter = new_meter(
            fabric,
            config,
            self.model,
            sequence_length=data.tokens_per_sequence,
            matmul_flops=matmul_flops,
            seconds_before=state["seconds"] if state else 0.0,
        )
        if latest is not None and state is not None:
            restore(self, latest, state, notify)
        elif config.init_from is not None:
            take_weights(self.model, Path(config.init_from), notify, tokenizer=data.tokenizer)
        self.saver = Saver(folder, keep=config.keep, notify=self.notify, is_sharded=self.is_sharded)
        self.saver.saved_step = self.step if latest else -1
        self._open_folder(matmul_flops, loggers)

    def _open_folder(self, matmul_flops: float | None, loggers: Sequence[Any]) -> None:
        """Write the description of the run and open its logs. Only the first process writes."""
        self.fabric.barrier()  # the old run must not be set aside before every process is set up
        if self.fabric.is_global_zero:
            self._replacement.set_aside()
            machine = describe_machine(self.fabric.device, world_size=self.fabric.world_size)
            machine |= {"precision": self.config.precision, "matmul_flops": matmul_flops}
            machine |= {"float8": self.config.float8, "mfu_relative_to": precision_of_products(self.config)}
            machine |= {"num_parameters": self.model.num_parameters, "num_train_tokens": self.data.num_tokens}
            machine |= {"has_perplexity": self.config.model.HAS_PERPLEXITY}
            template = getattr(self.data, "chat_template", None)
            write_description(self.folder, self.config, self.data.tokenizer, machine, chat_template=template)
        self.recorder.open(self.config, up_to_step=self.saver.saved_step, loggers=loggers)

    @property
    def max_steps(self) -> int:
        """Number of steps of the run."""
        assert self.config.max_steps is not None  # the config is resolved
        return self.config.max_steps

    @property
    def is_sharded(self) -> bool:
        """Whether the weights are divided among the devices."""
        return self.config.strategy == "fsdp"

    # A step

    def begin_step(self) -> dict[str, Tensor]:
        """Set the dropout seed and learning rate of this step, and return the schedule of the model."""
        if self.graphs is not None:
            self.graphs.begin()
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
        count = getattr(self.dataset, "targets_in_step", None)
        self._num_targets = self._num_tokens if count is None else count(self.step, **world)
        self._schedule = self.config.model.schedule(self.step, total_steps=self.max_steps)
        # Tensors, because a Python number would be a constant in the compiled code and each new one would recompile it.
        return {name: torch.full((), value, device=self.fabric.device) for name, value in self._schedule.items()}

    def next_batch(self, micro_step: int) -> Batch:
        """Return a micro-batch of this step for this device."""
        with self.meter.waiting_for_data(), span("wait for data"):
            batch = self.dataset.batch(
                self.step,
                rank=self.fabric.global_rank,
                world_size=self.fabric.world_size,
                micro_step=micro_step,
                num_micro_steps=self.config.gradient_accumulation_steps,
            )
        return mark_length(batch) if self.config.compile_model and self.config.model.varying_lengths else batch

    def share_of_step(self, batch: Batch) -> Tensor | float:
        """Return the weight of a micro-batch in its step, so that every target on all devices has the same weight."""
        if self.data.even_batches:
            return 1 / self.config.gradient_accumulation_steps
        # Times world_size, because gradients are averaged over the devices.
        share: Tensor = batch.num_targets * (self.fabric.world_size / self._num_targets)
        return share

    def compute(self, batch: Batch, schedule: dict[str, Tensor], share: Tensor | float) -> dict[str, Tensor]:
        """Run forward and backward on a micro-batch, and return the statistics of its loss.

        They are valid until the next call.
        """
        if self.graphs is not None:
            try:
                return self.graphs.computed(batch, schedule, share)
            except CaptureError as error:
                reason = str(error)
            self.graphs = None  # frees the memory of the graphs
            self.notify(f"no CUDA graphs: {reason}. The run continues without them, more slowly.")
        return self._compute(dict(vars(batch)), schedule, share)

    def _compute(self, fields: dict[str, Any], schedule: dict[str, Tensor], share: Tensor | float) -> dict[str, Tensor]:
        stats: dict[str, Tensor]
        with span("forward"):
            loss, stats = self.module(fields, schedule)
        with span("backward"):
            self.fabric.backward(loss * share)
        return stats

    @spanned("update weights")
    def update_weights(self) -> Tensor:
        """Apply the clipped gradients to the weights, and return the gradient norm."""
        norm = self.updates.update()
        self.prepare_kernels()
        return norm

    def prepare_kernels(self) -> None:
        """Prepare the kernels for the next step. All processes use the same scales."""
        if self.kernels is None:
            return
        largest = self.kernels.largest()
        if largest is not None and self.fabric.world_size > 1:
            torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
        self.kernels.after_update()

    def end_step(self, losses: Tensor, grad_norm: Tensor, batch: Batch, stats: dict[str, Tensor]) -> None:
        """Count the step, and pass its losses to the meter and the stats of its last micro-batch to the watch."""
        self.step += 1
        self.num_tokens += self._num_tokens
        self.meter.add(self.step, losses, grad_norm, self._num_tokens, self._num_slots)
        if self.watch is not None:
            self.watch.look(self.step, batch, stats, self._schedule)

    def is_due(self, interval: int | float) -> bool:
        """Return whether an action with this interval is due at this step. 0 means never."""
        return interval > 0 and self.step % interval == 0

    # Stopping

    def should_stop(self) -> bool:
        """Return whether a signal has reached any process. All processes must call this equally often."""
        return self._vote.is_stop_requested()

    def agree_to_stop(self) -> bool:
        """Return whether a signal has reached any process by now. Collective: all processes wait for the answer."""
        noted = self.signals.agreed or self.signals.received or 0
        if self.fabric.world_size > 1:
            noted = int(self.fabric.all_reduce(torch.tensor(float(noted)), reduce_op="max"))
        self.signals.agreed = noted or None
        return bool(noted)

    # Records

    @spanned("log")
    def log(self) -> None:
        """Read and record the losses since the last call. The only part of a step that waits for the device.

        If a checkpoint could not be written, the run ends here in all processes instead of computing further steps.
        """
        reading = self.meter.read(has_failed=self.saver.writer.has_failed)
        if reading.any_failed:
            with same_outcome():
                self.saver.writer.wait()
        self._check_finite(reading.first_bad_step, reading.bad_value)
        self._readings.append(reading)
        self.recorder.add(
            {
                "kind": "train",
                "step": self.step,
                "loss": reading.loss,
                **reading.stats,
                **self._schedule,
                **({} if self.data.even_batches else {"padding": reading.padding}),
                "lr": self._learning_rate,
                "grad_norm": reading.grad_norm,
                "grad_norm_max": reading.grad_norm_max,
                "tokens": self.num_tokens,
                "tokens_per_second": reading.tokens_per_second,
                "mfu": reading.mfu,
                "mfu_matmul": reading.mfu_matmul,
                "data_wait": reading.data_wait,
                "memory_bytes": memory_bytes(self.fabric.device),
                "seconds": reading.seconds,
            }
        )
        self._record_news()
        # The first readings include compilation and cold caches.
        if len(self._readings) > 2:
            workers = getattr(self.dataset, "num_workers", None) if self.data.uses_workers else None
            situation = Situation(
                reading, self.fabric.device, self.config, workers, uses_kernels=self.kernels is not None
            )
            self.recorder.advise(advice(situation), step=self.step)

    def notify(self, message: str) -> None:
        """Record and show a message to the user."""
        self.recorder.notify(message, step=self.step)

    def _record_news(self) -> None:
        """Record the findings of the model's watch."""
        for record in self.watch.news() if self.watch is not None else ():
            self.recorder.add(record)

    def _check_finite(self, bad_step: int | None, bad_value: str) -> None:
        if bad_step is None:
            return
        self.saver.writer.wait()
        there = checkpoints.list_checkpoints(self.folder)
        kept = f"{there[-1].name} is the last good checkpoint." if there else "No checkpoint was saved yet."
        half = "precision='bf16-mixed', " if self.config.precision == "16-mixed" else ""
        message = NOT_FINITE.format(what=bad_value, step=bad_step, kept=kept, precision=half)
        self.recorder.record_only(message, step=self.step)
        raise NotFiniteError(message)

    @spanned("sample")
    def write_sample(self) -> None:
        """Record a sample text. Skipped for sharded weights, because no device has all of them."""
        if self.fabric.is_global_zero and not self.is_sharded and self.data.tokenizer is not None:
            prompt = self.config.model.prompt_of_samples
            request = TextRequest(
                prompt=prompt,
                num_texts=1,
                max_tokens=self.config.sample_tokens,
                seed=self.config.seed,
                chat=getattr(self.data, "template", None),
            )
            with self.fabric.autocast():
                text = "".join(next(self.model.write(self.data.tokenizer, request)))
            self.recorder.add({"kind": "sample", "step": self.step, "prompt": prompt, "text": text})
        self.meter.restart()

    # Validation and checkpoints

    @spanned("validation")
    def validate(self) -> None:
        """Record the loss on the fixed validation subset, and save a checkpoint if it is the best so far."""
        self.recorder.display.busy("validating")
        share_buffers(self.fabric, self.model)
        record, is_best = self.validation.on_subset(self.step, stopped=self.should_stop)
        if record is not None:
            self.recorder.add(record)
            self.saver.add_validation(self)
            if is_best:
                self.save()
        self.meter.restart()

    @spanned("validation of the whole split")
    def validate_on_everything(self) -> None:
        """Record the loss on the whole validation split."""
        self.recorder.display.busy("validating on the whole split")
        share_buffers(self.fabric, self.model)
        if (record := self.validation.on_everything(self.step, stopped=self.should_stop)) is not None:
            self.recorder.add(record)

    @spanned("checkpoint")
    def save(self) -> None:
        """Save a checkpoint of this step, unless it is already saved."""
        pending = self.meter.pending()
        self._check_finite(*first_bad_step(pending["steps"], pending["losses"], pending["grad_norms"]))
        if not are_finite(self.model.parameters()):  # buffers may contain a mask of -inf; the writer checks them
            self._check_finite(self.step, "a weight after")
        self._record_news()  # a run resumed from this checkpoint would not find them again
        self.saver.save(self, pending)
        if self._replacement.is_aside:
            self.saver.writer.wait()  # the old run is kept until this checkpoint is on disk
            self._replacement.drop()
        self.meter.restart()

    # The end

    def finish(self) -> None:
        """After the last step, add missing records and validations, and save the last checkpoint."""
        if self.meter.has_pending:
            self.log()
        if self.validation.is_missing(self.step):
            self.validate()
        self.save()
        done = any(record["step"] == self.step for record in self._full_validations())
        if not self.fabric.broadcast(done):
            self.validate_on_everything()
        self.saver.writer.merge()

    def _full_validations(self) -> list[dict[str, object]]:
        return [record for record in self.recorder.read() if record["kind"] == "val" and record["full"]]

    def close(self) -> None:
        """Wait for pending writes and close all files, each even if closing another one fails."""
        self.graphs = None
        with contextlib.ExitStack() as closed:
            closed.callback(self.recorder.close)
            closed.callback(self.validation.close)
            closed.callback(self.dataset.close)
            if self.watch is not None:
                closed.callback(self.watch.close)
            closed.callback(self.saver.close)

    def result(self) -> TrainResult:
        """Return the result of the run."""
        result = result_of(
            self.folder,
            num_steps=self.step,
            num_tokens=self.num_tokens,
            num_parameters=self.model.num_parameters,
            readings=self._readings,
            full_validations=self._full_validations(),
            has_perplexity=self.config.model.HAS_PERPLEXITY,
            memory_bytes=memory_bytes(self.fabric.device),
            seconds=self.meter.seconds,
            mfu_relative_to=precision_of_products(self.config),
        )
        return dataclasses.replace(result, warnings=self.model.warnings(result.val_stats, self.watch))
