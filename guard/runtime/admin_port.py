"""The admin port: ``/metrics``, ``/healthz``, ``/readyz`` and the authenticated prompt channel.

It has a thread of its own, so that it answers while the event loop is busy.  What it shows needs no
credential, so it must listen where only operators, front ends and the scraper reach it.  With
several workers each answers its supervisor on a Unix socket, and the supervisor serves the address.

The prompt channel is ``POST /v1/prompts``.  A front end (the application in which the user types)
says what the user said, with a credential of its own that no agent and no tool has.  A destination
that a prompt names outside pasted text is attested for that session, so the credential is as
powerful as the user.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Annotated, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from guard.core.errors import MessageError
from guard.core.model import UserPrompt
from guard.protocols.framing.json_messages import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from wsgiref.types import StartResponse, WSGIEnvironment


SOCKET_SECONDS: Final = 5
"""Seconds that a client of the admin port may take over a request."""
WORKER: Final = "worker"
"""Name of the server behind a Unix socket, and of its clients."""
METRICS_PATH: Final = "/metrics"
PROMPTS_PATH: Final = "/v1/prompts"
BODY_LIMIT: Final = 256 * 1024
"""Bytes of one prompt with its wrapping."""
_Text = Annotated[str, Field(min_length=1)]
_Values = Annotated[list[Annotated[str, Field(pattern=r"\S")]], Field(max_length=100)]
"""Values of one kind beside the text of a prompt."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Readiness: whether calls are decided, and the parts that prevent it."""

    ready: bool
    stages: Mapping[str, str] = field(default_factory=dict)
    """Problem of each failing stage; empty where all is well."""


class _Prompt(BaseModel):
    """Body of a request of a front end."""

    model_config = ConfigDict(extra="forbid")
    principal: _Text
    session: _Text
    text: _Text
    recipients: _Values = []
    hosts: _Values = []
    attachments: _Values = []


class PromptChannel:
    """Authenticates a front end, reads the prompt of its user, and passes it on.

    Args:
        digests: sha256 (hex) of each front end's secret, by its name; empty closes the channel.
        note: takes principal, session and prompt; raises where it could not be kept.
    """

    def __init__(
        self, digests: Mapping[str, str], note: Callable[[str, str, UserPrompt], None]
    ) -> None:
        self._digests = dict(digests)
        self._note = note

    def answer(self, environ: WSGIEnvironment) -> tuple[HTTPStatus, dict[str, object]]:
        """Return the answer to one request."""
        if environ.get("REQUEST_METHOD") != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": "use POST"}
        if not self._proven(str(environ.get("HTTP_AUTHORIZATION", ""))):
            return HTTPStatus.UNAUTHORIZED, {"error": "a front end's bearer secret is required"}
        try:
            document = parse_json(environ["wsgi.input"].read(prompt_length(environ)))
            given = _Prompt.model_validate(document)
        except MessageError as error:
            return HTTPStatus(error.status), {"error": str(error)}
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            return HTTPStatus.BAD_REQUEST, {"error": f"{place}: {first['msg']}".lstrip(": ")}
        stated = (tuple(one) for one in (given.recipients, given.hosts, given.attachments))
        try:
            self._note(given.principal, given.session, UserPrompt(given.text, *stated))
        except Exception as error:  # noqa: BLE001  (the front end must know that it was not heard)
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": type(error).__name__}
        return HTTPStatus.ACCEPTED, {"noted": True}

    def _proven(self, header: str) -> bool:
        scheme, _, secret = header.partition(" ")
        digest = hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).hexdigest()
        known = [hmac.compare_digest(digest, expected) for expected in self._digests.values()]
        return scheme.lower() == "bearer" and any(known)


