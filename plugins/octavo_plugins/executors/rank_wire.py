"""What an executor and the processes of its ranks say to each other.

A frame is four bytes of length and one msgpack message, as between server and engine. Each of
`Load`, `Rehearse` and `Run` is answered once by every rank, in order; `Prepare` is answered
whenever its resource is ready, under its number. Closing the socket ends the rank.

Knows messages. Does not know processes, or how a rank works.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from octavo.engine.plan import RowSpec, RowStart, StepPlan, StepResult
from octavo.interfaces.adapter import AdapterSpec
from octavo.interfaces.executor import ExecutorFacts
from octavo.interfaces.grammar import GrammarSpec
from octavo.serving.framing import frame
from octavo.serving.protocol import WireError

if TYPE_CHECKING:
    from collections.abc import Callable


class Load(msgspec.Struct, tag="load"):
    """Load a share of the model. The first message; `folder` is where the ranks meet."""

    config_json: str
    rank: int
    size: int
    folder: str


class Rehearse(msgspec.Struct, tag="rehearse"):
    """Run a step over meaningless tokens, to measure what it costs."""

    num_tokens: int
    context: int


class Start(msgspec.Struct, array_like=True, frozen=True):
    """A `RowStart`. `spec` is an index into the message; `seed` and `choice` are its own."""

    row: int
    request_id: str
    token_ids: list[int]
    spec: int
    seed: int
    choice: int


class Run(msgspec.Struct, tag="run"):
    """Run a step. The plan's starts are beside it, as sequences of one request share their specs.

    Parameters may be large: each goes over once.
    """

    plan: StepPlan
    starts: list[Start] = msgspec.field(default_factory=list)
    specs: list[RowSpec] = msgspec.field(default_factory=list)


class Prepare(msgspec.Struct, tag="prepare"):
    """Make a grammar or an adapter ready beside the steps."""

    number: int
    grammar: GrammarSpec | None = None
    adapter: AdapterSpec | None = None


class Discard(msgspec.Struct, tag="discard"):
    """Forget a grammar or an adapter. Not answered."""

    grammar: GrammarSpec | None = None
    adapter: AdapterSpec | None = None


class Limits(msgspec.Struct, frozen=True):
    """The largest step that a rank can run."""

    max_num_tokens: int
    max_model_len: int


class Loaded(msgspec.Struct, tag="loaded"):
    """The share is loaded; costs are still to be measured."""

    limits: Limits
    facts: ExecutorFacts


class Refused(msgspec.Struct, tag="refused"):
    """The share could not be loaded; the process exits."""

    error: WireError


class Rehearsed(msgspec.Struct, tag="rehearsed"):
    """A step over meaningless tokens is done."""


class Stepped(msgspec.Struct, tag="stepped"):
    """A step is done. `check` is a sum over its tokens, equal on all ranks; rank 0 has the rest."""

    check: int
    result: StepResult | None = None


class Prepared(msgspec.Struct, tag="prepared"):
    """A resource is ready, or why it cannot be."""

    number: int
    digest: str = ""
    error: WireError | None = None


class Failed(msgspec.Struct, tag="failed"):
    """The rank is about to exit. `is_peer_lost`: because another one had gone."""

    text: str
    is_peer_lost: bool


ToRank: TypeAlias = Load | Rehearse | Run | Prepare | Discard
Reply: TypeAlias = Loaded | Rehearsed | Stepped
FromRank: TypeAlias = Loaded | Refused | Rehearsed | Stepped | Prepared | Failed

_encoder = msgspec.msgpack.Encoder()
_decode_to_rank: Callable[[bytes], ToRank] = msgspec.msgpack.Decoder(ToRank).decode
_decode_from_rank: Callable[[bytes], FromRank] = msgspec.msgpack.Decoder(FromRank).decode


def encode(message: ToRank | FromRank) -> bytes:
    """Return a message as one frame."""
    return frame(_encoder.encode(message))


def plan_of(message: Run) -> StepPlan:
    """Return the plan with its starts; what was shared before is shared again."""
    starts = [
        RowStart(
            one.row,
            one.request_id,
            one.token_ids,
            replace(message.specs[one.spec], seed=one.seed, choice=one.choice),
        )
        for one in message.starts
    ]
    return replace(message.plan, starts=starts)


def why_not(spec: RowSpec) -> str | None:
    """Return why a request cannot be sent to another process; None when it can."""
    try:
        _encoder.encode(spec)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"a value of this request cannot be sent to the ranks: {error}"
    return None


def decode_to_rank(body: bytes) -> ToRank:
    """Return the message in a frame's body, as a rank reads it."""
    return _decode_to_rank(body)


def decode_from_rank(body: bytes) -> FromRank:
    """Return the message in a frame's body, as the executor reads it."""
    return _decode_from_rank(body)


def resource_of(message: Prepare | Discard) -> Any:
    """Return the one resource that a message names."""
    return message.grammar or message.adapter
