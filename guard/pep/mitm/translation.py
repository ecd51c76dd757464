"""Between mitmproxy's messages and the guard's: hop 1 on the way in, framing on the way out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.serialization import Encoding
from mitmproxy import http

from guard.core.errors import MessageError
from guard.pipeline.websocket_messages import opens_websocket
from guard.protocols.framing.content_coding import decode_content
from guard.protocols.http.message import HOP, HttpReply, HttpRequest, is_sent_on

if TYPE_CHECKING:
    from mitmproxy.connection import Client

HTTPS_PORT: Final = 443
PROXY_AUTHENTICATION: Final = 407
_LINE_ENDS: Final = re.compile(
    rb"[\x00-\x08\x0a-\x1f\x7f]|\xc2\x85|\xe2\x80[\xa8\xa9]|(?<![\x80-\xf7])\x85"
)
"""Characters that a lenient upstream reads as the end of a header: the rest would be a header, or a
request, that was not judged."""
_CONNECTION: Final = re.compile(r"(?<![^\s,])(?:close|keep-alive|upgrade)(?![^\s,])")
"""Options of the ``Connection`` header of a client."""
UNCHANGED: Final = frozenset({"content-encoding", "content-length", "host", "transfer-encoding"})
"""Headers that are framed anew, or belong to the connection."""


def read_request(flow: http.HTTPFlow, limit: int) -> HttpRequest:
    """Turn mitmproxy's request into the guard's frozen one (hop 1).

    Raises:
        MessageError: a line end or NUL stands in its head, or its content coding cannot be undone
            one way only.
    """
    request = flow.request
    head = [part for field in request.headers.fields for part in field]
    head += [request.data.method, request.data.path, request.data.authority]
    if _LINE_ENDS.search(b"\xff".join(head)):
        raise MessageError("bad_http", "a header has a line end or a zero byte in it")
    headers = tuple(
        (name.decode("latin-1").lower(), value.decode("latin-1"))
        for name, value in request.headers.fields
    )
    encodings = [value for name, value in headers if name == "content-encoding"]
    if len(encodings) > 1:
        raise MessageError("duplicate_header", "header `content-encoding` occurs twice")
    body = decode_content(
        request.raw_content or b"", encodings[0] if encodings else None, limit=limit
    )
    return HttpRequest(
        method=request.method,
        scheme=request.scheme,
        host=_authority(request.host, request.port),
        target=request.path,
        headers=headers,
        body=body,
        server=_listener(flow),
        connection=flow.client_conn.id,
        secure=flow.client_conn.tls_established,
        certificates=_certificates(flow.client_conn),
    )


def check_framing(request: http.Request, *, opens_socket: bool) -> None:
    """Refuse what the upstream could frame, or go on with, otherwise.

    Args:
        request: complete.
        opens_socket: whether it is a handshake that the policy accepts.

    Raises:
        MessageError: it has trailers, another transfer coding, or asks for another protocol.
    """
    if request.trailers:
        raise MessageError("trailers", "request trailers are not accepted")
    if ("upgrade" in request.headers and not opens_socket) or "http2-settings" in request.headers:
        raise MessageError("upgrade", "protocol upgrades are not accepted", status=403)
    coding = request.headers.get("transfer-encoding", "identity").strip().lower()
    if coding not in {"identity", "chunked"}:
        raise MessageError("bad_transfer_encoding", "only chunked bodies are accepted")


def outline(flow: http.HTTPFlow) -> HttpRequest:
    """Return a request as far as it is known, for the words of its refusal; never to judge it."""
    request = flow.request
    return HttpRequest(
        method=request.method,
        scheme=request.scheme,
        host=_authority(request.host, request.port),
        target=request.path,
        headers=tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in request.headers.fields
        ),
        body=b"" if "content-encoding" in request.headers else request.raw_content or b"",
        server=_listener(flow),
        connection=flow.client_conn.id,
        secure=flow.client_conn.tls_established,
        certificates=_certificates(flow.client_conn),
    )


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listener(flow: http.HTTPFlow) -> str:
    host, port = flow.client_conn.sockname[:2]
    return f"{host}:{port}"


def _certificates(client: Client) -> tuple[bytes, ...]:
    return tuple(
        one.to_pyopenssl().to_cryptography().public_bytes(Encoding.DER)
        for one in client.certificate_list
    )


def rewrite_request(flow: http.HTTPFlow, instead: HttpRequest) -> None:
    """Put the redacted request in the place of the one that came; the body has no coding then."""
    flow.request.path = instead.target
    headers = flow.request.headers
    headers.pop("content-encoding", None)
    for name in {name for name, _ in instead.headers if name not in UNCHANGED}:
        values = [value for key, value in instead.headers if key == name]
        if headers.get_all(name) != values:
            headers.set_all(name, values)
    flow.request.raw_content = instead.body


def prepare_request(flow: http.HTTPFlow) -> None:
    """Make the request one that the upstream frames as the guard read it."""
    headers = flow.request.headers
    connection = _CONNECTION.findall(", ".join(headers.get_all("connection")).lower())
    for name in list(headers):
        raw = name.encode("utf-8", "surrogateescape")
        if raw.lower() in HOP or not is_sent_on(raw, trusts_forwarded=False):
            headers.pop(name, None)
    if connection:
        # mitmproxy looks there for how long the client's connection lives.
        headers["connection"] = ", ".join(dict.fromkeys(connection))
    if not flow.request.is_http2:
        # An absolute-form target would be passed on and could name another host to a lax upstream.
        flow.request.authority = ""
    body = flow.request.raw_content or b""
    if body or "content-length" in headers or flow.request.method in {"POST", "PUT", "PATCH"}:
        headers["content-length"] = str(len(body))
    # The answer is read too: ask for one the guard never has to decompress.
    headers["accept-encoding"] = "identity"


def unsize_response(response: http.Response, request: http.Request) -> None:
    """Frame a streamed answer for what is released: decoded, of a length nobody knows yet."""
    headers = response.headers
    if "content-length" in headers and request.is_http11 and response.is_http11:
        headers["transfer-encoding"] = "chunked"
    for name in ("content-encoding", "content-length"):
        headers.pop(name, None)


def answer(flow: http.HTTPFlow, reply: HttpReply) -> None:
    """Answer the client with a reply of the guard's own; nothing is forwarded."""
    flow.response = response_of(reply)


