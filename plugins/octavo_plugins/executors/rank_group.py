"""The processes of a split model's ranks, as one: told the same, answering together.

A thread reads what the ranks send, so that one that dies is noticed at once, whatever anybody
waits for. Then all others are ended: none of them can go on alone.

Knows processes, sockets and messages. Does not know plans or models.
"""

from __future__ import annotations

import selectors
import socket
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from octavo.errors import EngineDeadError
from octavo.serving.framing import FrameBuffer
from octavo.serving.process import start_child
from octavo.serving.protocol import error_from_wire
from octavo_plugins.executors import rank_wire as wire

if TYPE_CHECKING:
    from octavo.serving.process import EngineProcess

COMMAND = (sys.executable, "-m", "octavo_plugins.executors.rank_process")
#: how long after the first sign of trouble the others may still say what they know of it
_GRACE_S = 1.0
_POLL_S = 0.02
#: how long ranks have to end by themselves
_END_S = 2.0


class _Member:
    """One rank: its process, what arrived of it, and what it last said."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.child: EngineProcess = start_child(COMMAND)
        self.frames = FrameBuffer()
        self.replies: deque[wire.Reply] = deque()
        self.failure: wire.Failed | None = None
        self.is_gone = False


class RankGroup:
    """The ranks of one model. Methods are for one thread; futures may be waited for by any.

    `failed` raises what has ended them, whether or not somebody waits for an answer.
    """

    def __init__(self, size: int, failed: Future[None] | None = None) -> None:
        self._failed: Future[None] = Future() if failed is None else failed
        self._members: list[_Member] = []
        self._calls: deque[Future[list[wire.Reply]]] = deque()
        self._prepared: dict[int, tuple[Future[str], list[wire.Prepared]]] = {}
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._is_closing = False
        self._selector = selectors.DefaultSelector()
        try:
            for rank in range(size):
                self._members.append(_Member(rank))
        except BaseException:
            self._end()
            raise
        for member in self._members:
            self._selector.register(member.child.sock, selectors.EVENT_READ, member)
        self._thread = threading.Thread(target=self._read, name="octavo-ranks", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ what is asked

    def call(self, messages: list[wire.ToRank]) -> Future[list[wire.Reply]]:
        """Send each rank its message, and return what will be all their answers, by rank.

        The future raises EngineDeadError when a rank ends first, naming it.
        """
        future: Future[list[wire.Reply]] = Future()
        with self._lock:
            if self._error is not None:
                future.set_exception(self._error)
                return future
            self._calls.append(future)
        self._send(messages)
        return future

    def call_all(self, message: wire.ToRank) -> Future[list[wire.Reply]]:
        """Send all ranks the same message; else as `call`."""
        return self.call([message] * len(self._members))

    def prepare(self, message: wire.Prepare) -> Future[str]:
        """Have a resource made ready by all ranks; the future raises what one of them raised."""
        future: Future[str] = Future()
        with self._lock:
            if self._error is not None:
                future.set_exception(self._error)
                return future
            self._prepared[message.number] = (future, [])
        self._send([message] * len(self._members))
        return future

    def tell(self, message: wire.Discard) -> None:
        """Send all ranks a message that none answers."""
        self._send([message] * len(self._members))

    def _send(self, messages: list[wire.ToRank]) -> None:
        encoded: dict[int, bytes] = {}
        for member, message in zip(self._members, messages, strict=True):
            data = encoded.get(id(message)) or wire.encode(message)
            encoded[id(message)] = data
            try:
                member.child.sock.sendall(data)
            except OSError:
                return  # it has ended: the thread that reads sees that, and says so

    # ------------------------------------------------------------------ what comes back

    def _read(self) -> None:
        try:
            self._read_until_the_end()
        except Exception as error:  # noqa: BLE001 - whoever waits for an answer must be told
            self._fail(EngineDeadError("an answer of a rank cannot be read", repr(error)))

    def _read_until_the_end(self) -> None:
        while True:
            for key, _ in self._selector.select():
                self._take(key.data)
            if self._error is not None:
                return  # one refused to load
            if any(member.is_gone or member.failure for member in self._members):
                if not self._is_closing:
                    self._fail(self._diagnose())
                return

    def _take(self, member: _Member) -> None:
        """Read what has arrived of one rank."""
        try:
            data = member.child.sock.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            member.is_gone = True
            self._selector.unregister(member.child.sock)
        for body in member.frames.feed(data):
            match wire.decode_from_rank(body):
                case wire.Failed() as failure:
                    member.failure = failure
                case wire.Refused(error):
                    self._fail(error_from_wire(error))
                case wire.Prepared() as prepared:
                    self._take_prepared(prepared)
                case reply:
                    member.replies.append(reply)
                    self._answer()

    def _answer(self) -> None:
        """Complete the oldest call if all ranks have answered it."""
        if all(member.replies for member in self._members):
            with self._lock:
                future = self._calls.popleft() if self._calls else None
            replies = [member.replies.popleft() for member in self._members]
            if future is not None:
                future.set_result(replies)

    def _take_prepared(self, prepared: wire.Prepared) -> None:
        with self._lock:
            future, answers = self._prepared[prepared.number]
            answers.append(prepared)
            if len(answers) < len(self._members):
                return
            del self._prepared[prepared.number]
        error = next((one.error for one in answers if one.error is not None), None)
        if error is not None:
            future.set_exception(error_from_wire(error))
        else:
            future.set_result(answers[0].digest)

    # ------------------------------------------------------------------ the end

    def _diagnose(self) -> Exception:
        """Wait a moment for what the others have to say, and name the rank that ended first."""
        deadline_s = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline_s:
            if all(member.is_gone or member.failure for member in self._members):
                break
            for key, _ in self._selector.select(_POLL_S):
                self._take(key.data)
            if any(member.is_gone and not member.failure for member in self._members):
                break
        dead = [member for member in self._members if member.is_gone and not member.failure]
        size = len(self._members)
        facts = []
        for member in dead:
            member.child.end(_END_S)
            facts.append(f"rank {member.rank} of {size}: {member.child.describe_exit()}")
        if not facts:
            failed = [member for member in self._members if member.failure is not None]
            own = [one for one in failed if one.failure and not one.failure.is_peer_lost]
            facts = [
                f"rank {member.rank} of {size}: {member.failure.text}"
                for member in own or failed
                if member.failure is not None
            ]
        return EngineDeadError("a rank of the split model ended", *facts)

    def _fail(self, error: Exception) -> None:
        """End all ranks, and tell everybody who waits."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            waiting: list[Future[Any]] = [
                *self._calls,
                *(future for future, _ in self._prepared.values()),
            ]
            self._calls.clear()
            self._prepared.clear()
        self._end()
        for future in waiting:
            future.set_exception(error)
        if not self._is_closing:
            self._failed.set_exception(error)

    def _end(self) -> None:
        for member in self._members:
            member.child.process.kill()
        for member in self._members:
            member.child.end(_END_S)
            member.child.sock.close()

    def close(self) -> None:
        """End all ranks; twice is fine."""
        self._is_closing = True
        for member in self._members:
            try:
                member.child.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it has gone already
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._fail(EngineDeadError("the executor is closed"))
        self._selector.close()
