"""Models exported to GGUF: content of the file, and results of llama.cpp if it is installed."""

import numpy as np
import pytest

import gristmill as gm

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")
pytest.importorskip("safetensors")

from gristmill.lm.models.generation import generate  # noqa: E402
from lm.exported_runs import END, SHAPES, new_tokenizer, write_run  # noqa: E402
from lm.tiny_runs import train  # noqa: E402

WITHOUT_WINDOW = [name for name, options in SHAPES.items() if "sliding_window" not in options]


@pytest.fixture(scope="module")
def tokenizer():
    return new_tokenizer()


def exported(folder, tokenizer, *, dtype="float32", **options):
    model = write_run(folder / "run", tokenizer, **options)
    gm.lm.export(folder / "run", folder / "model.gguf", format="gguf", dtype=dtype)
    return model, folder / "model.gguf"


def fields(path):
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


def tensors(path):
    """Return every tensor as stored, its type, and its numbers as float32."""
    found = gguf.GGUFReader(path).tensors
    return {each.name: (each.tensor_type.name, gguf.dequantize(each.data, each.tensor_type)) for each in found}


def test_the_sizes_of_the_model_are_in_the_metadata(tmp_path, tokenizer):
    _, path = exported(tmp_path, tokenizer, num_kv_heads=2)
    found = fields(path)
    assert found["general.architecture"] == "llama"
    assert found["general.name"] == "run"
    assert found["general.file_type"] == gguf.LlamaFileType.ALL_F32
    sizes = {
        "vocab_size": tokenizer.vocab_size,
        "context_length": 256,
        "embedding_length": 64,
        "block_count": 2,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 16,
        "attention.value_length": 16,
        "rope.dimension_count": 16,
        "rope.freq_base": 5000.0,
    }
    assert {name: found[f"llama.{name}"] for name in sizes} == sizes
    assert found["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)


def test_the_tokenizer_has_the_keys_of_its_own_export(tmp_path, tokenizer):
    _, path = exported(tmp_path, tokenizer)
    tokenizer.export(tmp_path / "tokenizer.gguf", format="gguf")
    alone = {
        name: value for name, value in fields(tmp_path / "tokenizer.gguf").items() if name.startswith("tokenizer.")
    }
    assert len(alone) > 5
    assert {name: value for name, value in fields(path).items() if name.startswith("tokenizer.")} == alone


@pytest.mark.parametrize("tied", [False, True])
def test_tensors_are_those_of_the_model_without_rows_of_no_token(tmp_path, tokenizer, tied):
    model, path = exported(tmp_path, tokenizer, num_kv_heads=2, tie_embeddings=tied)
    found, weights = tensors(path), model.state_dict()
    q, k, v = weights["blocks.1.attention.qkv.weight"].split((64, 32, 32))
    gate, up = weights["blocks.1.feed_forward.gate_up.weight"].chunk(2)
    expected = {
        "token_embd.weight": weights["embedding.weight"][: tokenizer.vocab_size],
        "output_norm.weight": weights["final_norm.weight"],
        "blk.1.attn_q.weight": q,
        "blk.1.attn_k.weight": k,
        "blk.1.attn_v.weight": v,
        "blk.1.attn_output.weight": weights["blocks.1.attention.output.weight"],
        "blk.1.attn_norm.weight": weights["blocks.1.attention_norm.weight"],
        "blk.1.ffn_norm.weight": weights["blocks.1.feed_forward_norm.weight"],
        "blk.1.ffn_gate.weight": gate,
        "blk.1.ffn_up.weight": up,
        "blk.1.ffn_down.weight": weights["blocks.1.feed_forward.down.weight"],
    }
    if not tied:
        expected["output.weight"] = weights["head.weight"][: tokenizer.vocab_size]
    assert found.keys() - {name for name in found if name.startswith("blk.0.")} == expected.keys()
    assert [name for name in expected if not np.array_equal(found[name][1], expected[name].numpy())] == []
    assert {kind for kind, _ in found.values()} == {"F32"}


@pytest.mark.parametrize(("dtype", "kind"), [("f16", "F16"), ("bfloat16", "BF16"), ("q8_0", "Q8_0")])
def test_matrices_are_rounded_and_vectors_stay_as_they_are(tmp_path, tokenizer, dtype, kind):
    model, path = exported(tmp_path, tokenizer, dtype=dtype, qk_norm=True)
    found = tensors(path)
    assert {name: each[0] for name, each in found.items() if each[1].ndim == 2}.keys() == {
        name for name, each in found.items() if each[0] == kind
    }
    assert {each[0] for each in found.values()} == {kind, "F32"}
    norm = model.final_norm.weight.detach().numpy()
    assert np.array_equal(found["output_norm.weight"][1], norm)
    down, written = model.blocks[0].feed_forward.down.weight.detach(), found["blk.0.ffn_down.weight"][1]
    if dtype == "q8_0":
        steps = down.view(64, 3, 32).abs().amax(-1, keepdim=True) / 127
        assert bool(((torch.tensor(written).view(64, 3, 32) - down.view(64, 3, 32)).abs() <= 0.6 * steps).all())
    else:
        rounded = down.to({"f16": torch.float16, "bfloat16": torch.bfloat16}[dtype])
        assert np.array_equal(written, rounded.float().numpy())


def test_rows_that_q8_0_cannot_divide_are_float16_and_named(tmp_path, tokenizer):
    write_run(tmp_path / "run", tokenizer, d_ff=100)
    written = gm.lm.export(tmp_path / "run", tmp_path / "model.gguf", format="gguf", dtype="q8_0")
    found = tensors(tmp_path / "model.gguf")
    assert [name for name, each in found.items() if each[0] == "F16"] == [
        "blk.0.ffn_down.weight",
        "blk.1.ffn_down.weight",
    ]
    assert found["blk.0.ffn_gate.weight"][0] == "Q8_0"
    assert "2 tensors are float16" in written.notes[0]


def test_a_window_is_refused_with_the_reason_unless_no_text_is_longer(tmp_path, tokenizer):
    write_run(tmp_path / "run", tokenizer, sliding_window=255)
    with pytest.raises(gm.OptionError, match=r"sliding_window=255: llama.cpp has no architecture"):
        gm.lm.export(tmp_path / "run", tmp_path / "model.gguf", format="gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    write_run(tmp_path / "wide", tokenizer, sliding_window=256)
    assert gm.lm.export(tmp_path / "wide", tmp_path / "model.gguf", format="gguf").architecture == "llama"


def test_the_chat_template_of_a_run_comes_along(tmp_path, tokenizer):
    write_run(tmp_path / "run", tokenizer)
    (tmp_path / "run" / "chat_template.jinja").write_text("{{ messages }}")
    gm.lm.export(tmp_path / "run", tmp_path / "model.gguf", format="gguf")
    assert fields(tmp_path / "model.gguf")["tokenizer.chat_template"] == "{{ messages }}"


# With llama.cpp itself, if its bindings are installed.


def opened(path):
    llama_cpp = pytest.importorskip("llama_cpp")
    # Keys and values in float32 (type 0), without flash attention, which rounds.
    options = {"type_k": 0, "type_v": 0, "flash_attn": False, "logits_all": True}
    return llama_cpp.Llama(str(path), n_ctx=256, n_batch=256, n_threads=1, verbose=False, **options)


def greedy(llama, prompt, number):
    llama.reset()
    stream = llama.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0)
    return [id for id, _ in zip(stream, range(number), strict=False)]


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("shape", WITHOUT_WINDOW)
def test_llama_cpp_computes_the_same_logits_and_writes_the_same_200_tokens(tmp_path, tokenizer, shape, tied):
    pytest.importorskip("llama_cpp")
    model, path = exported(tmp_path, tokenizer, tie_embeddings=tied, **SHAPES[shape])
    llama = opened(path)
    ids = torch.randint(tokenizer.vocab_size, (200,), generator=torch.Generator().manual_seed(1)).tolist()
    llama.eval(ids)
    with torch.no_grad():
        logits_TV = model(torch.tensor([ids]))[0]
    torch.testing.assert_close(torch.tensor(np.array(llama.scores[:200])), logits_TV, rtol=0, atol=1e-4)
    assert greedy(llama, ids[:6], 200) == list(generate(model, ids[:6], max_tokens=200, temperature=0))
    llama.close()


def test_llama_cpp_continues_a_prompt_of_a_trained_model_as_generate_does(tmp_path, tiny_shards):
    pytest.importorskip("llama_cpp")
    train(tiny_shards, tmp_path / "run", context_length=128, batch_size=4)
    gm.lm.export(tmp_path / "run", tmp_path / "model.gguf", format="gguf")
    model, tokenizer = gm.lm.load_for_generation(tmp_path / "run", device="cpu")
    llama = opened(tmp_path / "model.gguf")
    prompt = "the little old cat"
    assert llama.tokenize(prompt.encode(), add_bos=True) == tokenizer.encode(prompt)
    assert llama.token_eos() == tokenizer.special_tokens[END]
    expected = list(generate(model, tokenizer.encode(prompt), max_tokens=100, temperature=0))
    assert greedy(llama, tokenizer.encode(prompt), 100) == expected
    llama.close()


@pytest.mark.parametrize(("dtype", "atol"), [("float16", 0.05), ("bfloat16", 0.3), ("q8_0", 0.8)])
def test_llama_cpp_reads_every_type(tmp_path, tokenizer, dtype, atol):
    pytest.importorskip("llama_cpp")
    model, path = exported(tmp_path, tokenizer, dtype=dtype)
    llama = opened(path)
    ids = torch.randint(tokenizer.vocab_size, (50,), generator=torch.Generator().manual_seed(1)).tolist()
    llama.eval(ids)
    with torch.no_grad():
        logits_TV = model(torch.tensor([ids]))[0]
    found = torch.tensor(np.array(llama.scores[:50]))
    torch.testing.assert_close(found, logits_TV, rtol=0, atol=atol)
    assert bool((found - logits_TV).std() < 0.1 * logits_TV.std())
    llama.close()
