"""What a dialect's handlers work with: the served models, the metrics, the settings.

Knows names. Does not know how a model is loaded (`models`) or which routes use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.errors import RequestError, RequestNotFoundError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.config.schema import ServerConfig
    from octavo.lora import LoRARequest
    from octavo.serving.metrics import ServerMetrics
    from octavo.serving.models import ServedModel


@dataclass(frozen=True, slots=True)
class Target:
    """What a request's `model` leads to: a model, the name that answers carry, and adapters."""

    model: ServedModel
    name: str
    adapters: tuple[LoRARequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingContext:
    """All that a dialect may use."""

    models: tuple[ServedModel, ...]
    metrics: ServerMetrics
    settings: ServerConfig

    @property
    def declared_params(self) -> frozenset[str]:
        """Return the parameters that components of some model take from single requests."""
        return frozenset().union(*(model.declared.names for model in self.models))

    @property
    def unread_fields(self) -> Mapping[str, str]:
        """Return the fields of requests that no model's components read, and why."""
        first, *others = (model.declared.unread for model in self.models)
        return {name: why for name, why in first.items() if all(name in one for one in others)}

    async def target(self, name: str | None, blend: Mapping[str, float] | None = None) -> Target:
        """Return what a name leads to, as `find` does, once its model can be asked.

        Raises as `find` does, and the engine's error for a model that cannot be loaded.
        """
        found = self.find(name, blend)
        await found.model.ready()
        return found

    def find(self, name: str | None, blend: Mapping[str, float] | None = None) -> Target:
        """Return what a name leads to: a model, or an adapter as if it were one.

        Without a name it is the first model. `blend` names adapters of a model, with their scales.
        Raises RequestNotFoundError (404) with the names there are, RequestError for a blend on top
        of an adapter.
        """
        name = name or self.models[0].name
        scales = blend or {}
        for model in self.models:
            if name in model.names:
                found = [model.adapters.find(one, "adapters") for one in scales]
                requests = tuple(one.request(scales[one.name]) for one in found)
                return Target(model, model.name, requests)
            adapter = model.adapters.get(name)
            if adapter is not None and scales:
                raise RequestError(
                    f"`{name}` is an adapter already",
                    f"blend adapters with `model` `{model.name}`",
                    param="adapters",
                )
            if adapter is not None:
                return Target(model, adapter.name, (adapter.request(),))
        names = [known for model in self.models for known in (*model.names, *model.adapters.names)]
        raise RequestNotFoundError(
            f"The model `{name}` does not exist",
            did_you_mean(name, names),
            f"served here: {', '.join(names)}",
            param="model",
        )
