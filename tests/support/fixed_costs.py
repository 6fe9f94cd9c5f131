"""Costs that are given instead of measured, so that schedules do not depend on the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.interfaces.executor import StepCosts

if TYPE_CHECKING:
    import pytest


def fix_costs(monkeypatch: pytest.MonkeyPatch, costs: StepCosts) -> None:
    """Let engines plan by these costs, as if drafts cost nothing."""
    monkeypatch.setattr("octavo_plugins.executors.inline.measure_costs", lambda *_, **__: costs)
    monkeypatch.setattr("octavo.execution.load.measure_draft_ms", lambda _: 0.0)


def make_drafts_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps cost the same however long they are: as many drafts as may be are made."""
    fix_costs(monkeypatch, StepCosts.linear(1.0, 1e-6))
