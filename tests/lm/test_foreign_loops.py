"""TokenDataset in other training loops: torch's DataLoader and the Hugging Face Trainer."""

import itertools
import json
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

import gristmill as gm
from gristmill.errors import OptionError
from gristmill.lm import TokenDataset
from shards.builder import build_folder, train

LENGTH = 4


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign") / "shards"
    texts = ["low lower", "newest widest newer", "x", "the lowest low low low lower", "wider"] * 8
    build_folder(folder, texts, shard_tokens=7, tokenizer=train(), val_texts=["low"])
    return gm.Shards(folder)


def numbered(num_windows=25, *, batch_size=3, **options):
    tokens = np.arange(num_windows * LENGTH + 1, dtype=np.uint16)
    return TokenDataset(tokens, context_length=LENGTH, batch_size=batch_size, **options)


def numbers(items):
    """The numbers of windows over `numbered` tokens, from items or batches in either form."""
    first = [item["input_ids"] if isinstance(item, dict) else item[0] for item in items]
    return torch.cat([ids.reshape(-1, LENGTH)[:, 0] // LENGTH for ids in first]).tolist() if first else []


# By number


def test_shards_and_a_context_length_are_enough(shards):
    dataset = TokenDataset(shards, context_length=LENGTH)
    tokens = shards.tokens[:].astype(np.int64)
    assert len(dataset) == (len(tokens) - 1) // LENGTH == dataset.num_windows
    for number, item in enumerate(dataset):
        window = tokens[number * LENGTH : number * LENGTH + LENGTH]
        assert item.keys() == {"input_ids", "labels"}
        assert item["input_ids"].dtype == item["labels"].dtype == torch.int64
        assert item["input_ids"].tolist() == item["labels"].tolist() == window.tolist()


def test_pairs_have_targets_one_token_further_on(shards):
    tokens = shards.tokens[:].astype(np.int64)
    pairs = TokenDataset(shards, context_length=LENGTH).to_map_dataset("pairs")
    inputs, targets = pairs[3]
    assert len(pairs) == (len(tokens) - 1) // LENGTH
    assert inputs.tolist() == tokens[12:16].tolist() and targets.tolist() == tokens[13:17].tolist()


def test_changing_the_labels_of_an_item_does_not_change_its_inputs():
    for form in ("huggingface", "pairs"):
        item = numbered().to_map_dataset(form)[2]
        inputs, labels = item.values() if isinstance(item, dict) else item
        labels[:] = -100
        assert inputs.tolist() == [8, 9, 10, 11]


def test_items_have_the_documents_of_their_tokens_where_the_dataset_has_them(shards):
    dataset = TokenDataset(shards, context_length=LENGTH, batch_size=1, document_mask=True)
    ids = [batch.document_ids_BT[0].tolist() for batch in dataset.validation_batches()]
    assert [item["document_ids"].tolist() for item in dataset] == ids
    assert [item[2].tolist() for item in dataset.to_map_dataset("pairs")] == ids
    assert any(max(each) > 0 for each in ids)


@pytest.mark.parametrize("index", [0, np.int64(7), np.uint8(7), torch.tensor(7), True])
def test_whole_numbers_of_any_type_are_indices(index):
    assert numbers([numbered()[index]]) == [int(index)]


@pytest.mark.parametrize("index", [25, -1, -25, 2**70, np.int64(-1)])
def test_an_index_out_of_range_is_an_index_error(index):
    with pytest.raises(IndexError, match=r"there is no window -?\d+\. Pass a number from 0 to 24\."):
        numbered()[index]


@pytest.mark.parametrize("index", [1.0, "1", slice(2), None])
def test_what_is_no_whole_number_is_a_type_error(index):
    with pytest.raises(TypeError):
        numbered()[index]


def test_an_id_beyond_the_vocabulary_is_named():
    with pytest.raises(gm.errors.TrainingError, match=r"token 8 of the array has the id 8, but vocab_size=8"):
        numbered(vocab_size=8)[1]


def test_subsets_sums_and_splits_of_torch_work():
    dataset = numbered()
    assert numbers(Subset(dataset, [4, 2])) == [4, 2]
    assert numbers(dataset + numbered(2)) == [*range(25), 0, 1]
    assert numbers(ConcatDataset([dataset, dataset]))[25:] == list(range(25))
    parts = random_split(dataset, [0.8, 0.2], generator=torch.Generator().manual_seed(0))
    assert sorted(numbers(parts[0]) + numbers(parts[1])) == list(range(25))


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("form", ["huggingface", "pairs"])
def test_workers_read_what_the_process_itself_reads(shards, form, context):
    dataset = TokenDataset(shards, context_length=LENGTH).to_map_dataset(form)
    dataset[0]  # a file is open when the workers start
    alone = list(DataLoader(dataset, batch_size=5))
    shared = list(DataLoader(dataset, batch_size=5, num_workers=2, multiprocessing_context=context))
    for one, other in zip(alone, shared, strict=True):
        fields = [batch.values() if isinstance(batch, dict) else batch for batch in (one, other)]
        assert all(torch.equal(a, b) for a, b in zip(*fields, strict=True))


def test_persistent_workers_shuffle_every_epoch():
    loader = DataLoader(numbered(), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True)
    epochs = [numbers(loader) for _ in range(3)]
    assert all(sorted(epoch) == list(range(25)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_memory_map_travels_to_workers_as_the_name_of_its_file(tmp_path):
    np.arange(100_000, dtype=np.uint16).tofile(tmp_path / "train.bin")
    dataset = TokenDataset(np.memmap(tmp_path / "train.bin", np.uint16, mode="r"), context_length=LENGTH)
    sent = pickle.dumps(dataset)
    assert len(sent) < 2_000
    assert numbers([pickle.loads(sent)[9]]) == [9]
    part = TokenDataset(np.memmap(tmp_path / "train.bin", np.uint16, mode="r")[8:], context_length=LENGTH)
    assert numbers([pickle.loads(pickle.dumps(part))[0]]) == [2]


# In shuffled order


def test_a_stream_has_the_batches_of_the_dataset():
    dataset = numbered(24)
    stream = dataset.to_iterable_dataset("pairs")
    assert len(stream) == 24
    for step, (inputs, targets) in enumerate(DataLoader(stream, batch_size=3)):
        batch = dataset.batch(step)
        assert torch.equal(inputs, batch.inputs_BT) and torch.equal(targets, batch.targets_BT)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_number_of_workers_does_not_change_the_batches_of_a_stream(num_workers):
    stream = numbered(26).to_iterable_dataset(num_epochs=2)
    alone = [numbers([batch]) for batch in DataLoader(stream, batch_size=3)]
    shared = [numbers([batch]) for batch in DataLoader(stream, batch_size=3, num_workers=num_workers)]
    assert alone == shared
    assert sorted(itertools.chain(*alone)) == sorted([*range(26)] * 2)


@pytest.mark.parametrize(("world_size", "num_workers"), list(itertools.product([1, 2, 3], [0, 2])))
@pytest.mark.parametrize("batch_size", [3, 4])  # the batch size of the dataset, and another
def test_ranks_and_workers_together_get_every_window_once(world_size, num_workers, batch_size):
    found = []
    for rank in range(world_size):
        stream = numbered().to_iterable_dataset(rank=rank, world_size=world_size)
        part = numbers(DataLoader(stream, batch_size=batch_size, num_workers=num_workers))
        assert len(stream) == len(part)
        found += part
    assert sorted(found) == list(range(25))


def test_an_epoch_is_chosen_also_for_workers_that_stay():
    dataset = numbered(24)
    stream = dataset.to_iterable_dataset()
    loader = DataLoader(stream, batch_size=3, num_workers=2, persistent_workers=True)
    for epoch in (0, 1, 5, 1):
        stream.set_epoch(epoch)
        expected = [number for step in range(8) for number in numbers([(dataset.batch(8 * epoch + step).inputs_BT,)])]
        assert numbers(loader) == expected


def test_an_endless_stream_goes_through_the_epochs():
    dataset = numbered(10, batch_size=5)
    stream = dataset.to_iterable_dataset("pairs", num_epochs=None)
    with pytest.raises(TypeError, match="the stream is endless and has no length"):
        len(stream)
    found = numbers(itertools.islice(stream, 40))
    assert [sorted(found[i : i + 10]) for i in range(0, 40, 10)] == [list(range(10))] * 4


@pytest.mark.parametrize("skip", [0, 1, 6, 24, 25, 31, 50])
def test_skipped_windows_are_those_at_the_start(skip):
    data = numbered()
    whole = numbers(data.to_iterable_dataset(num_epochs=2))
    assert numbers(data.to_iterable_dataset(num_epochs=2, skip=skip)) == whole[skip:]
    second = data.to_iterable_dataset(skip=skip)
    second.set_epoch(1)
    assert numbers(second) == whole[max(25, skip) :]


@pytest.mark.parametrize("num_given", [0, 1, 3, 10, 25])
def test_a_stream_resumes_from_its_state(num_given):
    stream = numbered().to_iterable_dataset()
    stream.set_epoch(3)
    whole = numbers(stream)
    iterator = iter(stream)
    for _ in range(num_given):
        next(iterator)
    state = pickle.loads(pickle.dumps(stream.state_dict()))
    resumed = numbered().to_iterable_dataset()
    resumed.load_state_dict(state)
    assert numbers(resumed) == whole[num_given:]
    assert numbers(resumed) == whole


def test_a_state_of_another_dataset_is_refused():
    state = numbered(seed=1).to_iterable_dataset().state_dict()
    with pytest.raises(OptionError, match="another dataset: seed was 1 and is now 0"):
        numbered().to_iterable_dataset().load_state_dict(state)
    state = numbered(shift_windows=False).to_iterable_dataset().state_dict()
    with pytest.raises(OptionError, match="another dataset: shift_windows was False and is now True"):
        numbered().to_iterable_dataset().load_state_dict(state)


def test_a_state_of_another_mixture_is_refused():
    tokens = [np.arange(101, dtype=np.uint16)] * 2
    mixed, other = (TokenDataset(tokens, context_length=LENGTH, weights=[1, share]) for share in (1, 3))
    state = json.loads(json.dumps(mixed.to_iterable_dataset().state_dict()))
    mixed.to_iterable_dataset().load_state_dict(state)
    with pytest.raises(OptionError, match=r"shares was \[500000, 500000\] and is now \[250000, 750000\]"):
        other.to_iterable_dataset().load_state_dict(state)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stateful_loader_of_torchdata_resumes_in_mid_epoch(num_workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader():
        stream = numbered(26).to_iterable_dataset()
        return stateful.StatefulDataLoader(stream, batch_size=3, num_workers=num_workers)

    whole = [numbers([batch]) for batch in loader()]
    begun = loader()
    for _ in zip(range(4), begun, strict=False):
        state = begun.state_dict()
    resumed = loader()
    resumed.load_state_dict(state)
    assert [numbers([batch]) for batch in resumed] == whole[4:]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "tuples"}, "form='tuples' is not valid. Pass one of 'huggingface', 'pairs'"),
        ({"num_epochs": 0}, "num_epochs must be >= 1, got 0"),
        ({"rank": 2, "world_size": 2}, "rank must be >= 0 and < world_size=2, got 2"),
        ({"skip": -1}, "skip must be >= 0, got -1"),
    ],
)
def test_bad_options_of_a_stream_are_named(options, message):
    with pytest.raises(OptionError, match=message):
        numbered().to_iterable_dataset(**options)


# The Hugging Face Trainer


@pytest.mark.parametrize("kind", ["map", "iterable"])
def test_the_hugging_face_trainer_trains_on_windows(shards, kind, tmp_path):
    pytest.importorskip("accelerate")
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shards.vocab_size,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8,
    )
    dataset = TokenDataset(shards, context_length=8, batch_size=4)
    losses = []

    class Losses(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            losses.extend([logs["loss"]] if "loss" in logs else [])

    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        max_steps=60,
        learning_rate=3e-2,
        logging_steps=5,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    data = dataset if kind == "map" else dataset.to_iterable_dataset()
    Trainer(LlamaForCausalLM(config), arguments, train_dataset=data, callbacks=[Losses()]).train()
    # The text repeats a few words. A model whose labels were shifted twice could not learn it this well.
    assert losses[-1] < 0.6 * losses[0]
