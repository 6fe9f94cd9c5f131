"""For all tests: compute threads yield soon, as in the product, also where torch comes first."""

from __future__ import annotations

from octavo.engine.openmp import shorten_spinning

shorten_spinning()
