"""`octavo explain`: what a command line and a config file come to, and why.

Knows the words of the command. Does not know how settings are merged or explained.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli.explanation import as_data, explain
from octavo.cli.inspection import problems_in_use
from octavo.config.flags import add_config_arguments, given_models, resolve_arguments_with_catalogue
from octavo.errors import ConfigError
from octavo.frontend.chat import ChatRenderer
from octavo.frontend.parsers import parsers_of
from octavo.model_files import describe_model, load_tokenizer, locate_model
from octavo.plugin.build import title

if TYPE_CHECKING:
    import argparse

    from octavo.config.resolved import ResolvedConfig

#: what tells the name of a config file from that of a model
_SUFFIXES = (".toml", ".yaml", ".yml", ".json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every flag that `serve` takes, and how to print."""
    parser.add_argument(
        "subject",
        nargs="?",
        metavar="CONFIG or MODEL",
        help="a config file (.toml, .yaml, .json), or a model as `serve` takes it",
    )
    parser.add_argument("--all", action="store_true", help="show settings that are defaults, too")
    parser.add_argument(
        "--parsers",
        action="store_true",
        help="read the model's chat template, and say who reads its reasoning and calls of tools",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_config_arguments(parser, models=None)


def run(args: argparse.Namespace) -> int:
    """Print the resolved config. Raises ConfigError when it is given twice.

    Exit code 1 when a component in use is known to be broken.
    """
    subject: str | None = args.subject
    model = None
    if subject is not None and Path(subject).suffix.lower() in _SUFFIXES:
        file = vars(args).setdefault("config.config", subject)
        if file != subject:
            headline = f"two config files: '{subject}' and --config '{file}'"
            raise ConfigError(headline, "give the file once")
    elif subject is not None:
        model = subject
        if given_models(args) not in {(), (model,)}:
            headline = f"two models: '{model}' and --model '{given_models(args)[0]}'"
            raise ConfigError(headline, "give the model once")
    config, catalogue = resolve_arguments_with_catalogue(args, model=model)
    for note in config.notes:
        print(f"note: {note}", file=sys.stderr)
    entries = [catalogue.get(one.kind, one.name) for one in config.in_use]
    broken = [f"{title(one)}: {why}" for one in entries for why in problems_in_use(one)]
    parsers = _parsers(config) if args.parsers else {}
    if args.json:
        data = as_data(config, broken) | ({"parsers": parsers} if parsers else {})
        print(json.dumps(data, indent=2))
        return 1 if broken else 0
    print(explain(config, broken, show_all=args.all))
    for role, one in parsers.items():
        print(f"\n{role} of this model: {one['name']}")
        print(*(f"  {why}" for why in one["why"].split("; ")), sep="\n")
    return 1 if broken else 0


def _parsers(config: ResolvedConfig) -> dict[str, dict[str, str]]:
    """Return who reads the turns of the config's model, which is fetched if need be, and why."""
    description = describe_model(config, locate_model(config))
    tokenizer = load_tokenizer(config, description)
    template = ChatRenderer(tokenizer, config.model).template_text
    found = parsers_of(config, template, tokenizer)
    both = {"tools": found.tools, "reasoning": found.reasoning}
    return {role: {"name": one.name, "why": one.why} for role, one in both.items()}
