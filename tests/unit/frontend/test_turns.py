"""A turn of a model: what is asked of it, and what its text becomes."""

import json

import pytest

from octavo.errors import RequestError
from octavo.frontend.parsers import Chosen, ModelParsers
from octavo.frontend.tools import check_tools
from octavo.frontend.turns import ReadCall, ToolChoice, Turn, TurnRequest, WholeTurn
from octavo.interfaces.parser import ToolSpec
from octavo_plugins.parsers.glm import Glm
from octavo_plugins.parsers.gpt_oss import GptOss
from octavo_plugins.parsers.hermes import Hermes
from octavo_plugins.parsers.think import Think
from scripted import BytesTokenizer

F = ToolSpec("f", {"type": "object", "properties": {"a": {"type": "integer"}}})
G = ToolSpec("g", {})
PARSERS = ModelParsers(Chosen(Hermes(), "hermes"), Chosen(Think(), "think"))
CALLS = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call><tool_call>{"name": "g"}'


def turn_of(parsers=PARSERS, prompt="", tools=(F, G), **choice):
    return Turn(parsers, TurnRequest(prompt=prompt, tools=tools, choice=ToolChoice(**choice)))


def read(turn, text, size=1):
    """Return the whole turn that a text is, and its reader."""
    reader = turn.reader(BytesTokenizer())
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    events = [event for piece in pieces for event in reader.push(piece)]
    return WholeTurn.of([*events, *reader.finish()]), reader


def test_what_is_behind_the_reasoning_is_read_for_calls():
    whole, reader = read(turn_of(), f"<think>\nhm <tool_call>\n</think>\n\nSo: {CALLS}")

    assert whole == WholeTurn(
        "hm <tool_call>", "So: ", [ReadCall("f", '{"a": 1}', True), ReadCall("g", "{}", True)]
    )
    assert [reader.finish_reason(one) for one in ("stop", "length", None)] == [
        "tool_calls", "length", None,
    ]  # fmt: skip


def test_without_parsers_all_is_content():
    for parsers, tools in ((ModelParsers(), ()), (PARSERS, ())):
        whole, reader = read(turn_of(parsers, tools=tools), CALLS)

        assert whole == WholeTurn(content=CALLS)
        assert reader.finish_reason("stop") == "stop"


def test_one_parser_for_both_reads_once_and_its_reasoning_is_content_where_nobody_asks_for_it():
    both = GptOss()
    text = "<|channel|>analysis<|message|>Hm. <|end|><|start|>assistant<|channel|>final<|message|>4"
    whole, _ = read(turn_of(ModelParsers(Chosen(both), Chosen(both))), text)
    other, _ = read(turn_of(ModelParsers(tools=Chosen(both))), text)

    assert whole == WholeTurn("Hm.", "4")
    assert other == WholeTurn("", "Hm.4")


def test_only_one_call_is_told_where_no_more_are_wanted():
    whole, reader = read(turn_of(is_parallel=False), CALLS)

    assert whole.calls == [ReadCall("f", '{"a": 1}', True)]
    assert reader.num_calls == 1


def test_markers_are_visible_where_somebody_reads_them():
    assert turn_of().visible_markers == {"<think>", "</think>", "<tool_call>", "</tool_call>"}
    assert turn_of(mode="none").visible_markers == {"<think>", "</think>"}
    assert turn_of(ModelParsers(), tools=()).visible_markers == frozenset()
    assert turn_of(prompt="<think>\n").reasoning_marks.is_open


