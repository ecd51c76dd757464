"""Options of the lean enforcement point, by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.core.frozen import frozen
from guard.pep.message_budget import LIMIT

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guard.credentials.write_credentials import WriteCredential
    from guard.pep.envoy.front import Front
    from guard.pep.lean.client_tls import ClientTls


@frozen
class Inbound:
    """The side of the clients."""

    sockets: Mapping[str, list[socket.socket]] | None = None
    """Sockets that listen already, by ``host:port`` or ``unix:PATH``."""
    tls: ClientTls | None = None
    """TLS of clients that prove by certificates who they are; None where none do."""
    front: Front | None = None
    """Reader of the headers of an Envoy in front; None where clients connect themselves."""
    listen: Sequence[str] = ()
    """Addresses at which that Envoy connects."""
    connections: int = 0
    """Maximum number of open connections of clients; 0: any number."""
    held_limit: int = LIMIT
    """Maximum size of all unfinished messages together, in bytes."""


@frozen
class Outbound:
    """The side of the upstreams."""

    credentials: Mapping[str, WriteCredential] | None = None
    """Write credentials of memory stores, by listener."""
    trust: Path | None = None
    """PEM file of the authorities of upstreams' certificates; None for the public ones."""
    egress: str = ""
    """Path of the socket of an Envoy that forwards requests; empty sends them directly."""
