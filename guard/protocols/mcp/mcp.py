"""MCP over HTTP, revisions 2024-11-05 (HTTP+SSE) to 2026-07-28.  Pure: no I/O.

Requests, batches, notifications and responses in a POST; answers as JSON or as server-sent
events.  Decisions are made on the body, never on ``Mcp-*`` headers.  A refusal of a tool call is
a tool result with ``isError`` (spec, "Tools: error handling"), so that the agent can read it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from guard.core.calls import ANSWER, ELICITATION, ROOTS, SAMPLING
from guard.core.errors import MessageError
from guard.core.json_values import json_encoder, scalars_in
from guard.protocols.a2a import speaks_a2a
from guard.protocols.base import ProtocolModule, ProtocolResources
from guard.protocols.framing.json_messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    REFUSED,
    RpcMessage,
    asked_for,
    correlation,
    identified,
    is_in_band,
    is_unanswered,
    read_messages,
    reject_lookalike_keys,
)
from guard.protocols.http.message import HttpReply, HttpRequest, json_body, rewritten
from guard.protocols.http.metadata import OVERRIDING, is_plain, is_usual
from guard.protocols.mcp.declarations import (
    answered,
    asked_in,
    declarations_in,
    said_in,
    unlisted,
    without,
)
from guard.protocols.mcp.grammar import (
    NUMBER_LIMIT,
    PLAIN,
    is_id,
    is_of_request,
    says_nothing,
    unjudged_part,
)
from guard.protocols.messages import Echo, Message, ParsedCall, ParsedResult
from guard.protocols.refusals import Refusal, observation, sentence, unreadable, unreadable_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from guard.core.declarations import Declaration
    from guard.core.model import Json

HEADER_MISMATCH: Final = "header_mismatch"
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
"""Key of the revision in ``params._meta``, from 2026-07-28 on."""
NAMES: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The member of the params that ``Mcp-Name`` repeats, by method."""
_PARAM: Final = "mcp-param-"
_MIRRORING: Final = frozenset({"mcp-method", "mcp-name"})
_CODED: Final = re.compile(r"=\?base64\?(.*)\?=")
_SESSION_NAMES: Final = frozenset({"session_id", "sessionid"})


def check_headers(request: HttpRequest, messages: Sequence[RpcMessage]) -> None:
    """Compare the headers that repeat a message with the message.

    Revision 2026-07-28 mirrors method, name and some arguments in ``Mcp-Method``, ``Mcp-Name`` and
    ``Mcp-Param-*``, for gateways that route without reading bodies.  The guard decides on the body;
    a header that says something else would send the message elsewhere, so it is refused.

    Raises:
        MessageError: they differ, or stand above a batch, of which they can say nothing.
    """
    names = request.names
    if not OVERRIDING.isdisjoint(names):
        raise MessageError(HEADER_MISMATCH, "a header gives the message another target")
    mirrored: list[str] = []
    for header, value in request.headers:
        if header.startswith(_PARAM):
            mirrored.append(value)
    if not mirrored and _MIRRORING.isdisjoint(names):
        return
    method, name = request.header("mcp-method"), request.header("mcp-name")
    if len(messages) != 1:
        raise MessageError(
            HEADER_MISMATCH, "headers that repeat a message cannot stand above a batch"
        )
    message = messages[0]
    if method is not None and method != message.method:
        raise MessageError(HEADER_MISMATCH, "`mcp-method` is not the method of the message")
    member = NAMES.get(message.method or "")
    if name is not None and (member is None or _decoded(name) != message.params.get(member)):
        raise MessageError(HEADER_MISMATCH, "`mcp-name` is not the name in the message")
    if mirrored:
        spellings = set(_spelt(message.params.get("arguments")))
        if any(_decoded(value) not in spellings for value in mirrored):
            raise MessageError(
                HEADER_MISMATCH, "an `mcp-param-` header is not an argument of the message"
            )


def mirrored(
    headers: tuple[tuple[str, str], ...], changes: Sequence[tuple[Json, Json]]
) -> tuple[tuple[str, str], ...]:
    """Return headers that repeat arguments, after the arguments of some calls have changed.

    Args:
        headers: names in lower case.
        changes: the arguments of each call, before and after; members may have been added.

    Raises:
        MessageError: a header repeats a value that has become two different ones.
    """
    became: dict[str, set[str]] = {}
    for before, after in changes:
        for old, new in _scalars_of_both(before, after):
            became.setdefault(old, set()).add(new)
    return tuple((name, _mirrored(name, value, became)) for name, value in headers)


