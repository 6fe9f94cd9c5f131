"""Structural tags as a grammar in llguidance's dialect of Lark.

Free text goes up to the first trigger, where a lazy lexeme ends; what follows is a tag that begins
with it. What comes behind the last tag has no trigger in it.

Knows what `octavo.structural_tags` makes. Does not know how JSON schemas are written in Lark.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_TEXT: Final = r"TEXT: /(.|\n)*/"


def lark_of_tags(text: str, json_rule: Callable[[dict[str, Any]], str]) -> str:
    """Return the grammar. `json_rule` returns what stands for a text of a JSON schema."""
    plain = json.loads(text)
    triggers, tags = plain["triggers"], plain["tags"]
    lines = [
        _TEXT,
        f"TAIL: /(.|\\n)*/ & ~/(.|\\n)*({'|'.join(map(regex_of_text, triggers))})(.|\\n)*/",
    ]
    for index, tag in enumerate(tags):
        lines.append(f"json_{index}: {json_rule(tag['schema'])}")
    for number, trigger in enumerate(triggers):
        rests = [
            _tag(tag["begin"][len(trigger) :], index, tag["end"])
            for index, tag in enumerate(tags)
            if tag["begin"].startswith(trigger)
        ]
        lines.append(f"head_{number}[lazy]: TEXT {_quoted(trigger)}")
        lines.append(f"tag_{number}: head_{number} ({' | '.join(rests)})")
    lines.append(f"tagged: {' | '.join(f'tag_{number}' for number in range(len(triggers)))}")
    firsts = [_tag(tag["begin"], index, tag["end"]) for index, tag in enumerate(tags)]
    lines.append(f"first: {' | '.join(firsts)}")
    match plain["at_least_one"], plain["stop_after_first"]:
        case True, True:
            lines.append("start: first")
        case True, False:
            lines.append("start: first tagged* TAIL")
        case False, True:
            lines.append("start: tagged | TAIL")
        case _:
            lines.append("start: tagged* TAIL")
    return "\n".join(lines) + "\n"


def _tag(begin: str, index: int, end: str) -> str:
    parts = (begin and _quoted(begin), f"json_{index}", end and _quoted(end))
    return " ".join(part for part in parts if part)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def regex_of_text(text: str) -> str:
    """Return a regular expression of one text: all but letters and digits by their number."""
    return re.sub(r"[^0-9A-Za-z]", lambda match: f"\\x{{{ord(match.group()):x}}}", text)
