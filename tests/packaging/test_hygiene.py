"""The tree itself: where packages are, what is global, what is read from the environment."""

import ast
import re
import subprocess
from collections import Counter

import pytest

from source_tree import PACKAGES, ROOT, Module, imports, modules

MUTABLE = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
#: names of modules that say nothing
EMPTY_NAMES = {"utils", "helpers", "misc", "common"}


def tracked() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    return done.stdout.splitlines()


@pytest.mark.parametrize("folder", ["framework", "plugins", "kernels", "contrib", "tests"])
def test_the_fixed_folders_are_no_packages(folder):
    assert not (ROOT / folder / "__init__.py").exists()


def test_no_test_folder_is_a_package():
    assert [str(path) for path in (ROOT / "tests").rglob("__init__.py")] == []


def test_test_files_have_unique_names():
    names = Counter(
        path.name for root in ("tests", "contrib") for path in (ROOT / root).rglob("test_*.py")
    )

    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_modules_is_a_package_with_a_docstring(package):
    root = PACKAGES[package]
    folders = {path.parent for path in root.rglob("*.py")}

    for folder in folders:
        source = (folder / "__init__.py").read_text()
        assert ast.get_docstring(ast.parse(source)), folder
    assert (root / "py.typed").exists()


def test_modules_are_named_after_what_they_hold():
    names = {module.name.rpartition(".")[2] for module in modules()}

    assert names & EMPTY_NAMES == set()


def test_nothing_is_promised_for_later():
    promised = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    wrong = [
        f"{module.shown}:{number}"
        for module in modules()
        for number, line in enumerate(module.source.splitlines(), 1)
        if promised.search(line)
    ]

    assert wrong == []


def mutable_globals(module: Module) -> list[str]:
    found = []
    for node in module.tree.body:
        if isinstance(node, ast.Assign):
            targets = [target for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            targets = [node.target]
        else:
            continue
        if isinstance(node.value, MUTABLE):
            # a constant table by convention: upper case, and nothing in the module changes it
            found += [
                target.id
                for target in targets
                if target.id != "__all__" and not target.id.strip("_").isupper()
            ]
    found += [
        f"global {', '.join(node.names)}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Global)
    ]
    return found


def test_no_module_has_state():
    wrong = [f"{module.shown}: {name}" for module in modules() for name in mutable_globals(module)]

    assert wrong == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("cache = {}", ["cache"]),
        ("seen: list[int] = []", ["seen"]),
        ("def f():\n    global x\n    x = 1", ["global x"]),
        ("NAMES = {}\n__all__ = ['a']\ncount = 3", []),
    ],
)
def test_state_of_a_module_is_seen(source, found):
    assert mutable_globals(Module("m", ROOT / "m.py", source)) == found


def test_two_environment_variables_are_ours():
    names = {
        name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in re.findall(r"\bOCTAVO_[A-Z_]+\b", node.value)
    }

    assert names == {"OCTAVO_CONFIG", "OCTAVO_NO_PLUGINS"}


def test_nothing_is_pickled():
    wrong = [
        f"{module.shown}:{one.line}"
        for module in modules()
        for one in imports(module)
        if one.name.partition(".")[0] in {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    ]

    assert wrong == []


def test_scripts_are_short_and_can_be_run():
    for name in ("serve", "test", "check", "docs"):
        script = ROOT / "scripts" / name
        text = script.read_text()
        assert script.stat().st_mode & 0o111, name
        assert text.startswith("#!/usr/bin/env bash\n"), name
        assert "set -euo pipefail\n" in text, name
        assert text.count("\n") <= 40, name


def test_no_tracked_file_is_large_or_generated():
    for name in tracked():
        path = ROOT / name
        assert not re.search(r"(^|/)(__pycache__|\.venv|build|dist)/", name), name
        assert not path.exists() or path.stat().st_size < 1_000_000, name
