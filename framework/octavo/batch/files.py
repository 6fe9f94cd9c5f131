"""The two files of a batch: input read line by line, output added to line by line.

Output that is there already is kept: a run begun anew goes on behind it. Knows files. Does not
know what answers requests.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import TYPE_CHECKING, Self

from octavo.batch.lines import RawLine, written_key
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

_BOM = b"\xef\xbb\xbf"
_PIECE_BYTES = 1 << 20


class BatchInput:
    """A file of requests. Never holds more of it than one line, of at most `max_line_bytes`.

    Raises ConfigError when the file cannot be read.
    """

    def __init__(self, path: Path, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise ConfigError(f"cannot read the batch '{path}'", _reason(error)) from error
        facts = os.fstat(self._file.fileno())
        self.size_bytes = facts.st_size
        self.identity = facts.st_dev, facts.st_ino

    def __iter__(self) -> Iterator[RawLine]:
        """Yield the lines that are not blank."""
        number = 0
        while text := self._file.readline(self._max_line_bytes):
            number += 1
            size_bytes, is_cut = len(text), False
            if not text.endswith(b"\n"):  # too long, or the last one
                rest_bytes = self._skip_rest()
                size_bytes, is_cut = size_bytes + rest_bytes, rest_bytes > 0
            if number == 1:
                text = text.removeprefix(_BOM)
            text = text.strip()
            if text:
                yield RawLine(number, text, size_bytes, is_cut)

    def _skip_rest(self) -> int:
        """Read to the end of a line; return how many bytes that was."""
        num_bytes = 0
        while piece := self._file.readline(_PIECE_BYTES):
            num_bytes += len(piece)
            if piece.endswith(b"\n"):
                break
        return num_bytes

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class BatchOutput:
    """A file of answers, to which one run at a time adds.

    `done` holds the keys of the requests that are answered in it, `num_failed` is how many of
    them failed. A last line that was cut off in writing is taken away. Raises ConfigError when
    the file cannot be written, is in use, or has lines that no batch wrote.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done: set[int] = set()
        self.num_failed = 0
        try:
            self._file: BinaryIO = path.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigError(
                f"cannot write the batch's output '{path}'", _reason(error)
            ) from error
        try:
            self._take()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    @property
    def identity(self) -> tuple[int, int]:
        """Return what tells the file from others."""
        facts = os.fstat(self._file.fileno())
        return facts.st_dev, facts.st_ino

    def write(self, line: bytes) -> None:
        """Add a line. Raises ConfigError when it cannot be written, as when the disk is full."""
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise ConfigError(
                f"cannot write to '{self._path}'", _reason(error), "the same command goes on"
            ) from error

    def _take(self) -> None:
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise ConfigError(f"the batch's output '{self._path}' is no regular file")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            headline = f"another run writes to '{self._path}'"
            raise ConfigError(headline, "wait for its end, or name another file") from error
        self._mend()
        self._file.seek(0, os.SEEK_END)

    def _mend(self) -> None:
        """Read what is there, and end it behind its last whole line."""
        self._file.seek(0)
        end_bytes = 0
        with open(self._file.fileno(), "rb", closefd=False) as reader:
            for number, line in enumerate(reader, start=1):
                if line.endswith(b"\n"):
                    end_bytes += len(line)
                    self._note(number, line)
        self._file.truncate(end_bytes)

    def _note(self, number: int, line: bytes) -> None:
        try:
            key, has_failed = written_key(line)
        except ValueError as error:
            raise ConfigError(
                f"line {number} of '{self._path}' is no answer of a batch",
                str(error),
                "answers are added to it: name a file that is not there, or that a batch wrote",
            ) from error
        self.done.add(key)
        self.num_failed += has_failed


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
