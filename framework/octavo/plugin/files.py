"""Import a plugin from one Python file, and targets by their path.

Knows files and modules. Does not know hooks, kinds or config.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import PluginBrokenError
from octavo.quiet_imports import imports_print_to_stderr

if TYPE_CHECKING:
    from types import ModuleType

_PREFIX = "octavo_file_"


def import_file(path: str | Path) -> ModuleType:
    """Import a Python file under a name made from its path; the same file twice is one module.

    Raises PluginBrokenError when there is no such file; what the file itself raises goes on.
    """
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        headline = f"cannot load plugin file '{path}'"
        raise PluginBrokenError(headline, f"there is no file at {file}")
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:12]
    name = f"{_PREFIX}{digest}_{file.stem.replace('-', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        headline = f"cannot load plugin file '{path}'"
        raise PluginBrokenError(headline, "a plugin file is Python source and ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pydantic look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def portable(target: str) -> str:
    """Return the target so that another process can import it.

    What lives in a plugin file is named by the file's path, since only this process knows the
    module name that `import_file` gave it.
    """
    module_name, _, attribute = target.partition(":")
    if module_name.startswith(_PREFIX):
        file = sys.modules[module_name].__file__
        return f"{file}:{attribute}"
    return target


def import_target(target: str) -> Any:
    """Return the object at `package.module:Name` or `path/to/file.py:Name`.

    Raises ImportError when the module lacks the name; what the import raises goes on.
    """
    module_name, _, attribute = target.rpartition(":")
    with imports_print_to_stderr():
        is_file = module_name.endswith(".py")
        module = import_file(module_name) if is_file else importlib.import_module(module_name)
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            message = f"module '{module_name}' has no '{attribute}'"
            raise ImportError(message)
        value = getattr(value, part)
    return value
