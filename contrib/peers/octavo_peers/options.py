"""The flags of `compare`, and what they ask for.

Knows words. Does not know how anything is run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from octavo.config.resolve import resolve
from octavo.errors import ConfigError, did_you_mean
from octavo.model_files import locate_model
from octavo_peers.engines import ENGINES, OCTAVO
from octavo_peers.processes import Limits
from octavo_peers.rounds import Comparison, Contender
from octavo_peers.work import Case

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

#: decode needs a token after the first
_MIN_OUTPUT_TOKENS: Final = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `compare`."""
    names = ", ".join(ENGINES)
    add = parser.add_argument
    add("model", help="GGUF file for all engines that read one, or a name that octavo knows")
    add(
        "--python",
        action="append",
        default=[],
        metavar="ENGINE=PATH",
        help=f"Python that has an engine; engines: {names} (default: this one)",
    )
    add(
        "--model-of",
        action="append",
        default=[],
        metavar="ENGINE=PATH",
        help="another model for an engine: vllm and transformers need a folder",
    )
    add("--engines", metavar="NAMES", help="which to run, e.g. octavo,llamacpp (default: all)")
    add("--concurrency", default="1,4,16,64", metavar="NUMBERS", help="sequences at once")
    add("--prompt-tokens", default="128", metavar="NUMBERS", help="e.g. 128,2048,8128")
    add("--output-tokens", type=int, default=64, metavar="N", help="of each sequence")
    add(
        "--prefix-tokens",
        type=int,
        default=0,
        metavar="N",
        help="shared by all prompts and cached, before the tokens of each (default: 0)",
    )
    add("--rounds", type=int, default=3, metavar="R", help="processes of each engine (default: 3)")
    add(
        "--min-s",
        type=float,
        default=2.0,
        metavar="S",
        help="seconds to time each case for, in each process, at least (default: 2)",
    )
    add("--threads", type=int, metavar="N", help="of every engine (default: the cores there are)")
    add("--seed", type=int, default=0, metavar="N", help="of the prompts")
    add("--max-id", type=int, default=30_000, metavar="N", help="greatest token id of prompts")
    add(
        "--max-total-tokens",
        type=int,
        default=160_000,
        metavar="N",
        help="cases with more, of all sequences together, are left out (default: 160000)",
    )
    add("--timeout-s", type=float, default=7200.0, metavar="S", help="of a process")
    add("--show-output", action="store_true", help="show what the engines print")
    for name in ENGINES:
        add(
            f"--{name}-args",
            nargs="+",
            default=[],
            metavar="KEY=VALUE",
            help=f"options of {name}; a value is JSON, or else a text",
        )


def comparison(args: argparse.Namespace) -> Comparison:
    """Return what the flags ask for. Raises ConfigError, or a ModelError for the model's name."""
    for name in ("rounds", "max_id", "min_s", "timeout_s"):
        if getattr(args, name) <= 0:
            raise ConfigError(f"--{name.replace('_', '-')} must be more than 0")
    if args.threads is not None and args.threads < 1:
        raise ConfigError("--threads must be at least 1")
    every = cases(args)
    fitting = tuple(case for case in every if case.total_tokens <= args.max_total_tokens)
    if not fitting:
        raise ConfigError(
            f"no case has at most {args.max_total_tokens} tokens in all (--max-total-tokens)",
            f"the smallest has {min(case.total_tokens for case in every)}",
        )
    return Comparison(
        contenders=contenders(args),
        cases=fitting,
        left_out=tuple(case for case in every if case not in fitting),
        num_rounds=args.rounds,
        num_threads=args.threads or len(os.sched_getaffinity(0)),
        seed=args.seed,
        max_id=args.max_id,
        min_s=args.min_s,
        limits=Limits(args.timeout_s, args.show_output),
    )


def cases(args: argparse.Namespace) -> list[Case]:
    """Return every length of prompts with every number of sequences."""
    if args.output_tokens < _MIN_OUTPUT_TOKENS:
        raise ConfigError(f"--output-tokens must be at least {_MIN_OUTPUT_TOKENS}")
    if args.prefix_tokens < 0:
        raise ConfigError("--prefix-tokens must not be negative")
    return [
        Case(prompt_tokens, num_seqs, args.output_tokens, args.prefix_tokens)
        for prompt_tokens in _numbers("--prompt-tokens", args.prompt_tokens)
        for num_seqs in _numbers("--concurrency", args.concurrency)
    ]


def contenders(args: argparse.Namespace) -> tuple[Contender, ...]:
    """Return the engines to run, octavo first: those asked for, or all that can be."""
    pythons = _assignments("--python", args.python, list(ENGINES))
    models = _assignments("--model-of", args.model_of, list(ENGINES))
    asked = _engine_names(args.engines) if args.engines else None
    model = str(model_path(args.model))
    found = []
    for name, entry in ENGINES.items():
        is_there = name in pythons or importlib.util.find_spec(entry.library) is not None
        if asked is None and not is_there:
            continue
        if asked is not None and name not in asked:
            continue
        if not is_there:
            raise ConfigError(
                f"{name} is not installed here (--engines)",
                f"name the Python that has it: --python {name}=PATH",
            )
        own_model = models.get(name) or (model if _can_read(name, model) else None)
        if own_model is None and asked is None and name not in pythons:
            continue  # it only happens to be installed here
        if own_model is None:
            raise ConfigError(
                f"{name} does not read GGUF files",
                f"write its weights to a folder: `float-copy {model} FOLDER`",
                f"and name it: --model-of {name}=FOLDER",
            )
        options = _options(f"--{name}-args", getattr(args, f"{name}_args"))
        python = _python_path(name, pythons.get(name, sys.executable))
        found.append(Contender(name, python, own_model, options))
    return tuple(found)


def model_path(name: str) -> Path:
    """Return the file or folder of that name, or what octavo's sources have for it."""
    path = Path(name)
    return path.resolve() if path.exists() else locate_model(resolve(overrides={"model": name}))


def _can_read(engine: str, model: str) -> bool:
    return ENGINES[engine].reads_gguf or Path(model).is_dir()


def _engine_names(text: str) -> list[str]:
    """Return octavo and the engines named."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        _require_known("--engines", name, list(ENGINES))
    return [OCTAVO, *names]


def _python_path(engine: str, name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ConfigError(f"{name!r} is no program (--python {engine}=...)")
    # not resolved: a venv's Python is a link, and knows its venv by where the link is
    return str(Path(found).absolute())


def _numbers(flag: str, text: str) -> list[int]:
    """Return the numbers of a list, without those that come again."""
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ConfigError(f"{flag} {text!r} is no list of numbers", f"for example: {flag} 1,4,16")
    return list(dict.fromkeys(numbers))


def _assignments(flag: str, words: Sequence[str], known: list[str]) -> dict[str, str]:
    """Return NAME=VALUE words as a dict of known names."""
    found: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not value:
            raise ConfigError(f"{flag} {word!r} is not written as NAME=VALUE")
        _require_known(flag, name, known)
        found[name] = value
    return found


def _require_known(flag: str, name: str, known: list[str]) -> None:
    if name not in known:
        raise ConfigError(
            f"unknown engine {name!r} ({flag})",
            did_you_mean(name, known),
            f"engines: {', '.join(known)}",
        )


def _options(flag: str, words: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE words as a dict; a value that is not JSON is the text it is."""
    found: dict[str, Any] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator:
            raise ConfigError(f"{flag} {word!r} is not written as KEY=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
