"""Decisions over a Unix socket: how ``guard stdio`` asks the one running guard of a machine.

Newline-delimited JSON; each question has a number, which its answer repeats. A wrapper says hello
with the digest of its policy; then each frame of the agent is asked about (forward it, or answer
this instead), and each frame of the server is handed in and comes back, whole or withheld. Where a
store has to be asked a second time before an answer of it can be judged, the wrapper is given the
question to put, and asks later what became of the answer. One connection is one session, or part of
that of the hooks of the same client (:mod:`guard.pep.hook`), which ask here as well. Whoever
may enter the socket's directory may ask, so it must be its user's alone.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import uuid
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError, MessageError, OversizeError
from guard.pep.hook.service import HookService
from guard.pipeline.exchange import Exchange, UnparsedExchange
from guard.pipeline.holding import HeldRequest
from guard.processes.private_directories import check_private
from guard.protocols.http.message import HttpReply, HttpRequest
from guard.protocols.refusals import unanswered

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from guard.core.model import Json
    from guard.pipeline.handlers import Enforcement
    from guard.store.memory_stores.recovery import WrappedStores

FRAME_LIMIT: Final = 17 * 1024 * 1024
"""Bytes of one line: a frame of the largest body, quoted."""
STDIO: Final = "stdio"
OWN: Final = "guard-"
"""Prefix of the ids of the guard's own questions."""
ASKED_SECONDS: Final = 20.0
_SILENT: Final = "the memory server did not say"


class DecisionServer:
    """Serves decisions on a Unix socket.

    Args:
        enforcement: as the network listeners use it.
        policy: returns the digest of the policy in force.
        path: of the socket; its directory must be private.
        listener: the socket, where a supervisor has made it for all its workers.
        stores: of the wrappers that are connected; who asks a store finds it here.
        workers: number of workers that serve the socket.
    """

    def __init__(
        self,
        enforcement: Enforcement,
        policy: Callable[[], str],
        path: Path,
        listener: socket.socket | None = None,
        stores: WrappedStores | None = None,
        workers: int = 1,
    ) -> None:
        self._hooks = HookService(enforcement, workers)
        self._enforcement = enforcement
        self._policy = policy
        self._stores: WrappedStores = {} if stores is None else stores
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
            raise GuardError(
                f"the decision socket `{self._path}` cannot be made: {error}"
            ) from error

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            if self._listener is None:
                self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wrapper = _Wrapper(self._enforcement, self._policy, self._stores, self._hooks)
        try:
            while line := await reader.readline():
                asked = json.loads(line)
                if asked.get("op") == "hook":
                    writer.write(await self._hooks.line(asked))
                else:
                    answer = await wrapper.answer(asked)
                    writer.write(json.dumps({**answer, "n": asked.get("n")}).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, KeyError, TypeError):
            pass  # A wrapper that is gone, or speaks nonsense: it gets no further answer.
        finally:
            await wrapper.lost()
            writer.close()


