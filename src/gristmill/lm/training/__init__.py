"""training: model and data in, checkpoints and metrics out. An interrupted run resumes bit-exactly.

In reading order:

    trainer.py                             train: the loop on one screen
    config.py, options.py, presets.py      every option of a run
    registries.py                          optimizers and schedules by name, a user's own among them
    resuming.py                            the options that a run is resumed with
    base_run.py                            what a run takes over from the run that it starts from
    preflight.py                           what is checked before a run changes anything
    dry_run.py                             plan: parameters, steps, memory and time, without running it
    run_folder.py, run_lock.py             the folder of a run, and who may write there
    replacing.py                           a run that is replaced stays until the new one has started
    devices.py, processes.py               what it is computed on; one process per device
    fabric.py                              Lightning Fabric, imported without what it does not need
    launchers.py                           which process this is, where torchrun or srun has started it
    precision.py                           mixed precision, and the scaler of gradients

    run.py, set_up.py                      Run: what the loop works on, and how it is put together
    auto_batch.py                          the largest micro-batch that fits
    losses.py                              the loss as a module, and its mean over many batches
    schedules.py                           the learning rate of a step
    optimizers.py, muon.py                 AdamW and Muon
    muon_sharing.py                        Muon's work divided among devices
    weight_updates.py                      gradients checked and applied
    validation.py                          the loss on held-out data, and the best checkpoint
    checkpoint.py, saving.py               what a run saves, and when
    tensor_files.py, parts.py              tensors in one file, and with their rows in several
    sharded.py                             how the processes of a sharded run save and read together
    restoring.py, size_check.py            how it is taken up again; whether weights fit a model
    pretrained.py                          a folder of Hugging Face that it starts from
    stopping.py                            Ctrl-C and SIGTERM

    recording.py, records.py, writers.py   what it records: metrics.jsonl, and loggers of Lightning
    meters.py, data_wait.py                what it measures
    display.py, standing.py                what a person sees while it trains
    advice.py                              what slows it down, and what helps
    result.py                              TrainResult: what it returns
"""
