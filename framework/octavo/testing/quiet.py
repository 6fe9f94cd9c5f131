"""Holds back the log while the kit tries what is worth a warning or an error in it.

Knows logging. Does not know what is tried.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_log() -> Iterator[None]:
    """Let nothing into any log but what is critical; then all is as it was."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.ERROR))
    try:
        yield
    finally:
        logging.disable(before)
