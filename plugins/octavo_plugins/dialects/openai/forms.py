"""The form that a body asks for: `response_format`, `structured_outputs`, or the older `guided_*`.

Knows the fields and what each may hold. Does not know how a form is compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError, did_you_mean
from octavo.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo_plugins.dialects.openai.bodies import GenerationBody

#: vLLM's older fields, and what each is called in `structured_outputs`
_GUIDED: Final = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "guided_json_object": "json_object",
    "guided_whitespace_pattern": "whitespace_pattern",
}
_PARAM: Final = "structured_outputs"


def form_fields(body: GenerationBody) -> list[str]:
    """Return the fields of a body that ask for a form; nothing is asked for by plain text."""
    named = [name for name in (_PARAM, *_GUIDED) if getattr(body, name) is not None]
    is_plain = body.response_format is None or body.response_format.get("type") == "text"
    return named if is_plain else ["response_format", *named]


def form_of(body: GenerationBody) -> StructuredOutputsParams | None:
    """Return the form, None when none is asked for. Raises RequestError naming the field."""
    given = form_fields(body)
    if not given:
        return None
    field = given[0]
    is_guided = field in _GUIDED
    if len(given) > 1 and not is_guided:
        raise RequestError(f"{field} and {given[1]} cannot be given together", param=given[1])
    try:
        if is_guided:
            return StructuredOutputsParams.of(
                {_GUIDED[name]: getattr(body, name) for name in given}
            )
        if field == _PARAM:
            return StructuredOutputsParams.of(body.structured_outputs or {})
        return form_of_format(body.response_format or {})
    except RequestError as error:
        headline = error.headline.removeprefix(f"{_PARAM}: ")
        raise RequestError(f"{field}: {headline}", *error.facts, param=field) from error


def form_names(body: GenerationBody) -> dict[str, str]:
    """Return how this body calls what the engine calls `structured_outputs`."""
    given = form_fields(body)
    return {_PARAM: given[0]} if given else {}


def form_of_format(given: Mapping[str, Any]) -> StructuredOutputsParams:
    """Return the form of a `response_format` that is not plain text. Raises RequestError."""
    kind = given.get("type")
    match kind:
        case "json_object":
            _check_keys(given, ("type",))
            return StructuredOutputsParams(json_object=True)
        case "json_schema":
            _check_keys(given, ("type", "json_schema"))
            return StructuredOutputsParams(json=_named_schema(given.get("json_schema")))
        case "structural_tag":
            return StructuredOutputsParams(structural_tag=dict(given))
        case "regex" | "grammar":
            _check_keys(given, ("type", kind))
            if given.get(kind) is None:
                raise RequestError(f"{kind} is missing: what the text must match belongs there")
            return StructuredOutputsParams.of({kind: given[kind]})
    known = ("text", "json_object", "json_schema", "structural_tag", "regex", "grammar")
    raise RequestError(
        f"type must be one of {', '.join(known)}, not {kind!r:.80}",
        did_you_mean(kind, known) if isinstance(kind, str) else "",
    )


def _named_schema(given: Any) -> Any:
    """Return the schema of `json_schema`. It is held to whether or not it is `strict`."""
    if not isinstance(given, dict):
        raise RequestError("json_schema must be an object with a name and a schema")
    _check_keys(given, ("name", "description", "schema", "strict"))
    if given.get("schema") is None:
        raise RequestError("json_schema.schema is missing: the schema itself belongs there")
    if not isinstance(given.get("strict"), bool | None):
        raise RequestError(f"json_schema.strict must be true or false, not {given['strict']!r:.80}")
    if not isinstance(given["schema"], dict):
        raise RequestError("json_schema.schema must be an object")
    return given["schema"]


def _check_keys(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise RequestError(
                f"unknown field {name!r:.80}",
                did_you_mean(name, known),
                f"fields: {', '.join(known)}",
            )
