"""Access control of the console: every request is authenticated and authorised before its route.

A route answers only those whose role it was declared for; a route that was declared for nobody
answers nobody.  What changes something needs, besides, a token that other sites cannot know, and
comes from a page of this console.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Match, Route

from guard.console.access import ACTS, COOKIE, READS, TRIES, Access, Limiter, SignedIn
from guard.console.routes import BODY_LIMIT, Page
from guard.operations.deployment import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


CSRF_FIELD: Final = "csrf"
CSRF_HEADER: Final = "x-csrf-token"
SAFE: Final = frozenset({"GET", "HEAD"})
PUBLIC: Final = "public"
"""Declared for everybody: the form to sign in, and the files of the pages."""
COUNTED: Final = "counted"
"""Likewise, and each request is a try to sign in."""
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

_REFUSED: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>{title} · Egress guard</title>
<link rel="stylesheet" href="/static/pico.min.css">
<link rel="stylesheet" href="/static/console.css"></head><body>
<header><span class="brand">Egress guard</span></header><main><h1>{title}</h1>
<p role="alert">{text}</p><p><a href="/">to the first page</a></p></main></body></html>"""
"""Shows fixed texts of this module only."""


class AuthorizationMiddleware:
    """ASGI middleware that lets a request through, or answers it itself.

    Args:
        app: the pages.
        routes: of the pages.
        pages: by name of a route, what was declared: the role that it is for, or :data:`PUBLIC`.
        access: signs people in.
        hosts: names by which the console is called; others are refused (DNS rebinding).
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[Route],
        pages: Mapping[str, Page],
        access: Access,
        hosts: Collection[str],
    ) -> None:
        self._app = app
        self._routes = routes
        self._pages = pages
        self._access = access
        self._hosts = frozenset(hosts)
        self._tries = Limiter(TRIES, access.now)
        self._acts = Limiter(ACTS, access.now)
        self._reads = Limiter(READS, access.now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                fixed = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                message["headers"] = [*message["headers"], *(p for p in fixed if p[0] not in given)]
            await send(message)

        refused = await self._refused(Request(scope, receive), scope)
        if refused is not None:
            await refused(scope, receive, with_headers)
            return
        body: bytes = scope["state"].pop("body", b"")
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        again = receive if scope["method"] in SAFE else replay
        await self._app(scope, again, with_headers)

    async def _refused(self, request: Request, scope: Scope) -> Response | None:
        """Return the answer to a request that does not pass; note what pages need of others."""
        if (urlsplit(f"//{request.headers.get('host', '')}").hostname or "") not in self._hosts:
            return PlainTextResponse(
                "host name not configured for this console; add it with `--console-url`", 421
            )
        page = self._page(scope)
        needed = page.needs if page is not None else None
        certificate = scope.get("state", {}).get("certificate", b"")
        signed_in, by_secret = self._who(request, certificate)
        scope["state"] = {"signed_in": signed_in, "certificate": certificate}
        open_to_all = needed in {PUBLIC, COUNTED}
        if not self._within_limits(request, needed, signed_in):
            return _answer(request, 429, "too many in a minute; wait")
        if not open_to_all:
            if signed_in is None:
                return _unknown(request)
            if not isinstance(needed, Role) or not signed_in.person.may(needed):
                refusal = (
                    (403, "this is not for your role")
                    if needed
                    else (404, "this page does not exist; it may have been answered")
                )
                return _answer(request, *refusal)
        if request.method in SAFE:
            return None
        # A person who signs in is not authenticated yet, with any cookie.
        who = None if open_to_all else signed_in
        return await self._unsafe(request, scope, who, by_secret=by_secret and who is not None)

    def _within_limits(
        self, request: Request, needed: Role | str | None, signed_in: SignedIn | None
    ) -> bool:
        """Return whether somebody may ask once more; a secret that is not known is a try."""
        tries = needed == COUNTED or (signed_in is None and "authorization" in request.headers)
        if tries and not self._tries.allows(request.client.host if request.client else ""):
            return False
        return signed_in is None or self._reads.allows(signed_in.person.approver.subject)

    async def _unsafe(
        self, request: Request, scope: Scope, signed_in: SignedIn | None, *, by_secret: bool
    ) -> Response | None:
        if signed_in and not self._acts.allows(signed_in.person.approver.subject):
            return _answer(request, 429, "too many in a minute; wait")
        page, body = self._page(scope), bytearray()
        longest = page.longest if page is not None else BODY_LIMIT
        async for chunk in request.stream():
            body += chunk
            if len(body) > longest:
                return _answer(request, 413, "the request is too long")
        form = _form(request, bytes(body))
        scope["state"] |= {"body": bytes(body), "form": form}
        if by_secret:
            return None
        if not self._same_origin(request):
            return _answer(request, 403, "this came from another site")
        if signed_in is not None:
            given = request.headers.get(CSRF_HEADER) or next(iter(form.get(CSRF_FIELD, [])), "")
            if not hmac.compare_digest(given.encode(), signed_in.csrf.encode()):
                return _answer(request, 403, "the page was not this console's; load it anew")
        return None

    def _page(self, scope: Scope) -> Page | None:
        """Return what was declared of the route that a request would reach."""
        for route in self._routes:
            if route.matches(scope)[0] is Match.FULL:
                return self._pages.get(route.name)
        return None

    def _who(self, request: Request, certificate: bytes) -> tuple[SignedIn | None, bool]:
        """Return who asks, and whether by a secret that no browser sends on its own."""
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            person = self._access.bearer(secret.strip())
            if person is not None:
                return SignedIn(person, "", 0.0, 0.0), True
            return None, False
        return self._access.session(request.cookies.get(COOKIE, ""), certificate), False

    def _same_origin(self, request: Request) -> bool:
        """Return whether a page of this console sent it; browsers say so, in one header or both."""
        site = request.headers.get("sec-fetch-site")
        if site is not None and site not in {"same-origin", "none"}:
            return False
        origin = request.headers.get("origin")
        if origin in {None, "null"}:
            return origin is None and site is not None
        return urlsplit(str(origin)).netloc == request.headers.get("host")


def _form(request: Request, body: bytes) -> dict[str, list[str]]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return {}
    try:
        return parse_qs(body.decode(), keep_blank_values=True, max_num_fields=500)
    except ValueError:
        return {}


def _unknown(request: Request) -> Response:
    pages = request.method in SAFE and not request.url.path.startswith("/api/")
    if pages and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("/sign-in", 303)
    return _answer(request, 401, "sign in first")


def _answer(request: Request, status: int, text: str) -> Response:
    headers: dict[str, Any] = {"www-authenticate": "Bearer"} if status == 401 else {}  # noqa: PLR2004
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": text}, status, headers)
    if "text/html" in request.headers.get("accept", ""):
        title = "Not found" if status == 404 else "Not done"  # noqa: PLR2004
        return HTMLResponse(_REFUSED.format(title=title, text=text), status, headers)
    return PlainTextResponse(text, status, headers)
