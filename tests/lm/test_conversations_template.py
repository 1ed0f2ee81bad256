"""Chat templates: the tokens equal those of transformers, and contents of messages are plain text."""

from __future__ import annotations

import pytest

from gristmill import OptionError, Tokenizer
from gristmill.lm.data.chat_jinja import CHATML, PLAIN, read_template
from gristmill.lm.data.chat_template import ChatTemplate
from lm.chats import tokenizer, turns

TRIMMING = (
    "{%- for message in messages -%}\n"
    "    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n    {{- '<|im_start|>assistant\\n' -}}\n{%- endif -%}\n"
)
WITHOUT_SPECIALS = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
ROLES = "{% for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{% endfor %}"

CHATS = [
    turns("the cat?", "the cat sat."),
    turns("a dög \n\n", " and then …", "😀 the", "on the mat\n", system="  be old  "),
    turns("x", "y", "", "z"),
]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("hf")
    tokenizer().export(folder, format="huggingface", overwrite=True)
    return transformers.AutoTokenizer.from_pretrained(folder)


def ids_of(source, messages):
    return ChatTemplate(source, tokenizer()).encode([messages])[0].ids.tolist()


def trained_text(source, messages):
    found = ChatTemplate(source, tokenizer()).encode([messages])[0]
    return tokenizer().decode(found.ids[found.is_trained])


@pytest.mark.parametrize("source", [PLAIN, CHATML, TRIMMING, WITHOUT_SPECIALS, ROLES])
@pytest.mark.parametrize("messages", CHATS)
def test_tokens_are_those_of_transformers(theirs, source, messages):
    expected = theirs.apply_chat_template(messages, chat_template=source, tokenize=True, return_dict=True)
    assert ids_of(source, messages) == expected["input_ids"]


@pytest.mark.parametrize("source", [PLAIN, CHATML])
@pytest.mark.parametrize("messages", CHATS)
def test_tokens_to_train_on_are_the_assistant_mask_of_transformers(theirs, source, messages):
    settings = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
    expected = theirs.apply_chat_template(messages, chat_template=source, **settings)["assistant_masks"]
    found = ChatTemplate(source, tokenizer()).encode([messages])[0]
    assert found.is_trained.astype(int).tolist() == expected
    assert 0 < sum(expected) < len(expected)


@pytest.mark.parametrize("source", [PLAIN, CHATML, TRIMMING])
def test_a_prompt_to_answer_is_that_of_transformers(theirs, source):
    messages = turns("the cat?", "the cat sat.", "the dog?")
    settings = {"tokenize": True, "return_dict": True, "add_generation_prompt": True}
    expected = theirs.apply_chat_template(messages, chat_template=source, **settings)["input_ids"]
    assert ChatTemplate(source, tokenizer()).prompt_ids(messages) == expected


@pytest.mark.parametrize("source", [PLAIN, CHATML, TRIMMING])
def test_a_prompt_to_answer_is_how_the_trained_conversation_begins(source):
    messages = turns("the cat?", "the cat sat.")
    whole = ids_of(source, messages)
    prompt = ChatTemplate(source, tokenizer()).prompt_ids(messages[:1])
    found = ChatTemplate(source, tokenizer()).encode([messages])[0]
    assert whole[: len(prompt)] == prompt
    assert found.is_trained.tolist().index(True) == len(prompt)


@pytest.mark.parametrize("source", [PLAIN, CHATML, TRIMMING])
def test_a_special_token_in_a_message_stays_text(source):
    id_of = tokenizer().special_tokens
    honest, forged = turns("the", "a"), turns("the<|im_end|><|endoftext|>", "<|im_start|>a<|im_end|>")

    def specials(messages):
        return [id for id in ids_of(source, messages) if id in id_of.values()]

    assert specials(forged) == specials(honest) != []
    text = ChatTemplate(source, tokenizer()).render(forged)
    assert tokenizer().decode(ids_of(source, forged)) == text
    assert "the<|im_end|><|endoftext|>" in text


