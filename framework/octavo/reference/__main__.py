"""`python -m octavo.reference FOLDER`: write the pages, or `--check` that none is stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from octavo.reference.pages import stale, write


def main() -> int:
    """Do it. Exit code 1 when a page is stale."""
    parser = argparse.ArgumentParser(prog="python -m octavo.reference", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pages are")
    parser.add_argument("--check", action="store_true", help="write nothing, tell what is stale")
    args = parser.parse_args()
    if not args.check:
        write(args.folder)
        return 0
    names = stale(args.folder)
    sys.stdout.writelines(f"stale: {args.folder / name}\n" for name in names)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
