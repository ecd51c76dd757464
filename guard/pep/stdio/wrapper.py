"""``guard stdio``: stands between an agent and an MCP server that speaks on standard input/output.

Frames (one JSON-RPC message per line) pass byte for byte, or not at all.  Every decision is made by
the running guard; without an answer from it no request passes and no result is released.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import stat
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from guard.core.errors import GuardError
from guard.pep.stdio.decision_socket import FRAME_LIMIT
from guard.processes.child_process import SHIM
from guard.protocols.framing.json_messages import REFUSED, RequestOutline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PATIENCE: Final = 5.0
"""Seconds that a server gets after its input has ended, and again after SIGTERM."""
HELD_SECONDS: Final = 0.1
"""Seconds between checks of a frame that is held for a person's answer."""
JUDGED_SECONDS: Final = 0.02
"""Seconds between checks of an answer that a second one has to be compared with."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NOT_FOUND: Final = 127
_NO_GUARD: Final = (
    "the egress guard is not available; nothing was forwarded. What would help: try again later; "
    "if it stays so, the operator has to start `guard run`"
)
_NO_RELEASE: Final = "the egress guard could not release the answer; whether to go on is the user's"


class Decisions:
    """The connection to the running guard.

    Args:
        path: its decision socket.
        hello: what is said first: policy digest, server name, the agent's secret.
        timeout: seconds for one answer.
    """

    def __init__(self, path: Path, hello: Mapping[str, str], timeout: float) -> None:
        self._path = path
        self._hello = dict(hello)
        self._timeout = timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()
        self._numbers = itertools.count()

    async def connect(self) -> None:
        """Say hello.

        Raises:
            GuardError: nobody listens there, or it has another policy.
        """
        async with self._lock:
            await self._connected()

    async def ask(self, operation: str, frame: bytes) -> dict[str, Any] | None:
        """Return the answer about a frame, None where there is none."""
        try:
            text = frame.decode("utf-8")
            async with self._lock:
                return await self._exchange({"op": operation, "frame": text})
        except (GuardError, UnicodeDecodeError):
            return None

    async def _connected(self) -> None:
        if self._streams is not None:
            return
        try:
            async with asyncio.timeout(self._timeout):
                self._streams = await asyncio.open_unix_connection(self._path, limit=FRAME_LIMIT)
        except (OSError, TimeoutError) as error:
            raise GuardError(
                f"no guard listens on `{self._path}`; start `guard run --decisions {self._path}`"
            ) from error
        answer = await self._exchange({"op": "hello", **self._hello})
        if "ok" not in answer:
            self._drop()
            raise GuardError(str(answer.get("error", "the guard did not answer")))

    async def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._streams is None:
            await self._connected()
        if self._streams is None:
            raise GuardError("there is no connection to the guard")
        reader, writer = self._streams
        number = next(self._numbers)
        try:
            async with asyncio.timeout(self._timeout):
                writer.write(json.dumps({**message, "n": number}).encode() + b"\n")
                await writer.drain()
                line = await reader.readline()
            answer = json.loads(line)
        except (OSError, TimeoutError, ValueError) as error:
            # An answer that comes late must never be taken for that of the next question.
            self._drop()
            raise GuardError("the guard did not answer") from error
        except asyncio.CancelledError:
            self._drop()
            raise
        if not isinstance(answer, dict) or answer.pop("n", None) != number:
            self._drop()
            raise GuardError(
                "the guard answered something else than it was asked, or is an earlier version"
            )
        return answer

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def run_stdio(
    command: Sequence[str], decisions: Decisions, environment: Mapping[str, str]
) -> int:
    """Run a server behind the guard until it ends; return its exit code.

    Raises:
        GuardError: no guard is running, or the command does not exist.
    """
    await decisions.connect()
    program = shutil.which(command[0])
    if program is None:
        raise GuardError(f"`{command[0]}` is not on the PATH")
    loop = asyncio.get_running_loop()
    early: list[int] = []
    for number in SIGNALS:
        # Before there is a server: one that comes while it is started is not to end the wrapper.
        loop.add_signal_handler(number, early.append, number)
    shim = [sys.executable, "-I", "-S", "-c", SHIM, str(os.getpid()), program]
    child = await asyncio.create_subprocess_exec(
        *shim,
        *command[1:],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=dict(environment),
        limit=FRAME_LIMIT,
        # Its own group: whatever it starts can be ended with it.
        start_new_session=True,
    )
    for number in SIGNALS:
        loop.add_signal_handler(number, _pass_on, child, number)
    for frame in early:
        _pass_on(child, frame)
    agent = await _standard_input(loop)
    incoming = loop.create_task(_from_agent(agent, child, decisions))
    outgoing = loop.create_task(_from_server(child, decisions))
    await outgoing
    incoming.cancel()
    return await _ended(child)


async def _from_agent(
    agent: asyncio.StreamReader, child: asyncio.subprocess.Process, decisions: Decisions
) -> None:
    if child.stdin is None:
        return
    waiting: set[asyncio.Task[None]] = set()
    try:
        while (read := await _frame(agent)) is not None:
            line, operation = read
            if not line.strip() and operation == "request":
                continue
            answer = await decisions.ask(operation, line.rstrip(b"\r\n"))
            if answer is not None and "held" in answer:
                later = _held(str(answer["held"]), line, child.stdin, decisions)
                waiting.add(task := asyncio.get_running_loop().create_task(later))
                task.add_done_callback(waiting.discard)
            else:
                await _carry_out(answer, line, child.stdin)
    except (OSError, ValueError):
        pass  # The server has closed its input.
    finally:
        for task in list(waiting):
            task.cancel()
        child.stdin.close()
    await _give_time(child)


async def _carry_out(
    answer: Mapping[str, Any] | None, line: bytes, server: asyncio.StreamWriter
) -> None:
    """Forward a frame of the agent's, or answer it."""
    if answer is not None and answer.get("forward") is True:
        frame = str(answer["frame"]).encode() if "frame" in answer else line.rstrip(b"\n")
        server.write(frame + b"\n")
        await server.drain()
    elif answer is not None and "reply" in answer:
        _say(str(answer["reply"]).encode())
    else:
        _say(_unavailable(line))


