"""Which parser reads a model: by name, by another name, or by its chat template."""

import pytest

from octavo.config.resolve import resolve
from octavo.errors import UnknownComponentError
from octavo.frontend.parsers import choose_parsers
from octavo.interfaces.parser import ChatFacts
from octavo_plugins.parsers.deepseek import CALL, SEPARATOR

#: the telling lines of chat templates, as their makers wrote them
TEMPLATES = {
    ("hermes", "none"): '{{- \'<tool_call>\\n{"name": "\' }}{{ tool_call.arguments | tojson }}',
    ("hermes", "think"): "<tool_call> </tool_call> {%- if '</think>' in content %} <think>",
    ("qwen3-coder", "none"): "<tool_call>\n<function=example>\n<parameter=one>\nvalue",
    ("glm", "think"): "<tool_call>{name}\n<arg_key>{k}</arg_key> <arg_value> <think></think>",
    ("minimax", "think"): '<minimax:tool_call>\n<invoke name="a"> <think> </think>',
    ("deepseek-v3", "think"): f"{CALL}function{SEPARATOR}f\n```json </think>",
    ("deepseek-v31", "think"): f"{CALL}' + name + '{SEPARATOR} </think>",
    ("kimi-k2", "think"): "<|tool_call_begin|>{{ id }}<|tool_call_argument_begin|> </think>",
    ("mistral", "mistral"): "[TOOL_CALLS][ARGS] [THINK] [/THINK]",
    ("granite", "granite"): "<|tool_call|> Here is my thought process:",
    ("phi4-mini-json", "none"): "{{ '<|tool|>' + tools + '<|/tool|>' }}",
    ("llama3-json", "none"): '{"name": .., "parameters": dictionary} <|eot_id|>',
    ("llama4-pythonic", "none"): "[func_name1(params_name1=params_value1, ...)] <|eot|>",
    ("gpt-oss", "gpt-oss"): "<|start|>assistant<|channel|>analysis<|message|>",
    ("json", "none"): "{% if tools %}You may call: {{ tools | tojson }}{% endif %}",
    ("none", "think"): "{{ content.split('</think>')[-1] }}",
    ("none", "none"): "{% for m in messages %}{{ m.content }}{% endfor %}",
}


def chosen(template, **settings):
    facts = ChatFacts(template, bool)
    return choose_parsers(resolve(overrides=settings), facts)


@pytest.mark.parametrize("names", TEMPLATES)
def test_auto_takes_the_family_of_the_template(names):
    found = chosen(TEMPLATES[names])

    assert (found.tools.name, found.reasoning.name) == names
    assert found.tools.why.startswith("auto: ")


def test_one_component_for_both_is_one_parser():
    found = chosen(TEMPLATES["gpt-oss", "gpt-oss"])

    assert found.tools.parser is found.reasoning.parser


@pytest.mark.parametrize(
    ("name", "component"),
    [("qwen3_coder", "qwen3-coder"), ("openai", "gpt-oss"), ("qwen", "hermes"), ("none", "none")],
)
def test_a_parser_has_the_names_that_vllm_has(name, component):
    found = chosen("", tool_parser=name)

    assert (found.tools.name, found.tools.why) == (component, "tool_parser=")
    assert found.reasoning.why.startswith("auto: none fits; not ")


def test_a_name_that_nobody_has_is_told_with_the_nearest():
    with pytest.raises(UnknownComponentError) as caught:
        resolve(overrides={"reasoning_parser": "deepseek-r2"})

    text = str(caught.value)
    assert text.startswith("unknown parser 'deepseek-r2' for reasoning (reasoning_parser=)")
    assert "did you mean 'deepseek-r1'?" in text
    assert "in use: gpt-oss, granite, mistral, think" in text


def test_a_parser_of_calls_is_none_of_reasoning():
    with pytest.raises(UnknownComponentError, match="unknown parser 'glm47' for reasoning"):
        resolve(overrides={"reasoning_parser": "glm47"})


def test_vllms_flags_lead_here():
    config = resolve(flags={"tool-parser": "hermes", "reasoning-parser": "deepseek_r1"})

    assert (config.model.tool_parser, config.model.reasoning_parser) == ("hermes", "deepseek_r1")
