"""How long a request may take, waiting included, and for how long somebody waits for it.

Until an answer begins, the end of its time cancels the request's task, and so does a client that
has gone. Once a stream has begun it is `Generation` that ends it, with an error as its last event.

Knows clocks and tasks. Does not know HTTP's messages or what a request does.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from octavo.errors import RequestError
from octavo.serving.http_errors import ClientGoneError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: the running request's
deadline_var: ContextVar[Deadline | None] = ContextVar("octavo_deadline", default=None)


class DeadlineError(RequestError):
    """A request took longer than this server allows."""

    http_status = 504


class Deadline:
    """The end of one request's time: `at_s` on the event loop's clock, None for never."""

    def __init__(self, timeout_s: float | None) -> None:
        now_s = asyncio.get_running_loop().time()
        self.at_s = None if timeout_s is None else now_s + timeout_s
        self.timeout = asyncio.timeout_at(self.at_s)
        self._timeout_s = timeout_s
        self._is_left = False
        self._is_gone = False

    def error(self) -> RequestError:
        """Return what the client is told, if there is one."""
        if self._is_gone:
            return ClientGoneError("the client closed the connection")
        return DeadlineError(
            f"the request took longer than {self._timeout_s:g} s, which is this server's limit",
            "ask for fewer tokens, or raise request-timeout-s of the server",
        )

    def leave_to_writer(self) -> None:
        """Cancel nothing any more: an answer has begun, and who writes it knows the time."""
        self._is_left = True
        if not self.timeout.expired():
            self.timeout.reschedule(None)

    def give_up(self) -> None:
        """Cancel the request now: its client has gone, and no answer has begun."""
        if not self._is_left and not self.timeout.expired():
            self._is_gone = True
            self.timeout.reschedule(asyncio.get_running_loop().time())


@asynccontextmanager
async def within_deadline(timeout_s: float | None) -> AsyncIterator[Deadline]:
    """Run a request within its time.

    Raises DeadlineError at its end, ClientGoneError after `give_up`, unless an answer began.
    """
    deadline = Deadline(timeout_s)
    token = deadline_var.set(deadline)
    try:
        async with deadline.timeout:
            yield deadline
    except TimeoutError:
        if deadline.timeout.expired():
            raise deadline.error() from None
        raise
    finally:
        deadline_var.reset(token)
