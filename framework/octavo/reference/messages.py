"""Pages on what comes out: errors and metrics.

Knows the classes of errors and what /metrics shows. Does not know when either happens.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from octavo.errors import OctavoError
from octavo.reference.markdown import anchor, code, codes, first_line, inline, page, prose, table
from octavo.serving.metrics import PREFIXES, ModelMetrics, ServerMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

_ERRORS = """\
Every error that Octavo raises on purpose derives from `octavo.OctavoError`. A message is a headline
(what failed, and where that was written) and one fact a line: the nearest match, what is valid and
who provides it, what to do. `error.headline` and `error.facts` hold the parts."""
_METRICS = """\
`/metrics` has each of these under two names: `octavo:NAME`, and vLLM's `vllm:NAME`, so that
dashboards made for it keep working. Counters never fall, also when an engine is replaced."""

#: where errors are defined; a test finds those that are not here
_MODULES = (
    "octavo.errors",
    "octavo.serving.deadlines",
    "octavo.serving.gate",
    "octavo.serving.http_errors",
    "octavo.testing.invariants",
    "octavo.text.chat_template",
    "octavo_plugins.executors.gloo",
)


def errors_page() -> str:
    """Return the page of all errors."""
    rows = [
        (
            f"[{cls.__name__}](#{anchor(cls.__name__)})",
            first_line(cls.__doc__),
            str(cls.exit_code),
            str(cls.http_status),
        )
        for cls in error_classes()
    ]
    body = [table(("error", "when", "exit code", "HTTP"), rows)]
    for cls in error_classes():
        bases = [
            f"[{one.__name__}](#{anchor(one.__name__)})"
            if issubclass(one, OctavoError)
            else code(one.__name__)
            for one in cls.__bases__
        ]
        body += [f"## `{cls.__name__}`", f"Is: {', '.join(bases)}.", *prose(cls.__doc__)]
    return page("Errors", _ERRORS, body)


def error_classes() -> list[type[OctavoError]]:
    """Return all classes, each after what it derives from."""
    for module in _MODULES:
        importlib.import_module(module)
    return list(_below(OctavoError))


def _below(cls: type[OctavoError]) -> Iterator[type[OctavoError]]:
    yield cls
    known = [one for one in cls.__subclasses__() if one.__module__ in _MODULES]
    for below in sorted(known, key=lambda one: _MODULES.index(one.__module__)):
        yield from _below(below)


def metrics_page() -> str:
    """Return the page of all metrics."""
    model = ModelMetrics("smollm2")
    model.sequence_finished("stop", 0.0)
    rows, aliases = [], set()
    for one in ServerMetrics([model]).collect():
        prefix, _, name = _exposed(one).partition(":")
        if f"{prefix}:" == PREFIXES[0]:
            labels = {key for sample in one.samples for key in sample.labels} - {"le"}
            rows.append((name, one.type, inline(one.documentation), codes(sorted(labels))))
        else:
            aliases.add(name)
    shown = [
        (code(f"octavo:{name}"), *rest, code(f"vllm:{name}") if name in aliases else "")
        for name, *rest in rows
    ]
    return page("Metrics", _METRICS, [table(("name", "type", "what", "labels", "also"), shown)])


def _exposed(one: Metric) -> str:
    """Return a metric's name as a scrape has it."""
    return f"{one.name}_total" if one.type == "counter" else one.name


def problems() -> Iterator[str]:
    """Yield each error and metric that nothing is said of."""
    for cls in error_classes():
        if not first_line(cls.__dict__.get("__doc__")):
            yield f"error {cls.__name__}: no docstring"
    for one in ServerMetrics([ModelMetrics("smollm2")]).collect():
        if not one.documentation:
            yield f"metric {one.name}: no text"
