"""Exported chat models: with their chat template, they answer and stop in other programs."""

import pytest

import gristmill as gm

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")
pytest.importorskip("safetensors")
pytest.importorskip("jinja2")

from lm.chats import questions, write_lines  # noqa: E402
from lm.exported_runs import END, new_tokenizer, write_run  # noqa: E402

OVER = "<|over|>"  # a name that no program recognizes as the end of a turn
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + '\n' + message['content'] + '<|over|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The folder of a run that has memorized one answer."""
    folder = tmp_path_factory.mktemp("tuned")
    text = " ".join(row["prompt"] + row["response"] for row in questions())
    tokenizer = gm.train_tokenizer([text], vocab_size=280, special_tokens=[END, OVER], progress=None)
    tokenizer.save(folder / "tokenizer.json")
    (folder / "template.jinja").write_text(TEMPLATE)
    gm.lm.train(
        write_lines(folder / "chats.jsonl", questions(1)),
        out=folder / "run",
        conversations=True,
        tokenizer=folder / "tokenizer.json",
        chat_template=folder / "template.jinja",
        val_fraction=0,
        **{"num_layers": 2, "num_heads": 2, "d_model": 32, "context_length": 64, "batch_size": 1},
        **{"max_steps": 60, "learning_rate": 5e-3, "device": "cpu", "progress": None},
    )
    return folder / "run"


@pytest.fixture
def question(tuned):
    (row,) = questions(1)
    assert gm.lm.generate(tuned, row["prompt"], chat=True, temperature=0, device="cpu") == row["response"]
    return row


def test_transformers_answers_and_stops_at_the_end_of_the_turn(tmp_path, tuned, question):
    gm.lm.export(tuned, tmp_path / "folder")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "folder", local_files_only=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question["prompt"]}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    ids = model.generate(**prompt, max_new_tokens=30, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(ids) == question["response"] + OVER
    assert tokenizer.eos_token == END  # which still ends documents


def test_gguf_names_the_token_that_ends_a_turn(tmp_path, tuned):
    gm.lm.export(tuned, tmp_path / "model.gguf", format="gguf")
    fields = {name: field.contents() for name, field in gguf.GGUFReader(tmp_path / "model.gguf").fields.items()}
    specials = gm.Tokenizer.load(tuned / "tokenizer.json").special_tokens
    assert fields["tokenizer.ggml.eot_token_id"] == specials[OVER]
    assert fields["tokenizer.ggml.eos_token_id"] == specials[END]


def test_llama_cpp_answers_and_stops_at_the_end_of_the_turn(tmp_path, tuned, question):
    llama_cpp = pytest.importorskip("llama_cpp")
    gm.lm.export(tuned, tmp_path / "model.gguf", format="gguf")
    llama = llama_cpp.Llama(str(tmp_path / "model.gguf"), n_ctx=64, n_threads=1, verbose=False)
    messages = [{"role": "user", "content": question["prompt"]}]
    (choice,) = llama.create_chat_completion(messages=messages, max_tokens=30, temperature=0)["choices"]
    llama.close()
    assert (choice["message"]["content"], choice["finish_reason"]) == (question["response"], "stop")


@pytest.mark.parametrize("format", ["huggingface", "gguf"])
def test_responses_that_end_with_text_are_reported_with_the_stop_string(tmp_path, format):
    write_run(tmp_path / "run", new_tokenizer())
    template = "{% for message in messages %}[{{ message.content }}]{% endfor %}"
    (tmp_path / "run" / "chat_template.jinja").write_text(template)
    (note,) = gm.lm.export(tmp_path / "run", tmp_path / "out", format=format).notes
    assert (
        note
        == "the chat template ends responses without a special token: pass ']' as a stop string to the other program"
    )


def test_a_template_that_only_others_can_render_is_exported_with_a_note(tmp_path):
    write_run(tmp_path / "run", new_tokenizer())
    (tmp_path / "run" / "chat_template.jinja").write_text("{{ messages }}")
    (note,) = gm.lm.export(tmp_path / "run", tmp_path / "folder").notes
    assert note.startswith("the token that ends a response is unknown: ")
    assert (tmp_path / "folder" / "chat_template.jinja").read_text() == "{{ messages }}"
