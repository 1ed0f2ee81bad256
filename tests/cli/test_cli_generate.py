"""gristmill generate."""

import io
import json
import signal
import sys

import pytest

import gristmill as gm

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from gristmill.lm.models import generation  # noqa: E402
from gristmill.lm.models.registry import build_model  # noqa: E402
from gristmill.lm.models.rows import OneByOne  # noqa: E402
from gristmill.lm.training.checkpoint import write_checkpoint  # noqa: E402
from gristmill.lm.training.config import TrainConfig  # noqa: E402

END = "<|endoftext|>"


def write_model(folder, tokenizer, *, fingerprint=..., **options):
    """The folder of a run with an untrained model."""
    folder.mkdir()
    tokenizer.save(folder / "tokenizer.json")
    sizes = {"vocab_size": tokenizer.vocab_size, "num_layers": 1, "num_heads": 2, "d_model": 16}
    config = TrainConfig.from_options({**sizes, **(options or {"context_length": 32})})
    (folder / "config.json").write_text(json.dumps(config.to_json()), encoding="utf-8")
    model = build_model(config.model)
    fingerprint = tokenizer.fingerprint if fingerprint is ... else fingerprint
    state = {"step": 1, "shards": {"tokenizer_fingerprint": fingerprint}, "val_loss": None}
    write_checkpoint(folder, state, {"model.safetensors": dict(model.state_dict())})
    return folder


@pytest.fixture(scope="module")
def tokenizer():
    return gm.train_tokenizer(["low lower newest widest é ü"], vocab_size=270, special_tokens=[END], progress=None)


@pytest.fixture(scope="module")
def run_folder(tokenizer, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "run", tokenizer)


@pytest.fixture
def says(monkeypatch):
    """Make every model generate these ids, and return the recorded requests."""
    calls = []

    def set_ids(ids):
        def write_rows(reader, rows, choice, *, stop_id):
            row = next(iter(rows))
            asked = {"prompt_ids": row.prompt_ids, "max_tokens": row.num_left, "seed": row.dice.initial_seed()}
            calls.append({**asked, **vars(choice), "stop_id": stop_id, "use_cache": not isinstance(reader, OneByOne)})
            yield from ((row, id) for id in ids)

        monkeypatch.setattr(generation, "write_rows", write_rows)
        return calls

    return set_ids


def test_prompt_and_text_go_to_stdout_and_figures_to_stderr(gristmill, run_folder, tokenizer, says):
    says(tokenizer.encode(" lower"))
    code, out, err = gristmill("generate", run_folder, "--prompt", "newest")
    assert (code, out) == (0, "newest lower\n")
    assert "token" in err and " tokens/s" in err and err.count("\n") == 1


def test_the_same_seed_gives_the_same_text_with_and_without_cache(gristmill, run_folder):
    options = ("--prompt", "low", "--max-tokens", 40, "--seed", 3)
    _, first, err = gristmill("generate", run_folder, *options)
    assert err.startswith("40 tokens in ")
    assert gristmill("generate", run_folder, *options)[1] == first
    assert gristmill("generate", run_folder, *options, "--no-cache")[1] == first
    assert gristmill("generate", run_folder, *options[:-1], 4)[1] != first


def test_options_reach_the_model_with_underscores_too(gristmill, run_folder, tokenizer, says):
    calls = says([])
    options = ("--max_tokens", 7, "--temperature", 0.5, "--top_k", 50, "--top-p", 0.95, "--seed", 0, "--no-cache")
    assert gristmill("generate", run_folder, "--prompt", "low", *options)[0] == 0
    assert calls == [
        {
            "prompt_ids": tokenizer.encode("low"),
            "max_tokens": 7,
            "temperature": 0.5,
            "top_k": 50,
            "top_p": 0.95,
            "seed": 0,
            "stop_id": tokenizer.special_tokens[END],
            "use_cache": False,
        }
    ]


def test_only_whole_characters_are_written(gristmill, run_folder, says, monkeypatch):
    says([*"aé🙂".encode(), 0xC3])
    written = []
    monkeypatch.setattr(sys.stdout, "write", lambda text: written.append(text) or len(text))
    assert gristmill("generate", run_folder, "--prompt", "x")[0] == 0
    assert [text for text in written if text] == ["x", "a", "é", "🙂", "�", "\n"]


