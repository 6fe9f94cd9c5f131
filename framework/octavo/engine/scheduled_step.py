"""A step between its plan and its commit. Knows requests. Does not know how either is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.engine.plan import StepPlan
    from octavo.engine.request import Request


@dataclass(slots=True)
class ScheduledStep:
    """A plan, with the requests that stand behind its advances (and their epochs)."""

    plan: StepPlan
    requests: list[Request] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
