"""Base of the model APIs: requests with a conversation, read once.  Pure: no I/O.

A request contains the whole conversation, and so the results of tools that the agent runs itself.
Tools of the provider (search, code, remote MCP servers) act outside the guard.  A request for one
is a call, named ``llm.hosted.`` and its type, which a policy must allow.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import parse_qsl, unquote

from guard.core.errors import MessageError
from guard.protocols.base import ProtocolModule
from guard.protocols.framing.json_messages import parse_json, reject_lookalike_keys
from guard.protocols.http.message import HttpReply, HttpRequest
from guard.protocols.llm.model_answers import expect_list
from guard.protocols.messages import Message, ParsedCall
from guard.protocols.refusals import Refusal, observation, sentence, unreadable, unreadable_sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from guard.core.model import Json

CODE: Final = "bad_model_request"
UPGRADE: Final = "upgrade"
"""Code of a request that asks for another protocol."""
UPGRADE_REQUIRED: Final = 426
HOSTED: Final = "llm.hosted."
_SAYS_NOTHING: Final[tuple[Json, ...]] = (None, False, "", [], {})
UNKNOWN_TOOL: Final = "llm.unknown_tool"
"""Name of the tool of a result without a call in the history."""


class ModelApi(ProtocolModule):
    """A provider's wire format; its answers may carry calls, its requests carry the history."""

    model_api: ClassVar[bool] = True
    names_hosts: ClassVar[bool] = True
    shape: ClassVar[str]
    """Shape of the errors that its clients read."""
    known: ClassVar[frozenset[str]]
    """The members of a request that are read."""
    inert: ClassVar[frozenset[str]] = frozenset()
    """Other members of a request, which send the provider nowhere."""

    @abstractmethod
    def serves(self, path: str) -> bool:
        """Return whether a path, decoded and in lower case, is one of its own."""

    @abstractmethod
    def message(self, body: Mapping[str, Json]) -> Message:
        """Return the history and the provider's tools asked for.

        Raises:
            MessageError: they cannot be read one way only.
        """

    def matches(self, request: HttpRequest) -> bool:
        """Return whether the path is one of its own, and the body not an MCP message."""
        return self.serves(_path_of(request)) and not _is_rpc(request)

    def parse(self, request: HttpRequest) -> Message:
        """Read the history and the tools asked for."""
        body = _read_body(request, self.known | self.inert)
        message = self.message(body)
        others = [*self.others(body), *fetched(list(beside(request)), mark="beside:")]
        return replace(message, calls=(*message.calls, *others)) if others else message

    def others(self, body: Mapping[str, Json]) -> list[ParsedCall]:
        """Return a call for every unknown member that is not empty.

        Providers have options of their own, which may search, load tools or notify others.
        """
        return [
            hosted(name, value)
            for name, value in body.items()
            if name not in self.known and name not in self.inert and value not in _SAYS_NOTHING
        ]

    def refuse(self, message: Message, refusals: Sequence[Refusal | None]) -> HttpReply:
        """Return 403."""
        fields = observation(next(r for r in refusals if r is not None))
        return _error(403, "permission_error", sentence(fields), fields, self.shape)

    def unreadable(
        self, error: MessageError, decision_id: str, request: HttpRequest | None = None
    ) -> HttpReply:
        """Return the error's status, 426 for a WebSocket: clients then use HTTP requests."""
        status = UPGRADE_REQUIRED if error.code == UPGRADE else error.status
        kind = "invalid_request_error" if status < 500 else "api_error"  # noqa: PLR2004
        words = unreadable_sentence(error, decision_id)
        return _error(status, kind, words, unreadable(error, decision_id), self.shape)


_WHO_ASKS: Final = frozenset({"origin", "referer", "http-referer", "user-agent"})
"""Headers that name the origin of a client."""
_IN_PATH: Final = re.compile(r"(?i)https?:/.*", re.DOTALL)


def beside(request: HttpRequest) -> Iterator[Json]:
    """Yield values outside the conversation by which a gateway chooses another host.

    These are the values of headers and of the query, some of which are JSON, and a URL in the path.
    """
    for name, value in request.headers:
        if name in _WHO_ASKS:
            continue
        yield value
        if value.lstrip()[:1] in {"{", "["}:
            with suppress(ValueError, RecursionError):
                yield json.loads(value)
    path, _, query = request.target.partition("?")
    for _, value in parse_qsl(query, keep_blank_values=True):
        yield value
    if found := _IN_PATH.search(unquote(path)):
        yield found[0]


def _path_of(request: HttpRequest) -> str:
    """Return the path as a lenient server would route it: decoded, single slashes, lower case."""
    path = unquote(request.target.split("?", 1)[0].split("#", 1)[0]).lower()
    return re.sub(r"/{2,}", "/", path).rstrip("/")


def _is_rpc(request: HttpRequest) -> bool:
    """Return whether the body is JSON-RPC, which is not a request to a model."""
    if not request.body:
        return False
    try:
        value = request.json()
    except MessageError:
        return False
    items = value if isinstance(value, list) else [value]
    return any(isinstance(item, dict) and "jsonrpc" in item for item in items)


def _read_body(request: HttpRequest, known: Iterable[str]) -> dict[str, Json]:
    """Return the JSON object of a request, empty for a GET or DELETE.

    Raises:
        MessageError: not one object in JSON, or a member that differs from a known name in case.
    """
    if "upgrade" in request.names:
        raise MessageError(
            UPGRADE,
            "websocket connections to a model are not accepted; use https requests",
            status=UPGRADE_REQUIRED,
        )
    if request.method in {"GET", "DELETE"} and not request.body:
        return {}
    if request.method != "POST":
        raise MessageError(
            "bad_http_method", f"method `{request.method[:20]}` is not part of this api", status=405
        )
    if request.media_type != "application/json":
        raise MessageError(
            "bad_content_type",
            "a request to a model must have content type application/json",
            status=415,
        )
    value = request.json() if request.body else {}
    if not isinstance(value, dict):
        raise MessageError(CODE, "a request to a model must be an object")
    reject_lookalike_keys(value, known)
    return value