def test_the_prompt_may_come_from_stdin(gristmill, run_folder, says, monkeypatch):
    says([])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("süß\n".encode()), encoding="ascii"))
    assert gristmill("generate", run_folder, "--prompt", "-")[1] == "süß\n\n"


def test_without_a_prompt_a_document_begins(gristmill, run_folder, tokenizer, says):
    calls = says(tokenizer.encode("low"))
    assert gristmill("generate", run_folder)[1] == "low\n"
    assert calls[0]["prompt_ids"] == [tokenizer.special_tokens[END]]


def test_the_end_of_text_may_be_written_in_a_prompt(gristmill, run_folder, tokenizer, says):
    calls = says([])
    assert gristmill("generate", run_folder, "--prompt", f"low{END}")[0] == 0
    assert calls[0]["prompt_ids"][-1] == tokenizer.special_tokens[END]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--temperature", "-1"), 2, "--temperature must be >= 0, got -1.0"),
        (("--top-p", "2"), 2, "--top-p must be > 0 and <= 1, got 2.0"),
        (("--top-k", "0"), 2, "--top-k must be >= 1, got 0"),
        (("--max-tokens", "-5"), 2, "--max-tokens must be >= 0, got -5"),
        (("--checkpoint", "step-000077"), 1, "has no checkpoint 'step-000077'"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_line(gristmill, run_folder, options, code, words):
    found, out, err = gristmill("generate", run_folder, "--prompt", "low", *options)
    assert (found, out) == (code, "")
    assert err.startswith("gristmill: error: ") and words in err and err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_wrong_usage(gristmill, run_folder):
    code, _, err = gristmill("generate", run_folder, "--device", "cuda")
    assert code == 2
    assert "--device cpu" in err


def test_a_folder_without_a_model_is_one_line(gristmill, tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        code, out, err = gristmill("generate", folder, "--prompt", "x")
        assert (code, out) == (1, "")
        assert "train-model" in err and err.count("\n") == 1


def test_without_torch_the_error_says_what_to_install(gristmill, run_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, err = gristmill("generate", run_folder, "--prompt", "x")
    assert code == 1
    assert "pip install 'gristmill[train]'" in err


def test_control_c_keeps_what_was_written_and_exits_with_130(gristmill_process, run_folder):
    process = gristmill_process("generate", run_folder, "--prompt", "low", "--max-tokens", 10_000_000, "--seed", 0)
    assert process.stdout.read(20).startswith(b"low")  # generation has started
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out.endswith(b"\n")
    assert b"tokens in" in err and err.endswith(b"gristmill: interrupted\n")
    assert b"Traceback" not in err


# A run on token files of another program stores no tokenizer


@pytest.mark.parametrize("options", [{"context_length": 32}, {"model": "vae", "max_sequence_length": 16}])
def test_the_tokenizer_of_a_run_without_one_is_an_option(gristmill, tokenizer, tmp_path, options):
    folder = write_model(tmp_path / "run", tokenizer, fingerprint=None, **options)
    path = (folder / "tokenizer.json").rename(tmp_path / "elsewhere.json")
    code, out, err = gristmill("generate", folder)
    assert (code, out) == (1, "")
    assert "the run does not store their tokenizer" in err and "Pass --tokenizer tokenizer.json" in err
    for flag in ("-t", "--tokenizer"):
        code, out, err = gristmill("generate", folder, flag, path, "--seed", 0, "--max-tokens", 3)
        assert code == 0 and out and " in " in err


# A VAE


@pytest.fixture(scope="module")
def vae_folder(tokenizer, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("vae") / "run", tokenizer, model="vae", max_sequence_length=16)


@pytest.fixture
def decodes(monkeypatch):
    """Make every VAE generate these texts, and return the recorded requests."""
    import gristmill.lm.models.vae.texts as latent

    calls = []

    def answer(name, num_of):
        def say(model, tokenizer, *arguments, **options):
            calls.append((name, arguments, options))
            return [f"text {index}" for index in range(num_of(options))]

        monkeypatch.setattr(latent, name, say)

    answer("texts_from_prior", lambda options: options["num_texts"])
    answer("between", lambda options: options["num_texts"])
    answer("reconstructed", lambda options: 1)
    return calls


CHOICE = {"top_k": None, "top_p": None, "seed": None, "max_tokens": None}


def test_a_vae_writes_samples_with_a_line_between_them(gristmill, vae_folder, decodes):
    code, out, err = gristmill("generate", vae_folder, "--num", 2)
    assert (code, out) == (0, "text 0\n---\ntext 1\n")
    assert err.startswith("2 texts in ") and err.count("\n") == 1
    assert gristmill("generate", vae_folder)[1].count("text") == 4
    assert decodes[1] == ("texts_from_prior", (), {"num_texts": 4, **CHOICE})


def test_a_vae_gives_back_a_text_and_goes_from_one_to_another(gristmill, vae_folder, decodes, monkeypatch):
    assert gristmill("generate", vae_folder, "--reconstruct", "low", "--temperature", 0.5)[1] == "text 0\n"
    assert decodes[-1] == ("reconstructed", (["low"],), {**CHOICE, "temperature": 0.5})
    assert gristmill("generate", vae_folder, "--between", "low", "newest", "--max-tokens", 9)[1].count("---") == 4
    assert decodes[-1] == ("between", ("low", "newest"), {**CHOICE, "num_texts": 5, "max_tokens": 9})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("süß".encode()), encoding="ascii"))
    assert gristmill("generate", vae_folder, "--reconstruct", "-")[0] == 0
    assert decodes[-1][1] == (["süß"],)


def test_samples_of_a_vae_depend_on_the_seed(gristmill, vae_folder):
    texts = [gristmill("generate", vae_folder, "--num", 3, "--seed", seed)[1] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--prompt", "low"), "Leave it out for samples, or pass --reconstruct … or --between …."),
        (("--no-cache",), "--no-cache applies to models that continue a prompt, and this is a VAE. Leave it out."),
        (("--reconstruct", "low", "--between", "a", "b"), "--reconstruct and --between exclude each other"),
        (("--reconstruct", "low", "--num", 3), "--reconstruct and --num exclude each other"),
    ],
)
def test_what_a_vae_cannot_do_is_wrong_usage(gristmill, vae_folder, options, words):
    code, out, err = gristmill("generate", vae_folder, *options)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


