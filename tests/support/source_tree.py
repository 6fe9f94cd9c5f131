"""The project's own source as data: modules, their imports, and sizes. Reads text, imports none."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "octavo": ROOT / "framework" / "octavo",
    "octavo_plugins": ROOT / "plugins" / "octavo_plugins",
    "octavo_kernels": ROOT / "kernels" / "octavo_kernels",
}


@dataclass(frozen=True)
class Module:
    """One Python file of a package."""

    name: str
    path: Path
    source: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, str(self.path))

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    @property
    def shown(self) -> str:
        return str(self.path.relative_to(ROOT)) if self.path.is_relative_to(ROOT) else self.name


@dataclass(frozen=True)
class Import:
    """One imported module: where, and whether only type checkers see it."""

    name: str
    line: int
    is_for_types: bool
    is_in_function: bool


@functools.cache
def modules() -> tuple[Module, ...]:
    return tuple(
        Module(module_name(package, root, path), path, path.read_text(encoding="utf-8"))
        for package, root in PACKAGES.items()
        for path in sorted(root.rglob("*.py"))
    )


def module_name(package: str, root: Path, path: Path) -> str:
    parts = [package, *path.relative_to(root).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(module: Module) -> Iterator[Import]:
    yield from _imports(module.tree, for_types=False, in_function=False)


def _imports(node: ast.AST, *, for_types: bool, in_function: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, for_types, in_function)
        elif isinstance(child, ast.ImportFrom):
            yield Import(child.module or "", child.lineno, for_types, in_function)
        else:
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(
                child,
                for_types=for_types or _is_type_checking(child),
                in_function=in_function or is_function,
            )


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function with its qualified name."""
    yield from _functions(module.tree, "")


def _functions(
    node: ast.AST, prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from _functions(child, f"{prefix}{child.name}." if named else prefix)


def classes(module: Module) -> Iterator[ast.ClassDef]:
    yield from (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))
