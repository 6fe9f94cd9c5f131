"""Request bodies: their fields, and what becomes of fields that are not obeyed.

Every field of a body is obeyed, refused with 400, or named in the header
`X-Octavo-Ignored-Fields` and the log (refused too where the server has `strict-fields`). Fields
that components declare are obeyed too: they are handed on together with `vllm_xargs`.

Knows names and types. Does not know which fields an API has, or what values mean.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from octavo.errors import RequestError, nearest
from octavo_plugins.dialects.shared.json_escapes import without_lone_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_logger = logging.getLogger("octavo.serving")

IGNORED_HEADER = "X-Octavo-Ignored-Fields"
_MAX_HEADER_CHARS = 512
MAX_NAMED_FIELDS = 16
_PATH = re.compile(r"`\$\.(\w+)")
_MISSING = re.compile(r"required field `(\w+)`")


@dataclass(frozen=True, slots=True)
class FieldRules:
    """What becomes of fields that a body does not have.

    `unsupported` are known and refused, unless they hold one of the values that ask for nothing.
    `advice` says of some of them what to do instead. `without_effect` are sent by clients by
    habit and change nothing here: reported, never refused. `parts` are fields that are objects,
    and what they may hold.
    """

    unsupported: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    without_effect: frozenset[str] = frozenset()
    advice: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, frozenset[str]] = field(default_factory=dict)


class CommonBody(msgspec.Struct, kw_only=True):
    """The fields that all generating routes share; null means not given."""

    rules: ClassVar[FieldRules] = FieldRules()

    model: str | None = None
    stream: bool | None = None
    priority: int | None = None
    cache_salt: str | None = None
    vllm_xargs: dict[str, Any] | None = None


T = TypeVar("T", bound=CommonBody)
S = TypeVar("S", bound=msgspec.Struct)


class Decoded(msgspec.Struct, Generic[T]):
    """A body, its length, and the names of its fields that were ignored."""

    body: T
    num_bytes: int
    ignored: list[str]

    @property
    def headers(self) -> dict[str, str]:
        """Return the header that names what was ignored; names are cut to plain ASCII."""
        if not self.ignored:
            return {}
        text = ", ".join(self.ignored).encode("ascii", "replace").decode()
        printable = "".join(char if char.isprintable() else "?" for char in text)
        return {IGNORED_HEADER: printable[:_MAX_HEADER_CHARS]}


def decode_body(
    raw: bytes,
    shape: type[T],
    *,
    is_strict: bool,
    declared: frozenset[str] = frozenset(),
    unread: Mapping[str, str] = MappingProxyType({}),
) -> Decoded[T]:
    """Return a request's body. Raises RequestError naming the field at fault.

    `declared` are the parameters of components: fields of these names join `vllm_xargs`. `unread`
    are fields that nothing in use reads, and why: whatever but 0 they hold is ignored.
    """
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        names = declared.difference(shape.__struct_fields__) & fields.keys()
        theirs = {name: fields.pop(name) for name in names}
        known = {*shape.__struct_fields__, *declared}
        ignored = _check_names(fields, known, unread, shape.rules, is_strict=is_strict)
        body = msgspec.json.decode(raw, type=shape)
        _add_declared(body, theirs)
        return Decoded(body, len(raw), ignored)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    except msgspec.DecodeError as error:
        repaired = without_lone_surrogates(raw)
        if repaired != raw:
            options: dict[str, Any] = {"declared": declared, "unread": unread}
            return decode_body(repaired, shape, is_strict=is_strict, **options)
        raise RequestError(
            f"the request's body is not valid JSON: {error}", "NaN and Infinity are not JSON"
        ) from error
    except RecursionError as error:
        raise RequestError("the request's body is nested too deeply") from error


def decode_plain(raw: bytes, shape: type[S]) -> S:
    """Return a body whose fields are all known. Raises RequestError naming the field at fault."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    except msgspec.DecodeError as error:
        raise RequestError(f"the request's body is not valid JSON: {error}") from error


def _invalid(text: str) -> RequestError:
    """Return the error of a value of the wrong type, or of a field that is missing."""
    found, missing = _PATH.search(text), _MISSING.search(text)
    if found:
        return RequestError(f"{found.group(1)}: {text}", param=found.group(1))
    if missing:
        return RequestError(text, param=missing.group(1))
    return RequestError(f"the request's body must be a JSON object: {text}")


def _add_declared(body: CommonBody, fields: Mapping[str, msgspec.Raw]) -> None:
    """Put the parameters of components with those that came in `vllm_xargs`."""
    values = {name: _value(name, raw) for name, raw in fields.items()}
    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        return
    others = body.vllm_xargs or {}
    twice = sorted(given.keys() & others.keys())
    if twice:
        name = twice[0]
        raise RequestError(f"{name} is given twice: by itself and in vllm_xargs", param=name)
    body.vllm_xargs = others | given


def _value(name: str, raw: msgspec.Raw) -> Any:
    """Return what a field of any type holds. Raises RequestError for a number out of range."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError as error:
        text = str(error).replace("`$", f"`$.{name}", 1)
        raise RequestError(f"{name}: {text}", param=name) from error


def _check_names(
    fields: Mapping[str, msgspec.Raw],
    known: set[str],
    unread: Mapping[str, str],
    rules: FieldRules,
    *,
    is_strict: bool,
) -> list[str]:
    """Return the names that are ignored. Raises for those that are refused."""
    given = {name: raw for name, raw in fields.items() if bytes(raw) != b"null"}
    idle = [name for name in unread if name in given and _value(name, given[name]) != 0]
    if idle and is_strict:
        raise RequestError(
            f"{idle[0]} changes nothing here: {unread[idle[0]]}",
            "this server refuses fields without effect (strict-fields)",
            param=idle[0],
        )
    for name, raw in given.items():
        if name in rules.unsupported and _value(name, raw) not in rules.unsupported[name]:
            advice = rules.advice.get(name, "")
            raise RequestError(f"{name} is not supported by this server", advice, param=name)
    known = known.union(*(_paths(part, names) for part, names in rules.parts.items()))
    known_of = known | rules.without_effect | rules.unsupported.keys()
    unknown = [name for name in (*given, *_given_paths(given, rules)) if name not in known_of]
    if unknown and is_strict:
        raise RequestError(
            f"unknown field {unknown[0]!r:.80}",
            _suggestion(unknown[0], known),
            "this server refuses fields that it does not know (strict-fields)",
            param=unknown[0].partition(".")[0][:80],
        )
    ignored = [*unknown, *idle, *(name for name in given if name in rules.without_effect)]
    if ignored:
        named = [f"{name!r:.80}" for name in ignored[:MAX_NAMED_FIELDS]]
        hints = [_suggestion(name, known) for name in unknown[:MAX_NAMED_FIELDS]]
        hints += [f"{name}: {unread[name]}" for name in idle]
        _logger.warning("ignored fields: %s", "; ".join(filter(None, (", ".join(named), *hints))))
    return ignored


def _given_paths(given: Mapping[str, msgspec.Raw], rules: FieldRules) -> Iterator[str]:
    """Yield `field.name` of all that objects with known parts hold."""
    for part in rules.parts.keys() & given.keys():
        held = _value(part, given[part])
        if isinstance(held, dict):
            yield from _paths(part, (name for name, value in held.items() if value is not None))


def _paths(part: str, names: Iterable[str]) -> Iterator[str]:
    return (f"{part}.{name}" for name in names)


def _suggestion(name: str, known: set[str]) -> str:
    match = nearest(name, known)
    return f"did you mean {match!r} for {name!r:.80}?" if match else ""
