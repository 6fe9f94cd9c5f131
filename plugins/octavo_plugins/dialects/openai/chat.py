"""POST /v1/chat/completions: what is asked, on its way to the engine.

Knows chat's fields. Does not know how templates are rendered, tokens come about, or answers look.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError
from octavo.frontend.preprocess import Call
from octavo.frontend.turns import Turn, TurnRequest
from octavo.sampling_params import RequestOutputKind
from octavo.serving.generation import in_thread_if_long, start_generation
from octavo_plugins.dialects.openai.bodies import ChatBody
from octavo_plugins.dialects.openai.chat_answers import ChatAnswerWriter
from octavo_plugins.dialects.openai.forms import form_fields
from octavo_plugins.dialects.openai.params import call_metadata, chat_names, chat_params
from octavo_plugins.dialects.openai.tools import check_history, choice_of, tools_of
from octavo_plugins.dialects.shared.calls import renamed, with_salt
from octavo_plugins.dialects.shared.conversations import Conversation, check_messages, render
from octavo_plugins.dialects.shared.exchange import read_body, reply
from octavo_plugins.dialects.shared.identity import Identities

if TYPE_CHECKING:
    from litestar import Request, Response

    from octavo.frontend.turns import ToolChoice
    from octavo.interfaces.parser import ToolSpec
    from octavo.sampling_params import SamplingParams
    from octavo.serving.context import ServingContext, Target
    from octavo.serving.generation import Generation
    from octavo.serving.streaming import EventStream
    from octavo_plugins.dialects.shared.bodies import Decoded
    from octavo_plugins.dialects.shared.identity import Identity

_UNHELD = "tools.strict"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a body asks of the turn, checked before its prompt is rendered."""

    params: SamplingParams
    tools: list[ToolSpec]
    choice: ToolChoice
    conversation: Conversation


class ChatApi:
    """Answers chats."""

    def __init__(self, context: ServingContext) -> None:
        self._context = context
        self._identities = Identities("chatcmpl-")

    async def handle(self, request: Request[Any, Any, Any]) -> Response[bytes] | EventStream:
        """Answer one request."""
        decoded = await read_body(request, ChatBody, self._context)
        body = decoded.body
        names = chat_names(body)
        with renamed(names):
            target = await self._context.target(body.model, body.blend)
            identity = self._identities.next(target.name, body.request_id)
            turn, generation = await self._start(decoded, target, identity)
        field = self._context.settings.reasoning_field
        shown = None if body.include_reasoning is False else field
        answer = ChatAnswerWriter(body, identity, generation, turn, shown)
        return await reply(request, decoded, answer, generation, names)

    async def _start(
        self, decoded: Decoded[ChatBody], target: Target, identity: Identity
    ) -> tuple[Turn, Generation]:
        body, model = decoded.body, target.model
        asked = _asked(body, chat_params(body, model.preprocessor.default_sampling_params()))
        check_messages(body.messages, model)
        text = await in_thread_if_long(decoded.num_bytes, lambda: render(asked.conversation, model))
        turn = Turn(
            model.parsers,
            TurnRequest(
                prompt=text,
                tools=asked.tools,
                choice=asked.choice,
                template_kwargs=asked.conversation.template_kwargs,
            ),
        )
        self._note_unheld(turn, decoded)
        call = Call(
            request_id=identity.call_id,
            prompt=with_salt(text, body),
            params=_with_form(asked.params, turn),
            arrival_s=time.monotonic(),
            priority=body.priority or 0,
            lora_request=target.adapters,
            add_special_tokens=bool(body.add_special_tokens),
            reasoning=turn.reasoning_marks,
            visible_markers=turn.visible_markers,
            metadata=call_metadata(body),
        )
        kind = RequestOutputKind.DELTA if body.stream else RequestOutputKind.FINAL_ONLY
        return turn, await start_generation(model, [call], kind)

    def _note_unheld(self, turn: Turn, decoded: Decoded[ChatBody]) -> None:
        """Report, or refuse, strict schemas that nothing holds the model to (D4)."""
        if not turn.unheld_tools or form_fields(decoded.body):
            return
        if self._context.settings.strict_fields:
            raise RequestError(
                f"the schema of '{turn.unheld_tools[0]}' cannot be held to: the family of this "
                "model does not write arguments as JSON",
                "leave `strict` out, or set tool_choice to 'required'",
                param="tools",
            )
        decoded.ignored.append(_UNHELD)


def _asked(body: ChatBody, params: SamplingParams) -> _Asked:
    tools = tools_of(body)
    choice = choice_of(body, tools)
    if choice.mode in {"required", "named"} and (forms := form_fields(body)):
        raise RequestError(
            f"{forms[0]} and a tool_choice that requires a call cannot be given together",
            "a call has the form of its tool",
            param=forms[0],
        )
    check_history(body.messages)
    return _Asked(params, tools, choice, _conversation(body))


def _with_form(params: SamplingParams, turn: Turn) -> SamplingParams:
    """Return parameters with the form of calls; one that the body asks for itself wins."""
    if turn.form is None or params.structured_outputs is not None:
        return params
    return replace(params, structured_outputs=turn.form)


def _conversation(body: ChatBody) -> Conversation:
    return Conversation(
        messages=body.messages,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=bool(body.continue_final_message),
        tools=body.tools or None,
        documents=body.documents,
        template_kwargs=_template_kwargs(body),
    )


def _template_kwargs(body: ChatBody) -> dict[str, Any] | None:
    """Return what the template is told; an effort of reasoning by the names that templates have."""
    if body.reasoning_effort is None:
        return body.chat_template_kwargs
    told: dict[str, Any] = {"reasoning_effort": body.reasoning_effort}
    if body.reasoning_effort == "none":
        told |= {"enable_thinking": False, "thinking": False}
    return told | (body.chat_template_kwargs or {})
