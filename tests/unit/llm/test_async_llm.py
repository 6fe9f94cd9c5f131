from __future__ import annotations

import asyncio
import threading
import time

import pytest

from octavo.async_llm import AsyncLLM
from octavo.engine.messages import EngineInfo, EngineOutput
from octavo.errors import EngineDeadError, QueueFullError, RequestError, RequestFailedError
from octavo.faults import name_component
from octavo.frontend.preprocess import Preprocessor
from octavo.local_model import LocalModel
from octavo.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams
from scripted import EOS, VOCAB_SIZE, BytesTokenizer, ScriptedEngine

INFO = EngineInfo(VOCAB_SIZE, max_model_len=4096, capacity_tokens=4096, max_num_queued_reqs=40)
DELTA = SamplingParams(max_tokens=40, output_kind=RequestOutputKind.DELTA)
ENDLESS = SamplingParams(max_tokens=4000, output_kind=RequestOutputKind.DELTA)


@pytest.fixture
def make_llm(monkeypatch):
    made = []

    def make(script=None, *, pause_s=0.0):
        engine = ScriptedEngine(script or (lambda r: [*r.prompt_token_ids, EOS]), INFO)
        engine.on_step = lambda _: time.sleep(pause_s)
        tokenizer = BytesTokenizer()
        model = LocalModel(None, engine, tokenizer, Preprocessor(tokenizer, INFO), None)
        monkeypatch.setattr("octavo.async_llm.resolve_settings", lambda _: None)
        monkeypatch.setattr("octavo.async_llm.open_model", lambda _: model)
        made.append(AsyncLLM(model="any"))
        return made[-1], engine

    yield make
    for llm in made:
        llm.close()


def _wait_until(condition):
    deadline_s = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.002)


def test_deltas_of_many_requests_at_once(make_llm):
    llm, _ = make_llm()

    async def collect(text):
        return "".join([o.outputs[0].text async for o in llm.generate(text, DELTA, f"r-{text}")])

    async def main():
        return await asyncio.gather(*(collect(f"text {i}") for i in range(12)))

    assert asyncio.run(main()) == [f"text {i}" for i in range(12)]
    assert asyncio.run(main()) == [f"text {i}" for i in range(12)]  # another loop


def test_cumulative_outputs_are_the_default_form_and_the_last_is_finished(make_llm):
    llm, _ = make_llm()

    async def main():
        return [o async for o in llm.generate("abc", SamplingParams(max_tokens=20, n=2))]

    outputs = asyncio.run(main())
    assert outputs[-1].finished
    assert [c.text for c in outputs[-1].outputs] == ["abc", "abc"]
    assert all(not o.finished for o in outputs[:-1])


def test_bad_requests_raise_and_leave_nothing_behind(make_llm):
    llm, engine = make_llm(lambda _: [1] * 4000, pause_s=0.001)

    async def first(prompt, params=DELTA, request_id=None):
        return await anext(llm.generate(prompt, params, request_id))

    async def main():
        with pytest.raises(RequestError, match="the prompt is empty"):
            await first("")
        with pytest.raises(QueueFullError):  # the first 40 choices fit, the others take them back
            await first("x", SamplingParams(max_tokens=5, n=41))
        running = llm.generate("x", ENDLESS, "same")
        await anext(running)
        with pytest.raises(RequestError, match="request id 'same' is in use"):
            await first("x", DELTA, "same")
        await running.aclose()

    asyncio.run(main())
    _wait_until(lambda: not engine.has_work)
    assert llm._streams == {}
    assert llm._by_engine_id == {}


