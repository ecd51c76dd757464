"""One OpenTelemetry span per call, from its verdict to its result, sent by OTLP over HTTP.

Attribute names are those of the semantic conventions for GenAI (``execute_tool`` spans) and MCP
where they have one.  A span is a child of the span that the caller named (``traceparent``, in a
header or in MCP's ``_meta``), which goes upstream unchanged; what that caller does not sample, is
not sampled here.  No argument and no result is in a span.

The SDK's spans and its exporter cost 90 µs of processor time per call, a tenth of what a call
takes; this takes 5.  A span is encoded as its call ends, and a thread sends batches of them.  What
spans of one tool and verdict have in common is encoded once, by the library; of a protobuf
message, parts that follow each other are one message with the fields of all of them
(https://protobuf.dev/programming-guides/encoding/#last-one-wins).
"""

from __future__ import annotations

import random
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_SCHEDULE_DELAY,
    OTEL_EXPORTER_OTLP_CERTIFICATE,
    OTEL_EXPORTER_OTLP_HEADERS,
    OTEL_EXPORTER_OTLP_TRACES_HEADERS,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.util.re import parse_env_headers

from guard.core import VERSION
from guard.settings import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.core.calls import ToolResult
    from guard.core.model import Identity, ToolCall
    from guard.core.policy import Action, Verdict
    from guard.core.ports import Recorder

OPEN_SPANS: Final = 10_000
"""Calls that wait for their result; the oldest span ends when there are more."""
WAITING_SPANS: Final = 8192
"""Spans that wait to be sent; what does not fit is lost."""
BATCH: Final = 2048
"""Spans of one message, which costs as much as two hundred spans; so many are sent at once."""
SECONDS: Final = 2.0
"""How long a span waits at most, where ``OTEL_BSP_SCHEDULE_DELAY`` (milliseconds) says nothing."""
TIMEOUT: Final = 10.0
TRIES: Final = 3
_LATER: Final = frozenset({429, 502, 503, 504})
"""Answers after which OTLP has a client try again."""
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8
_NANOSECONDS: Final = 1_000_000_000
_OWN: Final = struct.Struct("<2s16s2s8sBQBQ")
"""What each span has of its own: ids, and times as ``fixed64``, each behind its tag."""
_TRACE_ID: Final = bytes((Span.TRACE_ID_FIELD_NUMBER << 3 | 2, _TRACE_BYTES))
_SPAN_ID: Final = bytes((Span.SPAN_ID_FIELD_NUMBER << 3 | 2, _SPAN_BYTES))
_PARENT_ID: Final = bytes((Span.PARENT_SPAN_ID_FIELD_NUMBER << 3 | 2, _SPAN_BYTES))
_START: Final = Span.START_TIME_UNIX_NANO_FIELD_NUMBER << 3 | 1
_END: Final = Span.END_TIME_UNIX_NANO_FIELD_NUMBER << 3 | 1
_SEVEN_BITS: Final = 0x7F
_ODD: Final = frozenset("13579bdf")
"""Last digits of the flags of a ``traceparent`` whose span is sampled."""
_MCP: Final = "mcp"


