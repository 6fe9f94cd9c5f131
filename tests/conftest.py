"""For all tests: compute threads yield soon, as in the product, also where torch comes first."""

from __future__ import annotations

import gc

from octavo.openmp import let_threads_sleep

let_threads_sleep()


def pytest_collection_finish() -> None:
    """Keep what was imported out of later collections.

    Closing an engine collects garbage, which takes 0.2 s a time over all of transformers' objects.
    """
    gc.collect()
    gc.freeze()
