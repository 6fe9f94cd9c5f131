"""The `octavo` command itself: find the subcommand, parse, run, and print errors in one way.

Knows the names of subcommands. Imports only the one that runs; each is a module with
`add_arguments(parser)` and `run(args) -> int`.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING

from octavo.errors import ConfigError, OctavoError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "serve": "serve models over HTTP, with OpenAI's API",
        "chat": "talk to a model in the terminal",
        "complete": "continue a prompt and print what comes",
        "run-batch": "answer a file of requests, with OpenAI's batch format",
        "bench": "measure latency and throughput against this machine's limits",
        "bench serve": "measure any server with OpenAI's API, as its clients see it",
        "simulate": "play a workload in virtual time, without a model",
        "plugins": "list components, show one, or say why one is not there",
        "explain": "show every setting and choice, and where each comes from",
        "collect-env": "print what a bug report should say about this machine",
    }
)

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for wrong settings, 1 for other failures."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except OctavoError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _dispatch(words: list[str]) -> int:
    two = " ".join(words[:2])
    num_words = 2 if two in COMMANDS else 1
    first, rest = (" ".join(words[:num_words]), words[num_words:]) if words else ("--help", [])
    if first in {"--help", "-h", "help"}:
        print(_usage())
        return 0
    if first in {"--version", "-V", "version"}:
        from octavo import __version__

        print(f"octavo {__version__}")
        return 0
    if first not in COMMANDS:
        headline = f"unknown command '{first}'"
        raise ConfigError(
            headline, did_you_mean(first, COMMANDS), f"commands: {', '.join(COMMANDS)}"
        )
    from octavo.config.flags import Parser

    module = importlib.import_module(module_of(first))
    parser = Parser(prog=f"octavo {first}", description=COMMANDS[first])
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(rest))
    return code


def module_of(command: str) -> str:
    """Return the name of the module that has a command."""
    return f"octavo.cli.{command.replace('-', '_').replace(' ', '_')}"


def _usage() -> str:
    width = max(len(name) for name in COMMANDS)
    lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        ["usage: octavo COMMAND ...", "", *lines, "", "octavo COMMAND --help shows its flags"]
    )
