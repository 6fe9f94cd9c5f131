"""Whether the events of a turn are in order, and their arguments JSON.

Knows events. Does not know parsers or texts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from octavo.interfaces.parser import CallArguments, CallBegin, CallEnd
from octavo.text.json_machine import JsonMachine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from octavo.interfaces.parser import ToolSpec, TurnEvent


def fault_of_calls(events: Iterable[TurnEvent], tools: Sequence[ToolSpec]) -> str | None:
    """Return what is wrong with the calls of a turn, None for nothing."""
    names = {tool.name for tool in tools}
    num_begun, is_open, written = 0, False, ""
    for event in events:
        match event:
            case CallBegin():
                if is_open or event.index != num_begun:
                    return f"call {event.index} begins after {num_begun}, open: {is_open}"
                if event.name not in names:
                    return f"{event.name!r} was not offered, and is called"
                num_begun, is_open, written = num_begun + 1, True, ""
            case CallArguments():
                if not is_open or event.index != num_begun - 1 or not event.text:
                    return f"{event} comes outside of its call, or is empty"
                written += event.text
            case CallEnd():
                if not is_open or event.index != num_begun - 1 or not _is_object(written):
                    return f"call {event.index} ends with the arguments {written!r}"
                is_open = False
    if is_open and not _is_begun(written):
        return f"{written!r} is not the beginning of a JSON object"
    return None


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _is_begun(text: str) -> bool:
    machine = JsonMachine()
    _, end = machine.run(text, 0)
    return text[:1] in {"", "{"} and end == len(text) and not machine.is_broken