def test_leaving_the_iteration_aborts_the_request(make_llm):
    llm, engine = make_llm(lambda _: [1] * 4000, pause_s=0.001)

    async def main():
        stream = llm.generate("x", ENDLESS, "left")
        await anext(stream)
        await stream.aclose()
        task = asyncio.create_task(anext(llm.generate("x", ENDLESS, "cancelled")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    _wait_until(lambda: not engine.has_work)
    assert "left-0" in engine.aborted


def test_abort_by_id_ends_the_iteration(make_llm):
    llm, engine = make_llm(lambda _: [1] * 4000, pause_s=0.001)

    async def main():
        reasons = []
        async for output in llm.generate("x", ENDLESS, "mine"):
            reasons.append(output.outputs[0].finish_reason)
            if len(reasons) == 1:
                await llm.abort("mine")
                await llm.abort("unknown")
        return reasons

    assert asyncio.run(main())[-1] == "abort"
    assert not engine.has_work


def test_stop_string_ends_the_request_in_the_engine_too(make_llm):
    llm, engine = make_llm(lambda _: [*b"one two three" * 100], pause_s=0.001)
    params = SamplingParams(max_tokens=900, stop=["two"])

    async def main():
        return [o async for o in llm.generate("x", params, "r")][-1].outputs[0]

    choice = asyncio.run(main())
    assert (choice.text, choice.stop_reason) == ("one ", "two")
    _wait_until(lambda: engine.aborted == ["r-0"])


def test_request_that_fails_raises_and_others_go_on(make_llm):
    llm, engine = make_llm(pause_s=0.001)
    real_step = engine.step

    def step():
        outputs = real_step()
        for i, output in enumerate(outputs):
            if output.request_id == "bad-0":
                engine.abort(["bad-0"])
                outputs[i] = EngineOutput("bad-0", [], finish_reason="error", error="NaN")
        return outputs

    engine.step = step

    async def collect(request_id):
        return "".join([o.outputs[0].text async for o in llm.generate("abc", DELTA, request_id)])

    async def main():
        return await asyncio.gather(collect("good"), collect("bad"), return_exceptions=True)

    good, bad = asyncio.run(main())
    assert good == "abc"
    assert isinstance(bad, RequestFailedError)
    assert "NaN" in str(bad)


def test_dead_engine_is_told_to_those_who_wait_and_those_who_come(make_llm):
    llm, engine = make_llm()

    class Wrong:
        def allocate(self, *_):
            raise ZeroDivisionError("boom")

    wrong = Wrong()
    name_component(wrong, "allocator 'wrong' (octavo-wrong 1.0)")
    engine.on_step = wrong.allocate

    async def first():
        return await anext(llm.generate("x", DELTA))

    async def main():
        return await asyncio.gather(first(), first(), return_exceptions=True)

    errors = [*asyncio.run(main()), *asyncio.run(main())]
    assert all(isinstance(e, EngineDeadError) for e in errors), errors
    assert "the allocator 'wrong' (octavo-wrong 1.0) failed in allocate" in str(errors[0])
    assert "ZeroDivisionError: boom" in str(errors[0])
    assert f"at {__file__}:" in str(errors[0])
    _wait_until(lambda: engine.is_closed)


def test_closing_ends_iterations_and_threads(make_llm):
    llm, engine = make_llm(lambda _: [1] * 4000, pause_s=0.001)

    async def main():
        async with llm:
            stream = llm.generate("x", ENDLESS)
            await anext(stream)
        with pytest.raises(EngineDeadError, match="closed"):
            async for _ in stream:
                pass
        with pytest.raises(EngineDeadError, match="closed"):
            await anext(llm.generate("x", DELTA))

    asyncio.run(main())
    assert engine.is_closed
    llm.close()
    assert not [t for t in threading.enumerate() if t.name == "octavo-engine" and t.is_alive()]


def test_idle_engine_uses_no_cpu(make_llm):
    llm, engine = make_llm()
    asked = []  # has_work is asked in each turn of the engine's loop

    class Counting(type(engine)):
        @property
        def has_work(self):
            asked.append(1)
            return bool(self._running)

    engine.__class__ = Counting

    async def main():
        async for _ in llm.generate("abc", DELTA):
            pass

    asyncio.run(main())
    time.sleep(0.05)
    num_asked = len(asked)
    time.sleep(0.2)
    assert len(asked) == num_asked


def test_commands_run_in_the_engines_thread(make_llm):
    llm, engine = make_llm()
    names = []

    def reset():
        names.append(threading.current_thread().name)
        return True

    engine.reset_prefix_cache = reset

    async def main():
        return await llm.reset_prefix_cache(), await llm.get_metrics()

    was_reset, stats = asyncio.run(main())
    assert (was_reset, stats.num_running, names) == (True, 0, ["octavo-engine"])


# ---------------------------------------------------------------------- beam search


def test_a_beam_search_finds_the_likeliest_texts(make_llm):
    llm, engine = make_llm(lambda _: [1])

    async def main():
        params = BeamSearchParams(beam_width=2, max_tokens=3)
        return await asyncio.gather(*(llm.beam_search(text, params) for text in ("a", "bc")))

    for text, found in zip(("a", "bc"), asyncio.run(main()), strict=True):
        prompt = list(text.encode())
        assert [one.tokens[len(prompt) :] for one in found.sequences] == [[1, 1, 1], [1, 1, 2]]
        assert [one.cum_logprob for one in found.sequences] == pytest.approx([-0.6, -0.7])
        assert all(one.tokens[: len(prompt)] == prompt for one in found.sequences)
        assert found.sequences[0].text == f"{text}\x01\x01\x01"
        assert [next(iter(entry)) for entry in found.sequences[1].logprobs] == [1, 1, 2]
        assert {len(entry) for entry in found.sequences[1].logprobs} == {4}
        assert {one.finish_reason for one in found.sequences} == {"length"}
    assert llm._by_engine_id == {}
    assert len(engine.added) == 2 * (1 + 2 + 2)


def test_a_search_that_is_cancelled_or_aborted_leaves_nothing_behind(make_llm):
    llm, engine = make_llm(lambda _: [1], pause_s=0.001)
    params = BeamSearchParams(beam_width=3, max_tokens=4000)

    async def main():
        task = asyncio.create_task(llm.beam_search("a", params))
        await asyncio.to_thread(_wait_until, lambda: len(engine.added) >= 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        task = asyncio.create_task(llm.beam_search("a", params, "mine"))
        await asyncio.to_thread(_wait_until, lambda: len(engine.added) >= 40)
        await llm.abort("mine")
        return await task

    found = asyncio.run(main())
    assert [one.finish_reason for one in found.sequences] == ["abort"] * 3
    assert [one.tokens for one in found.sequences] == [[ord("a")]] * 3
    _wait_until(lambda: not engine.has_work)
    assert (llm._streams, llm._by_engine_id) == ({}, {})


def test_a_search_waits_for_its_turn_when_the_queue_is_full_half_way(make_llm):
    llm, _ = make_llm(lambda r: [1] * r.max_tokens, pause_s=0.001)
    params = BeamSearchParams(beam_width=2, max_tokens=3)

    async def main():
        others = [llm.generate("x", ENDLESS, f"other-{i}") for i in range(40)]
        for other in others:
            await anext(other)
        with pytest.raises(QueueFullError):  # nothing has begun
            await llm.beam_search("a", params)
        await others.pop().aclose()
        task = asyncio.create_task(llm.beam_search("a", params))
        await asyncio.sleep(0.06)
        assert not task.done()  # its second step would be two more requests
        await others.pop().aclose()
        found = await task
        for other in others:
            await other.aclose()
        return found

    found = asyncio.run(main())
    assert [one.tokens[1:] for one in found.sequences] == [[1, 1, 1], [1, 1, 2]]
