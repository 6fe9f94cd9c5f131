"""What operators do with one engine: pause, sleep, forget prefixes, end requests.

A paused model lets new requests wait. One that sleeps refuses them, and has no engine process: all
of its memory is free, the KV cache and the weights, whatever the level. Waking up loads it again.

Knows an engine's client and its gate. Does not know routes.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from octavo.serving.client import EngineState
from octavo.serving.controls import Action

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from octavo.serving.client import EngineClient
    from octavo.serving.gate import Gate

_logger = logging.getLogger("octavo.serving")


class Mode(Enum):
    """What becomes of requests that run: they end here, may end, or stay where they are."""

    ABORT = "abort"
    WAIT = "wait"
    KEEP = "keep"


async def pause(client: EngineClient, mode: Mode) -> None:
    """Let new requests wait; return when nothing runs, or with KEEP when nothing goes on."""
    with _closing(client.gate):
        if mode is Mode.KEEP:
            await _control(client, Action.FREEZE)
        else:
            await _run_out(client, mode)


async def resume(client: EngineClient) -> None:
    """Let all requests go on."""
    await _control(client, Action.THAW)
    client.gate.resume()


async def sleep(client: EngineClient, level: int, mode: Mode) -> None:
    """Refuse new requests, and end the engine process when nothing runs any more.

    With KEEP what runs is ended, as with ABORT: there is nowhere to keep it.
    """
    if client.gate.sleep_level is not None:
        return
    with _closing(client.gate):
        await _control(client, Action.THAW)  # what was frozen could not run out
        await _run_out(client, mode)
    client.gate.sleep(level, had_engine=client.state is EngineState.READY)
    await client.unload()
    _logger.info("the model sleeps, and its memory is free")


async def wake_up(client: EngineClient) -> None:
    """Let requests through, and start the engine again if it ran before.

    Raises EngineDeadError when it cannot start.
    """
    if client.gate.sleep_level is None:
        return
    if client.gate.had_engine:
        await client.reload()
    client.gate.wake()


async def reset_prefix_cache(client: EngineClient) -> bool:
    """Forget cached prefixes; False when some blocks are in use (those go when freed)."""
    return await _control(client, Action.RESET_CACHE)


def abort_requests(client: EngineClient, names: Iterable[str]) -> int:
    """End requests by the clients' ids for them, or those of their answers. Returns how many."""
    named = tuple(names)
    found = [one for one in client.request_ids if any(_is_of(one, name) for name in named)]
    client.end(found)
    return len(found)


def _is_of(call_id: str, name: str) -> bool:
    """Return whether a sequence belongs to a request.

    Its id is the request's with a prefix (`chatcmpl-`, `msg_`), then numbers, which begin with a
    dot. The prefix may be named, too.
    """
    pattern = rf"([a-z]+[-_])?{re.escape(name)}\.[\d.]+-\d+"
    return call_id == name or re.fullmatch(pattern, call_id) is not None


@contextmanager
def _closing(gate: Gate) -> Iterator[None]:
    """Let new requests wait from here on; not if what is inside cannot be done."""
    was_paused = gate.is_paused
    gate.pause()
    try:
        yield
    except BaseException:
        if not was_paused:
            gate.resume()
        raise


async def _run_out(client: EngineClient, mode: Mode) -> None:
    if mode is not Mode.WAIT:
        client.end(client.request_ids)
    await client.drained()


async def _control(client: EngineClient, action: Action) -> bool:
    """Have a running engine do something; one that does not run has nothing to do."""
    if client.state is EngineState.UNLOADED:
        return True
    return await client.control(action)
