"""What the server process and the engine process say to each other.

A frame holds one msgpack message; no pickle, so that neither side can make the other run
anything. The first message is `Start`, answered once by `Ready` or `StartFailed`; then requests
and outputs go both ways. Closing the socket ends the engine.

Knows messages. Does not know sockets' owners, HTTP, or how an engine works.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from octavo import errors
from octavo.engine.messages import EngineInfo, EngineOutput, EngineRequest, EngineStats
from octavo.interfaces.adapter import AdapterSpec, AdapterUse
from octavo.interfaces.grammar import GrammarSpec, ReasoningSpec
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.serving.controls import Control, Controlled
from octavo.serving.framing import frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_PARAMS_DEFAULTS = {
    field.name: getattr(SamplingParams(), field.name)
    for field in dataclasses.fields(SamplingParams)
}
#: what the front end itself obeys
_LOCAL_PARAMS = (
    "output_kind", "logits_processors", "structured_outputs", "stream_interval",
    "truncation_side", "repetition_detection",
)  # fmt: skip


class WireError(msgspec.Struct, array_like=True, frozen=True):
    """A typed error as plain data: `kind` is the name of a class of `octavo.errors`."""

    kind: str
    headline: str
    facts: list[str]
    param: str | None = None


class WireParams(msgspec.Struct, array_like=True, frozen=True):
    """How requests are sampled, sent once for all that share it.

    `changed` holds the `SamplingParams` that differ from the defaults.
    """

    changed: dict[str, Any]
    stop_token_ids: frozenset[int]
    bad_words_ids: tuple[tuple[int, ...], ...]
    grammar: GrammarSpec | None
    reasoning: ReasoningSpec | None


class WireRequest(msgspec.Struct, array_like=True, frozen=True):
    """The rest of an `EngineRequest`. `prompt` and `params` are indices into the message."""

    request_id: str
    prompt: int
    params: int
    max_tokens: int
    seed: int
    arrival_s: float
    choice: int
    priority: int
    eos_token_ids: tuple[int, ...]
    cache_salt: str | None
    adapters: tuple[AdapterUse, ...]
    pooling: str | None
    metadata: dict[str, Any]


class Start(msgspec.Struct, tag="start"):
    """The resolved configuration, as JSON. The first message, sent once."""

    config_json: str


class Add(msgspec.Struct, tag="add"):
    """New requests of one call. Each is answered by its id in `Batch.accepted` or `rejected`.

    Prompts and parameters may be large, and n choices share them: each goes over once.
    """

    requests: list[WireRequest]
    prompts: list[list[int]]
    params: list[WireParams]


class Abort(msgspec.Struct, tag="abort"):
    """Forget these requests. Ids that are not there are ignored."""

    request_ids: list[str]


class Ping(msgspec.Struct, tag="ping"):
    """Is there progress? Answered at once by the reader, and then by the engine's loop."""

    ping_id: int


class GetStats(msgspec.Struct, tag="get-stats"):
    """Ask for a `Stats`, which the engine's loop sends between two steps."""


class Prepare(msgspec.Struct, tag="prepare"):
    """Make an adapter ready before a request brings it; answered by `Prepared`."""

    number: int
    adapter: AdapterSpec


class Discard(msgspec.Struct, tag="discard"):
    """Forget an adapter as soon as no request needs it."""

    adapter: AdapterSpec


class Ready(msgspec.Struct, tag="ready"):
    """The engine has started."""

    info: EngineInfo


class StartFailed(msgspec.Struct, tag="start-failed"):
    """The engine could not start; the process exits with `exit_code`."""

    error: WireError
    exit_code: int


class Batch(msgspec.Struct, tag="batch", omit_defaults=True):
    """News after a step: outputs, and what became of requests that were added before it."""

    outputs: list[EngineOutput] = []
    accepted: list[str] = []
    rejected: list[tuple[str, WireError]] = []


class Pong(msgspec.Struct, tag="pong"):
    """Where the engine is. `step_ms` is how long the step in progress has run, None between steps.

    `is_loop` tells the answer of the engine's loop from that of the thread that reads.
    """

    ping_id: int
    is_loop: bool
    step_ms: float | None
    predicted_ms: float


class Stats(msgspec.Struct, tag="stats"):
    """A snapshot of the engine's counters."""

    stats: EngineStats


class Prepared(msgspec.Struct, tag="prepared"):
    """The adapter of a `Prepare` is ready, or cannot be had."""

    number: int
    error: WireError | None = None


class Died(msgspec.Struct, tag="died"):
    """The engine's loop raised; the process is about to exit."""

    error: WireError


