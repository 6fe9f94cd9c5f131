"""From messages to the text of a prompt, by the model's own template.

Knows what a template takes. Does not know the shapes in which APIs write messages: these are the
template's (OpenAI's), to which a dialect with others translates its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError
from octavo.serving.generation import refuse_hopeless
from octavo.text.chat_template import OversizedChatError, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo.serving.models import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What is rendered: messages, and what the template is told beside them.

    `add_generation_prompt` None: unless the last message is to be continued.
    """

    messages: Sequence[Mapping[str, Any]]
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    template_kwargs: Mapping[str, Any] | None = None


def effort_kwargs(effort: Any) -> dict[str, Any]:
    """Return what a template is told of an effort of reasoning, by the names that they have."""
    if effort is None:
        return {}
    told: dict[str, Any] = {"reasoning_effort": effort}
    if effort == "none":
        told |= {"enable_thinking": False, "thinking": False}
    return told


def check_messages(messages: Sequence[Any], model: ServedModel) -> None:
    """Refuse no messages, and more than could fit. Raises RequestError."""
    if not messages:
        raise RequestError("messages is empty: there is nothing to answer", param="messages")
    if len(messages) > model.max_model_len:  # each takes at least a token, if not more
        raise RequestError(
            f"This model's maximum context length is {model.max_model_len} tokens. "
            f"However, your messages are {len(messages)}.",
            "send fewer messages",
            param="messages",
        )


def render(conversation: Conversation, model: ServedModel) -> str:
    """Return the prompt of a conversation. Raises RequestError."""
    is_continued = conversation.continue_final_message
    given = conversation.add_generation_prompt
    try:
        return model.chat.render(
            conversation.messages,
            add_generation_prompt=not is_continued if given is None else given,
            continue_final_message=is_continued,
            tools=conversation.tools,
            documents=conversation.documents,
            template_kwargs=conversation.template_kwargs,
        )
    except OversizedChatError:
        # where the messages alone could never fit, that is what clients must hear
        words = words_of(conversation.messages)
        refuse_hopeless(words, model.tokenizer, model.max_model_len)
        raise
