"""shards: a corpus of any size -> token shards, in bounded memory; a run that was killed goes on where it was.

Readers, encoders and the writer work at the same time. Reader threads (`read_files`) give batches of documents in the
order of the corpus; each of N threads finds the documents of a batch and encodes them, with the GIL released; the
calling thread writes the ids in order, and every few seconds writes down how far it has come.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, Unpack

from numpy.typing import DTypeLike

from gristmill import _core
from gristmill.corpus import Corpus, Documents, Files, ReadOptions, read_files
from gristmill.corpus.batches import Batch, Cut
from gristmill.corpus.skipped import warn_of_skipped
from gristmill.corpus.threads import map_in_order
from gristmill.encode.regex_encoder import RegexEncoder
from gristmill.encode.special_rules import NONE, Specials
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import EmptyCorpusError, OptionError, ShardsFormatError
from gristmill.profile import Profile, Stage, peak_memory_bytes
from gristmill.progress import OnProgress, ProgressOption, open_progress
from gristmill.shards.encode_batches import BatchEncoder, Encoded, EncodedJob, Ids, gather_jobs
from gristmill.shards.folder import Folder, check_shards
from gristmill.shards.manifest import TOKENIZER_FILE, Manifest
from gristmill.shards.plan import Plan
from gristmill.shards.state import SplitState, read_state
from gristmill.shards.writer import SplitWriter

__all__ = ["EncodeRun", "encode_corpus"]

MAX_READERS = 4
CHECKPOINT_SECONDS = 10.0
PROGRESS_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeRun:
    """What `encode_corpus` did: the manifest it wrote, and the figures of this run."""

    folder: Path
    manifest: Manifest
    profile: Profile | None  # None: the shards were there already, made from the same inputs in the same way
    resumed: bool  # a run that was killed or failed had begun them

    @property
    def num_documents(self) -> int:
        """Of all splits."""
        return sum(split.documents for split in self.manifest.splits.values())

    @property
    def num_tokens(self) -> int:
        """Of all splits, end-of-text ids among them."""
        return sum(split.tokens for split in self.manifest.splits.values())

    @property
    def source_bytes(self) -> int:
        """Of the texts of all splits."""
        return sum(split.source_bytes for split in self.manifest.splits.values())


def encode_corpus(
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    out: str | os.PathLike[str],
    format: str = "gristmill",
    end_of_text: str | int | None = "auto",
    end_of_text_position: Literal["after", "before"] | None = None,
    allowed_special: Specials = NONE,
    dtype: DTypeLike | None = None,
    shard_tokens: int | None = None,
    val_fraction: float = 0.0,
    seed: int = 0,
    num_threads: int | None = None,
    overwrite: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: ProgressOption = "auto",
    **reading: Unpack[ReadOptions],
) -> EncodeRun:
    """Encode the documents of `corpus` into token files in the folder `out`, and return what was done.

    The files depend on the corpus, the tokenizer and the options alone, not on the number of threads. Memory stays
    bounded whatever the size of the corpus. Called again after it was killed, it goes on; called again when all is
    done, it does nothing; called with another tokenizer, other inputs or other options, it is refused.

    corpus: paths, globs, folders, URLs, or an iterable of `str` or `bytes` documents; `gristmill.corpus` has the table.
    out: the folder to write; made if it is not there.
    format: gristmill (read by `Shards`), nanogpt, llmc, megatron, npy, parquet or datatrove.
    end_of_text: the special token that marks documents, by name or id. "auto": <|endoftext|> or the like; None: none.
    end_of_text_position: "after" or "before" each document. Default: what the format's own tools do.
    allowed_special: special tokens that become ids where a document spells them out. Default: they are plain text.
    dtype: of the ids; default: uint16 where that holds them all, otherwise uint32. Only for gristmill, npy, parquet.
    shard_tokens: ids in a file. Default: 100 million; one file, whatever its size, for nanogpt and megatron.
    val_fraction, seed: this share of the documents goes into the split "val", chosen by a hash of the seed and of how
        a document begins (its first 64 KiB): the same ones however files are named, ordered or added.
    num_threads: that encode; default: every core this process may use.
    overwrite: replace finished shards of another kind; they stay until the new ones are complete.
    checkpoint_seconds: how often to write down how far the run has come.
    progress: as in `train_tokenizer`.
    reading: input_format, text_field, documents, separator, on_error, max_document_bytes; see `ReadOptions`.

    >>> import tempfile
    >>> tok = Tokenizer([(b"a", b"a")], special_tokens=["<|endoftext|>"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = encode_corpus(["aab", "b"], tok, out=folder + "/shards", progress=None)
    ...     import numpy as np
    ...     np.fromfile(folder + "/shards/shard-00000.bin", "uint16").tolist()
    [256, 98, 257, 98, 257]
    """
    start = time.perf_counter()
    plan = Plan.checked(
        corpus,
        tokenizer,
        out=out,
        format=format,
        end_of_text=end_of_text,
        end_of_text_position=end_of_text_position,
        allowed_special=allowed_special,
        dtype=dtype,
        shard_tokens=shard_tokens,
        val_fraction=val_fraction,
        seed=seed,
        num_threads=num_threads,
        reading=reading,
    )
    interval = _check_seconds(checkpoint_seconds)
    with Folder(out, plan.request, overwrite=overwrite) as folder:
        if folder.finished is not None:
            return EncodeRun(folder=Path(out), manifest=folder.finished, profile=None, resumed=False)
        run = _begin(plan, folder, checkpoint_seconds=interval, overwrite=overwrite)
        try:
            with open_progress(progress) as on_progress:
                manifest = run.encode(on_progress)
        finally:
            run.close()
        folder.finish(manifest)
    warn_of_skipped(run.skipped, len(plan.request.inputs or ()))
    profile = Profile(
        stages=tuple(run.stages()),
        seconds=time.perf_counter() - start,
        num_threads=plan.num_threads,
        peak_memory_bytes=peak_memory_bytes(),
    )
    return EncodeRun(folder=Path(out), manifest=manifest, profile=profile, resumed=run.resumed)


def _begin(plan: Plan, folder: Folder, *, checkpoint_seconds: float, overwrite: bool) -> _Run:
    """The run: one that goes on if it can, one that starts again if it cannot and may."""
    try:
        return _Run(plan, folder, checkpoint_seconds=checkpoint_seconds)
    except ShardsFormatError:
        if not overwrite:
            raise
    folder.start_again()
    return _Run(plan, folder, checkpoint_seconds=checkpoint_seconds)


class _Run:
    """One run over the corpus, or over what an earlier run has left of it."""

    def __init__(self, plan: Plan, folder: Folder, *, checkpoint_seconds: float) -> None:
        self._plan, self._folder = plan, folder
        self._checkpoint_seconds = checkpoint_seconds
        self.resumed = folder.state is not None
        self._position, states = read_state(folder.state, folder.path)
        for state in states.values():
            check_shards(folder.path, state.shards)
        self._seconds = {"read": 0.0, "find": 0.0, "encode": 0.0, "write": 0.0, "sync": 0.0}
        self._num_bytes = 0  # of text, in this run
        self._input_bytes = 0  # of the input under way, as it lies on the disk
        inputs = plan.source.inputs if isinstance(plan.source, Files) else ()
        self._input_begins = list(accumulate((input.num_bytes for input in inputs), initial=0))
        self._begun_bytes = self._input_begins[self._position.index] if inputs else 0
        self._writers: dict[str, SplitWriter] = {}
        for split in plan.splits:
            self._writers[split] = SplitWriter(
                folder.path,
                split,
                name=folder.name,
                layout=plan.layout,
                dtype=plan.dtype,
                shard_tokens=plan.shard_tokens,
                state=states.get(split, SplitState()),
            )

    @property
    def skipped(self) -> dict[int, str]:
        """Why inputs were left out, by their index."""
        return self._position.skipped

    def encode(self, on_progress: OnProgress | None) -> Manifest:
        """Encode all that is left, and return the manifest."""
        self._begun_tokens = self._num_tokens()
        saved = reported = time.perf_counter()
        num_published = self._num_published()
        with closing(self._encoded_jobs()) as jobs:
            for number, done in enumerate(jobs):
                if number == 0:  # not sooner: all threads are at work by now
                    self._plan.tokenizer.save(self._folder.path / TOKENIZER_FILE)
                self._write(done)
                now = time.perf_counter()
                if now - saved >= self._checkpoint_seconds or self._num_published() > num_published:
                    self._checkpoint()
                    saved, num_published = now, self._num_published()
                if on_progress is not None and now - reported >= PROGRESS_SECONDS:
                    self._report(on_progress)
                    reported = now
        if self._num_documents() == 0:
            raise EmptyCorpusError(self._why_empty())
        splits = {split: self._timed("sync", writer.finish) for split, writer in self._writers.items()}
        if on_progress is not None:
            self._report(on_progress, is_done=True)
        return self._plan.request.manifest(splits, skipped=self.skipped, num_nulls=self._position.num_nulls)

    def close(self) -> None:
        """Close all files."""
        for writer in self._writers.values():
            writer.close()

    def stages(self) -> Iterator[Stage]:
        """What each stage of this run took. Reading is what the others waited for; stages of threads add up."""
        num_tokens = self._num_tokens() - self._begun_tokens
        for stage, seconds in self._seconds.items():
            yield Stage(stage=stage, seconds=seconds, num_bytes=self._num_bytes, num_tokens=num_tokens)

    def _encoded_jobs(self) -> Generator[EncodedJob]:
        plan = self._plan
        encoder, rule = plan.tokenizer._encoder, plan.tokenizer._rules.rule(plan.allowed_special, NONE)
        cut: Cut = None
        if not isinstance(encoder, RegexEncoder):
            cut = lambda text: encoder.last_cut(text, 0, rule)  # noqa: E731
        cancellation = _core.Cancellation()
        work = BatchEncoder(
            encoder, rule, plan.request.end_of_text, plan.val_fraction, plan.seed, cancellation
        ).encode_job
        with closing(self._batches(cut)) as batches, closing(gather_jobs(self._timed_reads(batches))) as gathered:
            yield from map_in_order(work, gathered, num_threads=plan.num_threads, cancel=cancellation.cancel)

    def _batches(self, cut: Cut) -> Generator[tuple[int, Batch]]:
        plan, position = self._plan, self._position
        if isinstance(plan.source, Documents):
            return ((0, batch) for batch in plan.source.read_batches())
        return read_files(
            plan.source,
            plan.reading,
            cut=cut,
            first=position.index,
            mark=position.mark,
            num_readers=min(plan.num_threads, MAX_READERS),
            on_skip=self._skip,
        )

    def _skip(self, index: int, error: Exception) -> None:
        self._position.skipped[index] = str(error)

    def _timed_reads(self, batches: Iterator[tuple[int, Batch]]) -> Iterator[tuple[int, Batch]]:
        while True:
            began = time.perf_counter()
            item = next(batches, None)
            self._seconds["read"] += time.perf_counter() - began
            if item is None:
                return
            yield item

    def _write(self, done: EncodedJob) -> None:
        began = time.perf_counter()
        for encoded in done.encoded:
            self._write_batch(encoded)
        self._seconds["write"] += time.perf_counter() - began
        self._seconds["find"] += done.find_seconds
        self._seconds["encode"] += done.encode_seconds
        self._position.index, self._position.mark = done.job.index, done.job.end
        self._input_bytes = done.job.batches[-1].position

    def _write_batch(self, encoded: Encoded) -> None:
        position = self._position
        if encoded.head is not None:
            assert position.open_split is not None, "a document goes on that was never begun"
            self._write_ids(position.open_split, encoded.head)
        for split, ids in encoded.splits.items():
            self._write_ids(split, ids)
        if encoded.left_open is not None:
            position.open_split = encoded.left_open
        elif not encoded.goes_on:
            position.open_split = None
        position.num_nulls += encoded.num_nulls

    def _write_ids(self, split: str, ids: Ids) -> None:
        self._num_bytes += ids.source_bytes
        self._writers[split].write(ids.ids, ids.ends, source_bytes=ids.source_bytes)

    def _checkpoint(self) -> None:
        if self._plan.request.inputs is None:  # an iterable cannot be asked again for what it gave before
            self._forget_outdated()
            return
        began = time.perf_counter()
        splits = {split: writer.checkpoint() for split, writer in self._writers.items()}
        parts = {name: size for writer in self._writers.values() for name, size in writer.part_sizes().items()}
        shards = {split: writer.shards for split, writer in self._writers.items()}
        self._folder.save({"position": self._position.to_json(), "splits": splits}, parts, shards)
        self._forget_outdated()
        self._seconds["sync"] += time.perf_counter() - began

    def _forget_outdated(self) -> None:
        for writer in self._writers.values():
            writer.forget_outdated()

    def _timed(self, stage: str, call: Any) -> Any:
        began = time.perf_counter()
        result = call()
        self._seconds[stage] += time.perf_counter() - began
        return result

    def _num_tokens(self) -> int:
        return sum(writer.num_tokens for writer in self._writers.values())

    def _num_documents(self) -> int:
        return sum(writer.num_documents for writer in self._writers.values())

    def _num_published(self) -> int:
        return sum(writer.num_published for writer in self._writers.values())

    def _report(self, on_progress: OnProgress, *, is_done: bool = False) -> None:
        tokens = self._num_tokens() - self._begun_tokens
        if isinstance(self._plan.source, Documents):
            on_progress("encode", self._num_bytes, 0, tokens=tokens)
            return
        total, num_files = self._input_begins[-1], len(self._input_begins) - 1
        on_progress(
            "encode",
            total if is_done else self._input_begins[self._position.index] + self._input_bytes,
            total,
            initial=self._begun_bytes,
            tokens=tokens,
            files=num_files if is_done else self._position.index,
            num_files=num_files,
        )

    def _why_empty(self) -> str:
        skipped, nulls = len(self.skipped), self._position.num_nulls
        reasons = [f"{skipped:,} inputs were skipped"] * (skipped > 0) + [f"{nulls:,} texts are null"] * (nulls > 0)
        why = f" ({', '.join(reasons)})" if reasons else ""
        return f"the corpus holds no documents{why}: there is nothing to encode, and no folder was made."


def _check_seconds(seconds: Any) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise OptionError(f"checkpoint_seconds={seconds!r} is not known. Pass a number of seconds, 0 or more.")
    return float(seconds)
