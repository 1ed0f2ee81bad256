"""The playground over HTTP: the text of `generate`, the queue, browsers that go away, wrong requests."""

from __future__ import annotations

import itertools
import shutil

import pytest

import gristmill as gm
from gristmill.lm.training.run_lock import locked
from gristmill.view import generations, loaded_models
from gristmill.view.artefacts import Artefact, find_artefacts
from gristmill.view.loaded_models import LoadedModels, device_for
from gristmill.view.replies import Refusal
from gristmill.view.turns import Turns
from view.pages import serving
from view.playground_runs import Reply, ask, gate_of, train_runs

GPT, VAE, CHAT = 0, 1, 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def served(runs):
    with serving(*runs) as server:
        yield server


def text_of(reply):
    """Return (text, events) of a whole reply."""
    events = list(reply)
    assert [name for name, _ in events if name == "error"] == []
    pieces = [token["text"] for name, data in events if name == "tokens" for token in data]
    return "".join(pieces) + dict(events)["end"]["rest"], events


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0}, {"top_p": 0.8, "top_k": 9, "temperature": 1.2}, {"stop": ["a "]}], ids=str
)
def test_the_streamed_text_is_that_of_generate(served, runs, options):
    options = {"prompt": "the cat", "seed": 5, "max_tokens": 80, **options}
    with Reply(served, GPT, **options) as reply:
        text, events = text_of(reply)
    assert text == gm.lm.generate(runs[GPT], device="cpu", **options)
    started = dict(events)["started"]
    assert (started["seed"], started["device"]) == (5, "cpu") and started["checkpoint"].startswith("step-")
    tokens = [token for name, data in events if name == "tokens" for token in data]
    assert len(tokens) == dict(events)["end"]["num"] or options.get("stop")
    for token in tokens:
        assert len(token["others"]) == 10 and token["rank"] >= 1 and 0 < token["q"] <= 1
        assert token["others"][0][4] == max(other[4] for other in token["others"])


def test_a_fresh_seed_is_reported_and_repeats_the_text(served):
    with Reply(served, GPT, prompt="a", max_tokens=30) as reply:
        text, events = text_of(reply)
    with Reply(served, GPT, prompt="a", max_tokens=30, seed=dict(events)["started"]["seed"]) as reply:
        assert text_of(reply)[0] == text


def test_a_chat_responds_in_the_template_and_knows_earlier_messages(served, runs):
    question = {"role": "user", "content": "what did the old cat do?"}
    with Reply(served, CHAT, mode="chat", messages=[question], seed=1, max_tokens=20) as reply:
        text, events = text_of(reply)
    expected = gm.lm.generate(runs[CHAT], question["content"], chat=True, seed=1, max_tokens=20, device="cpu")
    assert text == expected
    history = [question, {"role": "assistant", "content": text}, question]
    with Reply(served, CHAT, mode="chat", messages=history, seed=1, max_tokens=20) as reply:
        longer = dict(text_of(reply)[1])["started"]["num_prompt_tokens"]
    assert longer > dict(events)["started"]["num_prompt_tokens"]


def parts_of(reply):
    texts = {}
    for name, data in reply:
        assert name != "error", data
        if name == "part":
            texts[data["number"]] = texts.get(data["number"], "") + data["text"]
    return list(texts.values())


def test_a_model_with_latents_samples_reconstructs_and_interpolates(served, runs):
    with Reply(served, VAE, mode="sample", num_texts=3, seed=2) as reply:
        assert parts_of(reply) == gm.lm.sample_texts(runs[VAE], 3, seed=2, device="cpu")
    with Reply(served, VAE, mode="reconstruct", prompt="the cat sat.") as reply:
        assert parts_of(reply) == gm.lm.reconstruct_texts(runs[VAE], ["the cat sat."], device="cpu")
    with Reply(served, VAE, mode="interpolate", prompt="the cat", other="a dog", num_texts=4) as reply:
        assert parts_of(reply) == gm.lm.interpolate_texts(runs[VAE], "the cat", "a dog", 4, device="cpu")


def test_what_a_run_offers(served):
    for run, modes in (
        (GPT, ["continue"]),
        (VAE, ["sample", "reconstruct", "interpolate"]),
        (CHAT, ["continue", "chat"]),
    ):
        status, about = ask(served, f"api/playground/{run}")
        assert status == 200 and about["modes"] == modes and not about["problem"] and not about["is_trained"]
        names = [each["name"] for each in about["checkpoints"]]
        assert about["best"] in names and names == sorted(names, reverse=True)
    assert ask(served, "api/playground/3")[0] == 404
    assert ask(served, "api/playground/..")[0] == 404


