r"""`\d`, `\w` and `\s` are ASCII in every form that has regular expressions."""

from __future__ import annotations

import json
import re

import pytest

from grammars import accepts, byte_backend, schema_spec
from octavo.errors import GrammarError
from octavo.interfaces.grammar import GrammarSpec
from octavo_plugins.grammars.classes import ascii_classes

#: letters that fold to ASCII ones, digits, blanks and letters of other scripts, and syntax
CHARS = "a1_ .-\t\n\r\x0b\x0c^[]\\dsABxX" + "\u0661\u06f3\u0966\u00e9\u0416\u00a0\u2003\u017f\u212a"


@pytest.fixture(scope="module")
def backend():
    backend = byte_backend()
    yield backend
    backend.close()


def chars_of(backend, spec):
    """Return which of CHARS a grammar accepts as its whole text."""
    compiled = backend.compile(spec)
    return {char for char in CHARS if accepts(compiled, list(char.encode()))}


def lark(regex):
    return GrammarSpec("lark", f"start: A  // \\d\nA: /{regex}/\n")


@pytest.mark.parametrize("form", [lambda pattern: GrammarSpec("regex", pattern), lark])
@pytest.mark.parametrize(
    "pattern",
    [
        r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\d|x", r"(\d)", r"[\d.]", r"[^\d]", r"[^\D]",
        r"[\W\d]", r"[\s\S]", r"[\w-]", r"[-\w]", r"[^-\w]", r"[a-z-\d]", r"[]\d]", r"[^]\w]",
        r"[\[\w\]]", r"[\^\d]", r"\[|\d", r"\]|\d", r"\\|d", r"\\|\d", r"[\\\d]", r"(?i)\w",
        r"(?i)[\d]|x", r"-\d?", r"[\da-b]", r"\S[\d]?",
    ],
)  # fmt: skip
def test_classes_are_those_of_ascii(backend, form, pattern):
    expected = {char for char in CHARS if re.fullmatch(pattern, char, re.ASCII)}

    assert chars_of(backend, form(pattern)) == expected


@pytest.mark.parametrize(
    ("pattern", "spelled_out"),
    [
        (r"[A-\d]", r"[A\-[0-9]]"),  # as in JavaScript, and no range from A to a bracket
        (r"[\d-x]", r"[[0-9]-x]"),
        (r"[\w--\d]", r"[[0-9A-Za-z_]--[0-9]]"),
        (r"\p{Nd}\x64\\d", r"\p{Nd}\x64\\d"),
        ("", ""),
        ("]-\\", "]-\\"),
    ],
)
def test_what_stands_between_classes_is_left_alone(pattern, spelled_out):
    assert ascii_classes(pattern) == spelled_out


def test_digits_of_unicode_have_a_name_of_their_own(backend):
    assert chars_of(backend, GrammarSpec("regex", r"\p{Nd}")) == set("1\u0661\u06f3\u0966")


def test_a_regex_of_lark_may_go_over_several_lines(backend):
    assert chars_of(backend, lark("[\n\\d]")) == {"\n", "1"}


@pytest.mark.parametrize(("pattern", "good"), [(r"^\d$", "1"), (r"^\w$", "a1_dsABxX")])
def test_patterns_of_schemas_are_read_as_ecma_262_has_them(backend, pattern, good):
    compiled = backend.compile(schema_spec({"type": "string", "pattern": pattern}))
    names = backend.compile(
        schema_spec({"patternProperties": {pattern: {}}, "additionalProperties": False})
    )

    def is_taken(char):
        text = json.dumps(char, ensure_ascii=False)
        as_value = accepts(compiled, list(text.encode()))
        assert accepts(names, list(f"{{{text}: 1}}".encode())) == as_value
        return as_value

    assert {char for char in CHARS if is_taken(char)} == set(good)


def test_blanks_of_json_are_those_that_json_allows(backend):
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
    compiled = backend.compile(GrammarSpec("json_schema", schema, r"\s?"))
    blanks = [c for c in CHARS if accepts(compiled, list(f'{{"a":{c}1}}'.encode()))]

    assert set(blanks) - {"1", "-"} == set(" \t\n\r"), "1 and - are a part of the number"


def test_an_escape_does_not_hide_x_guidance_in_lark(backend):
    text = r'start: %json {"x-guid\u0061nce": {"lenient": true}}'
    with pytest.raises(GrammarError, match="must not have 'x-guidance'"):
        backend.compile(GrammarSpec("lark", text))
