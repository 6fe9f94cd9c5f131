"""The server's own OpenAPI document: every route, the shape of its body, and how errors look.

A route says what it reads by `opt={BODY: Struct}`; its docstring is its summary. Bodies are decoded
by msgspec from the same struct, so that the document cannot say anything else.

Knows Litestar's routes and JSON schemas. Does not know what any route does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from litestar import HttpMethod, Litestar, Request, Response, get
from litestar.routes import HTTPRoute

from octavo import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from litestar.handlers import HTTPRouteHandler

#: key of a route's `opt` under which the struct of its body stands
BODY: Final = "octavo_body"
#: key of a route's `opt` under which its summary stands, where its docstring is none
SUMMARY: Final = "octavo_summary"
#: key of a route's `opt` that leaves it out of the document
HIDDEN: Final = "octavo_hidden"
_SCHEMAS: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_IMPLIED: Final = frozenset({"OPTIONS", "HEAD"})
_NO_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


@get("/openapi.json", opt={HIDDEN: True}, sync_to_thread=False)
def openapi_route(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Answer with the document of the application that was asked."""
    body = msgspec.json.encode(openapi_document(request.app))
    return Response(body, media_type="application/json")


def openapi_document(app: Litestar) -> dict[str, Any]:
    """Return the document of an application, as OpenAPI 3.1 has it."""
    found = list(_operations(app))
    bodies = list(dict.fromkeys(one.opt[BODY] for _, _, one in found if BODY in one.opt))
    shapes, components = msgspec.json.schema_components(bodies, ref_template=_SCHEMAS)
    schemas = dict(zip(bodies, shapes, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for path, method, handler in found:
        plain = _PARAMETER.sub(r"{\1}", path)
        paths.setdefault(plain, {})[method.lower()] = _operation(path, method, handler, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Octavo", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operations(app: Litestar) -> Iterable[tuple[str, str, HTTPRouteHandler]]:
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        for handler in route.route_handlers:
            if HIDDEN in handler.opt:
                continue
            for method in sorted(
                {HttpMethod(one).value for one in handler.http_methods} - _IMPLIED
            ):
                yield route.path_format, method, handler


def _operation(
    path: str, method: str, handler: HTTPRouteHandler, schemas: Mapping[Any, Any]
) -> dict[str, Any]:
    summary = str(handler.opt.get(SUMMARY, handler.fn.__doc__ or "")).strip().partition("\n")[0]
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', path)}",
        "responses": {
            str(handler.status_code or 200): {"description": "the answer, or its stream of events"},
            "default": {"description": "an error, in the shape of the API that was asked"},
        },
        "security": [{"bearer": []}, {}],
    }
    if summary:
        operation["summary"] = summary
    names = _PARAMETER.findall(path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    body = handler.opt.get(BODY)
    if body is not None and method not in _NO_BODY:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[body]}},
        }
    return operation