class _Wrapper:
    """One connected ``guard stdio``."""

    def __init__(
        self,
        enforcement: Enforcement,
        policy: Callable[[], str],
        stores: WrappedStores,
        hooks: HookService,
    ) -> None:
        self._hooks = hooks
        self._client = ""
        """Process id of the client that started the wrapper."""
        self._enforcement = enforcement
        self._policy = policy
        self._stores = stores
        self._name = ""
        self._secret = ""
        self._session = f"stdio-{uuid.uuid4().hex}"
        self._exchange: Exchange | None = None
        self._held: dict[str, HeldRequest] = {}
        """Requests that are held open, by what the wrapper asks with again."""
        self._questions: asyncio.Queue[str] = asyncio.Queue()
        """Frames that the wrapper is to put to its server."""
        self._asked: dict[str, asyncio.Future[dict[str, Any]]] = {}
        """Answers that are awaited, by the ids of the questions."""
        self._judged: dict[str, asyncio.Task[dict[str, Any]]] = {}
        """Frames of the server's that are judged once it has answered, by ticket."""

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
        asks = {
            "wait": self._still_held, "request": self._request, "judged": self._still_judged,
        }  # fmt: skip
        return await asks.get(asked["op"], self._answered)(frame)

    def _oversize(self, outline: bytes) -> dict[str, Any]:
        """Return the refusal of a frame that is too large, of which there is an outline only."""
        error = OversizeError(f"a message is larger than {FRAME_LIMIT} bytes")
        reply = self._enforcement.requests.refuse(error, self._as_request(outline))
        return {"reply": reply.body.decode()}

    async def _answered(self, frame: str) -> dict[str, Any]:
        """Return a frame of the server's, whole or with what is withheld replaced.

        An answer to the guard's own question comes back as nothing.  Where such a question has to
        be put before the frame can be judged, that is returned, and a ticket for the frame.
        """
        if self._asked and (own := self._own_answer(frame)) is not None:
            own[0].set_result(own[1])
            return {"frame": ""}
        judging = asyncio.ensure_future(self._judge(frame))
        asking = asyncio.ensure_future(self._questions.get())
        await asyncio.wait((judging, asking), return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            asking.cancel()
            return await judging
        ticket = secrets.token_hex(16)
        self._judged[ticket] = judging
        return {"put": asking.result(), "judged": ticket}

    async def _still_judged(self, ticket: str) -> dict[str, Any]:
        """Return a frame of the server's that waited for its second answer."""
        judging = self._judged.get(ticket)
        if judging is None:
            return {"error": "nothing is judged under this ticket"}
        if not judging.done():
            return {"judged": ticket}
        del self._judged[ticket]
        return await judging

    def _own_answer(
        self, frame: str
    ) -> tuple[asyncio.Future[dict[str, Any]], dict[str, Any]] | None:
        """Return who waits for a frame, and the frame; None where it answers the agent."""
        try:
            message = json.loads(frame)
        except ValueError:
            return None
        if not isinstance(message, dict) or not isinstance(message.get("id"), str):
            return None
        waiting = self._asked.get(message["id"])
        return (waiting, message) if waiting is not None and not waiting.done() else None

    async def ask(self, tool: str, arguments: Mapping[str, Json]) -> Json:
        """Ask the wrapped server by a tool of its own, while a frame of it is judged.

        Raises:
            OSError: it did not answer in time, or with an error.
        """
        identifier = f"{OWN}{secrets.token_hex(12)}"
        waiting = asyncio.get_running_loop().create_future()
        self._asked[identifier] = waiting
        question = {"name": tool, "arguments": dict(arguments)}
        self._questions.put_nowait(
            json.dumps(
                {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": question}
            )
        )
        try:
            async with asyncio.timeout(ASKED_SECONDS):
                result = (await waiting).get("result")
        except TimeoutError as error:
            raise OSError(_SILENT) from error
        finally:
            del self._asked[identifier]
        if not isinstance(result, dict) or result.get("isError"):
            raise OSError(_SILENT)
        return result

    async def _judge(self, frame: str) -> dict[str, Any]:
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
        error = unanswered("the tool server has ended")
        answers = self._enforcement.responses.end_open(error, self._exchange)
        return [frame.decode() for frame in answers]

    async def lost(self) -> None:
        """Note that no answer of this session will come any more."""
        self._stores.pop((self._name, self._session), None)
        self._hooks.wrapped.discard((self._client, self._name.removeprefix(f"{STDIO}:")))
        for held in self._held.values():
            held.close()
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(OSError(_SILENT))
        # What was not handed out any more is judged all the same: its labels count.
        await asyncio.gather(*self._judged.values(), return_exceptions=True)
        if self._exchange is not None:
            await self._enforcement.responses.on_lost(self._exchange)

    def _hello(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["policy"] != self._policy():
            return {"error": "the running guard has another policy"}
        self._name, self._secret = f"{STDIO}:{request['name']}", str(request.get("secret", ""))
        self._client = str(request.get("client", ""))
        self._stores[self._name, self._session] = self.ask
        self._hooks.wrapped.add((self._client, str(request["name"])))
        return {"ok": True}

    def _join_hooks(self) -> None:
        """Continue in the session that the hooks of the same client report."""
        session = self._hooks.session_of(self._client)
        if session and session != self._session:
            self._stores.pop((self._name, self._session), None)
            self._session = session
            self._stores[self._name, session] = self.ask

    def _as_request(self, frame: bytes) -> HttpRequest:
        self._join_hooks()
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
        outcome = await requests.on_holdable_request(self._as_request(frame.encode()))
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
        notices = await held.waiting(0)
        if notices is not None:
            return {"held": ticket, "say": [one.decode() for one in notices]}
        del self._held[ticket]
        held.close()
        return self._carried_out(held.outcome())

    def _carried_out(self, outcome: Exchange | UnparsedExchange | HttpReply) -> dict[str, Any]:
        """Return what the wrapper is to do with a request that was judged."""
        if isinstance(outcome, HttpReply):
            return {"reply": outcome.body.decode()}
        if isinstance(outcome, UnparsedExchange):
            return {"forward": True}
        if self._exchange is not None:
            self._exchange.calls.update(outcome.calls)
            self._exchange.plain.update(outcome.plain)
            outcome.calls, outcome.plain = self._exchange.calls, self._exchange.plain
        self._exchange = outcome
        if outcome.rewritten is not None:
            return {"forward": True, "frame": outcome.rewritten.body.decode()}
        return {"forward": True}
