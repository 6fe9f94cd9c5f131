"""From items to the messages that chat templates take.

Items of the model in a row (reasoning, text, calls) are one message. Instructions and all system
texts go to the front as one message: most templates take no other.

Knows the shapes of both. Does not know templates, or where items of earlier answers are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SYSTEM: Final = ("system", "developer")


def items_of(given: str | Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return an input as items: a text is a message of the user's."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return list(given)


def messages_of(instructions: str | None, items: Sequence[Any]) -> list[dict[str, Any]]:
    """Return a conversation in the shape of templates. Raises RequestError naming the item."""
    builder = _Builder()
    if instructions:
        builder.systems.append(instructions)
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            raise _fault(f"input[{i}]", "it must be an object")
        builder.take(f"input[{i}]", item)
    return builder.messages()


class _Builder:
    """Collects messages; that of the model is open as long as its items go on."""

    def __init__(self) -> None:
        self.systems: list[Any] = []
        self._messages: list[dict[str, Any]] = []
        self._turn: dict[str, Any] | None = None

    def take(self, where: str, item: Mapping[str, Any]) -> None:
        """Add an item. Raises RequestError for one that cannot be read here."""
        match item.get("type", "message"):
            case "message":
                self._take_message(where, item)
            case "reasoning":
                self._turn_begun(is_new="content" in (self._turn or {}))["reasoning"] = _thought(
                    where, item
                )
            case "function_call":
                self._turn_begun().setdefault("tool_calls", []).append(_call(where, item))
            case "function_call_output":
                self._end_turn()
                self._messages.append(_result(where, item))
            case kind:
                raise _fault(where, f"items of type {kind!r:.80} are not read here")

    def messages(self) -> list[dict[str, Any]]:
        """Return all messages."""
        self._end_turn()
        first = [{"role": "system", "content": _one(self.systems)}] if self.systems else []
        return first + self._messages

    def _take_message(self, where: str, item: Mapping[str, Any]) -> None:
        role, content = item.get("role"), item.get("content")
        if not isinstance(content, str | list):
            raise _fault(where, "its content must be a string or a list of parts")
        if role in _SYSTEM:
            self.systems.append(content)
        elif role == "user":
            self._end_turn()
            self._messages.append({"role": "user", "content": content})
        elif role == "assistant":
            turn = self._turn or {}
            self._turn_begun(is_new="content" in turn or "tool_calls" in turn)["content"] = content
        else:
            known = ("user", "assistant", *_SYSTEM)
            raise _fault(where, f"its role must be one of {', '.join(known)}, not {role!r:.80}")

    def _turn_begun(self, *, is_new: bool = False) -> dict[str, Any]:
        if is_new:
            self._end_turn()
        if self._turn is None:
            self._turn = {"role": "assistant"}
        return self._turn

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.setdefault("content", None if "tool_calls" in self._turn else "")
            if "reasoning" in self._turn:
                self._turn["reasoning_content"] = self._turn["reasoning"]
            self._messages.append(self._turn)
        self._turn = None


def _one(contents: Sequence[Any]) -> Any:
    """Return contents as one: of a single one, itself."""
    if len(contents) == 1:
        return contents[0]
    return [
        part
        for one in contents
        for part in ([{"type": "text", "text": one}] if isinstance(one, str) else one)
    ]


def _thought(where: str, item: Mapping[str, Any]) -> str:
    parts = item.get("content") or item.get("summary") or []
    if not isinstance(parts, list) or not all(isinstance(one, dict) for one in parts):
        raise _fault(where, "its content and its summary must be lists of parts")
    return "\n".join(str(part.get("text") or "") for part in parts)


def _call(where: str, item: Mapping[str, Any]) -> dict[str, Any]:
    call_id, name, arguments = (item.get(key) for key in ("call_id", "name", "arguments"))
    if not all(isinstance(one, str) for one in (call_id, name, arguments)):
        raise _fault(where, "its call_id, name and arguments must be strings")
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _result(where: str, item: Mapping[str, Any]) -> dict[str, Any]:
    call_id, output = item.get("call_id"), item.get("output")
    if not isinstance(call_id, str) or not isinstance(output, str | list):
        raise _fault(where, "its call_id must be a string, its output one or a list of parts")
    return {"role": "tool", "tool_call_id": call_id, "content": output}


def _fault(where: str, what: str) -> RequestError:
    return RequestError(f"{where}: {what}", param="input")
