"""What Octavo does with vLLM's flags that are not settings of its own.

Four answers: the same thing under another name here, read as the settings that it stands for,
accepted with a warning because nothing depends on it, or refused with the reason because
something would silently differ. Flags that Octavo has under vLLM's name are not listed: they are
honoured.

Knows names and reasons. Does not know argparse.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Verdict = Literal["renamed", "read", "accepted", "refused"]


@dataclass(frozen=True, slots=True)
class Foreign:
    """One flag of vLLM's: what becomes of it, and why.

    `text` is the flag here when it is renamed (`kind.option` for an option), its help when it is
    read, else the reason.
    `harmless` is the one value of a refused flag that changes nothing and is let through.
    `is_switch`: it takes no value.
    """

    verdict: Verdict
    text: str
    harmless: str | None = None
    is_switch: bool = False


def _renamed(flag: str) -> Foreign:
    return Foreign("renamed", flag)


_CHUNKS = "prefill is always chunked: there are no phases"
_GRAPHS = "what can be recorded is recorded, and what cannot runs directly"
_SHARE = "the KV cache is sized by --kv-cache-memory-bytes or --num-gpu-blocks-override"
_RUNNER = "every model generates text and makes vectors, as each request asks"
_PARALLEL = "this version splits a model by --tensor-parallel-size alone"

#: settings that vLLM does not have; all others have its names, and are honoured
OWN_FLAGS = frozenset(
    {
        *("access-log", "depth", "log-format", "log-level", "lora-root", "max-body-bytes"),
        *("max-step-ms", "max-stream-backlog-tokens", "shutdown-timeout-s", "strict-fields"),
        *("idle-seconds", "open-metrics", "request-timeout-s"),
        *("allow-replace", "disable-plugin", "only-plugin", "plugin", "strict-plugins", "threads"),
        *("pooling", "reasoning-field"),
    }
)

FOREIGN: Mapping[str, Foreign] = MappingProxyType(
    {
        "scheduling-policy": _renamed("scheduler"),
        "attention-backend": _renamed("attention"),
        "kv-cache-dtype": _renamed("attention.cache-dtype"),
        "distributed-executor-backend": _renamed("executor"),
        "uvicorn-log-level": _renamed("log-level"),
        "enable-chunked-prefill": Foreign("accepted", _CHUNKS, is_switch=True),
        "enforce-eager": Foreign("accepted", _GRAPHS, is_switch=True),
        "gpu-memory-utilization": Foreign("accepted", _SHARE),
        "disable-log-stats": Foreign("accepted", "/metrics costs nothing", is_switch=True),
        "disable-log-requests": Foreign("accepted", "requests are not logged", is_switch=True),
        "swap-space": Foreign("accepted", "preempted requests are recomputed, never swapped"),
        "async-scheduling": Foreign("accepted", "use --depth 1 to plan ahead", is_switch=True),
        "download-dir": Foreign("accepted", "files are kept under ~/.cache/octavo"),
        "pipeline-parallel-size": Foreign("refused", _PARALLEL, "1"),
        "data-parallel-size": Foreign("refused", _PARALLEL, "1"),
        "trust-remote-code": Foreign(
            "refused", "code from a model's repository is never run: write a plugin", is_switch=True
        ),
        "runner": Foreign("accepted", _RUNNER),
        "convert": Foreign("accepted", _RUNNER),
        "pooler-config": Foreign("refused", "--pooling says how, and requests choose the rest"),
        "quantization": Foreign("refused", "the layout is read from the model's files"),
        "hf-overrides": Foreign("refused", "the model's own config is used as it is"),
        "speculative-config": Foreign(
            "read", "the proposer and its options as one JSON object, with vLLM's keys"
        ),
        "max-cpu-loras": Foreign("accepted", "--max-loras says how many stay in memory"),
        "lora-dtype": Foreign("refused", "the ops decide what adapters are kept as", "auto"),
        "fully-sharded-loras": Foreign(
            "accepted", "each rank has its share of an adapter", is_switch=True
        ),
        "guided-decoding-backend": Foreign(
            "refused", "--grammar chooses what compiles grammars", "auto"
        ),
        "structured-outputs-config": Foreign(
            "refused", "--grammar chooses what compiles grammars, requests choose whitespace", "{}"
        ),
        "enable-auto-tool-choice": Foreign(
            "accepted", "models call tools wherever a parser is found", is_switch=True
        ),
        "tool-call-parser": _renamed("tool-parser"),
    }
)
