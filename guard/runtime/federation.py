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
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from mcp import ClientSession, types
from mcp.server.fastmcp.server import StreamableHTTPASGIApp
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl
from starlette.applications import Starlette
from starlette.routing import Route

from guard.runtime.mcp_client.tool_listing import every_page, first_cause, open_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from starlette.requests import Request

ENDPOINT: Final = "/mcp"
MARK: Final = "__"
"""Between a server's name and that of its tool or prompt."""
SECONDS: Final = 120.0
SESSION: Final = "x-guard-session"
PASSED_ON: Final = ("proxy-authorization", "traceparent", "baggage", SESSION)
"""Headers of the agent that a request to the federation has."""
UNKNOWN: Final = -32602
REFUSED: Final = -32601
UNAVAILABLE: Final = -32603
SCHEME: Final = "federation"
"""Scheme of the URIs of resources: ``federation:NAME/URI``."""
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
            types.CallToolRequest: self._call,
            types.GetPromptRequest: self._prompt,
            types.ReadResourceRequest: self._resource,
            types.CompleteRequest: self._completion,
            types.SubscribeRequest: _not_subscribed,
            types.UnsubscribeRequest: _not_subscribed,
            **{request: partial(self._list, *of) for request, of in _LISTS.items()},
        }
        self.server.request_handlers.update(handlers)

    async def _list(
        self,
        member: str,
        offered: str,
        ask: Callable[..., Awaitable[Any]],
        made: Callable[..., Any],
        _: object,
    ) -> types.ServerResult:
        """Return what all servers list, each entry under a name that says whose it is.

        Args:
            member: of the answer that has the list.
            offered: capability of a server that has such a list.
            ask: asks a session for one page, by its cursor.
            made: makes the answer of its member.
        """

        async def of(name: str) -> list[Any]:
            try:
                async with self._session(name) as session:
                    capabilities = session.get_server_capabilities()
                    if capabilities is None or getattr(capabilities, offered) is None:
                        return []
                    found = await every_page(partial(ask, session), member)
            except Exception as error:  # noqa: BLE001  (the others are listed all the same)
                _LOG.warning("server `%s` lists nothing: %s", name, error)
                return []
            return [_ours(name, one) for one in found]

        listed = await asyncio.gather(*map(of, self._servers))
        return types.ServerResult(made(**{member: [*chain.from_iterable(listed)]}))

    async def _call(self, request: types.CallToolRequest) -> types.ServerResult:
        server, tool = self._owner(request.params.name)
        result = await self._send(server, request, types.CallToolResult, name=tool)
        content = [_of(server, block) for block in result.content]
        return types.ServerResult(result.model_copy(update={"content": content}))

    async def _prompt(self, request: types.GetPromptRequest) -> types.ServerResult:
        server, prompt = self._owner(request.params.name)
        result = await self._send(server, request, types.GetPromptResult, name=prompt)
        messages = [
            one.model_copy(update={"content": _of(server, one.content)}) for one in result.messages
        ]
        return types.ServerResult(result.model_copy(update={"messages": messages}))

    async def _resource(self, request: types.ReadResourceRequest) -> types.ServerResult:
        server, uri = self._holder(str(request.params.uri))
        result = await self._send(server, request, types.ReadResourceResult, uri=AnyUrl(uri))
        contents = [
            one.model_copy(update={"uri": _uri(server, one.uri)}) for one in result.contents
        ]
        return types.ServerResult(result.model_copy(update={"contents": contents}))

    async def _completion(self, request: types.CompleteRequest) -> types.ServerResult:
        reference = request.params.ref
        is_prompt = isinstance(reference, types.PromptReference)
        place = reference.name if isinstance(reference, types.PromptReference) else reference.uri
        server, own = self._owner(place) if is_prompt else self._holder(place)
        ref = reference.model_copy(update={"name" if is_prompt else "uri": own})
        return types.ServerResult(await self._send(server, request, types.CompleteResult, ref=ref))

    async def _send(self, server: str, request: Any, made: type[Any], **changed: object) -> Any:
        """Return what a server answers to a request whose parameters are in its own words."""
        params = request.params.model_copy(update=changed)
        own = types.ClientRequest(type(request)(params=params))
        async with self._session(server) as session:
            return await session.send_request(own, made)

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

    @asynccontextmanager
    async def _session(self, name: str) -> AsyncIterator[ClientSession]:
        """Yield a session with a server.

        Raises:
            McpError: the server's own error, which its client is to read, or that it gave none.
        """
        headers = _passed_on(self.server.request_context.request)
        try:
            async with open_session(self._servers[name], headers, SECONDS) as session:
                yield session
        except BaseExceptionGroup as group:
            cause = first_cause(group)
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


_LISTS: Final[Mapping[type, tuple[str, str, Any, Any]]] = {
    types.ListToolsRequest: ("tools", "tools", ClientSession.list_tools, types.ListToolsResult),
    types.ListPromptsRequest: (
        *("prompts", "prompts"),
        *(ClientSession.list_prompts, types.ListPromptsResult),
    ),
    types.ListResourcesRequest: (
        *("resources", "resources"),
        *(ClientSession.list_resources, types.ListResourcesResult),
    ),
    types.ListResourceTemplatesRequest: (
        *("resourceTemplates", "resources"),
        *(ClientSession.list_resource_templates, types.ListResourceTemplatesResult),
    ),
}
"""Arguments of :meth:`Federation._list` by request."""


def _ours(server: str, one: Any) -> Any:
    """Return an entry of a list under its name, and its URI, here."""
    changed: dict[str, Any] = {"name": f"{server}{MARK}{one.name}"}
    if isinstance(one, types.ResourceTemplate):
        changed["uriTemplate"] = f"{SCHEME}:{server}/{one.uriTemplate}"
    if isinstance(one, types.Resource):
        changed["uri"] = _uri(server, one.uri)
    return one.model_copy(update=changed)


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


async def _not_subscribed(_: types.SubscribeRequest | types.UnsubscribeRequest) -> Any:
    message = (
        "subscriptions are not federated: read the resource again, or subscribe at the listener of "
        "its own server"
    )
    raise McpError(types.ErrorData(code=REFUSED, message=message))


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

    return Starlette(
        routes=[Route(ENDPOINT, endpoint=StreamableHTTPASGIApp(manager))], lifespan=running
    )
