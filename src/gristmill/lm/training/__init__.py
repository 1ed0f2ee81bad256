"""training: model and data in, checkpoints and metrics out. An interrupted run resumes bit-exactly.

In reading order:

    config.py, config_checks.py, options.py, presets.py   every option of a run
    trainer.py                          train: the loop on one screen
    preflight.py                        what is checked before a run changes anything
    dry_run.py                          plan: parameters, steps, memory and time of a run, without running it
    devices.py, precision.py            what it is computed on, and in which precision
    processes.py                        one process per device, and one error for all of them
    run.py, run_parts.py                what the loop works on
    losses.py                           the loss as a module, and its mean over many batches
    optimizers.py, muon.py              AdamW and Muon
    weight_updates.py                   gradients checked and applied
    schedules.py                        the learning rate of a step
    registries.py                       optimizers and schedules by name, a user's own among them
    auto_batch.py                       the largest micro-batch that fits
    run_folder.py, run_lock.py, replacing.py   the folder of a run, and who may write there
    checkpoint.py, restoring.py         what a run leaves, and how it is resumed
    size_check.py                       whether a model fits the weights of a checkpoint
    records.py, meters.py, result.py    what it records, measures and returns
    data_wait.py                        the time a device has nothing to do for lack of a batch
    display.py, standing.py, writers.py   what a person sees while it trains
    advice.py, stopping.py              what slows it down; what stops it
"""
