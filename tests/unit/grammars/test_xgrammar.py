"""The xgrammar back end: what it holds to beside what the kit tries, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from grammars import accepts, mask_of, schema_spec
from octavo.errors import GrammarError
from octavo.interfaces.grammar import GrammarContext, GrammarSpec
from octavo.structured_outputs import StructuredOutputsParams
from octavo_plugins.grammars.options import XGrammarOptions
from octavo_plugins.grammars.xgrammar_grammar import XGrammar
from scripted import VOCAB_SIZE, BytesTokenizer, WordsTokenizer

CONTEXT = GrammarContext(BytesTokenizer(), VOCAB_SIZE)


@pytest.fixture(scope="module")
def backend():
    backend = XGrammar(None, CONTEXT)
    yield backend
    backend.close()


def accepted(backend, schema, *texts):
    compiled = backend.compile(schema_spec(schema))
    return [text for text in texts if accepts(compiled, text.encode())]


REGEXES = (
    r"[0-9]{4}", r"cat.*", r"(a|b)*abb", r"\d+(\.\d+)?", r"hello( one| two)+", r"^a|b$", r"",
    r"[^a]+", r"é+|漢字", "a/b", r"a\\/b", r"(yes|no)\n", '"x"', r"a{2,3}b?", r"[^\D3]", r"[]a]+",
    r"[\w-]+", r"(?P<n>a)b", r"a*?b", r"\x41\u00e9", r"[\s\S]",
)  # fmt: skip
TEXTS = (
    "1234", "123", "12345", "cat", "category one", "ca", "abb", "aabb", "ab", "3.14", "3.", "-3",
    "hello one two", "hello", "a", "b", "", "éé", "漢字", "漢", "a/b", "a\\/b", "yes\n", "no",
    '"x"', "aab", "aaaab", "5", "Aé", "]a", "a-b", "\n", "٦",
)  # fmt: skip


@pytest.mark.parametrize("pattern", REGEXES)
def test_g1_a_regex_is_matched_as_a_whole_with_classes_of_ascii(backend, pattern):
    compiled = backend.compile(GrammarSpec("regex", pattern))

    for text in TEXTS:
        is_match = re.fullmatch(pattern, text, re.ASCII) is not None
        assert accepts(compiled, text.encode()) == is_match, text


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ['""', '"\\n\\u00e9é"', '"\\""'], ['"\t"', '"\n"', '"a']),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"漢字é"'],
         ['"a"', '"abcd"', '"\t\t"']),
        ({"type": "string", "pattern": "b"}, ['"abc"', '"b"'], ['"ac"', '"b"c"']),
        ({"type": "string", "pattern": "^[^a]$"}, ['"b"', '"é"'], ['"a"', '"""', '"\n"']),
        ({"type": "integer", "exclusiveMinimum": 3, "maximum": 12}, ["4", "12"], ["3", "13"]),
        ({"type": "integer", "multipleOf": 3}, ["0", "9"], ["4"]),
        ({"type": "number", "minimum": 0, "maximum": 1.5}, ["0.25", "1.5"], ["-1", "2", "1e5"]),
        ({"type": ["string", "integer"], "minimum": 3, "maxLength": 2}, ['"a"', "5"],
         ["1", '"abc"']),
        ({"allOf": [{"type": "null"}]}, ["null"], ["1"]),
        ({"type": "null", "x-note": {}, "$id": "https://example.org/x"}, ["null"], ["1"]),
        ({"type": "array", "prefixItems": [{"type": "null"}], "items": False}, ["[null]", "[]"],
         ["[1]", "[null,1]"]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, ["{}", '{"a":1,"b":[]}'],
         ['{"a":"x"}', '{"a":1,"a":"x"}']),
        ({"type": "object", "properties": {'q"\\é': True}, "required": ['q"\\é'],
          "additionalProperties": False}, ['{"q\\"\\\\é":[1]}'], ["{}", '{"b":1}']),
        ({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
         ["{}", '{"next":{"next":{}}}'], ['{"next":1}', '{"next":{}']),
        ({"properties": {}}, None, None),
    ],
)  # fmt: skip
def test_g1_json(backend, schema, good, bad):
    if good is None:
        with pytest.raises(GrammarError, match="'properties' without a type"):
            backend.compile(schema_spec(schema))
        return
    assert accepted(backend, schema, *good) == good
    assert accepted(backend, schema, *bad) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 6},
         "minItems": 2, "maxItems": 2},
        {"type": "string", "format": "email", "maxLength": 10},
        {"type": "string", "pattern": "^b+$", "minLength": 5},
    ],
)  # fmt: skip
def test_B67_lengths_beside_patterns_and_formats_are_refused(backend, schema):
    with pytest.raises(GrammarError, match="which xgrammar does not hold to"):
        backend.compile(schema_spec(schema))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (schema_spec({"contains": {}}), "the keyword 'contains'"),
        (schema_spec({"type": "integer", "minimum": True}), "'minimum' of True"),
        (schema_spec({"type": "integer", "maximum": 10**18}), "'maximum' of 1000000000000000000"),
        (schema_spec({"type": "integer", "multipleOf": 5000}), "outside of 1 to 1024"),
        (schema_spec({"type": "array", "items": [{}]}), "in the place of a schema"),
        (schema_spec({"type": "array", "minItems": -1}), "'minItems' of -1"),
        (schema_spec({"type": "string", "minLength": 3, "maxLength": 2}), "no text has this form"),
        (schema_spec({"type": "object", "required": ["a"]}), "property 'a' without a schema"),
        (schema_spec({"$ref": "#/properties/a"}), "only those into $defs are"),
        (schema_spec({"$ref": "#"}), "no text has this form"),
        (schema_spec({"items": {"$id": "https://example.org/x"}}), "an '$id' inside"),
        (schema_spec([1]), "must be an object"),
        (GrammarSpec("json_schema", "{"), "not valid JSON"),
        (GrammarSpec("regex", "(?i)stop"), "flags such as (?i)"),
        (GrammarSpec("regex", r"(a+)+$(?=b)"), "re calls at"),
        (GrammarSpec("regex", r"\bx"), "re calls at"),
        (GrammarSpec("regex", "[[:alpha:]]"), "brackets inside of brackets"),
        (GrammarSpec("regex", r"\p{L}"), "bad escape"),
        (GrammarSpec("regex", "a" * 2_000_000), "too long"),
        (GrammarSpec("choice", "[]"), "at least one choice"),
        (GrammarSpec("gbnf", 'root ::= Token(5) "a"'), "no rule 'Token'"),
        (GrammarSpec("gbnf", 'root ::= "a" (="b")'), "'=' is no GBNF"),
        (GrammarSpec("gbnf", "root ::= a\na ::= a"), "no text has this form"),
        (GrammarSpec("gbnf", r"root ::= [\d]"), "no escape of GBNF"),
        (GrammarSpec("lark", 'start: "a"'), "write GBNF"),
    ],
)
def test_g2_what_cannot_be_held_to_is_refused_with_the_reason(backend, spec, reason):
    with pytest.raises(GrammarError) as caught:
        backend.compile(spec)

    assert reason in str(caught.value)
    assert len(str(caught.value)) < 600


