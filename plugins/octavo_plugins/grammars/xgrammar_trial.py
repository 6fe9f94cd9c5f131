"""The program that compiles on trial with xgrammar: orders in, one complaint a line out.

What an order says is compiled in the same way later in the engine, for the same tokens, since what
xgrammar finds out beforehand depends on them. Run by path, so that it imports nothing else. Its
memory is limited, and its stack is smaller than any that a grammar is compiled on later.
"""

from __future__ import annotations

import json
import re
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
#: texts and classes of characters; what xgrammar writes for any blanks is one
_LITERALS: Final = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]\*?', re.DOTALL)
_ANY_BLANKS: Final = r"[ \n\r\t]*"
_RULES: Final = re.compile(r"\broot\w*")
#: no schema has a rule of this name: those of its parts begin with `root`, `basic` or `defs`
_BLANKS: Final = "blanks"


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
    """Compile what an order says: `kind`, `text`, and for JSON schemas their `spacing`.

    Raises RuntimeError with xgrammar's complaint.
    """
    text = order["text"]
    match order["kind"]:
        case "json_schema":
            return compiler.compile_grammar(_json(text, order["spacing"]))
        case "regex":
            return compiler.compile_regex(text)
        case "gbnf":
            return compiler.compile_grammar(text)
    tags = json.loads(text)
    for tag in tags["format"]["tags"]:
        grammar = _json(json.dumps(tag["content"]["json_schema"]), order["spacing"])
        tag["content"] = {"type": "grammar", "grammar": grammar}
    return compiler.compile_structural_tag(json.dumps(tags))


def _json(schema: str, spacing: str) -> str:
    """Return a grammar of a schema's JSON whose parts have `spacing` between them.

    xgrammar knows but two ways, any blanks and none. It writes any as a class of its own, which
    no text and no pattern of a schema has: there the expression is put.
    """
    grammar = xgrammar.Grammar.from_json_schema(
        schema,
        any_whitespace=spacing != "",
        separators=None if spacing else (",", ":"),
        strict_mode=False,
    )
    if not spacing:
        return str(grammar)
    blanks = str(xgrammar.Grammar.from_regex(f"(?:{spacing})?"))
    rules = _LITERALS.sub(_with_spacing, str(grammar))
    return rules + _RULES.sub(rf"{_BLANKS}_\g<0>", blanks)


def _with_spacing(literal: re.Match[str]) -> str:
    return f"{_BLANKS}_root" if literal.group() == _ANY_BLANKS else literal.group()


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
