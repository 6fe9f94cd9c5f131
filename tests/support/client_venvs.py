"""Virtual environments of client libraries, one each: what a user of that library has installed.

They are kept between runs, below the user's cache, under the names of what they hold.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "clients" / "scripts"
_INSTALL_TIMEOUT_S = 1200


def client_python(*requirements: str) -> Path:
    """Return the Python of an environment that has these packages, made if there is none."""
    digest = hashlib.sha256("\n".join((sys.version, *requirements)).encode()).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "octavo" / "clients"
    folder = root / f"{requirements[0].partition('[')[0]}-{digest}"
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, requirements)
            (folder / "complete").touch()
    return folder / "bin" / "python"


def _make(folder: Path, requirements: tuple[str, ...]) -> None:
    venv.create(folder, with_pip=True)
    command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.fail(f"pip cannot install {' '.join(requirements)}\n{done.stderr[-3000:]}")


def run_client(python: Path, *words: str | Path, timeout_s: float = 300.0, **variables: str) -> str:
    """Run a client, and return what it prints. Fails with all it said if it does not succeed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as folder:  # clients leave files where they run
        done = subprocess.run(
            [python, *words],
            cwd=folder,
            env={**clean, **variables},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    if done.returncode != 0:
        pytest.fail(f"exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout
