"""Pages of the documentation as programs: their blocks of code are run in order, as a reader would.

What is done with a block is said in a comment on the line before it:

    <!-- file: NAME -->        it is the content of a file
    <!-- server -->            its one command starts a server, which ends with the page
    <!-- not run: REASON -->   it is shown only

and otherwise by its language. `python` runs, all blocks of a page in one namespace. `console` has
commands after `$ ` and what they print, where `...` stands for anything; exit code 0 is wanted,
unless `[exit code N]` stands in the output. `text` is shown only.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from server_process import ServerProcess
from source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = ROOT / "docs"
_FENCE = re.compile(
    r"(?:<!-- (?P<mark>[^\n]+?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_PORT = "8000"
#: what a machine may have to say beside it
_NOTES = re.compile(r"^(?:compiling the CPU kernels|torch computes, slowly).*\n", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block: what is to be done with it, and where it stands."""

    page: Path
    line: int
    language: str
    text: str
    action: str  # file, server, not run, or none of these
    value: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(DOCS)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page."""
    source = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(source):
        action, _, value = (match["mark"] or "").partition(": ")
        line = source.count("\n", 0, match.start("text"))
        yield Block(page, line, match["language"], match["text"], action, value)


class PageRun:
    """Runs the blocks of one page in a folder of its own; ends what they started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _PORT
        self.namespace: dict[str, Any] = {"__name__": "page"}
        self.server: ServerProcess | None = None
        self.site = folder / ".installed"  # where the page's `pip install` puts things

    def __enter__(self) -> Self:
        self._cwd = Path.cwd()
        os.chdir(self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        os.chdir(self._cwd)
        for one in self.namespace.values():
            if callable(close := getattr(one, "close", None)) and not isinstance(one, type):
                close()
        if self.server is not None:
            self.server.stop()

    def run(self, block: Block) -> None:
        """Do what a block says. Raises AssertionError, or what its Python raises."""
        if block.action == "not run" or block.language == "text":
            return
        if block.action == "file":
            file = self.folder / block.value
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.action == "server":
            self._serve(block)
        elif block.language == "python":
            code = compile(
                "\n" * block.line + block.text, str(block.page), "exec", dont_inherit=True
            )
            exec(code, self.namespace)  # noqa: S102 - what the page has is ours
        elif block.language == "console":
            self._console(block)
        else:
            raise AssertionError(f"{block.where}: say what is to be done with this block")

    def _console(self, block: Block) -> None:
        for command, wanted in commands_of(block):
            done = subprocess.run(
                ["bash", "-c", self._as_run(command)],
                cwd=self.folder,
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=170,
            )
            shown = _NOTES.sub("", done.stdout).replace(self.port, _PORT)
            if done.returncode:
                shown += f"[exit code {done.returncode}]\n"
            assert is_as_shown(wanted, shown), (
                f"{block.where}: $ {command}\nthe page shows:\n{wanted}\nit prints:\n{shown}"
            )

    def _as_run(self, command: str) -> str:
        """Return a command with this page's port; pip installs into this page's folder alone."""
        install = f"{sys.executable} -m pip install --quiet --no-deps --no-build-isolation"
        install += f" --disable-pip-version-check --target {shlex.quote(str(self.site))}"
        command = re.sub(r"^pip install(?= \./)", install, command)
        return command.replace(_PORT, self.port)

    def _environment(self) -> dict[str, str]:
        scripts = str(Path(sys.executable).parent)
        return {
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.site),
            "COLUMNS": "80",
            "HF_HUB_OFFLINE": "1",
        }

    def _serve(self, block: Block) -> None:
        """Start the server on a free port, and wait until it is healthy."""
        ((command, _),) = commands_of(block)
        settings = [f"{name}={value}" for name, value in self._environment().items()]
        words = shlex.split(command.replace("\\\n", " "))
        self.server = ServerProcess("env", *settings, *words, "--port", "0")
        self.port = str(self.server.address[1])


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each command of a console, with what it prints.

    A command goes on in the next line after a backslash, and inside of quotes.
    """
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        count = next((n for n in range(1, len(lines) + 1) if is_whole("".join(lines[:n]))), None)
        assert count, f"{block.where}: a command that does not end"
        yield "".join(lines[:count]).strip(), "".join(lines[count:])


def is_whole(command: str) -> bool:
    """Return whether a command ends here."""
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not command.endswith("\\\n")


def is_as_shown(wanted: str, printed: str) -> bool:
    """Return whether a command printed what a page shows; `...` is anything, spaces are alike."""
    if not wanted.strip():
        return "[exit code" not in printed
    parts = [" ".join(part.split()) for part in wanted.split("...")]
    pattern = r"\s*.*?\s*".join(map(re.escape, parts))
    return re.fullmatch(pattern, " ".join(printed.split()), re.DOTALL) is not None


def pages() -> list[Path]:
    """Return the pages whose code is run."""
    folders = (DOCS / "tutorial", DOCS / "how-to")
    return sorted(page for folder in folders for page in folder.glob("*.md"))
