"""Dialects that are wrong on purpose."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading

import pytest
from litestar import Response

from dialect_samples import OPENAI
from mutants import assert_killed, counter_examples, name_of
from octavo.errors import OctavoError
from octavo.interfaces.dialect import Dialect
from octavo.serving.streaming import EventStream
from octavo_plugins.dialects.openai.completions import CompletionApi
from octavo_plugins.dialects.shared.routes import answering

SAMPLE = tuple(call for call in OPENAI if call.path == "/v1/completions")


class Completions(Dialect):
    """One route of OpenAI's, and nothing wrong with it."""

    def routes(self, context):
        api = CompletionApi(context)

        async def handle(request):
            return await self.answer(request, api, context)

        return [answering("/v1/completions", handle)]

    async def answer(self, request, api, context):
        return await api.handle(request)


class KeepsHandlers(Completions):
    def routes(self, context):
        self.kept = getattr(self, "kept", None) or super().routes(context)
        return self.kept


class ReadsSettings(Completions):
    def routes(self, context):
        with tempfile.TemporaryFile("w+") as file:
            file.write("")
        return super().routes(context)


class StartsThreads(Completions):
    def routes(self, context):
        threading.Thread(target=threading.Event().wait, args=(5,), daemon=True).start()
        return super().routes(context)


class CountsFirst(Completions):
    """Counts a prompt's tokens before it is handed on."""

    async def answer(self, request, api, context):
        prompt = json.loads(await request.body() or b"{}").get("prompt")
        if isinstance(prompt, str):
            context.models[0].tokenizer.encode(prompt)
        return await api.handle(request)


class Deaf(Completions):
    """Never hears that its client left, and goes on in a task that nobody cancels."""

    async def answer(self, request, api, context):
        await request.body()
        request.receive = asyncio.Event().wait
        return await asyncio.shield(asyncio.create_task(api.handle(request)))


class _Rewriting(Completions):
    async def answer(self, request, api, context):
        raw = await request.body()
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            return await api.handle(request)
        if isinstance(body, dict):
            request._body = json.dumps(self.rewritten(body)).encode()
        return await api.handle(request)


class ReadsWhatItKnows(_Rewriting):
    def rewritten(self, body):
        known = {"model", "prompt", "max_tokens", "temperature", "stop", "stream"}
        return {key: value for key, value in body.items() if key in known}


class AlwaysCold(_Rewriting):
    """Has a temperature of its own."""

    def rewritten(self, body):
        return body | {"temperature": 0}


class Arithmetic(_Rewriting):
    """Trusts that a number is one."""

    def rewritten(self, body):
        return body | {"max_tokens": body.get("max_tokens", 5) + 1}


class Believing(Completions):
    """Takes each body for an object."""

    async def answer(self, request, api, context):
        dict(json.loads(await request.body()))
        return await api.handle(request)


class ShapeOfItsOwn(Completions):
    async def answer(self, request, api, context):
        try:
            return await api.handle(request)
        except OctavoError as error:
            return Response({"fault": error.headline}, status_code=error.http_status)


class SaysNothing(Completions):
    async def answer(self, request, api, context):
        try:
            return await api.handle(request)
        except OctavoError as error:
            return Response({"error": {"code": 7}}, status_code=error.http_status)


class EndsSilently(Completions):
    """Tells no client of a stream that failed."""

    async def answer(self, request, api, context):
        reply = await api.handle(request)
        if not isinstance(reply, EventStream):
            return reply
        events = reply._events

        async def quiet():
            async for part in events:
                if b'"error"' not in part:
                    yield part

        return EventStream(quiet())


MUTANTS = [
    (KeepsHandlers, "H1"),
    (ReadsSettings, "H1"),
    (StartsThreads, "H1"),
    (CountsFirst, "H2"),
    (Deaf, "H3"),
    (ReadsWhatItKnows, "H4"),
    (AlwaysCold, "H4"),
    (Arithmetic, "H4"),
    (Believing, "H5"),
    (ShapeOfItsOwn, "H5"),
    (SaysNothing, "H5"),
    (EndsSilently, "H5"),
]


@pytest.mark.parametrize(("mutant", "number"), MUTANTS, ids=name_of)
def test_a_wrong_dialect_is_killed(mutant, number):
    assert_killed("dialect", mutant, number, sample=SAMPLE)


@pytest.mark.parametrize("number", ["H1", "H2", "H3", "H4", "H5"])
def test_the_right_one_is_not(number):
    assert counter_examples("dialect", Completions, number, sample=SAMPLE) == {}


HEAVY = """
import torch

from octavo.interfaces.dialect import Dialect


class Heavy(Dialect):
    def routes(self, context):
        return []
"""


def test_a_heavy_dialect_is_killed(tmp_path):
    (tmp_path / "heavy.py").write_text(HEAVY)

    found = counter_examples("dialect", f"{tmp_path}/heavy.py:Heavy", "H6")
    assert found["its_target_is_light"].endswith("heavy.py:Heavy imports torch")