def _mirrored(name: str, value: str, became: dict[str, set[str]]) -> str:
    decoded = _decoded(value) if name.startswith(_PARAM) else None
    now = became.get(decoded, set()) if decoded is not None else set()
    if not now or now == {decoded}:
        return value
    if len(now) > 1:
        raise MessageError(HEADER_MISMATCH, "a header repeats what is now two different values")
    coded = base64.b64encode(now.pop().encode()).decode()
    return f"=?base64?{coded}?="


def _check_revision(version: str | None, metas: Sequence[Json]) -> None:
    """Compare the header with what ``_meta`` of each message says of the revision.

    Raises:
        MessageError: they differ.
    """
    for meta in metas:
        revision = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        if version is not None and revision is not None and revision != version:
            raise MessageError(
                HEADER_MISMATCH, "`mcp-protocol-version` is not the revision of the message"
            )


def _decoded(value: str) -> str | None:
    """Return a header's value; None where its coding has no one reading."""
    coded = _CODED.fullmatch(value)
    if coded is None:
        return value
    try:
        raw = base64.b64decode(coded[1], validate=True)
        text = raw.decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if base64.b64encode(raw).decode() == coded[1] else None


def _spelt(value: Json) -> Iterator[str]:
    """Yield every scalar in a value as a header would spell it."""
    for item in scalars_in(value):
        yield str(item).lower() if isinstance(item, bool) else str(item)


