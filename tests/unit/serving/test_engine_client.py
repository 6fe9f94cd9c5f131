"""`EngineClient` against a real engine process whose engine is scripted."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import uvloop

import scripted_engine
from octavo.engine.messages import EngineOutput, EngineRequest
from octavo.errors import (
    EngineDeadError,
    ModelLoadError,
    QueueFullError,
    RequestError,
    RequestFailedError,
    UnsupportedError,
)
from octavo.sampling_params import SamplingParams
from octavo.serving.client import EngineClient, EngineState, RestartPolicy
from octavo.serving.streams import OutputStream

COMMAND = (sys.executable, str(Path(scripted_engine.__file__)))
FAST_RESTART = RestartPolicy(max_in_row=2, first_delay_s=0.01, max_delay_s=0.02)


def request_of(request_id="r", ids=(1, 2, 3), max_tokens=50, **params):
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=list(ids),
        params=SamplingParams(max_tokens=max_tokens, **params),
        max_tokens=max_tokens,
        seed=0,
        arrival_s=0.0,
    )


def run(scenario, *, max_backlog_tokens=8192, restart=FAST_RESTART, **script):
    """Run `scenario(client)` with a started client, and close it afterwards."""

    async def main():
        client = EngineClient(
            json.dumps(script),
            command=COMMAND,
            restart=restart,
            max_backlog_tokens=max_backlog_tokens,
        )
        try:
            await client.start()
            return await scenario(client)
        finally:
            await client.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


async def until(is_true, timeout_s=10.0):
    for _ in range(int(timeout_s / 0.02)):
        if is_true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen in time")


async def ids_of(client, request):
    stream = await client.generate([request])
    return [i async for output in stream for i in output.token_ids]


def test_a_request_runs_to_its_end_and_others_beside_it():
    async def scenario(client):
        one, two = await asyncio.gather(
            ids_of(client, request_of("a", (5, 6, 7))), ids_of(client, request_of("b", (8, 9)))
        )
        assert client.num_calls == 0
        return one, two, client.info.max_model_len

    assert run(scenario) == ([5, 6, 7, 256], [8, 9, 256], 256)


def test_outputs_that_wait_are_merged_into_one():
    async def scenario(client):
        stream = await client.generate([request_of(ids=range(40), logprobs=1)])
        await asyncio.sleep(0.3)
        outputs = [output async for output in stream]
        assert len(outputs) == 1
        assert outputs[0].token_ids == [*range(40), 256]
        assert [entry.token_id for entry in outputs[0].logprobs] == outputs[0].token_ids

    run(scenario)


def test_a_rejected_request_raises_its_typed_error_and_none_of_its_call_runs():
    async def scenario(client):
        with pytest.raises(QueueFullError):
            await client.generate([request_of("a", ignore_eos=True), request_of("b")])
        assert client.num_calls == 0
        assert await ids_of(client, request_of("c")) == [1, 2, 3, 256]

    run(scenario, max_num_seqs=1, max_num_queued_reqs=0)


def test_an_id_in_use_is_refused_before_it_reaches_the_engine():
    async def scenario(client):
        stream = await client.generate([request_of("a", ignore_eos=True, max_tokens=200)])
        with pytest.raises(RequestError, match="request id 'a' is in use"):
            await client.generate([request_of("a")])
        stream.close()

    run(scenario)


def test_logits_processors_cannot_cross():
    async def scenario(client):
        with pytest.raises(UnsupportedError, match="logits_processors"):
            await client.generate([request_of(logits_processors=[lambda ids, logits: logits])])

    run(scenario)


def test_closing_a_stream_aborts_in_the_engine_within_a_step():
    async def scenario(client):
        stream = await client.generate([request_of(ignore_eos=True, max_tokens=10_000)])
        await anext(stream)
        stream.close()
        stats = await client.stats()
        assert (stats.num_running, stats.num_waiting, client.num_calls) == (0, 0, 0)
        before = stats.generated_tokens
        await asyncio.sleep(0.05)
        assert (await client.stats()).generated_tokens == before

    run(scenario)


def test_a_slow_reader_is_aborted_with_an_error_and_disturbs_nobody():
    async def scenario(client):
        slow = await client.generate([request_of("slow", ignore_eos=True, max_tokens=10_000)])
        other = await ids_of(client, request_of("other", range(60), max_tokens=100))
        assert other == [*range(60), 256]
        with pytest.raises(RequestFailedError, match="reads too slowly"):
            await anext(slow)
        assert (await client.stats()).num_running == 0

    run(scenario, max_backlog_tokens=50)


def test_an_error_of_one_request_ends_that_request_alone():
    async def scenario(client):
        bad = request_of("bad", ignore_eos=True, extra_args={"fail_at": 3})
        good = request_of("good", range(20))
        bad_stream, good_stream = await client.generate([bad]), await client.generate([good])
        outputs = [output async for output in bad_stream]
        assert outputs[-1].finish_reason == "error"
        assert "NaN" in outputs[-1].error
        assert [i async for o in good_stream for i in o.token_ids] == [*range(20), 256]

    run(scenario)


@pytest.mark.parametrize("how", ["kill", "raise_at", "die_at"])
def test_B148_a_dead_engine_ends_its_requests_with_an_error_and_is_started_again(how):
    async def scenario(client):
        args = None if how == "kill" else {how: 3}
        doomed = request_of("a", ignore_eos=True, max_tokens=10_000, extra_args=args)
        stream = await client.generate([doomed])
        await anext(stream)
        if how == "kill":
            os.kill(client.engine_pid, signal.SIGKILL)
        killed_at = time.monotonic()
        with pytest.raises(EngineDeadError, match="the engine process ended") as caught:
            async for _ in stream:
                pass
        if how == "raise_at":  # the component, what it raised, and where
            assert "the allocator 'blunderer' (octavo-blunderer 1.0) failed in commit" in str(
                caught.value
            )
            assert f"at {scripted_engine.__file__}:" in str(caught.value)
        assert time.monotonic() - killed_at < 1.0
        with pytest.raises(EngineDeadError, match="restarting"):
            await client.ping()
        await until(lambda: client.state is EngineState.READY)
        assert await ids_of(client, request_of("b")) == [1, 2, 3, 256]

    run(scenario)


def test_B148_a_crash_loop_is_given_up_with_an_error():
    async def scenario(client):
        while not client.failed.done():
            pid = client.engine_pid
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.02)
        with pytest.raises(EngineDeadError, match="died 3 times in a row") as caught:
            client.failed.result()
        assert "SIGKILL" in str(caught.value)
        assert client.state is EngineState.FAILED

    run(scenario)


async def die(client):
    """Kill the engine, and wait for the next one or for the end."""
    os.kill(client.engine_pid, signal.SIGKILL)
    await until(lambda: client.state is not EngineState.READY)
    await until(lambda: client.state in {EngineState.READY, EngineState.FAILED})


def test_an_engine_that_answers_between_its_deaths_is_not_given_up():
    async def scenario(client):
        for number in range(5):
            assert await ids_of(client, request_of(f"r{number}")) == [1, 2, 3, 256]
            await die(client)
            assert client.state is EngineState.READY
        await die(client)  # nobody is answered any more: the row goes on from the last
        await die(client)
        assert client.state is EngineState.FAILED

    run(scenario)


def test_an_engine_that_answers_some_and_dies_of_others_for_ever_is_given_up():
    async def scenario(client):
        for number in range(4):
            assert await ids_of(client, request_of(f"r{number}")) == [1, 2, 3, 256]
            await die(client)
        with pytest.raises(EngineDeadError, match="died 4 times within 600 s"):
            client.failed.result()

    run(scenario, restart=replace(FAST_RESTART, max_in_window=3))


def test_typed_start_up_errors_reach_the_parent_and_leave_nothing_running(new_processes):
    with pytest.raises(ModelLoadError, match=r"model\.gguf is truncated") as caught:
        run(None, start_error="model.gguf is truncated")
    assert "the file is scripted to be wrong" in str(caught.value)
    assert new_processes() == []


def test_an_engine_that_dies_while_it_starts_says_how():
    with pytest.raises(EngineDeadError, match=r"ended while it started: .*SIGKILL"):
        run(None, die_at_start=True)


def test_cancelling_a_start_ends_the_process(new_processes):
    async def main():
        client = EngineClient(json.dumps({"start_s": 30}), command=COMMAND)
        task = asyncio.create_task(client.start())
        await asyncio.sleep(0.5)
        (child,) = new_processes()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not child.is_running()

    started = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - started < 5


def test_ping_is_good_between_steps_and_inside_a_young_step_but_not_in_a_hung_one(monkeypatch):
    monkeypatch.setattr("octavo.serving.connection._MIN_STEP_PATIENCE_MS", 1000.0)

    async def scenario(client):
        await client.ping()
        hang = request_of(max_tokens=2, extra_args={"hang_s": 1.8})
        stream = await client.generate([hang])
        await asyncio.sleep(0.3)
        await client.ping()  # 0.3 s into the step: below the least patience, here 1 s
        await asyncio.sleep(0.9)
        with pytest.raises(EngineDeadError, match="step has run for"):
            await client.ping()
        async for _ in stream:
            pass
        await client.ping()

    run(scenario)


def test_an_idle_engine_uses_no_cpu():
    async def scenario(client):
        await ids_of(client, request_of())
        process = psutil.Process(client.engine_pid)
        await asyncio.sleep(0.2)
        before = process.cpu_times()
        switches = process.num_ctx_switches().voluntary
        await asyncio.sleep(1.0)
        after = process.cpu_times()
        assert (after.user + after.system) - (before.user + before.system) <= 0.01
        assert process.num_ctx_switches().voluntary - switches <= 2

    run(scenario)


def test_the_engine_dies_with_its_parent():
    """The parent is killed while a step hangs and while the engine idles."""
    code = f"""
