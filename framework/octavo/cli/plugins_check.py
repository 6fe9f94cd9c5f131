"""`octavo plugins check`: does a component keep the promises of its kind?

Knows subjects and outcomes. Does not know how anything is tried (`octavo.testing` does).
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from octavo.plugin.catalogue import Catalogue
    from octavo.testing.checking import Outcome
    from octavo.testing.subjects import Subject

_MARKS = {"passed": "[green]ok[/]", "failed": "[bold red]FAILED[/]", "refused": "[cyan]refused[/]"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `check` alone reads."""
    group = parser.add_argument_group("of `check`")
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the component under test; VALUE is JSON, or else text",
    )
    group.add_argument(
        "--sample",
        metavar="VALUE",
        help="what some kinds need beside the component: a path, or JSON (the error says which)",
    )
    group.add_argument(
        "--effort",
        type=float,
        default=1.0,
        metavar="X",
        help="how many times as many cases to try; above 1 they differ each time",
    )
    group.add_argument("--invariant", metavar="NUMBER", help="try this one alone, e.g. S4")


def run(catalogue: Catalogue, args: argparse.Namespace) -> int:
    """Try all, and print. Exit code 1 when any failed.

    Raises UnsupportedError without hypothesis, and the typed errors of a subject that is not there
    or broken.
    """
    if importlib.util.find_spec("hypothesis") is None:
        raise UnsupportedError(
            "octavo plugins check needs hypothesis, which is not installed",
            "install it: pip install 'octavo[test]'",
        )
    from octavo.testing.checking import invariants_of, outcomes

    subject = _subject(catalogue, args)
    every = invariants_of(subject)
    if args.invariant is not None:
        every = [one for one in every if one.number == args.invariant.upper()]
        if not every:
            numbers = sorted({one.number for one in invariants_of(subject)})
            raise ConfigError(
                f"{subject.kind} has no invariant '{args.invariant}'",
                f"there are {', '.join(numbers)}",
            )
    if args.json:
        done = list(outcomes(subject, every))
        print(json.dumps(_data(subject, done), indent=2))
    else:
        done = _show(subject, len(every), outcomes(subject, every))
    return 1 if any(one.state == "failed" for one in done) else 0


def _subject(catalogue: Catalogue, args: argparse.Namespace) -> Subject:
    from octavo.testing.kits import promises_of
    from octavo.testing.subjects import entry_in_file, subject_of

    options = dict(map(_option, args.option))
    sample = _value(args.sample) if args.sample is not None else None
    if ".py:" in args.name:
        kind = entry_in_file(args.name).kind
        subject = subject_of(kind, args.name, options, sample=sample)
    else:
        kind, colon, name = args.name.partition(":")
        if not colon:
            raise ConfigError(
                f"octavo plugins check {args.name}: of which kind?",
                "give KIND:NAME, or FILE.py:Class; `octavo plugins list` has the names",
            )
        promises_of(kind)
        subject = subject_of(kind, name, options, catalogue=catalogue, sample=sample)
    subject.effort = args.effort
    return subject


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--option {text}: no value", "write --option NAME=VALUE")
    return name, _value(value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return Path(text) if Path(text).exists() else text


def _show(subject: Subject, num_invariants: int, trying: Iterator[Outcome]) -> list[Outcome]:
    """Print a line for each outcome as it comes, then what failed, then the sum."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    provider = f"{subject.entry.provider}, {subject.entry.target}"
    console.print(f"[bold]{subject.kind}:{subject.name}[/] ({escape(provider)})")
    done: list[Outcome] = []
    trying = iter(trying)
    while True:
        with console.status(f"trying {len(done) + 1} of {num_invariants}"):
            one = next(trying, None)
        if one is None:
            break
        done.append(one)
        took = f" [dim]{one.took_s:.1f} s[/]" if one.took_s >= 1 else ""
        console.print(f"  {_MARKS[one.state]:8} {escape(str(one.invariant))}{took}")
        if one.state == "refused":
            console.print(f"         as declared: {escape(one.text)}")
    for one in done:
        if one.state == "failed":
            console.print(f"\n[bold red]{one.invariant.number}[/] {escape(one.invariant.title)}")
            console.print("\n".join(f"  {escape(line)}" for line in one.text.splitlines()))
    console.print(f"\n{_sum(done)}")
    return done


def _sum(done: list[Outcome]) -> str:
    counts = {
        state: sum(one.state == state for one in done) for state in ("passed", "failed", "refused")
    }
    words = {"passed": "passed", "failed": "FAILED", "refused": "refused as declared"}
    parts = [f"{count} {words[state]}" for state, count in counts.items() if count]
    return f"{', '.join(parts)} in {sum(one.took_s for one in done):.1f} s"


def _data(subject: Subject, done: list[Outcome]) -> dict[str, Any]:
    return {
        "kind": subject.kind,
        "name": subject.name,
        "provider": subject.entry.provider,
        "target": subject.entry.target,
        "options": dict(subject.options),
        "passed": not any(one.state == "failed" for one in done),
        "invariants": [
            {
                "number": one.invariant.number,
                "name": one.invariant.name,
                "title": one.invariant.title,
                "state": one.state,
                "text": one.text,
                "took-s": round(one.took_s, 3),
            }
            for one in done
        ],
    }
