"""From Anthropic's body to parameters, tools and what templates are told.

Knows the fields' meaning. Does not know JSON, messages or answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError, did_you_mean
from octavo.frontend.turns import ToolChoice
from octavo.structured_outputs import StructuredOutputsParams
from octavo_plugins.dialects.anthropic.history import is_prefilled, openai_messages
from octavo_plugins.dialects.shared.calls import sampling_of, unknown_parts
from octavo_plugins.dialects.shared.conversations import Conversation, effort_kwargs
from octavo_plugins.dialects.shared.tools import function_tool, tool_specs
from octavo_plugins.dialects.shared.turns import Asked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from octavo.sampling_params import SamplingParams
    from octavo.serving.models import ServedModel
    from octavo_plugins.dialects.anthropic.bodies import CountBody, MessagesBody

#: how the front end's names of parameters are called here
NAMES: Final = {
    "prompt": "messages",
    "stop": "stop_sequences",
    "lora_request": "model",
    "thinking_token_budget": "thinking",
    "structured_outputs": "output_config",
}
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none", "tool": "named"}
_THINKING: Final = ("enabled", "disabled", "adaptive")


def conversation_of(body: CountBody) -> Conversation:
    """Return what is rendered. A last message of the model is continued. Raises RequestError."""
    messages = openai_messages(body.system, body.messages)
    return Conversation(
        messages=messages if body.messages else [],
        continue_final_message=is_prefilled(messages),
        tools=_tools(body.tools) if body.tools else None,
        template_kwargs=_template_kwargs(body),
    )


def asked_of(body: CountBody, params: SamplingParams) -> Asked:
    """Return what a body asks of a turn. Raises RequestError naming the field at fault."""
    conversation = conversation_of(body)
    return Asked(
        conversation=conversation,
        params=params,
        tools=tool_specs(conversation.tools or ()),
        choice=choice_of(body),
        metadata=metadata_of(body),
    )


def params_of(body: MessagesBody, defaults: SamplingParams, model: ServedModel) -> SamplingParams:
    """Return what a request asks for. Raises RequestError.

    A budget of reasoning says nothing to a model whose reasoning nothing can read.
    """
    has_reasoning = model.parsers.reasoning.parser is not None
    return sampling_of(
        body,
        defaults,
        ("temperature", "top_p", "top_k"),
        n=1,
        max_tokens=body.max_tokens,
        stop=body.stop_sequences,
        structured_outputs=_form(body),
        thinking_token_budget=thinking_budget(body) if has_reasoning else None,
    )


def unheeded(body: CountBody, model: ServedModel) -> list[str]:
    """Return what a body asks for that changes nothing with this model."""
    parts = [
        ("thinking", body.thinking, {"type", "budget_tokens"}),
        ("output_config", body.output_config, {"effort", "format"}),
    ]
    is_asked = thinking_budget(body) is not None
    whole = ["thinking"] if is_asked and model.parsers.reasoning.parser is None else []
    return whole + unknown_parts(parts)


def thinking_budget(body: CountBody) -> int | None:
    """Return how many tokens of reasoning there may be. Raises RequestError."""
    thinking = {"type": "disabled"} if body.thinking is None else body.thinking
    kind = thinking.get("type")
    if kind not in _THINKING:
        raise RequestError(
            f"thinking.type must be one of {', '.join(_THINKING)}, not {kind!r:.80}",
            param="thinking",
        )
    budget = thinking.get("budget_tokens")
    if kind != "enabled":
        return None
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < 1:
        raise RequestError(
            f"thinking.budget_tokens must be at least 1, not {budget!r:.80}", param="thinking"
        )
    return budget


def choice_of(body: CountBody) -> ToolChoice:
    """Return which calls an answer may have. Raises RequestError."""
    given = body.tool_choice
    if given is None:
        return ToolChoice("auto" if body.tools else "none")
    kind, is_single = given.get("type"), given.get("disable_parallel_tool_use", False)
    if not isinstance(is_single, bool):
        raise _fault("tool_choice.disable_parallel_tool_use must be true or false", "tool_choice")
    match kind:
        case "auto":
            return ToolChoice("auto" if body.tools else "none", is_parallel=not is_single)
        case "any":
            return ToolChoice("required", is_parallel=not is_single)
        case "none":
            return ToolChoice("none")
        case "tool" if isinstance(given.get("name"), str):
            return ToolChoice("named", given["name"])
    raise RequestError(
        f"tool_choice must be of type {', '.join(_CHOICES)} (which has a name), not {given!r:.80}",
        did_you_mean(kind, _CHOICES) if isinstance(kind, str) else "",
        param="tool_choice",
    )


def metadata_of(body: CountBody) -> dict[str, Any]:
    """Return what a request says of who asks: scheduling policies may read it."""
    user = (body.metadata or {}).get("user_id")
    return {"user": user} if isinstance(user, str) else {}


def _tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    translated = []
    for i, tool in enumerate(tools):
        kind = tool.get("type") or "custom"
        if kind != "custom":
            raise _fault(
                f"tools[{i}] is of type {kind!r:.80}: only tools with an input_schema of their "
                "own ('custom') are served here",
                "tools",
            )
        if not isinstance(tool.get("input_schema"), dict):
            raise _fault(f"tools[{i}].input_schema must be an object", "tools")
        translated.append(function_tool(tool, tool["input_schema"]))
    return translated


def _template_kwargs(body: CountBody) -> dict[str, Any]:
    """Return what the template is told: templates call the same wish by different names."""
    told = effort_kwargs((body.output_config or {}).get("effort"))
    kind = (body.thinking or {}).get("type")
    if kind in ("enabled", "disabled"):
        told["enable_thinking"] = told["thinking"] = kind == "enabled"
    return told | (body.chat_template_kwargs or {})


def _form(body: CountBody) -> StructuredOutputsParams | None:
    """Return the form of the answer: `output_config.format`, or the older `output_format`."""
    given = (body.output_config or {}).get("format")
    if given is not None and body.output_format is not None:
        raise _fault("output_config.format and output_format cannot both be given", "output_format")
    param = "output_config" if body.output_format is None else "output_format"
    given = body.output_format if given is None else given
    if given is None:
        return None
    is_schema = isinstance(given, dict) and given.get("type") == "json_schema"
    if not is_schema or not isinstance(given.get("schema"), dict):
        raise _fault("the format must be of type json_schema, with a schema", param)
    return StructuredOutputsParams(json=given["schema"])


def _fault(text: str, param: str) -> RequestError:
    return RequestError(text, param=param)
