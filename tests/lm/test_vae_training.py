"""Training the sequence VAE: bit-exact resuming, a monitor that changes nothing, collapse detected and cured."""

import contextlib
import dataclasses
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import gristmill as gm
from gristmill import CheckpointError, CorpusError, OptionError
from gristmill.lm.data.sequences import SequenceDataset, open_sequences
from gristmill.lm.models.vae.network import SequenceVAE
from gristmill.lm.models.vae.options import VAEConfig
from gristmill.lm.training.checkpoint import load_model
from gristmill.lm.training.schedules import step_seed
from gristmill.lm.use.evaluation import evaluate
from gristmill.posterior import PosteriorMetricsMonitor
from gristmill.posterior.drawing import Drawing
from gristmill.sample_corpus import write_sample_corpus
from lm.tiny_runs import Crash, assert_same_run, build_shards, crash_at, records, tensors, texts, tokenizer, train

VAE = {
    "model": "vae",
    "max_sequence_length": 40,
    "latent_dim": 6,
    "use_dynamic_padding": True,
    "num_buckets": 3,
    "gradient_accumulation_steps": 2,
    "update_frequency": 4,
    "window_size": 4,
    "plot_frequency": 0,
    "kl_warmup_steps": 10,
    "limit_val_batches": 3,
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return build_shards(tmp_path_factory.mktemp("vae") / "shards", number=300)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """Texts of many lengths in two files, and a tokenizer beside them."""
    folder = tmp_path_factory.mktemp("parquet")
    rows = [" ".join(text.split()[: 2 + index % 11]) for index, text in enumerate(texts(400))]
    for number, part in enumerate((rows[:250], rows[250:])):
        pq.write_table(pa.table({"text": part}), folder / f"part-{number}.parquet")
    tokenizer().save(folder / "tokenizer.json")
    return folder


def train_vae(data, out, **options):
    # Not the context length of the decoder, which a VAE refuses.
    return train(data, out, **{"context_length": gm.lm.GPTConfig.context_length, **VAE, **options})


def from_parquet(folder, **options):
    return {
        "tokenizer": str(folder / "tokenizer.json"),
        "cache_dir": str(folder / "cache"),
        "val_fraction": 0.1,
        **options,
    }


HARD = {"dropout": 0.1, "word_dropout": 0.3, "batch_norm_mu": 0.5, "free_bits": 0.1, "free_bits_mode": "dimension"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        HARD,
        {"bag_of_words_weight": 0.2, "latent_injection": "embedding", "optimizer": "muon"},
        {"precision": "bf16-mixed", "kl_schedule": "cyclical"},
    ],
    ids=["plain", "switches", "embedding and muon", "bf16"],
)
def test_a_crashed_run_resumes_bit_exactly(shards, tmp_path, options):
    train_vae(shards, tmp_path / "whole", **options)
    with pytest.raises(Crash):
        train_vae(shards, tmp_path / "broken", progress=crash_at(12), **options)
    train_vae(shards, tmp_path / "broken", resume="auto", **options)
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 20)
    posteriors = records(tmp_path / "whole", "posterior")
    assert [record["step"] for record in posteriors] == [4, 8, 12, 16, 20]
    assert posteriors == records(tmp_path / "broken", "posterior")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resume_is_exact_with_parquet_workers_and_buckets(parquet, tmp_path, num_workers):
    train_vae(parquet, tmp_path / "whole", **from_parquet(parquet, num_workers=1))
    options = from_parquet(parquet, num_workers=num_workers)
    with pytest.raises(Crash):
        train_vae(parquet, tmp_path / "broken", progress=crash_at(12), **options)
    train_vae(parquet, tmp_path / "broken", resume="auto", **options)
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 20)


@pytest.mark.parametrize("options", [{}, HARD], ids=["plain", "switches"])
def test_the_monitor_changes_no_weight(shards, tmp_path, options):
    train_vae(shards, tmp_path / "watched", update_frequency=1, window_size=3, **options)
    train_vae(shards, tmp_path / "not watched", disable_metrics_monitoring=True, **options)
    assert_same_run(tmp_path / "watched", tmp_path / "not watched", 20)
    assert len(records(tmp_path / "watched", "posterior")) == 20
    assert records(tmp_path / "not watched", "posterior") == []


