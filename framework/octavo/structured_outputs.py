"""`StructuredOutputsParams`: the form that a text is to have, in vLLM's names.

Knows the names and what each may hold. Does not know how a form is compiled, or whether it can
be: that is found out where the model runs.
"""

from __future__ import annotations

import json as json_text
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError, did_you_mean
from octavo.interfaces.grammar import GrammarSpec
from octavo.structural_tags import plain_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARAM = "structured_outputs"
_TOO_DEEP = "the JSON schema is nested too deeply"
#: keywords of JSON schemas that hold values, and those that hold schemas by name
_VALUES = frozenset({"const", "default", "enum", "examples"})
_MAPS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
#: what only grammars in GBNF have
_RULE_OF_GBNF = re.compile(r"^[ \t]*<?[\w-]+>?\s*::=", re.MULTILINE)
_FORMS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


@dataclass(frozen=True, slots=True)
class StructuredOutputsParams:
    """What the whole text must be: exactly one of the forms is given.

    `json` is a JSON schema (a text or an object), `regex` a regular expression, `choice` a list
    of texts, `grammar` is written in Lark or in GBNF (`::=`), and `json_object` asks for any
    object. `structural_tag` leaves the text free but for tags, in which a JSON schema holds: an
    object or its JSON text (`octavo.structural_tags`).

    For JSON, `whitespace_pattern` is a regular expression of what may stand between the parts,
    `disable_any_whitespace` lets nothing stand there, and `disable_additional_properties` closes
    each object of the schema that lists its properties and does not say whether it may have more.

    Raises RequestError, a ValueError, for values that can be none of these.
    """

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | dict[str, Any] | None = None

    def __post_init__(self) -> None:
        given = self._given()
        if len(given) != 1:
            found = f"not {' and '.join(given)}" if given else "and none was given"
            raise _refused(f"exactly one of {', '.join(_FORMS)} must be given, {found}")
        self._check(given[0], getattr(self, given[0]))
        for name in ("disable_any_whitespace", "disable_additional_properties"):
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "true or false")
        pattern: Any = self.whitespace_pattern
        if pattern is not None and (not isinstance(pattern, str) or not pattern):
            raise _wrong("whitespace_pattern", pattern, "a regular expression, and not empty")
        if self._whitespace is not None and given[0] not in {"json", "json_object"}:
            raise _refused(f"whitespace can be chosen for JSON, and not for {given[0]}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> StructuredOutputsParams:
        """Return what the fields of a JSON object ask for; null means not given."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise _refused(f"unknown field {name!r:.80}", did_you_mean(name, known))
        return cls(**{name: value for name, value in values.items() if value is not None})

    def to_grammar(self) -> GrammarSpec:
        """Return the grammar as the engine is told it: equal ones are compiled once."""
        if self.json is not None:
            return GrammarSpec("json_schema", self._schema_text(self.json), self._whitespace)
        if self.regex is not None:
            return GrammarSpec("regex", self.regex)
        if self.choice is not None:
            return GrammarSpec("choice", _text(self.choice))
        if self.grammar is not None:
            is_gbnf = _RULE_OF_GBNF.search(self.grammar) is not None
            return GrammarSpec("gbnf" if is_gbnf else "lark", self.grammar)
        if self.structural_tag is not None:
            return GrammarSpec("structural_tag", plain_tags(self.structural_tag))
        return GrammarSpec("json_object", "", self._whitespace)

    def _schema_text(self, given: str | dict[str, Any]) -> str:
        schema = _schema(given)
        try:
            return _text(_closed(schema) if self.disable_additional_properties else schema)
        except RecursionError as error:
            raise _refused(_TOO_DEEP) from error

    @property
    def _whitespace(self) -> str | None:
        return "" if self.disable_any_whitespace else self.whitespace_pattern

    def _given(self) -> list[str]:
        """Return the forms that are asked for; `json_object` false asks for nothing."""
        values = {name: getattr(self, name) for name in _FORMS}
        return [name for name, value in values.items() if value is not None and value is not False]

    @staticmethod
    def _check(name: str, value: Any) -> None:
        match name:
            case "json":
                if not isinstance(value, str | dict):
                    raise _wrong(name, value, "a JSON schema, as a text or an object")
                _schema(value)
            case "regex" | "grammar":
                if not isinstance(value, str) or not value:
                    raise _wrong(name, value, "a text, and not empty")
            case "choice":
                is_texts = isinstance(value, list | tuple) and all(
                    isinstance(one, str) for one in value
                )
                if not is_texts or not value:
                    raise _wrong(name, value, "a list of texts, and not empty")
            case "structural_tag":
                if not isinstance(value, str | dict):
                    raise _wrong(name, value, "structural tags, as a text or an object")
                plain_tags(value)
            case _:
                if value is not True:
                    raise _wrong(name, value, "true or false")


def _schema(given: str | dict[str, Any]) -> dict[str, Any]:
    """Return a schema as an object that JSON can hold. Raises RequestError."""
    try:
        # a text says how an object is written: what JSON does not have is found out here
        text = given if isinstance(given, str) else _text(given)
        schema = json_text.loads(text)
    except (TypeError, ValueError) as error:
        raise _refused("the JSON schema is not valid JSON", str(error)) from error
    except RecursionError as error:
        raise _refused(_TOO_DEEP) from error
    if not isinstance(schema, dict):
        raise _refused(f"a JSON schema must be an object, not {text:.40}")
    return schema


def _closed(schema: Any) -> Any:
    """Return a schema whose objects have no properties but those it lists."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _VALUES:
            closed[keyword] = value
        elif keyword in _MAPS and isinstance(value, dict):
            closed[keyword] = {name: _closed(one) for name, one in value.items()}
        else:
            closed[keyword] = _closed(value)
    if "properties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _text(value: Any) -> str:
    return json_text.dumps(value, ensure_ascii=False, allow_nan=False)


def _wrong(name: str, value: object, valid: str) -> RequestError:
    return _refused(f"{name} must be {valid}, not {value!r:.80}")


def _refused(headline: str, *facts: str) -> RequestError:
    return RequestError(f"{_PARAM}: {headline}", *facts, param=_PARAM)
