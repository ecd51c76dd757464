"""Redis Cluster and Sentinel: which server has a key, and how durable a write must be.

redis-py finds out who is who (``CLUSTER SLOTS``, ``SENTINEL MASTERS``); the commands of calls never
pass through it.  They go to the server that had the key when it was last asked, each over the one
connection of :class:`RedisClient`, so a call is one round trip as with a single server.
A Cluster that has moved a slot answers MOVED or ASK without having run the command, which is then
sent to where it points.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from guard.core.errors import StateError
from guard.settings import Durability
from guard.store.connection import (
    BACKOFF_FIRST,
    TIMEOUT,
    Argument,
    CommandRefusedError,
    Endpoint,
    P,
    RedisClient,
    Reply,
    pack,
    parse_endpoint,
    parse_url_options,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from guard.store.layout import Script

REDIRECTS: Final = 5
"""Servers that one command is sent to at most."""
_KEYLESS: Final = frozenset({"INFO", "CONFIG", "SCRIPT", "CLUSTER", "ACL"})
_KEY_AT: Final = {"EVAL": 3, "MEMORY": 2}
"""Index of the first key, if it is not the second word."""
_OF_SENTINEL: Final = frozenset({"sentinel_username", "sentinel_password"})
_PLACE: Final = frozenset({"connection_class", "db", "host", "path", "port"})


def open_client(
    url: str, *, timeout: float = TIMEOUT, durability: Durability = Durability.RELAXED
) -> RedisClient:
    """Return a client of the server, the Cluster or the Sentinels that a URL names.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://``; ``redis+cluster://HOST:PORT,HOST:PORT``;
            ``redis+sentinel://HOST:PORT,HOST:PORT/SERVICE``; the last two with ``rediss+`` for TLS.
        timeout: seconds for one reply, and for opening a connection.
        durability: of writes.

    Raises:
        StateError: the URL is not of these forms, or has an unknown option.
    """
    parts = urlsplit(url)
    scheme, plus, kind = parts.scheme.partition("+")
    if not plus:
        return RedisClient(parse_endpoint(url), timeout=timeout, durability=durability)
    if scheme not in {"redis", "rediss"} or kind not in {"cluster", "sentinel"}:
        raise StateError(
            "the redis url must begin with redis+cluster://, redis+sentinel:// or rediss+…"
        )
    login, at, hosts = parts.netloc.rpartition("@")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    own = {key: value for key, value in given.items() if key not in _OF_SENTINEL}
    service, _, database = parts.path.strip("/").partition("/")
    path = f"{database}?{urlencode(own)}"
    seeds = [f"{scheme}://{login}{at}{host}/{path}" for host in hosts.split(",")]
    endpoints = [parse_endpoint(seed) for seed in seeds]
    options = parse_url_options(seeds[0])
    secure: dict[str, Any] = {key: value for key, value in options.items() if key not in _PLACE}
    secure["ssl"] = scheme == "rediss"
    if kind == "cluster":
        if service or len(own) != len(given):
            raise StateError("the url of a redis cluster has no path and no option of a Sentinel")
        return ClusterClient(endpoints, secure, timeout=timeout, durability=durability)
    if not service:
        raise StateError("the redis url names no service; write redis+sentinel://HOST:PORT/SERVICE")
    for name in ("username", "password"):
        secure.pop(name, None)
        if f"sentinel_{name}" in given:
            secure[name] = given[f"sentinel_{name}"]
    first = endpoints[0]
    endpoint = SentinelEndpoint(
        db=first.db,
        username=first.username,
        password=first.password,
        tls=first.tls,
        service=service,
        sentinels=tuple((one.host, one.port) for one in endpoints),
        asking={**secure, "socket_timeout": timeout / (len(endpoints) + 1)},
    )
    return RedisClient(endpoint, timeout=timeout, durability=durability)


@dataclass(frozen=True, slots=True)
class SentinelEndpoint(Endpoint):
    """The primary of a service, asked for at each connect."""

    service: str = ""
    sentinels: tuple[tuple[str, int], ...] = ()
    asking: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options with which redis-py connects to a Sentinel."""

    def __str__(self) -> str:
        return f"{','.join(f'{host}:{port}' for host, port in self.sentinels)}/{self.service}"

    @property
    def handshake(self) -> tuple[tuple[str, ...], ...]:
        """Return the same as for one server, then the role: a Sentinel may miss a failover."""
        return (*super(SentinelEndpoint, self).handshake[:-1], ("ROLE",))

    def accepts(self, reply: Reply) -> bool:
        """Return whether the server says that it is a primary."""
        return isinstance(reply, list) and reply[:1] == [b"master"]

    async def connect(self, factory: Callable[[], P]) -> P:
        """Connect to the primary that the Sentinels name.

        Raises:
            OSError: none of them answers with one, or it cannot be reached.
        """
        from redis.asyncio.sentinel import Sentinel
        from redis.exceptions import RedisError

        # redis-py does not annotate it.
        asked: Any = cast("Callable[..., Any]", Sentinel)(
            self.sentinels, sentinel_kwargs=dict(self.asking)
        )
        try:
            host, port = await asked.discover_master(self.service)
        except RedisError as error:
            raise ConnectionError("no Sentinel names a primary") from error
        finally:
            for sentinel in asked.sentinels:
                await sentinel.aclose()
        server = Endpoint(host=str(host), port=int(port), tls=self.tls)
        return await server.connect(factory)


