from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from one_thread import one_thread_fixture

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    yield from one_thread_fixture()
