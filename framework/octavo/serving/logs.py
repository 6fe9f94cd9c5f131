"""Log lines: one line a record, with the id of the request it belongs to.

Knows records and their form. Does not know what is logged, or HTTP.
"""

from __future__ import annotations

import contextvars
import logging
import sys
from typing import Any

import msgspec

#: the request that the running task works for; "-" outside of requests
request_id_var: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="-")

_TEXT = "%(asctime)s %(levelname)-7s %(name)s %(request_id)s %(message)s"
_OWN_ATTRIBUTE = "fields"


class _RequestIdFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Put the request's id on the record."""
        record.request_id = request_id_var.get()
        return True


class TextFormatter(logging.Formatter):
    """`time level logger request message key=value ...`; line ends inside are escaped."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line, without a traceback."""
        fields: dict[str, Any] = getattr(record, _OWN_ATTRIBUTE, {})
        line = super().formatMessage(record)
        for name, value in fields.items():
            line += f" {name}={_word(value)}"
        return line if record.exc_info else line.replace("\r", "\\r").replace("\n", "\\n")


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request_id": getattr(record, "request_id", "-"),
            "message": clean(record.getMessage()),
            **{k: _plain(v) for k, v in getattr(record, _OWN_ATTRIBUTE, {}).items()},
        }
        if record.exc_info:
            entry["exception"] = clean(self.formatException(record.exc_info))
        return msgspec.json.encode(entry).decode()


def configure_logging(level: str, log_format: str) -> None:
    """Send all log records of this process to stderr, from `level` up, in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(_RequestIdFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def shorten(text: str, max_chars: int) -> str:
    """Return the beginning of a text for the log: cut between characters, never inside one.

    A cut inside a joined emoji or before a combining mark is no harm: each part is a character.
    """
    text = clean(text)
    return text if len(text) <= max_chars else f"{text[:max_chars]}... ({len(text)} characters)"


def clean(text: str) -> str:
    """Return a text that UTF-8 can hold: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _word(value: Any) -> str:
    text = clean(str(value))
    return text if text and not set(text) & set(' "=\r\n\t') else msgspec.json.encode(text).decode()


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | None) else clean(str(value))
