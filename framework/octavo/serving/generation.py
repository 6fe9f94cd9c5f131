"""One HTTP call's way through the engine: checked, tokenised, run, turned back into text.

Every dialect generates through this module, so that aborts, metrics and errors are the same for
all. Knows prompts, engine streams and outputs. Does not know HTTP or any dialect's shapes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from octavo.errors import OctavoError, RequestError
from octavo.frontend.output_processor import OutputProcessor
from octavo.serving.beam_searches import start_searches
from octavo.serving.deadlines import deadline_var
from octavo.serving.http_errors import ClientGoneError
from octavo.serving.logs import shorten
from octavo.serving.protocol import changed_params

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.engine.messages import EngineInfo, EngineOutput
    from octavo.frontend.outputs import RequestOutput
    from octavo.frontend.preprocess import Call, CheckedParams, PreparedCall
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.sampling_params import RequestOutputKind, SamplingParams
    from octavo.serving.metrics import ModelMetrics
    from octavo.serving.models import ServedModel
    from octavo.serving.streams import OutputStream

T = TypeVar("T")

_logger = logging.getLogger("octavo.requests")

#: calls of more characters and ids than this are prepared in a thread: some 10 ms of work
_THREAD_LENGTH = 20_000
#: a text is refused unread only when it is this many times longer than could ever fit
_HOPELESS_FACTOR = 2


@dataclass(slots=True)
class _Times:
    """When things happened to one sequence, in monotonic seconds."""

    arrival_s: float
    first_token_s: float | None = None
    last_token_s: float | None = None
    num_tokens: int = 0
    finished_s: float | None = None
    is_reported: bool = False


@dataclass(slots=True)
class _Prompt:
    """One prompt of the call and what follows its choices."""

    call: PreparedCall
    processor: OutputProcessor
    times: list[_Times] = field(default_factory=list)


class Generation:
    """An async iterator of (index of the prompt, what is new of it), until all has ended.

    Raises RequestFailedError when the engine gave up on a sequence, EngineDeadError when it died,
    ClientGoneError after `abandon`, DeadlineError when its time is over. Call `close` on every way
    out; it aborts what still runs.
    """

    def __init__(
        self,
        calls: Sequence[PreparedCall],
        stream: OutputStream,
        model: ServedModel,
        kind: RequestOutputKind,
    ) -> None:
        self._stream = stream
        self._metrics: ModelMetrics = model.metrics
        self.prompts = [
            _Prompt(call, OutputProcessor(call, model.tokenizer, kind=kind)) for call in calls
        ]
        self._places: dict[str, tuple[int, int]] = {}
        for index, prompt in enumerate(self.prompts):
            for choice, request in enumerate(prompt.call.requests):
                self._places[request.request_id] = index, choice
                prompt.times.append(_Times(request.arrival_s))
        self._end_reason = "abort"
        self._ended_by: OctavoError | None = None
        self._timer: asyncio.TimerHandle | None = None
        deadline = deadline_var.get()
        if deadline is not None and deadline.at_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(deadline.at_s, lambda: self._end(deadline.error()))

    @property
    def calls(self) -> list[PreparedCall]:
        """Return the prepared calls, one a prompt."""
        return [prompt.call for prompt in self.prompts]

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> tuple[int, RequestOutput]:
        """Return what is new of one prompt."""
        while True:
            try:
                output = await anext(self._stream)
            except StopAsyncIteration:
                self._raise_if_ended()
                raise
            except OctavoError:
                self._end_reason = "error"
                raise
            self._raise_if_ended()
            index, news = self._absorb(output)
            if news is not None:
                return index, news

    def abandon(self) -> None:
        """The client has gone: abort, and end the iteration with ClientGoneError."""
        self._end(ClientGoneError("the client closed the connection"))

    def close(self) -> None:
        """Abort what still runs and count it. Twice is fine."""
        self._stream.close()
        if self._timer is not None:
            self._timer.cancel()
        now_s = time.monotonic()
        for times in (times for prompt in self.prompts for times in prompt.times):
            if not times.is_reported:
                times.is_reported = True
                self._metrics.sequence_finished(self._end_reason, now_s - times.arrival_s)

    def _end(self, error: OctavoError) -> None:
        """Abort, and end the iteration with an error; the first one counts."""
        self._ended_by = self._ended_by or error
        self.close()

    def _raise_if_ended(self) -> None:
        if self._ended_by is not None:
            raise self._ended_by

    def _absorb(self, output: EngineOutput) -> tuple[int, RequestOutput | None]:
        index, choice = self._places[output.request_id]
        prompt = self.prompts[index]
        now_s = time.monotonic()
        self._observe(prompt.times[choice], output, now_s)
        for request_id in prompt.processor.absorb(output, now_s):
            self._stream.end_sequence(request_id)
            prompt.times[choice].finished_s = now_s
        if output.finish_reason == "error":
            self._end_reason = "error"
            raise output.failure()
        news = prompt.processor.take()
        if news is not None:
            self._report(prompt, news)
        return index, news

    def _observe(self, times: _Times, output: EngineOutput, now_s: float) -> None:
        num_tokens = len(output.token_ids)
        if num_tokens:
            times.num_tokens += num_tokens
            if times.last_token_s is None:
                times.first_token_s = now_s
                self._metrics.first_token(now_s - times.arrival_s)
            else:
                self._metrics.next_tokens(now_s - times.last_token_s, num_tokens)
            times.last_token_s = now_s
        if output.finish_reason is not None:
            times.finished_s = now_s

    def _report(self, prompt: _Prompt, news: RequestOutput) -> None:
        """Count the sequences that have ended, with the reason that the client is told."""
        for one in news.outputs:
            times = prompt.times[one.index]
            if one.finish_reason is not None and not times.is_reported:
                times.is_reported = True
                ended_s = times.finished_s or time.monotonic()
                self._metrics.sequence_finished(one.finish_reason, ended_s - times.arrival_s)
                decode_s = (times.last_token_s or 0.0) - (times.first_token_s or 0.0)
                num_prompt = len(prompt.call.prompt_token_ids)
                self._metrics.sequence_measured(num_prompt, times.num_tokens, decode_s)


async def start_generation(
    model: ServedModel, calls: Sequence[Call], kind: RequestOutputKind
) -> Generation:
    """Check and tokenise the calls, one a prompt, and hand them to the engine as one.

    Returns when the engine has accepted all of them. Raises RequestError for a bad call,
    QueueFullError and EngineDeadError as the client does; nothing runs then.
    """
    _check_number(sum(call.params.n for call in calls), model.preprocessor.info)
    prepared: list[PreparedCall] = []
    for call in calls:
        if prepared:
            await asyncio.sleep(0)  # others have their turn between two of many prompts
        checked = prepared[-1].checked if prepared else None
        prepared.append(await _prepare(model, call, checked))
    if model.max_log_len is not None:
        _log(prepared, model.max_log_len)
    if prepared[0].search is not None:
        stream = await start_searches(model.client, prepared, model.tokenizer)
    else:
        stream = await model.client.generate([one for call in prepared for one in call.requests])
    return Generation(prepared, stream, model, kind)


def _check_number(num_sequences: int, info: EngineInfo) -> None:
    """Raise RequestError for a call of more sequences than could ever wait at once.

    Later the engine would refuse it too, but only after much work for each of them.
    """
    limit = info.max_num_queued_reqs
    if num_sequences > limit:
        raise RequestError(
            f"the request asks for {num_sequences} sequences (prompts times n), "
            f"and at most {limit} are taken at once",
            "send fewer, or raise max-num-queued-reqs",
            param="n",
        )


def _log(calls: Sequence[PreparedCall], max_chars: int) -> None:
    """Log the beginning of each prompt, and what was asked for beside the defaults."""
    for call in calls:
        entry = {
            "call": call.request_id,
            "tokens": len(call.prompt_token_ids),
            "params": changed_params(call.checked.given),
            **beside_params(call, max_chars),
            "prompt": "(ids)" if call.prompt is None else shorten(call.prompt, max_chars),
        }
        _logger.info("generate", extra={"fields": entry})


def beside_params(call: PreparedCall, max_chars: int) -> dict[str, Any]:
    """Return what else decides on an answer: its form, adapters, turn, or way of pooling."""
    asked: dict[str, Any] = {}
    form, request = call.checked.given.structured_outputs, call.requests[0]
    if form is not None:
        values = {one.name: getattr(form, one.name) for one in fields(form)}
        given = {name: value for name, value in values.items() if value not in (None, False)}
        asked["structured_outputs"] = shorten(str(given), max_chars)
    if request.adapters:
        asked["adapters"] = {use.spec.name: use.scale for use in request.adapters}
    penalty = None if call.search is None else call.search.length_penalty
    beside = ("priority", request.priority or None), ("pooling", request.pooling)
    others = (*beside, ("length_penalty", penalty))
    return asked | {name: value for name, value in others if value is not None}


async def in_thread_if_long(length: int, function: Callable[[], T]) -> T:
    """Return what a function of a text returns; a long text is worked on in a thread."""
    return await asyncio.to_thread(function) if length > _THREAD_LENGTH else function()


async def _prepare(model: ServedModel, call: Call, checked: CheckedParams | None) -> PreparedCall:
    prompt = call.prompt
    content = prompt.get("prompt") or prompt.get("prompt_token_ids") or () if isinstance(
        prompt, dict
    ) else prompt  # fmt: skip
    num_items = len(content)
    if checked is None:
        num_items += _num_items(call.params)
    if num_items <= _THREAD_LENGTH:
        return model.preprocessor.prepare(call, checked)
    if isinstance(content, str) and call.params.truncate_prompt_tokens is None:
        await asyncio.to_thread(refuse_hopeless, content, model.tokenizer, model.max_model_len)
    return await asyncio.to_thread(model.preprocessor.prepare, call, checked)


def _num_items(params: SamplingParams) -> int:
    """Return how long the lists of ids and of words are together."""
    lists = (params.logit_bias, params.allowed_token_ids, params.stop_token_ids)
    return sum(map(len, params.bad_words or ())) + sum(len(one) for one in lists if one)


def refuse_hopeless(text: str, tokenizer: Tokenizer, max_model_len: int) -> None:
    """Raise RequestError for a text so long that tokenising it would only waste time (B118).

    Every token stands for at most so many bytes as the longest one of the vocabulary.
    """
    if not tokenizer.has_exact_bytes or len(text) < max_model_len:
        return
    longest = max(len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size))
    num_tokens = len(text.encode("utf-8", "replace")) // max(1, longest * _HOPELESS_FACTOR)
    if num_tokens > max_model_len:
        raise RequestError(
            f"This model's maximum context length is {max_model_len} tokens. "
            f"However, your prompt has {len(text)} characters, which are at least "
            f"{num_tokens} tokens.",
            "shorten the prompt",
            param="prompt",
        )
