"""Several servers behind one listener, each under a path of its own.

The paths are a closed list.  A request under one goes to that server and no other: the rest of its
path is the server's own, nothing is the server's endpoint.  What is judged, pinned and remembered
is the server's: the name of the listener has the path in it (``127.0.0.1:9001/mail``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.core.errors import MessageError
from guard.protocols.http.oauth import WELL_KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.settings import Listener

_NAMED: Final = 8
"""Paths that a refusal lists."""
_DOTS: Final = frozenset({".", ".."})
ADDRESSES: Final = 1024
"""Servers whose addresses are kept at hand."""
DEPTH: Final = 3
"""Slashes in the path of a well-known document of a server itself: ``/.well-known/NAME/mail``."""


class Routes:
    """The servers of each listener that has several.

    Args:
        listeners: all reverse listeners.
    """

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._at: dict[int, dict[str, Listener]] = {}
        for one in listeners:
            if one.route:
                self._at.setdefault(one.port, {})[one.route] = one

    def find(self, port: int, target: str) -> tuple[Listener, str] | None:
        """Return the server whose path a request is under, and the target of its own.

        None where the listener has one server and no paths.

        Raises:
            MessageError: the listener has several servers, and this is the path of none.
        """
        servers = self._at.get(port)
        if servers is None:
            return None
        path, mark, query = target.partition("?")
        for document in WELL_KNOWN:
            if path.startswith(f"{document}/"):
                # Well-known documents of what lies under a path stand before it (RFC 8615).
                found = self.find(port, path.removeprefix(document) + mark + query)
                rest = found[1] if found and path.count("/") > DEPTH else mark + query
                return found and (found[0], document + rest)
        name, slash, rest = path.removeprefix("/").partition("/")
        server = servers.get(f"/{name}")
        if server is None or not _DOTS.isdisjoint(rest.split("/")):
            known = ", ".join(f"`{one}/`" for one in sorted(servers)[:_NAMED])
            more = f" and {len(servers) - _NAMED} more" if len(servers) > _NAMED else ""
            raise MessageError(
                "unknown_path",
                f"no server has this path; the paths of this listener are {known}{more}",
                status=404,
            )
        return server, (f"/{rest}" if slash else server.endpoint or "/") + mark + query


def address_of(server: Listener) -> tuple[str, int]:
    """Return host and port of the server behind a listener."""
    return address_in(server.upstream)


@lru_cache(maxsize=ADDRESSES)
def address_in(url: str) -> tuple[str, int]:
    """Return host and port in the URL of a server."""
    parts = urlsplit(url)
    return str(parts.hostname), parts.port or (443 if parts.scheme == "https" else 80)
