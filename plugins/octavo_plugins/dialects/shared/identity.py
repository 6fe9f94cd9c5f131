"""Ids of answers, and of the calls that answer them.

Knows the request's own id and a counter. Does not know HTTP or any API's shapes.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

from octavo.serving.logs import request_id_var


@dataclass(frozen=True, slots=True)
class Identity:
    """What every chunk of an answer repeats.

    `call_id` is unique in this server. `id` need not be: it is made from the client's own id for
    the request, where it sent one.
    """

    id: str
    call_id: str
    created: int
    model: str


class Identities:
    """Makes the identities of answers."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._numbers = itertools.count()

    def next(self, model_name: str, request_id: str | None = None) -> Identity:
        """Return the identity of the answer to a request; its own id is told by the shell."""
        answer_id = f"{self._prefix}{request_id or request_id_var.get()}"
        call_id = f"{answer_id}.{next(self._numbers)}"
        return Identity(answer_id, call_id, int(time.time()), model_name)
