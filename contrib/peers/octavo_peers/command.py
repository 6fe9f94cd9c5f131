"""`python contrib/peers COMMAND`: find the command, run it, print errors in octavo's way.

Knows the names of commands. Each is a function here; what it does is elsewhere.
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from octavo.errors import ConfigError, OctavoError
from octavo_peers import options
from octavo_peers.plot import require_plot, save_plot
from octavo_peers.results import Results
from octavo_peers.table import render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for wrong settings, 1 for other failures."""
    args = _parser().parse_args(argv)
    try:
        return _COMMANDS[args.command](args)
    except OctavoError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def compare(args: argparse.Namespace) -> int:
    """Measure, and print the table or JSON."""
    if args.plot:
        require_plot(args.plot)
    comparison = options.comparison(args)
    with _ended_by_sigterm():
        results = comparison.run()
    _show(results, args)
    return 1 if results.errors() else 0


def report(args: argparse.Namespace) -> int:
    """Print or plot what `compare --json` printed."""
    if args.plot:
        require_plot(args.plot)
    try:
        results = Results.from_json(json.loads(args.file.read_text()))
    except OSError as error:
        raise ConfigError(f"cannot read {args.file}", str(error)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{args.file} is not what `compare --json` prints", repr(error)
        ) from error
    _show(results, args)
    return 0


def random_gguf(args: argparse.Namespace) -> int:
    """Write a model of random weights."""
    # gguf is slow to import, and only needed here
    module = importlib.import_module("octavo_peers.random_gguf")
    module.write_random_gguf(args.file, args.shape, args.type, options.model_path(args.tokenizer))
    return 0


def float_copy(args: argparse.Namespace) -> int:
    """Write a GGUF file's weights as numbers for engines that do not read it."""
    # transformers is slow to import, and only needed here
    module = importlib.import_module("octavo_peers.float_copy")
    module.write_float_copy(options.model_path(args.model), args.folder)
    return 0


_COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = MappingProxyType(
    {"compare": compare, "report": report, "random-gguf": random_gguf, "float-copy": float_copy}
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="contrib/peers", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("compare", help="run engines by turns on the same work")
    options.add_arguments(one)
    _add_output(one)
    one = commands.add_parser("report", help="print or plot kept results again")
    one.add_argument("file", type=Path, help="what `compare --json` printed")
    _add_output(one)
    one = commands.add_parser("random-gguf", help="write a model of random weights")
    one.add_argument("file", type=Path, help="the GGUF file to write")
    one.add_argument("--shape", default="llama-1b", help="llama-1b, tinyllama-1b or tiny")
    one.add_argument("--type", default="Q4_0", help="block type of the matrices (default: Q4_0)")
    one.add_argument("--tokenizer", default="smollm2", help="GGUF file or name whose it takes")
    one = commands.add_parser("float-copy", help="write a GGUF file's weights for vllm")
    one.add_argument("model", help="GGUF file, or a name that octavo knows")
    one.add_argument("folder", type=Path, help="the folder to write, in transformers' layout")
    return parser


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind like Ctrl-C, so that it ends the engine that runs as well."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="write a plot as well")


def _show(results: Results, args: argparse.Namespace) -> None:
    print(json.dumps(results.to_json(), indent=2) if args.json else render(results))
    if args.plot:
        save_plot(results, args.plot)