class SpanRecorder:
    """Makes the spans.

    Args:
        endpoint: of the OTLP receiver, such as ``http://localhost:4318/v1/traces``.
        lost: told of each span that was lost: the receiver did not take it, or too many waited.
    """

    keeps = False

    def __init__(self, endpoint: str, lost: Callable[[], None] = lambda: None) -> None:
        self._lost = lost
        self._open: dict[str, tuple[ToolCall, Verdict]] = {}
        self._ended: deque[bytes] = deque()
        self._client, self._endpoint = _client(), endpoint
        self._delay = _delay()
        self._is_over = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="guard-spans", daemon=True)
        self._thread.start()

    def prompt(self, identity: Identity, text: str, at: float) -> None:
        """Prompts are no calls."""

    def call(self, call: ToolCall, verdict: Verdict, *, required: bool) -> None:
        """Begin the span of a call; that of a refused call ends here."""
        del required
        if call.trace and call.trace[-1] not in _ODD:
            return
        if call.id in self._open:
            # It was held, and is judged anew.
            call, _ = self._open.pop(call.id)
        if not verdict.enforced.forwards:
            self._end(call, verdict, verdict.reasons[0].code if verdict.reasons else "refused")
            return
        self._open[call.id] = call, verdict
        if len(self._open) > OPEN_SPANS:
            self._end(*self._open.pop(next(iter(self._open))), "")

    def result(self, result: ToolResult) -> None:
        """End the span of a call that was forwarded."""
        begun = self._open.pop(result.call.call.id, None)
        if begun is not None:
            error = "lost" if result.is_lost else "tool_error" if result.is_error else ""
            self._end(*begun, error)

    def close(self) -> None:
        """End what is open, and send what waits."""
        for begun in self._open.values():
            self._end(*begun, "")
        self._open.clear()
        self._is_over = True
        self._wake.set()
        self._thread.join(TIMEOUT * TRIES)
        self._client.close()

    def _end(self, call: ToolCall, verdict: Verdict, error: str) -> None:
        if len(self._ended) >= WAITING_SPANS:
            self._lost()
            return
        self._ended.append(_span(call, verdict, error, time.time_ns()))
        if len(self._ended) == BATCH:
            self._wake.set()

    # --- in the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        begins = _begins()
        while not self._is_over or self._ended:
            self._wake.wait(self._delay)
            self._wake.clear()
            while batch := self._taken():
                if not self._sent(_request(begins, batch)):
                    for _ in batch:
                        self._lost()
                # What came meanwhile waits: a message costs the same however few are in it.
                if len(self._ended) < BATCH and not self._is_over:
                    break

    def _taken(self) -> list[bytes]:
        batch: list[bytes] = []
        with suppress(IndexError):
            while len(batch) < BATCH:
                batch.append(self._ended.popleft())
        return batch

    def _sent(self, body: bytes) -> bool:
        """Return whether the receiver has taken a batch, after some tries."""
        for number in range(TRIES):
            if number and not self._is_over:
                # Whoever stops does not wait for a receiver that is away.
                time.sleep(2.0**number)
            with suppress(httpx.HTTPError):
                status = self._client.post(self._endpoint, content=body).status_code
                if status not in _LATER:
                    return status < httpx.codes.BAD_REQUEST
        return False


def _delay() -> float:
    """Return how many seconds a span waits at most."""
    with suppress(ValueError):
        said = float(child_environment([]).get(OTEL_BSP_SCHEDULE_DELAY, ""))
        if 0 < said < threading.TIMEOUT_MAX:
            return said / 1000
    return SECONDS


def _client() -> httpx.Client:
    """Return a client of a receiver, with the headers and authority of OpenTelemetry's variables.

    The specification's names are ``OTEL_EXPORTER_OTLP_HEADERS``, ``…_TRACES_HEADERS`` and
    ``OTEL_EXPORTER_OTLP_CERTIFICATE``.
    """
    environment = child_environment([])
    said = environment.get(OTEL_EXPORTER_OTLP_TRACES_HEADERS) or environment.get(
        OTEL_EXPORTER_OTLP_HEADERS, ""
    )
    headers = {"content-type": "application/x-protobuf"}
    headers |= parse_env_headers(said, liberal=True)
    trust: Any = environment.get(OTEL_EXPORTER_OTLP_CERTIFICATE) or True
    return httpx.Client(headers=headers, timeout=TIMEOUT, verify=trust)


def _parent(trace: str) -> tuple[bytes, bytes]:
    """Return trace id and span id of a ``traceparent``."""
    return bytes.fromhex(trace[3:35]), bytes.fromhex(trace[36:52])


def _begins() -> tuple[bytes, bytes]:
    """Return how every ``ResourceSpans`` begins, and the ``ScopeSpans`` in it."""
    whole, scope = ResourceSpans(), ScopeSpans()
    about = {"service.name": "agent-egress-guard", "service.version": VERSION}
    for key, value in Resource.create(about).attributes.items():
        whole.resource.attributes.add(key=key).value.string_value = str(value)
    scope.scope.name, scope.scope.version = "guard", VERSION
    return whole.SerializeToString(), scope.SerializeToString()


def _request(begins: tuple[bytes, bytes], batch: Sequence[bytes]) -> bytes:
    """Return an ``ExportTraceServiceRequest`` with a batch of encoded spans."""
    length = len(begins[1]) + sum(map(len, batch))
    scope = _framing(ResourceSpans.SCOPE_SPANS_FIELD_NUMBER, length)
    number = ExportTraceServiceRequest.RESOURCE_SPANS_FIELD_NUMBER
    whole = _framing(number, len(begins[0]) + len(scope) + length)
    return b"".join((whole, begins[0], scope, begins[1], *batch))


