"""Resources of the console: one handler each, shown as JSON or as a page.

The same table serves browsers, programs and commands where no console runs
(``guard/console/resources.py``), so this module needs no templates.

OpenAPI document of the console's API, made from the table of routes.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_origin

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response

from guard.core import VERSION
from guard.core.errors import AuditError, GuardError, InputError, StateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from starlette.requests import Request

    from guard.operations.deployment import Person, Role


if TYPE_CHECKING:
    Shown = Callable[..., Response]
    """Renders a page: takes the request, the template's name and its values."""

_DIGITS: Final = 18
API: Final = "/api"
BODY_LIMIT: Final = 1024 * 1024
"""Maximum size of a body, in bytes."""
LARGE: Final = 16 * 1024 * 1024
"""Maximum size of evidence or of a whole memory, in bytes."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a resource."""

    person: Person
    path: dict[str, str]
    """Parameters of the path."""
    query: Mapping[str, str]
    body: Any
    """Body, as an instance of the resource's model."""

    def number(self, name: str, usual: int = 0, most: int = 10**_DIGITS) -> int:
        """Return a number of the query; the usual one where it has none."""
        text = self.query.get(name, "")
        return min(max(1, number(text)), most) if number(text) else usual


@dataclass(frozen=True, slots=True)
class Page:
    """One route."""

    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    needs: Role | Literal["public", "counted"]
    method: str = "GET"
    body: type[BaseModel] | None = None
    """Model of the body."""
    query: tuple[str, ...] = ()
    """Names of the query's parameters."""
    longest: int = BODY_LIMIT
    """Maximum size of the body, in bytes."""
    about: str = ""
    """Description in the OpenAPI document."""

    @property
    def operation(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource or act, with one handler for programs and browsers.

    Programs use ``/api`` and its path, with JSON.  Browsers use the path itself: a page from
    ``template``, or a form that returns to ``back``.
    """

    path: str
    about: str
    """Description in the OpenAPI document."""
    handler: Callable[[Call], Awaitable[Any]]
    """Returns JSON values, or a response."""
    needs: Role
    body: type[BaseModel] | None = None
    """Model of the body; a resource with a body is an act."""
    query: tuple[str, ...] = ()
    longest: int = BODY_LIMIT
    template: str = ""
    """Name of the page's template; empty where browsers have no page."""
    back: str = ""
    """Page after a form was sent; parameters of the path and the result are filled in."""
    page: str = ""
    """Path for browsers, if it is another one."""
    is_api: bool = True
    """True if programs use it as well."""

    def pages(self, shown: Shown | None = None) -> Iterator[Page]:
        """Yield the routes.

        Args:
            shown: renders pages; None yields the routes for programs only.
        """
        method = "GET" if self.body is None else "POST"

        async def as_json(request: Request) -> Response:
            found = await self.handler(await self._call(request))
            return found if isinstance(found, Response) else JSONResponse(found)

        async def as_page(request: Request) -> Response:
            call = await self._call(request)
            found: Any = await self.handler(call)
            if self.back:
                # The path's parameters name the place; the result may name a new one.
                values = found if isinstance(found, dict) else {}
                return RedirectResponse(self.back.format(**{**values, **call.path}), 303)
            if isinstance(found, Response) or shown is None:
                return found if isinstance(found, Response) else JSONResponse(found)
            return shown(request, self.template, data=found, **found)

        rest = (self.needs, method, self.body, self.query, self.longest, self.about)
        if self.is_api:
            yield Page(f"{API}{self.path}", as_json, *rest)
        if shown is not None and (self.template or self.back):
            yield Page(self.page or self.path, as_page, *rest)

    async def _call(self, request: Request) -> Call:
        """Return a request with its body checked.

        Raises:
            InputError: the body does not fit the model.
        """
        body = None
        if self.body is not None:
            try:
                form = getattr(request.state, "form", None)
                if form:
                    body = self.body.model_validate(_given(self.body, form))
                else:
                    body = self.body.model_validate_json(await request.body() or b"{}")
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(str(part) for part in first["loc"])
                raise InputError(f"the body: {place}: {first['msg']}") from error
        signed_in = request.state.signed_in
        return Call(signed_in.person, dict(request.path_params), request.query_params, body)


def _given(model: type[BaseModel], form: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the fields of a form that a model has; empty fields are left out."""
    given: dict[str, Any] = {}
    for name, about in model.model_fields.items():
        values = [one for one in form.get(name, ()) if one.strip()]
        if values:
            given[name] = values if get_origin(about.annotation) is tuple else values[0]
    return given


def acted(
    act: Callable[[Person, Any], Awaitable[Any]],
) -> Callable[[Call], Awaitable[Any]]:
    """Return the handler of an act that takes the person and the body."""
    return lambda call: act(call.person, call.body)


def number(text: str) -> int:
    """Return a text of digits as a number, 0 for any other."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0


def failure(error: Exception) -> tuple[int, str]:
    """Return status and text of an error; nothing was released."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, InputError):
        return 400, str(error)
    if isinstance(error, StateError | AuditError | sqlite3.Error):
        return 503, f"nothing was done: {str(error) or type(error).__name__}"
    return (409 if isinstance(error, GuardError) else 500), str(error)


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