#: what requests may share beside their parameters, and what each has for itself
_SHARED_FIELDS = tuple(name for name in WireParams.__struct_fields__ if name != "changed")
_OWN_FIELDS = tuple(
    name for name in WireRequest.__struct_fields__ if name not in {"prompt", "params"}
)

ToEngine: TypeAlias = Start | Add | Abort | Ping | GetStats | Prepare | Discard | Control
FromEngine: TypeAlias = Ready | StartFailed | Batch | Pong | Stats | Prepared | Controlled | Died

_encoder = msgspec.msgpack.Encoder()
_decode_to_engine: Callable[[bytes], ToEngine] = msgspec.msgpack.Decoder(ToEngine).decode
_decode_from_engine: Callable[[bytes], FromEngine] = msgspec.msgpack.Decoder(FromEngine).decode


def encode_frame(message: ToEngine | FromEngine) -> bytes:
    """Return a message as one frame. Raises TypeError for values that msgpack cannot hold."""
    return frame(_encoder.encode(message))


def decode_to_engine(body: bytes) -> ToEngine:
    """Return the message in a frame's body, as the engine process reads it."""
    return _decode_to_engine(body)


def decode_from_engine(body: bytes) -> FromEngine:
    """Return the message in a frame's body, as the server process reads it."""
    return _decode_from_engine(body)


class _Distinct(Generic[T]):
    """What is to be sent, in the order in which its objects are first seen."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[tuple[int, ...], int] = {}

    def number_of(self, objects: tuple[object, ...], make: Callable[[], T]) -> int:
        """Return the index of what `make` makes of these very objects (they stay alive)."""
        key = tuple(map(id, objects))
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(make())
        return self._numbers[key]


def changed_params(params: SamplingParams) -> dict[str, Any]:
    """Return what differs from the defaults, of the parameters that mean something elsewhere."""
    changed: dict[str, Any] = {}
    for name, default in _PARAMS_DEFAULTS.items():
        value = getattr(params, name)
        if value != default and name not in _LOCAL_PARAMS:
            changed[name] = value
    return changed


def add_of(requests: Sequence[EngineRequest]) -> Add:
    """Return the message that adds requests; what is one object here will be one there.

    Raises UnsupportedError for what cannot leave a process.
    """
    prompts: _Distinct[list[int]] = _Distinct()
    params: _Distinct[WireParams] = _Distinct()
    wire = [
        WireRequest(
            prompt=prompts.number_of((one.prompt_token_ids,), partial(list, one.prompt_token_ids)),
            params=params.number_of(
                (one.params, *(getattr(one, name) for name in _SHARED_FIELDS)),
                partial(_params_to_wire, one),
            ),
            **{name: getattr(one, name) for name in _OWN_FIELDS},
        )
        for one in requests
    ]
    return Add(wire, prompts.values, params.values)


def requests_of(message: Add) -> list[EngineRequest]:
    """Return the requests that `add_of` was given; their outputs hold only what is new.

    Those that had a prompt or parameters in common have so again: nobody changes either.
    """
    params = [
        SamplingParams(**shared.changed, output_kind=RequestOutputKind.DELTA)
        for shared in message.params
    ]
    return [
        EngineRequest(
            prompt_token_ids=message.prompts[wire.prompt],
            params=params[wire.params],
            **{name: getattr(message.params[wire.params], name) for name in _SHARED_FIELDS},
            **{name: getattr(wire, name) for name in _OWN_FIELDS},
        )
        for wire in message.requests
    ]


def _params_to_wire(request: EngineRequest) -> WireParams:
    if request.params.logits_processors:
        raise errors.UnsupportedError(
            "logits_processors are callables, which cannot be sent to an engine process",
            "use the LLM class, which runs the engine in the calling process",
        )
    shared = {name: getattr(request, name) for name in _SHARED_FIELDS}
    return WireParams(changed_params(request.params), **shared)


def error_to_wire(error: BaseException) -> WireError:
    """Return an error as plain data; one that is not Octavo's own becomes an `EngineError`."""
    if not isinstance(error, errors.OctavoError):
        return WireError("EngineError", f"{type(error).__name__}: {error}", [])
    kind = next(cls.__name__ for cls in type(error).__mro__ if cls.__name__ in errors.__all__)
    return WireError(kind, error.headline, list(error.facts), getattr(error, "param", None))


def error_from_wire(wire: WireError) -> errors.OctavoError:
    """Return the error that `error_to_wire` was given."""
    cls: type[errors.OctavoError] = getattr(errors, wire.kind)
    if issubclass(cls, errors.RequestError):
        return cls(wire.headline, *wire.facts, param=wire.param)
    return cls(wire.headline, *wire.facts)
