"""`octavo complete`: continue a prompt, and print the text as it comes."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from octavo.cli.text_sources import Pieces, add_source_arguments, given_sampling, open_source
from octavo.errors import ConfigError

if TYPE_CHECKING:
    import argparse

DEFAULT_MAX_TOKENS = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the prompt, how to print, and where the text comes from."""
    parser.add_argument("--prompt", metavar="TEXT", help="text to continue; default: stdin")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object at the end, with counts and times",
    )
    parser.add_argument("--echo", action="store_true", help="print the prompt before the text")
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the text. Exit code 1 when the request fails."""
    prompt = _prompt(args)
    sampling = {"max_tokens": DEFAULT_MAX_TOKENS, **given_sampling(args)}
    source = open_source(args)
    try:
        start_s = time.monotonic()
        with closing(source.complete(prompt, sampling)) as pieces:
            if args.json:
                report = _report(pieces, start_s, prompt, source.model)
                print(json.dumps(report, ensure_ascii=False))
            else:
                _print_text(pieces, prompt if args.echo else "")
    finally:
        source.close()
    return 0


def _prompt(args: argparse.Namespace) -> str:
    if args.prompt is not None:
        return str(args.prompt)
    if sys.stdin.isatty():
        raise ConfigError("no prompt", "give --prompt TEXT, or pipe the text in")
    return sys.stdin.read()


def _print_text(pieces: Pieces, echo: str) -> None:
    sys.stdout.write(echo)
    try:
        for piece in pieces:
            sys.stdout.write(piece.text)
            sys.stdout.flush()
    finally:
        sys.stdout.write("\n")


def _report(pieces: Pieces, start_s: float, prompt: str, model: str) -> dict[str, Any]:
    texts: list[str] = []
    first_s: float | None = None
    last: dict[str, Any] = {"finish_reason": None, "prompt_tokens": None, "completion_tokens": None}
    for piece in pieces:
        if piece.text and first_s is None:
            first_s = time.monotonic() - start_s
        texts.append(piece.text)
        news = (piece.finish_reason, piece.num_prompt_tokens, piece.num_completion_tokens)
        last.update((k, v) for k, v in zip(last, news, strict=True) if v is not None)
    return {
        "model": model,
        "prompt": prompt,
        "text": "".join(texts),
        **last,
        "first_text_s": None if first_s is None else round(first_s, 4),
        "total_s": round(time.monotonic() - start_s, 4),
    }