class AdminServer:
    """Serves the admin endpoints from the moment it is made until it is closed.

    Args:
        host: address to listen on.
        port: 0 chooses a free one; see :attr:`port`.
        registry: metrics that ``/metrics`` shows.
        health: asked for ``/readyz``, from the server's thread; if it raises, not ready.
        prompts: answers who says what users typed; the one endpoint that needs a credential.
        listener: a socket that listens there already.
        posts: takes in what other workers say, by path; on a Unix socket only.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes each once, by name)
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        health: Callable[[], HealthReport],
        prompts: Callable[[WSGIEnvironment], tuple[HTTPStatus, dict[str, object]]] | None = None,
        *,
        listener: socket.socket | None = None,
        posts: Mapping[str, Callable[[bytes], Mapping[str, object]]] | None = None,
    ) -> None:
        self._posts = posts or {}
        self._health = health
        self._prompts = prompts
        self._metrics = make_wsgi_app(registry)
        self._is_workers = listener is not None and listener.family == socket.AF_UNIX
        self._server = _Server((host, port), _Handler, bind_and_activate=False)
        self._server.take(listener or socket.create_server((host, port)))
        self._server.set_app(self._answer)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="guard-admin", daemon=True
        )
        self._thread.start()

    @property
    def host(self) -> str:
        """The address listened on."""
        return str(self._server.server_address[0])

    @property
    def port(self) -> int:
        """The port listened on."""
        return self._server.server_port

    def close(self) -> None:
        """Stop answering and free the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == PROMPTS_PATH and self._prompts is not None:
            return _json(start_response, *self._prompts(environ))
        if self._is_workers and path in self._posts:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return _json(start_response, HTTPStatus.OK, self._posts[path](body))
        if environ.get("REQUEST_METHOD") not in {"GET", "HEAD"}:
            return _json(start_response, HTTPStatus.METHOD_NOT_ALLOWED, {"error": "use GET"})
        if path == METRICS_PATH:
            pages: Iterable[bytes] = self._metrics(environ, start_response)
            return pages
        return _json(start_response, *self._told(path))

    def _told(self, path: str) -> tuple[HTTPStatus, Mapping[str, object]]:
        if path == "/healthz":
            return HTTPStatus.OK, {"alive": True}
        if path == "/readyz":
            report = self._report()
            status = HTTPStatus.OK if report.ready else HTTPStatus.SERVICE_UNAVAILABLE
            return status, {"ready": report.ready, "stages": dict(report.stages)}
        paths = "try `/metrics`, `/healthz` or `/readyz`"
        return HTTPStatus.NOT_FOUND, {"error": paths}

    def _report(self) -> HealthReport:
        try:
            return self._health()
        except Exception as error:  # noqa: BLE001  (what cannot say that it is ready is not)
            return HealthReport(ready=False, stages={"health": type(error).__name__})


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def take(self, listener: socket.socket) -> None:
        """Serve on a socket that listens already; another process may accept from it as well."""
        self.socket.close()
        listener.settimeout(0)
        self.socket = listener
        self.server_address = listener.getsockname()
        if listener.family == socket.AF_UNIX:
            self.server_name, self.server_port = WORKER, 0
        else:
            self.server_name, self.server_port = listener.getsockname()[:2]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is not worth a traceback on stderr."""


class _Handler(WSGIRequestHandler):
    timeout = SOCKET_SECONDS

    def setup(self) -> None:
        """Give the client an address where it has none, behind a Unix socket."""
        self.client_address = self.client_address or (WORKER, 0)
        super().setup()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """Scrapes are not logged."""


def prompt_length(environ: WSGIEnvironment) -> int:
    """Return how many bytes the body of a request has.

    Raises:
        MessageError: it does not say, or has too many.
    """
    length = str(environ.get("CONTENT_LENGTH", ""))
    if not (length.isascii() and length.isdigit()):
        raise MessageError("bad_http", "the request has no content-length", status=411)
    if int(length) > BODY_LIMIT:
        raise MessageError("body_too_large", f"a prompt has at most {BODY_LIMIT} bytes", status=413)
    return int(length)


def _json(
    start_response: StartResponse, status: HTTPStatus, body: Mapping[str, object]
) -> Iterable[bytes]:
    data = json.dumps(body).encode("ascii") + b"\n"
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    start_response(f"{status.value} {status.phrase}", headers)
    return [data]