@pytest.mark.parametrize("options", [("--reconstruct", "low"), ("--between", "low", "newest")])
def test_what_only_a_vae_can_do_is_wrong_usage_for_a_gpt(gristmill, run_folder, options):
    code, out, err = gristmill("generate", run_folder, *options)
    assert (code, out) == (2, "")
    assert f"{options[0]} is for models with latents" in " ".join(err.split())


def test_a_vae_of_vectors_writes_no_text(gristmill, tokenizer, tmp_path):
    options = {"model": "vae", "max_sequence_length": 16, "vocab_size": None, "embedding_dim": 4}
    code, out, err = gristmill("generate", write_model(tmp_path / "run", tokenizer, **options))
    assert (code, out) == (1, "")
    assert "the model was trained on vectors" in err and err.count("\n") == 1


def test_several_texts_of_a_gpt_have_a_line_between_them_and_seeds_of_their_own(gristmill, run_folder):
    options = ("--prompt", "low", "--max-tokens", 10)
    code, out, err = gristmill("generate", run_folder, *options, "--num", 2, "--seed", 7)
    alone = [gristmill("generate", run_folder, *options, "--seed", seed)[1] for seed in (7, 8)]
    assert (code, out) == (0, "---\n".join(alone))
    assert alone[0] != alone[1]
    assert err.startswith("2 texts, 20 tokens in ")


# Many texts


def test_several_prompts_are_written_in_order_with_seeds_of_their_own(gristmill, run_folder):
    options = ("--max-tokens", 10)
    code, out, err = gristmill("generate", run_folder, "--prompt", "low", "--prompt", "newest", *options, "--seed", 7)
    alone = [
        gristmill("generate", run_folder, "--prompt", prompt, *options, "--seed", seed)[1]
        for prompt, seed in (("low", 7), ("newest", 8))
    ]
    assert (code, out) == (0, "---\n".join(alone))
    assert err.startswith("2 texts, 20 tokens in ")


