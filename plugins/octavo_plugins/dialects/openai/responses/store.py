"""Responses that are kept, so that others may go on from them: the last ones, within bounds.

They are in memory, and gone when the server ends. Knows ids and sizes. Does not know shapes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestNotFoundError
from octavo_plugins.dialects.shared.replies import encode

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_RESPONSES: Final = 1000
MAX_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class Record:
    """One response, as it is by now, and the items of the conversation before its own.

    `cancel` ends what still runs for it.
    """

    response: dict[str, Any]
    before: list[dict[str, Any]]
    cancel: Callable[[], None] | None = None
    num_bytes: int = field(default=0)

    @property
    def items(self) -> list[dict[str, Any]]:
        """Return the conversation up to the end of this response."""
        return [*self.before, *self.response["output"]]


class ResponseStore:
    """Keeps responses by id; the oldest go when there are too many, or they are too large."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def put(self, record: Record) -> None:
        """Keep a response, or count it again when it has grown."""
        response_id = record.response["id"]
        self._forget(response_id)
        record.num_bytes = len(encode([record.before, record.response]))
        self._records[response_id] = record
        self._num_bytes += record.num_bytes
        while len(self._records) > self._max_responses or self._num_bytes > self._max_bytes:
            self._forget(next(iter(self._records)))

    def has(self, response_id: str) -> bool:
        """Return whether a response is kept."""
        return response_id in self._records

    def find(self, response_id: str, param: str = "response_id") -> Record:
        """Return a response. Raises RequestNotFoundError."""
        record = self._records.get(response_id)
        if record is None:
            raise RequestNotFoundError(
                f"there is no response '{response_id:.80}' here",
                f"the last {self._max_responses} are kept, unless `store` was false, "
                "until the server ends",
                param=param,
            )
        return record

    def delete(self, response_id: str) -> None:
        """Forget a response. Raises RequestNotFoundError."""
        self.find(response_id)
        self._forget(response_id)

    def _forget(self, response_id: str) -> None:
        record = self._records.pop(response_id, None)
        if record is not None:
            self._num_bytes -= record.num_bytes
