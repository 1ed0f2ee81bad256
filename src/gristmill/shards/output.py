"""Output of a run: the ids of every split, and the position in the corpus up to which they are written."""

from __future__ import annotations

from gristmill.shards.folder import Folder, check_shards
from gristmill.shards.jobs import Encoded, EncodedJob, Ids
from gristmill.shards.manifest import Split
from gristmill.shards.plan import Plan
from gristmill.shards.state import Checkpoint, SplitState, read_state
from gristmill.shards.writer import SplitWriter


class Output:
    """The writers of all splits, resumed at the state of an earlier run. Use it in a `with` block."""

    def __init__(self, plan: Plan, folder: Folder) -> None:
        self.position, states = read_state(folder.state, folder.path)
        for state in states.values():
            check_shards(folder.path, state.shards, plan.layout)
        self.source_bytes = 0  # of the texts written by this run
        self.input_bytes = 0  # read of the current input, compressed if it is
        self._writers = {
            split: SplitWriter(
                folder.path,
                split,
                name=folder.name,
                layout=plan.layout,
                dtype=plan.dtype,
                shard_tokens=plan.shard_tokens,
                state=states.get(split, SplitState()),
            )
            for split in plan.splits
        }
        self._tokens_before = self.num_tokens

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all splits, including earlier runs."""
        return sum(writer.num_tokens for writer in self._writers.values())

    @property
    def num_new_tokens(self) -> int:
        """Number of tokens written by this run."""
        return self.num_tokens - self._tokens_before

    @property
    def num_documents(self) -> int:
        """Number of documents in all splits, including earlier runs."""
        return sum(writer.num_documents for writer in self._writers.values())

    @property
    def num_shards(self) -> int:
        """Number of complete shards."""
        return sum(writer.num_published for writer in self._writers.values())

    def note_skipped(self, index: int, error: Exception) -> None:
        """Record that an input was skipped, and why."""
        self.position.skipped[index] = str(error)

    def write(self, done: EncodedJob) -> None:
        """Append the ids of a job. Jobs must come in order."""
        for encoded in done.encoded:
            self._write_batch(encoded)
        self.position.index, self.position.mark = done.job.index, done.job.end
        self.input_bytes = done.job.batches[-1].position

    def _write_batch(self, encoded: Encoded) -> None:
        position = self.position
        for split, ids in encoded.by_split(position.open_split):
            self._write_ids(split, ids)
        position.open_split = encoded.open_split_after(position.open_split)
        position.num_nulls += encoded.num_nulls

    def _write_ids(self, split: str, ids: Ids) -> None:
        self.source_bytes += ids.source_bytes
        self._writers[split].write(ids.ids, ids.ends, source_bytes=ids.source_bytes)

    def checkpoint(self) -> Checkpoint:
        """Flush everything to the disk, and return what a later run needs to resume from here."""
        splits = {split: writer.checkpoint() for split, writer in self._writers.items()}
        parts = {name: size for writer in self._writers.values() for name, size in writer.part_sizes().items()}
        shards = {split: writer.shards for split, writer in self._writers.items()}
        return Checkpoint({"position": self.position.to_json(), "splits": splits}, parts, shards)

    def forget_outdated(self) -> None:
        """Remove files that only an earlier checkpoint needed. Call it when a later checkpoint is on the disk."""
        for writer in self._writers.values():
            writer.forget_outdated()

    def finish(self) -> dict[str, Split]:
        """Publish the remaining tokens, and return the splits."""
        return {split: writer.finish() for split, writer in self._writers.items()}
