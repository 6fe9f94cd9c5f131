"""Arguments that are text become JSON by the tool's schema."""

import json

import pytest

from octavo.interfaces.parser import CallArguments, Content, ToolSpec, TurnContext, joined
from octavo_plugins.parsers.glm import Glm
from octavo_plugins.parsers.minimax import MiniMax
from octavo_plugins.parsers.parameters import value_of
from octavo_plugins.parsers.qwen3_coder import Qwen3Coder

PROPERTIES = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "maybe": {"type": ["string", "null"]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "list": {"type": "array"},
    "flag": {"type": "boolean"},
    "unknown": {},
}
CONTEXT = TurnContext("", (ToolSpec("f", {"type": "object", "properties": PROPERTIES}),))
WRITE = {
    Qwen3Coder: (
        "<tool_call>\n<function=f>\n",
        "<parameter={}>\n{}\n</parameter>\n",
        "</function>",
    ),
    Glm: ("<tool_call>f\n", "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n", "</tool_call>"),
    MiniMax: (
        '<minimax:tool_call>\n<invoke name="f">\n',
        '<parameter name="{}">{}</parameter>\n',
        "</invoke>",
    ),
}
both_sides = pytest.mark.parametrize("parser", WRITE)


def read(parser, values, end=True):
    """Return the events of a call with these texts, read character by character."""
    begin, one, after = WRITE[parser]
    text = begin + "".join(one.format(*item) for item in values.items()) + after * end
    reader = parser().open(CONTEXT)
    events = [event for char in text for event in reader.push(char)]
    return joined([*events, *reader.finish()])


def arguments(events):
    return "".join(one.text for one in events if isinstance(one, CallArguments))


@both_sides
def test_values_have_the_types_of_the_schema(parser):
    given = {
        "text": '12 "of"\n\\ them',
        "count": "12",
        "maybe": "null",
        "either": "7",
        "list": '["a", {"b": 1}]',
        "flag": "True",
        "unknown": "[1]",
    }

    found = json.loads(arguments(read(parser, given)))

    assert found == {
        "text": '12 "of"\n\\ them',
        "count": 12,
        "maybe": None,
        "either": 7,
        "list": ["a", {"b": 1}],
        "flag": True,
        "unknown": [1],
    }


@both_sides
def test_a_string_comes_while_it_is_written(parser):
    begin, one, _ = WRITE[parser]
    reader = parser().open(CONTEXT)
    head, _, _ = one.partition("{}")[2].partition("{}")
    text = begin + one.split("{}")[0] + "text" + head + "The sea is"

    events = [event for char in text for event in reader.push(char)]

    assert arguments(events) == '{"text": "The sea is'


@both_sides
def test_a_name_that_comes_twice_breaks_the_call_off(parser):
    begin, one, after = WRITE[parser]
    reader = parser().open(CONTEXT)
    text = begin + one.format("count", 1) + one.format("count", 2) + after

    events = joined([*reader.push(text), *reader.finish()])

    assert arguments(events) == '{"count": 1'
    assert isinstance(events[-1], Content)
    assert ">2" in events[-1].text.replace("\n", "")


@pytest.mark.parametrize(
    ("text", "kinds", "value"),
    [
        ("007", {"integer"}, '"007"'),
        ("1.5", {"number"}, "1.5"),
        ("3", {"number"}, "3"),
        ("3", {"string", "null"}, '"3"'),
        ("3", set(), "3"),
        ("None", {"object", "null"}, "null"),
        ("NaN", {"number"}, '"NaN"'),
        ("", {"integer"}, '""'),
        ("{'a': 1}", {"object"}, "\"{'a': 1}\""),
        (" yes\n", set(), '" yes\\n"'),
        ("1 2", set(), '"1 2"'),
    ],
)
def test_what_is_not_of_the_type_is_a_string(text, kinds, value):
    assert value_of(text, kinds) == value