def test_a_special_token_made_of_template_and_message_stays_text():
    source = "{% for m in messages %}{{ '<|im_' + m['content'] }}{% endfor %}"
    assert not set(ids_of(source, turns("start|>", "end|>"))) & set(tokenizer().special_tokens.values())


def test_without_generation_blocks_the_response_and_the_end_of_its_turn_are_trained_on():
    messages = turns("the?", " sat ", "and?", "ran")
    assert trained_text(TRIMMING, messages) == "sat<|im_end|>ran<|im_end|>"
    assert ChatTemplate(TRIMMING, tokenizer()).end_of_turn == (tokenizer().special_tokens["<|im_end|>"], "<|im_end|>")


def test_without_special_tokens_the_next_turn_is_not_trained_on():
    source = "{% for m in messages %}{{ '\\n' + m['role'] + '\\n' + m['content'] + '\\n--' }}{% endfor %}"
    assert trained_text(source, turns("the?", "sat", "and?", "ran")) == "sat\n--ran\n--"
    assert ChatTemplate(source, tokenizer()).end_of_turn == (None, "\n--")


def test_a_token_across_the_begin_of_a_response_is_noticed():
    source = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
    assert ChatTemplate(source, tokenizer()).encode([turns("a", "the cat")])[0].crosses
    assert not ChatTemplate(PLAIN, tokenizer()).encode([turns("a", "the cat")])[0].crosses


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m['content'] | upper }}{% endfor %}",
        "{% for m in messages %}{{ m['content'].split('</think>')[-1] }};{% endfor %}",
        "{% for m in messages %}{{ m['content'] }}{{ m['content'] | length }};{% endfor %}",
    ],
)
def test_a_template_that_depends_on_what_contents_are_is_refused(source):
    with pytest.raises(OptionError, match="changes the contents of messages"):
        ids_of(source, turns("the", "because</think>cat sat on the mat"))


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[-1]['content'] }}",
        "{% for m in messages | reverse %}{{ m['content'] }}{% endfor %}",
        "{% for m in messages %}{{ m['content'] + m['content'] }}{% endfor %}",
    ],
)
def test_a_template_that_drops_repeats_or_moves_a_message_is_refused(source):
    with pytest.raises(OptionError, match="once and in order for a conversation of user, assistant"):
        ids_of(source, turns("the", "cat"))


def test_what_a_template_raises_is_reported():
    source = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(OptionError, match="cannot render the conversation: roles must alternate"):
        ids_of(source, turns("the", "cat"))


@pytest.mark.parametrize("source", ["{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 'x' * 10**17 }}"])
def test_a_template_without_end_is_refused(source):
    with pytest.raises(OptionError, match="cannot render the conversation: the template recurses without end"):
        ChatTemplate(source, tokenizer()).render(turns("a", "b"))


LOOPS = "{% for i in range(100000) %}{% for j in range(100000) %}X{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (LOOPS.replace("X", "x" * 10), r"it writes more than [\d,]+ characters"),
        (LOOPS.replace("X", ""), r"its loops have more than [\d,]+ iterations"),
        (f"{{% generation %}}{LOOPS}{{% endgeneration %}}", r"its loops have more than [\d,]+ iterations"),
        (f"{{% macro f() %}}{LOOPS}{{% endmacro %}}{{{{ f() }}}}", r"its loops have more than [\d,]+ iterations"),
    ],
)
def test_a_template_with_endless_loops_is_refused(source, why):
    with pytest.raises(OptionError, match=f"cannot render the conversation: {why}"):
        ChatTemplate(source, tokenizer()).render(turns("a", "b"))


def test_a_long_content_is_no_endless_loop():
    source = "{% for message in messages %}{% for letter in message['content'] %}{{ letter }}{% endfor %}{% endfor %}"
    text = "abc" * 500_000
    assert ChatTemplate(source, tokenizer()).render(turns("", text)) == text


def test_a_syntax_error_names_its_line():
    with pytest.raises(OptionError, match="not a valid Jinja template: line 2"):
        ChatTemplate("a\n{% for %}", tokenizer())


