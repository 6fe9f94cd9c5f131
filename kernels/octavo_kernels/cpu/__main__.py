"""`python -m octavo_kernels.cpu`: compile the kernels if they are not in the cache yet.

Exits with 1, and says why on stderr, where they cannot be compiled.
"""

from __future__ import annotations

import sys

from octavo_kernels.cpu.build import built
from octavo_kernels.cpu.toolchain import BuildError


def main() -> int:
    """Compile, and show how far it is."""
    try:
        with built(progress=_show) as library:
            if library.note:
                sys.stderr.write(f"{library.note}\n")
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _show(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    sys.stderr.write(f"\rcompiling the CPU kernels for this machine, once: {done}/{total}{end}")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
