"""The page of the stock components: what each does, its options, and what requests may set for it.

Knows declarations and their models. Does not know any implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.plugin.build import load_options, load_params
from octavo.plugin.catalogue import build_catalogue
from octavo.plugin.discovery import DiscoverySettings
from octavo.plugin.kinds import KINDS
from octavo.reference.fields import field_rows
from octavo.reference.markdown import anchor, code, codes, first_line, inline, page, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.plugin.catalogue import Catalogue, Entry

_INTRO = """\
The components that come with Octavo. Options are written below the section of the kind, beside
`use`, or as `--KIND.OPTION VALUE`. Parameters of a request go among the fields of its body, into
`vllm_xargs`, or into `SamplingParams.extra_args`. `octavo plugins list` shows what else is
installed, `octavo plugins info KIND:NAME` one component."""
_OPTION = ("option", "values", "default", "what")
_PARAMETER = ("parameter", "values", "default", "what")


def stock() -> Catalogue:
    """Return the catalogue of the stock components, whatever else is installed."""
    return build_catalogue(DiscoverySettings(stock_only=True))


def components_page() -> str:
    """Return the page."""
    catalogue = stock()
    body = []
    for kind in KINDS.values():
        link = f"[kind {kind.name}](kinds/{kind.name}.md)"
        body += [f"## {kind.name}", f"Decides {inline(kind.decides)}: {link}."]
        entries = catalogue.all(kind.name)
        if len(entries) > 1:
            rows = [
                (f"[{one.name}](#{anchor(one.kind, one.name)})", inline(one.component.summary))
                for one in entries
            ]
            body.append(table(("", ""), rows))
        for entry in entries:
            body += _component(entry)
    return page("Components", _INTRO, body)


def _component(entry: Entry) -> Iterator[str]:
    component = entry.component
    yield f"### {entry.kind} `{entry.name}`"
    yield f"{inline(component.summary[:1].upper() + component.summary[1:])}."
    facts = [
        ("offers", codes(sorted(component.offers))),
        ("requires", codes(component.requires)),
        ("`auto`", component.why_not and "asks whether it can run here"),
        ("target", code(entry.target)),
    ]
    yield table(("", ""), [(name, value) for name, value in facts if value])
    options, params = load_options(entry), load_params(entry)
    for header, model in ((_OPTION, options), (_PARAMETER, params)):
        rows = [(code(row.key), *row[1:]) for row in field_rows(model)] if model else []
        if rows:
            yield table(header, rows)


def problems() -> Iterator[str]:
    """Yield each component without a summary, and each field that nothing is said of."""
    catalogue = stock()
    for entry in (one for kind in KINDS for one in catalogue.all(kind)):
        where = f"{entry.kind} {entry.name}"
        if not entry.component.summary:
            yield f"{where}: no summary"
        for model in (load_options(entry), load_params(entry)):
            if model is None:
                continue
            if not first_line(model.__doc__):
                yield f"{where}: {model.__name__} has no docstring"
            yield from (
                f"{where}: {row.key} has no description"
                for row in field_rows(model)
                if not row.description
            )