def _scalars_of_both(before: Json, after: Json) -> Iterator[tuple[str, str]]:
    """Yield every scalar that stands at one place in both of two values, as a header spells it."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before.keys() & after.keys():
            yield from _scalars_of_both(before[name], after[name])
    elif isinstance(before, list) and isinstance(after, list):
        for old, new in zip(before, after, strict=False):
            yield from _scalars_of_both(old, new)
    elif not isinstance(before, dict | list) and not isinstance(after, dict | list):
        yield from zip(_spelt(before), _spelt(after), strict=False)


_DECODINGS: Final = 3
"""Times a path is percent-decoded; servers behind servers may each undo one."""


@lru_cache(16)
def endpoint_path(target: str) -> str:
    """Return the path of a request target or URL in the one spelling that names its server.

    Escapes are undone, dot segments and empty segments resolved, parameters and letter case left
    away: whatever a lenient server takes for the same endpoint has the same pins and marks.
    """
    path = urlsplit(target).path if "://" in target else target.partition("?")[0]
    for _ in range(_DECODINGS):
        path = unquote(path)
    segments: list[str] = []
    for segment in path.replace("\\", "/").split("/"):
        name = segment.partition(";")[0].strip()
        if name == "..":
            del segments[-1:]
        elif name not in {"", "."}:
            segments.append(name.casefold())
    return "/" + "/".join(segments)


def query_session(target: str) -> str | None:
    """Return the session id in the query of a URL, as HTTP+SSE (2024-11-05) has it.

    Raises:
        MessageError: there are two.
    """
    pairs = parse_qsl(urlsplit(target).query)
    found = {value for key, value in pairs if key.lower() in _SESSION_NAMES}
    if len(found) > 1:
        raise MessageError("bad_session_id", "the url has two session ids")
    return next(iter(found), None)


def meta_session(metas: Sequence[Json]) -> str | None:
    """Return the session id in the ``_meta`` of messages, if they agree on one."""
    found: set[str] = set()
    for meta in metas:
        if isinstance(meta, dict):
            for key in ("session_id", "sessionId", "session.id"):
                if isinstance(meta.get(key), str):
                    found.add(meta[key])
    return found.pop() if len(found) == 1 else None


TOOL_CALL: Final = "tools/call"
CALL_METHODS: Final = frozenset(
    {
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/get",
        "completion/complete",
    }
)
"""Methods that carry arguments to the server or content back: judged as calls of that name."""

MESSAGE: Final = "mcp.message"
"""Parts of a message of the protocol outside its grammar."""
RESPONSES: Final = "inputResponses"
STATE: Final = "requestState"


def answers_in(message: RpcMessage) -> Iterator[tuple[str, ParsedCall]]:
    """Yield the client's answers to requests of the server, data on its way out, by their marks.

    A server may ask for a completion (sampling), for something only the user knows (elicitation)
    or for the client's roots.  Up to 2025-11-25 the answer is a JSON-RPC response of the client;
    since 2026-07-28 it is a member of the request that goes on.  Each answer that says anything is
    a call of one of the names above, judged wherever the policy maps the name.

    Raises:
        MessageError: answers of a form that servers may read in different ways.
    """
    if message.method is None:
        content_part = message.error if message.result is None else message.result
        yield from _client_answer(f"request {message.correlation}", content_part)
        return
    responses = message.params.get(RESPONSES)
    if responses is None:
        return
    if not isinstance(responses, dict | list):
        raise MessageError("bad_call", f"`{RESPONSES}` must be an object")
    named = responses if isinstance(responses, dict) else dict(enumerate(responses))
    for name, response in named.items():
        yield from _client_answer(f"input {name}", _unwrapped(response))


def _unwrapped(response: Json) -> Json:
    """Return the result where a response is written as a JSON-RPC one."""
    if isinstance(response, dict) and set(response) <= {"id", "jsonrpc", "method", "result"}:
        return response.get("result", response)
    return response


def _client_answer(mark: str, answer: Json) -> Iterator[tuple[str, ParsedCall]]:
    if says_nothing(answer):
        return
    members = answer if isinstance(answer, dict) else {}
    name = ANSWER
    if "action" in members:
        name = ELICITATION
    elif "roots" in members:
        name = ROOTS
    elif "role" in members and "content" in members:
        name = SAMPLING
    yield answered(mark, name), ParsedCall(name, {"answer": answer})


TASK_METHODS: Final = frozenset({"tasks/result", "tasks/get"})
"""Methods whose answers hold the result of a call that was made as a task."""


def _task(rpc: RpcMessage) -> str:
    """Return which task a request asks about."""
    reject_lookalike_keys(rpc.params, ("taskId",))
    task = rpc.params.get("taskId", "")
    if not isinstance(task, str):
        raise MessageError("bad_call", f"`taskId` of `{rpc.method}` must be a text")
    return task


def announced_task(content: Json) -> str | None:
    """Return the id of a task that has no result yet (2025-11-25, and its later extension)."""
    if not isinstance(content, dict) or "result" in content or "content" in content:
        return None
    inner = content.get("task")
    task = inner if isinstance(inner, dict) else content
    found = task.get("taskId")
    return found if isinstance(found, str) and "status" in task else None


def with_arguments(
    request: HttpRequest,
    arguments: Sequence[Mapping[str, Json]],
    is_call: Callable[[RpcMessage], bool],
) -> HttpRequest:
    """Return a message that has been read, with these arguments in its calls and headers.

    Raises:
        MessageError: a header repeats what has become two different values, or a number of the
            body would come out as another.
    """
    value = request.json()
    items = value if isinstance(value, list) else [value]
    pending = iter(arguments)
    written: list[Json] = []
    instead: list[tuple[Json, Json]] = []
    for item, rpc in zip(items, read_messages(value), strict=True):
        if not is_call(rpc):
            written.append(item)
            continue
        wanted = dict(next(pending))
        changed = {"arguments": wanted} if rpc.method == "tools/call" else wanted
        params = {**rpc.params, **changed}
        instead.append((rpc.params.get("arguments"), params.get("arguments")))
        written.append({**item, "params": params})
    return rewritten(
        request,
        body=json_body(request, written if isinstance(value, list) else written[0]),
        headers=mirrored(request.headers, instead),
    )


_VARYING: Final = frozenset(
    {
        "progressToken",
        "traceparent",
        "tracestate",
        "baggage",
        "session_id",
        "sessionId",
        "session.id",
        "claudecode/toolUseId",
        "vscode.requestId",
    }
)
"""Members of ``_meta`` that differ in every retry of one request."""
LISTEN: Final = "subscriptions/listen"
_ROUND_TRIP: Final = frozenset({"_meta", RESPONSES, STATE})
"""Members by which a request goes on after the server asked for something (2026-07-28)."""
_CALL_MEMBERS: Final = frozenset({"name", "arguments", "task"}) | _ROUND_TRIP
_BARE_CALL: Final = frozenset({"name", "arguments"})
_REPEATED: Final = frozenset({"mcp-session-id", "last-event-id"})
_BARE_ANSWER: Final = frozenset({"jsonrpc", "id", "result"})
_BARE_RESULT: Final = frozenset({"content", "structuredContent", "isError"})
_ANSWERS: Final = frozenset({"result", "error"})
STDIO: Final = "stdio"
"""Scheme of what comes by a pipe, where there are no paths."""
_CONVENTIONAL: Final = re.compile(r"/|(?:/[A-Za-z][A-Za-z0-9_-]{0,31}){0,2}/(?:mcp|sse)/?")
_HEADERS: Final = frozenset({"mcp-session-id", "mcp-protocol-version", "mcp-method"})
_CODES: Final = {"bad_json": PARSE_ERROR, "duplicate_key": PARSE_ERROR, HEADER_MISMATCH: -32020}
"""JSON-RPC error codes of what cannot be read."""
_ENCODE: Final = json_encoder(blanks=True)
_TEMPLATES: Final = 128
"""Overload refusals that are kept encoded: of few kinds, each with up to 30 times to come back."""
_WAITING: Final = 1e-6
_WAITS: Final = "the egress guard waits for a person's approval of this call"
_BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})


class McpProtocol(ProtocolModule):
    """MCP over Streamable HTTP."""

    name: ClassVar[str] = "mcp"
    event_names: ClassVar[frozenset[str]] = frozenset({"message"})
    answers_by_id: ClassVar[bool] = True

    def __init__(self, endpoints: Mapping[str, str] | None = None) -> None:
        self._endpoints = dict(endpoints or {})

    @classmethod
    def create(cls, resources: ProtocolResources) -> Self:
        """Return the protocol over the listeners' declared endpoints."""
        return cls(resources.endpoints)

    def matches(self, request: HttpRequest) -> bool:
        """Return whether it is MCP, however broken: by header, by body, by what it looks like."""
        if not _HEADERS.isdisjoint(request.names):
            return True
        if request.method == "GET" and _opens_stream(request):
            return True
        if request.method not in _BODY_METHODS or not request.body:
            return False
        try:
            value = request.json()
        except MessageError:
            return b"jsonrpc" in request.body
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict) and _is_rpc(item):
                return not (speaks_a2a(value) or (request.chosen and _is_positional(value)))
        return False

    def parse(self, request: HttpRequest) -> Message:
        """Read a POST body; GET (the server's stream) and DELETE (end of session) carry no call."""
        if request.method in {"GET", "DELETE"}:
            if request.body:
                raise MessageError("unexpected_body", f"{request.method} must not have a body")
            return Message(echoes=tuple(_repeated_headers(request)))
        if request.method != "POST":
            raise MessageError(
                "bad_http_method", f"method `{request.method[:20]}` is not part of mcp", status=405
            )
        media_type, _, parameters = (request.header("content-type") or "").partition(";")
        if media_type.strip().lower() != "application/json":
            raise MessageError(
                "bad_content_type",
                "an mcp message must have content type application/json",
                status=415,
            )
        if parameters:
            _check_charset(parameters)
        return self._read(request, request.json())

    def _read(self, request: HttpRequest, value: Json) -> Message:
        messages = read_messages(value)
        check_headers(request, messages)
        # Read in any case: one that occurs twice is refused.
        version = request.header("mcp-protocol-version")
        calls: list[ParsedCall] = []
        side_content: list[ParsedCall] = []
        tasks: list[tuple[str | None, str]] = []
        plain: list[tuple[str | None, str]] = []
        echoes = _repeated_headers(request)
        metas: list[Json] = []
        for rpc in messages:
            if "_meta" in rpc.params:
                metas.append(rpc.params["_meta"])
            is_call = _is_call(rpc)
            if is_call or (rpc.method is not None and rpc.method not in PLAIN):
                calls.append(_call(rpc, is_call=is_call))
            elif rpc.method in TASK_METHODS and rpc.id is not None:
                tasks.append((rpc.correlation, _task(rpc)))
            elif rpc.method is not None and rpc.id is not None:
                plain.append((rpc.correlation, rpc.method))
            # Nothing is beside a call whose id is a counter: nothing to judge, repeat or answer.
            bare = type(rpc.id) is int and 0 <= rpc.id < NUMBER_LIMIT
            if not (bare and rpc.method == TOOL_CALL and rpc.params.keys() <= _BARE_CALL):
                side_content += _unjudged_part(rpc, is_call=is_call)
                for mark, answer in answers_in(rpc):
                    side_content.append(answer)
                    echoes.append(Echo(mark, ParsedCall(MESSAGE, answer.arguments), answers=True))
                echoes += _echoes(rpc, is_call=is_call)
        session = None
        if metas:
            _check_revision(version, metas)
            session = meta_session(metas)
        in_query = query_session(request.target) if "?" in request.target else None
        return Message(
            tuple(calls),
            side_content=tuple(side_content),
            tasks=tuple(tasks),
            echoes=tuple(echoes),
            plain=tuple(plain),
            session_id=session or in_query,
            parsed=(isinstance(value, list), messages),
        )

    def rewrite(self, request: HttpRequest, arguments: Sequence[Mapping[str, Json]]) -> HttpRequest:
        """Put other arguments into the calls, and into the headers that repeat them.

        Raises:
            MessageError: a header repeats what has become two different values.
        """
        return with_arguments(request, arguments, _is_call)

    def refuse(self, message: Message, refusals: Sequence[Refusal | None]) -> HttpReply:
        """Answer every request of the message; none of it was forwarded."""
        is_batch, rpc_messages = message.parsed
        pending = iter(refusals)
        answers: list[Json] = []
        for rpc in rpc_messages:
            refusal = next(pending) if _is_call(rpc) else None
            if rpc.method is not None and rpc.id is not None:
                fields = _BATCH_REFUSED if refusal is None else observation(refusal)
                words = _BATCH_SAID if refusal is None else sentence(fields)
                answers.append(_refused_answer(rpc.id, rpc.method, words, fields))
        return _reply(200, answers if is_batch else answers[0])

    def refuse_whole(self, message: Message, refusal: Refusal) -> HttpReply:
        """Answer every request with an error; where there is none, the message itself."""
        is_batch, rpc_messages = message.parsed or (False, ())
        fields = observation(refusal)
        words = sentence(fields)
        requests = [
            (rpc.id, rpc.method) for rpc in rpc_messages if rpc.method and rpc.id is not None
        ]
        if not requests and rpc_messages:
            # To a client, another status is the end of its connection.
            return _DROPPED
        if not requests:
            return _reply(403, _failure(None, REFUSED, words, fields))
        answers = [
            _refused_answer(identifier, method, words, fields) for identifier, method in requests
        ]
        return _reply(200, answers if is_batch else answers[0])

    def unreadable(
        self, error: MessageError, decision_id: str, request: HttpRequest | None = None
    ) -> HttpReply:
        """Answer every request whose id can be made out; else return an error without an id."""
        content = None if request is None else request.lenient_json()
        requests = asked_for(content)
        in_band = is_in_band(error) and error.code != HEADER_MISMATCH
        is_batch = request is not None and request.body.lstrip()[:1] == b"["
        if error.retry_after and in_band and len(requests) == 1 and not is_batch:
            return _overload_refusal(*requests[0], error, decision_id)
        drops = in_band and not requests and not error.retry_after
        if drops and is_unanswered(content):
            return _DROPPED
        answers = [_unread(one, method, error, decision_id) for one, method in requests]
        status = 200 if in_band and answers else error.status
        if not answers:
            answers = [_unread(None, "", error, decision_id)]
        return _reply(status, answers if is_batch else answers[0])

    def answered_in(self, request: HttpRequest) -> str:
        """Return the session in the query of the URL, as HTTP+SSE (2024-11-05) has it."""
        try:
            return query_session(request.target) or ""
        except MessageError:
            return ""

    def reads_events(self, request: HttpRequest) -> bool:
        """Return whether it says so; who posts answers only is sent no stream."""
        if request.scheme == STDIO:
            return True
        accepted = ",".join(value for name, value in request.headers if name == "accept")
        return "text/event-stream" in accepted and not is_unanswered(request.lenient_json())

    def cancels(self, message: Message) -> Collection[str]:
        """Return the requests that notifications of a client cancel."""
        found = [
            rpc.params.get("requestId")
            for rpc in message.parsed[1]
            if rpc.method == "notifications/cancelled"
        ]
        return {correlation(one) for one in found if isinstance(one, str | int)}

    def still_waits(self, message: Message, number: int) -> Sequence[bytes]:
        """Return a progress notification for each request that names a token for them.

        The numbers are small, since the server goes on with its own.
        """
        notices: list[bytes] = []
        for rpc in message.parsed[1]:
            meta = rpc.params.get("_meta")
            token = meta.get("progressToken") if isinstance(meta, dict) else None
            if rpc.id is not None and isinstance(token, str | int):
                params = {"progressToken": token, "progress": number * _WAITING, "message": _WAITS}
                notice = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
                notices.append(json.dumps(notice).encode())
        return notices

    def lost(
        self, correlations: Mapping[str, bool], error: MessageError, decision_id: str
    ) -> Sequence[Json]:
        """Return an answer to each request of an open stream that will get no other."""
        return [
            _unread(identified(key), TOOL_CALL if is_call else "", error, decision_id)
            for key, is_call in correlations.items()
            if not key.startswith("?")
        ]

    def results(self, content: Json) -> Sequence[ParsedResult]:
        """Return the JSON-RPC responses in a body or an event; requests of the server are none.

        One whose id is none has a correlation that no request has.
        """
        items = content if isinstance(content, list) else [content]
        found: list[ParsedResult] = []
        for item in items:
            key = _answered(item)
            if key is None or not isinstance(item, dict):
                continue
            answers = [item[name] for name in ("error", "result") if name in item]
            content = answers[0] if len(answers) == 1 else answers
            found.append(ParsedResult(key, content, "error" in item))
        return found

    def unlisted(self, result: ParsedResult) -> Json:
        """Return what an answer says besides listings and the form of its message."""
        return unlisted(result.content, is_error=result.is_error)

    def is_bare_result(self, content: Json) -> bool:
        """Return whether it is one answer with a ``content`` and no member of another purpose."""
        if not isinstance(content, dict) or not content.keys() <= _BARE_ANSWER:
            return False
        result = content.get("result")
        if content.get("id") is None or not isinstance(result, dict):
            return False
        return "content" in result and result.keys() <= _BARE_RESULT

    def said(self, content: Json) -> Sequence[str]:
        """Return cursors, ids of tasks, and states of requests that wait for input."""
        return said_in(content)

    def is_endpoint(self, request: HttpRequest) -> bool:
        """Return whether a request goes to the listener's MCP endpoint and to nothing else there.

        The operator declares its path with the listener's upstream; without that it is the one
        that servers have by convention.
        """
        if request.scheme == STDIO:
            return True
        path = request.target.partition("?")[0]
        declared = self._endpoints.get(request.server.rpartition(":")[2])
        at_place = path == declared if declared else _CONVENTIONAL.fullmatch(path) is not None
        return at_place and is_usual(request.target)

    def upstream(self, request: HttpRequest) -> str:
        """Return host and path: one host may have many servers."""
        return request.host.lower() + endpoint_path(request.target)

    def upstream_of_event(self, name: str, data: str) -> str | None:
        """Return the path in the URL that an HTTP+SSE server tells its client to post to."""
        return endpoint_path(data) if name == "endpoint" else None

    def declarations(self, content: Json) -> Sequence[Declaration]:
        """Return listings, instructions, and what the server wants a model or a user to read."""
        return declarations_in(content)

    def without_declarations(self, content: Json, withholds: Callable[[str, Json], bool]) -> Json:
        """Return the messages without the entries of listings that are withheld."""
        return without(content, withholds)

    def asked(self, content: Json) -> Sequence[str]:
        """Return the requests of a server, in its messages and in results that wait for input."""
        return asked_in(content)

    def session_of_event(self, name: str, data: str) -> str | None:
        """Return the session in the URL that an HTTP+SSE server tells its client to post to."""
        return query_session(data) if name == "endpoint" else None

    def task_of(self, content: Json) -> str | None:
        """Return the id of a task that has no result yet."""
        return announced_task(content)

    def withhold(self, content: Json, refusals: Mapping[str | None, Refusal]) -> Json:
        """Replace the results that are withheld by error results the agent can read."""
        items = content if isinstance(content, list) else [content]
        replaced = [_withheld(item, refusals) for item in items]
        return replaced if isinstance(content, list) else replaced[0]


