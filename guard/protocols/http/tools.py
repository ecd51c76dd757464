"""Plain HTTP tools: requests that the policy maps to tools by method and URL.  Pure: no I/O.

The call's arguments are ``path`` (the template's variables), ``query`` and ``body``.  A request to
a mapped path that can be read in two ways is refused; one with a method that is not mapped stays
an ``http.request`` call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.protocols import Message, ParsedCall, ProtocolModule
from guard.protocols.http.fields import check_charset, parse_fields, parse_multipart
from guard.protocols.http.request import HttpRequestProtocol
from guard.protocols.http.rewriting import CODE, fields_text, json_body, rewritten
from guard.protocols.http.tool_table import HttpToolTable, read_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from guard.core.errors import MessageError as Error
    from guard.core.model import Json
    from guard.protocols import ProtocolResources, Refusal
    from guard.protocols.http.message import HttpReply, HttpRequest
    from guard.protocols.http.tool_table import HttpTool

OVERRIDES: Final = ("x-http-method-override", "x-http-method", "x-method-override")
"""Headers by which some servers take another method than the request's."""
NO_TOOLS: Final = HttpToolTable()


class HttpToolsProtocol(ProtocolModule):
    """Requests that the policy in force maps to tools."""

    name: ClassVar[str] = "http_tools"
    names_hosts: ClassVar[bool] = True

    def __init__(self, table: Callable[[], HttpToolTable] = lambda: NO_TOOLS) -> None:
        self._table = table
        self._plain = HttpRequestProtocol()

    @classmethod
    def create(cls, resources: ProtocolResources) -> Self:
        """Return the protocol over the policy in force."""

        def table() -> HttpToolTable:
            policy = resources.policy()
            found = policy.http_tools if policy is not None else None
            return found if isinstance(found, HttpToolTable) else NO_TOOLS

        return cls(table)

    def claims(self, request: HttpRequest) -> bool:
        """Return whether the path is a tool's, whatever the method, or may be taken for one."""
        tools = self._table().at(request.scheme, request.host)
        if not tools:
            return False
        segments = read_path(_path(request))
        return segments is None or any(t.template.match(segments) is not None for t in tools)

    def parse(self, request: HttpRequest) -> Message:
        """Return the request as one call of its tool.

        Raises:
            MessageError: path, query or body can be read in two ways, or are of another kind than
                the policy says.
        """
        segments = read_path(_path(request))
        if segments is None:
            raise MessageError("ambiguous_path", "servers may read this path in different ways")
        if any(request.has_header(name) for name in OVERRIDES):
            message = "a header asks for another method, send the method itself"
            raise MessageError("bad_http_method", message)
        for tool in self._table().at(request.scheme, request.host):
            values = tool.template.match(segments)
            if values is not None and request.method in tool.methods:
                query = parse_fields(_query(request), tool.repeat)
                arguments: dict[str, Json] = {"path": values, "query": query}
                if tool.body != "none" or request.body:
                    arguments["body"] = _body(request, tool)
                return Message((ParsedCall(tool.tool, arguments),))
        if request.method.upper() != request.method:
            message = f"method `{request.method[:20]}` is not in upper case"
            raise MessageError("bad_http_method", message)
        return self._plain.parse(request)

    def rewrite(self, request: HttpRequest, arguments: Sequence[Mapping[str, Json]]) -> HttpRequest:
        """Put other values into the query and the body.

        Raises:
            MessageError: it is no tool's, or its body is one that is not written anew.
        """
        wanted = arguments[0]
        if "query" not in wanted:
            return self._plain.rewrite(request, arguments)
        path, query = _path(request), fields_text(wanted["query"])
        target = f"{path}?{query}" if query else path
        if "body" not in wanted:
            return rewritten(request, target=target)
        if request.media_type == _MEDIA_TYPES["form"]:
            return rewritten(request, target=target, body=fields_text(wanted["body"]).encode())
        if request.media_type == _MEDIA_TYPES["multipart"]:
            raise MessageError(CODE, "a multipart body is not rewritten")
        return rewritten(request, target=target, body=json_body(request, wanted["body"]))

    def refuse(self, message: Message, refusals: Sequence[Refusal | None]) -> HttpReply:
        """Return 403 with a problem document."""
        return self._plain.refuse(message, refusals)

    def unreadable(self, error: Error, decision_id: str) -> HttpReply:
        """Return the error's status with a problem document."""
        return self._plain.unreadable(error, decision_id)


def _path(request: HttpRequest) -> str:
    return request.target.partition("?")[0]


def _query(request: HttpRequest) -> str:
    query = request.target.partition("?")[2]
    if "#" in request.target:
        raise MessageError("ambiguous_path", "a request target has no fragment")
    return query


_MEDIA_TYPES: Final = {
    "form": "application/x-www-form-urlencoded",
    "multipart": "multipart/form-data",
}


def _body(request: HttpRequest, tool: HttpTool) -> Json:
    if tool.body == "none":
        raise MessageError("unexpected_body", "this tool takes no body")
    content_type = request.header("content-type") or ""
    media = request.media_type
    is_json = media == "application/json" or (
        media.startswith("application/") and media.endswith("+json")
    )
    if not (is_json if tool.body == "json" else media == _MEDIA_TYPES[tool.body]):
        message = f"this tool takes {tool.body}, not `{media[:60]}`"
        raise MessageError("bad_content_type", message, status=415)
    check_charset(content_type)
    if tool.body == "json":
        return request.json()
    if tool.body == "multipart":
        return parse_multipart(request.body, content_type, tool.repeat)
    try:
        text = request.body.decode("ascii")
    except UnicodeDecodeError as error:
        raise MessageError("bad_fields", "the form has a raw character") from error
    return parse_fields(text, tool.repeat)
