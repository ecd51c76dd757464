"""Decisions over a Unix socket: how ``guard stdio`` asks the one running guard of a machine.

Newline-delimited JSON.  A wrapper says hello with the digest of its policy; then each frame of the
agent is asked about (forward it, or answer this instead), and each frame of the server is handed
in and comes back, whole or withheld.  One connection is one session.  Whoever may enter the
socket's directory may ask, so it must be its user's alone.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import uuid
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.redis.embedded import check_private
from guard.core.errors import GuardError, MessageError, OversizeError
from guard.enforcement.exchange import Exchange, UnreadExchange
from guard.enforcement.holding import HeldRequest
from guard.protocols.http.message import HttpReply, HttpRequest
from guard.protocols.refusals import UNREACHABLE

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from guard.enforcement.handlers import Enforcement

FRAME_LIMIT: Final = 17 * 1024 * 1024
"""Bytes of one line: a frame of the largest body, quoted."""
STDIO: Final = "stdio"


class DecisionServer:
    """Serves decisions on a Unix socket.

    Args:
        enforcement: as the network listeners use it.
        policy: returns the digest of the policy in force.
        path: of the socket; its directory must be private.
        listener: the socket, where a supervisor has made it for all its workers.
    """

    def __init__(
        self,
        enforcement: Enforcement,
        policy: Callable[[], str],
        path: Path,
        listener: socket.socket | None = None,
    ) -> None:
        self._enforcement = enforcement
        self._policy = policy
        self._path = path
        self._listener = listener
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            GuardError: the directory is open to others, or the socket cannot be made.
        """
        if self._listener is not None:
            self._server = await asyncio.start_unix_server(
                self._serve, sock=self._listener, limit=FRAME_LIMIT
            )
            return
        check_private(self._path.parent)
        try:
            self._path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(
                self._serve, self._path, limit=FRAME_LIMIT
            )
        except OSError as error:
            msg = f"the decision socket `{self._path}` cannot be made ({type(error).__name__})"
            raise GuardError(msg) from error

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            if self._listener is None:
                self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wrapper = _Wrapper(self._enforcement, self._policy)
        try:
            while line := await reader.readline():
                answer = await wrapper.answer(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, KeyError, TypeError):
            pass  # A wrapper that is gone, or speaks nonsense: it gets no further answer.
        finally:
            await wrapper.lost()
            writer.close()


class _Wrapper:
    """One connected ``guard stdio``."""

    def __init__(self, enforcement: Enforcement, policy: Callable[[], str]) -> None:
        self._enforcement = enforcement
        self._policy = policy
        self._name = ""
        self._secret = ""
        self._session = f"stdio-{uuid.uuid4().hex}"
        self._exchange: Exchange | None = None
        self._held: dict[str, HeldRequest] = {}
        """Requests that are held open, by what the wrapper asks with again."""

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer one line."""
        if asked["op"] == "hello":
            return self._hello(asked)
        if not self._name:
            return {"error": "say hello first"}
        if asked["op"] == "ended":
            return {"frames": self._ended()}
        frame = str(asked["frame"])
        if asked["op"] == "oversize":
            return self._oversize(frame.encode())
        asks = {"wait": self._still_held, "request": self._request}
        return await asks.get(asked["op"], self._answered)(frame)

    def _oversize(self, outline: bytes) -> dict[str, Any]:
        """Return the refusal of a frame that is too large, of which there is an outline only."""
        error = OversizeError(f"a message is larger than {FRAME_LIMIT} bytes")
        reply = self._enforcement.requests.refuse(error, self._as_request(outline))
        return {"reply": reply.body.decode()}

    async def _answered(self, frame: str) -> dict[str, Any]:
        """Return a frame of the server's, whole or with what is withheld replaced."""
        responses = self._enforcement.responses
        if self._exchange is None:
            # Nobody has said anything yet, so there is nobody whose labels it could get.
            return {"frame": frame} if responses.passes else {}
        try:
            withheld = await responses.on_message(self._exchange, frame.encode())
        except MessageError as error:
            responses.refuse(error, self._exchange)
            return {}  # Without a frame the wrapper says so, where it can make out to whom.
        return {"frame": frame if withheld is None else withheld.decode()}

    def _ended(self) -> list[str]:
        """Return the answers to what a server has left open that has ended."""
        if self._exchange is None:
            return []
        error = MessageError(UNREACHABLE, "the tool server has ended", status=502)
        told = self._enforcement.responses.end_open(error, self._exchange)
        return [frame.decode() for frame in told]

    async def lost(self) -> None:
        """Note that no answer of this session will come any more."""
        for held in self._held.values():
            held.close()
        if self._exchange is not None:
            await self._enforcement.responses.on_lost(self._exchange)

    def _hello(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["policy"] != self._policy():
            return {"error": "the running guard has another policy"}
        self._name, self._secret = f"{STDIO}:{asked['name']}", str(asked.get("secret", ""))
        return {"ok": True}

    def _as_request(self, frame: bytes) -> HttpRequest:
        headers = [
            ("content-type", "application/json"),
            ("x-guard-session", self._session),
            # Whatever comes this way is MCP, however broken.
            ("mcp-protocol-version", STDIO),
        ]
        if self._secret:
            headers.append(("proxy-authorization", f"Bearer {self._secret}"))
        return HttpRequest(
            method="POST",
            scheme=STDIO,
            host=self._name,
            target="/",
            headers=tuple(headers),
            body=frame,
            server=self._name,
            connection=self._session,
        )

    async def _request(self, frame: str) -> dict[str, Any]:
        requests = self._enforcement.requests
        outcome = await requests.on_patient_request(self._as_request(frame.encode()))
        if isinstance(outcome, HeldRequest):
            ticket = secrets.token_hex(16)
            self._held[ticket] = outcome
            return {"held": ticket}
        return self._carried_out(outcome)

    async def _still_held(self, ticket: str) -> dict[str, Any]:
        """Return what is to be told of a request that is held open, or what became of it."""
        held = self._held.get(ticket)
        if held is None:
            return {"error": "nothing is held under this ticket"}
        told = await held.waiting(0)
        if told is not None:
            return {"held": ticket, "say": [one.decode() for one in told]}
        del self._held[ticket]
        held.close()
        return self._carried_out(held.outcome())

    def _carried_out(self, outcome: Exchange | UnreadExchange | HttpReply) -> dict[str, Any]:
        """Return what the wrapper is to do with a request that was judged."""
        if isinstance(outcome, HttpReply):
            return {"reply": outcome.body.decode()}
        if isinstance(outcome, UnreadExchange):
            return {"forward": True}
        if self._exchange is not None:
            self._exchange.calls.update(outcome.calls)
            self._exchange.plain.update(outcome.plain)
            outcome.calls, outcome.plain = self._exchange.calls, self._exchange.plain
        self._exchange = outcome
        if outcome.rewritten is not None:
            return {"forward": True, "frame": outcome.rewritten.body.decode()}
        return {"forward": True}
