"""POST /v1/chat/completions: what is asked, on its way to the engine.

Knows chat's fields. Does not know how templates are rendered, tokens come about, or answers look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError
from octavo_plugins.dialects.openai.beams import length_penalty_of, unheeded_by_search
from octavo_plugins.dialects.openai.bodies import ChatBody
from octavo_plugins.dialects.openai.chat_answers import ChatAnswerWriter
from octavo_plugins.dialects.openai.forms import form_fields
from octavo_plugins.dialects.openai.params import call_metadata, chat_names, chat_params
from octavo_plugins.dialects.openai.tools import check_history, choice_of, tools_of
from octavo_plugins.dialects.shared.calls import renamed
from octavo_plugins.dialects.shared.chat_parts import CHOICE, MESSAGES, TOOLS
from octavo_plugins.dialects.shared.conversations import Conversation, effort_kwargs
from octavo_plugins.dialects.shared.exchange import (
    read_body,
    reply,
    report_unheeded,
    report_unknown,
)
from octavo_plugins.dialects.shared.identity import Identities
from octavo_plugins.dialects.shared.parts import unread_parts
from octavo_plugins.dialects.shared.turns import Asked, start_turn

if TYPE_CHECKING:
    from litestar import Request, Response

    from octavo.sampling_params import SamplingParams
    from octavo.serving.context import ServingContext
    from octavo.serving.streaming import EventStream

_PARTS: Final = {**MESSAGES, **TOOLS, **CHOICE}


class ChatApi:
    """Answers chats."""

    def __init__(self, context: ServingContext) -> None:
        self._context = context
        self._identities = Identities("chatcmpl-")

    async def handle(self, request: Request[Any, Any, Any]) -> Response[bytes] | EventStream:
        """Answer one request."""
        decoded = await read_body(request, ChatBody, self._context)
        body = decoded.body
        names, settings = chat_names(body), self._context.settings
        with renamed(names):
            target = await self._context.target(body.model, body.blend)
            texts = target.model.chat.template_text
            report_unknown(decoded, unread_parts(body, _PARTS, texts), self._context)
            report_unheeded(decoded, unheeded_by_search(body), self._context)
            identity = self._identities.next(target.name, body.request_id)
            asked = _asked(body, target.model.preprocessor.default_sampling_params())
            turn, generation = await start_turn(
                decoded, asked, target, identity, is_strict=settings.strict_fields
            )
        shown = None if body.include_reasoning is False else settings.reasoning_field
        answer = ChatAnswerWriter(body, identity, generation, turn, shown)
        return await reply(request, decoded, answer, generation, names)


def _asked(body: ChatBody, defaults: SamplingParams) -> Asked:
    tools = tools_of(body)
    choice = choice_of(body, tools)
    if choice.mode in {"required", "named"} and (forms := form_fields(body)):
        raise RequestError(
            f"{forms[0]} and a tool_choice that requires a call cannot be given together",
            "a call has the form of its tool",
            param=forms[0],
        )
    check_history(body.messages)
    return Asked(
        conversation=_conversation(body),
        params=chat_params(body, defaults),
        tools=tools,
        choice=choice,
        add_special_tokens=bool(body.add_special_tokens),
        length_penalty=length_penalty_of(body),
        metadata=call_metadata(body),
    )


def _conversation(body: ChatBody) -> Conversation:
    return Conversation(
        messages=body.messages,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=bool(body.continue_final_message),
        tools=body.tools or None,
        documents=body.documents,
        template_kwargs=_template_kwargs(body),
    )


def _template_kwargs(body: ChatBody) -> dict[str, Any]:
    return effort_kwargs(body.reasoning_effort) | (body.chat_template_kwargs or {})
