"""Small changes to the source of a module, each of which should be noticed.

Comparisons and their bounds, arithmetic, constants by one, negated conditions, and statements left
out. Annotations, defaults, attributes of classes, docstrings, and messages of errors and of logs
are left alone.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


class Mutation(NamedTuple):
    """One change; `key` names it in a way that outlives edits of other lines.

    Changes of one function may have the same key: `exact_key` says which of them it is.
    """

    where: str
    line: int
    before: str
    after: str
    root: ast.Module
    node: ast.AST
    replacement: ast.AST
    nth: int = 1

    @property
    def tree(self) -> ast.Module:
        """The changed module."""
        return _replaced(self.root, self.node, self.replacement)

    @property
    def key(self) -> str:
        return f"{self.where}: {self.before} -> {self.after}"

    @property
    def exact_key(self) -> str:
        return f"{self.key} #{self.nth}"


def mutations(source: str) -> Iterator[Mutation]:
    """Yield every change of a module's source, in the order of its lines."""
    tree = ast.parse(source)
    places = list(_places(tree))
    places.sort(key=lambda one: (one[1].lineno, one[1].col_offset))
    seen: Counter[str] = Counter()
    for where, node in places:
        for after in _changes(node):
            one = Mutation(where, node.lineno, _shown(node), _shown(after), tree, node, after)
            seen[one.key] += 1
            yield one._replace(nth=seen[one.key])


def _shown(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0]


def _places(node: ast.AST, where: str = "") -> Iterator[tuple[str, ast.stmt | ast.expr]]:
    """Yield what may be changed below a node, with the function or class that it stands in."""
    for child in ast.iter_child_nodes(node):
        if _is_left_alone(child):
            continue
        name = where
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            name = f"{where}.{child.name}".lstrip(".")
        if isinstance(child, ast.stmt | ast.expr):
            yield name, child
        yield from _places(_without_annotations(child), name)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.arg | ast.JoinedStr):
        return True
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):
            return True
        return ast.unparse(node).startswith("logger.")
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


class _Children(ast.AST):
    """Stands for some children of a node."""

    _fields = ("items",)


def _without_annotations(node: ast.AST) -> ast.AST:
    if isinstance(node, ast.FunctionDef):
        items = list(node.body)
    elif isinstance(node, ast.AnnAssign):
        items = [node.value] if node.value else []
    elif isinstance(node, ast.ClassDef):
        items = [one for one in node.body if isinstance(one, ast.FunctionDef)]
    else:
        return node
    stand_in = _Children()
    stand_in.items = items
    return stand_in


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a node."""
    if isinstance(node, ast.Compare):
        yield from _compared(node)
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
        yield _with(node, op=OPERATORS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    if _is_droppable(node):
        yield ast.Pass()


def _compared(node: ast.Compare) -> Iterator[ast.AST]:
    for index, op in enumerate(node.ops):
        ops = list(node.ops)
        ops[index] = COMPARISONS[type(op)]()
        yield _with(node, ops=ops)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _is_droppable(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):  # a name that is missing would be found by any linter
        return not any(isinstance(target, ast.Name) for target in node.targets)
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Yield | ast.YieldFrom)
    return isinstance(node, ast.AugAssign | ast.Delete | ast.Continue)


def _replaced(tree: ast.Module, node: ast.AST, after: ast.AST) -> ast.Module:
    """Return the module with one node replaced; the tree stays as it is."""

    class Replace(ast.NodeTransformer):
        def visit(self, one: ast.AST) -> ast.AST:
            return after if one is node else self.generic_visit(copy.copy(one))

        def generic_visit(self, one: ast.AST) -> ast.AST:
            for name, value in ast.iter_fields(one):  # NodeTransformer would edit lists in place
                if isinstance(value, list):
                    setattr(one, name, list(value))
            return super().generic_visit(one)

    changed: ast.Module = Replace().visit(tree)
    return ast.fix_missing_locations(changed)
