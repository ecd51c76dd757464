"""One OpenTelemetry span per call, from its verdict to its result, sent by OTLP over HTTP.

Attribute names are those of the semantic conventions for GenAI (``execute_tool`` spans) and MCP
where they have one.  A span is a child of the span that the caller named (``traceparent``, in a
header or in MCP's ``_meta``), which goes upstream unchanged.  No argument and no result is in a
span.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from guard.core import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from guard.core.calls import ToolResult
    from guard.core.model import Identity, ToolCall
    from guard.core.policy import Verdict
    from guard.core.ports import Recorder

OPEN_SPANS: Final = 10_000
"""Calls that wait for their result; the oldest span ends when there are more."""
_NANOSECONDS: Final = 1_000_000_000


class SpanRecorder:
    """Makes the spans.

    Args:
        endpoint: of the OTLP receiver, such as ``http://localhost:4318/v1/traces``.
        exporter: instead of one for that endpoint.
    """

    keeps = False

    def __init__(self, endpoint: str, exporter: Any = None) -> None:
        resource = Resource.create(
            {"service.name": "agent-egress-guard", "service.version": VERSION}
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter or OTLPSpanExporter(endpoint))
        )
        self._tracer = self._provider.get_tracer("guard", VERSION)
        self._parents = TraceContextTextMapPropagator()
        self._open: OrderedDict[str, Span] = OrderedDict()

    def prompt(self, identity: Identity, text: str, at: float) -> None:
        """Prompts are no calls."""

    def call(self, call: ToolCall, verdict: Verdict, *, required: bool) -> None:
        """Begin the span of a call; that of a refused call ends here."""
        del required
        open_span = self._open.pop(call.id, None)
        if open_span is None:
            parent = self._parents.extract({"traceparent": call.trace}) if call.trace else None
            open_span = self._tracer.start_span(
                f"execute_tool {call.tool}",
                parent,
                SpanKind.CLIENT,
                _attributes(call),
                start_time=int(call.at * _NANOSECONDS),
            )
        open_span.set_attributes(
            {
                "guard.action": verdict.action.label,
                "guard.enforced": verdict.enforced.label,
                "guard.reasons": [reason.code for reason in verdict.reasons],
                "guard.policy": verdict.policy,
            }
        )
        if not verdict.enforced.forwards:
            code = verdict.reasons[0].code if verdict.reasons else "refused"
            open_span.set_attribute("error.type", code)
            open_span.set_status(Status(StatusCode.ERROR, code))
            open_span.end()
            return
        self._open[call.id] = open_span
        if len(self._open) > OPEN_SPANS:
            self._open.popitem(last=False)[1].end()

    def result(self, result: ToolResult) -> None:
        """End the span of a call that was forwarded."""
        span = self._open.pop(result.call.call.id, None)
        if span is None:
            return
        if result.is_error or result.is_lost:
            kind = "lost" if result.is_lost else "tool_error"
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR, kind))
        span.end()

    def close(self) -> None:
        """End what is open, and send what waits."""
        for span in self._open.values():
            span.end()
        self._open.clear()
        self._provider.shutdown()


def _attributes(call: ToolCall) -> dict[str, str]:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.tool,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.conversation.id": call.identity.session,
        "enduser.id": call.identity.principal,
        "server.address": call.upstream or call.server,
        "guard.decision_id": call.id,
        "guard.protocol": call.protocol,
    }
    if call.protocol == "mcp":
        attributes |= {"mcp.method.name": "tools/call", "mcp.session.id": call.identity.session}
    return attributes


if TYPE_CHECKING:
    _conforms: type[Recorder] = SpanRecorder
