"""From the body of /v1/responses to what is asked of a turn.

Knows the fields' meaning. Does not know JSON, items or answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError
from octavo_plugins.dialects.openai.forms import form_of_format
from octavo_plugins.dialects.openai.responses.history import messages_of
from octavo_plugins.dialects.shared.calls import sampling_of, unknown_parts
from octavo_plugins.dialects.shared.conversations import Conversation, effort_kwargs
from octavo_plugins.dialects.shared.tools import function_tool, tool_choice, tool_specs
from octavo_plugins.dialects.shared.turns import Asked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.sampling_params import SamplingParams
    from octavo.structured_outputs import StructuredOutputsParams
    from octavo_plugins.dialects.openai.responses.bodies import ResponsesBody

#: how the front end's names of parameters are called here
NAMES: Final = {
    "prompt": "input",
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "lora_request": "model",
    "structured_outputs": "text",
}
_SAME_NAMES: Final = (
    "temperature", "top_p", "top_k", "min_p", "min_tokens", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "logit_bias", "seed", "stop", "stop_token_ids",
    "ignore_eos", "include_stop_str_in_output", "skip_special_tokens",
)  # fmt: skip


def asked_of(body: ResponsesBody, items: Sequence[Any], defaults: SamplingParams) -> Asked:
    """Return what a body asks of a turn that follows these items. Raises RequestError."""
    tools = [_tool(f"tools[{i}]", one) for i, one in enumerate(body.tools or ())]
    specs = tool_specs(tools)
    choice = tool_choice(_choice(body), specs, is_parallel=body.parallel_tool_calls is not False)
    params = sampling_of(
        body,
        defaults,
        _SAME_NAMES,
        n=1,
        max_tokens=body.max_output_tokens,
        structured_outputs=_form(body),
    )
    if params.structured_outputs is not None and choice.mode in {"required", "named"}:
        raise RequestError(
            "text.format and a tool_choice that requires a call cannot be given together",
            param="text",
        )
    return Asked(
        conversation=Conversation(
            messages=messages_of(body.instructions, items),
            tools=tools or None,
            template_kwargs=_template_kwargs(body),
        ),
        params=params,
        tools=specs,
        choice=choice,
        metadata={} if body.user is None else {"user": body.user},
    )


def unheeded(body: ResponsesBody) -> list[str]:
    """Return the parts of known fields that change nothing here."""
    parts = [("text", body.text, {"format"}), ("reasoning", body.reasoning, {"effort"})]
    return unknown_parts(parts)


def _tool(where: str, given: dict[str, Any]) -> dict[str, Any]:
    if given.get("type") != "function":
        raise RequestError(
            f"{where}.type is {given.get('type')!r:.40}: this server runs no tools of its own",
            "tools of type 'function' are served",
            param="tools",
        )
    return function_tool(given, given.get("parameters"))


def _choice(body: ResponsesBody) -> Any:
    """Return the choice as chats have it: there a function's name is one level deeper."""
    match body.tool_choice:
        case {"type": "function", "name": str(name)}:
            return {"type": "function", "function": {"name": name}}
    return body.tool_choice


def _form(body: ResponsesBody) -> StructuredOutputsParams | None:
    given = (body.text or {}).get("format")
    if given is None or given == {"type": "text"}:
        return None
    if not isinstance(given, dict):
        raise RequestError("text.format must be an object", param="text")
    if given.get("type") == "json_schema":  # which chats have one level deeper
        schema = {name: value for name, value in given.items() if name != "type"}
        given = {"type": "json_schema", "json_schema": schema}
    try:
        return form_of_format(given)
    except RequestError as error:
        headline = f"text.format: {error.headline}"
        raise RequestError(headline, *error.facts, param="text") from error


def _template_kwargs(body: ResponsesBody) -> dict[str, Any]:
    effort = (body.reasoning or {}).get("effort")
    return effort_kwargs(effort) | (body.chat_template_kwargs or {})
