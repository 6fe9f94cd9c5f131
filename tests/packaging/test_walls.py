"""Who may import whom: the table in the design, as data, and the tree against it."""

import sys
from pathlib import Path

import pytest

from source_tree import Import, Module, imports, modules

#: libraries that a package may import anywhere
FREE = {
    "octavo": {"pydantic", "pluggy"},
    "octavo_plugins": {
        "octavo",
        "octavo_kernels",
        "torch",
        "numpy",
        "transformers",
        # each of these is wrapped by one kind of plugin; `WRAPPED` says which
        "tokenizers",
        "jinja2",
        "safetensors",
        "huggingface_hub",
        "litestar",
        "llguidance",
        "msgspec",
        "prometheus_client",
        "pydantic",
        "xgrammar",
    },
    "octavo_kernels": {"torch", "numpy", "triton"},
}

#: libraries that the framework imports in named modules only, each with the reason
NAMED = {
    "numpy": {
        "octavo.execution": "batches are laid out in numpy before torch sees them",
        "octavo.interfaces.ops": "a count is a cell that native kernels read",
        "octavo.interfaces.weights": "weight blocks are views of mapped files",
        "octavo.frontend.vectors": "vectors are cut, scaled and compared",
        "octavo.bench": "it measures",
        "octavo.testing.grammar_walks": "masks of tokens are packed in arrays",
        "octavo.testing.tensors": "definitions of what op sets compute",
    },
    "torch": {
        "octavo.execution": "the runner's side of the executor's wall",
        "octavo.bench": "it measures",
        "octavo.testing.tensors": "definitions of what op sets compute",
    },
    "msgspec": {
        "octavo.serving": "messages between the server and the engine process",
        "octavo.bench": "it measures those messages",
        "octavo.batch": "bodies pass through byte for byte",
        "octavo.engine.messages": "one output for each token: structs are made faster",
        "octavo.engine.plan": "one share of a step for each token: as above",
    },
    "jinja2": {"octavo.text": "chat templates"},
    "litestar": {"octavo.serving": "HTTP"},
    "uvicorn": {"octavo.serving": "HTTP"},
    "prometheus_client": {"octavo.serving": "the registry behind /metrics"},
    "rich": {"octavo.cli": "tables of measurements in a terminal"},
    "matplotlib": {"octavo.cli.plots": "images of what was measured, where it is installed"},
    "hypothesis": {"octavo.testing": "it looks for what breaks a promise"},
    "pytest": {"octavo.testing.pytest_plugin": "what pytest loads"},
    "yaml": {"octavo.config.load": "YAML config files, if PyYAML is there"},
}

#: libraries of the stock plugins that one folder wraps, and who else may not touch
WRAPPED = {
    "safetensors": {"weights", "formats"},
    "huggingface_hub": {"sources"},
    "litestar": {"dialects"},
    "llguidance": {"grammars"},
    "prometheus_client": {"dialects"},
    "tokenizers": {"tokenizers"},
    "transformers": {"tokenizers", "architectures"},
    "xgrammar": {"grammars"},
}

#: folders of the stock plugins that every kind may use: readers of formats, calls of kernels
SHARED = {"formats", "native"}


def violations(module: Module, one: Import) -> str | None:
    """Return what is wrong with an import, or None."""
    top = one.name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None
    if top == module.package:
        return _between_kinds(module, one)
    if one.is_for_types and module.package == "octavo" and top in NAMED:
        return None  # an annotation imports nothing
    if top in NAMED and module.package == "octavo":
        allowed = NAMED[top]
        is_named = any(_is_inside(module.name, prefix) for prefix in allowed)
        return None if is_named else f"{top} belongs in {', '.join(sorted(allowed))}"
    if top not in FREE[module.package]:
        return f"{module.package} may not import {top}"
    if module.package == "octavo_plugins" and top in WRAPPED and not one.is_for_types:
        folder = module.name.split(".")[1] if "." in module.name else ""
        if folder not in WRAPPED[top]:
            return f"{top} is wrapped by {', '.join(sorted(WRAPPED[top]))}"
    return None


