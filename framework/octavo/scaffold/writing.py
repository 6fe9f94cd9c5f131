"""Write a new plugin: render the templates of its kind, and put the files into a folder.

Knows templates and folders. Does not know what is installed, nor how to print.
"""

from __future__ import annotations

import ast
import shutil
import tempfile
from functools import cache
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import TYPE_CHECKING

from octavo import __version__
from octavo.errors import ConfigError
from octavo.plugin.kinds import KINDS
from octavo.scaffold.names import Names, names_of
from octavo.scaffold.recipes import RECIPES

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEMPLATES = Path(__file__).parent / "templates"


def new_names(kind: str, name: str) -> Names:
    """Return the names of a new plugin. Raises the typed errors of `names_of`."""
    return names_of(kind, name, _used_by(kind))


def write_plugin(names: Names, into: Path) -> Path:
    """Write the plugin into a new folder of `into`, and return the folder.

    All files or none are there in the end. Raises ConfigError when the folder exists, or cannot
    be written.
    """
    folder = into / names.distribution
    headline = f"cannot write {folder}"
    if folder.exists() or folder.is_symlink():
        raise ConfigError(headline, "it exists", "take another name, or another place: --into DIR")
    try:
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=into, prefix=".octavo-new-") as draft:
            whole = Path(draft) / names.distribution
            for path, text in files_of(names).items():
                (whole / path).parent.mkdir(parents=True, exist_ok=True)
                (whole / path).write_text(text, encoding="utf-8")
            shutil.move(whole, folder)
    except OSError as error:
        raise ConfigError(headline, f"{error.strerror or error}") from error
    return folder


def files_of(names: Names) -> dict[str, str]:
    """Return the text of every file of a new plugin, by its path in the folder."""
    recipe, words = RECIPES[names.kind], _words(names)
    source = f"src/{names.package}"
    files = {
        "pyproject.toml": "pyproject.toml.txt",
        "README.md": "README.md.txt",
        f"{source}/__init__.py": "plugin.py.txt",
        f"{source}/{names.module}.py": f"components/{names.kind}.py.txt",
        f"tests/test_{names.module}.py": f"tests/{names.kind}.py.txt",
        names.kit_test: recipe.kit,
        **dict(recipe.more),
    }
    rendered = {path: _read(template).substitute(words) for path, template in files.items()}
    return {**rendered, f"{source}/py.typed": ""}


def trial_of(names: Names) -> str:
    """Return a command line that runs the component."""
    return f"octavo {Template(RECIPES[names.kind].trial).substitute(name=names.name)}"


def check_of(names: Names) -> str:
    """Return the command line that runs the kit, with the sample that its kind needs."""
    return Template(f"octavo plugins {_CHECK}").substitute(_words(names))


def _words(names: Names) -> Mapping[str, str]:
    kind, recipe = KINDS[names.kind], RECIPES[names.kind]
    sample = f" --sample {recipe.sample}" if recipe.sample else ""
    own = {
        "kind": kind.name,
        "name": names.name,
        "module": names.module,
        "package": names.package,
        "distribution": names.distribution,
        "cls": names.cls,
        "kit_test": names.kit_test,
        "sample": Template(sample).substitute(name=names.name),
    }
    module, _, interface = kind.interface.partition(":")
    declared = [
        *([f'options=f"{{_MODULE}}:{names.cls}Options",'] if recipe.has_options else []),
        *([f'params=f"{{_MODULE}}:{names.cls}Params",'] if recipe.has_params else []),
        f'summary="{Template(recipe.summary).substitute(own)}",',
        *(Template(line).substitute(own) for line in recipe.declared),
    ]
    return {
        **own,
        "plural": kind.plural,
        "hook": kind.hook,
        "decides": kind.decides,
        "summary": Template(recipe.summary).substitute(own),
        "interface": interface,
        "interface_module": module,
        "declared": "\n".join(f"                {line}" for line in declared),
        "suite": recipe.suite,
        "trial": trial_of(names),
        **{key: Template(text).substitute(own) for key, text in _KIT.items()},
        "octavo": ".".join(__version__.split(".")[:2]),
    }


_CHECK = "check ${kind}:${name}${sample}"
#: in the README
_KIT = MappingProxyType(
    {
        "kit": "`${kit_test}` tries what every component of this kind promises.\n",
        "check": f"\n    octavo plugins {_CHECK}",
    }
)


@cache
def _read(template: str) -> Template:
    return Template((_TEMPLATES / template).read_text(encoding="utf-8"))


@cache
def _used_by(kind: str) -> frozenset[str]:
    """Return the names that the modules of a kind use, beside those of the component itself."""
    if kind not in KINDS:
        return frozenset()
    words = _words(Names(kind=kind, name="placeholder"))
    templates = (f"components/{kind}.py.txt", f"tests/{kind}.py.txt")
    nodes = [
        node
        for template in templates
        for node in ast.walk(ast.parse(_read(template).substitute(words)))
    ]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.alias)}
    return frozenset(one for one in used if not one.startswith("Placeholder"))
