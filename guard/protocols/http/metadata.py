"""HTTP metadata that can carry data: query and headers of a request.  Pure: no I/O.

A plain request has its notable headers among its arguments.  A message of another protocol whose
query or headers are not those of any client brings one more call with them, ``http.envelope``,
which is judged wherever the policy maps that name.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from guard.core.bounded_cache import bounded_cache
from guard.core.json_values import json_encoder
from guard.protocols.http.message import HttpRequest, is_sent_on
from guard.protocols.messages import ParsedCall
from guard.values.decoder import content_readings
from guard.values.leaks import has_leak
from guard.values.secret_rules import entropy

if TYPE_CHECKING:
    from guard.core.model import Json

TOOL: Final = "http.envelope"
_FRAMING: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "te",
        "accept-encoding",
        "content-length",
        "content-encoding",
        "transfer-encoding",
    }
)
"""Written anew by the guard itself: what a client says there reaches nobody."""
_HANDSHAKE: Final = frozenset(
    {"upgrade", "sec-websocket-extensions", "sec-websocket-key", "sec-websocket-version"}
)
"""Headers of a request that opens a WebSocket; checked before it is read as one, or removed."""
_OWN: Final = ("x-guard-", "proxy-")
"""Begin the names of headers some of which go no further than the guard."""
_MEDIA_TYPE: Final = re.compile(
    r"((?:[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127})?)[ \t]*"
    r"((?:; ?(?:charset=\"?[\w-]{1,16}\"?|boundary=\"?[\w'()+,./:=? -]{1,70}\"?))*)",
    re.ASCII,
)
"""Type (RFC 6838, section 4.2) and parameters; any others say more than the type of a body."""
_ORDINARY: Final = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-language",
        "baggage",
        "cache-control",
        "date",
        "dnt",
        "expect",
        "host",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-unmodified-since",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "origin",
        "pragma",
        "priority",
        "range",
        "referer",
        "traceparent",
        "tracestate",
        "upgrade-insecure-requests",
        "user-agent",
        "x-request-id",
    }
)
"""Headers of any client; they say nothing more, unless their value looks like it."""
_ORDINARY_PREFIX: Final = "sec-"
_MIRRORED: Final = ("mcp-method", "mcp-name", "mcp-param-")
"""Compared with the body, which is judged."""
_CREDENTIALS: Final = frozenset({"authorization", "x-api-key", "api-key"})
"""For the server that the operator has chosen."""
_COUNT: Final = re.compile(
    r"\d{1,6}(?:\.\d{1,6})?[a-zA-Z]?|attempt=\d{1,3}; ?max=\d{1,3}|true|false"
)
_DATE: Final = re.compile(
    r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT|\d{8}T\d{6}Z|\d{10,19}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
)
_DRAWN: Final = re.compile(
    r"(?:[a-z]{2,12}[-_.]){0,3}(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|[0-9a-fA-F]{8,64}|\d{1,24}|[0-9A-Za-z]{20,27})"
    r"|(?:Root=|Self=)?1-[0-9a-f]{8}-[0-9a-f]{24}(?:;(?:Parent|Sampled|Lineage)=[\w:-]{1,40}){0,3}"
)
"""A UUID, a hexadecimal or decimal number, or as many letters as a short id has, behind words."""
_TRACE: Final = re.compile(r"[0-9a-fA-F]{2,32}(?:[-:/][0-9a-fA-F]{1,32}){0,4}(?:;o=\d)?")
_LABELS: Final = re.compile(r"[\w.:;=/,+%@*-]{1,80}", re.ASCII)
_ISSUED: Final = re.compile(r"\S{1,256}")
"""Id that a client repeats after its server; an id that the server did not issue is judged
apart."""
# fmt: off
_VARYING: Final[dict[str, re.Pattern[str]]] = {
    **dict.fromkeys(
        ("grpc-timeout", "retry-attempt", "x-attempt", "x-b3-sampled",
         "x-datadog-sampling-priority", "x-retry-attempt", "x-retry-count", "amz-sdk-request",
         "x-stainless-read-timeout", "x-stainless-retry-count", "x-stainless-timeout"),
        _COUNT,
    ),
    **dict.fromkeys(("date", "x-amz-date", "x-date", "x-ms-date", "x-timestamp"), _DATE),
    **dict.fromkeys(
        ("amz-sdk-invocation-id", "client-request-id", "correlation-id", "idempotency-key",
         "request-id", "x-amzn-trace-id", "x-client-request-id", "x-correlation-id",
         "x-datadog-parent-id", "x-datadog-trace-id", "x-idempotency-key",
         "x-ms-client-request-id", "x-request-id", "x-trace-id"),
        _DRAWN,
    ),
    **dict.fromkeys(
        ("b3", "sentry-trace", "traceparent", "uber-trace-id", "x-b3-parentspanid",
         "x-b3-spanid", "x-b3-traceid", "x-cloud-trace-context"),
        _TRACE,
    ),
    **dict.fromkeys(("baggage", "tracestate"), _LABELS),
    **dict.fromkeys(("last-event-id", "mcp-session-id"), _ISSUED),
    "content-type": re.compile(r"multipart/[a-z-]{1,20}; ?boundary=[^;]{1,72}"),
}
# fmt: on
"""Headers that differ in every retry of one request, each with the form of what a client draws anew
for each attempt: counts, times, names of a request or trace.  Of another form it is data."""
_BEARER: Final = frozenset({"bearer", "dpop"})
_SUBJECT: Final = ("iss", "sub", "azp", "client_id", "tid", "aud", "scope", "scp")
"""Claims that say whose an access token is, and for what; the others differ in each token."""
_SIGNED_PARTS: Final = re.compile(r'([\w-]{1,40})\s?=\s?("[^"]{0,512}"|[^\s",]{1,512})')
_FRESH_PARTS: Final = frozenset(
    {
        *("signature", "oauth_signature", "oauth_nonce", "oauth_timestamp"),
        *("nonce", "cnonce", "nc", "response", "uri"),
    }
)
"""Parts of a signed credential that are made anew for each request."""
_SIGNING: Final = frozenset({"aws4-hmac-sha256", "oauth", "digest"})
_AWS_DATE: Final = re.compile(r"/\d{8}/")
_SESSIONS: Final = frozenset({"session_id", "sessionid"})
_CANONICAL: Final = json_encoder(sort_keys=True)
_VALUE_LIMIT: Final = 256
_TYPE: Final = (
    r"(?:application|text|image|\*)/(?:json|event-stream|html|xml|plain|x-ndjson|\*)"
    r"(?:; ?q=[01](?:\.\d{1,3})?)?"
)
_SHORT: Final = re.compile(rf"/?[A-Za-z0-9-]{{0,10}}|{_TYPE}(?:, ?{_TYPE}){{0,5}}", re.ASCII)
"""Media types, and words too short for any secret, coding, path, command or instruction."""
_WORD: Final = re.compile(r"[\w.:/=~+-]{1,64}", re.ASCII)
_LONG: Final = re.compile(r"[A-Za-z0-9_-]{20,}")
_ID: Final = re.compile(r"[0-9a-fA-F-]+|[A-Za-z_-]+")
_RANDOM_BITS: Final = 3.0
"""Bits per character from which a token looks drawn at random."""
"""A number as programs draw it, or words."""


def _spellings(*names: str) -> frozenset[str]:
    """Return names in every spelling that a server folds that reads `_` as `-`, as CGI does."""
    parts = (itertools.product(*(("-", "_") if c == "-" else (c,) for c in n)) for n in names)
    return frozenset(map("".join, itertools.chain.from_iterable(parts)))


OVERRIDING: Final = _spellings(
    *("x-http-method-override", "x-http-method", "x-method-override", "x-original-url"),
    *("x-original-uri", "x-rewrite-url", "x-override-url"),
)
"""Headers by which some servers take a request for one with another method or path."""


def notable_headers(request: HttpRequest) -> dict[str, Json]:
    """Return the headers that say more than any client's, values of one name as a list."""
    found: dict[str, Json] = {}
    framing = _FRAMING | _HANDSHAKE if "upgrade" in request.names else _FRAMING
    for name, value in request.headers:
        # The server is told the host that was judged, but where the client's own goes on.
        if name in framing or (name == "host" and (request.chosen or request.scheme == "https")):
            continue
        if name.startswith(_OWN) and not is_sent_on(name.encode("latin-1"), trusts_forwarded=True):
            continue
        if (name in _ORDINARY or name.startswith(_ORDINARY_PREFIX)) and is_plain(value):
            continue
        if name == "content-type" and _is_plain_type(value):
            continue
        found[name] = value if name not in found else [*_listed(found[name]), value]
    return found


