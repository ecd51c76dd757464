"""One MCP endpoint in front of several: lists merged, names prefixed, nothing decided.

It stands on the agent's side of the guard: what it calls are the guard's own listeners, so that
each call is judged as one to its own server, by that server's mappings and pins.  It passes on who
the agent is (``Proxy-Authorization``) and one session for all servers (``X-Guard-Session``).  Tools
and prompts are federated; resources are not, because their URIs do not say whose they are.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import McpError
from starlette.applications import Starlette
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

ENDPOINT: Final = "/mcp"
MARK: Final = "__"
"""Between a server's name and that of its tool or prompt."""
SECONDS: Final = 120.0
SESSION: Final = "x-guard-session"
PASSED_ON: Final = ("proxy-authorization", "traceparent", "baggage", SESSION)
"""What a request to the federation says of the agent."""
UNKNOWN: Final = -32602


class Federation:
    """Answers for several servers.

    Args:
        servers: URL of each server's endpoint at the guard, by the name that becomes the prefix.
    """

    def __init__(self, servers: Mapping[str, str]) -> None:
        self._servers = dict(servers)
        self.server: Server[Any, Any] = Server("guard-federation")
        handlers: dict[type, Callable[[Any], Awaitable[types.ServerResult]]] = {
            types.ListToolsRequest: self._tools,
            types.CallToolRequest: self._call,
            types.ListPromptsRequest: self._prompts,
            types.GetPromptRequest: self._prompt,
        }
        self.server.request_handlers.update(handlers)

    async def _tools(self, request: types.ListToolsRequest) -> types.ServerResult:
        del request
        listed = await self._each(_all_tools)
        tools = [
            tool.model_copy(update={"name": f"{name}{MARK}{tool.name}"})
            for name, found in listed
            for tool in found
        ]
        return types.ServerResult(types.ListToolsResult(tools=tools))

    async def _prompts(self, request: types.ListPromptsRequest) -> types.ServerResult:
        del request
        listed = await self._each(_all_prompts)
        prompts = [
            prompt.model_copy(update={"name": f"{name}{MARK}{prompt.name}"})
            for name, found in listed
            for prompt in found
        ]
        return types.ServerResult(types.ListPromptsResult(prompts=prompts))

    async def _call(self, request: types.CallToolRequest) -> types.ServerResult:
        server, tool = self._owner(request.params.name)
        params = request.params.model_copy(update={"name": tool})
        async with self._session(server) as session:
            return types.ServerResult(
                await session.send_request(
                    types.ClientRequest(types.CallToolRequest(params=params)), types.CallToolResult
                )
            )

    async def _prompt(self, request: types.GetPromptRequest) -> types.ServerResult:
        server, prompt = self._owner(request.params.name)
        async with self._session(server) as session:
            return types.ServerResult(await session.get_prompt(prompt, request.params.arguments))

    def _owner(self, name: str) -> tuple[str, str]:
        """Return the server that a name is of, and its own name there.

        Raises:
            McpError: it is of none.
        """
        server, mark, own = name.partition(MARK)
        if not mark or server not in self._servers:
            raise McpError(types.ErrorData(code=UNKNOWN, message="no server has this name"))
        return server, own

    async def _each(self, listed: Callable[[ClientSession], Awaitable[list[Any]]]) -> Any:
        """Return what each server lists, by its name; one that does not answer lists nothing."""

        async def one(name: str) -> tuple[str, list[Any]]:
            try:
                async with self._session(name) as session:
                    return name, await listed(session)
            except Exception:  # noqa: BLE001  (the others are listed all the same)
                return name, []

        return await asyncio.gather(*map(one, self._servers))

    @asynccontextmanager
    async def _session(self, name: str) -> AsyncIterator[ClientSession]:
        headers = _passed_on(self.server.request_context.request)
        async with (
            httpx.AsyncClient(headers=headers, timeout=SECONDS) as client,
            streamable_http_client(self._servers[name], http_client=client) as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            yield session


def _passed_on(request: Request | None) -> dict[str, str]:
    """Return the headers by which the guard knows the agent, and one session for all servers."""
    if request is None:
        return {}
    found = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
    own = request.headers.get("mcp-session-id")
    return {SESSION: f"federated-{own}", **found} if own else found


async def _all_tools(session: ClientSession) -> list[types.Tool]:
    found: list[types.Tool] = []
    cursor = None
    while True:
        page = await session.list_tools(cursor)
        found += page.tools
        cursor = page.nextCursor
        if not cursor:
            return found


async def _all_prompts(session: ClientSession) -> list[types.Prompt]:
    return (await session.list_prompts()).prompts


class _Endpoint:
    """The manager as an ASGI application, which Starlette serves at one path for any method."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the manager refuses methods that the protocol does not have."""
        await self._manager.handle_request(scope, receive, send)


def application(servers: Mapping[str, str], hosts: Sequence[str]) -> Starlette:
    """Return the endpoint as an ASGI application; every other path is not found.

    Args:
        servers: as of :class:`Federation`.
        hosts: what a ``Host`` header may say, so that no web page reaches it by a name of its own.
    """
    settings = TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=list(hosts), allowed_origins=[]
    )
    manager = StreamableHTTPSessionManager(Federation(servers).server, security_settings=settings)

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Route(ENDPOINT, endpoint=_Endpoint(manager))], lifespan=running)
