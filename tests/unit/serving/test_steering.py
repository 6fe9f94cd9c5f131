"""Pauses and sleep, as far as they need no engine: who waits, who is refused, who is ended."""

import asyncio

import pytest

from octavo.errors import EngineDeadError
from octavo.serving import steering
from octavo.serving.client import EngineState
from octavo.serving.gate import Gate, SleepingError
from octavo.serving.steering import Mode


class Client:
    """As much of an engine's client as is steered."""

    def __init__(self, *, is_dead=False, request_ids=()):
        self.gate = Gate()
        self.state = EngineState.READY
        self.request_ids = list(request_ids)
        self.ended = []
        self._is_dead = is_dead

    async def control(self, action):
        if self._is_dead:
            raise EngineDeadError("the engine is not ready")
        return True

    def end(self, request_ids):
        self.ended += request_ids

    async def drained(self):
        return None

    async def unload(self):
        self.state = EngineState.UNLOADED

    async def reload(self):
        self.state = EngineState.READY


def test_who_waits_goes_on_or_is_refused():
    async def check():
        gate = Gate()
        gate.pause()
        waiting = asyncio.create_task(gate.passed())
        await asyncio.sleep(0)
        assert not waiting.done()
        gate.resume()
        await waiting
        gate.pause()
        refused = asyncio.create_task(gate.passed())
        await asyncio.sleep(0)
        gate.sleep(1, had_engine=False)
        with pytest.raises(SleepingError):
            await refused
        gate.wake()
        await gate.passed()

    asyncio.run(check())


@pytest.mark.parametrize("is_paused", [False, True])
def test_what_cannot_be_done_leaves_the_gate_as_it_was(is_paused):
    async def check():
        client = Client(is_dead=True)
        if is_paused:
            client.gate.pause()
        for call in (steering.pause(client, Mode.KEEP), steering.sleep(client, 1, Mode.ABORT)):
            with pytest.raises(EngineDeadError):
                await call
        assert client.gate.is_paused == is_paused
        assert client.gate.sleep_level is None

    asyncio.run(check())


def test_sleep_ends_what_runs_and_waking_up_loads_again():
    async def check():
        client = Client(request_ids=["a-0"])
        await steering.sleep(client, 2, Mode.KEEP)
        assert client.ended == ["a-0"]
        assert (client.gate.sleep_level, client.state) == (2, EngineState.UNLOADED)
        assert await steering.reset_prefix_cache(client)  # there is none
        await steering.sleep(client, 1, Mode.ABORT)  # it does so already
        await steering.wake_up(client)
        await steering.wake_up(client)
        assert (client.gate.sleep_level, client.state) == (None, EngineState.READY)
        assert not client.gate.is_paused

    asyncio.run(check())


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("r", {"chatcmpl-r.0-0", "chatcmpl-r.0-1", "msg_r.3-0", "cmpl-r.1.2-0"}),
        ("msg_r", {"msg_r.3-0"}),
        ("r.1", {"cmpl-r.1.7.0-0"}),
        ("chatcmpl-r.0-1", {"chatcmpl-r.0-1"}),
        ("", set()),
        (".*", set()),
    ],
)
def test_requests_are_found_by_their_ids(name, found):
    ids = {
        "chatcmpl-r.0-0", "chatcmpl-r.0-1", "msg_r.3-0", "cmpl-r.1.2-0", "cmpl-rr.1-0",
        "cmpl-a-r.1-0",
    }  # fmt: skip
    client = Client(request_ids=ids | ({"cmpl-r.1.7.0-0"} if name == "r.1" else set()))

    steering.abort_requests(client, [name])

    assert found <= set(client.ended) <= found | {"cmpl-r.1.2-0"}
