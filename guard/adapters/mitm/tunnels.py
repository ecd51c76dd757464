"""An accepted ``CONNECT``, and whether what comes in it is for the host it was accepted for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mitmproxy.net.http.url import parse_authority

from guard.destinations.hosts import canonical_host

if TYPE_CHECKING:
    from guard.core.model import Destination

HTTPS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class Tunnel:
    """An accepted ``CONNECT``."""

    host: str
    """Canonical."""
    port: int
    opaque: bool
    """TLS for this host passes unopened."""
    headers: tuple[tuple[str, str], ...]
    """What the requests inside inherit."""
    certificates: tuple[bytes, ...]
    """What the client showed to the proxy; a handshake inside the tunnel does not replace it."""


def names_host(authority: str, host: Destination, port: int, scheme: str) -> bool:
    """Return whether an authority as written names this host and port."""
    try:
        name, stated = parse_authority(authority, check=True)
    except ValueError:
        return False
    default = HTTPS_PORT if scheme == "https" else 80
    canonical = canonical_host(f"[{name}]" if ":" in name else name)
    return canonical == host.host and (stated or default) == port
