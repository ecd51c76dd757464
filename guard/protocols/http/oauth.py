"""The login of a listener's clients at its server, in a closed grammar.  Pure: no I/O.

A client knows its server by the listener's URL.  It looks there for who issues tokens (RFC 9728;
MCP authorization, 2025-06-18 and later), and refuses metadata that name another resource; the real
issuer knows the server by its own URL only (RFC 8707).  So a listener stands for both: it
answers as the protected resource and as an authorization server of its own (RFC 8414), sends the
user's browser on to the real one, and passes on token requests, each with the real server as the
``resource``.  A token is therefore bound to that server, and to no address of the guard.

Only the members and parameters that are named here pass, in either direction.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from guard.core.errors import MessageError
from guard.protocols.http.message import HttpReply, HttpRequest, parse_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from guard.core.model import Json

CODE: Final = "bad_login"
UNDECLARED: Final = "authorization_server"
ELSEWHERE: Final = "token_elsewhere"
RESOURCE_PATH: Final = "/.well-known/oauth-protected-resource"
ISSUER_PATH: Final = "/.well-known/oauth-authorization-server"
_OPENID_PATH: Final = "/.well-known/openid-configuration"
WELL_KNOWN: Final = (RESOURCE_PATH, ISSUER_PATH, _OPENID_PATH)
OWN: Final = "/.guard/oauth"
"""Path of the issuer that a listener stands for."""
LOGIN_PATHS: Final = (*WELL_KNOWN, f"{OWN}/")
"""Every request whose target begins with one of these is the login's, however broken."""
BODY_LIMIT: Final = 64 * 1024
"""Bytes of a document or form."""


class Step(StrEnum):
    """Request of a client to the login."""

    RESOURCE = "resource"
    ISSUER = "issuer"
    AUTHORIZE = "authorize"
    CALLBACK = "callback"
    TOKEN = "token"  # noqa: S105  (the name of an endpoint)
    REGISTER = "register"
    REVOKE = "revoke"


_POSTED: Final = frozenset({Step.TOKEN, Step.REGISTER, Step.REVOKE})


def read_step(request: HttpRequest) -> tuple[Step, str]:
    """Return what a request asks for, and the path of the resource that it is about.

    Raises:
        MessageError: it is not a step of the login.
    """
    path = request.target.partition("?")[0]
    if path.startswith(RESOURCE_PATH):
        found, rest = Step.RESOURCE, path.removeprefix(RESOURCE_PATH).removesuffix("/")
    elif path in {ISSUER_PATH, f"{ISSUER_PATH}{OWN}"}:
        found, rest = Step.ISSUER, ""
    elif path.startswith(f"{OWN}/") and path.removeprefix(f"{OWN}/") in set(Step):
        found, rest = Step(path.removeprefix(f"{OWN}/")), ""
    else:
        raise MessageError(CODE, "there is no such step of the login", status=404)
    if request.method != ("POST" if found in _POSTED else "GET"):
        raise MessageError(CODE, f"`{request.method[:20]}` is no method of this step", status=405)
    if len(request.body) > BODY_LIMIT or (request.body and found not in _POSTED):
        raise MessageError(CODE, "this step of the login takes no such body")
    return found, rest


# --- where a listener stands ----------------------------------------------------------------------

_HOST: Final = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


def public_base(request: HttpRequest) -> str:
    """Return the URL by which a client reaches the server: scheme, host, path of its route.

    Raises:
        MessageError: the client did not say by which name it has reached the listener.
    """
    host = request.header("host") or ""
    if not _HOST.fullmatch(host):
        raise MessageError(CODE, "the login needs a `host` header")
    route = request.server.partition("/")[2]
    scheme = "https" if request.secure else "http"
    return f"{scheme}://{host}{'/' if route else ''}{route}"


def well_known(base: str, name: str, path: str) -> str:
    """Return the URL of a well-known document of what lies below a base (RFC 9728, 3.1)."""
    parts = urlsplit(base)
    return f"{parts.scheme}://{parts.netloc}{name}{parts.path.removesuffix('/')}{path}"


