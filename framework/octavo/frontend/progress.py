"""One line that says how far something is, in a terminal or a notebook; silent elsewhere.

Knows streams and time. Does not know what makes the progress.
"""

from __future__ import annotations

import sys
import time
from typing import Self, TextIO

_MIN_INTERVAL_S = 0.1
_BAR_WIDTH = 24


def is_watched(stream: TextIO) -> bool:
    """Return whether somebody looks at a stream: a terminal, or the output of a notebook."""
    return stream.isatty() or type(stream).__module__.startswith("ipykernel")


class ProgressLine:
    """`label:  50% |############            | 4/8, 00:02, 97 tok/s`, written over itself.

    Nothing is written when `is_shown` is False, or by default when nobody watches.
    """

    def __init__(
        self, label: str, total: int, *, stream: TextIO | None = None, is_shown: bool | None = None
    ) -> None:
        self._label = label
        self._total = total
        self._stream = stream or sys.stderr
        self._is_shown = is_watched(self._stream) if is_shown is None else is_shown
        self._start_s = time.monotonic()
        self._shown_s = 0.0
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the line."""
        if self._is_shown and self._width:
            self._stream.write("\n")
            self._stream.flush()

    def show(self, num_done: int, note: str = "") -> None:
        """Write the line anew, at most ten times a second, and when all is done."""
        if not self._is_shown:
            return
        now_s = time.monotonic()
        if now_s - self._shown_s < _MIN_INTERVAL_S and num_done < self._total:
            return
        self._shown_s = now_s
        share = num_done / self._total if self._total else 1.0
        bar = "#" * int(share * _BAR_WIDTH)
        minutes, seconds = divmod(int(now_s - self._start_s), 60)
        line = (
            f"{self._label}: {share:4.0%} |{bar:{_BAR_WIDTH}}| "
            f"{num_done}/{self._total}, {minutes:02}:{seconds:02}"
        )
        line += f", {note}" if note else ""
        self._stream.write(f"\r{line:{self._width}}")  # spaces wipe what was longer
        self._stream.flush()
        self._width = len(line)

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the line was made."""
        return time.monotonic() - self._start_s


class TransferLine:
    """Shows transfers; fits `octavo.interfaces.source.Progress`. One line per label."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._line: ProgressLine | None = None
        self._label = ""

    def __call__(self, label: str, done_bytes: int, total_bytes: int | None) -> None:
        """Show how far a transfer is, in megabytes."""
        if label != self._label:
            self.close()
            self._line = ProgressLine(label, _megabytes(total_bytes or 0), stream=self._stream)
            self._label = label
        if self._line is not None:
            self._line.show(_megabytes(done_bytes), "MB")

    def close(self) -> None:
        """End the line, if there is one."""
        if self._line is not None:
            self._line.__exit__(None, None, None)
            self._line = None


def _megabytes(num_bytes: int) -> int:
    return round(num_bytes / 1e6)
