"""Costs that are given instead of measured, so that schedules do not depend on the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.interfaces.executor import StepCosts

if TYPE_CHECKING:
    import pytest


def make_drafts_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps cost the same however long they are, and drafts nothing: as many as may be come."""
    costs = StepCosts.linear(1.0, 1e-6)
    monkeypatch.setattr("octavo_plugins.executors.inline.measure_costs", lambda *_, **__: costs)
    monkeypatch.setattr("octavo.execution.load.measure_draft_ms", lambda _: 0.0)
