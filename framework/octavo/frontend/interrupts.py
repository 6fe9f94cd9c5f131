"""Ctrl-C between steps, not within one: the engine stays whole.

Knows signals. Does not know engines.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import FrameType


class DeferredInterrupt:
    """While entered, the first Ctrl-C is only noted, and `check` raises KeyboardInterrupt.

    A second one raises at once, for a step that does not end. Where Python's own handler is not
    in charge (other threads, programs with handlers of their own) nothing is changed.
    """

    def __init__(self) -> None:
        self._is_asked = False
        self._is_installed = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self._is_installed = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Give the signal back, and raise for a Ctrl-C that came after the last `check`."""
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self._is_asked:
            self._is_asked = False
            raise KeyboardInterrupt

    def _note(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        if self._is_asked:
            raise KeyboardInterrupt
        self._is_asked = True
