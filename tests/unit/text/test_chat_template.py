"""Chat templates: what they are given, what they may not do, and how they fail."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from octavo.errors import ModelLoadError, RequestError
from octavo.text.chat_template import ChatTemplate, OversizedChatError, words_of

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' "
    "+ message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MESSAGES = [{"role": "user", "content": "Hi 漢字 <b>"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"é": [1, None]}}}]


def test_renders_chatml() -> None:
    template = ChatTemplate(CHATML)
    prompt = "<|im_start|>user\nHi 漢字 <b><|im_end|>\n"
    assert template.render(MESSAGES) == prompt + "<|im_start|>assistant\n"
    assert template.render(MESSAGES, add_generation_prompt=False) == prompt


SAME_AS_TRANSFORMERS = {
    "whitespace": "{% for m in messages %}\n    {% if true %}\n  {{ m.content }}\n{% endif %}"
    "{% endfor %}",
    "tojson": "{{ tools | tojson }}|{{ tools | tojson(indent=2) }}|{{ '<' | tojson }}",
    "loop controls": "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}"
    "{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "generation": "a {% generation %}\n{{ messages[0].content }}{% endgeneration %} b",
    "namespace": "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}"
    "{% endfor %}{{ ns.n }}",
    "undefined": "[{{ nothing }}][{{ 'x' if tools is not none }}][{{ documents is none }}]",
    "methods": "{{ messages[0].content.split(' ')[0].upper().strip('H') }}",
    "special tokens": "{{ bos_token }}{{ eos_token }}{{ enable_thinking }}",
}


@pytest.mark.parametrize("case", SAME_AS_TRANSFORMERS)
def test_renders_as_transformers_does(case: str) -> None:
    source = SAME_AS_TRANSFORMERS[case]
    extra: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    expected, _ = render_jinja_template(
        [MESSAGES],
        tools=TOOLS,
        chat_template=source,
        add_generation_prompt=True,
        enable_thinking=False,
        **extra,
    )
    template = ChatTemplate(source, extra)
    actual = template.render(MESSAGES, tools=TOOLS, template_kwargs={"enable_thinking": False})
    assert actual == expected[0]


def test_the_clock_is_the_one_that_was_given() -> None:
    template = ChatTemplate(
        "{{ strftime_now('%d %b %Y') }}",
        now=lambda: datetime(2026, 11, 30),  # noqa: DTZ001
    )
    assert template.render(MESSAGES) == "30 Nov 2026"


def test_a_refusal_is_the_requests_fault_in_the_templates_words() -> None:
    template = ChatTemplate("{{ raise_exception('only single tool calls, please') }}")
    with pytest.raises(RequestError) as caught:
        template.render(MESSAGES)
    assert str(caught.value) == (
        "the chat template refuses these messages: only single tool calls, please"
    )
    assert caught.value.param == "messages"
    assert caught.value.http_status == 400


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ messages[7].content }}", "UndefinedError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0] | tojson(indent='x' * 3, separators=1) }}", "Error"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "TooLargeError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
    ],
)
def test_a_failure_is_the_requests_fault_too(source: str, fault: str) -> None:
    template = ChatTemplate(source)
    with pytest.raises(RequestError) as caught:
        template.render(MESSAGES)
    assert caught.value.headline == "the chat template fails on these messages"
    assert fault in caught.value.facts[0]


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ strftime_now.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(RequestError):
        ChatTemplate(source).render(list(MESSAGES))


def again(start: str, change: str) -> str:
    """Return a template that changes something sixty times."""
    loop = "{% for i in range(60) %}{% set ns.x = CHANGE %}{% endfor %}".replace("CHANGE", change)
    return f"{{% set ns = namespace(x={start}) %}}{loop}"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 9 }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 1000000000 * 'a' }}",
        "{% set x = [1, 2] * 10 ** 9 %}",
        "{{ 9 ** 999999999 }}",
        again("'ab'", "ns.x ~ ns.x"),
        again("'ab'", "ns.x + ns.x"),
        again("[1]", "ns.x + ns.x"),
        again("9", "ns.x * ns.x"),
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(10 ** 30) %}{% endfor %}",
        "{% for i in range(0, -(10 ** 9), -1) %}{% endfor %}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a'.center(width=1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 'a' | indent(1000000000, true) }}",
        "{{ [1] | batch(1000000000, 'x') | list }}",
        "{{ [1] | slice(1000000000) | list }}",
        "{{ [1] | tojson(indent=1000000000) }}",
        "{{ lipsum(n=1000000000) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ ('a' * 10000).replace('a', 'b' * 10000) }}",
    ],
)
def test_what_no_chat_needs_is_refused_before_it_is_made(source: str) -> None:
    start_s = time.process_time()
    with pytest.raises(RequestError) as caught:
        ChatTemplate(source).render(MESSAGES)

    assert caught.value.facts[0].startswith("TooLargeError: the template asks for ")
    assert time.process_time() - start_s < 2


def test_messages_that_are_too_long_are_not_blamed_on_the_template() -> None:
    template = ChatTemplate("{{ messages[0].content + messages[1].content }}")
    parts = [{"type": "text", "text": "a" * 5_000_000}, {"type": "text", "text": "b"}]
    messages = [{"content": "c" * 6_000_000}, {"content": parts}, {"content": None}]
    with pytest.raises(OversizedChatError) as caught:
        template.render([{"content": "c" * 6_000_000}, {"content": "a" * 5_000_001}])

    assert str(caught.value) == (
        "the messages are too long: 11000001 characters\n"
        "  TooLargeError: the template asks for more than 10000000 characters or items"
    )
    assert caught.value.param == "messages"
    assert len(words_of(messages)) == 11_000_001


def test_what_a_chat_needs_is_made() -> None:
    source = (
        "{{ '=' * 40 }}|{{ 2 ** 10 * 3 }}|{{ 'a' ~ 1 ~ none ~ ['b'] }}|{{ '%05d' % 7 }}|"
        "{{ 'x'.ljust(3) }}|{{ '{:>4}'.format(1) }}|{{ [1] + [2] }}|{{ [1, 2] | tojson(indent=1) }}"
        "|{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}|{{ 7 % 4 }}|"
        "{{ 'a-b'.replace('-', '+') }}"
    )

    assert ChatTemplate(source).render(MESSAGES) == (
        f"{'=' * 40}|3072|a1None['b']|00007|x  |   1|[1, 2]|[\n 1,\n 2\n]|531|3|a+b"
    )


@pytest.mark.parametrize("name", ["raise_exception", "strftime_now", "messages.index"])
def test_the_insides_of_functions_print_as_nothing(name: str) -> None:
    source = f"[{{{{ {name}.__globals__ }}}}{{{{ {name}.__self__ }}}}{{{{ {name}.__code__ }}}}]"
    assert ChatTemplate(source).render(list(MESSAGES)) == "[]"


def test_a_syntax_error_is_the_models_fault() -> None:
    with pytest.raises(ModelLoadError) as caught:
        ChatTemplate("line one\n{% if %}", where="chat template 'x.jinja'")
    assert str(caught.value) == (
        "chat template 'x.jinja' is no valid Jinja template\n"
        "  line 2: Expected an expression, got 'end of statement block'\n"
        "  give another one with --chat-template FILE"
    )


def test_arguments_cannot_be_replaced_by_template_kwargs() -> None:
    template = ChatTemplate("{{ messages[0].content }}{{ bos_token }}", {"bos_token": "<s>"})
    kwargs = {"messages": [{"content": "other"}], "bos_token": "<t>"}
    assert template.render(MESSAGES, template_kwargs=kwargs) == "Hi 漢字 <b><t>"


def test_what_the_template_takes_is_known() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.x }}{% endfor %}{{ enable_thinking }}")
    assert template.variables == {"messages", "enable_thinking"}


@pytest.mark.parametrize(
    ("source", "takes_parts"),
    [
        (CHATML, False),
        ("{% for p in message.content %}{{ p.text }}{% endfor %}", True),
        ("{% for p in message['content'] | list %}{{ p.text }}{% endfor %}", True),
        ("{% set c = m['content'] %}{% for p in c %}{{ p.text }}{% endfor %}", True),
        ("{% set c = m['role'] %}{% for p in c %}{{ p.text }}{% endfor %}", False),
    ],
)
def test_whether_content_may_be_parts(source: str, takes_parts: bool) -> None:
    assert ChatTemplate(source).takes_content_parts is takes_parts


STRIPPING = "{% for m in messages %}[{{ m.content | trim }}]\n{% endfor %}"


@pytest.mark.parametrize(
    ("source", "content", "end"),
    [
        (CHATML, "The answer", "assistant\nThe answer"),
        (CHATML, " The answer ", "assistant\n The answer "),
        (STRIPPING, " The answer ", "[The answer"),
        (CHATML.replace("message['content']", "message.content[0].text"), None, "assistant\nA b"),
    ],
)
def test_the_last_message_is_left_open(source: str, content: str | None, end: str) -> None:
    parts = [{"type": "text", "text": "A b"}]
    messages = [{"role": "assistant", "content": parts if content is None else content}]
    assert ChatTemplate(source).render_open(messages).endswith(end)


def test_the_last_of_two_equal_texts_is_left_open() -> None:
    messages = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "A"}]
    text = ChatTemplate(CHATML).render_open(messages)
    assert text == "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nA"


@pytest.mark.parametrize("messages", [[], [{"role": "user"}], [{"role": "user", "content": " "}]])
def test_nothing_to_continue_is_refused(messages: list[dict[str, str]]) -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.role }}{% endfor %}")
    with pytest.raises(RequestError, match="cannot be continued"):
        template.render_open(messages)
