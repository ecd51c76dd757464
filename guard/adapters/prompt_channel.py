"""The authenticated prompt channel: ``POST /v1/prompts`` on the admin port.

A front end (the application in which the user types) says what the user said, with a credential
of its own that no agent and no tool has.  What a prompt names outside pasted text is attested for
that session, so the credential is as powerful as the user.
"""

from __future__ import annotations

import hashlib
import hmac
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from guard.protocols.framing.strict_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from wsgiref.types import WSGIEnvironment

PATH: Final = "/v1/prompts"
BODY_LIMIT: Final = 256 * 1024
"""Bytes of one prompt with its wrapping."""
_FIELDS: Final = frozenset({"principal", "session", "text"})


class PromptChannel:
    """Checks who speaks, reads what was said, and passes it on.

    Args:
        digests: sha256 (hex) of each front end's secret, by its name; empty closes the channel.
        note: takes principal, session and text; raises where it could not be kept.
    """

    def __init__(self, digests: Mapping[str, str], note: Callable[[str, str, str], None]) -> None:
        self._digests = dict(digests)
        self._note = note

    def answer(self, environ: WSGIEnvironment) -> tuple[HTTPStatus, dict[str, object]]:
        """Return the answer to one request."""
        if environ.get("REQUEST_METHOD") != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": "use POST"}
        if not self._proven(str(environ.get("HTTP_AUTHORIZATION", ""))):
            return HTTPStatus.UNAUTHORIZED, {"error": "a front end's bearer secret is required"}
        try:
            principal, session, text = _read(environ)
        except MessageError as error:
            return HTTPStatus(error.status), {"error": str(error)}
        try:
            self._note(principal, session, text)
        except Exception as error:  # noqa: BLE001  (the front end must know that it was not heard)
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": type(error).__name__}
        return HTTPStatus.ACCEPTED, {"noted": True}

    def _proven(self, header: str) -> bool:
        scheme, _, secret = header.partition(" ")
        digest = hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).hexdigest()
        known = [hmac.compare_digest(digest, expected) for expected in self._digests.values()]
        return scheme.lower() == "bearer" and any(known)


def _read(environ: WSGIEnvironment) -> tuple[str, str, str]:
    length = str(environ.get("CONTENT_LENGTH", ""))
    if not (length.isascii() and length.isdigit()):
        raise MessageError("bad_http", "the request has no content-length", status=411)
    if int(length) > BODY_LIMIT:
        raise MessageError("body_too_large", f"a prompt has at most {BODY_LIMIT} bytes", status=413)
    document = parse_json(environ["wsgi.input"].read(int(length)))
    if not isinstance(document, dict) or set(document) != _FIELDS:
        raise MessageError("bad_json", "write an object of `principal`, `session` and `text`")
    values = [document[name] for name in ("principal", "session", "text")]
    if not all(isinstance(value, str) and value for value in values):
        raise MessageError("bad_json", "`principal`, `session` and `text` are texts")
    principal, session, text = values
    return principal, session, text
