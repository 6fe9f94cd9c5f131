"""Every error Octavo raises on purpose, and the one style their messages have.

    OctavoError                     exit code 1
    +-- ConfigError                 a setting is wrong: file, flag or keyword (exit code 2)
    |   +-- ConfigFileError         the file is missing, unreadable or not valid TOML, YAML, JSON
    |   +-- UnknownOptionError      a key, flag or option that nothing declares
    +-- PluginError                 composition failed before any model was touched (exit code 2)
    |   +-- InvalidComponentError   a plugin declares something that is not a valid Component
    |   +-- UnknownComponentError   nothing provides the name that was asked for
    |   +-- ComponentConflictError  two providers of one name
    |   +-- PluginBrokenError       a plugin, or a component's target, could not be imported
    |   +-- NoCandidateError        `auto` asked every candidate and each had a reason not to run
    +-- UnsupportedError            a component was asked for what it declares it cannot do
    +-- ModelError
    |   +-- ModelNotFoundError      the name or path leads nowhere
    |   +-- ModelLoadError          the files are there but wrong: truncated, unknown, inconsistent
    +-- CapacityError               a model, a context or a batch does not fit the memory there is
    +-- RequestError                one request is wrong; `.param` names its field (HTTP 400)
    |   +-- GrammarError            the form it asks for cannot be compiled, or not be held to
    |   +-- AdapterError            the adapter it names cannot be read, or does not fit the model
    |   +-- RequestNotFoundError    the request, model or adapter it names is not there (HTTP 404)
    |   +-- QueueFullError          too many requests wait; try later (HTTP 503)
    +-- EngineError
        +-- RequestFailedError      the engine gave up on one request, e.g. NaN logits (HTTP 500)
        +-- EngineDeadError         the engine loop or its process has ended (HTTP 503)

A message is a headline (what failed, and in brackets where that was written) and one fact a line:
the nearest match, what is valid and who provides it, what was not loaded, what to do. The full
text of each is asserted in tests.

Knows: texts. Does not know: HTTP frameworks, argparse, plugins; it imports the stdlib only.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import ValidationError

__all__ = [
    "AdapterError",
    "CapacityError",
    "ComponentConflictError",
    "ConfigError",
    "ConfigFileError",
    "EngineDeadError",
    "EngineError",
    "GrammarError",
    "InvalidComponentError",
    "ModelError",
    "ModelLoadError",
    "ModelNotFoundError",
    "NoCandidateError",
    "OctavoError",
    "PluginBrokenError",
    "PluginError",
    "QueueFullError",
    "RequestError",
    "RequestFailedError",
    "RequestNotFoundError",
    "UnknownComponentError",
    "UnknownOptionError",
    "UnsupportedError",
    "did_you_mean",
    "explain_validation",
    "nearest",
]


class OctavoError(Exception):
    """Base of all errors raised on purpose.

    `headline` says what failed and where; each of `facts` is one further line. `str(error)` is
    the headline followed by the facts, indented by two spaces. Empty facts are left out, so that
    a caller may pass the result of `did_you_mean` as it is.
    """

    exit_code: ClassVar[int] = 1
    """What the `octavo` command exits with when this error reaches it."""
    http_status: ClassVar[int] = 500
    """What a dialect answers with when this error reaches it."""

    def __init__(self, headline: str, *facts: str) -> None:
        """Keep the parts, and join them into the message."""
        self.headline = headline
        self.facts = tuple(fact for fact in facts if fact)
        super().__init__("\n".join((headline, *(f"  {fact}" for fact in self.facts))))


class ConfigError(OctavoError):
    """A setting is wrong, wherever it was written: file, flag or keyword."""

    exit_code = 2
    http_status = 400


class ConfigFileError(ConfigError):
    """A config file is missing, unreadable, or not valid in its format."""


class UnknownOptionError(ConfigError):
    """A section, key, flag or component option that nothing declares."""


class PluginError(OctavoError):
    """Composing the components failed; no model was touched yet."""

    exit_code = 2


class InvalidComponentError(PluginError):
    """A plugin declares something that is not a valid Component, or is built wrongly."""


class UnknownComponentError(PluginError):
    """Nothing that is loaded provides the component that was asked for."""


class ComponentConflictError(PluginError):
    """Two providers declare one name, and neither is allowed to replace the other."""


class PluginBrokenError(PluginError):
    """A plugin, or the target of one of its components, could not be imported."""


class NoCandidateError(PluginError):
    """`auto` asked every candidate of a kind, and each gave a reason not to run here."""


class UnsupportedError(OctavoError):
    """A component was asked for something it declares it cannot do."""

    http_status = 400


class ModelError(OctavoError):
    """Something about a model's name or files is wrong."""


class ModelNotFoundError(ModelError):
    """No source leads from the model's name to files."""


class ModelLoadError(ModelError):
    """The model's files are there but wrong: truncated, inconsistent, or of an unknown kind."""


class CapacityError(OctavoError):
    """A model, a context or a batch does not fit into the memory there is."""


class RequestError(OctavoError, ValueError):
    """One request is wrong; everything else goes on. `param` names the field at fault, if one.

    It is a ValueError as well: that is what callers of `LLM.generate` expect of a bad argument.
    """

    http_status = 400

    def __init__(self, headline: str, *facts: str, param: str | None = None) -> None:
        """Keep the name of the field beside the message."""
        super().__init__(headline, *facts)
        self.param = param


class RequestNotFoundError(RequestError):
    """A request names something that is not there: a model, an adapter, another request."""

    http_status = 404


class GrammarError(RequestError):
    """The form that a request asks for cannot be compiled, or cannot be held to."""


class AdapterError(RequestError):
    """The adapter that a request names cannot be read, or does not fit the model."""


class QueueFullError(RequestError):
    """As many requests wait as may wait; the same request may be accepted later."""

    http_status = 503


class EngineError(OctavoError):
    """The engine failed while it ran."""


class RequestFailedError(EngineError):
    """The engine gave up on one request (for instance NaN among its logits); others go on."""


class EngineDeadError(EngineError):
    """The engine's loop or process has ended, so no request of it can be answered any more."""

    http_status = 503


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the one of `valid` that `name` was most likely meant to be, or None."""
    matches = difflib.get_close_matches(name, sorted(valid), n=1, cutoff=0.6)
    return matches[0] if matches else None


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return the fact line that suggests the nearest of `valid`, or "" if none is near."""
    match = nearest(name, valid)
    return f"did you mean '{match}'?" if match else ""


def explain_validation(error: ValidationError) -> list[str]:
    """Return one line for each thing that pydantic refused, with the value that was given."""
    lines = []
    for one in error.errors(include_url=False, include_context=False):
        place = ".".join(str(part) for part in one["loc"]) or "as a whole"
        text = one["msg"].removeprefix("Value error, ")
        message = text[:1].lower() + text[1:]
        lines.append(f"{place}: {message}, got {one['input']!r:.80}")
    return lines
