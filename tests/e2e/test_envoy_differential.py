"""A guard of its own and one behind an Envoy: same answers, same bytes at the server."""

from __future__ import annotations

import gzip
import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.running_guard import (
    BEHIND_ENVOY,
    RunningGuard,
    Upstream,
    needs_envoy,
    start_guard,
    tool_call,
)
from tests.e2e.test_failure_matrix import ENVOYS, MENDED, ROWS, TE, _chunked, _send

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.e2e,
    needs_envoy,
    pytest.mark.skipif(BEHIND_ENVOY, reason="it starts both kinds itself"),
]
REQUESTS = 240
_ID = re.compile(rb"[0-9a-f]{32}")
RECEIVERS = ("team@example.com", "a@evil.test", "bob@example.com.evil.test", "TEAM@example.com")
TOOLS = ("email_send_email", "post_everywhere", "memory_write", "notes_search", "http_fetch")
NAMES = ("x-note", "X-Guard-Session", "mcp-session-id", "traceparent", "accept", "X-Mixed-Case")
VALUES = ("plain", "s1", "a,b", "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "text/event-stream", "")


class Pair:
    """Both guards, each in front of a server of its own."""

    def __init__(self, alone: RunningGuard, fronted: RunningGuard) -> None:
        self.both = (alone, fronted)

    def seen(self, data: bytes) -> list[tuple[bytes, bytes, list[Any]]]:
        """Send to both; return answer, bytes at the server, and what was decided, by guard."""
        found = []
        for guard in self.both:
            received, lines = len(guard.upstream.received), len(guard.audit())
            answer = guard.send(data)
            decided = [
                (x["event"], x.get("code"), x.get("enforced")) for x in guard.audit()[lines:]
            ]
            sent = bytes(guard.upstream.received[received:])
            found.append((_plain(answer, guard), _plain(sent, guard), decided))
        return found


def _plain(data: bytes, guard: RunningGuard) -> bytes:
    """Return a message without what differs from one guard, or one answer, to the next.

    Fields are sorted and their names in lower case: their order means nothing.
    """
    head, blank, body = data.partition(b"\r\n\r\n")
    start, *lines = head.split(b"\r\n")
    own = (b"connection:", b"date:", b"content-length:")
    fields = sorted(one.partition(b":")[0].lower() + one[one.find(b":") :] for one in lines)
    kept = [one for one in fields if not one.startswith(own)]
    text = b"\r\n".join([b" ".join(start.split(b" ")[:2]), *kept]) + blank + body
    text = _ID.sub(b"ID", text)  # First: an id may have the digits of a port in it.
    for number in (guard.port, guard.upstream.port):
        text = text.replace(str(number).encode(), b"PORT")
    return text


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two deployments that start alike."""
    servers, guards = (Upstream(), Upstream()), []
    for server, pep in zip(servers, ("lean", "envoy"), strict=True):
        directory = tmp_path_factory.mktemp(pep)
        guards.append(
            start_guard(
                directory / "guard",
                server,
                options=("--body-limit", "64k"),
                environment={"GUARD_PEP": pep},
            )
        )
    yield Pair(*guards)
    for guard in guards:
        guard.stop()
    for server in servers:
        server.close()


def generated(draw: random.Random) -> bytes:
    """Return a request: honest, hostile or broken, in one of the ways HTTP has for it."""
    call = tool_call(draw.choice(RECEIVERS), draw.choice(TOOLS), draw.choice((1, "two", 3)))
    if draw.random() < 0.2:
        call["method"] = draw.choice(("tools/list", "ping", "tools/invoke", "initialize"))
    if draw.random() < 0.1:
        call.pop(draw.choice(("id", "jsonrpc", "params")))
    document: Any = [call, tool_call(draw.choice(RECEIVERS))] if draw.random() < 0.1 else call
    body = json.dumps(document).encode()
    if draw.random() < 0.1:
        body = body[: draw.randrange(len(body))]
    fields = ["content-type: application/json"]
    for _ in range(draw.randrange(3)):
        fields.append(f"{draw.choice(NAMES)}: {draw.choice(VALUES)}")
    if draw.random() < 0.2:
        body = gzip.compress(body, mtime=0)
        fields.append("content-encoding: gzip")
    target = draw.choice(("/mcp", "/mcp", "/mcp", "/mcp?a=1&b=%2e", "/other/./x", "/", "//mcp"))
    method = draw.choice(("POST", "POST", "POST", "POST", "GET", "DELETE", "PUT", "OPTIONS"))
    if method == "POST" and draw.random() < 0.3:
        cut = draw.randrange(1, max(len(body), 2))
        pieces = [one for one in (body[:cut], body[cut:]) if one]
        return _send(_chunked(*pieces), *fields, TE, method=method, target=target)
    return _send(body, *fields, method=method, target=target)


def test_generated_requests_are_answered_and_sent_on_alike(pair: Pair):
    """Byte for byte, but for ids of decisions, ports and what is said of one connection."""
    draw = random.Random(20261122)
    outcomes = set()

    for _ in range(REQUESTS):
        data = generated(draw)
        alone, fronted = pair.seen(data)
        assert fronted == alone, data
        outcomes.add((alone[0][:12], bool(alone[1])))

    # Some went out, and some were refused: a pair that refuses everything is alike as well.
    assert (b"HTTP/1.1 200", True) in outcomes
    assert (b"HTTP/1.1 200", False) in outcomes
    assert len(outcomes) > 4


def test_what_one_refuses_the_other_does_too(pair: Pair):
    """The failure matrix; heads that Envoy refuses itself have its words instead of the guard's."""
    for row in ROWS:
        data, code = row.values
        if str(row.id) in MENDED:
            continue
        alone, fronted = pair.seen(data)
        assert alone[1] == fronted[1] == b"", row.id
        if code not in ENVOYS or fronted[2]:
            assert fronted[2] == alone[2], row.id
            assert fronted[0] == alone[0], row.id
        else:
            assert fronted[0][9:10] in {b"4", b"5", b""}, row.id


def test_the_matrix_of_differences_is_small():
    """What Envoy makes readable is a closed list, each judged as it is sent on."""
    assert len(MENDED) == 6
    assert {str(row.id) for row in ROWS} >= set(MENDED)