import asyncio, json, sys
sys.path.insert(0, {str(Path(scripted_engine.__file__).parent)!r})
from octavo.serving.client import EngineClient
async def main():
    client = EngineClient("{{}}", command={COMMAND!r})
    await client.start()
    print(client.engine_pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with parent:
        engine = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    engine.wait(5)


def test_the_engine_ignores_signals_to_its_group_but_not_the_end_of_its_socket():
    async def scenario(client):
        os.kill(client.engine_pid, signal.SIGTERM)
        os.kill(client.engine_pid, signal.SIGINT)
        assert await ids_of(client, request_of()) == [1, 2, 3, 256]

    run(scenario)


def test_a_stream_yields_what_came_before_its_failure():
    async def main():
        stream = OutputStream(["a"], abort=lambda ids: None)
        stream.feed(EngineOutput("a", [1]))
        stream.fail(EngineDeadError("gone"))
        assert (await anext(stream)).token_ids == [1]
        with pytest.raises(EngineDeadError, match="gone"):
            await anext(stream)

    asyncio.run(main())


def test_ending_one_sequence_aborts_it_and_leaves_the_other():
    aborted = []

    async def main():
        stream = OutputStream(["a", "b"], abort=aborted.extend)
        stream.feed(EngineOutput("a", [1]))
        stream.end_sequence("a")
        stream.feed(EngineOutput("a", [2]))
        stream.feed(EngineOutput("b", [3], finish_reason="stop"))
        return [(o.request_id, o.token_ids) async for o in stream]

    assert asyncio.run(main()) == [("b", [3])]
    assert aborted == ["a"]