class ClusterClient(RedisClient):
    """Commands to a Redis Cluster; each key's go over one connection to the key's primary.

    A tenant's keys share a hash tag, so what one call asks for is in one place.  While a slot is
    being moved, Redis cannot tell keys that were never there from those that are on their way and
    refuses scripts of several keys (TRYAGAIN): calls of its tenants are blocked until it has moved.

    Args:
        seeds: servers to ask for the others; all have the same credentials and TLS settings.
        options: credentials and TLS as redis-py takes them.
        timeout: seconds for one reply, and for opening a connection.
        durability: of writes.
    """

    def __init__(
        self,
        seeds: list[Endpoint],
        options: Mapping[str, Any],
        *,
        timeout: float = TIMEOUT,
        durability: Durability = Durability.RELAXED,
    ) -> None:
        from redis.crc import key_slot

        super().__init__(seeds[0], timeout=timeout, durability=durability)
        self._slot_of: Callable[[bytes], int] = key_slot
        self._seeds = seeds
        self._options = options
        self._nodes: dict[tuple[str, int], RedisClient] = {}
        self._owners: list[tuple[str, int]] = []
        """The primary of each slot; empty until the Cluster was asked."""
        self._changes = 0
        self._asking: asyncio.Task[None] | None = None
        self._ask_again_at = 0.0
        self._past_opened = 0

    @property
    def opened(self) -> int:
        """Connections opened so far, and changes of who has what."""
        return self._changes + self._past_opened + sum(x.opened for x in self._nodes.values())

    def record_tag(self, tenant_tag: str) -> str:
        """Return the hash tag of the tenant's identity record: each shard can be lost by itself."""
        return tenant_tag

    async def servers(self) -> list[RedisClient]:
        """Return a client of each primary.

        Raises:
            StateError: the Cluster cannot be asked.
        """
        await self._known()
        return [self._node(place) for place in dict.fromkeys(self._owners)]

    @property
    def writes(self) -> int:
        """Writes made so far to all servers, those that are gone included."""
        return self._past_writes + sum(node.writes for node in self._nodes.values())

    @contextmanager
    def together(self) -> Iterator[None]:
        """See :meth:`RedisClient.together`; each server gets its part in one write."""
        with ExitStack() as stack:
            for node in self._nodes.values():
                stack.enter_context(node.together())
            yield

    async def execute(self, *command: Argument) -> Reply:
        """Send one command to where its first key is, or one that has no key to any server.

        Raises:
            StateError: as :meth:`RedisClient.execute`.
        """
        if len(command) == 1 or command[0] in _KEYLESS:
            return await (await self.servers())[0].execute(*command)
        at = _KEY_AT.get(str(command[0]), 1)
        return await self._routed(command[at], pack(command), None)

    async def run(self, script: Script, *arguments: Argument) -> Reply:
        """Run a script where its first key is.

        Raises:
            StateError: as :meth:`RedisClient.run`.
        """
        return await self._routed(arguments[1], pack(("EVALSHA", script.sha, *arguments)), script)

    async def scan(self, prefix: str, then: str = "") -> AsyncIterator[list[bytes]]:
        """Yield keys as :meth:`RedisClient.scan` does, of one primary after the other.

        Raises:
            StateError: as :meth:`RedisClient.scan`.
        """
        for node in await self.servers():
            async for page in node.scan(prefix, then):
                yield page

    async def aclose(self) -> None:
        """Close all connections.  Every later call fails."""
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        for node in self._nodes.values():
            await node.aclose()

    async def _routed(self, key: Argument, command: bytes, script: Script | None) -> Reply:
        await self._known()
        place = self._owners[self._slot_of(key if isinstance(key, bytes) else str(key).encode())]
        asking = False
        for _ in range(REDIRECTS):
            try:
                return await self._node(place).ask(command, script, asking=asking)
            except CommandRefusedError as error:
                if error.code not in {"MOVED", "ASK"}:
                    if error.code in {"CLUSTERDOWN", "READONLY", "MASTERDOWN"}:
                        self._look()
                    raise
                asking = error.code == "ASK"
                place = _pointed(error.text, place)
                if not asking:
                    self._look()
            except StateError:
                # Gone or slow; a replica may have taken over meanwhile.
                self._look()
                raise
        raise StateError("the redis cluster points from server to server")

    def _node(self, place: tuple[str, int]) -> RedisClient:
        """Return the client of a server; a Cluster's server names only servers of its own."""
        node = self._nodes.get(place)
        if node is None:
            if self._closed:
                raise StateError("the redis client was closed")
            endpoint = replace(self._seeds[0], host=place[0], port=place[1])
            node = RedisClient(endpoint, timeout=self._timeout, durability=self.durability)
            self._nodes[place] = node
        return node

    async def _known(self) -> None:
        """Ask the Cluster who has what, if it never was.

        Raises:
            StateError: it cannot be asked.
        """
        if self._closed:
            raise StateError("the redis client was closed")
        if not self._owners:
            self._look()
            if self._asking is not None:
                await asyncio.wait([self._asking])
            if not self._owners:
                raise StateError(f"the redis cluster at `{self.endpoint}` cannot be asked")

    def _look(self) -> None:
        """Begin to ask who has what, unless that is under way or was a moment ago."""
        loop = asyncio.get_running_loop()
        if self._asking is None and not self._closed and loop.time() >= self._ask_again_at:
            self._asking = loop.create_task(self._refresh())
            self._asking.add_done_callback(self._refreshed)

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        self._ask_again_at = asyncio.get_running_loop().time() + BACKOFF_FIRST
        if not task.cancelled():
            task.exception()

    async def _refresh(self) -> None:
        from redis.asyncio.cluster import ClusterNode, RedisCluster
        from redis.exceptions import RedisError

        places = {(one.host, one.port) for one in self._seeds} | set(self._nodes)
        seeds = [ClusterNode(host, port) for host, port in places]
        asked = RedisCluster(
            startup_nodes=seeds,
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
            **self._options,
        )
        try:
            await asked.initialize()
            cache = asked.nodes_manager.slots_cache
            primaries = [cache[slot][0] for slot in range(len(cache))]
            owners = [(node.host, int(node.port)) for node in primaries]
        finally:
            await asked.aclose()
            # Those that are no part of the cluster any more are not closed with it.
            for seed in seeds:
                with suppress(RedisError, OSError):
                    await seed.disconnect()
        if owners != self._owners:
            self._owners = owners
            self._changes += 1
            await self._forget_all_but(set(owners))

    async def _forget_all_but(self, places: set[tuple[str, int]]) -> None:
        for place in set(self._nodes) - places:
            node = self._nodes.pop(place)
            self._past_opened += node.opened
            self._past_writes += node.writes
            with suppress(StateError):
                await node.aclose()


def _pointed(text: str, place: tuple[str, int]) -> tuple[str, int]:
    """Return where ``MOVED SLOT HOST:PORT`` points; no host means the one that said so.

    Raises:
        StateError: nowhere.
    """
    host, _, port = text.rpartition(" ")[2].rpartition(":")
    if not port.isdigit():
        raise StateError("the redis cluster points to nowhere")
    return host or place[0], int(port)
