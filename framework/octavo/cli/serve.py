"""`octavo serve`: serve a model over HTTP until told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add MODEL and every setting."""
    from octavo.config.flags import add_config_arguments

    add_config_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve. The engine's process is started before this one imports what HTTP needs."""
    from octavo.config.flags import resolve_arguments
    from octavo.serving.logs import configure_logging

    config = resolve_arguments(args)
    configure_logging(config.server.log_level, config.server.log_format)
    from octavo.serving.startup import begin

    plan = begin(config)
    from octavo.serving.server import serve

    return serve(plan)