def origin(url: str) -> str:
    """Return scheme, host and port of a URL in one spelling; empty where it has none."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except ValueError:
        return ""
    if not parts.hostname or parts.username is not None or not port:
        return ""
    return f"{parts.scheme}://{parts.hostname.lower()}:{port}"


_METADATA_PARAMETER: Final = re.compile(
    r'(resource_metadata\s*=\s*)(?:"([^"]*)"|([^\s,"]+))', re.IGNORECASE
)


def metadata_url(challenge: str) -> str:
    """Return the URL of the metadata that a ``WWW-Authenticate`` header names, if any."""
    found = _METADATA_PARAMETER.search(challenge)
    return (found[2] or found[3] or "") if found else ""


def with_metadata(challenge: str, url: str) -> str:
    """Return a ``WWW-Authenticate`` header that names the listener's metadata."""
    if _METADATA_PARAMETER.search(challenge):
        return _METADATA_PARAMETER.sub(lambda one: f'{one[1]}"{url}"', challenge)
    return challenge


# --- documents ------------------------------------------------------------------------------------

_TEXT_LIMIT: Final = 16 * 1024
_WORD: Final = re.compile(r"[\x20-\x7e]*")
_RESOURCE_KEPT: Final = ("scopes_supported", "bearer_methods_supported")
_ISSUER_KEPT: Final = (
    "scopes_supported",
    "response_types_supported",
    "grant_types_supported",
    "code_challenge_methods_supported",
    "client_id_metadata_document_supported",
)
_CLIENT_PROOFS: Final = frozenset({"none", "client_secret_basic", "client_secret_post"})
"""Proofs of a client that do not name the issuer, as a signed one does."""
_TOKEN_KEPT: Final = (
    *("access_token", "token_type", "expires_in", "refresh_token", "scope", "id_token"),
    *("error", "error_description", "error_uri"),
)
_CLIENT_KEPT: Final = (
    *("redirect_uris", "token_endpoint_auth_method", "grant_types", "response_types"),
    *("client_name", "client_uri", "scope", "application_type", "software_id", "software_version"),
)
_REGISTERED_KEPT: Final = (
    *("client_id", "client_secret", "client_id_issued_at", "client_secret_expires_at"),
    *_CLIENT_KEPT,
    *("error", "error_description"),
)


def _kept(document: Mapping[str, Json], names: Collection[str]) -> dict[str, Json]:
    """Return the members of a document that pass: plain text, numbers, and lists of plain text."""
    return {name: document[name] for name in names if name in document and _plain(document[name])}


def _plain(value: Json) -> bool:
    if isinstance(value, list):
        return len(value) <= 256 and all(isinstance(v, str) and _plain(v) for v in value)  # noqa: PLR2004  (as many as no server has)
    if isinstance(value, str):
        return len(value) <= _TEXT_LIMIT and _WORD.fullmatch(value) is not None
    return isinstance(value, int)


@dataclass(frozen=True, slots=True)
class Issuer:
    """The real authorization server of one server."""

    resource: str
    """The server, as its own metadata name it; empty where it has none (2025-03-26)."""
    url: str
    """Issuer identifier."""
    document: Mapping[str, Json]
    """Its metadata (RFC 8414), checked."""

    def endpoint(self, step: Step) -> str:
        """Return the URL of an endpoint, empty where it has none."""
        return str(self.document.get(_ENDPOINTS[step]) or "")

    @property
    def names_itself(self) -> bool:
        """Return whether answers name the issuer, which clients compare (RFC 9207)."""
        return self.document.get("authorization_response_iss_parameter_supported") is True


_ENDPOINTS: Final = {
    Step.AUTHORIZE: "authorization_endpoint",
    Step.TOKEN: "token_endpoint",
    Step.REGISTER: "registration_endpoint",
    Step.REVOKE: "revocation_endpoint",
}


def resource_document(upstream: Mapping[str, Json], base: str, path: str) -> dict[str, Json]:
    """Return the protected resource's metadata as a client of the listener must find them."""
    return {
        **_kept(upstream, _RESOURCE_KEPT),
        "resource": f"{base}{path}",
        "authorization_servers": [f"{base}{OWN}"],
    }


def issuer_document(issuer: Issuer, base: str) -> dict[str, Json]:
    """Return the metadata of the issuer that a listener stands for."""
    own = f"{base}{OWN}"
    methods = issuer.document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    found: dict[str, Json] = {
        "issuer": own,
        **_kept(issuer.document, _ISSUER_KEPT),
        "token_endpoint_auth_methods_supported": [m for m in methods if m in _CLIENT_PROOFS],
        "authorization_response_iss_parameter_supported": issuer.names_itself,
    }
    for step, name in _ENDPOINTS.items():
        if issuer.endpoint(step):
            found[name] = f"{own}/{step}"
    return found


