"""A user's script that names everything public. `make check` runs mypy --strict and pyright over it; nothing runs it.

`test_every_public_name.py` checks that no name is left out. A variable has a type where users rely on that type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gristmill as gm


def tokenizers(text: str) -> gm.Tokenizer:
    tok = gm.train_tokenizer("corpus.txt", vocab_size=32_000, special_tokens=["<|endoftext|>"], pattern="gpt2")
    tok = gm.train_tokenizer([Path("a.jsonl.zst")], vocab_size=32_000, text_field="body", on_error="skip")
    tok = gm.extend_tokenizer(tok, iter(["a", "b"]), vocab_size=33_000, progress=show)
    tok = gm.train_tokenizer(gm.Files("corpus.txt", "more/*.txt"), vocab_size=32_000, progress=None)
    tok = gm.train_tokenizer(gm.Documents(["once", b"upon"]), vocab_size=300)
    tok = gm.train_tokenizer([{"text": "once"}, {"text": "upon"}], vocab_size=300, text_field="text")
    names: list[str] = gm.pattern_names()
    pieces: list[str] = gm.pretokenize(text, pattern="gpt2")
    print(names, pieces, gm.__version__)

    ids: list[int] = tok.encode(text, allowed_special="all", disallowed_special=(), dropout=0.1, seed=0)
    array: NDArray[Any] = tok.encode_array(text, dtype=np.uint16, num_threads=2)
    rows: gm.Ragged = tok.encode_batch([text, text.encode()], max_tokens=10, truncate="left")
    lists: list[list[int]] = tok.encode_batch([text], as_lists=True)
    from_file: NDArray[Any] = tok.encode_file("corpus.txt")
    stream: Iterator[int] = tok.encode_iterable(["a", "b"])
    ordinary: list[int] = tok.encode_ordinary(text)
    offsets: gm.Offsets = tok.encode_with_offsets(text)
    number: int = tok.count_tokens(text)
    print(array.size, lists, from_file.dtype, next(stream), ordinary, offsets.ids, offsets.byte_spans, number)
    print(offsets.char_spans, tok.document_encoder(num_threads=1))

    back: str = tok.decode(ids, errors="strict", skip_special=True)
    batch: list[str] = tok.decode_batch(rows)
    raw: bytes = tok.decode_bytes(array)
    decoder: gm.StreamDecoder = tok.stream_decoder()
    streamed: str = decoder.push(ids) + decoder.finish()
    print(back, batch, raw, streamed)

    token: bytes = tok.token_bytes(300)
    id: int = tok.id_of("the")
    merges: list[tuple[bytes, bytes]] = tok.merges
    specials: dict[str, int] = tok.special_tokens
    vocab: dict[int, bytes] = tok.vocab
    size: int = tok.vocab_size
    with gm.recording("trace.json") as trace:
        profile: gm.Profile | None = tok.profile
    counts: NDArray[np.uint64] | None = profile.merge_counts if profile is not None else None
    print(counts, trace.num_spans)
    print(token, id, merges, specials, vocab, size, profile, tok.fingerprint, tok.merge_ids, tok.merged_ids)
    print(tok.pattern, tok.tie_break, tok.parts)

    tok.save("tokenizer.json", overwrite=True)
    written: list[Path] = tok.export("out", format="huggingface")
    smaller: gm.Tokenizer = tok.truncated(1000)
    larger: gm.Tokenizer = tok.extended("corpus.txt", vocab_size=40_000, tie_break="huggingface")
    known: gm.Tokenizer = gm.Tokenizer.from_pretrained("folder", revision="main")
    loaded: gm.Tokenizer = gm.Tokenizer.load("tokenizer.json", format="auto")
    same: gm.Tokenizer = gm.Tokenizer.from_huggingface(tok.to_huggingface())
    encoding: gm.Tokenizer = gm.Tokenizer.from_tiktoken(tok.to_tiktoken())
    rebuilt: gm.Tokenizer = gm.Tokenizer.from_parts(tok.parts)
    print(written, smaller, larger, known, loaded, same, encoding)
    return rebuilt


def show(progress: gm.Progress) -> None:
    print(progress.stage, progress.done, progress.total)


def words() -> gm.Words:
    counted: gm.Words = gm.count_words("corpus.txt", min_frequency=2, memory_limit=1 << 30, num_threads=2)
    common: list[tuple[bytes, int]] = counted.most_common(10)
    number: int = counted.count("the") + counted.num_pieces + len(counted) + counted.source_bytes
    pairs: Iterator[tuple[bytes, int]] = counted.items()
    specials: tuple[str, ...] = counted.special_tokens
    counted.save("words.gmw", overwrite=True)
    print(common, number, next(pairs), specials, counted.pattern, counted.table, counted.at_least(5))
    made: gm.Words = gm.Words.from_counts({"low": 3, b"lower": 2})
    return made if made else gm.Words.load("words.gmw")


def token_shards(tok: gm.Tokenizer) -> gm.Shards:
    run: gm.EncodeRun = gm.encode_corpus(
        "corpus.txt", tok, out="shards", format="gristmill", val_fraction=0.01, seed=1, end_of_text="<|endoftext|>"
    )
    print(
        run.folder / "manifest.json",
        run.location,
        run.num_documents,
        run.num_tokens,
        run.source_bytes,
        run.resumed,
        run.profile,
    )
    manifest: gm.Manifest = run.manifest
    print(manifest.vocab_size, manifest.splits, gm.Manifest.read("shards").to_json())
    manifest = gm.Manifest.from_json(manifest.to_json(), Path("shards/manifest.json"))
    print(gm.verify_shards("shards", inputs=False).problems)

    shards = gm.Shards("shards", split="train")
    document: NDArray[Any] = shards[0]
    text: str = shards.decode(0, errors="strict")
    number: int = len(shards) + shards.num_tokens + shards.source_bytes
    paths: list[Path] = shards.paths
    begin, end = shards.span(0)
    number += begin + end + shards.document_at(0)
    print(document[:10], text, number, paths, shards.tokens[5:10], shards.document_ends, shards.dtype, shards.split)
    print(shards.layout, shards.has_manifest, shards.tokenizer_fingerprint, shards.checksums())
    print(shards.end_of_text, shards.manifest, shards.tokenizer.vocab_size, shards.other_split("val"))
    return shards


def executors() -> gm.Executor:
    here = gm.Local(num_workers=2, work_folder=Path("work"), part_bytes=64_000_000)
    children = gm.Processes(num_workers=2)
    cluster = gm.Ray(address="auto", num_workers=8, work_folder="s3://bucket/work")
    print(here.name, children.num_workers, children.work_folder, children.part_bytes, cluster.address)
    return children


def language_models(shards: gm.Shards) -> None:
    result: gm.lm.TrainResult = gm.lm.train("shards", out="run", preset="quickstart", max_steps=200)
    result = gm.lm.train(shards, out="run", resume="auto", learning_rate=1e-3, batch_size="auto", device="cpu")
    planned: gm.lm.TrainPlan = gm.lm.plan(shards, out="run", resume=True, max_steps=500)
    print(planned.rows(), planned.seconds, planned.memory_bytes, planned.source_epochs)
    result = gm.lm.train({"a": 0.7, "b": 0.3}, out="run", shift_windows=False)
    result = gm.lm.train({Path("a"): 7, Path("b"): 3}, out="run")
    result = gm.lm.train([Path("a"), shards, "c"], out="run")
    config = gm.lm.TrainConfig(model=gm.lm.GPTConfig(d_model=64), max_steps=10, optimizer="muon")
    result = gm.lm.train("shards", out="run", resume=True, max_steps=400, model=gm.lm.GPTConfig(d_model=64))
    result = gm.lm.train("shards", out="run", config="options.yaml")
    config = gm.lm.TrainConfig.from_options({"max-steps": 10}, preset="quickstart")
    result = gm.lm.train("shards", out="run", config=config, overwrite=True, progress=lambda record: print(record))
    steps: int = result.num_steps
    loss: float | None = result.val_loss
    print(steps, loss, result.folder, result.tokens_per_second, result.perplexity, result.val_stats, result.warnings)

    story: str = gm.lm.generate("run", "Once upon a time", max_tokens=100, temperature=0.7, top_k=50, seed=0)
    story = gm.lm.generate("run", "Once", tokenizer="tokenizer.json", stop="\n\n", precision="bf16")
    stories: list[str] = gm.lm.generate("run", "Once", num_texts=3, stop=["The end", "###"], batch_size=2)
    stories = gm.lm.generate("run", ["Once", "Twice"])
    exported: gm.lm.ModelExport = gm.lm.export("run", "folder", format="huggingface", dtype="bfloat16", overwrite=True)
    foreign: gm.lm.ForeignModel = gm.lm.ForeignModel({"model_type": "llama"}, {})
    print(exported.files, exported.rows(), foreign.config)
    evaluation: gm.lm.Evaluation = gm.lm.evaluate("run", "shards", split="val", limit_batches=0.5)
    model, tok = gm.lm.load_for_generation("run", which="latest", device="cpu")
    model, tok = gm.lm.load_for_generation("run", tokenizer=tok)
    any_model: gm.lm.Model = model
    pieces: Iterator[str] = gm.lm.stream_text(any_model, tok, "Once", top_p=0.9)
    print(story, stories, evaluation.bits_per_byte, evaluation.perplexity, evaluation.stats, next(pieces))

    sizes = gm.lm.GPTConfig(vocab_size=1000, context_length=128, num_layers=2, num_heads=2, d_model=64)
    dataset = gm.lm.TokenDataset(shards, context_length=128, batch_size=8, seed=0)
    batch: gm.lm.Batch = dataset.batch(0)
    dataset = gm.lm.TokenDataset([shards, shards], context_length=128, weights=[0.7, 0.3], shift_windows=False)
    print(len(dataset), dataset[0]["input_ids"], dataset.to_map_dataset("pairs")[0])
    print(next(iter(dataset.to_iterable_dataset("pairs", num_epochs=None, rank=0, world_size=2, skip=100))))
    print(gm.lm.GPT(sizes).num_parameters, batch.num_tokens, gm.lm.MODELS["gpt"], gm.lm.functional.softmax)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnConfig(gm.lm.WindowModelConfig):
    width: int = 64


@gm.lm.register_model("own", config=OwnConfig)
class OwnModel(gm.lm.Model):
    config: OwnConfig


def models_of_ones_own(documents: type[gm.lm.DocumentModelConfig]) -> None:
    entry = gm.lm.MODELS["own"]
    kinds: list[type[gm.lm.ModelConfig]] = [entry.config, documents]
    gm.lm.register_optimizer("sgd", lambda model, *, lr: None)
    gm.lm.register_schedule("flat", lambda step: 1.0)
    gm.lm.train("shards", out="own", model=OwnConfig(width=32), optimizer="sgd", schedule="flat")
    print(kinds, OwnModel(OwnConfig(vocab_size=10)).num_parameters)


def sequence_vaes() -> None:
    gm.lm.train("stories.parquet", out="vae", model="vae", tokenizer="tokenizer.json", kl_schedule="cyclical")
    samples: list[str] = gm.lm.sample_texts("vae", num_texts=4, temperature=0.8, seed=0)
    same: list[str] = gm.lm.reconstruct_texts("vae", ["A cat sat."], max_tokens=50)
    between: list[str] = gm.lm.interpolate_texts("vae", "A cat sat.", "The sun rose.", num_texts=5)
    mu, logvar = gm.lm.encode_texts("vae", ["A cat sat."])
    model, tok = gm.lm.load_vae("vae", tokenizer="tokenizer.json")
    vae: gm.lm.SequenceVAE = model
    config: gm.lm.VAEConfig = vae.config
    print(samples, same, between, mu, logvar, tok, config.latent_dim)

    data: gm.lm.SequenceData = gm.lm.open_sequences("stories.parquet", tokenizer=tok, val_fraction=0.1)
    dataset = gm.lm.SequenceDataset(data.train, max_sequence_length=100, batch_size=4, seed=0)
    monitor = gm.posterior.PosteriorMetricsMonitor(update_frequency=50, plot_folder="vae")
    monitor.update(mu, logvar, step=1)
    metrics: list[gm.posterior.PosteriorMetrics] = monitor.poll()
    alarms: tuple[gm.posterior.Alarm, ...] = monitor.alarms
    changes: list[gm.posterior.AlarmChange] = [change for each in metrics for change in each.alarms]
    print(dataset.num_sequences, alarms, changes)
    monitor.close()
    gm.posterior.PosteriorMetricsCallback(window_size=20)


def reports_and_the_reference() -> None:
    page: Path = gm.report.write_report("run")
    page = gm.report.write_comparison(["run", "other"], out="comparison.html", overwrite=True)
    page = gm.report.write_tokenizer_report("tok.json", texts={"en": "en.txt"}, allowed_special="all", name="tok")
    page = gm.report.write_tokenizer_report("mine.tiktoken", pattern="gpt2", download=False, overwrite=True)
    page = gm.report.write_tokenizer_comparison({"a": "a.json", "b": Path("b.json")}, texts=["en.txt"], download=False)
    page = gm.report.write_shards_report("shards", out="shards.html", seed=1, overwrite=True)
    run = gm.encode_corpus("corpus.txt", "tok.json", out="shards")
    page = gm.report.write_shards_report("shards", profile=run.profile, out="shards.html")
    pieces: list[bytes] = list(gm.reference.pretokenize(b"low lower"))
    counts = gm.reference.count_words(["low low lower"])
    merges = gm.reference.learn_merges(counts, 3)
    print(page, pieces, merges, gm.reference.learn_merges_incrementally(counts, 3))
    print(gm.reference.train(["low low lower"], 260), gm.reference.split_at_specials, gm.reference.encode)
    print(gm.reference.decode)


def errors() -> None:
    try:
        gm.count_words("missing.txt")
    except gm.MissingPackageError as error:
        print(error.name)
    except (gm.TruncatedInputError, gm.CorruptInputError, gm.DamagedInputError) as error:
        print(error.path, error.offset)
    except (gm.VocabSizeError, gm.PatternError, gm.SpecialTokenError, gm.OptionError):
        pass
    except (gm.EmptyCorpusError, gm.TextError, gm.CorpusError):
        pass
    except (gm.TokenizerFormatError, gm.WordsFormatError, gm.ShardsFormatError, gm.CheckpointError, gm.FormatError):
        pass
    except (gm.UnknownTokenError, gm.InputChangedError, gm.RemoteInputError, gm.ShardsMismatchError):
        pass
    except (gm.MemoryLimitError, gm.CountOverflowError, gm.PieceTimeoutError, gm.WorkerError):
        pass
    except (gm.DeviceMemoryError, gm.DeviceError):
        pass
    except (gm.NotFiniteError, gm.TrainingError):
        pass
    except gm.GristmillError as error:
        print(error)


WARNINGS: tuple[type[Warning], ...] = (
    gm.DeviceWarning,
    gm.EarlyStopWarning,
    gm.FormatWarning,
    gm.SkippedInputWarning,
    gm.SlowPatternWarning,
)
