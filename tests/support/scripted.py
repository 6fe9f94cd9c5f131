"""A tokenizer of bytes and a few words, and an engine that emits given ids: the FORCE of tests."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from octavo.engine.messages import (
    EngineInfo,
    EngineOutput,
    EngineRequest,
    EngineStats,
    TokenLogprobs,
)
from octavo.errors import QueueFullError, RequestError
from octavo.interfaces.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    #: from a request to the ids it emits
    Script = Callable[[EngineRequest], Sequence[int]]

EOS = 256
END_OF_TURN = 257
BOS = 258
THINK = 259
END_THINK = 260
_MARKERS = {
    EOS: "<|end|>", END_OF_TURN: "<|eot|>", BOS: "<s>", THINK: "<think>", END_THINK: "</think>",
}  # fmt: skip
WORDS = (" one", " two", " three", "hello", " hello", "Good day ", "\u6f22\u5b57", "stop", " END")
FIRST_WORD = 261
VOCAB_SIZE = FIRST_WORD + len(WORDS)


class BytesTokenizer(Tokenizer):
    """Ids 0 to 255 are bytes, then markers, then words (longest first when encoding)."""

    def __init__(self, *, strips_leading_space: bool = False, adds_bos: bool = False) -> None:
        self._strips = strips_leading_space
        self._adds_bos = adds_bos
        self._bytes = {i: bytes([i]) for i in range(256)}
        self._bytes |= {i: text.encode() for i, text in _MARKERS.items()}
        self._bytes |= {FIRST_WORD + i: word.encode() for i, word in enumerate(WORDS)}
        self._longest_first = sorted(
            ((data, i) for i, data in self._bytes.items() if i >= 256), key=lambda one: -len(one[0])
        )

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        data = text.encode("utf-8", "replace")
        ids = [BOS] if self._adds_bos and add_special_tokens else []
        while data:
            for piece, token_id in self._longest_first:
                if data.startswith(piece):
                    ids.append(token_id)
                    data = data[len(piece) :]
                    break
            else:
                ids.append(data[0])
                data = data[1:]
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        skipped = self.special_ids if skip_special_tokens else frozenset()
        data = b"".join(self.token_bytes(i) for i in ids if i not in skipped)
        text = data.decode("utf-8", "replace")
        return text.removeprefix(" ") if self._strips else text

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes.get(token_id, b"")

    def id_to_token(self, token_id: int) -> str | None:
        return self.token_text(token_id) if token_id in self._bytes else None

    def token_to_id(self, token: str) -> int | None:
        return next((i for i, data in self._bytes.items() if data == token.encode()), None)

    @property
    def vocab_size(self) -> int:
        return VOCAB_SIZE

    @property
    def has_exact_bytes(self) -> bool:
        return True

    @property
    def strips_leading_space(self) -> bool:
        return self._strips

    @property
    def bos_token_id(self) -> int | None:
        return BOS

    @property
    def eos_token_id(self) -> int | None:
        return EOS

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset({EOS})

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset({EOS, END_OF_TURN, BOS})

    @property
    def special_tokens(self) -> Mapping[str, str]:
        return {"eos_token": _MARKERS[EOS], "bos_token": _MARKERS[BOS]}

    @property
    def chat_templates(self) -> Mapping[str, str]:
        return {
            "default": "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant] {% endif %}"
        }


class WordsTokenizer(BytesTokenizer):
    """Decodes as WordPiece does: a space before each word, none before `##` pieces."""

    pieces = ("play", "##ing", "good", "\ufffd", "##s", "a")

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        del skip_special_tokens
        words = [self.pieces[i] for i in ids]
        rest = [w[2:] if w.startswith("##") else " " + w for w in words[1:]]
        return "".join(words[:1] + rest)

    @property
    def has_exact_bytes(self) -> bool:
        return False


class ScriptedEngine:
    """Has `octavo.engine.engine.Engine`'s methods; emits `script(request)`, as an engine would:
    it stops by id (after min_tokens) and by length, `tokens_per_step` ids a step."""

    def __init__(
        self, script: Script, info: EngineInfo | None = None, *, tokens_per_step: int = 1
    ) -> None:
        self.info = info or EngineInfo(VOCAB_SIZE, max_model_len=4096, capacity_tokens=4096)
        self.script = script
        self.tokens_per_step = tokens_per_step
        self.added: list[EngineRequest] = []
        self.aborted: list[str] = []
        self.on_step: Callable[[int], None] = lambda _: None
        self.num_steps = 0
        self.is_closed = False
        self._running: dict[str, tuple[EngineRequest, deque[int], int]] = {}

    def add(self, request: EngineRequest) -> None:
        if len(self._running) >= self.info.max_num_queued_reqs:
            raise QueueFullError("too many requests wait")
        if request.request_id in self._running:
            raise RequestError("request id is in use", param="request_id")
        self.added.append(request)
        self._running[request.request_id] = (request, deque(self.script(request)), 0)

    def abort(self, request_ids: Iterable[str]) -> list[EngineOutput]:
        outputs = []
        for request_id in request_ids:
            self.aborted.append(request_id)
            if self._running.pop(request_id, None) is not None:
                outputs.append(EngineOutput(request_id, [], finish_reason="abort"))
        return outputs

    @property
    def has_work(self) -> bool:
        return bool(self._running)

    def wait(self) -> bool:
        return False

    def on_ready(self, call: Callable[[], None]) -> None:
        """Nothing is ever held."""

    def step(self) -> list[EngineOutput]:
        self.num_steps += 1
        self.on_step(self.num_steps)
        return [self._advance(request_id) for request_id in list(self._running)]

    def _advance(self, request_id: str) -> EngineOutput:
        request, queue, num_done = self._running[request_id]
        ids: list[int] = []
        reason = None
        while reason is None and queue and len(ids) < self.tokens_per_step:
            ids.append(queue.popleft())
            num_done += 1
            reason = _stop(request, ids[-1], num_done)
        if not queue and reason is None:
            reason = "length"
        self._running[request_id] = (request, queue, num_done)
        if reason is not None:
            del self._running[request_id]
        output = EngineOutput(request_id, ids, finish_reason=reason)
        if reason == "stop" and ids[-1] in request.stop_token_ids:
            output.stop_reason = ids[-1]
        if request.params.logprobs is not None:
            output.logprobs = [_logprobs(i, request.params.logprobs) for i in ids]
        if request.params.prompt_logprobs is not None and num_done == len(ids):
            prompt = request.prompt_token_ids
            scored = [_logprobs(i, request.params.prompt_logprobs) for i in prompt[1:]]
            output.prompt_logprobs = [None, *scored]
        return output

    def stats(self) -> EngineStats:
        return EngineStats(num_running=len(self._running), step=self.num_steps)

    def reset_prefix_cache(self) -> bool:
        return not self._running

    def close(self) -> None:
        self.is_closed = True


def _stop(request: EngineRequest, token_id: int, num_done: int) -> str | None:
    stops = (*request.eos_token_ids, *request.stop_token_ids)
    if num_done >= request.params.min_tokens and token_id in stops:
        return "stop"
    return "length" if num_done >= request.max_tokens else None


def _logprobs(token_id: int, num_top: int) -> TokenLogprobs:
    """Token `i` has log-probability -(i + 1) / 10; the best are ids 1, 2, ... of rank 1, 2, ..."""
    best = list(range(1, num_top + 1))
    return TokenLogprobs(
        token_id, -(token_id + 1) / 10, token_id, best, [-(i + 1) / 10 for i in best]
    )