objects: Final = partial(expect_list, code=CODE)
"""Return a list of objects of a request; None is an empty one."""


def text_content(content: Json) -> Json:
    """Return the text of a content that is text only; else the content."""
    if isinstance(content, list):
        texts = [item.get("text") if isinstance(item, dict) else None for item in content]
        if texts and all(isinstance(text, str) for text in texts):
            return "\n".join(str(text) for text in texts)
    return content


def past_call(tool: Json, arguments: Json, correlation: str) -> ParsedCall:
    """Return a call of the history, which the agent may have written itself."""
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments.encode()) if arguments.strip() else {}
        except (MessageError, UnicodeEncodeError):
            arguments = {"text": arguments}
    return ParsedCall(
        tool if isinstance(tool, str) and tool else UNKNOWN_TOOL,
        arguments if isinstance(arguments, dict) else {},
        correlation,
    )


def hosted(kind: str, declaration: Json) -> ParsedCall:
    """Return the call for a tool of the provider."""
    name = re.sub(r"[^a-z0-9_]", "_", kind.lower())[:60]
    arguments = declaration if isinstance(declaration, dict) else {"value": declaration}
    return ParsedCall(HOSTED + name, arguments, HOSTED + name)


FETCHED: Final = "llm.hosted.url"
"""Call for a URL that the provider reads for a conversation, such as a picture."""
FETCHED_LIMIT: Final = 100
"""Maximum number of URLs of one request; one more represents all others."""
_SAID: Final = frozenset(
    {
        "arguments",
        "citations",
        "content",
        "context",
        "currenturl",
        "description",
        "input",
        "instructions",
        "name",
        "output",
        "reasoning",
        "reasoningcontent",
        "refusal",
        "summary",
        "system",
        "text",
        "thinking",
        "title",
    }
)
"""Members whose strings are words for the model, not addresses."""
_OWN_DATA: Final = frozenset({"functioncall", "executablecode", "inputschema"})
"""Members with arguments of tools, which the provider does not read."""
_RETOLD: Final = frozenset(
    {
        "mcp_list_tools",
        "mcp_tool_use",
        "search_result",
        "search_result_location",
        "server_tool_use",
        "tool_use",
        "url_citation",
        "web_fetch_result",
        "web_fetch_tool_result",
        "web_search_result",
        "web_search_result_location",
        "web_search_tool_result",
    }
)
"""Types of earlier calls and results, which the provider does not read again."""
_REMOTE: Final = re.compile(
    r"(?:[a-z][a-z0-9+.-]{1,15}:[/\\]{2}|(?:https?|ftp|file|gs|s3|wss?):"
    r"|[/\\]{2}[^/\\?#]{0,255}[.:\]])",
    re.IGNORECASE,
)
_NOTHING: Final[frozenset[str]] = frozenset()
_PASSED_OVER: Final = re.compile(r"[\t\r\n]+|\A[\x00-\x20\x7f\ufeff]+")
"""Characters that a reader of URLs ignores before the scheme."""
_LOOKED_AT: Final = 64
"""Number of characters that decide if a string is a URL."""


def fetched(*conversation: Json, mark: str = "") -> list[ParsedCall]:
    """Return a call for every URL in a conversation that the provider fetches.

    The provider sends path and query to the host, around the guard.  Every string that is a URL
    counts, in any member, except words for the model and arguments of tools.

    Args:
        conversation: the messages, contents, items, instructions of a request.
        mark: distinguishes these calls from others of the same request.
    """
    found: dict[str, None] = {}
    stack: list[tuple[str, Json]] = [("", part) for part in conversation]
    while stack and len(found) <= FETCHED_LIMIT:
        member, item = stack.pop()
        if isinstance(item, str):
            if member not in _SAID and _is_remote(item):
                found[item] = None
        elif isinstance(item, list):
            stack += [(member, inner) for inner in item]
        elif isinstance(item, dict) and not _is_retold(item):
            own = {"response", "args"} if "name" in item else _NOTHING
            for name, inner in item.items():
                plain = name.replace("_", "").lower()
                if plain not in _OWN_DATA and plain not in own:
                    stack.append((plain, inner))
    return [
        ParsedCall(FETCHED, {"url": url}, f"{FETCHED}:{mark}{number}")
        for number, url in enumerate(found)
    ]


def _is_remote(text: str) -> bool:
    return _REMOTE.match(_PASSED_OVER.sub("", text[:_LOOKED_AT])) is not None


def _is_retold(item: Mapping[str, Json]) -> bool:
    kind = item.get("type")
    return isinstance(kind, str) and (kind in _RETOLD or kind.endswith("_call"))


def _error(status: int, kind: str, message: str, fields: Json, shape: str) -> HttpReply:
    error: dict[str, Json] = {"type": kind, "message": message, "guard": fields}
    if shape == "openai":
        document: Json = {"error": {**error, "code": fields["code"], "param": None}}
    elif shape == "anthropic":
        document = {"type": "error", "error": error}
    else:
        word = "PERMISSION_DENIED" if status == 403 else "INVALID_ARGUMENT"  # noqa: PLR2004
        document = {"error": {**error, "code": status, "status": word}}
    # The official clients ask again after some errors unless they are told not to.
    headers = (("x-should-retry", "false"),)
    return HttpReply(status, "application/json", json.dumps(document).encode(), headers)
