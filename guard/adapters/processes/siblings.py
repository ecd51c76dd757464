"""Event streams that another worker of the same guard has open.

In HTTP+SSE (2024-11-05) a client reads every answer in one stream.  A refusal of what it posts to
one worker must get into the stream that another one may have; the workers ask each other by the
sockets on which they answer their supervisor.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from guard.adapters.admin_port import STREAMS_PATH
from guard.adapters.processes.worker_files import control_sockets
from guard.adapters.processes.worker_reports import ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Stream = tuple[str, str, str]
"""Listener, principal and session of an open event stream."""


class Siblings:
    """The other workers.

    Args:
        pulse: this worker's pulse file; the others' lie beside it.
    """

    def __init__(self, pulse: Path) -> None:
        self._pulse = pulse
        self._tasks: set[asyncio.Task[bool]] = set()

    def tell(self, stream: Stream, message: bytes) -> None:
        """Have a message sent into a stream, by whoever has it open; nobody waits for that."""
        task = asyncio.ensure_future(asyncio.to_thread(self._told, stream, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _told(self, stream: Stream, message: bytes) -> bool:
        told = {"stream": list(stream), "message": base64.b64encode(message).decode()}
        body = json.dumps(told).encode()
        for pulse in control_sockets(self._pulse):
            with suppress(OSError, ValueError, KeyError, http.client.HTTPException):
                status, answer = ask(pulse, "POST", STREAMS_PATH, body)
                if status == HTTPStatus.OK and json.loads(answer)["delivered"]:
                    return True
        return False


def delivery(
    deliver: Callable[[Stream, bytes], bool], loop: asyncio.AbstractEventLoop, seconds: float
) -> Callable[[bytes], bool]:
    """Return what takes such a message in on a thread of the admin port.

    Args:
        deliver: sends it into a stream on the loop, where this worker has that open.
        loop: of the worker.
        seconds: how long the loop may take.
    """

    async def delivered(told: dict[str, Any]) -> bool:
        listener, principal, session = map(str, told["stream"])
        return deliver((listener, principal, session), base64.b64decode(told["message"]))

    def take(body: bytes) -> bool:
        told = json.loads(body)
        return asyncio.run_coroutine_threadsafe(delivered(told), loop).result(seconds)

    return take