async def _held(
    ticket: str, line: bytes, server: asyncio.StreamWriter, decisions: Decisions
) -> None:
    """Carry out what became of a frame that the guard holds; others pass meanwhile."""
    answer = await _settled(decisions, "wait", "held", ticket, HELD_SECONDS)
    with suppress(OSError):
        await _carry_out(answer, line, server)


async def _settled(
    decisions: Decisions, operation: str, waits: str, ticket: str, seconds: float
) -> Mapping[str, Any] | None:
    """Ask again and again until an answer is more than that something still waits."""
    while True:
        await asyncio.sleep(seconds)
        answer = await decisions.ask(operation, ticket.encode())
        for frame in (answer or {}).get("say", ()):
            _say(str(frame).encode())
        if answer is None or waits not in answer:
            return answer


async def _frame(agent: asyncio.StreamReader) -> tuple[bytes, str] | None:
    """Return the agent's next frame and how to ask about it, None at the end of its input.

    Of one that is larger than any may be there is an outline only: enough to answer it.
    """
    held, outline = bytearray(), None
    while True:
        try:
            data = await agent.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            data = await agent.read(max(error.consumed, 1))
        except asyncio.IncompleteReadError as error:
            data = error.partial
            if not data and not held and outline is None:
                return None
        if outline is None and len(held) + len(data) > FRAME_LIMIT:
            outline = RequestOutline()
            outline.feed(bytes(held))
            held.clear()
        if outline is None:
            held += data
        else:
            outline.feed(data)
        if data.endswith(b"\n") or agent.at_eof():
            return (bytes(held), "request") if outline is None else (outline.text(), "oversize")


async def _from_server(child: asyncio.subprocess.Process, decisions: Decisions) -> None:
    if child.stdout is None or child.stdin is None:
        return
    judged: set[asyncio.Task[None]] = set()
    with suppress(ValueError):
        while line := await child.stdout.readline():
            answer = await decisions.ask("answer", line.rstrip(b"\r\n"))
            if answer is not None and "put" in answer:
                # The guard asks the server as well, before it can judge this.
                child.stdin.write(str(answer["put"]).encode() + b"\n")
                later = _judged(str(answer["judged"]), line, decisions)
                judged.add(task := asyncio.get_running_loop().create_task(later))
                task.add_done_callback(judged.discard)
            else:
                _release(answer, line)
    await asyncio.gather(*judged)
    ended = await decisions.ask("ended", b"")
    for frame in (ended or {}).get("frames", ()):
        _say(str(frame).encode())


async def _judged(ticket: str, line: bytes, decisions: Decisions) -> None:
    """Release what became of an answer; others pass meanwhile."""
    _release(await _settled(decisions, "judged", "judged", ticket, JUDGED_SECONDS), line)


def _release(answer: Mapping[str, Any] | None, line: bytes) -> None:
    """Say a frame of the server's as it was judged."""
    if answer is None or "frame" not in answer:
        _say(_unavailable(line))
    elif str(answer["frame"]).encode() == line.rstrip(b"\r\n"):
        _say(line.rstrip(b"\r\n"))
    else:
        _say(str(answer["frame"]).encode())


def _say(frame: bytes) -> None:
    if frame:
        sys.stdout.buffer.write(frame + b"\n")
        sys.stdout.buffer.flush()


def _unavailable(line: bytes) -> bytes:
    """Return the answer in place of a request, or of an answer, that could not be judged."""
    try:
        message = json.loads(line)
        identifier, method = message["id"], message.get("method")
    except (ValueError, TypeError, KeyError, AttributeError):
        return b""
    if method is not None and identifier is None:
        return b""
    words = _NO_GUARD if method is not None else _NO_RELEASE
    content = [{"type": "text", "text": words}]
    if method == "tools/call" or "content" in (message.get("result") or {}):
        result = {"content": content, "isError": True, "resultType": "complete"}
        return json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result}).encode()
    error = {"code": REFUSED, "message": words}
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "error": error}).encode()


async def _standard_input(loop: asyncio.AbstractEventLoop) -> asyncio.StreamReader:
    """Return a reader of the agent's frames; without an input, one at its end."""
    reader = asyncio.StreamReader(limit=FRAME_LIMIT)
    source = sys.stdin
    if source is None:
        reader.feed_eof()
        return reader
    mode = os.fstat(source.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or source.isatty()):
        # The event loop cannot wait for a file or a device such as /dev/null.
        received, copied = os.pipe()
        copy = threading.Thread(target=_copy, args=(source.buffer, copied), daemon=True)
        copy.start()
        source = os.fdopen(received)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    return reader


def _copy(source: BinaryIO, pipe: int) -> None:
    """Copy a file into a pipe, and close the pipe."""
    with suppress(OSError), os.fdopen(pipe, "wb") as target:
        shutil.copyfileobj(source, target)


def _pass_on(child: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)


async def _give_time(child: asyncio.subprocess.Process) -> None:
    """End a server whose input has ended and that does not end by itself."""
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            _pass_on(child, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await child.wait()
                return


async def _ended(child: asyncio.subprocess.Process) -> int:
    await _give_time(child)
    # What the server started itself must not outlive it.
    _pass_on(child, signal.SIGKILL)
    code = child.returncode
    if code is None:
        return 1
    return code if code >= 0 else 128 - code
