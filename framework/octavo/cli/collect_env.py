"""`octavo collect-env`: what a bug report should say about this machine. Holds no secrets."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

_PACKAGES = (
    "octavo", "torch", "numpy", "tokenizers", "transformers", "safetensors", "gguf", "triton",
    "huggingface_hub", "litestar", "uvicorn", "uvloop", "msgspec", "pydantic", "pluggy", "jinja2",
)  # fmt: skip
#: environment variables are shown by name from this list only: others may hold secrets
_VARIABLES = (
    "OCTAVO_CONFIG", "OCTAVO_NO_PLUGINS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY",
    "GOMP_CPU_AFFINITY", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "VIRTUAL_ENV",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how to print."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the facts, grouped."""
    facts = collect()
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    for group, values in facts.items():
        print(f"{group}:")
        width = max((len(name) for name in values), default=0)
        for name, value in values.items():
            print(f"  {name:{width}}  {_indented(str(value), width + 4)}")
    return 0


def collect() -> dict[str, dict[str, Any]]:
    """Return all facts by group. What cannot be found out says why."""
    return {
        "versions": {name: _version(name) for name in _PACKAGES},
        "python": {
            "version": sys.version.replace("\n", " "),
            "implementation": platform.python_implementation(),
            "platform": platform.platform(),
            "libc": " ".join(platform.libc_ver()),
        },
        "machine": _machine(),
        "torch": _torch(),
        "plugins": _plugins(),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _machine() -> dict[str, Any]:
    from octavo.config.resolve import resolve
    from octavo.errors import OctavoError

    facts: dict[str, Any] = {"cores": os.cpu_count()}
    try:
        config = resolve()
        return {
            **facts,
            "chosen": {kind: one.name for kind, one in config.chosen.items()},
            **config.build("platform").describe(),
        }
    except OctavoError as error:
        return {**facts, "problem": str(error)}


def _torch() -> dict[str, Any]:
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        return {"problem": str(error)}
    return {
        "version": torch.__version__,
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_available() and torch.cuda.get_device_name(),
        "config": torch.__config__.show(),
        "parallel": torch.__config__.parallel_info(),
    }


def _plugins() -> dict[str, str]:
    from octavo.errors import OctavoError
    from octavo.plugin.catalogue import build_catalogue

    try:
        records = build_catalogue().plugins
    except OctavoError as error:
        return {"problem": str(error)}
    return {
        record.key: f"{record.version} {record.state} {record.reason}".strip() for record in records
    }


def _indented(text: str, width: int) -> str:
    return text.rstrip().replace("\n", "\n" + " " * width)
