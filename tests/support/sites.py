"""Fake installed distributions with plugins, from `tests/data/site`."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.plugin import discovery

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

SITE = Path(__file__).resolve().parents[1] / "data" / "site"


class Sites:
    """Puts folders of `tests/data/site` on the path, and hides whatever else is installed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._names = {"octavo"}
        monkeypatch.setattr(discovery, "entry_points", self._entry_points)

    def add(self, *folders: str) -> None:
        for folder in folders:
            assert (SITE / folder).is_dir(), folder
            self._monkeypatch.syspath_prepend(str(SITE / folder))
            for info in (SITE / folder).glob("*.dist-info"):
                self._names.add(info.name.partition("-")[0].replace("_", "-"))

    def _entry_points(self, *, group: str) -> list[importlib.metadata.EntryPoint]:
        every = importlib.metadata.entry_points(group=group)
        return [one for one in every if discovery._name_and_version(one.dist)[0] in self._names]


def sites_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    """Yield a `Sites`, and forget the modules it brought afterwards."""
    yield Sites(monkeypatch)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(SITE):
            del sys.modules[name]