def _answered(item: Json) -> str | None:
    """Return the correlation of a response; None for what no client takes for one."""
    if not isinstance(item, dict) or ("method" in item and item.keys().isdisjoint(_ANSWERS)):
        return None
    identifier = item.get("id")
    if identifier is None and "result" not in item:
        return None
    if isinstance(identifier, bool) or not isinstance(identifier, (str, int)):
        return f"?:{json.dumps(identifier)}"
    return correlation(identifier)


def _withheld(item: Json, refusals: Mapping[str | None, Refusal]) -> Json:
    key = _answered(item)
    refusal = refusals.get(key)
    if key is None or refusal is None or not isinstance(item, dict):
        return item
    fields = observation(refusal)
    return _refused_answer(item.get("id"), TOOL_CALL, sentence(fields), fields)


def _unread(identifier: Json, method: str, error: MessageError, decision_id: str) -> Json:
    """Return the answer to a request that was refused without being judged."""
    fields = unreadable(error, decision_id)
    words = unreadable_sentence(error, decision_id)
    if error.code == HEADER_MISMATCH:
        method = ""
    return _refused_answer(
        identifier, method, words, fields, _CODES.get(error.code, INVALID_REQUEST)
    )


def _overload_refusal(
    identifier: str | int, method: str, error: MessageError, decision_id: str
) -> HttpReply:
    """Return the answer to one request that may come again, from its template."""
    why = error.code, str(error), error.status, error.retry_after
    begin, rest = _overload_template(TOOL_CALL if method == TOOL_CALL else "", *why)
    named = "".join(_ENCODE(identifier, 0))
    body = f"{begin}{named}{decision_id.join(rest)}".encode("ascii")
    return HttpReply(200, "application/json", body)


