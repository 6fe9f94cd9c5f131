"""POST /tokenize and /detokenize, in vLLM's shapes.

Knows these routes. Does not know how a tokenizer or a template works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError
from octavo.interfaces.dialect import Dialect
from octavo.serving.generation import in_thread_if_long
from octavo_plugins.dialects.shared.chat_parts import MESSAGES, TOOLS
from octavo_plugins.dialects.shared.conversations import Conversation, check_messages, render
from octavo_plugins.dialects.shared.exchange import read_body, report_unknown
from octavo_plugins.dialects.shared.parts import unread_parts
from octavo_plugins.dialects.shared.replies import json_reply
from octavo_plugins.dialects.shared.routes import answering
from octavo_plugins.dialects.shared.tools import tool_specs
from octavo_plugins.dialects.text.bodies import DetokenizeBody, TokenizeBody

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar import Request, Response
    from litestar.types import ControllerRouterHandler

    from octavo.serving.context import ServingContext
    from octavo.serving.models import ServedModel

_PARTS: Final = {**MESSAGES, **TOOLS}


class TextDialect(Dialect):
    """/tokenize and /detokenize."""

    def routes(self, context: ServingContext) -> Sequence[ControllerRouterHandler]:
        """Return the handlers."""

        async def tokenize(request: Request[Any, Any, Any]) -> Response[bytes]:
            decoded = await read_body(request, TokenizeBody, context)
            model = (await context.target(decoded.body.model)).model
            if decoded.body.messages is not None:
                found = unread_parts(decoded.body, _PARTS, model.chat.template_text)
                report_unknown(decoded, found, context)
            text = await in_thread_if_long(decoded.num_bytes, lambda: _text(decoded.body, model))
            answer = await in_thread_if_long(len(text), lambda: _ids(text, decoded.body, model))
            return json_reply(answer, decoded.headers)

        async def detokenize(request: Request[Any, Any, Any]) -> Response[bytes]:
            decoded = await read_body(request, DetokenizeBody, context)
            tokens = decoded.body.tokens
            model = (await context.target(decoded.body.model)).model
            _check_ids(tokens, model)
            text = await in_thread_if_long(
                decoded.num_bytes,
                lambda: model.tokenizer.decode(tokens, skip_special_tokens=False),
            )
            return json_reply({"prompt": text}, decoded.headers)

        return [
            answering("/tokenize", tokenize, TokenizeBody),
            answering("/detokenize", detokenize, DetokenizeBody),
        ]


def _text(body: TokenizeBody, model: ServedModel) -> str:
    """Return what is to be tokenised. Raises RequestError."""
    if (body.prompt is None) == (body.messages is None):
        raise RequestError("give either a prompt or messages", param="prompt")
    if body.messages is None:
        return body.prompt or ""
    check_messages(body.messages, model)
    tool_specs(body.tools or ())
    conversation = Conversation(
        messages=body.messages,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=bool(body.continue_final_message),
        tools=body.tools or None,
        template_kwargs=body.chat_template_kwargs,
    )
    return render(conversation, model)


def _ids(text: str, body: TokenizeBody, model: ServedModel) -> dict[str, Any]:
    given = body.add_special_tokens
    adds_special = body.messages is None if given is None else given
    ids = model.preprocessor.encode(text, add_special_tokens=adds_special)
    names = [model.tokenizer.token_text(one) for one in ids] if body.return_token_strs else None
    return {
        "count": len(ids),
        "max_model_len": model.max_model_len,
        "tokens": ids,
        "token_strs": names,
    }


def _check_ids(ids: Sequence[int], model: ServedModel) -> None:
    size = model.tokenizer.vocab_size
    wrong = next((one for one in ids if not 0 <= one < size), None)
    if wrong is not None:
        raise RequestError(
            f"token id {wrong} is not in the vocabulary, which has {size}", param="tokens"
        )