def check_resource(document: Json, upstream: str) -> Mapping[str, Json]:
    """Return a server's metadata.

    Args:
        document: as the server answered.
        upstream: origin of the server.

    Raises:
        MessageError: they are not those of this server (RFC 9728, section 3.3).
    """
    if not isinstance(document, dict) or not isinstance(document.get("resource"), str):
        raise MessageError(CODE, "the metadata of the server name no resource", status=502)
    if origin(document["resource"]) != origin(upstream):
        raise MessageError(
            CODE,
            "the metadata of the server are those of another URL; `--reverse` has to name the "
            "server as its metadata do",
            status=502,
        )
    return document


def check_issuer(document: Json, url: str, *, is_declared: bool) -> Mapping[str, Json]:
    """Return an authorization server's metadata.

    Args:
        document: as it answered.
        url: its issuer identifier.
        is_declared: whether the operator named it; one that a server names itself has its
            endpoints where it is.

    Raises:
        MessageError: they are another issuer's (RFC 8414, section 3.3), or name endpoints that
            are none.
    """
    issuer = document.get("issuer") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(issuer, str):
        raise MessageError(CODE, "the authorization server has no metadata", status=502)
    if issuer.removesuffix("/") != url.removesuffix("/"):
        raise MessageError(CODE, "the metadata are those of another issuer", status=502)
    for name in _ENDPOINTS.values():
        place = document.get(name)
        if place is None:
            continue
        held = isinstance(place, str) and origin(place) and not urlsplit(place).fragment
        if not held or (not is_declared and origin(place) != origin(url)):
            raise MessageError(CODE, f"`{name}` is none of the issuer's own", status=502)
        if urlsplit(place).scheme != "https" and urlsplit(url).scheme == "https":
            raise MessageError(CODE, f"`{name}` is not reached by TLS", status=502)
    if not document.get("authorization_endpoint") or not document.get("token_endpoint"):
        raise MessageError(CODE, "the authorization server names no endpoints", status=502)
    return document


# --- requests -------------------------------------------------------------------------------------

_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,8192}")
_SCOPE: Final = re.compile(
    r"[\x21\x23-\x5b\x5d-\x7e]{1,256}(?: [\x21\x23-\x5b\x5d-\x7e]{1,256}){0,63}"
)
_URI: Final = re.compile(r"[a-z][a-z0-9+.-]{1,63}:[\x21-\x7e]{1,2048}")
_NAME: Final = re.compile(r"[a-z_ ]{1,64}")
_GRANTS: Final = re.compile(r"authorization_code|refresh_token|client_credentials")
_PARAMETERS: Final[Mapping[Step, Mapping[str, re.Pattern[str]]]] = {
    Step.AUTHORIZE: {
        "response_type": re.compile("code"),
        "client_id": _VISIBLE,
        "redirect_uri": _URI,
        "scope": _SCOPE,
        "state": _VISIBLE,
        "code_challenge": _VISIBLE,
        "code_challenge_method": re.compile("S256"),
        "resource": _URI,
        "prompt": _NAME,
        "nonce": _VISIBLE,
        "access_type": _NAME,
    },
    Step.TOKEN: {
        "grant_type": _GRANTS,
        "code": _VISIBLE,
        "redirect_uri": _URI,
        "client_id": _VISIBLE,
        "client_secret": _VISIBLE,
        "code_verifier": _VISIBLE,
        "refresh_token": _VISIBLE,
        "scope": _SCOPE,
        "resource": _URI,
    },
    Step.REVOKE: {
        "token": _VISIBLE,
        "token_type_hint": _NAME,
        "client_id": _VISIBLE,
        "client_secret": _VISIBLE,
    },
    Step.CALLBACK: {
        "code": _VISIBLE,
        "state": _VISIBLE,
        "iss": _URI,
        "error": _NAME,
        "error_description": _WORD,
        "error_uri": _URI,
    },
}
"""Parameters of each step, and what they may be."""
_FORM: Final = "application/x-www-form-urlencoded"


def read_parameters(step: Step, request: HttpRequest) -> dict[str, str]:
    """Return the parameters of a request.

    Raises:
        MessageError: one is unknown, occurs twice or is none of its kind.
    """
    text = request.target.partition("?")[2]
    if step in _POSTED:
        if text or request.media_type != _FORM:
            raise MessageError(CODE, f"this step of the login takes `{_FORM}`")
        text = request.body.decode("latin-1")
    if step is Step.CALLBACK:
        # What an issuer answers besides is not passed on.
        known = [(n, v) for n, v in parse_qsl(text) if n in _PARAMETERS[step]]
        text = urlencode(known)
    found: dict[str, str] = {}
    for name, value in parse_fields(text, frozenset()).items():
        form = _PARAMETERS[step].get(name)
        if form is None or not isinstance(value, str) or not form.fullmatch(value):
            raise MessageError(
                CODE, f"`{name[:40]}` is no parameter of this step, or not of its form"
            )
        found[name] = value
    return found


