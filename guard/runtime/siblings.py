"""Messages between the workers of one guard: to open streams, and about offered tools.

* In HTTP+SSE (2024-11-05) a client reads every answer in one stream.  A refusal of what it posts to
  one worker must get into the stream that another one may have open.
* A tool's name that two servers offer is ambiguous.  Before a listing with a new name is released,
  every other worker knows of it.

They ask each other by the sockets on which they answer their supervisor.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from guard.processes.worker_files import control_sockets
from guard.runtime.worker_reports import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from guard.memory.pins import ToolOffers
    from guard.pipeline.handlers import Enforcement

STREAMS_PATH: Final = "/streams"
OFFERS_PATH: Final = "/offers"
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

    def send_into(self, stream: Stream, message: bytes) -> None:
        """Have a message sent into a stream, by whoever has it open; nobody waits for that."""
        task = asyncio.ensure_future(asyncio.to_thread(self._sent, stream, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _sent(self, stream: Stream, message: bytes) -> bool:
        fields = {"stream": list(stream), "message": base64.b64encode(message).decode()}
        for pulse in control_sockets(self._pulse):
            with suppress(OSError, ValueError, KeyError, http.client.HTTPException):
                if _asked(pulse, STREAMS_PATH, fields)["delivered"]:
                    return True
        return False

    async def offer(self, upstream: str, names: Sequence[str]) -> None:
        """Have every other worker know which tools a server offers.

        Raises:
            OSError: one that runs does not answer.
        """
        await asyncio.to_thread(self._offered, upstream, names)

    def _offered(self, upstream: str, names: Sequence[str]) -> None:
        fields = {"upstream": upstream, "names": list(names)}
        for pulse in control_sockets(self._pulse):
            # One that has ended answers no call; its successor reads what is pinned.
            with suppress(ConnectionRefusedError, FileNotFoundError):
                try:
                    _asked(pulse, OFFERS_PATH, fields)
                except (http.client.HTTPException, ValueError) as error:
                    raise OSError("a worker does not take in what is offered") from error


def _asked(pulse: Path, path: str, fields: Mapping[str, object]) -> dict[str, Any]:
    status, answer = ask(pulse, "POST", path, json.dumps(fields).encode())
    if status != HTTPStatus.OK:
        raise OSError(f"a worker answers with status {status}")
    found: dict[str, Any] = json.loads(answer)
    return found


def posts(
    enforcement: Enforcement,
    offers: ToolOffers,
    loop: asyncio.AbstractEventLoop,
    seconds: float,
) -> dict[str, Callable[[bytes], Mapping[str, object]]]:
    """Return what takes in what siblings say, by path, on threads of the admin port.

    Args:
        enforcement: has the open event streams.
        offers: of this worker.
        loop: of the worker, on which both are changed.
        seconds: how long that may take.
    """

    async def send(fields: dict[str, Any]) -> dict[str, object]:
        listener, principal, session = map(str, fields["stream"])
        message = base64.b64decode(fields["message"])
        return {"delivered": enforcement.send_into((listener, principal, session), message)}

    async def note(fields: dict[str, Any]) -> dict[str, object]:
        offers.note(str(fields["upstream"]), [str(name) for name in fields["names"]])
        return {}

    def on_loop(
        take: Callable[[dict[str, Any]], Any],
    ) -> Callable[[bytes], Mapping[str, object]]:
        def taken(body: bytes) -> Mapping[str, object]:
            work = take(json.loads(body))
            found: Mapping[str, object] = asyncio.run_coroutine_threadsafe(work, loop).result(
                seconds
            )
            return found

        return taken

    return {STREAMS_PATH: on_loop(send), OFFERS_PATH: on_loop(note)}