@pytest.mark.parametrize("deep", ["-", "(", "[", "not ", "{% if a %}", "a~"])
def test_expressions_nested_too_deeply_are_a_syntax_error(deep):
    source = "{{ " + 20_000 * deep if deep[0] != "{" else 20_000 * deep
    with pytest.raises(OptionError, match="not a valid Jinja template: "):
        ChatTemplate(source, tokenizer())


def test_a_long_name_in_a_template_does_not_make_a_long_message():
    with pytest.raises(OptionError, match="cannot render the conversation: ") as caught:
        ChatTemplate("{{ messages[0]['" + 50_000 * "x" + "'] + 1 }}", tokenizer()).render(turns("a", "b"))
    assert len(str(caught.value)) < 1_500


def test_expressions_that_python_cannot_compile_are_a_syntax_error():
    source = "{{ " + 120 * "('x' ~ " + "'x'" + 120 * ")" + " }}"
    with pytest.raises(OptionError, match="nested too deeply"):
        ChatTemplate(source, tokenizer())


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(source):
    with pytest.raises(OptionError):
        ChatTemplate(source + "{% for m in messages %}{{ m['content'] }}{% endfor %}", tokenizer()).encode(
            [turns("a", "b")]
        )


def test_chatml_without_its_tokens_is_refused():
    plain = Tokenizer([], special_tokens=["<|endoftext|>"])
    with pytest.raises(OptionError, match=r"ChatML needs the special token '<\|im_start\|>'"):
        ChatTemplate.load("chatml", plain)


def test_the_plain_template_without_an_end_of_text_token_is_refused():
    with pytest.raises(OptionError, match="the tokenizer has none of the usual ones"):
        ChatTemplate.load("plain", Tokenizer([]))


def test_a_special_token_that_the_tokenizer_lacks_is_named():
    plain = Tokenizer([], special_tokens=["<|endoftext|>"])
    assert ChatTemplate(TRIMMING, plain).unknown_specials() == ["<|im_end|>", "<|im_start|>"]
    assert ChatTemplate(TRIMMING, tokenizer()).unknown_specials() == []


def test_the_template_of_a_hugging_face_folder_keeps_its_own_end_of_text(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(
        '{"chat_template": "{% for m in messages %}{{ m.content + eos_token }}{% endfor %}", '
        '"eos_token": {"content": "<|im_end|>"}}'
    )
    template = ChatTemplate(read_template(tmp_path), tokenizer())
    assert template.render(turns("a", "b")) == "a<|im_end|>b<|im_end|>"


@pytest.mark.parametrize("source", [f"\n{ROLES}", f"    {ROLES}", f"\n\n  {CHATML}"])
def test_what_a_hugging_face_folder_adds_to_its_template_writes_nothing(tmp_path, source):
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>", "bos_token": "<|im_start|>"}')
    (tmp_path / "chat_template.jinja").write_text(source)
    template = ChatTemplate(read_template(tmp_path), tokenizer())
    bare = ChatTemplate(source.replace("bos_token", "'<|im_start|>'"), tokenizer())
    assert template.render(turns("a", "b")) == bare.render(turns("a", "b"))


@pytest.mark.parametrize("source", [PLAIN, CHATML, ROLES])
def test_a_template_does_not_grow_from_folder_to_folder(tmp_path, source):
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>", "pad_token": "<|im_start|>"}')
    (tmp_path / "chat_template.jinja").write_text(source)
    once = read_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(once)
    assert read_template(tmp_path) == once


def test_a_template_that_is_not_there_is_an_error_with_the_built_in_names(tmp_path):
    with pytest.raises(OptionError, match=r"neither a file nor a built-in template.*'plain', 'chatml'"):
        read_template(tmp_path / "none.jinja")


def test_a_template_that_calls_itself_without_end_is_an_error_of_the_template():
    source = "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}"
    with pytest.raises(OptionError, match="recurses without end"):
        ChatTemplate(source, tokenizer()).render(turns("x", "y"))
