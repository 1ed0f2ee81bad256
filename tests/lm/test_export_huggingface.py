"""Models exported to transformers: same logits, text and ids."""

import json
import warnings

import pytest

import gristmill as gm

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

from gristmill.lm.models.generation import generate  # noqa: E402
from lm.exported_runs import END, SHAPES, new_tokenizer, write_run  # noqa: E402
from lm.tiny_runs import train  # noqa: E402

ARCHITECTURES = {"plain": "Llama", "gqa": "Llama", "one-kv-head": "Llama", "window": "Mistral", "window-gqa": "Mistral"}


@pytest.fixture(scope="module")
def tokenizer():
    return new_tokenizer()


def load(folder, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, **options).eval()


def random_ids(vocab_size, *shape):
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(1))


def assert_same_model(ours, theirs, *, num_tokens=200):
    """Compare the logits of complete texts, and greedy text with the caches of both."""
    ids_BT = random_ids(ours.config.vocab_size, 3, ours.config.context_length)
    with torch.no_grad():
        logits_BTV = ours(ids_BT)
        torch.testing.assert_close(theirs(ids_BT).logits, logits_BTV, rtol=0, atol=1e-4)
        assert logits_BTV.std() > 0.01  # constant logits would match trivially
    theirs.generation_config.eos_token_id = None  # both generate up to max_tokens
    for seed in range(2):
        prompt = random_ids(ours.config.vocab_size, 5 + seed).tolist()
        expected = list(generate(ours, prompt, max_tokens=num_tokens, temperature=0))
        options = {"max_new_tokens": num_tokens, "do_sample": False, "pad_token_id": 0}
        found = theirs.generate(torch.tensor([prompt]), **options)[0, len(prompt) :].tolist()
        assert found == expected


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_computes_the_same_logits_and_writes_the_same_200_tokens(tmp_path, tokenizer, shape, tied):
    ours = write_run(tmp_path / "run", tokenizer, tie_embeddings=tied, **SHAPES[shape])
    written = gm.lm.export(tmp_path / "run", tmp_path / "folder")
    theirs = load(tmp_path / "folder")
    assert written.architecture == type(theirs).__name__ == f"{ARCHITECTURES.get(shape, 'Qwen3')}ForCausalLM"
    assert theirs.config.tie_word_embeddings is tied
    assert_same_model(ours, theirs)


@pytest.mark.parametrize("options", [{}, {"qk_norm": True, "num_kv_heads": 1, "tie_embeddings": True}])
def test_a_trained_model_writes_the_same_text_in_transformers(tmp_path, tiny_shards, options):
    train(tiny_shards, tmp_path / "run", context_length=256, batch_size=2, **options)
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    ours, _ = gm.lm.load_for_generation(tmp_path / "run", device="cpu")
    theirs = load(tmp_path / "folder")
    assert_same_model(ours, theirs)


def test_the_text_of_generate_is_that_of_a_pipeline_of_transformers(tmp_path, tokenizer):
    write_run(tmp_path / "run", tokenizer)
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    expected = gm.lm.generate(tmp_path / "run", "the old cat", max_tokens=100, temperature=0, device="cpu")
    model, theirs = load(tmp_path / "folder"), transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    ids = model.generate(**theirs("the old cat", return_tensors="pt"), max_new_tokens=100, do_sample=False)
    assert theirs.decode(ids[0], skip_special_tokens=True) == "the old cat" + expected


@pytest.mark.parametrize("name", ["llama-folder", "mistral", "gpt2", "qwen3-x"])
def test_the_name_of_the_folder_does_not_matter(tmp_path, tokenizer, name):
    write_run(tmp_path / "run", tokenizer)
    gm.lm.export(tmp_path / "run", tmp_path / name)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
    for text in ("the old cat", " two  spaces", f"a{END}b", "é ü\n\n\ttab", ""):
        assert theirs(text).input_ids == tokenizer.encode(text, allowed_special="all")
    assert theirs.eos_token == END and theirs.bos_token is None
    assert theirs.model_max_length == 256


def test_rows_that_belong_to_no_token_are_left_out(tmp_path, tokenizer):
    ours = write_run(tmp_path / "run", tokenizer, vocab_size=300)  # of 384 rows
    assert tokenizer.vocab_size == 290
    written = gm.lm.export(tmp_path / "run", tmp_path / "folder")
    theirs = load(tmp_path / "folder")
    rows = (theirs.config.vocab_size, *theirs.get_input_embeddings().weight.shape, theirs.lm_head.weight.shape[0])
    assert rows == (tokenizer.vocab_size, tokenizer.vocab_size, 64, tokenizer.vocab_size)
    assert written.vocab_size == tokenizer.vocab_size
    assert written.num_parameters == theirs.num_parameters()
    ids_BT = random_ids(tokenizer.vocab_size, 1, 20)
    with torch.no_grad():
        expected = ours(ids_BT)[..., : tokenizer.vocab_size]
        torch.testing.assert_close(theirs(ids_BT).logits, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bf16"])
def test_weights_in_another_type_are_rounded_once(tmp_path, tokenizer, dtype):
    ours = write_run(tmp_path / "run", tokenizer)
    gm.lm.export(tmp_path / "run", tmp_path / "folder", dtype=dtype)
    theirs = load(tmp_path / "folder", dtype="auto")
    expected = {"bf16": torch.bfloat16}.get(dtype) or getattr(torch, dtype)
    assert theirs.dtype == expected
    assert torch.equal(theirs.model.norm.weight, ours.final_norm.weight.to(expected))


def test_a_large_model_is_written_in_several_files_with_an_index(tmp_path, tokenizer, monkeypatch):
    from gristmill.lm.use.exports import huggingface

    ours = write_run(tmp_path / "run", tokenizer)
    monkeypatch.setattr(huggingface, "MAX_SHARD_BYTES", 60_000)
    written = gm.lm.export(tmp_path / "run", tmp_path / "folder")
    weights = [path for path in written.files if path.suffix == ".safetensors"]
    assert len(weights) > 3
    assert all(path.stat().st_size < 90_000 for path in weights)
    index = json.loads((tmp_path / "folder" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * written.num_parameters
    assert_same_model(ours, load(tmp_path / "folder"), num_tokens=20)


def test_special_tokens_get_their_ids_and_missing_ones_are_not_invented(tmp_path):
    tokenizer = new_tokenizer(["<|im_start|>"])
    write_run(tmp_path / "run", tokenizer)
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    theirs = load(tmp_path / "folder")
    ids = (theirs.config.bos_token_id, theirs.config.eos_token_id, theirs.config.pad_token_id)
    assert ids == (None, None, None)
    assert theirs.generation_config.eos_token_id is None


def test_the_end_of_text_stops_generation_there_too(tmp_path, tokenizer):
    write_run(tmp_path / "run", tokenizer)
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    theirs = load(tmp_path / "folder")
    assert theirs.config.eos_token_id == theirs.generation_config.eos_token_id == tokenizer.special_tokens[END]


def test_the_chat_template_of_a_run_comes_along(tmp_path, tokenizer):
    write_run(tmp_path / "run", tokenizer)
    template = "{% for message in messages %}[{{ message.content }}]{% endfor %}"
    (tmp_path / "run" / "chat_template.jinja").write_text(template)
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert theirs.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "[hi]"


def test_loading_the_folder_warns_of_nothing(tmp_path, tokenizer, caplog):
    write_run(tmp_path / "run", tokenizer, num_kv_heads=2)
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(tmp_path / "folder")
        transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
