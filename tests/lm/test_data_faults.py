"""Data that change or are damaged during training raise an error that names the file, not a signal or IndexError."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import gristmill as gm
from gristmill.lm.data.sequences import SequenceDataset, ShardSequences, open_sequences
from gristmill.lm.data.token_dataset import TokenDataset
from gristmill.lm.data.token_source import ArrayTokens, TokenFiles
from lm.tiny_runs import VOCAB_SIZE, build_folder, build_shards, texts, tokenizer
from scripts import run_script

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

# In a subprocess, because truncating a mapped file would end the process with SIGBUS.
CUT_SHORT = """
    import os, sys
    from pathlib import Path
    import gristmill as gm
    from gristmill.lm.data.sequences import SequenceDataset, open_sequences
    from gristmill.lm.data.token_dataset import TokenDataset

    kind, data, cache, size = sys.argv[1:]
    if kind == "windows":
        dataset = TokenDataset(gm.Shards(data), context_length=16, batch_size=4, seed=0)
    else:
        options = {"cache_dir": cache, "val_fraction": 0.0} if kind != "documents" else {}
        source = open_sequences(data, max_sequence_length=40, **options).train
        dataset = SequenceDataset(
            source, max_sequence_length=40, batch_size=4, seed=0, num_workers=2 if kind == "workers" else 0
        )
    for step in range(2):  # so that both workers have opened the file
        dataset.batch(step)
    shards = gm.Shards(data).paths if kind in ("windows", "documents") else []
    for path in (*shards, *Path(cache).rglob("train.bin")):
        os.truncate(path, int(size))
    try:
        for step in range(2, 1000):
            dataset.batch(step)
    except gm.GristmillError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize("size", [0, 10])
@pytest.mark.parametrize("kind", ["windows", "documents", "thread", "workers"])
def test_a_file_that_is_cut_short_in_training_is_an_error_with_its_name_and_sizes(tmp_path, kind, size):
    data = tmp_path / "data"
    if kind in ("windows", "documents"):
        # One shard, so that the first batch opens it.
        build_one_shard(data)
        size_then = gm.Shards(data).paths[0].stat().st_size
    else:
        data.mkdir()
        pq.write_table(pa.table({"tokens": [list(range(i % 30 + 1)) for i in range(100)]}), data / "a.parquet")
        size_then = 4 * sum(i % 30 + 1 for i in range(100))
    answer = run_script(CUT_SHORT, kind, data, tmp_path / "cache", size)
    assert answer.returncode == 0, answer
    assert answer.stdout.startswith("InputChangedError"), answer
    assert f"the file had {size_then:,} bytes when it was opened and now has {size}" in answer.stdout
    name = gm.Shards(data).paths[0].name if kind in ("windows", "documents") else "train.bin"
    assert (
        f"{name}: " in answer.stdout and "esume from the last checkpoint" in answer.stdout
    )  # capitalized for the cache


def build_one_shard(folder):
    build_folder(folder, texts(100), tokenizer=tokenizer())
    assert len(gm.Shards(folder).paths) == 1


@pytest.fixture
def shards(tmp_path):
    return gm.Shards(build_shards(tmp_path / "shards"))


def test_a_shard_that_was_cut_short_before_it_is_first_read_is_named(shards):
    last = shards.paths[-1]
    then = last.stat().st_size
    os.truncate(last, then - 2)
    with pytest.raises(
        gm.ShardsFormatError, match=rf"{last.name}: the file has {then - 2:,} bytes instead of {then:,}"
    ):
        TokenFiles(shards.tokens).stretch(0, shards.num_tokens)


def test_a_shard_that_another_file_replaces_by_name_is_read_to_the_end_as_it_was(shards, tmp_path):
    files = TokenFiles(shards.tokens)
    before = files.stretch(0, shards.num_tokens)
    for path in shards.paths:
        (tmp_path / "new").write_bytes(bytes(path.stat().st_size))
        (tmp_path / "new").replace(path)
    assert np.array_equal(files.stretch(0, shards.num_tokens), before)


def test_shards_that_were_encoded_again_are_not_mixed_with_the_old_ones(shards):
    files = TokenFiles(shards.tokens)
    files.stretch(0, 5)  # opens only the first file
    folder = shards.paths[0].parent
    (folder / "manifest.json").unlink()  # the first step of an overwrite
    with pytest.raises(gm.InputChangedError, match="the shards were replaced or removed"):
        files.stretch(0, shards.num_tokens)


def test_windows_from_files_are_those_of_an_array_for_more_windows_than_open_files(shards, monkeypatch):
    monkeypatch.setattr("gristmill.lm.data.token_source.MAX_OPEN_MAPS", 2)
    assert len(shards.paths) > 3
    files, array = TokenFiles(shards.tokens), ArrayTokens(np.asarray(shards.tokens))
    rng = np.random.default_rng(0)
    for length in (1, 17, 900):
        starts = rng.integers(0, shards.num_tokens - length + 1, 50)
        assert np.array_equal(files.windows(starts, length), array.windows(starts, length))