def test_a_required_call_has_one_form_for_all_families_and_references_still_lead_there():
    tree = ToolSpec(
        "tree",
        {
            "type": "object",
            "properties": {"node": {"$ref": "#/$defs/node"}, "more": {"$ref": "#"}},
            "$defs": {"node": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node/anyOf/0"}]}},
        },
    )
    form = turn_of(tools=(G, tree), mode="required", is_parallel=False).form

    schema = json.loads(form.to_grammar().text)
    assert (schema["minItems"], schema["maxItems"]) == (1, 1)
    first, second = schema["items"]["anyOf"]
    assert first["properties"] == {"name": {"const": "g"}, "parameters": {"type": "object"}}
    assert second["properties"]["parameters"]["properties"] == {
        "node": {"$ref": "#/$defs/tool1.node"},
        "more": {"$ref": "#/$defs/tool1.whole"},
    }
    assert schema["$defs"]["tool1.node"]["anyOf"][1] == {"$ref": "#/$defs/tool1.node/anyOf/0"}
    assert schema["$defs"]["tool1.whole"]["type"] == "object"


def test_strict_tools_arm_a_grammar_at_the_familys_own_mark():
    strict = ToolSpec("f", F.parameters, is_strict=True)

    tags = json.loads(turn_of(tools=(strict, G)).form.to_grammar().text)

    assert tags["triggers"] == ["<tool_call>"]
    assert [one["begin"] for one in tags["tags"]] == [
        '<tool_call>\n{"name": "f", "arguments": ', '<tool_call>\n{"name": "g", "arguments": ',
    ]  # fmt: skip
    assert turn_of(tools=(strict,)).unheld_tools == []


def test_strict_tools_of_families_that_no_grammar_can_hold_are_told():
    strict = ToolSpec("f", F.parameters, is_strict=True)
    mixed = ModelParsers(Chosen(Hermes()), special_ids={"<tool_call>": 7})

    for parsers in (ModelParsers(Chosen(Glm())), mixed):
        turn = turn_of(parsers, tools=(strict, G))
        assert (turn.form, turn.unheld_tools) == (None, ["f"])
    assert turn_of(mixed, tools=(strict,), mode="none").unheld_tools == []


def test_strict_tools_of_families_whose_marks_are_special_tokens_are_armed_by_these():
    strict = ToolSpec("f", F.parameters, is_strict=True)
    ids = {"<tool_call>": 7, "</tool_call>": 8, "<s>": 1}

    turn = turn_of(ModelParsers(Chosen(Hermes()), special_ids=ids), tools=(strict, G))
    tags = json.loads(turn.form.to_grammar().text)

    assert tags["special_tokens"] == {"<tool_call>": 7, "</tool_call>": 8}
    assert turn.unheld_tools == []


@pytest.mark.parametrize(
    ("parsers", "tools", "choice", "words"),
    [
        (PARSERS, (), {"mode": "required"}, "needs tools to choose from"),
        (PARSERS, (F,), {"mode": "named", "name": "ff"}, "did you mean 'f'?"),
        (ModelParsers(), (F,), {}, "nothing reads calls of tools of this model"),
    ],
)
def test_turns_that_nobody_can_read_are_refused(parsers, tools, choice, words):
    with pytest.raises(RequestError) as caught:
        turn_of(parsers, tools=tools, **choice)

    assert words in str(caught.value)


def test_required_calls_need_no_parser_of_the_family():
    turn = turn_of(ModelParsers(), mode="required")

    whole, reader = read(turn, ' [{"name": "g", "parameters": {}}] ', size=3)

    assert whole == WholeTurn(calls=[ReadCall("g", "{}", True)])
    assert reader.finish_reason("stop") == "tool_calls"


@pytest.mark.parametrize("choice", [{"mode": "required"}, {"mode": "named", "name": "f"}])
@pytest.mark.parametrize("text", ["hello", "[1, 2]", "{!", "[]]", " x [", ""])
def test_what_is_not_of_a_required_form_is_content(choice, text):
    whole, reader = read(turn_of(ModelParsers(), **choice), text)

    assert "".join(whole.content.split()) in "".join(text.split())
    assert ("hello" in whole.content) == (text == "hello")
    assert reader.num_calls == 0


def test_tokens_of_reasoning_are_counted_by_text_where_marks_are_no_tokens():
    both = GptOss()
    reader = turn_of(ModelParsers(Chosen(both), Chosen(both)), tools=()).reader(BytesTokenizer())
    reader.push("<|channel|>analysis<|message|>abcde<|end|>")

    assert reader.num_reasoning_tokens == 5


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array"}, "its type is 'array'"),
        ({"properties": []}, "parameters.properties must be an object"),
        ({"properties": {"a": 3}}, "parameters.properties.a is 3, and no schema"),
        ({"required": "a"}, "parameters.required must be a list of names"),
        ({"properties": {"a": {"enum": 3}}}, "parameters.properties.a.enum must be a list"),
        ({"properties": {"a": {"items": {"type": "strin"}}}}, "a.items.type is 'strin'"),
        ({"anyOf": [{"type": [[]]}]}, "parameters.anyOf[0].type is []"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_its_place(schema, words):
    with pytest.raises(RequestError) as caught:
        check_tools([F, ToolSpec("bad", schema)])

    assert words in str(caught.value)
    assert caught.value.param == "tools"


def test_a_schema_that_is_nested_without_end_is_refused():
    schema = {"type": "object"}
    for _ in range(200):
        schema = {"properties": {"a": schema}}

    with pytest.raises(RequestError, match="nested too deeply"):
        check_tools([ToolSpec("deep", schema)])
