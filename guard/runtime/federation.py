"""One MCP endpoint in front of several: lists merged, names prefixed.  It decides nothing.

It stands on the agent's side of the guard: what it calls are the guard's own listeners, so that
each call is judged as one to its own server, by that server's mappings and pins.  It passes on who
the agent is (``Proxy-Authorization``) and one session for all servers (``X-Guard-Session``).
Names of tools and prompts, and URIs of resources, say whose they are: ``mail__send`` and
``federation:mail/note://1``.  Subscriptions are refused: a session with a server lasts for one
request, so nobody would hear of a change.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import httpx
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl
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
REFUSED: Final = -32601
UNAVAILABLE: Final = -32603
SCHEME: Final = "federation"
"""Of the URIs of resources: ``federation:NAME/URI``."""
PAGES: Final = 50
"""Most pages of a list that are asked for."""
_LOG: Final = logging.getLogger(__name__)


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
            types.ListResourcesRequest: self._resources,
            types.ListResourceTemplatesRequest: self._templates,
            types.ReadResourceRequest: self._resource,
            types.CompleteRequest: self._completion,
            types.SubscribeRequest: _not_subscribed,
            types.UnsubscribeRequest: _not_subscribed,
        }
        self.server.request_handlers.update(handlers)

    async def _tools(self, request: types.ListToolsRequest) -> types.ServerResult:
        del request
        listed = await self._each(_lister("tools", ClientSession.list_tools))
        tools = [
            tool.model_copy(update={"name": f"{name}{MARK}{tool.name}"})
            for name, found in listed
            for tool in found
        ]
        return types.ServerResult(types.ListToolsResult(tools=tools))

    async def _prompts(self, request: types.ListPromptsRequest) -> types.ServerResult:
        del request
        listed = await self._each(_lister("prompts", ClientSession.list_prompts))
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
            result = await session.send_request(
                types.ClientRequest(types.CallToolRequest(params=params)), types.CallToolResult
            )
        content = [_of(server, block) for block in result.content]
        return types.ServerResult(result.model_copy(update={"content": content}))

    async def _prompt(self, request: types.GetPromptRequest) -> types.ServerResult:
        server, prompt = self._owner(request.params.name)
        async with self._session(server) as session:
            result = await session.get_prompt(prompt, request.params.arguments)
        messages = [
            one.model_copy(update={"content": _of(server, one.content)}) for one in result.messages
        ]
        return types.ServerResult(result.model_copy(update={"messages": messages}))

    async def _resources(self, request: types.ListResourcesRequest) -> types.ServerResult:
        del request
        listed = await self._each(_lister("resources", ClientSession.list_resources))
        resources = [
            one.model_copy(update={"name": f"{name}{MARK}{one.name}", "uri": _uri(name, one.uri)})
            for name, found in listed
            for one in found
        ]
        return types.ServerResult(types.ListResourcesResult(resources=resources))

    async def _templates(self, request: types.ListResourceTemplatesRequest) -> types.ServerResult:
        del request
        lister = _lister(
            "resourceTemplates", ClientSession.list_resource_templates, offered="resources"
        )
        templates = [
            one.model_copy(
                update={
                    "name": f"{name}{MARK}{one.name}",
                    "uriTemplate": f"{SCHEME}:{name}/{one.uriTemplate}",
                }
            )
            for name, found in await self._each(lister)
            for one in found
        ]
        return types.ServerResult(types.ListResourceTemplatesResult(resourceTemplates=templates))

    async def _resource(self, request: types.ReadResourceRequest) -> types.ServerResult:
        server, uri = self._holder(str(request.params.uri))
        async with self._session(server) as session:
            result = await session.read_resource(AnyUrl(uri))
        contents = [
            one.model_copy(update={"uri": _uri(server, one.uri)}) for one in result.contents
        ]
        return types.ServerResult(result.model_copy(update={"contents": contents}))

    async def _completion(self, request: types.CompleteRequest) -> types.ServerResult:
        reference, context = request.params.ref, request.params.context
        ref: types.PromptReference | types.ResourceTemplateReference
        if isinstance(reference, types.PromptReference):
            server, own = self._owner(reference.name)
            ref = reference.model_copy(update={"name": own})
        else:
            server, own = self._holder(reference.uri)
            ref = reference.model_copy(update={"uri": own})
        argument = request.params.argument
        async with self._session(server) as session:
            result = await session.complete(
                ref,
                {"name": argument.name, "value": argument.value},
                context.arguments if context is not None else None,
            )
        return types.ServerResult(result)

    def _holder(self, uri: str) -> tuple[str, str]:
        """Return the server that a URI is of, and its own one there.

        Raises:
            McpError: it is of none.
        """
        scheme, _, rest = uri.partition(":")
        server, slash, own = rest.partition("/")
        if scheme != SCHEME or not slash or server not in self._servers:
            message = f"no server has this resource; its URI begins with `{SCHEME}:NAME/`"
            raise McpError(types.ErrorData(code=UNKNOWN, message=message))
        return server, own

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
            except Exception as error:  # noqa: BLE001  (the others are listed all the same)
                _LOG.warning("server `%s` lists nothing: %s", name, error)
                return name, []

        return await asyncio.gather(*map(one, self._servers))

    @asynccontextmanager
    async def _session(self, name: str) -> AsyncIterator[ClientSession]:
        """Yield a session with a server.

        Raises:
            McpError: the server's own error, which its client is to read, or that it gave none.
        """
        headers = _passed_on(self.server.request_context.request)
        try:
            async with (
                httpx.AsyncClient(headers=headers, timeout=SECONDS) as client,
                streamable_http_client(self._servers[name], http_client=client) as streams,
                ClientSession(streams[0], streams[1]) as session,
            ):
                await session.initialize()
                yield session
        except BaseExceptionGroup as group:
            # The SDK wraps what happened in groups.
            cause: BaseException = group
            while isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            if isinstance(cause, McpError) or not isinstance(cause, Exception):
                raise cause from None
            message = f"server `{name}` gave no answer ({type(cause).__name__})"
            raise McpError(types.ErrorData(code=UNAVAILABLE, message=message)) from cause


def _passed_on(request: Request | None) -> dict[str, str]:
    """Return the headers by which the guard knows the agent, and one session for all servers."""
    if request is None:
        return {}
    found = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
    own = request.headers.get("mcp-session-id")
    return {SESSION: f"federated-{own}", **found} if own else found


def _lister(
    name: str, ask: Callable[..., Awaitable[Any]], *, offered: str = ""
) -> Callable[[ClientSession], Awaitable[list[Any]]]:
    """Return what asks a server for all of a list, which is empty where it offers none.

    Args:
        name: member of the answer that has the list.
        ask: asks for one page, by its cursor.
        offered: the server's capability, if it has another name.
    """

    async def listed(session: ClientSession) -> list[Any]:
        found: list[Any] = []
        capabilities = session.get_server_capabilities()
        if capabilities is None or getattr(capabilities, offered or name) is None:
            return found
        cursor = None
        for _ in range(PAGES):
            page = await ask(session, cursor)
            found += getattr(page, name)
            cursor = page.nextCursor
            if not cursor:
                break
        return found

    return listed


def _uri(server: str, uri: AnyUrl | str) -> AnyUrl:
    return AnyUrl(f"{SCHEME}:{server}/{uri}")


def _of(server: str, block: Any) -> Any:
    """Return a block of content whose resource, where it names one, can be asked for here."""
    if isinstance(block, types.ResourceLink):
        return block.model_copy(update={"uri": _uri(server, block.uri)})
    if isinstance(block, types.EmbeddedResource):
        inner = block.resource.model_copy(update={"uri": _uri(server, block.resource.uri)})
        return block.model_copy(update={"resource": inner})
    return block


async def _not_subscribed(request: types.SubscribeRequest | types.UnsubscribeRequest) -> Any:
    del request
    message = (
        "subscriptions are not federated: read the resource again, or subscribe at the listener of "
        "its own server"
    )
    raise McpError(types.ErrorData(code=REFUSED, message=message))


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