def test_a_monitor_that_is_not_wanted_is_not_even_made(shards, tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.posterior.PosteriorMetricsMonitor.__init__", None)
    train_vae(shards, tmp_path / "run", disable_metrics_monitoring=True, max_steps=2)
    assert not (tmp_path / "run" / "plots").exists()


def test_tokens_are_counted_without_padding_and_padding_is_reported(shards, tmp_path):
    padded = train_vae(shards, tmp_path / "padded", use_dynamic_padding=False, max_steps=5)
    bucketed = train_vae(shards, tmp_path / "bucketed", max_steps=5)
    assert padded.padding > 0.2 > bucketed.padding > 0
    assert 5 * 8 * 5 < bucketed.num_tokens < 5 * 8 * 40
    assert records(tmp_path / "bucketed", "train")[-1]["tokens"] == bucketed.num_tokens


def test_an_epoch_is_all_documents_once(shards, tmp_path):
    result = train_vae(shards, tmp_path / "run", max_steps=None, epochs=1.0, log_interval=1)
    assert result.num_steps == 300 // 8


def test_validation_is_the_bound_without_free_bits_word_dropout_and_weight(shards, tmp_path):
    result = train_vae(shards, tmp_path / "run", kl_weight=0.1, word_dropout=0.9, free_bits=100.0)
    last = records(tmp_path / "run", "val")[-1]
    assert last["full"]
    assert last["loss"] == pytest.approx(last["reconstruction"] + last["kl"] * 20 / last["num_tokens"], rel=1e-5)
    model, _ = load_model(tmp_path / "run", which="latest")
    source = open_sequences(shards, max_sequence_length=40).val
    with SequenceDataset(source, max_sequence_length=40, batch_size=20, seed=0) as dataset, torch.no_grad():
        mu, logvar = next(m for m in [model.encode(batch) for batch in dataset.validation_batches()])
    assert last["kl"] == pytest.approx(float((mu**2 + logvar.exp() - 1 - logvar).sum(1).mean() / 2), rel=1e-4)
    found = evaluate(tmp_path / "run", shards, which="latest")
    assert (found.loss, found.kl, found.num_tokens) == (result.val_loss, result.val_kl, last["num_tokens"])
    assert evaluate(tmp_path / "run", gm.Shards(shards, split="val"), which="latest").loss == found.loss
    with pytest.raises(OptionError, match="no split 'test'"):
        evaluate(tmp_path / "run", shards, split="test")


def test_a_model_of_parquet_is_evaluated_on_shards_and_in_batches_of_any_size(parquet, shards, tmp_path):
    options = from_parquet(parquet, num_workers=0, max_steps=2, text_column="text")
    train_vae(parquet, tmp_path / "run", **options)
    assert evaluate(tmp_path / "run", shards, which="latest").num_tokens > 0
    sizes = [evaluate(tmp_path / "run", parquet, split="train", batch_size=size) for size in (1, 300)]
    assert sizes[0].num_tokens == sizes[1].num_tokens


def test_every_token_of_a_step_counts_the_same_in_whatever_micro_batch_it_is(parquet, tmp_path):
    """Two micro-batches of other lengths: the loss is that of all their tokens, not the mean of two means."""
    options = from_parquet(parquet, max_steps=1, log_interval=1, learning_rate=1e-9, num_workers=0)
    train_vae(parquet, tmp_path / "run", **options)
    (record,) = records(tmp_path / "run", "train")
    model, _ = load_model(tmp_path / "run", which="latest")
    names = ("tokenizer", "val_fraction", "cache_dir")
    source = open_sequences(parquet, max_sequence_length=40, **{name: options[name] for name in names}).train
    sums, tokens = 0.0, 0
    with SequenceDataset(
        source, max_sequence_length=40, batch_size=4, seed=0, use_dynamic_padding=True, num_buckets=3
    ) as dataset:
        torch.manual_seed(step_seed(0, 0, 0))
        shapes = []
        for micro_step in range(2):
            batch = dataset.batch(0, micro_step=micro_step, num_micro_steps=2)
            _, stats = model.train().loss(batch, {"kl_weight": 0.0})
            sums += float(stats["reconstruction"] * batch.num_targets)
            tokens += int(batch.num_targets)
            shapes.append(batch.inputs_BT.shape)
    assert shapes[0] != shapes[1]
    assert record["reconstruction"] == pytest.approx(sums / tokens, rel=1e-5)
    assert record["tokens"] == tokens


def test_a_run_stopped_before_its_last_validation_has_the_same_result(shards, tmp_path):
    whole = train_vae(shards, tmp_path / "whole")

    def stop(record):
        if record["kind"] == "val" and record["full"]:
            raise Crash

    with pytest.raises(Crash):
        train_vae(shards, tmp_path / "broken", progress=stop)
    lines = (tmp_path / "broken" / "metrics.jsonl").read_text().splitlines()
    kept = [line for line in lines if '"full": true' not in line]
    (tmp_path / "broken" / "metrics.jsonl").write_text("".join(f"{line}\n" for line in kept))
    assert train_vae(shards, tmp_path / "broken", resume="auto").val_loss == whole.val_loss


def test_another_batch_size_would_be_other_data_and_is_refused(shards, tmp_path):
    train_vae(shards, tmp_path / "run", max_steps=4, checkpoint_interval=2)
    with pytest.raises(CheckpointError, match="batch_size was 4 and is now 8"):
        train_vae(shards, tmp_path / "run", max_steps=4, resume="auto", batch_size=8, gradient_accumulation_steps=1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (100, 1000, 50)),
        ({"fast_detection": True}, (200, 2000, 50)),
        ({"fast_detection": True, "update_frequency": 100, "plot_frequency": 0}, (100, 0, 50)),
    ],
)
def test_passed_options_override_fast_detection(shards, tmp_path, options, expected, monkeypatch):
    monkeypatch.setattr(Drawing, "_start", lambda drawing: None)  # starting matplotlib takes longer than the run
    said = {"update_frequency": None, "window_size": None, "plot_frequency": None, **options}
    train_vae(shards, tmp_path / "run", max_steps=1, **said)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["update_frequency"], config["plot_frequency"], config["window_size"]) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding_dim": 7}, "embedding_dim=7, but the data has tokens"),
        ({"val_fraction": 0.3}, "val_fraction=0.3 applies to Parquet files"),
        ({"kl_warmup_steps": float("nan")}, "kl_warmup_steps must be a whole number"),
        ({"text_column": "text"}, "text_column"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(shards, tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        train_vae(shards, tmp_path / "run", **options)


def test_no_document_for_validation_is_reported_with_the_option_that_helps(parquet, tmp_path):
    train_vae(parquet, tmp_path / "run", **from_parquet(parquet, val_fraction=0.0, max_steps=1, num_workers=0))
    assert "larger val_fraction" in events(tmp_path / "run", "chosen for validation")[0]["message"]


def test_too_few_sequences_for_a_batch_norm_are_reported(shards, tmp_path):
    train_vae(shards, tmp_path / "run", max_steps=1, batch_norm_mu=0.5)
    assert events(tmp_path / "run", "batch_size=4 is too small for a reliable mean")


def test_a_missing_column_is_reported_with_the_option_of_this_command(parquet, tmp_path):
    with pytest.raises(CorpusError, match="text_column="):
        train_vae(parquet, tmp_path / "run", **from_parquet(parquet, text_column="nope"))


def test_the_last_record_has_a_speed_and_padding_though_a_validation_came_before_it(shards, tmp_path):
    result = train_vae(shards, tmp_path / "run", max_steps=15, log_interval=10, val_check_interval=5)
    assert result.tokens_per_second > 0
    assert result.padding > 0


def test_overwriting_a_run_removes_its_plots_and_turning_the_monitor_off_for_a_while_keeps_them(shards, tmp_path):
    options = {"max_steps": 20, "checkpoint_interval": 4, "plot_frequency": 0}
    for until, off in ((8, False), (12, True), (20, False)):
        with contextlib.suppress(Crash):
            train_vae(
                shards,
                tmp_path / "run",
                resume="auto",
                disable_metrics_monitoring=off,
                progress=crash_at(until) if until < 20 else None,
                **options,
            )
    assert records(tmp_path / "run", "posterior")
    train_vae(shards, tmp_path / "run", overwrite=True, disable_metrics_monitoring=True, **options)
    assert not (tmp_path / "run" / "plots" / "posterior.jsonl").exists()


def test_a_compiled_run_makes_one_graph_for_all_lengths_and_gives_the_same_losses(shards, tmp_path, monkeypatch):
    graphs = []

    def count(module, **options):
        return compile_with(module, options, graphs)

    compile_with = _counting_compiler(torch.compile)
    monkeypatch.setattr(torch, "compile", count)
    train_vae(shards, tmp_path / "compiled", compile_model=True)
    train_vae(shards, tmp_path / "eager")
    assert len(graphs) == 1
    for one, other in zip(records(tmp_path / "compiled", "train"), records(tmp_path / "eager", "train"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)


def _counting_compiler(real):
    from torch._dynamo.backends.common import aot_autograd

    def compile_with(module, options, graphs):
        def forward(graph, inputs):
            graphs.append(graph)
            return graph.forward

        backend = aot_autograd(fw_compiler=forward, bw_compiler=lambda graph, inputs: graph.forward)
        return real(module, backend=backend)

    return compile_with


def test_sequences_of_vectors_are_learned(tmp_path):
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(1 + n % 5, 4, generator=generator).tolist() for n in range(120)]
    pq.write_table(pa.table({"v": rows}), tmp_path / "vectors.parquet")
    options = {"embedding_columns": "v", "cache_dir": str(tmp_path / "cache"), "num_workers": 0, "val_fraction": 0.2}
    result = train_vae(tmp_path / "vectors.parquet", tmp_path / "run", num_buckets=2, **options)
    assert result.val_loss < records(tmp_path / "run", "val")[0]["loss"]
    assert result.bits_per_byte is None
    assert json.loads((tmp_path / "run" / "config.json").read_text())["embedding_dim"] == 4
    assert not (tmp_path / "run" / "tokenizer.json").exists()


def test_a_run_can_begin_with_the_weights_of_another(shards, tmp_path):
    train_vae(shards, tmp_path / "first", max_steps=5, checkpoint_interval=5, val_check_interval=0)
    train_vae(shards, tmp_path / "second", max_steps=1, learning_rate=1e-9, init_from=str(tmp_path / "first"))
    before, after = tensors(tmp_path / "first", 5), tensors(tmp_path / "second", 1)
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before if "counts" not in name)
    with pytest.raises(CheckpointError, match="another model"):
        train_vae(shards, tmp_path / "third", latent_dim=8, init_from=str(tmp_path / "first"))


def test_a_switch_that_brings_a_weight_can_be_turned_on_for_weights_that_lack_it(shards, tmp_path):
    train_vae(shards, tmp_path / "first", max_steps=2)
    train_vae(shards, tmp_path / "second", max_steps=2, word_dropout=0.5, init_from=str(tmp_path / "first"))
    assert "except unknown_D" in events(tmp_path / "second", "starting with the weights")[0]["message"]


def test_a_run_does_not_go_on_with_other_data_or_another_weight_of_kl(shards, parquet, tmp_path):
    train_vae(shards, tmp_path / "run", max_steps=4, checkpoint_interval=2)
    with pytest.raises(CheckpointError, match=r"free_bits was 0\.25 and is now 1\.0"):
        train_vae(shards, tmp_path / "run", max_steps=4, resume="auto", free_bits=1.0)
    with pytest.raises(CheckpointError, match="tokens"):
        train_vae(parquet, tmp_path / "run", max_steps=4, resume="auto", **from_parquet(parquet))


def test_a_decoder_does_not_take_parquet_and_says_what_does(parquet, tmp_path):
    with pytest.raises(OptionError, match=r"encode_corpus.*a model that takes Parquet files"):
        train(parquet, tmp_path / "run")


def test_samples_from_the_prior_are_recorded(shards, tmp_path):
    train_vae(shards, tmp_path / "run", sample_interval=10, sample_tokens=8)
    samples = records(tmp_path / "run", "sample")
    assert [sample["step"] for sample in samples] == [10, 20]
    assert all(sample["prompt"] == "" and isinstance(sample["text"], str) for sample in samples)


# Collapse, on the sample corpus


COLLAPSING = {
    "encoder_shortcut": False,  # the defaults prevent a collapse
    "free_bits": 0.0,
    "bag_of_words_weight": 0.0,
    "latent_injection": "embedding",
    "max_sequence_length": 16,
    "latent_dim": 16,
    "d_model": 64,
    "batch_size": 32,
    "gradient_accumulation_steps": 1,
    "use_dynamic_padding": False,
    "learning_rate": 4e-3,
    "kl_schedule": "constant",
    "max_steps": 200,
    "update_frequency": 20,
    "window_size": 20,
    "log_interval": 20,
    "val_check_interval": 0,
    "checkpoint_interval": 200,
}
FREE_BITS = {"free_bits": 0.5, "free_bits_mode": "dimension"}


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stories")
    write_sample_corpus(folder / "stories.txt", size=600_000, seed=0)
    tok = gm.train_tokenizer(folder / "stories.txt", vocab_size=600, special_tokens=["<|endoftext|>"], progress=None)
    gm.encode_corpus(folder / "stories.txt", tok, out=folder / "shards", val_fraction=0.02, progress=None)
    return folder


@pytest.fixture(scope="module")
def collapsed(stories):
    """A decoder that sees every word before the next one, and the full weight of KL from the first step."""
    train_vae(stories / "shards", stories / "collapsed", **COLLAPSING)
    return stories / "collapsed"


def events(run, part):
    return [record for record in records(run, "event") if part in record["message"]]


def test_a_forced_collapse_is_detected_within_two_windows_and_names_the_remedy(collapsed):
    dead = [record["step"] for record in records(collapsed, "posterior") if record["mutual_information"] < 0.2]
    alarms = events(collapsed, "posterior collapse")
    assert alarms
    assert alarms[0]["step"] <= dead[0] + 2 * COLLAPSING["window_size"]
    assert "free_bits=" in alarms[0]["message"]
    assert events(collapsed, "recovered") == []


@pytest.mark.parametrize(
    "remedy",
    [FREE_BITS, {"kl_schedule": "linear", "kl_warmup_steps": 0.9, "word_dropout": 0.9}],
    ids=["free bits", "annealing and word dropout"],
)
def test_a_run_with_a_remedy_does_not_collapse(stories, tmp_path, remedy):
    train_vae(stories / "shards", tmp_path / "run", **{**COLLAPSING, **remedy})
    assert events(tmp_path / "run", "collapse") == []
    assert records(tmp_path / "run", "posterior")[-1]["mutual_information"] > 0.5


def test_a_healthy_run_stays_silent(stories, tmp_path):
    train_vae(stories / "shards", tmp_path / "run", **{**COLLAPSING, **FREE_BITS, "word_dropout": 0.9})
    assert [record["alarms"] for record in records(tmp_path / "run", "posterior")] == [[]] * 10


def test_free_bits_and_word_dropout_clear_the_alarm_of_a_collapsed_model(stories):
    """The monitor alone, in a loop of one's own: the remedy is applied while the alarm is on."""
    names = ("latent_injection", "max_sequence_length", "latent_dim", "d_model", "encoder_shortcut")
    sizes = {name: COLLAPSING[name] for name in names}
    remedy = {**FREE_BITS, "word_dropout": 0.9}
    torch.manual_seed(0)
    # Not quite none: the model then has what a dropped word is replaced by.
    model = SequenceVAE(VAEConfig(vocab_size=600, num_layers=2, num_heads=2, word_dropout=1e-9, free_bits=0.0, **sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    monitor = PosteriorMetricsMonitor(update_frequency=20, window_size=20, tell=lambda message: None)
    source = open_sequences(stories / "shards", max_sequence_length=16).train
    with SequenceDataset(source, max_sequence_length=16, batch_size=32, seed=0) as dataset:
        for step in range(240):
            if step == 100:
                assert [alarm.kind for alarm in monitor.alarms] == ["collapse"]
                model.config = dataclasses.replace(model.config, **remedy)
            loss, stats = model.loss(dataset.batch(step), {"kl_weight": 1.0})
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.update(stats["mu"], stats["logvar"], stats["z"])
    changes = [(change.kind, change.change) for metrics in monitor.flush() for change in metrics.alarms]
    assert changes == [("collapse", "raised"), ("collapse", "cleared")]
