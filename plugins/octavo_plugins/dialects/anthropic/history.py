"""From Anthropic's messages to those that chat templates take, which are OpenAI's.

All system texts, also of messages with that role, go to the front as one message: most templates
take no other. Messages of one role in a row become one, as Anthropic has it.

Knows the blocks of both. Does not know templates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ROLES = ("user", "assistant", "system")


def openai_messages(system: Any, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a conversation in the shape of templates. Raises RequestError naming the block."""
    systems = list(_text_parts("system", system, "system")) if system else []
    turns: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        where, role = f"messages[{i}]", message.get("role")
        if role not in _ROLES:
            raise _fault(where, f"its role must be one of {', '.join(_ROLES)}, not {role!r:.80}")
        content = message.get("content")
        if role == "system":
            systems += _text_parts(f"{where}.content", content, "messages")
        elif role == "user":
            turns += _user(where, content)
        else:
            turns.append(_assistant(where, content))
    first = [{"role": "system", "content": _joined(systems)}] if systems else []
    return first + _merged(turns)


def is_prefilled(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last message is the beginning of the answer."""
    last = messages[-1] if messages else {}
    return last.get("role") == "assistant" and not last.get("tool_calls")


def _blocks(where: str, content: Any, param: str = "messages") -> Iterator[tuple[str, str, Any]]:
    """Yield place, type and block; a string is one block of text. Raises RequestError."""
    if isinstance(content, str):
        yield where, "text", {"type": "text", "text": content}
        return
    if not isinstance(content, list):
        raise _fault(where, "it must be a string or a list of blocks", param)
    for i, block in enumerate(content):
        place = f"{where}[{i}]"
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise _fault(place, "it must be an object with a type", param)
        yield place, block["type"], block


def _text_parts(where: str, content: Any, param: str) -> Iterator[dict[str, Any]]:
    """Yield the parts of content that may only be text."""
    for place, kind, block in _blocks(where, content, param):
        yield _text(place, kind, block, param)


def _text(place: str, kind: str, block: Mapping[str, Any], param: str) -> dict[str, Any]:
    """Return a part of text: a block of text, or a document that is one."""
    text = block.get("text")
    source = block.get("source")
    if kind == "document" and isinstance(source, dict) and source.get("type") == "text":
        text = source.get("data")
    elif kind != "text":
        raise _fault(place, f"it is of type {kind!r:.80}: this model reads text only here", param)
    if not isinstance(text, str):
        raise _fault(place, "its text must be a string", param)
    return {"type": "text", "text": text}


def _joined(parts: list[dict[str, Any]]) -> Any:
    """Return the content of parts: of one, its text."""
    return parts[0]["text"] if len(parts) == 1 else parts


def _user(where: str, content: Any) -> Iterator[dict[str, Any]]:
    """Yield the messages of a user's turn: results of tools have a role of their own."""
    parts: list[dict[str, Any]] = []
    for place, kind, block in _blocks(f"{where}.content", content):
        if kind != "tool_result":
            parts.append(_text(place, kind, block, "messages"))
            continue
        if parts:
            yield {"role": "user", "content": _joined(parts)}
            parts = []
        yield _tool_result(place, block)
    if parts:
        yield {"role": "user", "content": _joined(parts)}


def _tool_result(place: str, block: Mapping[str, Any]) -> dict[str, Any]:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str):
        raise _fault(place, "its tool_use_id must be a string")
    content, is_error = block.get("content"), block.get("is_error")
    if not isinstance(is_error, bool | None):
        raise _fault(place, "its is_error must be true or false")
    parts = [] if content is None else list(_text_parts(f"{place}.content", content, "messages"))
    if is_error:  # templates know no failed results: the model is told in words
        first = parts[0]["text"] if parts else "the call failed"
        parts[:1] = [{"type": "text", "text": f"Error: {first}"}]
    return {"role": "tool", "tool_call_id": call_id, "content": _joined(parts) if parts else ""}


def _assistant(where: str, content: Any) -> dict[str, Any]:
    """Return a turn of the model: its text, its reasoning, its calls."""
    parts: list[dict[str, Any]] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for place, kind, block in _blocks(f"{where}.content", content):
        match kind:
            case "thinking":
                thoughts.append(str(block.get("thinking") or ""))
            case "redacted_thinking":
                continue  # nobody but its maker can read it
            case "tool_use":
                calls.append(_call(place, block))
            case _:
                parts.append(_text(place, kind, block, "messages"))
    message: dict[str, Any] = {"role": "assistant", "content": _joined(parts) if parts else None}
    if thoughts:
        message["reasoning_content"] = message["reasoning"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    elif not parts:
        message["content"] = ""
    return message


def _call(place: str, block: Mapping[str, Any]) -> dict[str, Any]:
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not isinstance(name, str):
        raise _fault(place, "its id and name must be strings")
    arguments = block.get("input") or {}
    if not isinstance(arguments, dict):
        raise _fault(place, "its input must be an object")
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _merged(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return turns of which no two neighbours are the user's, or plain texts of the model."""
    merged: list[dict[str, Any]] = []
    for turn in turns:
        before = merged[-1] if merged else {}
        if before.get("role") == turn["role"] and _is_plain(before) and _is_plain(turn):
            merged[-1] = turn | {"content": [*_parts(before), *_parts(turn)]}
        else:
            merged.append(turn)
    return merged


def _is_plain(turn: Mapping[str, Any]) -> bool:
    return set(turn) == {"role", "content"}


def _parts(turn: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = turn["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _fault(where: str, what: str, param: str = "messages") -> RequestError:
    return RequestError(f"{where}: {what}", param=param)
