"""Structural tags: free text in which a tag, once begun, has a form until its end.

Knows the two ways in which vLLM's callers write them, and makes one of them. Does not know how
they are compiled.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARAM: Final = "structured_outputs"
_FORMATS: Final = ("triggered_tags", "tag")


def plain_tags(given: str | Mapping[str, Any]) -> str:
    """Return structural tags as back ends read them: the JSON text of one object.

    `triggers` are the beginnings that arm a tag; none begins with another. `tags` have `begin`,
    `schema` (a JSON schema) and `end`. With `at_least_one` the text begins with a tag; with
    `stop_after_first` it ends with the first one.

    `special_tokens`, where there are any, are the ids of special tokens by their texts: where these
    stand in triggers, begins and ends, those tokens are meant, and each trigger is one of them.

    `given` is an object, or its JSON text: `structures` and `triggers`, or a `format` of the type
    `triggered_tags` or `tag`, whose contents are of the type `json_schema`. Raises RequestError.
    """
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise _refused("it is not valid JSON", str(error)) from error
    if not isinstance(given, dict):
        raise _refused(f"it must be an object, not {given!r:.40}")
    if given.get("type", "structural_tag") != "structural_tag":
        raise _refused(f"its type must be structural_tag, not {given['type']!r:.40}")
    if "format" in given:
        _check_keys(given, ("type", "format"))
        found = _format(given["format"])
    else:
        _check_keys(given, ("type", "structures", "triggers", "special_tokens"))
        found = {
            "triggers": given.get("triggers"),
            "tags": [_structure(one) for one in _list(given, "structures")],
        }
        if ids := given.get("special_tokens"):
            found["special_tokens"] = _special_tokens(ids)
    return _checked(found)


def _format(given: Any) -> dict[str, Any]:
    kind = given.get("type") if isinstance(given, dict) else given
    if kind == "triggered_tags":
        switches = ("at_least_one", "stop_after_first")
        _check_keys(given, ("type", "triggers", "tags", *switches))
        for name in switches:
            if not isinstance(given.get(name, False), bool):
                raise _refused(f"{name} must be true or false")
        return {
            "triggers": given.get("triggers"),
            "tags": [_tag(one) for one in _list(given, "tags")],
            **{name: given.get(name, False) for name in switches},
        }
    if kind == "tag":
        tag = _tag(given)
        return {
            "triggers": [tag["begin"]], "tags": [tag],
            "at_least_one": True, "stop_after_first": True,
        }  # fmt: skip
    raise _refused(
        f"a format of type {kind!r:.40} is not supported", f"types: {', '.join(_FORMATS)}"
    )


def _structure(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _refused("each of structures must be an object with begin, schema and end")
    _check_keys(given, ("begin", "schema", "end"))
    return {name: given.get(name) for name in ("begin", "schema", "end")}


def _special_tokens(given: Any) -> dict[str, int]:
    is_map = isinstance(given, dict) and all(
        text and isinstance(one, int) and not isinstance(one, bool) for text, one in given.items()
    )
    if not is_map:
        raise _refused("special_tokens must be an object of token ids by their texts")
    return dict(given)


def _tag(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _refused("each of tags must be an object with begin, content and end")
    _check_keys(given, ("type", "begin", "content", "end"))
    content = given.get("content")
    if not isinstance(content, dict) or content.get("type") != "json_schema":
        raise _refused("the content of a tag must be an object of type json_schema")
    _check_keys(content, ("type", "json_schema"))
    return {
        "begin": given.get("begin"),
        "schema": content.get("json_schema"),
        "end": given.get("end"),
    }


def _checked(found: dict[str, Any]) -> str:
    triggers = found["triggers"]
    is_texts = isinstance(triggers, list) and all(isinstance(one, str) and one for one in triggers)
    if not is_texts or not triggers:
        raise _refused("triggers must be a list of texts, and not empty")
    shortest = [
        one
        for one in dict.fromkeys(triggers)
        if not any(one != other and one.startswith(other) for other in triggers)
    ]
    for tag in found["tags"]:
        if not all(isinstance(tag[name], str) for name in ("begin", "end")):
            raise _refused("begin and end of a tag must be texts")
        if not isinstance(tag["schema"], dict):
            raise _refused(f"the schema of the tag {tag['begin']!r:.40} must be an object")
        if not tag["begin"].startswith(tuple(shortest)):
            raise _refused(f"the tag {tag['begin']!r:.40} begins with none of the triggers")
    for trigger in shortest:
        if not any(tag["begin"].startswith(trigger) for tag in found["tags"]):
            raise _refused(f"no tag begins with the trigger {trigger!r:.40}")
    plain = {"at_least_one": False, "stop_after_first": False, **found, "triggers": shortest}
    try:
        return json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise _refused("a schema is not valid JSON", str(error)) from error


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    value = given.get(name)
    if not isinstance(value, list) or not value:
        raise _refused(f"{name} must be a list, and not empty")
    return value


def _check_keys(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise _refused(f"unknown field {name!r:.80}", f"fields: {', '.join(known)}")


def _refused(headline: str, *facts: str) -> RequestError:
    return RequestError(f"{_PARAM}: structural_tag: {headline}", *facts, param=_PARAM)
