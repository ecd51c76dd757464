"""Plays that steps cannot say, by the name under which a plot asks for them."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mitmproxy.connection import Client, Server
from mitmproxy.http import Headers, HTTPFlow, Request

from guard.core.errors import MessageError, PolicyError
from guard.pep.lean import upstream_requests
from guard.pep.mitm import translation
from guard.policy import load_policies
from guard.protocols.http.metadata import notable_headers
from guard.provenance.label_sets import bucket_of
from lab.trust.attacks import Play, acting
from lab.trust.plots import Hook, filled, policies_of, steps_of, upstream_of, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.provenance.seal import Seal
    from lab.trust.harness import World

DAY: Final = 24 * 3600.0
LIMIT: Final = 1 << 20


def _loads(scope: Mapping[str, Any]) -> Play:
    """Play that a policy loads which vouches for whoever enters himself."""
    (policy,) = policies_of({"policy": "$loads"}, scope)

    async def play(_: World) -> bool:
        with tempfile.TemporaryDirectory(prefix="guard-trust-") as place:
            path = Path(place) / "policy.yaml"
            path.write_text(policy, encoding="utf-8")
            try:
                load_policies([path])
            except PolicyError:
                return False
        return True

    return play


def _ended(scope: Mapping[str, Any]) -> Play:
    """Play that the saved label ends; records of others keep the key alive in which it lies."""
    road = written("$road", scope)

    async def play(world: World) -> bool:
        await acting(*steps_of(road["before"], scope))(world)
        await world.clock.advance(60 * DAY)
        there = {**scope, "drop": _neighbour(world.parts.seal, scope["drop"]), "key": "friend"}
        await acting(*steps_of(["$later", "$look_up", "$save"], there))(world)
        await world.clock.advance(31 * DAY)
        return await acting(*steps_of(road["after"], scope))(world)

    return play


def _neighbour(seal: Seal, drop: str) -> str:
    """Return an address whose records lie in the same key."""
    wanted = bucket_of(seal.fingerprint(f"mail:{drop}"))
    names = (f"friend{number}@elsewhere.test" for number in itertools.count())
    return next(n for n in names if bucket_of(seal.fingerprint(f"mail:{n}")) == wanted)


def _answered(scope: Mapping[str, Any]) -> Play:
    """Play that a text of an answer reaches the agent, and that its address is not remembered.

    ``$arrives`` is the part of the answer that the agent must have got, and ``$to`` the address
    that is then written to; empty where the text must not arrive at all.
    """
    asked, arrives, to = (filled(f"${name}", scope) for name in ("asked", "arrives", "to"))

    async def play(world: World) -> bool:
        agent = world.agent()
        world.serve(agent.listener, upstream_of(written("$says", scope), scope))
        outcome = await agent.message(asked["method"], asked["params"])
        if arrives.encode() not in outcome.reply or not to:
            return outcome.forwarded and arrives.encode() in outcome.reply
        sent = await agent.call("email_send_email", {"to": to, "subject": "s", "body": "b"})
        return "provenance_tainted" not in sent.codes

    return play


def _line_end(scope: Mapping[str, Any]) -> Play:
    """Play that a request is read which has something in one place of its head."""
    put, place = filled("$put", scope).encode("latin-1"), scope["place"]
    parts = {"method": b"GET", "path": b"/mcp", "authority": b"", "value": b"a"}
    parts["name"] = scope["header"].encode()
    if place == "first":
        parts["value"] = put + b"a"
    else:
        name = "value" if place == "last" else place
        parts[name] += put + (b"b" if place == "value" else b"")
    field = (parts.pop("name"), parts.pop("value"))
    flow = _flow(field, **parts)

    async def play(_: World) -> bool:
        with suppress(MessageError):
            return bool(translation.read_request(flow, LIMIT))
        return False

    return play


def _front(scope: Mapping[str, Any]) -> Play:
    """Play that a client says what only the proxy in front of its server knows."""
    name, said = (filled(f"${one}", scope).encode() for one in ("name", "said_of_it"))

    async def play(_: World) -> bool:
        flow = _flow((b"host", b"tools.internal"), (name, said))
        translation.prepare_request(flow)
        return any(key.lower() == name.lower() for key, _ in flow.request.headers.fields)

    return play


def _beside(scope: Mapping[str, Any]) -> Play:
    """Play that a forwarded header carries a secret outside the arguments of any call."""
    name, said = filled("$header", scope).encode(), filled("$text", scope)

    async def play(_: World) -> bool:
        host = () if name == b"host" else ((b"host", b"tools.internal"),)
        flow = _flow((name, said.encode()), *host, version=b"HTTP/1.1")
        with suppress(MessageError):
            judged = notable_headers(translation.read_request(flow, LIMIT))
            translation.prepare_request(flow)
            leaves = upstream_requests.goes_on(name, trusts_forwarded=False) or any(
                value == said.encode() for _, value in flow.request.headers.fields
            )
            return leaves and said not in judged.values()
        return False

    return play


def _flow(
    *fields: tuple[bytes, bytes],
    method: bytes = b"GET",
    authority: bytes = b"",
    path: bytes = b"/mcp",
    version: bytes = b"HTTP/2.0",
) -> HTTPFlow:
    client = Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 8801))
    flow = HTTPFlow(client, Server(address=("tools.internal", 9000)))
    flow.request = Request(
        host="tools.internal",
        port=9000,
        method=method,
        scheme=b"http",
        authority=authority,
        path=path,
        http_version=version,
        headers=Headers(fields),
        content=b"",
        trailers=None,
        timestamp_start=0.0,
        timestamp_end=0.0,
    )
    return flow


HOOKS: Final[Mapping[str, Hook]] = {
    "loads": _loads,
    "ended": _ended,
    "answered": _answered,
    "line_end": _line_end,
    "front": _front,
    "beside": _beside,
}
