"""Requests as they come in the real world: read to the end, left in the middle, and wrong ones.

Knows bodies and connections. Does not know what is measured meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING

from octavo.bench.remote.address import Address
from octavo.bench.remote.connection import Connections

if TYPE_CHECKING:
    from collections.abc import Callable

_PATH = "/v1/completions"
_TIMEOUT_S = 120.0
_LEFT_AFTER_S = 0.02
#: of every ten requests
_SORTS = (
    "stream",
    "whole",
    "left",
    "stream",
    "wrong",
    "whole",
    "stream",
    "left",
    "wrong",
    "stream",
)


def body_of(sort: str, number: int) -> bytes:
    """Return the body of the request with this number."""
    fields: dict[str, object] = {"prompt": f"{number} is a number", "max_tokens": 4}
    if sort in {"stream", "left"}:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    if sort == "left":
        fields |= {"max_tokens": 400, "ignore_eos": True}
    if sort == "wrong":
        fields |= ({"model": "nobody"}, {"prompt": "x " * 20_000}, {"n": -1})[number % 3]
        if number % 4 == 0:
            return b"{"
    return json.dumps(fields).encode()


async def send_mixed(url: str, numbers: range, num_at_once: int) -> Counter[str]:
    """Send a request for each number; return how they ended, by sort and kind."""
    address = Address.of(url)
    connections = Connections(address, _TIMEOUT_S)
    ends: Counter[str] = Counter()
    left = iter(numbers)

    async def work() -> None:
        for number in left:
            sort = _SORTS[number % len(_SORTS)]
            if sort == "left":
                await _leave(address, body_of(sort, number))
                ends["left"] += 1
                continue
            outcome = (await connections.send("POST", _PATH, body_of(sort, number))).outcome
            ends[f"{sort}: {outcome.error or 'good'}"] += 1

    try:
        await asyncio.gather(*(work() for _ in range(num_at_once)))
    finally:
        connections.close()
    return ends


async def _leave(address: Address, body: bytes) -> None:
    """Send a request, and close the connection when its answer has begun."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(address.request("POST", _PATH, body))
    await reader.read(1)
    await asyncio.sleep(_LEFT_AFTER_S)
    writer.transport.abort()


async def hold_idle(url: str, num: int, meanwhile: Callable[[], object]) -> tuple[object, int]:
    """Open connections of which half have had an answer, do something, and ask each again.

    Returns what was done, and how many connections were answered in the end.
    """
    address = Address.of(url)
    request = address.request("GET", "/health")
    opened = [await asyncio.open_connection(address.host, address.port) for _ in range(num)]
    for reader, writer in opened[::2]:
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
    result = await asyncio.to_thread(meanwhile)
    num_good = 0
    for reader, writer in opened:
        writer.write(request)
        num_good += b" 200 " in await reader.readuntil(b"\r\n\r\n")
    for _, writer in opened:
        writer.transport.abort()
    return result, num_good
