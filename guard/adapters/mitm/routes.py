"""Several servers behind one listener, each under a path of its own.

The paths are a closed list.  A request under one goes to that server and no other: the rest of its
path is the server's own, nothing is the server's endpoint.  What is judged, pinned and remembered
is the server's: the name of the listener has the path in it (``127.0.0.1:9001/mail``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.core.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mitmproxy import http

    from guard.settings import Listener

ROUTE: Final = "guard.route"
"""Where a flow's metadata has its path, as ``/mail``."""
_DOTS: Final = frozenset({".", ".."})


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

    def enter(self, flow: http.HTTPFlow) -> None:
        """Send a request to the server whose path it is under.

        Raises:
            MessageError: the listener has several servers, and this is the path of none.
        """
        servers = self._at.get(flow.client_conn.sockname[1])
        if servers is None:
            return
        path, mark, query = flow.request.path.partition("?")
        name, slash, rest = path.removeprefix("/").partition("/")
        server = servers.get(f"/{name}")
        if server is None or not _DOTS.isdisjoint(rest.split("/")):
            message = f"there is no server under this path; {len(servers)} have one of their own"
            raise MessageError("unknown_path", message, status=404)
        flow.request.scheme = urlsplit(server.upstream).scheme
        flow.request.host, flow.request.port = _address(server)
        flow.request.path = (f"/{rest}" if slash else server.endpoint or "/") + mark + query
        flow.metadata[ROUTE] = server.route

    def lead_to(self, port: int, address: tuple[str, int]) -> bool:
        """Return whether one of the servers of a listener is at an address."""
        return any(_address(one) == address for one in self._at.get(port, {}).values())


def _address(server: Listener) -> tuple[str, int]:
    parts = urlsplit(server.upstream)
    return str(parts.hostname), parts.port or (443 if parts.scheme == "https" else 80)
