"""`octavo chat`: talk to a model in the terminal."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

from octavo.cli.text_sources import add_source_arguments, given_sampling, open_source
from octavo.errors import RequestError

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from octavo.cli.text_sources import TextSource

_HELP = """\
/reset    forget the conversation
/quit     leave (so does Ctrl-D)
/help     show this
Ctrl-C ends the answer that is being written."""
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system prompt, and where the text comes from."""
    parser.add_argument(
        "--system-prompt", metavar="TEXT", help="instructions before the conversation"
    )
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read turns until /quit or the end of input. Turns may be piped in, one a line."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal:
        print("loading ...", end="\r", file=sys.stderr, flush=True)
    source = open_source(args)
    try:
        conversation = Conversation(source, args.system_prompt, given_sampling(args))
        if is_terminal:
            _enable_line_editing()
            print(f"{_BOLD}{source.model}{_PLAIN}{_DIM}  /help for commands{_PLAIN}")
        _converse(conversation, is_terminal=is_terminal)
    finally:
        source.close()
    return 0


class Conversation:
    """The turns so far. A turn that was refused is taken back; one cut short is kept."""

    def __init__(
        self, source: TextSource, system_prompt: str | None, sampling: dict[str, Any]
    ) -> None:
        self._source = source
        self._sampling = sampling
        self._opening = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self.messages = list(self._opening)

    def reset(self) -> None:
        """Forget everything but the system prompt."""
        self.messages = list(self._opening)

    def answer(self, text: str) -> str:
        """Print the answer as it comes; returns a line of facts about it.

        Raises RequestError, and the conversation is as before.
        """
        self.messages.append({"role": "user", "content": text})
        start_s = time.monotonic()
        first_s = None
        num_tokens = None
        parts: list[str] = []
        note = ""
        try:
            with closing(self._source.chat(self.messages, self._sampling)) as pieces:
                for piece in pieces:
                    if piece.text and first_s is None:
                        first_s = time.monotonic() - start_s
                    parts.append(piece.text)
                    print(piece.text, end="", flush=True)
                    num_tokens = piece.num_completion_tokens or num_tokens
                    if piece.finish_reason == "length":
                        note = ", cut off by length"
        except KeyboardInterrupt:
            note = ", interrupted"
        except RequestError:
            self.messages.pop()
            raise
        self.messages.append({"role": "assistant", "content": "".join(parts)})
        total_s = time.monotonic() - start_s
        rate = f"{num_tokens} tokens, {num_tokens / total_s:.0f} tok/s, " if num_tokens else ""
        first = f"first after {first_s:.2f} s" if first_s is not None else "no text"
        return f"{rate}{first}{note}"


def _converse(conversation: Conversation, *, is_terminal: bool) -> None:
    while True:
        try:
            line = input("> " if is_terminal else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            print(f"\n{_DIM}/quit or Ctrl-D leaves{_PLAIN}")
            continue
        if line in {"/quit", "/exit", "/bye"}:
            return
        if line.startswith("/"):
            _obey(conversation, line)
        elif line:
            _answer(conversation, line, is_terminal=is_terminal)


def _obey(conversation: Conversation, line: str) -> None:
    if line == "/reset":
        conversation.reset()
        print("the conversation is forgotten")
    elif line == "/help":
        print(_HELP)
    else:
        print(f"unknown command {line.split(maxsplit=1)[0]}\n{_HELP}")


def _answer(conversation: Conversation, line: str, *, is_terminal: bool) -> None:
    try:
        facts = conversation.answer(line)
    except RequestError as error:
        print(f"error: {error}\n  /reset forgets the conversation", file=sys.stderr)
        return
    print(f"\n{_DIM}[{facts}]{_PLAIN}" if is_terminal else "")


def _enable_line_editing() -> None:
    try:
        import readline
    except ImportError:  # not on every platform; lines can be typed without it
        return
    readline.set_auto_history(True)
