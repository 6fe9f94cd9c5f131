"""What a reader of calls may lose: white space beside them, and what is wrong inside of them.

Knows how a family writes a call (`CallTag`). Does not know the promises (`parsers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from octavo.interfaces.parser import CallArguments, CallEnd, Content
from octavo.testing.invariants import PromiseBroken
from octavo.testing.turn_texts import read, squeezed, told

if TYPE_CHECKING:
    from octavo.interfaces.parser import CallTag, Parser, TurnContext

#: arguments that no reader of JSON takes
_BROKEN: Final = (
    '{"a": 1,}', '{"a": tru}', '{"a": "\\u12x4"}', '{"a": "\\u123x"}', '{"a": [1}', '{"a": 1]',
    '{"a": "\\x"}', '{"a" 1}', '{"a": 01}', '{"a": -}', '{"a": 1 2}', '{"a": 1, 2}', '{"a"; 1}',
)  # fmt: skip
#: what stands before a call and behind it
_AROUND: Final = (("So:\n\n", "\n Done.\n"), ("\n", " \n"), ("", "\tDone."), (" So ", ""))


def check_space(parser: Parser, context: TurnContext, tag: CallTag) -> None:
    """Refuse white space that is lost between a call and text, or told where no text is."""
    call = f"{tag.begin}{{}}{tag.end}"
    for around in _AROUND:
        events = read(parser, context, [around[0], call, around[1]])
        shown = "".join(one.text for one in events if isinstance(one, Content))
        is_call = any(isinstance(one, CallEnd) for one in events)
        if is_call and shown != "".join(part for part in around if part.strip()):
            raise PromiseBroken(f"{told(context, call.join(around))} shows {shown!r}")


def check_broken(parser: Parser, context: TurnContext, tag: CallTag) -> None:
    """Refuse broken arguments of which anything is lost, or what follows them."""
    for broken in _BROKEN:
        text = f"{tag.begin}{broken}{tag.end} and more"
        events = read(parser, context, [text])
        shown = [one.text for one in events if isinstance(one, CallArguments | Content)]
        if squeezed("".join(shown)) != squeezed(f"{broken}{tag.end} and more"):
            raise PromiseBroken(f"{told(context, text)} is {events}")


def check_line_end(parser: Parser, context: TurnContext, tag: CallTag) -> None:
    """Refuse a line end within a string that is neither told as its escape nor shown."""
    text = f'{tag.begin}{{"a": "x\n\ty"}}{tag.end}'
    events = read(parser, context, [text])
    written = "".join(one.text for one in events if isinstance(one, CallArguments))
    shown = "".join(one.text for one in events if isinstance(one, Content))
    if "x\n\ty" not in shown and written != '{"a": "x\\n\\ty"}':
        raise PromiseBroken(f"{told(context, text)} is {events}")
