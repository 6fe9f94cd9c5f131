"""Compiles the kernels at first use, and finds them again in the cache.

A library is named after a hash of all that it is made from: the sources, the flags, the CPU and
the OpenMP runtime; and, behind that, one of the compiler's command and version. Another compiler
makes another library; where none can be asked, the newest that any made of all the rest is as good.
Knows commands and their failures. Does not know what the sources hold.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shlex
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from octavo_kernels.cpu import cache, toolchain
from octavo_kernels.cpu.toolchain import NATIVE, BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from octavo_kernels.cpu.toolchain import BuildOptions, Compiler

#: called with (steps done, steps in all) while kernels are compiled
Progress: TypeAlias = "Callable[[int, int], None]"

SOURCES: Final = Path(__file__).with_name("src")
_EXPORTS: Final = "exports.map"
_AT_A_TIME: Final = 2
_COMMAND_TIMEOUT_S: Final = 300
_ERROR_LINES: Final = 8
_ERROR_WORDS: Final = ("error:", "undefined reference", "cannot find")
# What compilers, assemblers and linkers say with LC_ALL=C when the disk is full.
_NO_SPACE: Final = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
# How vectors.h refuses a CPU.
_WRONG_CPU: Final = "these kernels need"


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled library, and a line that says what of it is not as it should be, if anything."""

    path: Path
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """All that a library is made from, but for the compiler."""

    options: BuildOptions
    folder: Path
    sources: dict[str, bytes]  # by name: what was hashed is what is compiled
    openmp: Path | None

    @classmethod
    def read(cls, options: BuildOptions, folder: Path) -> _Recipe:
        names = sorted(
            path for path in folder.iterdir() if path.suffix in {".cpp", ".h", ".map", ".inc"}
        )
        sources = {path.name: path.read_bytes() for path in names}
        return cls(options, folder, sources, toolchain.openmp_runtime())

    def key(self) -> str:
        flags = (*self.options.compile_flags(), *self.options.link_flags())
        parts = [" ".join(flags), toolchain.cpu_identity(), str(self.openmp)]
        for name, text in self.sources.items():
            parts += [name, hashlib.sha256(text).hexdigest()]
        return _short_hash("\0".join(parts))


@contextlib.contextmanager
def built(
    options: BuildOptions = NATIVE,
    progress: Progress | None = None,
    sources: Path = SOURCES,
) -> Iterator[Built]:
    """Give the compiled kernels, to be loaded inside of the `with`.

    Where the cache cannot be used, they are made in a folder that is removed at the end. Raises
    BuildError where there is neither a compiler nor a library in the cache, or it fails.
    """
    recipe = _Recipe.read(options, sources)
    try:
        found = _from_cache(recipe, progress)
    except OSError as error:
        note = (
            f"the compiled CPU kernels cannot be kept, and are compiled at each start:"
            f" {_said(error)}; set XDG_CACHE_HOME to a folder of your own that can be written"
        )
    else:
        yield found
        return
    with _private_folder() as folder:
        try:
            path = _compile(recipe, toolchain.find_compiler(), folder, progress)
        except OSError as error:
            raise BuildError("cannot compile the CPU kernels", note, _said(error)) from error
        yield Built(path, note)


def _from_cache(recipe: _Recipe, progress: Progress | None) -> Built:
    """Return the library in the cache, compiled now if need be; OSError if it cannot be kept."""
    folder = cache.cache_folder()
    key = recipe.key()
    try:
        compiler = toolchain.find_compiler()
    except BuildError as error:
        path = cache.find(folder, f"{key}-*.so")
        if path is None:
            raise
        # that nobody needs a compiler any more is no news; one that was asked for by name is
        asked = os.environ.get("CXX", "").strip()
        note = f"the CPU kernels are those that another compiler made: {error.facts[0]}"
        return Built(path, note if asked else "")
    name = f"{key}-{_short_hash(shlex.join(compiler.command) + compiler.version)}.so"
    if (path := cache.find(folder, name)) is not None:
        return Built(path)
    with cache.locked(folder, lambda: None if progress is None else progress(0, 1)):
        # another process may have made it meanwhile
        if (path := cache.find(folder, name)) is not None:
            return Built(path)
        with cache.workplace(folder) as work:
            cache.keep(_compile(recipe, compiler, work, progress), folder / name)
    return Built(folder / name)


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="octavo-kernels-")
    except OSError as error:
        raise BuildError(
            "no folder to compile the CPU kernels in",
            _said(error),
            "set XDG_CACHE_HOME or TMPDIR to a folder that can be written",
        ) from error
    with folder as name:
        yield Path(name)


def _compile(recipe: _Recipe, compiler: Compiler, work: Path, progress: Progress | None) -> Path:
    """Compile the sources in a folder, and return the library.

    Raises BuildError where the compiler fails, OSError where the folder is full.
    """
    for name, text in recipe.sources.items():
        (work / name).write_bytes(text)
    # the longest first, so that no large one is left to the end
    names = sorted(
        (name for name in recipe.sources if name.endswith(".cpp")),
        key=lambda name: len(recipe.sources[name]),
        reverse=True,
    )
    steps = len(names) + 1
    if progress is not None:
        progress(0, steps)
    command = [*compiler.command, *recipe.options.compile_flags()]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        tasks = [
            pool.submit(_run, [*command, "-c", name, "-o", f"{name}.o"], recipe.folder, work)
            for name in names
        ]
        try:
            for done, task in enumerate(as_completed(tasks), 1):
                task.result()
                if progress is not None:
                    progress(done, steps)
        finally:
            pool.shutdown(cancel_futures=True)
    _run(
        [
            *(*compiler.command, *recipe.options.link_flags()),
            f"-Wl,--version-script={_EXPORTS}",
            *(f"{name}.o" for name in names),
            *toolchain.openmp_link_flags(recipe.openmp),
            *("-o", "kernels.so"),
        ],
        recipe.folder,
        work,
    )
    if progress is not None:
        progress(steps, steps)
    return work / "kernels.so"


def _run(command: Sequence[str], sources: Path, work: Path) -> None:
    # its temporary files go with the folder, and what it says is in English
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(work)}
    try:
        done = subprocess.run(  # noqa: S603 - the user's own compiler
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=_COMMAND_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(
            f"compiling the CPU kernels took more than {_COMMAND_TIMEOUT_S} s",
            f"command: {shlex.join(command)}",
            toolchain.HOW_TO_COMPILE,
        ) from None
    if done.returncode == 0:
        return
    if any(text in done.stdout for text in _NO_SPACE):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(work.parent))
    raise _failure(command, sources, done.returncode, done.stdout)


def _failure(command: Sequence[str], sources: Path, code: int, output: str) -> BuildError:
    refusal = next((line for line in output.splitlines() if _WRONG_CPU in line), None)
    if refusal is not None:
        needs = refusal.partition(_WRONG_CPU)[2].rstrip(' "')
        return BuildError(
            f"this CPU cannot run the compiled kernels: they need{needs}",
            f"command: {shlex.join(command)}",
        )
    errors = [
        line for line in output.splitlines() if any(word in line.lower() for word in _ERROR_WORDS)
    ]
    return BuildError(
        f"the C++ compiler failed on the CPU kernels (code {code})",
        f"command: {shlex.join(command)}",
        f"sources: {sources}",
        *toolchain.first_lines("\n".join(errors) or output, _ERROR_LINES),
        toolchain.HOW_TO_COMPILE,
    )


def _said(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.strerror}: '{error.filename}'"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
