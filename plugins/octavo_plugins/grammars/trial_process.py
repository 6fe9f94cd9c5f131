"""The program that compiles on trial with llguidance: grammars in, one complaint a line out.

Run by path, so that it imports nothing but llguidance; it ends with its standard input. Its
memory is limited, and its stack is smaller than any that a grammar is compiled on later.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Final

import llguidance

try:
    import resource
except ImportError:  # not a POSIX system: the time limit has to do
    resource = None  # type: ignore[assignment]

_STACK_BYTES: Final = 1 << 20


def main() -> None:
    """Answer line after line."""
    max_bytes = int(sys.argv[1]) << 20
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    threading.stack_size(_STACK_BYTES)
    worker = threading.Thread(target=_serve)
    worker.start()
    worker.join()


def _serve() -> None:
    tokenizer = llguidance.LLTokenizer("byte")
    sys.stdin.buffer.readline()
    sys.stdout.write('"ready"\n')
    sys.stdout.flush()
    for line in sys.stdin.buffer:
        answer = _complaint(tokenizer, json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _complaint(tokenizer: llguidance.LLTokenizer, source: str) -> str:
    """Return what is wrong with a grammar, or "" when it compiles and a text can begin."""
    matcher = llguidance.LLMatcher(tokenizer, source, log_level=0)
    if not matcher.is_error():
        matcher.compute_bitmask()
    if matcher.is_error():
        return matcher.get_error()
    return "\n".join(matcher.get_grammar_warnings())


if __name__ == "__main__":
    main()
