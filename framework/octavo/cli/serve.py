"""`octavo serve`: serve one model or several over HTTP until told to stop."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from octavo.config.resolved import ResolvedConfig

_NAMED = re.compile(r"(?P<name>[\w.:-]+)=(?P<model>.+)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add MODELs and every setting."""
    from octavo.config.flags import add_config_arguments

    parser.description = (
        "The first model is loaded at once, further ones with the first request for them. "
        "NAME=MODEL serves a model under another name."
    )
    add_config_arguments(parser, models="*")


def run(args: argparse.Namespace) -> int:
    """Serve. The engine's process is started before this one imports what HTTP needs."""
    from octavo.serving.logs import configure_logging

    configs = _configs(args)
    configure_logging(configs[0].server.log_level, configs[0].server.log_format)
    from octavo.serving.startup import begin

    plan = begin(configs)
    from octavo.serving.server import serve

    return serve(plan)


def _configs(args: argparse.Namespace) -> list[ResolvedConfig]:
    """Return one config for each model. Raises ConfigError or PluginError."""
    from octavo.config.flags import (
        given_models,
        resolve_arguments,
        resolve_arguments_with_catalogue,
    )
    from octavo.errors import ConfigError

    models = [_named(text) for text in given_models(args)] or [("", None)]
    names = [{"served_model_name": (name,)} if name else {} for name, _ in models]
    configs = [resolve_arguments(args, model=models[0][1], **names[0])]
    configs += [  # what is to be noted is the same for all
        resolve_arguments_with_catalogue(args, model=model, **name).config
        for (_, model), name in zip(models[1:], names[1:], strict=True)
    ]
    served = configs[0].model.served_model_name
    if len(models) > 1 and served and not models[0][0]:
        raise ConfigError(
            f"--served-model-name {' '.join(served)} names one model, and {len(models)} are given",
            "name them apart: octavo serve NAME=MODEL OTHER=MODEL",
        )
    return configs


def _named(text: str) -> tuple[str, str | None]:
    """Return the name, "" for its own, and the model of `MODEL` or `NAME=MODEL`."""
    found = _NAMED.fullmatch(text)
    if found is None or Path(text).exists():
        return "", text
    return found["name"], found["model"]
