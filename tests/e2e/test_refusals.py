"""A real client hands its model why it was refused: the core of `make conformance`'s matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from guard.processes.loopback import free_port
from lab.refusal_matrix import bench_refusals
from tests.e2e.running_guard import (
    ROOT,
    THE_RIG,
    Upstream,
    default_answer,
    start_guard,
    tool_call,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


def test_the_official_client_reads_every_kind_of_refusal() -> None:
    """Over HTTP, HTTP+SSE and stdio; what has an output schema is the harder half."""
    report = bench_refusals(
        ROOT / "tests" / "conformance",
        progress=lambda words, share: None,
        only="mcp 1 (Python)",
        schemas=("typed",),
        made=THE_RIG,
    )

    assert report.details["unreadable"] == []
    assert report.checks[0].n == 26


LOGIN = 'Bearer resource_metadata="https://auth.example/.well-known/oauth-protected-resource"'


def unauthorised(request: bytes) -> bytes:
    """Ask for a token unless the request has the right one."""
    if b"authorization: bearer t1\r\n" in request.lower():
        return default_answer(request)
    body = b'{"error": "invalid_token"}'
    head = (
        f"HTTP/1.1 401 Unauthorized\r\nwww-authenticate: {LOGIN}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def test_an_upstream_s_demand_to_log_in_reaches_the_client(tmp_path: Path) -> None:
    """And the token that it brings then reaches that upstream, and no other."""
    first, second = Upstream(), Upstream()
    first.answer = unauthorised
    other = free_port()
    options = ("--reverse", f"127.0.0.1:{other}=http://127.0.0.1:{second.port}")
    guard = start_guard(tmp_path / "guard", first, options=options)
    with httpx.Client(trust_env=False, timeout=60) as client:
        url, call = f"http://127.0.0.1:{guard.port}/mcp", tool_call()
        asked = client.post(url, json=call)
        allowed = client.post(url, json=call, headers={"authorization": "Bearer t1"})
        elsewhere = client.post(f"http://127.0.0.1:{other}/mcp", json=call)
    guard.stop()
    for upstream in (first, second):
        upstream.close()

    own = f"http://127.0.0.1:{guard.port}/.well-known/oauth-protected-resource/mcp"
    told = f'Bearer resource_metadata="{own}"'
    assert (asked.status_code, asked.headers["www-authenticate"]) == (401, told)
    assert allowed.status_code == elsewhere.status_code == 200
    assert b"t1" in first.received
    assert b"t1" not in second.received
