"""The fallback protocol: an HTTP request is itself a call, named ``http.request``.

Never a free pass.  The policy decides on its URL like on any destination; refusals are RFC 9457
problem documents.  Pure: no I/O.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.protocols.base import ProtocolModule
from guard.protocols.http.message import (
    REDACTION_FAILED,
    HttpReply,
    HttpRequest,
    rewritten,
    without_boundary,
)
from guard.protocols.http.metadata import OVERRIDING, notable_headers
from guard.protocols.messages import Message, ParsedCall
from guard.protocols.refusals import Refusal, observation, sentence, unreadable, unreadable_sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json

TOOL: Final = "http.request"
TUNNEL: Final = "http.connect"
"""A tunnel whose bytes will not be seen."""
TITLE: Final = "refused by the egress guard"


class HttpRequestProtocol(ProtocolModule):
    """The protocol of last resort."""

    name: ClassVar[str] = "http"
    is_fallback: ClassVar[bool] = True

    def matches(self, request: HttpRequest) -> bool:
        """Return True: whatever is left."""
        return True

    def parse(self, request: HttpRequest) -> Message:
        """Return the request as one call of ``method``, ``url``, ``host``, ``body`` and its type.

        Headers that say more than any client's are its ``headers``, where there are any.

        Raises:
            MessageError: it says it is JSON and cannot be read as such one way only.
        """
        media = request.media_type
        if request.body and (media == "application/json" or media.endswith("+json")):
            request.json()
        if any(name in OVERRIDING for name, _ in request.headers):
            raise MessageError(
                "header_mismatch", "a header gives the request another method or path"
            )
        arguments: dict[str, Json] = {
            "method": request.method,
            "url": request.url,
            "host": request.host,
            "content_type": media,
            "body": request.body.decode("utf-8", "replace"),
        }
        headers = notable_headers(request)
        if headers:
            arguments["headers"] = headers
        if media.startswith("multipart/"):
            return Message((_multipart(request, arguments),))
        tool = TUNNEL if request.method == "CONNECT" else TOOL
        return Message((ParsedCall(tool, arguments),))

    def rewrite(self, request: HttpRequest, arguments: Sequence[Mapping[str, Json]]) -> HttpRequest:
        """Put another body into the request; nothing else of it can be another.

        Raises:
            MessageError: the body is not text.
        """
        try:
            request.body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MessageError(REDACTION_FAILED, "the body is not utf-8") from error
        return rewritten(request, body=str(arguments[0]["body"]).encode())

    def refuse(self, message: Message, refusals: Sequence[Refusal | None]) -> HttpReply:
        """Return 403 with a problem document."""
        fields = observation(next(r for r in refusals if r is not None))
        return problem(403, sentence(fields), fields)

    def unreadable(
        self, error: MessageError, decision_id: str, request: HttpRequest | None = None
    ) -> HttpReply:
        """Return the error's status with a problem document."""
        sentence = unreadable_sentence(error, decision_id)
        return problem(error.status, sentence, unreadable(error, decision_id))


def _multipart(request: HttpRequest, arguments: Mapping[str, Json]) -> ParsedCall:
    """Return a request whose body a client cuts anew in every retry."""
    settled = request.body
    with suppress(MessageError):  # It is bound as it stands.
        settled = without_boundary(request.body, request.header("content-type") or "")
    digest = hashlib.blake2b(settled, digest_size=16).hexdigest()
    return ParsedCall(TOOL, arguments, meta={"body": digest}, unbound=_BODY)


_BODY: Final = frozenset({"body"})


def problem(status: int, detail: str, fields: Json) -> HttpReply:
    """Return an RFC 9457 problem document."""
    document = {"type": "about:blank", "title": TITLE, "status": status, "detail": detail}
    body = json.dumps({**document, "guard": fields}).encode()
    return HttpReply(status, "application/problem+json", body)