def registration(document: Json) -> dict[str, Json]:
    """Return what of a client's registration (RFC 7591) is passed on.

    Raises:
        MessageError: it is not a registration.
    """
    uris = document.get("redirect_uris", []) if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(uris, list):
        raise MessageError(CODE, "a registration is an object with `redirect_uris`")
    if not all(isinstance(uri, str) and _URI.fullmatch(uri) for uri in uris):
        raise MessageError(CODE, "`redirect_uris` is a list of URIs")
    proof = document.get("token_endpoint_auth_method", "client_secret_basic")
    if proof not in _CLIENT_PROOFS:
        raise MessageError(CODE, "clients that sign their proof log in without the guard")
    kept = _kept(document, _CLIENT_KEPT)
    return {n: v for n, v in kept.items() if not isinstance(v, str) or len(v) <= 512}  # noqa: PLR2004  (a name)


def answered(step: Step, document: Json) -> dict[str, Json]:
    """Return what of an issuer's answer is passed on.

    Raises:
        MessageError: it is not an answer.
    """
    if not isinstance(document, dict):
        raise MessageError(CODE, "the authorization server gave no answer in JSON", status=502)
    return _kept(document, _REGISTERED_KEPT if step is Step.REGISTER else _TOKEN_KEPT)


def basic_credential(request: HttpRequest) -> tuple[str, str] | None:
    """Return client id and secret of a token request's ``Authorization``, as they stand there.

    Raises:
        MessageError: it is another proof than ``Basic``.
    """
    header = request.header("authorization")
    if header is None:
        return None
    scheme, _, coded = header.partition(" ")
    try:
        name, colon, secret = base64.b64decode(coded, validate=True).decode("ascii").partition(":")
    except (binascii.Error, UnicodeDecodeError):
        name, colon, secret = "", "", ""
    if scheme.lower() != "basic" or not colon:
        raise MessageError(CODE, "a client proves itself by `Basic` here")
    return name, secret


def refused(error: MessageError, description: str, fields: Json) -> HttpReply:
    """Return a refusal as a client of OAuth reads it (RFC 6749, section 5.2)."""
    code = _ERRORS.get(error.status, "invalid_request")
    body = json.dumps({"error": code, "error_description": description, "guard": fields}).encode()
    return HttpReply(error.status, "application/json", body)


_ERRORS: Final = {403: "access_denied", 502: "temporarily_unavailable", 503: "server_error"}


# --- what the issuer is asked to send back through the guard --------------------------------------

_MARK: Final = "~g"
"""Behind the id of a client that was registered with the listener's own callback."""


def marked(client: str, callback: str, sign: Callable[[str], str]) -> str:
    """Return the id of a client with the mark that its registration has the listener's callback."""
    return f"{client}{_MARK}{sign(json.dumps([client, callback]))}"


def unmarked(client: str, callback: str, sign: Callable[[str], str]) -> tuple[str, bool]:
    """Return a client's id as its issuer knows it, and whether it bears the mark."""
    own, _, _ = client.rpartition(_MARK)
    return (own, True) if own and marked(own, callback, sign) == client else (client, False)


def wrapped_state(redirect: str, state: str, sign: Callable[[str], str]) -> str:
    """Return a state that says where the answer goes on to."""
    text = json.dumps([redirect, state])
    coded = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return f"{coded}.{sign(text)}"


def unwrapped_state(wrapped: str, sign: Callable[[str], str]) -> tuple[str, str]:
    """Return where an answer goes on to, and the client's own state.

    Raises:
        MessageError: the guard has not made it.
    """
    coded, _, signature = wrapped.partition(".")
    try:
        text = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode()
        redirect, state = json.loads(text)
    except (ValueError, TypeError) as error:
        raise MessageError(CODE, "the state is not the guard's") from error
    if sign(text) != signature:
        raise MessageError(CODE, "the state is not the guard's")
    return str(redirect), str(state)


def with_query(url: str, fields: Mapping[str, str]) -> str:
    """Return a URL with more fields in its query."""
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(fields)}"
