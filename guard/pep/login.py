"""The login of clients at the servers behind reverse listeners: OAuth, carried by the guard.

What passes is read and written by :mod:`guard.protocols.http.oauth`; here documents are fetched and
token requests are sent, to the server's own origin or to an authorization server that the operator
has declared, and to nobody else.  Each step that leaves is on record first.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from guard.core.bounded_cache import bounded_cache
from guard.core.errors import MessageError
from guard.protocols.framing.json_messages import parse_json
from guard.protocols.http.message import HttpReply, HttpRequest
from guard.protocols.http.metadata import token_claims
from guard.protocols.http.oauth import (
    BODY_LIMIT,
    CODE,
    ELSEWHERE,
    ISSUER_PATH,
    OWN,
    RESOURCE_PATH,
    UNDECLARED,
    Issuer,
    Step,
    answered,
    basic_credential,
    check_issuer,
    check_resource,
    issuer_document,
    marked,
    metadata_url,
    origin,
    public_base,
    read_parameters,
    read_step,
    registration,
    resource_document,
    unmarked,
    unwrapped_state,
    well_known,
    with_metadata,
    with_query,
    wrapped_state,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection, Mapping, Sequence

    import httpx

    from guard.core.model import Json
    from guard.core.ports import AuditLog
    from guard.provenance.seal import Seal
    from guard.settings import Listener

SECONDS: Final = 10.0
"""For one answer of a server."""
KEPT_SECONDS: Final = 300.0
"""Seconds for which metadata are valid."""
TOKENS: Final = 10_000
"""Tokens whose server is remembered; the oldest is forgotten first."""
NOT_FOUND: Final = 404
BAD_REQUEST: Final = 400
FOUND: Final = 302
_OPENID: Final = "/.well-known/openid-configuration"


@dataclass(slots=True)
class _Server:
    """Known documents of one server behind a listener."""

    metadata: str = ""
    """URL of its metadata, as its last challenge named it."""
    path: str = ""
    """Path of the resource that clients have asked about."""
    until: float = 0.0
    resource: Mapping[str, Json] = field(default_factory=dict)
    issuer: Issuer | None = None


class ServerLogin:
    """Answers the login's requests, and knows which server a token is for.

    Args:
        listeners: the reverse listeners.
        declared: issuers that the operator has named.
        seal: signs what comes back through a browser.
        audit: gets a line for each step, before it is taken.
        clock: seconds since the epoch.
        trust: makes the TLS context towards servers.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        declared: Collection[str],
        *,
        seal: Seal,
        audit: AuditLog,
        clock: Callable[[], float],
        trust: Callable[[], ssl.SSLContext],
    ) -> None:
        self._listeners = {one.key: one for one in listeners}
        self._origins = frozenset(origin(one.upstream) for one in listeners)
        self._declared = frozenset(one.removesuffix("/") for one in declared)
        self._seal = seal
        self._audit = audit
        self._clock = clock
        self._trust = trust
        self._servers: dict[str, _Server] = {}
        self._tokens: OrderedDict[bytes, str] = OrderedDict()
        self.binds = len(self._origins) > 1
        """True if a token may be another server's: there is more than one."""
        self._client: httpx.AsyncClient | None = None

    # --- tokens --------------------------------------------------------------------------------

    def check(self, request: HttpRequest, credential: str) -> None:
        """Refuse a token that is for another server.

        Args:
            request: to a reverse listener.
            credential: its ``Authorization`` header.

        Raises:
            MessageError: it was issued for another server, as the guard has seen or as it says.
        """
        token = credential.partition(" ")[2].strip()
        own = origin(request.url)
        known = self._tokens.get(_digest(token))
        if known is None:
            named = {origin(one) for one in _audience(token)} & self._origins
            known = own if not named or own in named else "another"
        if known != own:
            raise MessageError(
                ELSEWHERE,
                "this token was issued for another server; log in at this one",
                status=403,
            )

    def _remember(self, document: Mapping[str, Json], server: str) -> None:
        for name in ("access_token", "refresh_token"):
            if isinstance(token := document.get(name), str):
                self._tokens[_digest(token)] = server
        while len(self._tokens) > TOKENS:
            self._tokens.popitem(last=False)

    # --- the server's challenge ----------------------------------------------------------------

    def challenge(self, request: HttpRequest, header: str) -> str:
        """Return a ``WWW-Authenticate`` header as the listener's client must find it.

        Raises nothing: one that cannot be rewritten keeps no address of metadata.
        """
        url = metadata_url(header)
        if not url:
            return header
        try:
            base = public_base(request)
        except MessageError:
            return with_metadata(header, "")
        if _key(request) not in self._listeners:
            return header
        server = self._server(request)
        if url != server.metadata and origin(url) == origin(request.url):
            server.metadata, server.until = url, 0.0
        path = request.target.partition("?")[0]
        server.path = "" if path == (self._endpoint(request) or "/") and _route(request) else path
        return with_metadata(header, well_known(base, RESOURCE_PATH, server.path))

    # --- its requests --------------------------------------------------------------------------

    async def answer(self, request: HttpRequest, principal: str, decision_id: str) -> HttpReply:
        """Answer a request of the login.

        Raises:
            MessageError: it is refused, or a server gave no answer that can be used.
        """
        step, path = read_step(request)
        base = public_base(request)
        if step is Step.RESOURCE:
            server = self._server(request)
            if path != server.path and path in self._paths(request):
                server.path, server.until = path, 0.0
            known = await self._known(request)
            if path not in {"", known.path, *self._paths(request)} or not known.resource:
                raise MessageError(CODE, "there is no such resource here", status=NOT_FOUND)
            return _json(resource_document(known.resource, base, path))
        issuer = (await self._known(request)).issuer
        if issuer is None:
            raise MessageError(CODE, "this server needs no login", status=NOT_FOUND)
        if step is Step.ISSUER:
            return _json(issuer_document(issuer, base))
        place = origin(issuer.url if step is Step.CALLBACK else issuer.endpoint(step))
        if not place:
            raise MessageError(CODE, "the authorization server has no such step", status=NOT_FOUND)
        host, _, port = place.partition("://")[2].rpartition(":")
        self._audit.event(
            "guard.login",
            {
                "decision_id": decision_id,
                "step": step.value,
                "server": request.server,
                "principal": principal,
                "host": host,
                "port": int(port),
            },
        )
        if step is Step.REGISTER:
            return await self._registered(request, issuer, base)
        parameters = read_parameters(step, request)
        if step is Step.CALLBACK:
            return self._called_back(parameters, issuer, base)
        if step is Step.AUTHORIZE:
            return self._authorized(parameters, issuer, base)
        return await self._token(step, request, parameters, issuer)

    def _authorized(self, parameters: dict[str, str], issuer: Issuer, base: str) -> HttpReply:
        """Send the browser on to the real issuer."""
        callback = f"{base}{OWN}/{Step.CALLBACK}"
        client, has_callback = unmarked(parameters.get("client_id", ""), callback, self._sign)
        parameters = {**parameters, "client_id": client}
        if has_callback:
            state = wrapped_state(
                parameters.get("redirect_uri", ""), parameters.get("state", ""), self._sign
            )
            parameters |= {"redirect_uri": callback, "state": state}
        return _redirect(
            with_query(issuer.endpoint(Step.AUTHORIZE), _at(issuer, parameters)),
        )

    def _called_back(self, parameters: dict[str, str], issuer: Issuer, base: str) -> HttpReply:
        """Send the browser on to the client, with the listener's own name for the issuer."""
        redirect, state = unwrapped_state(parameters.pop("state", ""), self._sign)
        if parameters.pop("iss", "").removesuffix("/") != issuer.url.removesuffix("/"):
            raise MessageError(CODE, "the answer is another issuer's")
        fields = {**parameters, "iss": f"{base}{OWN}"}
        return _redirect(with_query(redirect, {**fields, "state": state} if state else fields))

    async def _registered(self, request: HttpRequest, issuer: Issuer, base: str) -> HttpReply:
        """Pass a registration on; with the listener's callback where the issuer names itself."""
        client_metadata = registration(request.json())
        callback = f"{base}{OWN}/{Step.CALLBACK}"
        sent: dict[str, Json] = dict(client_metadata)
        if issuer.names_itself and client_metadata.get("redirect_uris"):
            sent["redirect_uris"] = [*client_metadata["redirect_uris"], callback]
        body, headers = json.dumps(sent).encode(), {"content-type": "application/json"}
        status, document = await self._post(issuer.endpoint(Step.REGISTER), body, headers)
        found = answered(Step.REGISTER, document)
        if sent != client_metadata and isinstance(client := found.get("client_id"), str):
            found["client_id"] = marked(client, callback, self._sign)
            found["redirect_uris"] = client_metadata["redirect_uris"]
        return _json(found, status)

    async def _token(
        self, step: Step, request: HttpRequest, parameters: dict[str, str], issuer: Issuer
    ) -> HttpReply:
        """Pass a token request on, for this server and no other."""
        callback = f"{public_base(request)}{OWN}/{Step.CALLBACK}"
        own = origin(request.url)
        for name in ("refresh_token", "token"):
            if self._tokens.get(_digest(parameters.get(name, "")), own) != own:
                raise MessageError(
                    ELSEWHERE,
                    "this token was issued for another server; log in at this one",
                    status=403,
                )
        headers = {"content-type": "application/x-www-form-urlencoded"}
        marks = False
        if "client_id" in parameters:
            parameters["client_id"], marks = unmarked(parameters["client_id"], callback, self._sign)
        if (pair := basic_credential(request)) is not None:
            client, in_header = unmarked(pair[0], callback, self._sign)
            marks = marks or in_header
            coded = base64.b64encode(f"{client}:{pair[1]}".encode()).decode()
            headers["authorization"] = f"Basic {coded}"
        if marks and "redirect_uri" in parameters:
            parameters["redirect_uri"] = callback
        fields = _at(issuer, parameters) if step is Step.TOKEN else parameters
        body = urlencode(fields).encode()
        status, document = await self._post(issuer.endpoint(step), body, headers)
        if step is Step.REVOKE and document is None:
            return HttpReply(status, "application/json", b"")
        found = answered(step, document)
        if status < BAD_REQUEST:
            self._remember(found, own)
        return _json(found, status)

    # --- what servers say ----------------------------------------------------------------------

    def _server(self, request: HttpRequest) -> _Server:
        return self._servers.setdefault(request.server, _Server())

    def _endpoint(self, request: HttpRequest) -> str:
        return self._listeners[_key(request)].endpoint

    def _paths(self, request: HttpRequest) -> tuple[str, ...]:
        """Return the paths of a resource that may be asked about; nothing of an agent's own."""
        declared = self._endpoint(request)
        return (declared, "") if declared else ("/mcp", "/sse", "")

    async def _known(self, request: HttpRequest) -> _Server:
        """Return what a server says of its login, fetched at most every few minutes.

        Raises:
            MessageError: it says what cannot be used, or its issuer is not declared.
        """
        server, now = self._server(request), self._clock()
        if server.until > now:
            return server
        base = self._listeners[_key(request)].upstream
        named = server.path or self._endpoint(request)
        urls = [server.metadata] if server.metadata else []
        paths = dict.fromkeys((named, *self._paths(request)))
        urls += [f"{base}{RESOURCE_PATH}{path}" for path in paths]
        document = await self._first(urls)
        resource = {} if document is None else check_resource(document, base)
        listed = resource.get("authorization_servers") or [base]
        servers = [str(one) for one in listed] if isinstance(listed, list) else []
        url = next((one for one in servers if self._may_issue(one, base)), "".join(servers[:1]))
        server.issuer = await self._issuer(url, base, resource)
        server.resource = resource or ({"resource": f"{base}{named}"} if server.issuer else {})
        server.until = now + KEPT_SECONDS
        return server

    async def _issuer(self, url: str, base: str, resource: Mapping[str, Json]) -> Issuer | None:
        """Return the authorization server of a server, None where it has none.

        Raises:
            MessageError: nobody declared it, or its metadata cannot be used.
        """
        if not self._may_issue(url, base):
            raise MessageError(
                UNDECLARED,
                f"the server's tokens are issued at {origin(url) or 'no URL'}, which the operator "
                "has not declared",
                status=403,
            )
        path = urlsplit(url).path.removesuffix("/")
        document = await self._first(
            [
                well_known(url, ISSUER_PATH, ""),
                well_known(url, _OPENID, ""),
                f"{origin(url)}{path}{_OPENID}",
            ]
        )
        if document is None and not resource:
            return None
        is_declared = url.removesuffix("/") in self._declared
        checked = check_issuer(document, url, is_declared=is_declared)
        return Issuer(str(resource.get("resource") or ""), url, checked)

    def _may_issue(self, url: str, base: str) -> bool:
        return url.removesuffix("/") in self._declared or origin(url) == origin(base)

    async def _first(self, urls: Sequence[str]) -> Json:
        """Return the first document that is there.

        Raises:
            MessageError: a server gave no answer.
        """
        for url in dict.fromkeys(urls):
            status, document = await self._ask("GET", url, b"", {})
            if status == 200:  # noqa: PLR2004  (found)
                return document
        return None

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Json]:
        return await self._ask("POST", url, body, headers)

    async def _ask(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, Json]:
        """Return status and document of an answer; redirects are not followed.

        Raises:
            MessageError: none came, or too much, or none in JSON.
        """
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=self._trust(), timeout=SECONDS, follow_redirects=False, trust_env=False
            )
        sent = {**headers, "accept": "application/json", "accept-encoding": "identity"}
        try:
            async with self._client.stream(method, url, content=body, headers=sent) as answer:
                read = bytearray()
                async for piece in answer.aiter_bytes():
                    read += piece
                    if len(read) > BODY_LIMIT:
                        raise MessageError(
                            CODE, "the answer of a server to the login is too large", status=502
                        )
                if not read or (method == "GET" and answer.status_code != 200):  # noqa: PLR2004  (found)
                    return answer.status_code, None
                return answer.status_code, parse_json(bytes(read))
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise MessageError(
                CODE, f"a server of the login gave no answer ({type(error).__name__})", status=502
            ) from error

    def _sign(self, text: str) -> str:
        return self._seal.signature("login", text.encode())[:32]

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


def _at(issuer: Issuer, parameters: Mapping[str, str]) -> dict[str, str]:
    """Return parameters that ask for a token of the real server, where it has a name."""
    rest = {name: value for name, value in parameters.items() if name != "resource"}
    return {**rest, "resource": issuer.resource} if issuer.resource else rest


def _key(request: HttpRequest) -> str:
    return request.server.rpartition(":")[2]


def _route(request: HttpRequest) -> str:
    return request.server.partition("/")[2]


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode(), digest_size=16).digest()


@bounded_cache(1024)
def _audience(token: str) -> list[str]:
    """Return whom a JSON Web Token says it is for, nobody where it is none."""
    audience = token_claims(token).get("aud")
    return [
        one
        for one in (audience if isinstance(audience, list) else [audience])
        if isinstance(one, str)
    ]


def _json(document: Mapping[str, Json], status: int = 200) -> HttpReply:
    return HttpReply(status, "application/json", json.dumps(document).encode())


def _redirect(url: str) -> HttpReply:
    return HttpReply(FOUND, "text/plain", b"", (("location", url),))
