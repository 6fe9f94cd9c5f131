"""What llguidance compiles, made from a `GrammarSpec`: always a grammar in its dialect of Lark.

Knows what may be asked for, and refuses what would not be held to. Does not compile.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import llguidance
from llguidance.gbnf_to_lark import gbnf_to_lark

from octavo.errors import GrammarError
from octavo_plugins.grammars.bnf import plain_bnf
from octavo_plugins.grammars.classes import ascii_classes
from octavo_plugins.grammars.llguidance_schemas import make_exact
from octavo_plugins.grammars.options import DEFAULT_INDENT
from octavo_plugins.grammars.spacing import default_spacing, spacing_of
from octavo_plugins.grammars.tags import lark_of_tags, regex_of_text

if TYPE_CHECKING:
    from octavo.interfaces.grammar import GrammarSpec

#: Tokens follow the grammar however a text is cut into them; llguidance would else allow only its
#: own tokenizer's way wherever the grammar leaves no choice. The last of several such lines holds.
_OPTIONS: Final = '\n%llguidance {"no_forcing": true}\n'
_HOW_TO_WRITE_LARK: Final = 'write Lark: start: "yes" | "no"'

#: texts, regular expressions (which may go over several lines) and comments
_LITERALS: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\])+/|//[^\n]*|#[^\n]*', re.DOTALL)
_LITERAL_OR_JSON: Final = re.compile(rf"(?P<json>%json\s*)|{_LITERALS.pattern}", re.DOTALL)
_DECODER: Final = json.JSONDecoder()
_JSON_ESCAPE: Final = re.compile(r"\\u00([0-7][0-9a-fA-F])")
_MARKER: Final = re.compile(r"<[^\s<>]+>")
_ATTRIBUTE: Final = re.compile(r"\b(temperature|max_tokens|stop)\s*=")
_RULE_OF_BNF: Final = re.compile(r"^\s*<?[\w-]+>?\s*::=", re.MULTILINE)


def source_of(spec: GrammarSpec, max_indent: int = DEFAULT_INDENT) -> str:
    """Return the grammar as llguidance reads it. Raises GrammarError."""
    match spec.form:
        case "json_schema":
            lark = "start: " + _json(_schema(spec.text), spacing_of(spec, max_indent))
        case "json_object":
            lark = "start: " + _json({"type": "object"}, spacing_of(spec, max_indent))
        case "regex":
            lark = _regex(spec.text)
        case "choice":
            lark = _regex("|".join(map(regex_of_text, _choices(spec.text))))
        case "lark":
            _check_lark(spec.text)
            lark = _lark(spec.text, default_spacing(max_indent))
        case "gbnf":
            lark = _lark_of_gbnf(spec.text)
        case "structural_tag":
            spacing = default_spacing(max_indent)
            lark = lark_of_tags(spec.text, lambda one: _json(_checked_schema(one), spacing))
    return json.dumps({"grammars": [{"lark_grammar": lark + _OPTIONS}]}, ensure_ascii=False)


def _schema(text: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise GrammarError("the JSON schema is not valid JSON", str(error)) from error
    except RecursionError as error:
        raise GrammarError("the JSON schema is nested too deeply") from error
    if not isinstance(schema, dict):
        raise GrammarError(f"a JSON schema must be an object, not {text:.40}")
    return _checked_schema(schema)


def _checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if "x-guidance" in schema:
        raise GrammarError(
            "the JSON schema must not have 'x-guidance'",
            "it could switch off what the schema asks for; whitespace has parameters of its own",
        )
    make_exact(schema)
    return schema


def _json(schema: dict[str, Any], spacing: str) -> str:
    """Return a grammar of JSON. Strings may have any escapes; every keyword counts."""
    options = {
        "whitespace_flexible": spacing != "",
        "json_allow_general_unicode_escapes": True,
        "coerce_one_of": False,
        "lenient": False,
    }
    if spacing:
        options["whitespace_pattern"] = spacing
    return "%json " + json.dumps(schema | {"x-guidance": options}, ensure_ascii=False)


def _lark_of_gbnf(text: str) -> str:
    """Return a grammar of llama.cpp in Lark, by llguidance's own translation."""
    plain = plain_bnf(text, "\\x{:02x}")
    try:
        lark: str = gbnf_to_lark(plain)
    except RecursionError as error:
        raise GrammarError("the grammar is nested too deeply") from error
    except Exception as error:  # it raises plain ones
        raise GrammarError("the grammar is no GBNF", str(error).split("\n")[0][:200]) from error
    return lark


def _regex(pattern: str) -> str:
    num_backslashes = len(pattern) - len(pattern.rstrip("\\"))
    if num_backslashes % 2:
        raise GrammarError("the regular expression ends with a lone backslash")
    grammar = json.loads(llguidance.LLMatcher.grammar_from_regex(ascii_classes(pattern)))
    lark: str = grammar["grammars"][0]["lark_grammar"]
    return lark


def _choices(text: str) -> list[str]:
    try:
        choices = json.loads(text)
    except ValueError as error:
        raise GrammarError("the choices are not valid JSON", str(error)) from error
    if not isinstance(choices, list) or not choices:
        raise GrammarError("there must be at least one choice, in a list")
    if not all(isinstance(choice, str) for choice in choices):
        raise GrammarError("every choice must be a text")
    return choices


def _lark(text: str, spacing: str) -> str:
    """Return a grammar whose regular expressions and JSON are read as in all other forms."""
    parts, at = list[str](), 0
    while match := _LITERAL_OR_JSON.search(text, at):
        parts.append(text[at : match.start()])
        at = match.end()
        if not match["json"]:
            parts.append(_with_ascii_classes(match))
            continue
        try:
            schema, at = _DECODER.raw_decode(text, at)
        except ValueError:  # llguidance tells what is wrong
            schema = None
        except RecursionError as error:
            raise GrammarError("a schema inside the grammar is nested too deeply") from error
        is_schema = isinstance(schema, dict)
        parts.append(
            _json(_checked_schema(schema), spacing) if is_schema else text[match.start() : at]
        )
    return "".join(parts) + text[at:]


def _with_ascii_classes(match: re.Match[str]) -> str:
    literal = match.group()
    is_regex = literal[0] == "/" and literal[1] != "/"
    return ascii_classes(literal) if is_regex else literal


def _check_lark(text: str) -> None:
    """Refuse other languages, and what llguidance reads but the engine would not do."""
    if '"x-guidance"' in _JSON_ESCAPE.sub(lambda match: chr(int(match.group(1), 16)), text):
        raise GrammarError("a schema inside a grammar must not have 'x-guidance'")
    bare = _LITERALS.sub(" ", text)
    if _RULE_OF_BNF.search(bare):
        raise GrammarError(
            "the grammar is written in GBNF (::=), and not in Lark", _HOW_TO_WRITE_LARK
        )
    marker = _MARKER.search(bare)
    if marker:
        raise GrammarError(
            f"the grammar asks for the special token {marker.group():.40}",
            "special tokens are no part of a text; give their text in quotes where it is meant",
        )
    attribute = _ATTRIBUTE.search(bare)
    if attribute:
        raise GrammarError(f"the grammar sets '{attribute.group(1)}', which is not supported")
