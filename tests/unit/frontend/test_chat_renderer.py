from __future__ import annotations

import pytest

from octavo.config.schema import ModelConfig
from octavo.errors import ConfigError, ModelLoadError, RequestError
from octavo.frontend.chat import ChatRenderer
from scripted import BytesTokenizer

PLAIN = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
CONCAT = "{% for m in messages %}{{ 'x' + m.content }};{% endfor %}"
LOOPING = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}<{{ p.type }}:{{ p.text }}>{% endfor %}{% endif %}{% endfor %}"
)
CALLS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}("
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }} {% endfor %})"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
)


def _renderer(template=None, tokenizer=None):
    return ChatRenderer(tokenizer or BytesTokenizer(), ModelConfig(chat_template=template))


def _user(content):
    return [{"role": "user", "content": content}]


def _called(arguments):
    function = {"name": "f", "arguments": arguments}
    return [{"role": "assistant", "content": None, "tool_calls": [{"function": function}]}]


def test_models_own_template_is_used_unless_another_is_given(tmp_path):
    assert _renderer().render(_user("hi")) == "[user] hi\n[assistant] "
    assert _renderer(PLAIN).render(_user("hi")) == "user=hi;"
    file = tmp_path / "template.jinja"
    file.write_text(PLAIN)
    assert _renderer(str(file)).render(_user("hi")) == "user=hi;"
    other = _renderer().with_template(PLAIN)
    assert other.render(_user("hi")) == "user=hi;"


def test_templates_that_are_wrong_are_refused_at_once(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the chat template"):
        _renderer(str(tmp_path / "missing.jinja"))
    with pytest.raises(ModelLoadError, match="no valid Jinja template"):
        _renderer("{% for %}")


def test_model_without_a_template_says_so():
    class Bare(BytesTokenizer):
        chat_templates = {}

    with pytest.raises(RequestError, match="this model has no chat template") as caught:
        _renderer(tokenizer=Bare()).render(_user("hi"))
    assert caught.value.param == "messages"


def test_template_for_tools_is_used_when_there_are_tools():
    class Two(BytesTokenizer):
        chat_templates = {"default": "plain", "tool_use": "{{ tools[0].name }}"}

    renderer = _renderer(tokenizer=Two())
    assert renderer.render(_user("hi")) == "plain"
    assert renderer.render(_user("hi"), tools=[{"name": "clock"}]) == "clock"


@pytest.mark.parametrize("template", [PLAIN, CONCAT])
def test_B46_parts_of_text_render_as_their_text(template):
    renderer = _renderer(template)
    parts = [{"type": "text", "text": "hi"}]
    messages = [{"role": "system", "content": parts}, *_user(parts)]
    texts = [{"role": "system", "content": "hi"}, *_user("hi")]
    assert renderer.render(messages) == renderer.render(texts)
    assert "type" not in renderer.render(messages)
    assert "a\nb" in renderer.render(_user([{"type": "text", "text": "a"}, "b"]))


def test_template_that_loops_over_parts_gets_them():
    renderer = _renderer(LOOPING)
    assert renderer.render(_user([{"type": "input_text", "text": "hi"}])) == "<text:hi>"
    assert renderer.render(_user("hi")) == "hi"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a":5,"b":6}', 'f(a=5 b=6 ){"a": 5, "b": 6}'),
        ({"a": 5}, 'f(a=5 ){"a": 5}'),
        ("", "f(){}"), (None, "f(){}"), ("null", "f(){}"),
    ],
)  # fmt: skip
def test_B48_arguments_of_tool_calls_are_mappings(arguments, text):
    assert _renderer(CALLS).render(_called(arguments)) == text


@pytest.mark.parametrize("arguments", ['{"path": "/tm', "[]", '"Lima"', "42", 42, ["a"]])
def test_B51_arguments_that_are_no_object_are_named(arguments):
    with pytest.raises(RequestError, match=r"messages\[0\]\.tool_calls\[0\]\.function\.arguments"):
        _renderer(CALLS).render(_called(arguments))


def test_B49_refusal_of_the_template_is_the_requests_error():
    renderer = _renderer("{{ raise_exception('only single tool-calls') }}")
    with pytest.raises(RequestError, match="only single tool-calls"):
        renderer.render(_user("hi"))


def test_B167_images_are_refused_by_a_model_of_text():
    image = {"type": "image_url", "image_url": {"url": "http://localhost/none.png"}}
    with pytest.raises(RequestError, match=r"messages\[0\]\.content\[1\] is of type 'image_url'"):
        _renderer().render(_user([{"type": "text", "text": "what is it?"}, image]))


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages is empty"), ("hi", "must be a list"), ({"role": "user"}, "must be a list"),
        (["hi"], r"messages\[0\] must be an object"),
        ([{"role": 3, "content": "x"}], r"messages\[0\]\.role must be a string"),
        ([{"role": "user", "content": 3}], r"messages\[0\]\.content must be a string or a list"),
        (_user([{"type": "text"}]), r"messages\[0\]\.content\[0\]\.text must be a string"),
        (_user([3]), r"messages\[0\]\.content\[0\] is no part of a message"),
        ([{"role": "assistant", "tool_calls": ["f"]}], r"tool_calls\[0\]\.function must be an"),
    ],
)  # fmt: skip
def test_messages_of_another_form_are_refused_by_place(messages, message):
    with pytest.raises(RequestError, match=message) as caught:
        _renderer().render(messages)
    assert caught.value.param == "messages"


def test_message_without_content_is_an_empty_text():
    assert _renderer(PLAIN).render([{"role": "user"}]) == "user=;"


def test_last_message_can_be_continued():
    messages = [*_user("hi"), {"role": "assistant", "content": "The sea"}]
    text = _renderer().render(messages, add_generation_prompt=False, continue_final_message=True)
    assert text == "[user] hi\n[assistant] The sea"
    with pytest.raises(RequestError, match="exclude each other"):
        _renderer().render(messages, continue_final_message=True)


def test_a_template_that_knows_no_calls_gets_them_as_text():
    # anthropic and langchain send such turns back to whatever model answered
    call = {"function": {"name": "f", "arguments": '{"x": "ä"}'}}
    renderer = _renderer("{% for m in messages %}<{{ m.role }}>{{ m.content + '|' }}{% endfor %}")
    said = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "well", "tool_calls": [call]},
        {"role": "assistant", "content": [{"type": "text", "text": "so"}], "tool_calls": [call]},
        {"role": "tool", "content": "3"},
    ]
    text = '[{"name": "f", "arguments": {"x": "ä"}}]'
    assert renderer.render(said) == (
        f"<assistant>{text}|<assistant>well\n{text}|<assistant>so\n{text}|<tool>3|"
    )
