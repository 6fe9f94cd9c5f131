"""`octavo explain`: what a command line and a config file come to, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from octavo.config.explain import as_data, explain
from octavo.config.flags import add_config_arguments, resolve_arguments

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every flag that `serve` takes, and how to print."""
    parser.add_argument("--all", action="store_true", help="show settings that are defaults, too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_config_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the resolved config."""
    config = resolve_arguments(args)
    if args.json:
        print(json.dumps(as_data(config), indent=2))
    else:
        print(explain(config, show_all=args.all))
    return 0
