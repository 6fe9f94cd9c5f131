"""What is installed, what it declares, and what importing it costs."""

import importlib.metadata
import subprocess
import sys
import time
import tomllib
import zipfile

import pytest

import octavo
from octavo.plugin.build import load, load_options
from octavo.plugin.catalogue import Catalogue, build_catalogue
from octavo.plugin.discovery import DiscoverySettings
from source_tree import ROOT

HEAVY = "{'torch', 'transformers', 'numpy', 'tokenizers', 'litestar', 'jinja2', 'pydantic'}"


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def stock() -> Catalogue:
    return build_catalogue(DiscoverySettings(stock_only=True))


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_the_installed_entry_points_are_those_of_pyproject():
    installed = importlib.metadata.distribution("octavo").entry_points
    listed = pyproject()["project"]

    for group, table in (
        ("octavo", listed["entry-points"]["octavo"]),
        ("console_scripts", listed["scripts"]),
        ("pytest11", listed["entry-points"]["pytest11"]),
    ):
        found = {one.name: one.value for one in installed if one.group == group}
        assert found == table, "stale: run `pip install --no-deps -e .` again"


def test_the_version_is_the_same_everywhere():
    assert octavo.__version__ == pyproject()["project"]["version"]
    assert importlib.metadata.version("octavo") == octavo.__version__


def test_every_folder_of_stock_components_has_its_entry_point():
    folders = {path.parent.name for path in (ROOT / "plugins/octavo_plugins").glob("*/__init__.py")}
    declaring = {
        value.partition(":")[0].rpartition(".")[2]
        for value in pyproject()["project"]["entry-points"]["octavo"].values()
    }

    assert declaring <= folders
    assert folders - declaring <= {"formats", "native"}  # shared by kinds, none of their own


def stock_entries() -> list:
    catalogue = stock()
    return [
        pytest.param(one, id=f"{kind}:{one.name}")
        for kind in catalogue.entries
        for one in catalogue.all(kind)
    ]


@pytest.mark.parametrize("entry", stock_entries())
def test_every_stock_component_is_there(entry):
    assert entry.component.summary
    assert isinstance(load(entry), type)
    assert load_options(entry).model_config["extra"] == "forbid"


def test_importing_octavo_is_quick_and_imports_nothing_heavy():
    code = f"import octavo, sys; print(sorted({HEAVY} & set(sys.modules)))"
    took = []
    for _ in range(3):
        start = time.perf_counter()
        done = run(code)
        took.append(time.perf_counter() - start)

    assert done.stdout == "[]\n"
    assert min(took) < 1.0  # 0.03 s when nothing else runs; the aim is 0.3


def test_declaring_imports_nothing_heavy():
    values = pyproject()["project"]["entry-points"]["octavo"].values()
    names = sorted({value.partition(":")[0] for value in values})
    code = (
        f"import importlib, sys\n"
        f"from octavo.plugin.discovery import declare\n"
        f"for name in {names}: declare(importlib.import_module(name).plugin)\n"
        f"print(sorted({HEAVY} & set(sys.modules)))"
    )

    assert run(code).stdout == "[]\n"


def test_every_public_name_leads_somewhere():
    for name in octavo.__all__:
        assert getattr(octavo, name) is not None
    assert dir(octavo) == sorted(octavo.__all__)
    with pytest.raises(AttributeError, match="module 'octavo' has no attribute 'LMM'"):
        _ = octavo.LMM


@pytest.mark.full
def test_each_module_imports_alone():
    """A module may not depend on what was imported before it; warnings are errors.

    Third parties are imported once (which ones, a first child finds out by importing all of
    ours); each of our modules is then imported in a process forked from there.
    """
    code = """
import importlib, os, sys, warnings
sys.path.insert(0, sys.argv[1])
from source_tree import modules
names = [module.name for module in modules() if not module.name.endswith("__main__")]

def in_child(work):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, work().encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text

def all_names():
    for name in names:
        importlib.import_module(name)
    return "\\n".join(name for name in sys.modules if not name.startswith("octavo"))

def alone(name):
    try:
        importlib.import_module(name)
    except BaseException as error:
        return f"{name}: {type(error).__name__}: {error}"
    return ""

for name in in_child(all_names).splitlines():
    if name.partition(".")[0] in sys.stdlib_module_names or name.startswith("__"):
        continue
    try:
        importlib.import_module(name)
    except Exception:
        pass  # made by its package as it loads, not by its name
assert not [name for name in sys.modules if name.startswith("octavo")]
warnings.simplefilter("error")
warnings.filterwarnings("ignore", message=".*fork.*")
for name in names:
    print(in_child(lambda: alone(name)), end="")
"""
    support = str(ROOT / "tests" / "support")
    done = subprocess.run(
        [sys.executable, "-c", code, support], capture_output=True, text=True, check=True
    )

    assert done.stdout == ""


def test_every_module_imports_without_a_warning():
    code = (
        "import importlib, sys, warnings\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from source_tree import modules\n"
        "import litestar, numpy, torch, uvicorn\n"
        "warnings.simplefilter('error')\n"
        "for module in modules():\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
    )
    support = str(ROOT / "tests" / "support")

    done = subprocess.run(
        [sys.executable, "-c", code, support], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_wheel_holds_the_three_packages_and_no_other(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("octavo-*.whl")
    names = zipfile.ZipFile(wheel).namelist()

    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "octavo",
        "octavo_plugins",
        "octavo_kernels",
    }
    for package in ("octavo", "octavo_plugins", "octavo_kernels"):
        assert f"{package}/py.typed" in names
    assert not [name for name in names if "__pycache__" in name]
    # what is compiled at first use comes as source
    native = ROOT / "kernels" / "octavo_kernels" / "cpu" / "src"
    sources = {f"octavo_kernels/cpu/src/{path.name}" for path in native.iterdir()}
    assert len(sources) > 1
    assert sources <= set(names)