def test_files_are_closed_when_the_dataset_is_gone(shards):
    listed = Path("/proc/self/fd")
    if not listed.exists():
        pytest.skip("open files are counted in /proc")

    def num_open():
        return sum(1 for _ in listed.iterdir())

    before = num_open()
    files = TokenFiles(shards.tokens)
    files.stretch(0, shards.num_tokens)
    assert num_open() == before + len(shards.paths)
    del files
    assert num_open() == before


# Ids that the vocabulary does not have


def damage(shards, position, id):
    """Overwrite token `position` of the split with `id`; return its file and its position there."""
    file = int(np.searchsorted(shards.tokens.begins, position, side="right")) - 1
    inside = position - shards.tokens.begins[file]
    tokens = np.fromfile(shards.paths[file], shards.dtype)
    tokens[inside] = id
    tokens.tofile(shards.paths[file])
    return f"{shards.paths[file].name}: token {inside:,} has the id {id}, but vocab_size={VOCAB_SIZE} allows 0 to 299"


def all_batches(dataset, num_steps):
    for step in range(num_steps):
        dataset.batch(step)


@pytest.mark.parametrize("options", [{"keep_on_device": True}, {"prefetch": True}, {"prefetch": False}])
def test_a_window_with_an_id_beyond_the_vocabulary_names_the_shard_the_token_and_the_id(shards, options):
    message = damage(shards, 800, 4321)
    options = {"context_length": 16, "batch_size": 4, "seed": 0, **options}
    num_steps = (shards.num_tokens - 1) // 16 // 4 + 1
    with TokenDataset(shards, vocab_size=VOCAB_SIZE, **options) as dataset:
        with pytest.raises(gm.TrainingError, match=message):
            all_batches(dataset, num_steps)
        with pytest.raises(gm.TrainingError, match="pass vocab_size=4322 or more"):
            list(dataset.validation_batches())
    with TokenDataset(shards, vocab_size=4322, **options) as dataset:
        all_batches(dataset, num_steps)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("position", ["after", "before"])
def test_a_document_with_an_id_beyond_the_vocabulary_names_the_shard_the_token_and_the_id(
    tmp_path, num_workers, position
):
    build_folder(tmp_path / "s", texts(40), tokenizer=tokenizer(), shard_tokens=300, position=position)
    shards = gm.Shards(tmp_path / "s")
    begin = int(shards.document_ends[20])
    message = damage(shards, begin + 3, 4321)
    source = ShardSequences(shards, max_sequence_length=100)
    options = {"max_sequence_length": 100, "batch_size": 4, "seed": 0, "num_workers": num_workers}
    with SequenceDataset(source, vocab_size=VOCAB_SIZE, **options) as dataset:
        with pytest.raises(gm.TrainingError, match=message):
            all_batches(dataset, 10)
        with pytest.raises(gm.TrainingError, match=message):
            list(dataset.validation_batches())
    with SequenceDataset(source, vocab_size=4322, **options) as dataset:
        all_batches(dataset, 10)


def test_an_id_of_parquet_beyond_the_vocabulary_names_the_sequence(tmp_path):
    pq.write_table(pa.table({"tokens": [[1, 2, 3], [4, 5, 6, 70], [7]]}), tmp_path / "a.parquet")
    source = open_sequences(tmp_path / "a.parquet", cache_dir=tmp_path / "cache", val_fraction=0.0).train
    dataset = SequenceDataset(source, max_sequence_length=1000, batch_size=3, seed=0, vocab_size=70)
    with pytest.raises(gm.TrainingError, match=r"train.bin: token 3 of sequence 1 has the id 70, but vocab_size=70"):
        list(dataset.validation_batches())


@pytest.mark.parametrize("keep_on_device", [True, False])
def test_a_negative_id_of_an_array_is_beyond_the_vocabulary(keep_on_device):
    ids = np.arange(101, dtype=np.int32)
    ids[57] = -1
    dataset = TokenDataset(
        ids, context_length=4, batch_size=25, seed=0, vocab_size=200, prefetch=False, keep_on_device=keep_on_device
    )
    with pytest.raises(gm.TrainingError, match="token 57 of the array has the id -1, but vocab_size=200 allows 0 to"):
        dataset.batch(0)


def test_the_largest_id_of_a_vocabulary_is_no_error():
    ids = np.full(101, 199, np.uint16)
    dataset = TokenDataset(ids, context_length=4, batch_size=25, seed=0, vocab_size=200, prefetch=False)
    assert torch.equal(dataset.batch(0).inputs_BT, torch.full((25, 4), 199))
