"""OpenAPI document of the console's API, made from the table of routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from guard.console.routes import API, Page
from guard.core import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

_RESPONSES: Final = {
    "200": "done",
    "400": "the body or a parameter is invalid",
    "401": "not signed in",
    "403": "not allowed for this role",
    "409": "not done; the error says why",
    "429": "too many requests in a minute",
    "503": "the state or the audit log cannot be reached; nothing was done",
}


def openapi(table: Iterable[Page]) -> dict[str, Any]:
    """Return the OpenAPI document of the API's routes in a table."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for page in table:
        if page.path.startswith(f"{API}/"):
            paths.setdefault(page.path, {})[page.method.lower()] = _described(page, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Console of the egress guard", "version": VERSION},
        "security": [{"secret": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"secret": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(page: Page, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the description of one route; its schemas are added to ``schemas``."""
    parts = page.path.removeprefix(f"{API}/").split("/")
    names = [part[1:-1] for part in parts if part.startswith("{")]
    parameters = [_parameter(name, "path") for name in names]
    described: dict[str, Any] = {
        "summary": page.about,
        "operationId": "_".join([page.method.lower(), *(part.strip("{}") for part in parts)]),
        "x-role": str(page.needs),
        "parameters": [*parameters, *(_parameter(name, "query") for name in page.query)],
        "responses": {code: {"description": text} for code, text in _RESPONSES.items()},
    }
    if page.body is not None:
        schema = page.body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        content = {"application/json": {"schema": schema}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _parameter(name: str, where: str) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}
