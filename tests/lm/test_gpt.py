from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

from gristmill.errors import OptionError
from gristmill.lm import functional as plain
from gristmill.lm.data.batch import Batch
from gristmill.lm.models.gpt.attention import rope_tables, rotate
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.models.registry import MODELS

torch.set_num_threads(1)

CONFIG = GPTConfig(vocab_size=70, context_length=16, num_layers=2, num_heads=2, d_model=16)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def make(**changes):
    """A model with weights large enough that attention matters."""
    model = GPT(dataclasses.replace(CONFIG, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def tokens(batch_size=2, length=16, vocab_size=70):
    return torch.randint(vocab_size, (batch_size, length))


def batch_of(tokens_BT, **changes):
    return Batch(tokens_BT[:, :-1].contiguous(), tokens_BT[:, 1:].contiguous(), **changes)


def plain_weights(model):
    """The weights as `functional.transformer_lm` names them."""
    config, state = model.config, model.state_dict()
    v, f = config.vocab_size, config.feed_forward_width
    weights = {
        "token_embeddings.weight": state["embedding.weight"][:v],
        "lm_head.weight": model.head_weight.detach()[:v],
        "ln_final.weight": state["final_norm.weight"],
    }
    for i in range(config.num_layers):
        ours, theirs = f"blocks.{i}.", f"layers.{i}."
        qkv, gate_up = state[ours + "attention.qkv.weight"], state[ours + "feed_forward.gate_up.weight"]
        for name, part in zip("qkv", qkv.chunk(3), strict=True):
            weights[f"{theirs}attn.{name}_proj.weight"] = part
        weights |= {
            theirs + "attn.output_proj.weight": state[ours + "attention.output.weight"],
            theirs + "ln1.weight": state[ours + "attention_norm.weight"],
            theirs + "ln2.weight": state[ours + "feed_forward_norm.weight"],
            theirs + "ffn.w1.weight": gate_up[:f],
            theirs + "ffn.w3.weight": gate_up[f:],
            theirs + "ffn.w2.weight": state[ours + "feed_forward.down.weight"],
        }
    return weights


# The same model as the plain functions


@pytest.mark.parametrize("tie_embeddings", [False, True])
@pytest.mark.parametrize("num_heads", [1, 4])
def test_the_model_is_that_of_the_plain_functions(tie_embeddings, num_heads):
    model = make(tie_embeddings=tie_embeddings, num_heads=num_heads, rope_theta=500.0)
    tokens_BT = tokens()
    expected = plain.transformer_lm(plain_weights(model), tokens_BT, num_heads=num_heads, theta=500.0)
    torch.testing.assert_close(model(tokens_BT), expected, atol=1e-4, rtol=1e-4)


def test_rotary_tables_give_the_positions_of_the_plain_function():
    config = dataclasses.replace(CONFIG, context_length=64)
    x = torch.randn(2, 64, 8)
    cos, sin = rope_tables(config)
    torch.testing.assert_close(rotate(x, cos, sin), plain.rope(x, torch.arange(64)), atol=1e-5, rtol=1e-5)


def test_loss_is_the_mean_cross_entropy_of_the_targets_that_count():
    model, batch = make(), batch_of(tokens(length=17))
    logits = model(batch.inputs_BT)
    loss, stats = model.loss(batch, {})
    torch.testing.assert_close(loss, plain.cross_entropy(logits, batch.targets_BT))
    assert torch.equal(stats["loss"], loss)
    assert not stats["loss"].requires_grad

    targets_BT = batch.targets_BT.clone()
    targets_BT[:, 3:] = -100
    loss, _ = model.loss(Batch(batch.inputs_BT, targets_BT), {})
    torch.testing.assert_close(loss, plain.cross_entropy(logits[:, :3], batch.targets_BT[:, :3]))


# Attention


def test_a_change_in_the_future_changes_nothing_before_it():
    model, tokens_BT = make(), tokens()
    before = model(tokens_BT)
    for position in range(16):
        changed = tokens_BT.clone()
        changed[:, position] = (changed[:, position] + 1) % 70
        after = model(changed)
        torch.testing.assert_close(after[:, :position], before[:, :position], atol=1e-6, rtol=0)
        assert not torch.allclose(after[:, position], before[:, position])
        assert not torch.allclose(after[:, -1], before[:, -1], atol=1e-6)


def test_with_a_document_mask_each_document_has_the_logits_it_has_alone():
    model, tokens_BT = make(), tokens()
    ends = [[5, 6, 16], [10, 16]]
    ids = torch.tensor([[0] * 5 + [1] + [2] * 10, [7] * 10 + [3] * 6])
    logits = model(tokens_BT, document_ids_BT=ids)
    for b in range(2):
        for begin, end in zip([0, *ends[b]], ends[b], strict=False):
            alone = model(tokens_BT[b : b + 1, begin:end])
            torch.testing.assert_close(logits[b : b + 1, begin:end], alone, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(model(tokens_BT)[:, -1], logits[:, -1], atol=1e-3)


def test_a_document_that_comes_again_is_still_seen_only_backwards():
    model, tokens_BT = make(), tokens(1)
    ids = torch.tensor([[0, 1] * 8])
    changed = tokens_BT.clone()
    changed[:, 15] = (changed[:, 15] + 1) % 70
    before, after = (model(each, document_ids_BT=ids) for each in (tokens_BT, changed))
    assert torch.equal(before[:, :15], after[:, :15])


@pytest.mark.parametrize("cuts", [[16], [1] * 16, [3, 1, 7, 5]])
def test_tokens_read_in_parts_with_a_cache_have_the_logits_of_all_at_once(cuts):
    model, tokens_BT = make(), tokens()
    cache = model.new_cache(2, "cpu", torch.float32)
    parts = torch.cat([model(part, cache=cache) for part in tokens_BT.split(cuts, dim=1)], dim=1)
    torch.testing.assert_close(parts, model(tokens_BT), atol=1e-5, rtol=1e-5)
    assert (cache.length, cache.capacity) == (16, 16)


def test_more_tokens_than_the_context_are_refused():
    model = make()
    with pytest.raises(OptionError, match="17 tokens are more than context_length=16"):
        model(tokens(length=17))
    cache = model.new_cache(2, "cpu", torch.float32)
    model(tokens(length=10), cache=cache)
    with pytest.raises(OptionError, match="7 tokens after 10 in the cache"):
        model(tokens(length=7), cache=cache)
    with pytest.raises(OptionError, match="cannot be used together"):
        model(tokens(length=2), cache=cache, document_ids_BT=torch.zeros(2, 2))


# Padding and initialisation


@pytest.mark.parametrize(("vocab_size", "padded"), [(1, 128), (128, 128), (129, 256), (50_257, 50_304)])
def test_vocabulary_is_padded_to_a_multiple_of_128(vocab_size, padded):
    assert dataclasses.replace(CONFIG, vocab_size=vocab_size).padded_vocab_size == padded


def test_padding_gets_no_logits_no_gradient_and_stays_zero():
    model = GPT(CONFIG)
    assert model.embedding.weight.shape == model.head.weight.shape == (128, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(3):
        model.loss(batch_of(tokens(length=17)), {})[0].backward()
        optimizer.step()
        assert model.head.weight.grad[70:].abs().max() == model.embedding.weight.grad[70:].abs().max() == 0
        optimizer.zero_grad()
    assert model(tokens()).shape == (2, 16, 70)
    assert model.head.weight[70:].abs().max() == model.embedding.weight[70:].abs().max() == 0


def test_loss_is_that_of_a_model_whose_padding_is_garbage():
    model, batch = make(), batch_of(tokens(length=17))
    before = model.loss(batch, {})[0]
    with torch.no_grad():
        model.head.weight[70:] = 100
        model.embedding.weight[70:] = float("nan")
    assert torch.equal(model.loss(batch, {})[0], before)


def test_initialisation_is_what_the_docstring_says():
    config = GPTConfig(vocab_size=1000, context_length=8, num_layers=8, num_heads=4, d_model=128)
    model = GPT(config)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == 1).all(), name
            continue
        std = 0.02 / 4 if name.endswith(("output.weight", "down.weight")) else 0.02
        assert parameter[:1000].std().item() == pytest.approx(std, rel=0.05), name
    loss, _ = model.loss(batch_of(tokens(8, 9, 1000)), {})
    assert loss.item() == pytest.approx(math.log(1000), rel=0.02)


def test_the_same_seed_gives_the_same_model():
    models = []
    for _ in range(2):
        torch.manual_seed(5)
        models.append(GPT(CONFIG).state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_tied_embeddings_are_one_parameter_with_one_name():
    state = GPT(dataclasses.replace(CONFIG, tie_embeddings=True)).state_dict()
    assert "embedding.weight" in state
    assert "head.weight" not in state
    assert not any("cos" in name or "sin" in name for name in state), "tables are computed again, not stored"


# Precision, compilation, dropout


@pytest.mark.parametrize("float32_residual", [False, True])
def test_bfloat16_autocast_gives_the_loss_to_its_precision_in_float32(float32_residual):
    model, batch = make(float32_residual=float32_residual), batch_of(tokens(length=17))
    seen = []
    model.blocks[1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = model.loss(batch, {})
        assert model(batch.inputs_BT).dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    assert seen[0] == (torch.float32 if float32_residual else torch.bfloat16)
    assert loss.item() == pytest.approx(model.loss(batch, {})[0].item(), rel=0.02)


def test_float16_autocast_keeps_the_stream_in_float32():
    model, seen = make(), []
    model.blocks[1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    with torch.autocast("cpu", torch.float16):
        model(tokens())
    assert seen == [torch.float32]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_the_loss_compiles_in_one_graph_and_is_the_same(masked, autocast):
    torch._dynamo.reset()
    model, tokens_BT = make(dropout=0.0), tokens(length=17)
    ids = torch.arange(16).div(5, rounding_mode="floor").expand(2, 16) if masked else None
    batch = batch_of(tokens_BT, document_ids_BT=ids)
    gradients = []
    for loss_of in (model.loss, torch.compile(model.loss, fullgraph=True, backend="aot_eager")):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss, _ = loss_of(batch, {"beta": 1.0})
        loss.backward()
        gradients.append([loss, *(parameter.grad for parameter in model.parameters())])
    tolerance = 2e-2 if autocast else 1e-5
    for eager, compiled in zip(*gradients, strict=True):
        torch.testing.assert_close(compiled, eager, atol=tolerance, rtol=tolerance)


def test_dropout_is_active_only_in_training_and_by_the_generator_of_torch():
    model, batch = make(dropout=0.5), batch_of(tokens(length=17))
    assert torch.equal(model.loss(batch, {})[0], model.loss(batch, {})[0])
    model.train()
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(model.loss(batch, {})[0].item())
    assert losses[0] == losses[1] != losses[2]


def test_no_dropout_draws_no_random_numbers():
    model, batch = make().train(), batch_of(tokens(length=17))
    state = torch.get_rng_state()
    model.loss(batch, {})
    assert torch.equal(torch.get_rng_state(), state)


# Learning


@pytest.mark.parametrize("tie_embeddings", [False, True])
def test_a_tiny_model_memorizes_one_batch(tie_embeddings):
    model = GPT(dataclasses.replace(CONFIG, d_model=32, tie_embeddings=tie_embeddings))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    batch = batch_of(tokens(4, 17))
    for _ in range(150):
        optimizer.zero_grad()
        loss, _ = model.loss(batch, {})
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
    assert (model(batch.inputs_BT).argmax(-1) == batch.targets_BT).float().mean() > 0.99


# Sizes


def test_gpt2_shape_has_the_parameters_of_gpt2_within_2_percent():
    config = GPTConfig(
        vocab_size=50_257, context_length=1024, num_layers=12, num_heads=12, d_model=768, tie_embeddings=True
    )
    assert (config.d_ff, config.feed_forward_width) == (None, 2048)
    with torch.device("meta"):
        model = GPT(config)
    assert model.num_parameters == pytest.approx(124_439_808, rel=0.02)


def test_operations_per_token_are_six_for_each_multiplied_weight_and_attention():
    for tied in (False, True):
        model = GPT(dataclasses.replace(CONFIG, tie_embeddings=tied))
        d, f, layers = 16, CONFIG.feed_forward_width, 2
        multiplied = layers * (4 * d * d + 3 * d * f) + 70 * d
        norms = (2 * layers + 1) * d
        assert model.flops_per_token(10) == 6 * (multiplied + norms) + 12 * layers * d * 10
    assert model.flops_per_token() == model.flops_per_token(16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be >= 1, got 0"),
        ({"num_layers": 1.5}, "num_layers=1.5 is of type float"),
        ({"num_heads": 3}, "d_model=16 is not a multiple of num_heads=3"),
        ({"d_model": 6, "num_heads": 2}, "give heads of size 3, and rotary positions need an even size"),
        ({"dropout": 1.0}, "dropout must be >= 0 and < 1, got 1.0"),
        ({"rope_theta": 0.0}, "rope_theta must be > 0, got 0.0"),
        ({"d_ff": 0}, "d_ff must be >= 1, got 0"),
        ({"d_model": "16"}, "d_model='16' is of type str"),
    ],
)
def test_sizes_that_make_no_model_are_refused(changes, message):
    with pytest.raises(OptionError, match=message):
        GPTConfig(**{**dataclasses.asdict(CONFIG), **changes})


def test_the_config_comes_back_from_a_dict():
    config = dataclasses.replace(CONFIG, dropout=0.1)
    assert GPTConfig(**dataclasses.asdict(config)) == config


def test_the_registry_makes_models_by_name():
    entry = MODELS["gpt"]
    assert isinstance(entry.network_class()(entry.config(**dataclasses.asdict(CONFIG))), GPT)


def test_the_head_reads_the_final_norm():
    model, tokens_BT = make(), tokens()
    seen = []
    model.final_norm.register_forward_hook(lambda _, __, output: seen.append(output))
    logits = model(tokens_BT)
    torch.testing.assert_close(logits, F.linear(seen[0], model.head.weight)[..., :70])


def test_importing_the_package_imports_torch_but_not_lightning_and_gristmill_imports_neither():
    code = (
        "import sys, gristmill as gm\n"
        "assert 'torch' not in sys.modules\n"
        "assert gm.lm.GPT.__name__ == 'GPT'\n"
        "import gristmill.lm.use.generation\n"
        "import gristmill.lm.use.evaluation\n"
        "assert callable(gm.lm.generate) and callable(gm.lm.evaluate), 'the module is in the place of the function'\n"
        "assert set(gm.lm.__all__) <= set(dir(gm.lm))\n"
        "assert not any('lightning' in name for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_name_of_the_package_can_be_imported():
    from gristmill import lm

    assert sorted(lm.__all__) == sorted(set(lm.__all__))
    assert all(getattr(lm, name) is not None for name in lm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lm.nonsense  # noqa: B018