WRONG = [
    ({"max_tokens": 5000}, "1 to 4096"),
    ({"max_tokens": 0}, "1 to 4096"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": 0}, "top_k"),
    ({"seed": -1}, "seed"),
    ({"prompt": "a" * 100_001}, "100,000"),
    ({"prompt": "\ud800"}, ""),
    ({"prompt": 1}, "not valid"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["x"] * 9}, "stop"),
    ({"client": ""}, "client"),
    ({"mode": "dream"}, "not valid"),
    ({"mode": "chat"}, "messages"),
    ({"mode": "sample", "num_texts": 17}, "1 to 16"),
    ({"mode": "interpolate", "prompt": "a", "other": "b", "num_texts": 1}, "2 to 32"),
    ({"mode": "interpolate", "prompt": "a"}, "empty"),
    ({"file": "/etc/passwd"}, "unknown field"),
]


@pytest.mark.parametrize(("request_", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_request_says_what_is_allowed(served, request_, message):
    with Reply(served, GPT, **request_) as reply:
        assert reply.status == 400 and message in reply.json()["error"]


@pytest.mark.parametrize(
    ("run", "request_", "message"),
    [
        (GPT, {"checkpoint": "step-999999"}, "has no checkpoint 'step-999999'"),
        (GPT, {"checkpoint": "../../../etc"}, "has no checkpoint"),
        (GPT, {"mode": "sample"}, "has no latents"),
        (VAE, {"mode": "continue"}, "cannot continue a prompt"),
        (GPT, {"mode": "chat", "messages": [{"role": "user", "content": "a"}]}, "no chat template"),
    ],
)
def test_a_request_that_the_run_cannot_answer_is_an_error_event(served, run, request_, message):
    with Reply(served, run, **request_) as reply:
        assert message in reply.next_named("error")["message"]
        assert list(reply) == []


@pytest.fixture
def gate(monkeypatch):
    with gate_of(monkeypatch) as made:
        yield made


def test_a_browser_that_goes_away_ends_its_generation_and_the_next_client_begins(served, gate):
    first = Reply(served, GPT, client="first", prompt="a", max_tokens=1700, temperature=0)
    gate.let(2)
    first.next_named("tokens")
    second = Reply(served, GPT, client="second", prompt="a", max_tokens=2)
    assert next(second) == ("waiting", {"before": 1})
    third = Reply(served, GPT, client="third", prompt="a", max_tokens=2)
    assert next(third) == ("waiting", {"before": 2})
    second.close()
    assert next(third) == ("waiting", {"before": 1})
    first.close()
    gate.let_until_ended()
    gate.let_all()
    assert third.next_named("end")["num"] <= 2
    third.close()


def test_the_generations_of_these_tests_do_not_end_by_themselves(runs):
    """The tests of stopping rely on it."""
    whole = gm.lm.generate(runs[GPT], "a", temperature=0, max_tokens=150, device="cpu")
    longer = gm.lm.generate(runs[GPT], "a", temperature=0, max_tokens=170, device="cpu")
    assert len(longer) > len(whole) > 0


def test_the_same_page_has_one_generation_at_a_time(served, gate):
    with Reply(served, GPT, client="page", prompt="a", max_tokens=1700, temperature=0) as old:
        gate.let(1)
        old.next_named("tokens")
        with Reply(served, GPT, client="page", prompt="the", max_tokens=2) as new:
            gate.let(20)
            assert "replaces this one" in old.next_named("error")["message"]
            assert new.next_named("end")["num"] <= 2


def test_a_full_queue_refuses_and_an_ended_turn_lets_the_next_one_begin():
    turns = Turns(max_turns=2)
    first, second = turns.take("a"), turns.take("b")
    with pytest.raises(Refusal, match="2 generations are waiting"):
        turns.take("c")
    assert (first.num_before, second.num_before) == (0, 1)
    first.leave()
    first.leave()
    assert second.num_before == 0 and len(turns) == 1


def test_at_most_two_models_are_kept_and_a_new_checkpoint_of_the_same_name_is_loaded(runs, tmp_path):
    shutil.copytree(runs[GPT], tmp_path / "run")
    artefacts = find_artefacts([tmp_path / "run", runs[CHAT], runs[VAE]])
    models, loads = LoadedModels(artefacts, device="cpu"), []
    run, chat, vae = artefacts.runs

    def get(run, which="latest"):
        return models.get(run, which, loading=lambda *names: loads.append((run.name, *names)))

    assert get(run).model is get(run).model
    get(chat)
    assert get(run).chat is None and get(chat).chat is not None and len(loads) == 2
    get(vae)  # frees the run, which was used least recently
    get(chat)
    assert len(loads) == 3
    get(run)
    assert len(loads) == 4
    folder = tmp_path / "run" / "checkpoints" / get(run).checkpoint
    shutil.copytree(folder, tmp_path / "again")
    shutil.rmtree(folder)
    assert get(run).checkpoint != folder.name
    with pytest.raises(gm.CheckpointError, match="has no checkpoint"):
        get(run, folder.name)
    (tmp_path / "again").rename(folder)
    before = len(loads)
    get(run, folder.name)
    assert len(loads) == before + 1


def test_a_checkpoint_that_vanishes_while_it_is_read_is_replaced_by_the_next(runs, tmp_path, monkeypatch):
    """As "latest" while the run writes a new checkpoint and removes the one that was found."""
    shutil.copytree(runs[GPT], tmp_path / "run")
    artefacts = find_artefacts([tmp_path / "run"])
    real, calls = loaded_models.LoadedModels._load, itertools.count()

    def load(self, run, folder, device):
        if next(calls) == 0:
            shutil.rmtree(folder)
        return real(self, run, folder, device)

    monkeypatch.setattr(loaded_models.LoadedModels, "_load", load)
    names = []
    found = LoadedModels(artefacts, device="cpu").get(
        artefacts.runs[0], "latest", loading=lambda name, _: names.append(name)
    )
    assert len(names) == 2 and found.checkpoint == names[1] != names[0]


def test_a_run_without_its_tokenizer_uses_a_viewed_one_or_says_so(runs, tmp_path):
    shutil.copytree(runs[GPT], tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").rename(tmp_path / "tok.json")

    def loaded(*paths):
        artefacts = find_artefacts(paths)
        return LoadedModels(artefacts, device="cpu").get(artefacts.runs[0], "best", loading=lambda *_: None)

    with pytest.raises(gm.CheckpointError, match="gristmill view RUN TOKENIZER"):
        loaded(tmp_path / "run")
    gm.train_tokenizer(["low lower lowest"], vocab_size=260, progress=None).save(tmp_path / "other.json")
    with pytest.raises(gm.CheckpointError, match="does not store the tokenizer"):
        loaded(tmp_path / "run", tmp_path / "other.json")
    assert loaded(tmp_path / "run", tmp_path / "other.json", tmp_path / "tok.json").tokenizer.vocab_size == 330


def test_the_device_is_the_cpu_while_a_run_is_trained(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    runs = [Artefact("run", tmp_path / "run"), Artefact("other", tmp_path / "other")]
    assert device_for("auto", runs) == "cuda"
    with locked(tmp_path / "other"):
        assert device_for("auto", runs) == "cpu"
    assert device_for("cpu", runs) == "cpu"


def test_a_deleted_run_a_damaged_run_and_one_of_an_unknown_model_say_so(runs, tmp_path):
    for name in ("deleted", "damaged", "unknown"):
        shutil.copytree(runs[GPT], tmp_path / name)
    with serving(*(tmp_path / name for name in ("deleted", "damaged", "unknown"))) as server:
        shutil.rmtree(tmp_path / "deleted")
        (tmp_path / "damaged" / "config.json").write_text("{")
        config = (tmp_path / "unknown" / "config.json").read_text()
        (tmp_path / "unknown" / "config.json").write_text(config.replace('"gpt"', '"mine"'))
        for run, message in enumerate(("no such folder", "config.json", "Start gristmill view with --plugin FILE")):
            status, about = ask(server, f"api/playground/{run}")
            assert status == 200 and message in about["problem"] and about["modes"] == []
            with Reply(server, run, prompt="a") as reply:
                assert message in reply.next_named("error")["message"]
        shutil.copytree(runs[GPT], tmp_path / "deleted")
        assert ask(server, "api/playground/0")[1]["problem"] == ""


def test_without_torch_the_install_command_is_shown(served, monkeypatch):
    def missing():
        raise gm.MissingPackageError("The playground needs torch. Install it with: pip install 'gristmill[train]'")

    monkeypatch.setattr("gristmill.view.playground.require_torch", missing)
    status, about = ask(served, f"api/playground/{GPT}")
    assert status == 400 and "pip install" in about["error"]
    with Reply(served, GPT, prompt="a") as reply:
        assert reply.status == 400 and "pip install" in reply.json()["error"]


def test_an_unexpected_error_ends_the_generation_and_the_next_one_works(served, monkeypatch, capsys):
    def broken(*_):
        raise RuntimeError("a layer is broken")

    with monkeypatch.context() as patched:
        patched.setattr(generations, "_send_tokens", broken)
        with Reply(served, GPT, prompt="a") as reply:
            assert "a layer is broken" in reply.next_named("error")["message"]
    assert "Traceback" in capsys.readouterr().err
    with Reply(served, GPT, prompt="a", max_tokens=2) as reply:
        reply.next_named("end")
