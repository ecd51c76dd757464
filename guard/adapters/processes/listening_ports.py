"""Addresses to listen on: whether they are free, asked before anything is started on them."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guard.settings import Settings


def addresses(settings: Settings) -> list[tuple[str, str, int]]:
    """Return where a guard listens: the option that says so, host and port, each address once."""
    found = [("--reverse", one.host, one.port) for one in settings.listeners]
    for text in settings.forward:
        host, _, port = text.rpartition(":")
        found.append(("--forward", host.strip("[]"), int(port)))
    found.append(("--admin", *settings.admin_address))
    return list({(host, port): (name, host, port) for name, host, port in found}.values())


def bind_error(host: str, port: int) -> OSError | None:
    """Return why nobody can listen at an address, None where it is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error
    return None