def test_prompts_of_a_file_are_lines_or_objects_and_texts_may_be_json_lines(gristmill, run_folder, tmp_path):
    lines, objects = tmp_path / "prompts.txt", tmp_path / "prompts.jsonl"
    lines.write_bytes("\ufefflow\r\n\nné\x0cü\n".encode())
    objects.write_text('{"prompt": "low"}\n\n{"prompt": "", "id": 3}\n{"prompt": "né\\fü"}\n', encoding="utf-8")
    options = ("--max-tokens", 5, "--seed", 0, "--jsonl", "--num", 2)
    code, out, err = gristmill("generate", run_folder, "--prompts", lines, *options)
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and err.startswith("6 texts, 30 tokens in ")
    assert [record["prompt"] for record in records] == ["low", "low", "", "", "né\x0cü", "né\x0cü"]
    assert [record["num_tokens"] for record in records] == [5] * 6
    texts = gm.lm.generate(run_folder, ["low", "", "né\x0cü"], num_texts=2, max_tokens=5, seed=0)
    assert [record["text"] for record in records] == texts
    assert gristmill("generate", run_folder, "--prompts", objects, *options, "--batch-size", 4)[1] == out


def test_prompts_may_come_from_stdin(gristmill, run_folder, says, monkeypatch):
    says([])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"low\n"), encoding="ascii"))
    assert gristmill("generate", run_folder, "--prompts", "-")[1] == "low\n"


def test_stop_strings_end_a_text(gristmill, run_folder, tokenizer, says):
    says(tokenizer.encode("one END two"))
    assert gristmill("generate", run_folder, "--prompt", "x ", "--stop", "END", "--stop", "two")[1] == "x one \n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--prompt", "a", "--prompts", "file.txt"), "--prompt and --prompts exclude each other"),
        (("--stop", ""), "--stop '' is empty"),
        (("--num", 0), "--num must be >= 1, got 0."),
        (("--batch-size", 0), "--batch-size must be >= 1, got 0."),
        (("--precision", "fp8"), "--precision"),
    ],
)
def test_options_of_many_texts_that_make_no_sense_are_wrong_usage(gristmill, run_folder, options, words):
    code, out, err = gristmill("generate", run_folder, *options)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "contains no prompt"),
        ("\n \n", "contains no prompt"),
        ('{"prompt": "a"}\nlow\n', "prompts.jsonl:2 is not valid JSON"),
        ('{"text": "a"}\n', 'prompts.jsonl:1 has no string "prompt"'),
        ('{"prompt": 3}\n', 'prompts.jsonl:1 has no string "prompt"'),
    ],
)
def test_a_file_without_prompts_is_named_with_its_line(gristmill, run_folder, tmp_path, content, words):
    (tmp_path / "prompts.jsonl").write_text(content, encoding="utf-8")
    code, out, err = gristmill("generate", run_folder, "--prompts", tmp_path / "prompts.jsonl")
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


def test_a_file_of_prompts_that_is_missing_is_one_line(gristmill, run_folder, tmp_path):
    code, out, err = gristmill("generate", run_folder, "--prompts", tmp_path / "none.txt")
    assert code in (1, 2) and out == ""
    assert "none.txt" in err and err.count("\n") == 1


def test_bfloat16_writes_text_of_every_model(gristmill, run_folder, vae_folder):
    for folder in (run_folder, vae_folder):
        code, out, _ = gristmill("generate", folder, "--precision", "bf16", "--max-tokens", 4, "--seed", 0)
        assert code == 0 and out


def test_a_stop_string_cuts_the_texts_of_a_vae(gristmill, vae_folder, decodes):
    assert gristmill("generate", vae_folder, "--num", 2, "--stop", "t 1")[1] == "text 0\n---\ntex\n"


def test_json_lines_of_prompts_may_have_blank_lines_and_the_mark_and_line_ends_of_windows(
    gristmill, run_folder, tmp_path
):
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "low"}\r\n\r\n{"prompt": "new"}\r\n')
    code, out, _ = gristmill("generate", run_folder, "--prompts", file, "--max-tokens", 1, "--jsonl")
    assert code == 0
    assert [json.loads(line)["prompt"] for line in out.splitlines()] == ["low", "new"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"prompt": "low"}\n{"prompt": "\\ud800"}\n', "prompts.jsonl:2 has an unpaired surrogate"),
        ("[" * 100_000, "prompts.jsonl:1 is not valid JSON"),
        ("\n\n", "contains no prompt"),
    ],
)
def test_what_is_wrong_with_json_lines_of_prompts_is_reported_with_its_place(
    gristmill, run_folder, tmp_path, content, message
):
    (tmp_path / "prompts.jsonl").write_text(content)
    code, _, err = gristmill("generate", run_folder, "--prompts", tmp_path / "prompts.jsonl")
    assert code == 2
    assert message in err
