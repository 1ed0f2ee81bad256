"""training: model and data in, checkpoints and metrics out. An interrupted run resumes bit-exactly.

In reading order:

    trainer.py                             train: the loop on one screen
    config.py, options.py, presets.py      every option of a run
    registries.py                          optimizers and schedules by name, including those of plugins
    resuming.py                            options of a resumed run
    base_run.py                            options taken from the run or model that a run starts from
    preflight.py                           checks before a run changes anything
    dry_run.py                             plan: parameters, steps, memory and time of a run without running it
    run_folder.py, run_lock.py             the folder of a run and its lock
    replacing.py                           keeps a replaced run until the new one has a checkpoint
    devices.py, processes.py               devices of a run, with one process per device
    fabric.py                              Lightning Fabric, imported without unneeded packages
    launchers.py                           rank and number of processes under torchrun or srun
    precision.py                           mixed precision and the gradient scaler

    run.py, set_up.py                      Run: the state of the loop and its setup
    kernels.py                             whether a run uses Triton kernels
    auto_batch.py                          the largest micro-batch that fits
    losses.py                              the loss as a module, and its mean over many batches
    graphs.py                              whether a run replays its steps from CUDA graphs
    graphed_step.py, cuda_capture.py       forward and backward, captured once per batch shape and replayed
    schedules.py                           the learning rate of a step
    optimizers.py, muon.py                 AdamW and Muon
    triton_adamw.py                        AdamW as one kernel
    muon_sharing.py                        Muon on several devices
    weight_updates.py                      clips, checks and applies gradients
    validation.py                          the loss on held-out data, and the best checkpoint
    checkpoint.py, saving.py               checkpoints: format, writing, reading
    tensor_files.py, parts.py              tensors in one file, or with their rows in several
    sharded.py                             checkpoints of a sharded run
    restoring.py, size_check.py            restoring a checkpoint; checking that weights fit a model
    pretrained.py                          starting from a Hugging Face folder
    stopping.py                            Ctrl-C and SIGTERM

    recording.py, records.py, writers.py   records of a run: metrics.jsonl and loggers
    meters.py, data_wait.py                speed, MFU, memory and time waiting for data
    display.py, run_status.py              progress bar and log lines
    advice.py                              advice on slow runs and running out of memory
    result.py                              TrainResult: the result of `train`
"""