def _is_plain_type(value: str) -> bool:
    """Return whether a content type says what a body is and nothing more."""
    parts = _MEDIA_TYPE.fullmatch(value)
    return parts is not None and all(map(is_plain, parts.groups()))


def metadata_call(request: HttpRequest, *, reads_query: bool) -> list[ParsedCall]:
    """Return the metadata of a message that has calls of its own, as one call; none if ordinary.

    Args:
        request: the message.
        reads_query: whether path and query are not among the arguments of its calls.
    """
    headers = {
        name: value
        for name, value in notable_headers(request).items()
        if not name.startswith(_MIRRORED) and name not in _CREDENTIALS
    }
    arguments: dict[str, Json] = {"method": request.method}
    if reads_query and not is_usual(request.target):
        arguments["url"] = request.url
    if headers:
        arguments["headers"] = headers
    return [ParsedCall(TOOL, arguments)] if len(arguments) > 1 else []


def request_context(request: HttpRequest) -> str:
    """Return the digest of what a request says beside its calls and repeats in a retry.

    Method, server, path, query and the headers that say more than any client's; of those, not what
    a client draws anew for each attempt.  An access token counts as its subject where the operator
    chose the server, which checks it: a token is refreshed within minutes.
    """
    path, _, query = request.target.partition("?")
    lasting: list[tuple[str, str]] = []
    for pair in parse_qsl(query, keep_blank_values=True) if query else ():
        if pair[0].lower() not in _SESSIONS:
            lasting.append(pair)
    headers: dict[str, Json] = {}
    for name, value in notable_headers(request).items():
        drawn = _VARYING.get(name)
        if drawn is not None and isinstance(value, str) and drawn.fullmatch(value):
            continue
        if not request.chosen and name == "dpop":
            continue
        signed = not request.chosen and name == "authorization" and isinstance(value, str)
        headers[name] = credential_identity(value) if signed else value
    place = request.method, request.scheme, request.host.lower()
    if not lasting and not headers and len(path) < _VALUE_LIMIT:
        return _plain_context(path, place)
    return _context_digest(path, place, lasting, headers)