def _span(call: ToolCall, verdict: Verdict, error: str, end: int) -> bytes:
    """Return the encoded span of a call, as a field of ``ScopeSpans``.

    Args:
        call: of which names, ids and times are told.
        verdict: on it.
        error: why it is one; empty where it is none.
        end: nanoseconds since the epoch.
    """
    who, identifier = call.identity, call.id.encode("utf-8", "replace")
    parent = _parent(call.trace) if call.trace else None
    drawn = random.getrandbits(8 * (_TRACE_BYTES + _SPAN_BYTES))
    ids = drawn.to_bytes(_TRACE_BYTES + _SPAN_BYTES, "big")
    tool_call, decision = _id_attributes(len(identifier))
    codes = tuple([reason.code for reason in verdict.reasons])
    span = b"".join(
        (
            _common(
                *(call.tool, call.upstream or call.server, call.protocol),
                *(verdict.action, verdict.enforced, verdict.policy, error, codes),
            ),
            _whose(who.principal, who.session, call.protocol),
            _OWN.pack(
                *(_TRACE_ID, ids[_SPAN_BYTES:] if parent is None else parent[0]),
                *(_SPAN_ID, ids[:_SPAN_BYTES], _START, int(call.at * _NANOSECONDS), _END, end),
            ),
            b"" if parent is None else _PARENT_ID + parent[1],
            *(tool_call, identifier, decision, identifier),
        )
    )
    return _framing(ScopeSpans.SPANS_FIELD_NUMBER, len(span)) + span


@lru_cache(maxsize=4096)
def _framing(number: int, length: int) -> bytes:
    """Return tag and length of a message that is a field of another."""
    found = bytearray((number << 3 | 2,))
    while length > _SEVEN_BITS:
        found.append(length & _SEVEN_BITS | 0x80)
        length >>= 7
    found.append(length)
    return bytes(found)


@lru_cache(maxsize=4096)
def _whose(principal: str, session: str, protocol: str) -> bytes:
    """Return the encoded part that spans of one session have."""
    span = Span()
    attributes = {"gen_ai.conversation.id": session, "enduser.id": principal}
    if protocol == _MCP:
        attributes["mcp.session.id"] = session
    for name, text in attributes.items():
        span.attributes.add(key=name).value.string_value = _clean(text)
    encoded: bytes = span.SerializeToString()
    return encoded


def _clean(text: str) -> str:
    """Return a text without halves of surrogate pairs, which JSON may have and protobuf not."""
    return text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=1024)
def _id_attributes(length: int) -> list[bytes]:
    """Return how the attributes with a decision's id begin, up to its text of so many bytes."""
    found: list[bytes] = []
    for name in ("gen_ai.tool.call.id", "guard.decision_id"):
        span = Span()
        span.attributes.add(key=name).value.string_value = "\0" * length
        encoded: bytes = span.SerializeToString()
        found.append(encoded[: len(encoded) - length])
    return found


@lru_cache(maxsize=1024)
def _common(  # noqa: PLR0913  (the key of the cache)
    tool: str,
    server: str,
    protocol: str,
    action: Action,
    enforced: Action,
    policy: str,
    error: str,
    reasons: tuple[str, ...],
) -> bytes:
    """Return the encoded part of a span that others have as well."""
    tool = _clean(tool)
    span = Span(name=f"execute_tool {tool}", kind=Span.SPAN_KIND_CLIENT)
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "server.address": server,
        "guard.protocol": protocol,
        "guard.action": action.label,
        "guard.enforced": enforced.label,
        "guard.policy": policy,
    }
    if protocol == _MCP:
        attributes["mcp.method.name"] = "tools/call"
    if error:
        attributes["error.type"] = error
        span.status.code, span.status.message = Status.STATUS_CODE_ERROR, error
    for name, text in attributes.items():
        span.attributes.add(key=name).value.string_value = _clean(text)
    codes = span.attributes.add(key="guard.reasons").value.array_value.values
    for code in reasons:
        codes.add().string_value = code
    encoded: bytes = span.SerializeToString()
    return encoded


if TYPE_CHECKING:
    _conforms: type[Recorder] = SpanRecorder
