"""What may stand between the parts of JSON: the same for both back ends, and never without end."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from grammars import accepts, mask_of, schema_spec
from octavo.errors import GrammarError
from octavo.frontend.required_calls import named_form, required_form
from octavo.interfaces.grammar import GrammarContext, GrammarSpec
from octavo.interfaces.parser import ToolSpec
from octavo_plugins.grammars.llguidance_grammar import LLGuidance
from octavo_plugins.grammars.options import DEFAULT_INDENT, LLGuidanceOptions, XGrammarOptions
from octavo_plugins.grammars.xgrammar_grammar import XGrammar
from scripted import VOCAB_SIZE, BytesTokenizer

OPTIONS = {LLGuidance: LLGuidanceOptions, XGrammar: XGrammarOptions}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "boolean"}}},
    "required": ["a"],
    "additionalProperties": False,
}
PARTS = ('{"a"', ":", "[true", ",", "false", "]", "}")
#: what is tried at every place at once
SPACES = (
    "", " ", "  ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "  \n", "\n ", "\n" + " " * 20,
    "\n" + " " * DEFAULT_INDENT, "\n" + " " * (DEFAULT_INDENT + 1), "\n\t", "\n\t ", "\n \t",
    "\n" + "\t" * DEFAULT_INDENT, " \r\n\t", "\n" + " " * 150, "\x0b", "\u00a0",
)  # fmt: skip


def opened(back_end, **options):
    context = GrammarContext(BytesTokenizer(), VOCAB_SIZE)
    return back_end(OPTIONS[back_end](**options), context)


@pytest.fixture(scope="module", params=[LLGuidance, XGrammar], ids=["llguidance", "xgrammar"])
def backend(request):
    backend = opened(request.param)
    yield backend
    backend.close()


def taken(compiled, spaces=SPACES):
    """Return the spaces that may stand between all parts."""
    return [space for space in spaces if accepts(compiled, space.join(PARTS).encode())]


def spec_of(whitespace):
    return GrammarSpec("json_schema", json.dumps(SCHEMA), whitespace)


@pytest.mark.parametrize(
    ("whitespace", "number"), [(None, 11), ("", 1), (" ?", 2), (r"\s{0,2}", 11), (r"[\n\t ]*", 17)]
)
def test_both_back_ends_let_the_same_blanks_stand(backend, whitespace, number):
    by_hand = {
        None: {"", " ", "\n", "\r\n", " \n", "\n ", SPACES[11], SPACES[12], "\n\t", SPACES[17],
               " \r\n\t"},
        "": {""},
        " ?": {"", " "},
        r"\s{0,2}": {s for s in SPACES if len(s) < 3 and not set(s) - set(" \t\r\n")},
        r"[\n\t ]*": {s for s in SPACES if not set(s) - set(" \t\n")},
    }[whitespace]  # fmt: skip

    assert len(by_hand) == number
    assert set(taken(backend.compile(spec_of(whitespace)))) == by_hand


@pytest.mark.parametrize("indent", [None, 1, 2, 4, "\t"])
def test_nested_objects_in_the_usual_layouts(backend, indent):
    data = {"name": "x", "list": [1, {"y": []}, []], "empty": {}}
    for _ in range(DEFAULT_INDENT // 4 - 3):
        data = {"inner": data, "more": [None, True]}
    compiled = backend.compile(GrammarSpec("json_object"))

    assert accepts(compiled, json.dumps(data, indent=indent).encode())
    assert accepts(compiled, json.dumps(data, separators=(",", ":")).encode())


def test_a_text_that_takes_blanks_wherever_it_may_comes_to_an_end(backend):
    state = backend.compile(spec_of(None)).start()
    most, num_tokens = "\r\n" + " " * (DEFAULT_INDENT + 1), 0
    for part in PARTS:
        state_taken = itertools.takewhile(state.advance, itertools.cycle(b" "))
        num_tokens += sum(1 for _ in state_taken)
        for token_id in (*b"\r\n", *b" " * 1000):
            num_tokens += state.advance(token_id)
        assert all(map(state.advance, part.encode())), part

    assert state.is_complete
    assert num_tokens == len(most) * (len(PARTS) - 1)


def test_the_blanks_inside_of_names_and_patterns_are_none_between_parts(backend):
    name = '[ \n\r\t]* "x"]'
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "pattern": "^[ ]*[a-z]+$"}},
        "required": [name],
        "additionalProperties": False,
    }
    compiled = backend.compile(schema_spec(schema))

    def text(value, **layout):
        return json.dumps({name: value}, **layout).encode()

    assert accepts(compiled, text(" " * 90 + "x"))
    assert accepts(compiled, text("x", indent=4))
    assert not accepts(compiled, text("x\n"))
    assert not accepts(compiled, json.dumps({name.replace("\n", ""): "x"}).encode())


def test_arguments_of_tools_have_the_same_blanks(backend):
    tool = ToolSpec("get_time", SCHEMA)
    named = backend.compile(named_form(tool).to_grammar())
    required = backend.compile(required_form([tool], is_parallel=True).to_grammar())
    call = [{"name": "get_time", "parameters": {"a": [True]}}]

    assert taken(named) == taken(backend.compile(spec_of(None)))
    assert accepts(required, json.dumps(call, indent=4).encode())
    assert not accepts(required, json.dumps(call).replace("[{", "[  {").encode())


@pytest.mark.parametrize("pattern", ["x", "[", r"\S", "(?i) ", r" \b"])
def test_what_is_no_pattern_of_blanks_is_refused(backend, pattern):
    with pytest.raises(GrammarError, match=r"^whitespace_pattern: "):
        backend.compile(spec_of(pattern))


@pytest.mark.parametrize("back_end", [LLGuidance, XGrammar])
def test_how_far_lines_are_indented_is_an_option(back_end):
    backend = opened(back_end, max_indent=2)
    tags = {
        "tags": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}], "triggers": ["<a>"],
        "at_least_one": True, "stop_after_first": True,
    }  # fmt: skip
    tagged = backend.compile(GrammarSpec("structural_tag", json.dumps(tags)))
    inside = [s for s in SPACES if accepts(tagged, f"<a>{s.join(PARTS)}</a>".encode())]

    assert taken(backend.compile(spec_of(None))) == inside
    assert inside == ["", " ", "\n", "\r\n", " \n", "\n ", "\n\t", " \r\n\t"]
    state = backend.compile(spec_of(None)).start()
    assert all(map(state.advance, b"{\n  "))
    assert np.flatnonzero(mask_of(state)).tolist() == [ord('"')]
    backend.close()
