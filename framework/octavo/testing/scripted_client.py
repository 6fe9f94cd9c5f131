"""A served model without an engine: a tokenizer of bytes, and a client that answers by script.

What a dialect asks for is noted, and so is what was aborted.

Knows the server's parts around a dialect. Does not know HTTP or any dialect.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.engine.messages import EngineInfo, EngineOutput, EngineStats
from octavo.errors import EngineDeadError
from octavo.frontend.defaults import GenerationDefaults
from octavo.interfaces.tokenizer import Tokenizer
from octavo.serving.client import EngineClient, EngineState
from octavo.serving.models import ServedModel
from octavo.serving.plans import ModelPlan, Texts
from octavo.serving.streams import OutputStream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo.config.schema import ServerConfig
    from octavo.engine.messages import EngineRequest
    from octavo.interfaces.adapter import AdapterSpec
    from octavo.serving.process import EngineProcess

NAME = "tiny"
EOS = 256
_VOCAB = 257
_MAX_MODEL_LEN = 1_000_000
#: texts from here on take so long to tokenise that the event loop must not wait for it
LONG_CHARS = 40_000


class ByteTokenizer(Tokenizer):
    """Ids 0 to 255 are bytes, 256 ends a text. `threads`: those that long texts were read in."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the bytes of a text; a lone surrogate is read as a question mark."""
        del add_special_tokens
        if len(text) >= LONG_CHARS:
            self.threads.add(threading.get_ident())
        return list(text.encode("utf-8", "replace"))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of bytes."""
        del skip_special_tokens
        return bytes(one for one in ids if one < EOS).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return one byte, or nothing."""
        return bytes([token_id]) if 0 <= token_id < EOS else b""

    def id_to_token(self, token_id: int) -> str | None:
        """Return the byte as a character, and a marker for the end."""
        if not 0 <= token_id < _VOCAB:
            return None
        return chr(token_id) if token_id < EOS else "<end>"

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a spelling."""
        return next((one for one in range(_VOCAB) if self.id_to_token(one) == token), None)

    @property
    def vocab_size(self) -> int:
        """Return 257."""
        return _VOCAB

    @property
    def has_exact_bytes(self) -> bool:
        """Return True."""
        return True

    @property
    def strips_leading_space(self) -> bool:
        """Return False."""
        return False

    @property
    def bos_token_id(self) -> int | None:
        """Return None."""
        return None

    @property
    def eos_token_id(self) -> int | None:
        """Return 256."""
        return EOS

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Return 256 alone."""
        return frozenset({EOS})

    @property
    def special_ids(self) -> frozenset[int]:
        """Return 256 alone."""
        return frozenset({EOS})

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Return how the end is spelt."""
        return {"eos_token": "<end>"}

    @property
    def chat_templates(self) -> Mapping[str, str]:
        """Return none: conversations are rendered by `PlainChat`."""
        return {}


class PlainChat:
    """Renders a conversation as its contents, one a line."""

    template_text = "content"

    def render(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> str:
        """Return the prompt."""
        return "\n".join(str(message.get("content")) for message in messages)


@dataclass(slots=True)
class Script:
    """What the engine does: emits so many tokens, one at a time.

    After `pauses_at` tokens it waits for ever, after `fails_at` it gives up on the request.
    `is_dead`: there is no engine.
    """

    num_tokens: int = 6
    pauses_at: int | None = None
    fails_at: int | None = None
    is_dead: bool = False


class ScriptedClient(EngineClient):
    """Answers requests as its script says; `added` and `aborted` hold ids of requests."""

    def __init__(self, script: Script) -> None:
        super().__init__("{}")
        self.script = script
        self.added: list[str] = []
        self.aborted: list[str] = []
        self._feeding: set[asyncio.Task[None]] = set()

    async def start(self, process: EngineProcess | None = None) -> EngineInfo:
        """Return the facts of a model with a long context."""
        del process
        return self.info

    @property
    def state(self) -> EngineState:
        """Return READY, or FAILED for an engine that is dead."""
        return EngineState.FAILED if self.script.is_dead else EngineState.READY

    @property
    def info(self) -> EngineInfo:
        """Return what an engine would say of itself."""
        return EngineInfo(_VOCAB, _MAX_MODEL_LEN, _MAX_MODEL_LEN)

    @property
    def num_calls(self) -> int:
        """Return how many calls run."""
        return len(self._feeding)

    async def generate(
        self, requests: Sequence[EngineRequest], *, goes_on: bool = False
    ) -> OutputStream:
        """Begin to answer."""
        del goes_on
        self._require_engine()
        ids = [request.request_id for request in requests]
        self.added += ids
        stream = OutputStream(ids, self.abort)
        task = asyncio.create_task(self._feed(stream, requests))
        self._feeding.add(task)
        task.add_done_callback(self._feeding.discard)
        return stream

    def follow(self, request_ids: Sequence[str], stream: OutputStream) -> None:
        """Nobody asks what runs."""

    def abort(self, request_ids: list[str]) -> None:
        """Note what is aborted."""
        self.aborted += request_ids

    async def stats(self) -> EngineStats:
        """Return counters."""
        self._require_engine()
        return EngineStats()

    async def prepare(self, adapter: AdapterSpec) -> None:
        """Every adapter is ready."""

    def discard(self, adapter: AdapterSpec) -> None:
        """No adapter was kept."""

    async def ping(self, timeout_s: float = 0.0) -> None:
        """Return at once. Raises EngineDeadError for an engine that is dead."""
        del timeout_s
        self._require_engine()

    async def close(self) -> None:
        """End what is being answered."""
        tasks = list(self._feeding)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _require_engine(self) -> None:
        if self.script.is_dead:
            raise EngineDeadError("the engine died", "it is scripted to be dead")

    async def _feed(self, stream: OutputStream, requests: Sequence[EngineRequest]) -> None:
        script = self.script
        for number in range(max(1, *(one.max_tokens for one in requests))):
            await asyncio.sleep(0)
            is_pooled = requests[0].pooling is not None  # there are no tokens to wait after
            if number == script.pauses_at or (is_pooled and script.pauses_at is not None):
                await asyncio.Event().wait()
            for one in requests:
                stream.feed(_news(one, number, script))


def _news(request: EngineRequest, number: int, script: Script) -> EngineOutput:
    """Return what is new of a request with its token of this number; later ones are not heard."""
    is_pooled = request.pooling is not None
    if number == script.fails_at or (is_pooled and script.fails_at is not None):
        error = "the logits of this request were NaN"
        return EngineOutput(request.request_id, [], finish_reason="error", error=error)
    if is_pooled:
        vector = struct.pack("<4f", *range(1, 5))
        return EngineOutput(request.request_id, [], finish_reason="stop", pooled=vector)
    if number == script.num_tokens:
        return EngineOutput(request.request_id, [EOS], finish_reason="stop")
    token_id = ord("a") + number % 26
    is_last = number + 1 == request.max_tokens
    return EngineOutput(request.request_id, [token_id], finish_reason="length" if is_last else None)


async def scripted_model(settings: ServerConfig, script: Script) -> ServedModel:
    """Return a loaded model called `tiny` whose engine is a script."""
    texts = Texts(ByteTokenizer(), GenerationDefaults(), PlainChat())
    plan = ModelPlan(names=(NAME,), engine_config_json="{}", load_texts=lambda: texts)
    model = ServedModel(plan, settings)
    model.client = ScriptedClient(script)
    await model.load()
    return model