@lru_cache(maxsize=_TEMPLATES)
def _overload_template(
    method: str, code: str, detail: str, status: int, seconds: int
) -> tuple[str, list[str]]:
    """Return what stands before the id of a request, and what behind it around the decision's.

    Under overload a refusal is what a worker does most, so it is worded and encoded once.
    """
    error = MessageError(code, detail, status=status, retry_after=seconds)
    answer = _unread("\0", method, error, "\1")
    begin, _, rest = "".join(_ENCODE(answer, 0)).partition(r'"\u0000"')
    return begin, rest.split(r"\u0001")


def _failure(identifier: Json, code: int, words: str, fields: Json) -> Json:
    error = {"code": code, "message": words, "data": {"guard": fields}}
    return {"jsonrpc": "2.0", "id": identifier, "error": error}


def _refused_answer(
    identifier: Json, method: str, words: str, fields: Json, code: int = REFUSED
) -> Json:
    """Return the answer to a request that is refused.

    That to a ``tools/call`` is a result with ``isError``: clients hand it to their model, while
    they raise a JSON-RPC error.  Its shape is one that clients of every revision take: the data
    stands in ``_meta``, because clients check ``structuredContent`` against the tool's
    ``outputSchema`` even where ``isError`` is set; ``resultType`` is required by revision
    2026-07-28 and ignored by the older ones.
    """
    if method != TOOL_CALL:
        return _failure(identifier, code, words, fields)
    result: Json = {
        "content": [{"type": "text", "text": words}],
        "isError": True,
        "resultType": "complete",
        "_meta": {"guard": fields},
    }
    return {"jsonrpc": "2.0", "id": identifier, "result": result}


