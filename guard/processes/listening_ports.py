"""Sockets that listen, opened by the supervisor: they outlive each worker that accepts from them.

A worker that ends loses no connection that it has not accepted: those wait for its successor.  With
several workers each has a socket of its own at every address (``SO_REUSEPORT``), and the kernel
spreads connections over them by their addresses and ports.
"""

from __future__ import annotations

import errno
import resource
import socket
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.errors import GuardError
from guard.processes.private_directories import PRIVATE, check_private, make_private
from guard.settings import UNIX, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


_DESCRIPTORS: Final = 65_536
_OTHER_DESCRIPTORS: Final = 128
"""For Redis, logs, the admin port, and connections that are turned away."""
BACKLOG: Final = 1024
"""Connections that may wait for a worker at one socket."""
_SHARED: Final = 0o770
"""Mode of a directory that an Envoy of the same group may enter."""
_ANYBODY: Final = 0o666
DECISIONS: Final = "decisions"
ADMIN: Final = "admin"

Sockets: TypeAlias = dict[str, list[socket.socket]]
"""Sockets of one worker, by ``host:port`` or ``unix:PATH`` as the settings have it, ``decisions``
or ``admin``; a name such as ``localhost`` may stand for several addresses."""


def connections_allowed() -> int:
    """Return how many clients' connections fit into this process, each with one to its server.

    Asks the system for more descriptors first, as far as its user may have them.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    soft = _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    return max((soft - _OTHER_DESCRIPTORS) // 2, 1)


def addresses(settings: Settings) -> list[tuple[str, str, int]]:
    """Return where a guard listens: the option that says so, host and port, each address once."""
    found = [*settings.ports, ("--admin", *settings.admin_address)]
    return list({(host, port): (name, host, port) for name, host, port in found}.values())


def bind_error(host: str, port: int) -> OSError | None:
    """Return why an address cannot be bound, None where it can."""
    try:
        with closing(_bound(_family(host), (host, port))):
            pass
    except OSError as error:
        return error
    return None


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def open_sockets(settings: Settings) -> list[Sockets]:
    """Return what each worker listens on, listening already.

    An address with port 0 is left out: the one worker chooses its port by itself.

    Raises:
        GuardError: somebody else listens there, another supervisor too, or nobody can.
    """
    found: list[Sockets] = [{} for _ in range(settings.workers)]
    try:
        places = {(host, port): option for option, host, port in settings.ports if port}
        for (host, port), option in places.items():
            _open(f"{host}:{port}", option, _resolved(host, port), found)
        host, port = settings.admin_address
        if port:
            _open(ADMIN, "--admin", [(_family(host), (host, port))], found[:1])
        if settings.decisions is not None:
            _open_unix(DECISIONS, settings.decisions, PRIVATE, found)
        for path in settings.listening_sockets:
            _open_unix(f"{UNIX}{path}", path, _SHARED, found)
    except BaseException:
        close_sockets(found)
        raise
    return found


def close_sockets(found: Iterable[Sockets]) -> None:
    """Close what :func:`open_sockets` opened; workers that accept from them are not concerned."""
    for sockets in found:
        for one in (one for some in sockets.values() for one in some):
            one.close()


def _open(
    name: str,
    option: str,
    places: Iterable[tuple[int, tuple[str, int]]],
    found: list[Sockets],
) -> None:
    """Open one socket for each worker at each place."""
    for family, place in places:
        try:
            opened = _listening(family, place, len(found))
        except OSError as error:
            raise occupied(option, *place, error) from error
        for sockets, one in zip(found, opened, strict=True):
            sockets.setdefault(name, []).append(one)


def occupied(option: str, host: str, port: int, error: OSError) -> GuardError:
    """Return the error of an address at which nobody can listen."""
    reason = (error.strerror or str(error)).lower()
    if error.errno == errno.EADDRINUSE:
        reason += "; stop the process that listens there, or choose another port"
    return GuardError(f"`{option} {host}:{port}` cannot be listened on: {reason}")


def _listening(family: int, place: tuple[str, int], count: int) -> list[socket.socket]:
    """Return sockets that listen at one place, which nobody else does.

    The kernel lets any process of the same user join sockets that share an address.  So the first
    one listens without sharing, which fails where anybody listens; it makes room for the others
    once it does, and goes when they are there.  At every moment one socket listens that keeps
    a second supervisor out.
    """
    first = _bound(family, place)
    first.listen(BACKLOG)
    if count == 1:
        return [first]
    opened: list[socket.socket] = []
    try:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        for _ in range(count):
            opened.append(_bound(family, place, shared=True))
            opened[-1].listen(BACKLOG)
    except OSError:
        for one in opened:
            one.close()
        raise
    finally:
        first.close()
    return opened


def _bound(family: int, place: tuple[str, int], *, shared: bool = False) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind(place)
    except OSError:
        found.close()
        raise
    return found


def _resolved(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    """Return families and addresses of a host, as asyncio would listen on them.

    Raises:
        GuardError: it is the name of nothing.
    """
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise GuardError(f"`{host}:{port}` cannot be listened on: {error.strerror}") from error
    return list(dict.fromkeys((family, (str(at[0]), port)) for family, *_, at in found))


def _open_unix(name: str, path: Path, mode: int, found: list[Sockets]) -> None:
    """Open a Unix socket; all workers accept from the one there is.

    Args:
        name: of it among the sockets.
        path: where it is made.
        mode: permission bits that its directory may have.
        found: each gets a descriptor.

    Raises:
        GuardError: its directory is open to others, somebody listens there, or it cannot be made.
    """
    try:
        # On a machine's first start nothing has made the state directory yet.
        make_private(path.parent)
        check_private(path.parent, mode)
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as made:
            if made.connect_ex(str(path)) == 0:
                raise GuardError(f"`{path}` cannot be listened on: somebody does")
        path.unlink(missing_ok=True)
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as made:
            made.bind(str(path))
            # Who may enter the directory may connect.
            path.chmod(_ANYBODY & mode)
            made.listen(BACKLOG)
            for sockets in found:
                sockets[name] = [made.dup()]
    except OSError as error:
        raise GuardError(f"the socket `{path}` cannot be made: {error}") from error