def response_of(reply: HttpReply) -> http.Response:
    """Return a reply of the guard's own as mitmproxy sends it."""
    headers = {"content-type": reply.content_type, "cache-control": "no-store"}
    if reply.status == PROXY_AUTHENTICATION:
        headers["proxy-authenticate"] = 'Basic realm="egress guard"'
    return http.Response.make(reply.status, reply.body, {**headers, **dict(reply.headers)})


def stream_head(request: http.Request) -> http.Response:
    """Return the head of an answer that begins as a stream of events before there is any."""
    headers = {"content-type": "text/event-stream", "cache-control": "no-store"}
    if request.is_http11:
        headers["transfer-encoding"] = "chunked"
    response = http.Response.make(200, b"", headers)
    response.headers.pop("content-length", None)
    return response


def replace_body(response: http.Response, body: bytes) -> None:
    """Put JSON of the guard's own, without a coding, in the place of the body that came."""
    response.headers["content-type"] = "application/json"
    response.headers.pop("content-encoding", None)
    response.headers.pop("transfer-encoding", None)
    response.raw_content = body
    response.headers["content-length"] = str(len(body))


def answer_later(flow: http.HTTPFlow, reply: HttpReply) -> None:
    """Send the head of a reply now, in the place of an answer that may never end.

    Its body is what the first chunk of that answer is replaced with.
    """
    answer(flow, replace(reply, body=b""))
    if flow.response is not None:
        flow.response.headers["content-length"] = str(len(reply.body))
        flow.response.stream = True


def is_handshake(request: http.Request) -> bool:
    """Return whether a request opens a WebSocket, and can be read as nothing else."""
    if not request.is_http11 or request.raw_content:
        return False
    return opens_websocket(request.method, request.headers.get_all)
