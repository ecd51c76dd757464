"""A client that never reads: bytes that a worker holds for it.

The client opens an event stream (MCP over HTTP+SSE) and reads its first event only.  On another
connection it posts calls that the guard refuses; their refusals belong into that stream.  Each
refusal repeats the id of its call, which is long.  Three times as many such calls without a stream
come first: the memory of a worker grows until its garbage is collected as fast as it is made.
"""

from __future__ import annotations

import socket
from contextlib import closing
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.processes.loopback import Rig
from guard.replay.reports import Check
from lab.guard_processes import begin_guard, resident, worker_of
from lab.load import UPSTREAM
from lab.tool_server import SLOW_SESSION, STREAM, TOOL
from lab.wire import call_body

if TYPE_CHECKING:
    from pathlib import Path

CALLS: Final = 400
ID: Final = 60 * 1024
"""Calls, and characters of the id of each: refusals of 25 MB together."""
ROUNDS: Final = 3
"""Times the calls are made before there is a stream."""
HELD: Final = 8 * 1024 * 1024
"""Bytes that a worker may grow by."""
SECONDS: Final = 60.0
_SMALL: Final = 4096
_EVERY: Final = 20
"""Calls between two looks at the worker."""


def held_for_slow_reader(policy: Path) -> Check:
    """Post refused calls beside a stream that nobody reads; return the bytes that a worker held.

    Raises:
        GuardError: the guard did not start, or does not answer.
    """
    with Rig() as rig, socket.socket() as stream:
        port, guard = begin_guard(rig, policy, rig.server(UPSTREAM))
        worker = worker_of(guard.process.pid)
        with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as caller:
            before = max(_posted(caller, "other", worker)[1] for _ in range(ROUNDS))
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
            stream.settimeout(SECONDS)
            stream.connect(("127.0.0.1", port))
            stream.sendall(b"GET /sse HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n")
            received = b""
            while STREAM not in received:
                if not (data := stream.recv(65536)):
                    raise GuardError("the guard has closed a connection that it is to answer")
                received += data
            into_stream, most = _posted(caller, SLOW_SESSION, worker)
    return Check(
        id="held_bytes_slow_reader",
        value=max(0, most - before) if into_stream else None,
        unit="bytes",
        n=CALLS * ID,
        target=f"<= {HELD}",
        reason=None if into_stream else "no refusal went into the stream",
    )


def _posted(caller: HTTPConnection, session: str, worker: int) -> tuple[int, int]:
    """Make refused calls; return how many were answered elsewhere, and the worker's most memory."""
    elsewhere, most = 0, 0
    arguments = {"to": "drop@evil.test", "subject": "s", "body": "b"}
    for number in range(CALLS):
        body = call_body(TOOL, arguments, f"{number}".rjust(ID, "x"))
        kind = {"content-type": "application/json"}
        caller.request("POST", f"/messages/?session_id={session}", body, kind)
        answer = caller.getresponse()
        answer.read()
        elsewhere += answer.status == 202
        if number % _EVERY == 0:
            most = max(most, resident(worker))
    return elsewhere, max(most, resident(worker))
