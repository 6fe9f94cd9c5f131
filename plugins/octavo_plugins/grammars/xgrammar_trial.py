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
#: texts and classes of characters
_LITERALS: Final = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]\*?', re.DOTALL)
#: rules of names that are none of the known ones, and the escapes in them
_NAME: Final = re.compile(r"^\S+_addl_key\w* ::= .*$", re.MULTILINE)
_ESCAPES: Final = (r'"\\" basic_escape', r'"\\" [\"\\bfnrt]')
_RULES: Final = re.compile(r"\broot\w*")
#: no schema has rules of such names: those of its parts begin with `root`, `basic` or `defs`
_BLANKS: Final = "blanks"
#: they would be three bytes that are no character
_SURROGATES: Final = r"\ud800-\udfff"
#: what xgrammar writes for any blanks, and for a character of a text whose length is told
_OWN: Final = {
    r"[ \n\r\t]*": f"{_BLANKS}_root",
    r"[^\"\\\r\n]": rf"[^\0-\x1f\"\\{_SURROGATES}]",
}


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
            return compiler.compile_grammar(_LITERALS.sub(_own, text))
    tags = json.loads(text)
    for tag in tags["format"]["tags"]:
        grammar = _json(json.dumps(tag["content"]["json_schema"]), order["spacing"])
        tag["content"] = {"type": "grammar", "grammar": grammar}
    return compiler.compile_structural_tag(json.dumps(tags))


def _json(schema: str, spacing: str) -> str:
    """Return a grammar of a schema's JSON whose parts have `spacing` between them.

    xgrammar knows but two ways, any blanks and none. It writes any as a class of its own, which
    no text and no pattern of a schema has: there the expression is put. In the same way it writes
    a character of a text whose length is told, where it lets characters stand that JSON does not.
    An escape is none there: to count those as well makes masks a hundred times as dear.
    """
    grammar = xgrammar.Grammar.from_json_schema(
        schema,
        any_whitespace=spacing != "",
        separators=None if spacing else (",", ":"),
        strict_mode=False,
    )
    rules = _LITERALS.sub(_own, _with_plain_names(str(grammar)))
    # without any it names them as well, where it looks ahead
    blanks = str(xgrammar.Grammar.from_regex(f"(?:{spacing})?" if spacing else ""))
    return rules + _RULES.sub(rf"{_BLANKS}_\g<0>", blanks)


def _with_plain_names(rules: str) -> str:
    """Return rules in which no escape stands for a character of a known name.

    Readers of JSON take it for that name, whose values the schema tells.
    """
    return _NAME.sub(lambda rule: rule.group().replace(*_ESCAPES), rules)


def _own(literal: re.Match[str]) -> str:
    """Return what is written instead; all characters but some are none of half a pair."""
    text = literal.group()
    if text in _OWN:
        return _OWN[text]
    return f"{text[:2]}{_SURROGATES}{text[2:]}" if text.startswith("[^") else text


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
