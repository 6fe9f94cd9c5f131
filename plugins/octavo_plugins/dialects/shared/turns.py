"""A conversation's way to the engine: its prompt, what may come in the turn, and the call itself.

Knows conversations, tools and generations. Does not know the shapes of any API.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError
from octavo.frontend.preprocess import Call
from octavo.frontend.turns import ToolChoice, Turn, TurnRequest
from octavo.sampling_params import RequestOutputKind
from octavo.serving.generation import in_thread_if_long, start_generation
from octavo_plugins.dialects.shared.calls import with_salt
from octavo_plugins.dialects.shared.conversations import check_messages, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.interfaces.parser import ToolSpec
    from octavo.sampling_params import SamplingParams
    from octavo.serving.context import Target
    from octavo.serving.generation import Generation
    from octavo.serving.models import ServedModel
    from octavo_plugins.dialects.shared.bodies import Decoded
    from octavo_plugins.dialects.shared.conversations import Conversation
    from octavo_plugins.dialects.shared.identity import Identity

_UNHELD = "tools.strict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request asks of a turn, checked before its prompt is rendered.

    `params` may hold a form; it wins over that of a call which `choice` requires. With
    `length_penalty` the choices are found by a beam search.
    """

    conversation: Conversation
    params: SamplingParams
    tools: Sequence[ToolSpec] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    add_special_tokens: bool = False
    length_penalty: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


async def rendered(asked: Asked, model: ServedModel, num_bytes: int) -> str:
    """Return the prompt of a conversation. Raises RequestError.

    Tools that may not be called are not shown to the model either.
    """
    conversation = asked.conversation
    check_messages(conversation.messages, model)
    if asked.choice.mode == "none":
        conversation = replace(conversation, tools=None)
    return await in_thread_if_long(num_bytes, lambda: render(conversation, model))


def turn_of(asked: Asked, model: ServedModel, prompt: str) -> Turn:
    """Return the turn that is to follow a prompt. Raises RequestError."""
    request = TurnRequest(
        prompt=prompt,
        tools=asked.tools,
        choice=asked.choice,
        template_kwargs=asked.conversation.template_kwargs,
    )
    return Turn(model.parsers, request)


async def start_turn(
    decoded: Decoded[Any], asked: Asked, target: Target, identity: Identity, *, is_strict: bool
) -> tuple[Turn, Generation]:
    """Hand a conversation to the engine. Raises as `start_generation` does.

    Schemas that are to be strict and cannot be held to are reported; refused where `is_strict`. A
    call that is required is what was asked for: no stop string ends it, or the reasoning before.
    """
    body, model = decoded.body, target.model
    prompt = await rendered(asked, model, decoded.num_bytes)
    turn = turn_of(asked, model, prompt)
    params = asked.params
    if params.structured_outputs is None:
        _note_unheld(turn, decoded, is_strict=is_strict)
        params = replace(params, structured_outputs=turn.form)
    if turn.is_call:
        params = replace(params, stop=None)
    call = Call(
        request_id=identity.call_id,
        prompt=with_salt(prompt, body),
        params=params,
        arrival_s=time.monotonic(),
        priority=body.priority or 0,
        lora_request=target.adapters,
        add_special_tokens=asked.add_special_tokens,
        reasoning=turn.reasoning_marks,
        visible_markers=turn.visible_markers,
        length_penalty=asked.length_penalty,
        metadata=asked.metadata,
    )
    kind = RequestOutputKind.DELTA if body.stream else RequestOutputKind.FINAL_ONLY
    return turn, await start_generation(model, [call], kind)


def _note_unheld(turn: Turn, decoded: Decoded[Any], *, is_strict: bool) -> None:
    """Report, or refuse, strict schemas that nothing holds the model to (H4)."""
    if not turn.unheld_tools:
        return
    if is_strict:
        raise RequestError(
            f"the schema of '{turn.unheld_tools[0]}' cannot be held to: the family of this "
            "model does not write arguments as JSON behind a mark of their own",
            "leave `strict` out, or set tool_choice to 'required'",
            param="tools",
        )
    decoded.ignored.append(_UNHELD)
