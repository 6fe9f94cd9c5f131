"""What modules print while they are imported is no part of a command's output.

Knows the process's output and its main thread. Does not know plugins.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def imports_print_to_stderr() -> Iterator[None]:
    """Keep what modules print while they are imported out of a command's output.

    Only in the main thread, which is where commands look at plugins: `sys.stdout` is the whole
    process's, and two threads that put it aside would not put it back.
    """
    is_main = threading.current_thread() is threading.main_thread()
    with redirect_stdout(sys.stderr) if is_main else nullcontext():
        yield
