"""The program that compiles on trial with xgrammar: orders in, one complaint a line out.

What an order says is compiled in the same way later in the engine, for the same tokens, since what
xgrammar finds out beforehand depends on them. Run by path, so that it imports nothing else. Its
memory is limited, and its stack is smaller than any that a grammar is compiled on later.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any, Final

import xgrammar

try:
    import resource
except ImportError:  # not a POSIX system: the time limit has to do
    resource = None  # type: ignore[assignment]

_STACK_BYTES: Final = 1 << 20


def main() -> None:
    """Answer line after line."""
    compiler = compiler_of([bytes.fromhex(one) for one in json.loads(sys.stdin.buffer.readline())])
    if resource is not None:
        max_bytes = _size_bytes() + (int(sys.argv[1]) << 20)
        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    _say("ready")
    threading.stack_size(_STACK_BYTES)
    worker = threading.Thread(target=_serve, args=(compiler,))
    worker.start()
    worker.join()


def compiler_of(tokens: list[bytes]) -> xgrammar.GrammarCompiler:
    """Return a compiler for tokens, of which the last stands for the end of a text."""
    vocabulary = xgrammar.TokenizerInfo(
        tokens,
        xgrammar.VocabType.RAW,
        vocab_size=len(tokens),
        stop_token_ids=[len(tokens) - 1],
    )
    return xgrammar.GrammarCompiler(vocabulary, max_threads=1, cache_enabled=False)


def compiled(compiler: xgrammar.GrammarCompiler, order: dict[str, Any]) -> Any:
    """Compile what an order says: `kind`, `text`, and for JSON schemas how they are spaced.

    Raises RuntimeError with xgrammar's complaint.
    """
    text = order["text"]
    match order["kind"]:
        case "json_schema":
            max_blanks = order["max_blanks"]
            return compiler.compile_json_schema(
                text,
                any_whitespace=max_blanks > 0,
                separators=None if max_blanks else (",", ":"),
                strict_mode=False,
                max_whitespace_cnt=max_blanks or None,
            )
        case "regex":
            return compiler.compile_regex(text)
        case "gbnf":
            return compiler.compile_grammar(text)
    return compiler.compile_structural_tag(text)


def _serve(compiler: xgrammar.GrammarCompiler) -> None:
    for line in sys.stdin.buffer:
        try:
            matcher = xgrammar.GrammarMatcher(compiled(compiler, json.loads(json.loads(line))))
            matcher.is_completed()
        except RuntimeError as error:
            _say(str(error) or "it cannot be compiled")
        else:
            _say("")


def _say(answer: str) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _size_bytes() -> int:
    """Return how much memory this process has mapped, libraries included."""
    status = Path("/proc/self/statm")
    num_pages = int(status.read_text().split()[0]) if status.exists() else 0
    return num_pages * resource.getpagesize()


if __name__ == "__main__":
    main()
