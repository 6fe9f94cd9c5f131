"""For all tests: compute threads yield soon, as in the product, also where torch comes first."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import psutil
import pytest

from octavo.openmp import let_threads_sleep

if TYPE_CHECKING:
    from collections.abc import Callable

let_threads_sleep()


def pytest_collection_finish() -> None:
    """Keep what was imported out of later collections.

    Closing an engine collects garbage, which takes 0.2 s a time over all of transformers' objects.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def new_processes() -> Callable[[], list[psutil.Process]]:
    """What lists the processes that the test has started, not those of other tests."""
    before = set(psutil.Process().children())
    return lambda: [one for one in psutil.Process().children() if one not in before]
