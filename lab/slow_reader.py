"""A client that never reads: bytes that a worker holds for it.

The client opens an event stream (MCP over HTTP+SSE) and reads its first event only.  On another
connection it posts calls that the guard refuses; their refusals belong into that stream.  Each
refusal repeats the id of its call, which is long.  Three times as many such calls without a stream
come first: the memory of a worker grows until its garbage is collected as fast as it is made.
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.processes.loopback import Rig, free_port
from guard.replay.reports import Check
from lab.guard_processes import resident, worker_of
from lab.load import ANSWER, Responder, serve_until_end_of_input

if TYPE_CHECKING:
    from pathlib import Path

CALLS: Final = 400
ID: Final = 60 * 1024
"""Calls, and characters of the id of each: refusals of 25 MB together."""
ROUNDS: Final = 3
"""Times the calls are made before there is a stream."""
HELD: Final = 8 * 1024 * 1024
"""Bytes that a worker may grow by."""
PEPS: Final = ("lean",)
SESSION: Final = "slow"
SECONDS: Final = 60.0
_SMALL: Final = 4096
_EVERY: Final = 20
"""Calls between two looks at the worker."""
_EVENT: Final = f"event: endpoint\ndata: /messages/?session_id={SESSION}\n\n"


class StreamServer(Responder):
    """A tool server whose event streams never end."""

    def answer(self, head: bytes, body: bytes) -> bytes:
        """Begin a stream, or answer a call."""
        del body
        if not head.startswith(b"GET /sse "):
            return ANSWER
        begin = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        return (begin + _EVENT).encode()


@dataclass(frozen=True, slots=True)
class SlowReader:
    """Bytes that one worker held."""

    pep: str
    sent: int
    """Bytes of the refusals that belonged into the stream."""
    held: int
    """Bytes that the worker has grown by at most."""
    into_stream: int
    """Calls whose refusals were sent into the stream; the others were answered directly."""


def measure_slow_reader(policy: Path, pep: str) -> SlowReader:
    """Post refused calls beside a stream that nobody reads.

    Args:
        policy: of the guard.
        pep: enforcement point.

    Raises:
        GuardError: the guard did not start, or does not answer.
    """
    with Rig() as rig:
        upstream, port = rig.server(__name__), free_port()
        listener = f"127.0.0.1:{port}=http://127.0.0.1:{upstream}"
        words = ("--policy", str(policy.resolve()), "--reverse", listener, "--pep", pep)
        guard = rig.begin_guard(*words)
        guard.wait_ready()
        worker = worker_of(guard.process.pid)
        with ExitStack() as stack:
            caller = stack.enter_context(_connected(port))
            before = max(_posted(caller, "other", worker)[1] for _ in range(ROUNDS))
            stream = stack.enter_context(_connected(port, receives=_SMALL))
            stream.sendall(b"GET /sse HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n")
            told = b""
            while _EVENT.encode() not in told:
                told += _received(stream)
            into_stream, most = _posted(caller, SESSION, worker)
    return SlowReader(pep, CALLS * ID, max(0, most - before), into_stream)


def _posted(caller: socket.socket, session: str, worker: int) -> tuple[int, int]:
    """Make the calls; return how many were answered elsewhere, and the worker's most memory."""
    elsewhere, most = 0, 0
    for number in range(CALLS):
        elsewhere += _call(caller, session, number).startswith(b"HTTP/1.1 202")
        if number % _EVERY == 0:
            most = max(most, resident(worker))
    return elsewhere, max(most, resident(worker))


def slow_reader_check(found: list[SlowReader]) -> Check:
    """Return the figure; None where nothing was sent into a stream."""
    sound = all(one.into_stream for one in found)
    return Check(
        id="held_bytes_slow_reader",
        value=max(one.held for one in found) if sound else None,
        unit="bytes",
        n=sum(one.sent for one in found),
        target=f"<= {HELD}",
        reason=None if sound else "no refusal went into the stream",
    )


def _connected(port: int, *, receives: int = 0) -> socket.socket:
    made = socket.socket()
    if receives:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    made.settimeout(SECONDS)
    made.connect(("127.0.0.1", port))
    return made


def _call(caller: socket.socket, session: str, number: int) -> bytes:
    """Make a call that is refused; return the head of its answer."""
    arguments = {"to": "drop@evil.test", "subject": "s", "body": "b"}
    call = {
        "jsonrpc": "2.0",
        "id": f"{number}".rjust(ID, "x"),
        "method": "tools/call",
        "params": {"name": "email_send_email", "arguments": arguments},
    }
    body = json.dumps(call).encode()
    head = (
        f"POST /messages/?session_id={session} HTTP/1.1\r\nhost: x\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    caller.sendall(head.encode() + body)
    answer = _received(caller)
    while b"\r\n\r\n" not in answer:
        answer += _received(caller)
    head_bytes, _, rest = answer.partition(b"\r\n\r\n")
    length = int(head_bytes.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
    while len(rest) < length:
        rest += _received(caller)
    return head_bytes


def _received(sender: socket.socket) -> bytes:
    data = sender.recv(65536)
    if not data:
        raise GuardError("the guard has closed a connection that it is to answer")
    return data


if __name__ == "__main__":
    asyncio.run(serve_until_end_of_input(StreamServer))