def _context_digest(
    path: str, place: tuple[str, str, str], lasting: Json = (), headers: Json = None
) -> str:
    parts = [*place, path, lasting, headers or {}]
    return hashlib.blake2b("".join(_CANONICAL(parts, 0)).encode(), digest_size=16).hexdigest()


_plain_context: Final = lru_cache(maxsize=256)(_context_digest)
"""Cached digest of the context of a request that says nothing besides: such requests recur."""


def call_context(context: str, meta: Json) -> str:
    """Return the digest of a request's context and what one call says beside its arguments."""
    text = "".join(_CANONICAL([context, meta], 0))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def credential_identity(credential: str) -> str:
    """Return what of an ``Authorization`` header stays when a client refreshes or signs it anew.

    Of a JSON Web Token (RFC 7519) its subject, issuer, client, audience and scope; of a signed
    request (AWS Signature 4, OAuth 1, Digest) all but nonce, time and signature; else all of it.
    The signature is not checked: the server that the token is for does that.
    """
    scheme, _, rest = credential.partition(" ")
    if scheme.lower() in _BEARER:
        claims = token_claims(rest.strip())
        subject = {name: claims[name] for name in _SUBJECT if name in claims}
        return f"subject {json.dumps(subject, sort_keys=True)}" if "sub" in claims else credential
    if scheme.lower() in _SIGNING:
        parts = {name.lower(): value for name, value in _SIGNED_PARTS.findall(rest)}
        lasting = {name: v for name, v in parts.items() if name not in _FRESH_PARTS}
        return _AWS_DATE.sub("/", f"{scheme} {json.dumps(lasting, sort_keys=True)}", count=1)
    return credential


def token_claims(token: str) -> dict[str, Json]:
    """Return the claims of a JSON Web Token, none where it is no such token."""
    pieces = token.split(".")
    if len(pieces) != 3:  # noqa: PLR2004  (header, claims, signature)
        return {}
    try:
        raw = base64.urlsafe_b64decode(pieces[1] + "=" * (-len(pieces[1]) % 4))
        claims = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def is_usual(target: str) -> bool:
    """Return whether a target is a path with nothing behind it but a session id."""
    path, mark, query = target.partition("?")
    if not mark:
        return is_plain(path)
    names = (name.lower() for name, _ in parse_qsl(query, keep_blank_values=True))
    return is_plain(path) and is_plain(query) and all(name in _SESSIONS for name in names)


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]


def is_plain(value: str) -> bool:
    """Return whether a value has neither the form of a secret nor text under a coding."""
    return _SHORT.fullmatch(value) is not None or _is_plain(value)


@bounded_cache(1024)
def _is_plain(value: str) -> bool:
    if len(value) > _VALUE_LIMIT or not value.isascii() or has_leak(value):
        return False
    if any(map(_is_random, _LONG.findall(value))):
        return False
    readings = content_readings(value).texts
    return all(_WORD.fullmatch(reading) or reading == value for reading in readings)


def _is_random(token: str) -> bool:
    """Return whether a token looks drawn at random and is not hexadecimal."""
    return (
        _ID.fullmatch(token) is None
        and any(map(str.isdigit, token))
        and entropy(token) >= _RANDOM_BITS
    )