def _unjudged_part(message: RpcMessage, *, is_call: bool) -> Iterator[ParsedCall]:
    responses = message.params.get(RESPONSES) if message.method is not None else None
    if isinstance(responses, dict) and (free := [name for name in responses if not is_id(name)]):
        yield ParsedCall(MESSAGE, {"method": message.method, RESPONSES: free})
    part = unjudged_part(message, is_call=is_call)
    if isinstance(part, dict):
        yield ParsedCall(MESSAGE, part)


def _repeated_headers(request: HttpRequest) -> list[Echo]:
    """Return ids in headers that only a server can have made: no client's are like them."""
    found: list[Echo] = []
    for name, value in request.headers:
        if name in _REPEATED and not is_plain(value):
            found.append(Echo(value, ParsedCall(MESSAGE, {"headers": {name: value}})))
    return found


def _echoes(message: RpcMessage, *, is_call: bool) -> Iterator[Echo]:
    """Yield what a client repeats to its server: cursors, and states of unfinished requests.

    Whatever else is in a call's parameters is its arguments.
    """
    for member in (STATE,) if is_call else (STATE, "cursor", "taskId"):
        value = message.params.get(member)
        if value is None or (member == "taskId" and is_id(value)):
            continue
        yield Echo(value, ParsedCall(MESSAGE, {"method": message.method, member: value}))


