"""`encode_corpus`: encode a corpus of any size into token shards, in bounded memory. An interrupted run resumes."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from gristmill.arguments import check_switch, show_options
from gristmill.corpus import Corpus, Reading
from gristmill.corpus.skipped import warn_of_skipped
from gristmill.encode import AnyTokenizer
from gristmill.errors import EmptyCorpusError, OptionError, ShardsFormatError
from gristmill.executors import Executor, Local, check_executor
from gristmill.executors.watch import Watch
from gristmill.notebook import html_table
from gristmill.profile import Clock, Profile, peak_memory_bytes
from gristmill.progress import OnProgress, ProgressOption, open_progress
from gristmill.shards.checkpoints import Checkpoints, check_interval
from gristmill.shards.distributed import EncodedParts, check_plan, encode_in_parts
from gristmill.shards.folder import Folder
from gristmill.shards.jobs import encoded_jobs
from gristmill.shards.manifest import Manifest
from gristmill.shards.meter import Meter
from gristmill.shards.options import DEFAULTS, EncodeOptions
from gristmill.shards.output import Output
from gristmill.shards.plan import Plan
from gristmill.shards.remote_output import RemoteFolder, check_place, is_remote, open_folder, shown_place
from gristmill.shards.shards import Shards
from gristmill.shards.state import why_empty
from gristmill.trace import memory_since

__all__ = ["STAGE_MEANINGS", "WAITING_STAGES", "EncodeRun", "encode_corpus"]

CHECKPOINT_SECONDS = 10.0

# What the time of each stage of a run measures. A run in parts has only "encode" and "assemble".
STAGE_MEANINGS = {
    "read": "waiting for the readers",
    "find": "finding documents, sum over threads",
    "encode": "encoding, sum over threads or workers",
    "assemble": "assembling shards, sum over workers",
    "write": "writing and checksums",
    "sync": "waiting for the disk",
}
WAITING_STAGES = ("read", "sync")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EncodeRun:
    """Result of `encode_corpus`: the manifest it wrote and the measurements of this run.

    Attributes:
        location: Path or URL of the shards.
        manifest: Contents of manifest.json.
        profile: Time and throughput per stage. None if the shards were complete before the call.
        resumed: Whether this run continued an interrupted one.

    Examples:
        >>> import tempfile
        >>> from gristmill import Tokenizer
        >>> tok = Tokenizer([(b"a", b"a")], special_tokens=["<|endoftext|>"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = encode_corpus(["aab", "b"], tok, out=folder, progress=None)
        ...     run.num_documents, run.num_tokens, run.shards().decode(0)
        (2, 5, 'aab')
    """

    location: str
    manifest: Manifest
    profile: Profile | None
    resumed: bool

    @property
    def folder(self) -> Path:
        """The folder of the shards. Raises `OptionError` if they are at a URL."""
        if is_remote(self.location):
            raise OptionError(
                f"The shards are at the URL {self.location}, not in a local folder. Use `location` instead of `folder`."
            )
        return Path(self.location)

    @property
    def num_documents(self) -> int:
        """Number of documents in all splits."""
        return sum(split.documents for split in self.manifest.splits.values())

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all splits, including end-of-text ids."""
        return sum(split.tokens for split in self.manifest.splits.values())

    @property
    def source_bytes(self) -> int:
        """Size of the texts of all splits, in bytes."""
        return sum(split.source_bytes for split in self.manifest.splits.values())

    def shards(self, split: str = "train") -> Shards:
        """Return the shards of a split, opened.

        Args:
            split: "train" or "val".

        Raises:
            OptionError: The folder has no split with this name.
            ShardsFormatError: The shards are in a format that `Shards` does not read (parquet).
            InputChangedError: Another process is replacing the shards.
        """
        return Shards(self.location, split=split)

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {split.tokens:,}" for name, split in self.manifest.splits.items())
        return (
            f"<EncodeRun: {self.location!r}, {self.num_documents:,} documents, {self.num_tokens:,} tokens "
            f"({splits}), format {self.manifest.layout!r}, {self._how()}>"
        )

    def _how(self) -> str:
        if self.profile is None:
            return "complete already"
        return f"{'resumed and finished' if self.resumed else 'made'} in {self.profile.seconds:.2f} s"

    def _repr_html_(self) -> str:
        manifest = self.manifest
        rows = [("folder", self.location), ("format", f"{manifest.layout}, {manifest.dtype}")]
        for name, split in manifest.splits.items():
            ratio = f", {split.source_bytes / split.tokens:.3f} bytes per token" if split.tokens else ""
            rows.append((name, f"{split.documents:,} documents, {split.tokens:,} tokens{ratio}"))
        return html_table("EncodeRun", [*rows, ("run", self._how())])


@show_options(EncodeOptions, {**DEFAULTS, **Reading().options()})
def encode_corpus(
    corpus: Corpus,
    tokenizer: AnyTokenizer,
    *,
    out: str | os.PathLike[str],
    num_threads: int | None = None,
    executor: Executor | str = "local",
    overwrite: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: ProgressOption = "auto",
    **options: Unpack[EncodeOptions],
) -> EncodeRun:
    """Encode the documents of `corpus` into token files in the folder `out`.

    The files depend only on the corpus, the tokenizer and the options, not on the number of threads. Memory use is
    bounded for a corpus of any size. Calling the function again after an interruption resumes the run. If the shards
    are already complete, it does nothing. If the folder holds shards of another tokenizer, corpus or other options, it
    raises `ShardsMismatchError`.

    Args:
        corpus: Paths, globs, folders, URLs, an iterable of `str` or `bytes` documents, or a table with a text column;
            see `gristmill.corpus` for the full list.
        tokenizer: A `Tokenizer`, its path, a `tiktoken.Encoding`, or a Hugging Face tokenizer.
        out: The output folder; created if missing. A URL such as "s3://bucket/shards" works too: tasks write to it, and
            `overwrite` removes its contents before the new shards are made.
        num_threads: Number of encoding threads. Default: all cores this process may use.
        executor: "local" (threads of this process), "processes", "ray", or an object such as
            `gm.Ray(address="auto", work_folder="/shared/work")`. All but "local" need a corpus of files, which tasks
            encode in parts. The files written are identical.
        overwrite: Replace finished shards made with other options or inputs. They stay until the new ones are complete.
        checkpoint_seconds: Seconds between two checkpoints of the run.
        progress: How to report progress; see `train_tokenizer`.
        **options: `gristmill.shards.EncodeOptions`, and `gristmill.corpus.ReadOptions` for how files are read.

    Returns:
        The manifest and the measurements of the run; `EncodeRun.shards` opens the shards.

    Raises:
        OptionError: An argument or option is unknown or out of range.
        ShardsMismatchError: `out` holds shards of another tokenizer, corpus or other options.
        FileExistsError: `out` holds files that are not shards.
        BlockingIOError: Another process is writing shards to `out`.
        ShardsFormatError: The unfinished shards in `out` are damaged.
        CorpusError: The corpus is empty, or an input is damaged.
        InputChangedError: An input changed while it was read.
        WorkerError: A task of the executor lost its worker several times.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from gristmill import Tokenizer
        >>> tok = Tokenizer([(b"a", b"a")], special_tokens=["<|endoftext|>"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = encode_corpus(["aab", "b"], tok, out=folder + "/shards", progress=None)
        ...     np.fromfile(folder + "/shards/shard-00000.bin", "uint16").tolist()
        [256, 98, 257, 98, 257]
    """
    clock = Clock("read", "find", "encode", "write", "sync")
    chosen = check_executor(executor, num_threads)
    threads = chosen.num_workers if isinstance(chosen, Local) else None
    out = check_place(out)
    plan = Plan.checked(corpus, tokenizer, out=out, num_threads=threads, options=options)
    interval = check_interval(checkpoint_seconds)
    check_switch("overwrite", overwrite)
    if chosen.runs_tasks or is_remote(out):
        check_plan(plan, chosen, is_remote=is_remote(out))
    with open_folder(out, plan.request, overwrite=overwrite, tokenizer=plan.tokenizer) as folder:
        if folder.finished is not None:
            return EncodeRun(location=shown_place(out), manifest=folder.finished, profile=None, resumed=False)
        if isinstance(folder, RemoteFolder) or folder.has_parts or chosen.runs_tasks:
            with open_progress(progress) as on_progress:
                done = encode_in_parts(plan, folder, chosen, Watch(on_progress), overwrite=overwrite)
            return run_of_parts(shown_place(out), done, clock)
        with _open_output(plan, folder, overwrite=overwrite) as output:
            resumed = folder.state is not None
            with open_progress(progress) as on_progress:
                manifest = _encode(plan, folder, output, clock, interval, on_progress)
        folder.finish(manifest)
    warn_of_skipped(output.position.skipped, len(manifest.inputs))
    profile = Profile(
        stages=clock.stages(num_bytes=output.source_bytes, num_tokens=output.num_new_tokens),
        seconds=clock.total_seconds,
        num_threads=plan.num_threads,
        peak_memory_bytes=peak_memory_bytes(),
        memory=memory_since(clock.began),
    )
    return EncodeRun(location=shown_place(out), manifest=manifest, profile=profile, resumed=resumed)


def run_of_parts(location: str, done: EncodedParts, clock: Clock) -> EncodeRun:
    """Return the result of a run in parts, and warn if it skipped inputs."""
    skipped = {i: entry.skipped for i, entry in enumerate(done.manifest.inputs) if entry.skipped is not None}
    warn_of_skipped(skipped, len(done.manifest.inputs))
    profile = Profile(
        stages=done.stages(),
        seconds=clock.total_seconds,
        num_threads=done.num_workers,
        peak_memory_bytes=peak_memory_bytes(),
        memory=memory_since(clock.began),
        tasks=done.tasks,
    )
    return EncodeRun(location=location, manifest=done.manifest, profile=profile, resumed=done.is_resumed)


def _open_output(plan: Plan, folder: Folder, *, overwrite: bool) -> Output:
    """Return the output, resumed at the state of an earlier run; a new one if that is damaged and may be replaced."""
    try:
        return Output(plan, folder)
    except ShardsFormatError:
        if not overwrite:
            raise
    folder.start_again()
    return Output(plan, folder)


def _encode(
    plan: Plan, folder: Folder, output: Output, clock: Clock, interval: float, on_progress: OnProgress | None
) -> Manifest:
    """Encode the rest of the corpus. Threads read and encode; the calling thread writes."""
    meter = Meter(plan, output, on_progress)
    checkpoints = Checkpoints(folder, output, clock, interval=interval, resumable=plan.request.inputs is not None)
    with closing(encoded_jobs(plan, output.position, clock, output.note_skipped)) as jobs:
        for number, job in enumerate(jobs):
            if number == 0:  # not earlier: now all threads are busy, so it costs no time
                folder.save_tokenizer(plan.layout)
            with clock.measure("write"):
                output.write(job)
            checkpoints.save_if_due()
            meter.report_if_due()
    if output.num_documents == 0:
        raise EmptyCorpusError(why_empty(output.position))
    with clock.measure("sync"):
        splits = output.finish()
    meter.report_end()
    return plan.request.manifest(splits, skipped=output.position.skipped, num_nulls=output.position.num_nulls)