def test_the_text_of_a_refusal(backend):
    with pytest.raises(GrammarError) as caught:
        backend.compile(GrammarSpec("gbnf", "root ::= " + "(" * 3000 + '"a"' + ")" * 3000))

    assert str(caught.value) == (
        "the grammar cannot be held to\n"
        "  EBNF parser error at line 2, column 1007: Nest layer exceeded the maximum limit"
    )


def test_what_is_forced_is_offered(backend):
    spec = StructuredOutputsParams(choice=["hello one", "hello two"]).to_grammar()
    state = backend.compile(spec).start()

    assert BytesTokenizer().decode(state.forced()) == "hello"
    assert np.flatnonzero(mask_of(state)).size > 1, "it may be written in other tokens"


def test_g4_compiling_that_does_not_end_is_ended():
    backend = XGrammar(XGrammarOptions(max_compile_s=1.0), CONTEXT)
    many = {"type": "object", "properties": {"a": {"enum": [f"value {i}" for i in range(30_000)]}}}
    backend.compile(GrammarSpec("regex", "a"))
    started_s = time.monotonic()
    with pytest.raises(GrammarError, match="longer than 1 s"):
        backend.compile(schema_spec(many))

    assert time.monotonic() - started_s < 10
    assert accepts(backend.compile(GrammarSpec("regex", "a")), b"a")
    backend.close()
    backend.close()


def test_g4_a_text_that_takes_too_long_to_follow_is_given_up():
    backend = XGrammar(XGrammarOptions(max_token_ms=0.001), CONTEXT)
    state = backend.compile(GrammarSpec("regex", "((a*)*)*b")).start()

    def go_on():
        for _ in range(3000):
            mask_of(state)
            state.advance(ord("a"))

    with pytest.raises(GrammarError, match="cannot be followed any further"):
        go_on()
    backend.close()


def test_a_tokenizer_that_is_not_exact_is_refused():
    with pytest.raises(GrammarError, match="byte by byte"):
        XGrammar(None, GrammarContext(WordsTokenizer(), 6))


def test_declaring_it_imports_nothing_of_it():
    program = (
        "import sys; from octavo_plugins.grammars import plugin; list(plugin.octavo_grammars());"
        "import octavo_plugins.grammars.options;"
        "print(sorted({'xgrammar', 'llguidance', 'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert json.loads(done.stdout.replace("'", '"')) == []