def _lasting_meta(rpc: RpcMessage) -> Json:
    """Return what a grant for a call binds beside its arguments: its method and its ``_meta``.

    Without what differs in every retry.
    """
    meta = rpc.params.get("_meta")
    if isinstance(meta, dict):
        meta = {n: v for n, v in meta.items() if n not in _VARYING and not is_of_request(n, v)}
    bound = {"_meta": meta} if meta else {}
    return bound or None if rpc.method == TOOL_CALL else {"method": rpc.method, **bound}


def _opens_stream(request: HttpRequest) -> bool:
    """Return whether a GET opens the one stream of HTTP+SSE (2024-11-05)."""
    accepted = request.header("accept") or ""
    path = request.target.split("?", 1)[0]
    return "text/event-stream" in accepted and path.endswith("/sse")


def _is_rpc(item: dict[str, Json]) -> bool:
    if "jsonrpc" in item:
        return True
    folded = {key.casefold() for key in item}
    return "jsonrpc" in folded or {"method", "params"} <= folded


def _is_positional(value: Json) -> bool:
    """Return whether a body is one JSON-RPC request with its params in a list.

    JSON-RPC 2.0 (section 4.2) allows it and MCP does not; methods with a slash stay MCP's, whose
    servers might be lenient.
    """
    if not isinstance(value, dict) or not value.keys() <= {"jsonrpc", "id", "method", "params"}:
        return False
    method = value.get("method")
    return isinstance(value.get("params"), list) and isinstance(method, str) and "/" not in method


