"""Where Redis is and how to be let in: URL, TLS, handshake commands."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from redis.connection import parse_url

from guard.core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = TypeVar("P", bound=asyncio.BaseProtocol)

# redis-py does not annotate it.
_parse_url: Final = cast("Callable[[str], Mapping[str, Any]]", parse_url)
_PLAIN_OPTIONS: Final = frozenset(
    {"connection_class", "db", "host", "password", "path", "port", "username"}
)
_TLS_OPTIONS: Final = frozenset(
    {
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_keyfile",
        "ssl_password",
    }
)
_CLIENT_NAME: Final = "guard"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Redis server.  Its text form names no credential."""

    path: str = ""
    """Unix socket; empty for TCP."""
    host: str = "localhost"
    port: int = 6379
    db: int = 0
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    _count: list[int] = field(default_factory=lambda: [0], init=False, repr=False, compare=False)

    def __str__(self) -> str:
        return f"unix://{self.path}" if self.path else f"{self.host}:{self.port}"

    @property
    def opened(self) -> int:
        """Connections opened so far; behind a new one may be another server, or an empty one."""
        return self._count[0]

    @property
    def handshake(self) -> tuple[tuple[str, ...], ...]:
        """The commands that open a connection; each but the last must be answered with OK."""
        commands: list[tuple[str, ...]] = []
        if self.username or self.password:
            user = (self.username,) if self.username else ()
            commands.append(("AUTH", *user, self.password))
        if self.db:
            commands.append(("SELECT", str(self.db)))
        commands.append(("CLIENT", "SETNAME", _CLIENT_NAME))
        return tuple(commands)

    async def connect(self, factory: Callable[[], P]) -> P:
        """Open a transport and return its protocol.

        Raises:
            OSError: it cannot be reached, TLS failures included.
        """
        loop = asyncio.get_running_loop()
        self._count[0] += 1
        if self.path:
            _, protocol = await loop.create_unix_connection(factory, self.path)
        else:
            name = self.host if self.tls else None
            _, protocol = await loop.create_connection(
                factory, self.host, self.port, ssl=self.tls, server_hostname=name
            )
        return protocol


def parse_endpoint(url: str) -> Endpoint:
    """Return the endpoint of a ``redis://``, ``rediss://`` or ``unix://`` URL.

    Raises:
        StateError: it is no such URL, or has an option the guard does not know; an option that
            is dropped in silence could be the one that demands a certificate.
    """
    try:
        options = _parse_url(url)
    except ValueError as error:
        msg = "the redis url must look like redis://, rediss:// or unix:// and parse as one"
        raise StateError(msg) from error
    if url.startswith("unix://") and not options.get("path"):
        msg = "the redis url names no socket; write unix:///path/to/redis.sock"
        raise StateError(msg)
    secure = url.lower().startswith("rediss://")
    unknown = set(options) - _PLAIN_OPTIONS - (_TLS_OPTIONS if secure else frozenset())
    if unknown:
        msg = f"the redis url has the unknown option `{min(unknown)}`; remove it"
        raise StateError(msg)
    return Endpoint(
        path=options.get("path", ""),
        host=options.get("host", "localhost"),
        port=int(options.get("port", 6379)),
        db=int(options.get("db", 0)),
        username=options.get("username") or "",
        password=options.get("password") or "",
        tls=_tls_context(options) if secure else None,
    )


def _tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context that checks certificate and name unless the URL says otherwise."""
    try:
        context = ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path")
        )
        if options.get("ssl_certfile"):
            context.load_cert_chain(
                options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password")
            )
    except OSError as error:
        msg = "the certificate files named in the redis url cannot be used"
        raise StateError(msg) from error
    requirement = options.get("ssl_cert_reqs", "required")
    if requirement not in {"required", "none"}:
        msg = f"ssl_cert_reqs `{requirement}` must be `required` or `none`"
        raise StateError(msg)
    check = str(options.get("ssl_check_hostname", True)).lower()
    if requirement == "none" or check in {"false", "no", "0"}:
        context.check_hostname = False
    if requirement == "none":
        context.verify_mode = ssl.CERT_NONE
    return context
