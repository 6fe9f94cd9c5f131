"""The parameters of requests that components declare, by name: checked before anything runs.

Knows models and values. Does not know the components, which may need torch, nor which are in use
(`octavo.plugin.request_params`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from octavo.errors import RequestError, did_you_mean, explain_validation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.plugin.options import RequestParams
    from octavo.sampling_params import SamplingParams


class DeclaredParams:
    """Which model checks each name. Nothing in it changes.

    `unread` are fields that every request may have and that nothing in use reads, and why.
    """

    def __init__(
        self,
        models: Mapping[str, type[RequestParams]] | None = None,
        unread: Mapping[str, str] | None = None,
    ) -> None:
        self._models = MappingProxyType(dict(models or {}))
        self.unread = MappingProxyType(dict(unread or {}))
        self.names = frozenset(self._models)

    def checked(self, params: SamplingParams, tokenizer: Tokenizer) -> dict[str, Any] | None:
        """Return the `extra_args` as components read them; None when a request gives none.

        Raises RequestError that names the field: nobody declares it, or its value is refused.
        """
        if not params.extra_args:
            return None
        found: dict[str, Any] = {}
        for one in self.check(params.extra_args):
            found |= one.to_extra_args(tokenizer)
        return found

    def check(self, given: object) -> list[RequestParams]:
        """Return the models of what a request gives, none for nothing; raises as `checked`."""
        if not given:
            return []
        if not isinstance(given, dict):
            message = f"extra_args must be a dict, not {type(given).__name__}"
            raise RequestError(message, param="extra_args")
        return [_validated(model, values) for model, values in self._by_model(given).items()]

    def _by_model(self, given: Mapping[Any, Any]) -> dict[type[RequestParams], dict[str, Any]]:
        grouped: dict[type[RequestParams], dict[str, Any]] = {}
        for name, value in given.items():
            if name not in self._models:
                raise self._unknown(str(name))
            if value is not None:  # null is not given, as it is in a body
                grouped.setdefault(self._models[name], {})[name] = value
        return grouped

    def _unknown(self, name: str) -> RequestError:
        names = ", ".join(sorted(self.names)) or "none"
        return RequestError(
            f"no component in use declares a parameter {name!r:.80}",
            did_you_mean(name, self.names),
            f"declared: {names}",
            "a plugin declares those that its component reads: Component(params=...)",
            param=name[:80],
        )


def _validated(model: type[RequestParams], values: dict[str, Any]) -> RequestParams:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        place = error.errors(include_url=False)[0]["loc"]
        name = str(place[0]) if place else next(iter(values))
        raise RequestError(*explain_validation(error), param=name) from None