def _check_charset(parameters: str) -> None:
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().lower().partition("=")
        if name == "charset" and value.strip('"') not in {"utf-8", "utf8"}:
            raise MessageError("bad_content_type", "json must be utf-8", status=415)


def _is_call(rpc: RpcMessage) -> bool:
    if rpc.method == LISTEN:
        return bool(_subscribed(rpc))
    return rpc.method == TOOL_CALL or rpc.method in CALL_METHODS


def _subscribed(rpc: RpcMessage) -> Json:
    """Return the resources that a ``subscriptions/listen`` names."""
    wanted = rpc.params.get("notifications")
    if wanted is None:
        return None
    if not isinstance(wanted, dict):
        raise MessageError("bad_call", "`notifications` must be an object")
    reject_lookalike_keys(wanted, ("resourceSubscriptions",))
    return wanted.get("resourceSubscriptions")


def _call(rpc: RpcMessage, *, is_call: bool) -> ParsedCall:
    """Return the call that a message is.

    Raises:
        MessageError: its method is not known, or it can be read in two ways.
    """
    if not is_call or rpc.method is None:
        raise MessageError("unknown_method", f"method `{str(rpc.method)[:60]}` is not known")
    meta, trace = None, ""
    if "_meta" in rpc.params:
        meta, raw_meta = _lasting_meta(rpc), rpc.params["_meta"]
        found = raw_meta.get("traceparent") if isinstance(raw_meta, dict) else ""
        trace = found if isinstance(found, str) else ""
    if rpc.id is None:
        raise MessageError("call_without_id", f"`{rpc.method}` must be a request, with an id")
    if rpc.method != TOOL_CALL:
        reject_lookalike_keys(rpc.params, _ROUND_TRIP)
        arguments = {k: value for k, value in rpc.params.items() if k not in _ROUND_TRIP}
        return ParsedCall(rpc.method, arguments, rpc.correlation, meta, trace)
    reject_lookalike_keys(rpc.params, _CALL_MEMBERS)
    if unknown := rpc.params.keys() - _CALL_MEMBERS:
        raise MessageError("bad_call", f"unknown member `{min(unknown)[:40]}` in a tool call")
    name, arguments = rpc.params.get("name"), rpc.params.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise MessageError("call_without_name", "`tools/call` must have a name")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise MessageError("bad_call", "the arguments of a tool call must be an object")
    reject_lookalike_keys(arguments, ())
    return ParsedCall(name, arguments, rpc.correlation, meta, trace)


_BATCH_REFUSED: Final = {"code": "batch_refused", "retry": True}
_BATCH_SAID: Final = (
    "not forwarded: another message of the same batch was refused; send this one alone"
)
_DROPPED: Final = HttpReply(202, "text/plain", b"")
"""The answer to notifications and answers of a client, which are not forwarded."""


def _reply(status: int, document: Json) -> HttpReply:
    return HttpReply(status, "application/json", "".join(_ENCODE(document, 0)).encode("ascii"))
