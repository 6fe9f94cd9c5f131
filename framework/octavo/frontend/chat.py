"""Conversations become prompts: messages are checked and brought to the form templates expect.

Knows OpenAI's messages and which template a model wants. Does not know Jinja
(`octavo.text.chat_template`), HTTP or engines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, RequestError
from octavo.text.chat_template import ChatTemplate

if TYPE_CHECKING:
    from octavo.config.schema import ModelConfig
    from octavo.interfaces.tokenizer import Tokenizer

#: what OpenAI's parts of text are called, in messages and in answers that are sent back
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
#: what clients call the reasoning of a message; Harmony's template has a third name for it
_REASONING = ("reasoning", "reasoning_content")
#: name of the template that some models have beside the usual one, for requests with tools
_TOOL_TEMPLATE = "tool_use"


class ChatRenderer:
    """Renders conversations for one model. Thread-safe.

    The template is that of the config (a file, or the text itself), else the model's own. Raises
    ConfigError for a file that cannot be read, ModelLoadError for one that is not valid.
    """

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig) -> None:
        self._tokenizer = tokenizer
        self._config = config
        self._sources = dict(tokenizer.chat_templates)
        self._compiled: dict[str, ChatTemplate] = {}
        if config.chat_template is not None:
            self._sources = {"default": read_template(config.chat_template)}
            self._template("default")  # compiled now: its errors are those of the setting

    @property
    def template_text(self) -> str:
        """Return the sources of all templates, "" where there is none."""
        return "\n".join(self._sources.values())

    def with_template(self, setting: str) -> ChatRenderer:
        """Return a renderer of the same model with another template, given as in the config."""
        config = self._config.model_copy(update={"chat_template": setting})
        return ChatRenderer(self._tokenizer, config)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the prompt of a conversation, special tokens included.

        With `continue_final_message` the text ends within the last message. Raises RequestError
        naming what is wrong, with the template's own words where it refuses.
        """
        if add_generation_prompt and continue_final_message:
            raise RequestError(
                "add_generation_prompt and continue_final_message exclude each other",
                "the one begins a new message, the other goes on with the last",
                param="continue_final_message",
            )
        template = self._template(_TOOL_TEMPLATE if tools else "default")
        plain = [
            _message(i, message, keeps_parts=template.takes_content_parts)
            for i, message in enumerate(_checked(messages))
        ]
        if "tool_calls" not in template.source:
            plain = [_with_calls_as_text(message) for message in plain]
        options = {"tools": tools, "documents": documents, "template_kwargs": template_kwargs}
        if continue_final_message:
            return template.render_open(plain, **options)
        return template.render(plain, add_generation_prompt=add_generation_prompt, **options)  # type: ignore[arg-type]

    def _template(self, name: str) -> ChatTemplate:
        """Return a compiled template; the usual one where there is none of that name."""
        name = name if name in self._sources else "default"
        if name not in self._sources:
            raise RequestError(
                "this model has no chat template",
                "give one with --chat-template FILE, or send a prompt to be completed",
                param="messages",
            )
        if name not in self._compiled:
            self._compiled[name] = ChatTemplate(self._sources[name], self._tokenizer.special_tokens)
        return self._compiled[name]


def read_template(setting: str) -> str:
    """Return the text of a template: `setting` itself when it holds a "{", else that file's.

    Raises ConfigError.
    """
    if "{" in setting:
        return setting
    try:
        return Path(setting).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the chat template '{setting}'",
            getattr(error, "strerror", None) or str(error),
            "give a file, or the template itself (it holds a '{')",
        ) from error


def _checked(messages: Any) -> Sequence[Any]:
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise RequestError("messages must be a list of messages", param="messages")
    if not messages:
        raise RequestError("messages is empty: there is nothing to answer", param="messages")
    return messages


def _message(index: int, message: Any, *, keeps_parts: bool) -> dict[str, Any]:
    """Return a message as templates expect it: one text, and arguments as mappings."""
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be an object with role and content", param="messages")
    if not isinstance(message.get("role"), str):
        raise RequestError(f"{where}.role must be a string", param="messages")
    plain = dict(message)
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [_part(f"{where}.content[{i}]", part) for i, part in enumerate(content)]
        as_text = "\n".join(part["text"] for part in parts)
        plain["content"] = parts if keeps_parts else as_text
    elif content is not None and not isinstance(content, str):
        raise RequestError(f"{where}.content must be a string or a list", param="messages")
    elif content is None and "tool_calls" not in message:
        plain["content"] = ""
    if message.get("tool_calls"):
        plain["tool_calls"] = _tool_calls(where, message["tool_calls"])
    plain.update(_reasoning(where, message))
    return plain


def _with_calls_as_text(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message for a template that knows no calls: they are JSON behind what was said."""
    if not message.get("tool_calls"):
        return message
    functions = [call["function"] for call in message["tool_calls"]]
    calls = [{"name": one.get("name"), "arguments": one["arguments"]} for one in functions]
    text, said = json.dumps(calls, ensure_ascii=False), message.get("content") or ""
    if isinstance(said, list):
        return {**message, "content": [*said, {"type": "text", "text": text}]}
    return {**message, "content": f"{said}\n{text}" if said else text}


def _reasoning(where: str, message: Mapping[str, Any]) -> dict[str, str]:
    """Return what a message has thought by all names that templates have for it."""
    found = [name for name in _REASONING if message.get(name)]
    if not found:
        return {}
    text = message[found[0]]
    if not isinstance(text, str):
        raise RequestError(f"{where}.{found[0]} must be a string", param="messages")
    return dict.fromkeys((*_REASONING, "thinking"), text)


def _part(where: str, part: Any) -> dict[str, str]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type", "text") if isinstance(part, Mapping) else None
    if kind not in _TEXT_PARTS:
        what = "no part of a message" if kind is None else f"of type {kind!r}"
        raise RequestError(
            f"{where} is {what}: this model reads text only, no images, audio or files",
            f"valid types: {', '.join(_TEXT_PARTS)}",
            param="messages",
        )
    text = part.get(_TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise RequestError(f"{where}.{_TEXT_PARTS[kind]} must be a string", param="messages")
    return {"type": "text", "text": text}


def _tool_calls(where: str, calls: Any) -> list[dict[str, Any]]:
    """Return calls whose arguments are mappings: templates loop over them (B48, B51)."""
    plain = []
    for i, call in enumerate(calls if isinstance(calls, list | tuple) else [calls]):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            place = f"{where}.tool_calls[{i}].function"
            raise RequestError(f"{place} must be an object", param="messages")
        place = f"{where}.tool_calls[{i}].function.arguments"
        arguments = _arguments(place, function.get("arguments"))
        plain.append({**call, "function": {**function, "arguments": arguments}})
    return plain


def _arguments(where: str, arguments: Any) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else None
        except ValueError as error:
            raise RequestError(f"{where} is no valid JSON: {error}", param="messages") from error
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise RequestError(f"{where} must be an object, or JSON of one", param="messages")
    return arguments
