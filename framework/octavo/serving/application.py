"""What answers requests: models and dialects behind one ASGI application, with or without a port.

Knows the order in which they start and end. Does not know sockets, signals or routes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from octavo.serving.app import build_app
from octavo.serving.client import RestartPolicy
from octavo.serving.context import ServingContext
from octavo.serving.metrics import ServerMetrics
from octavo.serving.models import ServedModel

if TYPE_CHECKING:
    from octavo.serving.app import Shell
    from octavo.serving.plans import AppPlan


class Application:
    """The models of a plan, and what asks them. One event loop calls all methods.

    One model of several, or one that may be unloaded, is never given up.
    """

    def __init__(self, plan: AppPlan, restart: RestartPolicy | None = None) -> None:
        settings = plan.settings
        is_on_demand = len(plan.models) > 1 or settings.idle_seconds is not None
        policy = replace(restart or RestartPolicy(), is_on_demand=is_on_demand)
        self.models = tuple(ServedModel(one, settings, policy) for one in plan.models)
        self._plan = plan

    async def load(self) -> Shell:
        """Load the first model; return the ASGI application. Others are loaded when asked for.

        Raises the engine's typed error.
        """
        loading = asyncio.create_task(self.models[0].load())
        dialects = list(self._plan.load_dialects())
        await loading
        context = ServingContext(
            models=self.models,
            metrics=ServerMetrics([model.metrics for model in self.models]),
            settings=self._plan.settings,
        )
        return build_app(context, dialects)

    async def close(self) -> None:
        """End what runs for all models, at the same time. Twice is fine."""
        await asyncio.gather(*(model.close() for model in self.models))
