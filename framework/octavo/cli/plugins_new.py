"""`octavo plugins new`: write a plugin to start from.

Knows what was asked and what is installed. Does not know what is in a plugin (`octavo.scaffold`).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from octavo.plugin.catalogue import Catalogue
    from octavo.scaffold.names import Names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `new` alone reads."""
    group = parser.add_argument_group("of `new`")
    group.add_argument(
        "--into", metavar="DIR", default=".", help="where the plugin's folder is made (default: .)"
    )


def run(catalogue: Catalogue, args: argparse.Namespace) -> int:
    """Write the plugin, and say what can be done with it. Warnings go to stderr.

    Raises UnknownComponentError for a kind that does not exist, ConfigError for a name that will
    not do and for a folder that exists or cannot be written.
    """
    from octavo.scaffold.writing import check_of, new_names, trial_of, write_plugin

    if args.name is None or args.new_name is None:
        raise ConfigError(
            "octavo plugins new: of which kind, and under what name?",
            "for example: octavo plugins new scheduler my-order",
        )
    names = new_names(args.name, args.new_name)
    warnings = list(_warnings(catalogue, names))
    folder = write_plugin(names, Path(args.into).expanduser())
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    files = sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
    if args.json:
        data = {
            "kind": names.kind,
            "name": names.name,
            "distribution": names.distribution,
            "folder": str(folder),
            "files": files,
            "warnings": warnings,
        }
        print(json.dumps(data, indent=2))
        return 0
    print(f"wrote {folder}, a distribution with the {names.kind} '{names.name}'")
    print("\n".join(f"  {one}" for one in files))
    print(f"next\n  pip install -e '{folder}[test]'\n  octavo plugins list {names.kind}")
    print(f"  {check_of(names)}\n  {trial_of(names)}\n  pytest {folder}")
    return 0


def _warnings(catalogue: Catalogue, names: Names) -> Iterator[str]:
    """Yield what will stand in the way once the plugin is installed.

    Raises ConfigError when its package is another distribution's: installing it would overwrite
    that.
    """
    taken = catalogue.entries[names.kind].get(names.name)
    if taken is not None:
        yield (
            f"{names.kind} '{names.name}' is what {taken.provider} provides; with both installed, "
            f'neither can be used (add replaces="{names.name}" to take the name over)'
        )
    try:
        yield f"{names.distribution} {version(names.distribution)} is installed already"
    except PackageNotFoundError:
        if importlib.util.find_spec(names.package) is not None:
            raise ConfigError(
                f"'{names.name}' is no name for a new plugin",
                f"a package {names.package} is installed, which it would overwrite",
            ) from None