def _between_kinds(module: Module, one: Import) -> str | None:
    """The stock kinds know one another's interfaces, never one another's classes."""
    if module.package != "octavo_plugins":
        return None
    mine, theirs = module.name.split(".")[1:2], one.name.split(".")[1:2]
    if not theirs or theirs == mine or theirs[0] in SHARED:
        return None
    return f"kind {''.join(mine)} may not import from kind {theirs[0]}"


def _is_inside(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def test_no_module_imports_what_it_may_not():
    wrong = [
        f"{module.shown}:{one.line}: {problem}"
        for module in modules()
        for one in imports(module)
        if (problem := violations(module, one))
    ]

    assert wrong == []


def test_every_exception_is_used():
    used = {
        (one.name.partition(".")[0], prefix)
        for module in modules()
        for one in imports(module)
        for prefix in NAMED.get(one.name.partition(".")[0], ())
        if _is_inside(module.name, prefix)
    }
    listed = {(library, prefix) for library, allowed in NAMED.items() for prefix in allowed}

    assert listed - used == set()


@pytest.mark.parametrize(
    ("name", "source", "problem"),
    [
        ("octavo.engine.x", "import octavo_plugins", "octavo may not import octavo_plugins"),
        ("octavo.engine.x", "from octavo_kernels import y", "octavo may not import octavo_kernels"),
        (
            "octavo.engine.x",
            "import torch.nn",
            "torch belongs in octavo.bench, octavo.execution, octavo.testing.tensors",
        ),
        ("octavo.x", "def f():\n    import requests", "octavo may not import requests"),
        (
            "octavo.x",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import octavo_plugins",
            "octavo may not import octavo_plugins",
        ),
        ("octavo_kernels.x", "import octavo", "octavo_kernels may not import octavo"),
        (
            "octavo_plugins.schedulers.x",
            "from octavo_plugins.allocators.paged import PagedAllocator",
            "kind schedulers may not import from kind allocators",
        ),
        (
            "octavo_plugins.ops.x",
            "import safetensors",
            "safetensors is wrapped by formats, weights",
        ),
    ],
)
def test_a_breach_is_seen(name, source, problem):
    module = Module(name, Path(name), source)

    assert [violations(module, one) for one in imports(module) if one.name != "typing"] == [problem]


def test_an_annotation_is_no_breach():
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch import Tensor"
    module = Module("octavo.interfaces.x", Path("x"), source)

    assert [violations(module, one) for one in imports(module)] == [None, None]


def test_the_layers_of_the_core_look_down_only():
    order = ["cli", "config", "plugin", "interfaces"]
    wrong = [
        f"{module.shown}:{one.line}: {layer} imports {other}"
        for index, layer in enumerate(order)
        for module in modules()
        if _is_inside(module.name, f"octavo.{layer}")
        for one in imports(module)
        for other in order[:index]
        if not one.is_for_types and _is_inside(one.name, f"octavo.{other}")
    ]

    assert wrong == []


def test_first_party_imports_are_at_the_top_except_in_commands():
    wrong = [
        f"{module.shown}:{one.line}: {one.name}"
        for module in modules()
        for one in imports(module)
        if one.is_in_function
        and one.name.partition(".")[0].startswith("octavo")
        and not _is_inside(module.name, "octavo.cli")
    ]

    assert wrong == []


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules on one cycle of imports, or nothing."""
    done: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        path.append(name)
        for other in sorted(graph.get(name, ())):
            if found := visit(other):
                return found
        path.pop()
        done.add(name)
        return []

    for name in sorted(graph):
        if found := visit(name):
            return found
    return []


def test_no_module_needs_another_to_be_imported_first():
    names = {module.name for module in modules()}
    graph = {
        module.name: {
            one.name
            for one in imports(module)
            if one.name in names and not one.is_for_types and not one.is_in_function
        }
        for module in modules()
    }

    assert cycle_in(graph) == []


def test_a_cycle_is_seen():
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
