"""Which parameters of single requests the components in use declare, and which they leave unread.

Knows components and their models. Does not know requests (`octavo.frontend.request_params` checks
them), nor who reads the parameters in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from octavo.errors import ComponentConflictError, InvalidComponentError
from octavo.plugin.build import load_params
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from octavo.plugin.build import Buildable
    from octavo.plugin.options import RequestParams


class Offering(Protocol):
    """What a component says of itself."""

    @property
    def name(self) -> str:
        """The component's name."""

    @property
    def offers(self) -> Collection[str]:
        """The facts that it declares."""


def declared_params(components: Iterable[Buildable]) -> dict[str, type[RequestParams]]:
    """Return the model of each name that components declare, those of `ResolvedConfig.in_use`.

    Imports the models and nothing else. Raises ComponentConflictError when two declare one name
    with different models, InvalidComponentError for a name that `SamplingParams` has, and what
    `load_params` raises.
    """
    models: dict[str, type[RequestParams]] = {}
    owners: dict[str, Buildable] = {}
    for one in components:
        model = load_params(one)
        if model is None:
            continue
        for name in model.model_fields:
            if name in SamplingParams.__dataclass_fields__:
                headline = f"{one.kind} '{one.name}' ({one.provider}) has invalid params"
                raise InvalidComponentError(headline, f"{name} is a field of SamplingParams")
            owner = owners.setdefault(name, one)
            if models.setdefault(name, model) is not model:
                raise _conflict(name, owner, one)
    return models


def unread_fields(scheduler: Offering) -> dict[str, str]:
    """Return the fields of requests that this scheduler leaves unread, each with the reason."""
    if "priority" in scheduler.offers:
        return {}
    why = f"the scheduler '{scheduler.name}' does not read it (--scheduler priority does)"
    return {"priority": why}


def _conflict(name: str, first: Buildable, second: Buildable) -> ComponentConflictError:
    lines = (f"{one.kind} '{one.name}' ({one.provider})" for one in (first, second))
    headline = f"the parameter '{name}' of requests is declared by 2 components"
    return ComponentConflictError(headline, *lines, "components may share a name by one model")
