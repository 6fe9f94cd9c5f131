"""Modules, functions, classes and signatures stay small; exceptions are listed with a reason."""

import ast
import tomllib
from pathlib import Path

import pytest

from source_tree import Module, classes, functions, modules

#: what is measured: (aim, hard limit). Over the aim needs an entry in the ratchet file, over the
#: hard limit nothing helps.
LIMITS = {
    "module-lines": (300, 400),
    "function-lines": (40, 80),
    "class-attributes": (15, 25),
    "parameters": (6, 9),
}
RATCHET_FILE = Path(__file__).with_name("size_ratchet.toml")


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count a function's lines, from `def` on, without its docstring."""
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if is_docstring else 0
    return node.end_lineno - node.lineno + 1 - docstring


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the parameters that a caller may give, stars included, `self` not."""
    spec = node.args
    every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
    return sum(one is not None and one.arg not in {"self", "cls"} for one in every)


def attributes(node: ast.ClassDef) -> int:
    """Count the attributes that `__init__` sets."""
    return len(
        {
            target.attr
            for method in node.body
            if isinstance(method, ast.FunctionDef) and method.name == "__init__"
            for inner in ast.walk(method)
            if isinstance(inner, ast.Assign | ast.AnnAssign)
            for targets in [inner.targets if isinstance(inner, ast.Assign) else [inner.target]]
            for part in targets
            for target in ast.walk(part)
            if isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        }
    )


def measure(module: Module) -> dict[tuple[str, str], int]:
    """Return every size in a module by `(what, where)`."""
    sizes = {("module-lines", module.shown): module.source.count("\n")}
    for name, node in functions(module):
        where = f"{module.shown}::{name}"
        sizes["function-lines", where] = function_lines(node)
        sizes["parameters", where] = parameters(node)
    for node in classes(module):
        sizes["class-attributes", f"{module.shown}::{node.name}"] = attributes(node)
    return sizes


def all_sizes() -> dict[tuple[str, str], int]:
    return {key: size for module in modules() for key, size in measure(module).items()}


def ratchet() -> dict[tuple[str, str], dict]:
    table = tomllib.loads(RATCHET_FILE.read_text())
    return {(what, where): entry for what in table for where, entry in table[what].items()}


def test_nothing_is_larger_than_it_may_be():
    allowed = ratchet()
    wrong = []
    for (what, where), size in all_sizes().items():
        aim, hard = LIMITS[what]
        limit = min(allowed.get((what, where), {}).get("size", aim), hard)
        if size > limit:
            wrong.append(f"{where}: {what} {size} > {limit}")

    assert wrong == [], "cut it, or list it with a reason in tests/packaging/size_ratchet.toml"


def test_the_ratchet_only_tightens():
    sizes = all_sizes()
    stale = [
        f"{what} {where}: now {sizes.get((what, where), 0)}, listed {entry['size']}"
        for (what, where), entry in ratchet().items()
        if sizes.get((what, where), 0) != entry["size"]
    ]

    assert stale == [], "write the new size into the ratchet file, or delete the entry"


def test_every_exception_has_a_reason_and_is_needed():
    for (what, where), entry in ratchet().items():
        assert len(entry["reason"].split()) >= 4, where
        assert entry["size"] > LIMITS[what][0], where


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a, b=1, *c, d, **e): pass", {"parameters": 5}),
        ("class A:\n def f(self, a): pass", {"parameters": 1}),
        ('def f():\n    """One\n    two."""\n    return 1\n', {"function-lines": 2}),
        (
            (
                "class A:\n def __init__(self):\n"
                "  self.a, self.b = 1, 2\n  self.c: int = 3\n  self.a = 4\n"
            ),
            {"class-attributes": 3},
        ),
        ("\n" * 7, {"module-lines": 7}),
    ],
)
def test_sizes_are_counted(source, expected):
    sizes = {what: size for (what, _), size in measure(Module("m", Path("m"), source)).items()}

    assert {what: sizes[what] for what in expected} == expected


def test_composition_and_engine_stay_within_their_budget():
    """Code lines, docstrings and comments not counted: 3,500 for both together."""
    parts = ("octavo.engine.", "octavo.plugin.", "octavo.config.", "octavo.hookspecs")
    by_part = {
        part: sum(code_lines(module) for module in modules() if module.name.startswith(part))
        for part in parts
    }

    assert all(by_part.values()), by_part
    assert sum(by_part.values()) <= 3500, by_part


def test_lines_of_code_are_counted():
    head = '"""Doc.\n\nMore."""\n\n# why\nx = 1  # here\n'
    source = head + '\ndef f():\n    """Doc."""\n    return (\n        x\n    )\n'

    assert code_lines(Module("m", Path("m"), source)) == 5


def code_lines(module: Module) -> int:
    """Count the lines that hold code: no blank ones, comments or docstrings."""
    lines = {
        number
        for number, text in enumerate(module.source.splitlines(), 1)
        if text.strip() and not text.strip().startswith("#")
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)
