"""A plugin whose own dependency is not installed."""

import flashinfer_that_is_not_there  # noqa: F401
