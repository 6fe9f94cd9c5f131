"""Bodies that name what a vector is made of: `input`, or the `messages` of a conversation.

Knows both forms. Does not know what an answer looks like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError
from octavo.serving.generation import in_thread_if_long
from octavo_plugins.dialects.shared.chat_parts import MESSAGES
from octavo_plugins.dialects.shared.conversations import Conversation, check_messages, render
from octavo_plugins.dialects.shared.exchange import read_body, report_unknown
from octavo_plugins.dialects.shared.parts import unread_parts
from octavo_plugins.dialects.shared.pooling import MAX_TEXTS, EncodingFormat, Pooler, PoolingBody
from octavo_plugins.dialects.shared.prompts import split_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar import Request

    from octavo.serving.context import ServingContext
    from octavo.serving.models import ServedModel
    from octavo_plugins.dialects.shared.bodies import Decoded
    from octavo_plugins.dialects.shared.pooling import Pooled


class InputBody(PoolingBody, kw_only=True):
    """`input`: a text, texts, ids, or lists of ids; or else `messages`, which are one text."""

    input: str | list[Any] | None = None
    messages: list[dict[str, Any]] | None = None
    encoding_format: EncodingFormat | None = None
    task: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class InputApi:
    """Reads such bodies, and makes the vectors of their texts."""

    def __init__(self, context: ServingContext, prefix: str) -> None:
        self._context = context
        self._pooler = Pooler(context, prefix)

    async def pool(self, request: Request[Any, Any, Any]) -> tuple[Decoded[InputBody], Pooled]:
        """Return a request's body and its vectors. Raises RequestError."""
        decoded = await read_body(request, InputBody, self._context)
        body = decoded.body
        _check(body)
        target = await self._pooler.target(body)
        if body.messages is not None:
            found = unread_parts(body, MESSAGES, target.model.chat.template_text)
            report_unknown(decoded, found, self._context)
        prompts = await _prompts(body, target.model, decoded.num_bytes)
        name = "input" if body.messages is None else "messages"
        names = {"prompt": name, "n": name}
        return decoded, await self._pooler.pool(request, body, target, prompts, names)


def _check(body: InputBody) -> None:
    if (body.input is None) == (body.messages is None):
        raise RequestError("give either input or messages", param="input")
    if body.task not in {None, "embed"}:
        raise RequestError(
            f"task {body.task!r:.80} is not done here", "leave it out, or say 'embed'", param="task"
        )
    if body.messages is not None and body.add_special_tokens is None:
        body.add_special_tokens = False  # a rendered template has them already


async def _prompts(body: InputBody, model: ServedModel, num_bytes: int) -> Sequence[Any]:
    if body.messages is None:
        return split_prompts(body.input or "", "input", MAX_TEXTS)
    check_messages(body.messages, model)
    conversation = Conversation(
        messages=body.messages,
        add_generation_prompt=bool(body.add_generation_prompt),
        continue_final_message=bool(body.continue_final_message),
        documents=body.documents,
        template_kwargs=body.chat_template_kwargs,
    )
    return [await in_thread_if_long(num_bytes, lambda: render(conversation, model))]
