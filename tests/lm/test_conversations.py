"""Conversations as data: every conversation once, separate from the others, with its responses as targets."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from gristmill import CorpusError, OptionError
from gristmill.lm.data.batch import IGNORED
from gristmill.lm.data.chat_jinja import PLAIN
from gristmill.lm.data.chat_template import ChatTemplate
from gristmill.lm.data.packing import packed
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from lm.chats import questions, tokenizer, turns, write_lines
from lm.tiny_runs import texts

LENGTH = 160


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tok") / "tokenizer.json"
    tokenizer().save(path)
    return str(path)


@pytest.fixture
def opened(tmp_path, tokenizer_file):
    def open_rows(rows, name="chats.jsonl", **options):
        path = write_lines(tmp_path / name, rows)
        config = GPTConfig(conversations=True, tokenizer=tokenizer_file, **{"context_length": LENGTH, **options})
        return config.open_data(path)

    return open_rows


def chats(number, seed=0):
    """Conversations of one to three turns and very different lengths."""
    rng = np.random.default_rng(seed)
    words = [text.split() for text in texts(number * 6, seed)]
    found = []
    for first in range(0, number * 6, 6):
        contents = [" ".join(some[: rng.integers(1, 9)]) for some in words[first : first + 2 * rng.integers(1, 4)]]
        found.append({"messages": turns(*contents)})
    return found


def dataset_of(data, split="train", **options):
    settings = {"batch_size": 2, "seed": 0, "device": torch.device("cpu"), "vocab_size": None}
    return data.open_dataset(split, **{**settings, **options})


def conversations_in(batch):
    """(inputs, targets) of each conversation in a batch, without padding."""
    found = []
    for inputs_T, targets_T, documents_T in zip(batch.inputs_BT, batch.targets_BT, batch.document_ids_BT, strict=True):
        for number in documents_T.unique().tolist():
            here = documents_T == number
            if (targets_T[here] != IGNORED).any():
                found.append((tuple(inputs_T[here].tolist()), tuple(targets_T[here].tolist())))
    return found


def expected_of(rows, length=LENGTH):
    """The reference: each conversation encoded separately."""
    template, found = ChatTemplate(PLAIN, tokenizer()), []
    for row in rows:
        ids, is_trained, _ = template.encode([row["messages"]])[0]
        ids, is_trained = ids[: length + 1], is_trained[: length + 1]
        targets = np.where(is_trained, ids, IGNORED)[1:]
        if (targets != IGNORED).any():
            found.append((tuple(ids[:-1].tolist()), tuple(targets.tolist())))
    return found


def test_every_conversation_comes_once_in_an_epoch_and_apart_from_the_others(opened):
    rows = chats(40)
    dataset = dataset_of(opened(rows, val_fraction=0.0), batch_size=1)
    assert dataset.num_sequences < len(rows) / 1.5  # several per row
    for epoch in range(2):
        steps = range(epoch * dataset.num_sequences, (epoch + 1) * dataset.num_sequences)
        found = [chat for step in steps for chat in conversations_in(dataset.batch(step))]
        assert sorted(found) == sorted(expected_of(rows))


def test_the_order_depends_on_the_seed_and_the_epoch(opened):
    data = opened(chats(40), val_fraction=0.0)
    one, two = (dataset_of(data, seed=seed) for seed in (0, 1))
    num_steps = one.num_sequences // 2
    steps = [one.batch(0), two.batch(0), one.batch(num_steps)]
    assert len({str(batch.inputs_BT.tolist()) for batch in steps}) == 3
    assert torch.equal(one.batch(3).inputs_BT, dataset_of(data).batch(3).inputs_BT)


@pytest.mark.parametrize(("world_size", "num_micro_steps"), [(1, 4), (4, 1), (2, 2)])
def test_a_step_is_the_same_however_it_is_divided(opened, world_size, num_micro_steps):
    data = opened(chats(40), val_fraction=0.0)
    whole, parts = dataset_of(data, batch_size=4), dataset_of(data, batch_size=1)
    for step in (0, 5):
        divided = [
            parts.batch(step, rank=rank, world_size=world_size, micro_step=micro, num_micro_steps=num_micro_steps)
            for micro in range(num_micro_steps)
            for rank in range(world_size)
        ]
        assert torch.equal(torch.cat([batch.targets_BT for batch in divided]), whole.batch(step).targets_BT)
        division = {"world_size": world_size, "num_micro_steps": num_micro_steps}
        assert parts.targets_in_step(step, **division) == sum(int(batch.num_targets) for batch in divided)
        assert parts.tokens_in_step(step, **division) == whole.tokens_in_step(step)


def test_a_packed_conversation_has_the_loss_that_it_has_by_itself(opened):
    data = opened(chats(12), val_fraction=0.0)
    batch = dataset_of(data, batch_size=2).batch(0)
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=data.vocab_size, context_length=LENGTH, num_layers=2, num_heads=2, d_model=16))
    model.requires_grad_(False)
    nats, num_targets = 0.0, 0
    for inputs, targets in conversations_in(batch):
        logits_TV = model(torch.tensor([inputs]))[0]
        nats += float(torch.nn.functional.cross_entropy(logits_TV, torch.tensor(targets), reduction="sum"))
        num_targets += sum(target != IGNORED for target in targets)
    assert float(model.loss(batch, {})[0]) == pytest.approx(nats / num_targets, rel=1e-5)


def test_validation_has_each_row_once_on_any_number_of_ranks(opened):
    data = opened(chats(60), val_fraction=0.5)
    dataset = dataset_of(data, "val", batch_size=2)
    alone = [chat for batch in dataset.validation_batches() for chat in conversations_in(batch)]
    three = [list(dataset.validation_batches(rank=rank, world_size=3)) for rank in range(3)]
    assert len({len(batches) for batches in three}) == 1
    assert {batch.inputs_BT.shape for batches in three for batch in batches} == {(2, LENGTH)}
    assert sorted(chat for batches in three for batch in batches for chat in conversations_in(batch)) == sorted(alone)


def test_a_conversation_goes_to_the_same_split_whatever_its_place_and_the_template(opened, tmp_path):
    rows, other = chats(60), tmp_path / "other.jinja"
    other.write_text("{% for m in messages %}{{ m.role + '\n' + m.content + eos_token }}{% endfor %}")

    def validated(data):
        batches = list(dataset_of(data, "val").validation_batches())
        return sorted(
            "".join(tokenizer().decode(chat[0]).split()) for batch in batches for chat in conversations_in(batch)
        )

    once, twice = opened(rows, val_fraction=0.3), opened(rows[::-1] + rows, name="twice.jsonl", val_fraction=0.3)
    assert 5 < len(validated(once)) < 40
    assert sorted(validated(once) * 2) == validated(twice)
    assert len(validated(opened(rows, val_fraction=0.3, chat_template=str(other)))) == len(validated(once))


def test_a_long_conversation_is_cut_at_the_end_and_one_without_a_response_is_left_out(opened):
    long_answer = {"messages": turns("the cat?", " ".join(texts(20)))}
    long_question = {"messages": turns(" ".join(texts(20)), "the cat")}
    empty = {"prompt": "the cat?", "response": ""}
    data = opened([long_answer, long_question, *chats(3)], val_fraction=0.0)
    assert "truncated to context_length=160: 1 conversation." in data.messages
    assert "skipped, because no response starts within context_length=160: 1 conversation." in data.messages
    found = [chat for batch in dataset_of(data).validation_batches() for chat in conversations_in(batch)]
    assert sorted(found) == sorted(expected_of([long_answer, *chats(3)]))
    assert all(len(inputs) <= LENGTH for inputs, _ in found)
    # The plain template ends an empty response too, so there is a target.
    assert dataset_of(opened([empty], val_fraction=0.0)).targets_in_step(0) == 2


def test_prompt_and_response_are_a_conversation_of_two_messages(opened):
    pair = [{"prompt": "the cat?", "response": "it sat."}]
    messages = [{"messages": turns("the cat?", "it sat."), "id": 7}]
    one, two = (dataset_of(opened(rows, val_fraction=0.0), batch_size=1).batch(0) for rows in (pair, messages))
    assert torch.equal(one.inputs_BT, two.inputs_BT)
    assert torch.equal(one.targets_BT, two.targets_BT)


@pytest.mark.parametrize("name", ["chats.jsonl.gz", "chats.jsonl.zst"])
def test_compressed_files_have_the_same_conversations(opened, tmp_path, name):
    rows = chats(20)
    plain = opened(rows)
    if name.endswith("zst"):
        zstd = pytest.importorskip("backports.zstd")
        (tmp_path / name).write_bytes(zstd.compress((tmp_path / "chats.jsonl").read_bytes()))
        data = GPTConfig(**{"conversations": True, "context_length": LENGTH, "tokenizer": plain_tokenizer(tmp_path)})
        assert data.open_data(tmp_path / name).identity == plain.identity
    else:
        assert opened(rows, name=name).identity == plain.identity


def plain_tokenizer(folder):
    tokenizer().save(folder / "tokenizer.json", overwrite=True)
    return str(folder / "tokenizer.json")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "chats.jsonl:3: not valid JSON"),
        ("[1]", "chats.jsonl:3: the line is a list"),
        (
            '{"instruction": "a", "output": "b"}',
            r"neither 'messages' nor both .* \(fields: 'instruction', 'output'\)",
        ),
        ('{"prompt": "a"}', "nor both 'prompt' and 'response'"),
        ('{"prompt": "a", "response": null}', "chats.jsonl:3: 'response' is null. Write a string."),
        ('{"messages": []}', "'messages' is an empty list"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "no message has the role 'assistant'"),
        (
            '{"messages": [{"role": "human", "content": "a"}]}',
            r"messages\[0\] has the role 'human'. Write one of 'system'",
        ),
        ('{"messages": [{"role": "user", "content": ["a"]}]}', r"messages\[0\] has a content that is a list"),
        ('{"messages": ["a"]}', r"messages\[0\] is a string"),
        ('{"prompt": "\\ud800", "response": "a"}', "an unpaired surrogate"),
        (b"\xff", "not valid JSON"),
    ],
)
def test_a_line_that_is_no_conversation_names_file_and_line(tmp_path, tokenizer_file, line, message):
    good = json.dumps(questions(1)[0])
    wrong = line if isinstance(line, bytes) else line.encode()
    (tmp_path / "chats.jsonl").write_bytes(f"{good}\n\n".encode() + wrong + b"\n")
    with pytest.raises(CorpusError, match=message):
        GPTConfig(conversations=True, tokenizer=tokenizer_file).open_data(tmp_path / "chats.jsonl")


def test_what_the_template_refuses_names_file_and_line(opened, tmp_path):
    (tmp_path / "t.jinja").write_text(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{{ m.content + eos_token }}{% endfor %}"
    )
    rows = [*questions(2), {"messages": turns("a", "b", system="c")}]
    with pytest.raises(CorpusError, match=r"chats.jsonl:3: .*no system"):
        opened(rows, chat_template=str(tmp_path / "t.jinja"))


def test_an_empty_file_and_one_all_for_validation_are_refused(opened):
    with pytest.raises(CorpusError, match=r"no conversations to train on. The files are empty"):
        opened([])
    with pytest.raises(CorpusError, match="Pass a smaller val_fraction"):
        opened(questions(), val_fraction=0.999999)


def test_text_files_and_shards_are_refused(tmp_path, tokenizer_file, tiny_shards):
    config = GPTConfig(conversations=True, tokenizer=tokenizer_file)
    (tmp_path / "a.txt").write_text("the cat")
    with pytest.raises(CorpusError, match="reads JSON lines, but the file is text"):
        config.open_data(tmp_path / "a.txt")
    with pytest.raises(OptionError, match="holds token shards"):
        config.open_data(tiny_shards)


@pytest.mark.parametrize("option", [{"chat_template": "plain"}, {"tokenizer": "t.json"}, {"val_fraction": 0.5}])
def test_options_of_conversations_are_refused_for_shards(tiny_shards, option):
    with pytest.raises(OptionError, match="applies to conversations only"):
        GPTConfig(**option).open_data(tiny_shards)


@pytest.mark.parametrize("seed", range(5))
def test_packing_has_every_item_once_and_few_rows(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 65, rng.integers(1, 400))
    rows = packed(lengths, 64)
    assert sorted(rows.ids.tolist()) == list(range(len(lengths)))
    assert all(lengths[row].sum() <= 64 for row in rows)
    # No two rows fit into one.
    assert len(rows) == 1 or sum(sorted(int(lengths[row].sum()) for row in rows)[:2]) > 64


def test_packing_pads_far_less_than_one_conversation_per_row():
    lengths = np.random.default_rng(0).integers(8, 64, 2000)
    num_tokens = int(lengths.sum())
    assert 1 - num_tokens / (len(packed(lengths, 256)) * 256) < 0.01
    assert 1 - num_tokens / (len(lengths) * 64) > 0.4
