"""For all tests: compute threads yield soon, as in the product, also where torch comes first."""

from __future__ import annotations

from octavo.openmp import let_threads_sleep

let_threads_sleep()
