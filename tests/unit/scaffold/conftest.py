from collections.abc import Iterator

import pytest

from sites import Sites, sites_fixture


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    yield from sites_fixture(monkeypatch)
