"""One OpenTelemetry span per call, from its verdict to its result, sent by OTLP over HTTP.

Attribute names follow the semantic conventions for GenAI (``execute_tool`` spans) and MCP where
they exist.  A span is a child of the span in the caller's ``traceparent``, which goes upstream
unchanged.  A call that its caller does not sample gets no span.  A span has no argument and no
result.  The SDK reads its own environment variables (headers, certificate, delays).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from guard.core import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.context import Context

    from guard.core.calls import ToolResult
    from guard.core.model import Identity, ToolCall
    from guard.core.policy import Verdict

OPEN_SPANS: Final = 10_000
"""Maximum number of calls that wait for a result; of more, the oldest span ends."""
WAITING_SPANS: Final = 8192
"""Maximum number of spans that wait to be sent; of more, the new ones are lost."""
BATCH: Final = 2048
"""Maximum number of spans in one request."""
_NANOSECONDS: Final = 1_000_000_000
_ODD: Final = frozenset("13579bdf")
"""Last digits of the flags of a ``traceparent`` whose span is sampled."""


class SpanRecorder:
    """Recorder that makes the spans.

    Args:
        endpoint: URL of the OTLP receiver, such as ``http://localhost:4318/v1/traces``.
        lost: function to call for each span that the receiver does not get.
    """

    keeps = False

    def __init__(self, endpoint: str, lost: Callable[[], None] = lambda: None) -> None:
        self._lost = lost
        self._open: dict[str, Span] = {}
        self._ended = 0
        self._exporter = _Exporter(OTLPSpanExporter(endpoint), lost)
        resource = Resource.create(
            {"service.name": "agent-egress-guard", "service.version": VERSION}
        )
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            # The recorder itself counts what waits, so the queue is never full.
            BatchSpanProcessor(
                self._exporter, max_queue_size=WAITING_SPANS + BATCH, max_export_batch_size=BATCH
            )
        )
        self._tracer = self._provider.get_tracer("guard", VERSION)

    def prompt(self, identity: Identity, text: str, at: float) -> None:
        """Ignore a prompt: it is not a call."""

    def call(self, call: ToolCall, verdict: Verdict, *, required: bool) -> None:
        """Begin the span of a call, and end it if the call is refused."""
        del required
        if call.trace and call.trace[-1] not in _ODD:
            return
        # A held call is judged again.
        span = self._open.pop(call.id, None) or self._begun(call)
        _describe(span, verdict)
        if not verdict.enforced.forwards:
            self._end(span, verdict.reasons[0].code if verdict.reasons else "refused")
            return
        self._open[call.id] = span
        if len(self._open) > OPEN_SPANS:
            self._end(self._open.pop(next(iter(self._open))), "")

    def result(self, result: ToolResult) -> None:
        """End the span of a call that was forwarded."""
        span = self._open.pop(result.call.call.id, None)
        if span is not None:
            self._end(span, "lost" if result.is_lost else "tool_error" if result.is_error else "")

    def close(self) -> None:
        """End the open spans, and send what waits."""
        for span in self._open.values():
            self._end(span, "")
        self._open.clear()
        self._provider.shutdown()

    def _begun(self, call: ToolCall) -> Span:
        who = call.identity
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.conversation.id": who.session,
            "enduser.id": who.principal,
            "server.address": call.upstream or call.server,
            "guard.protocol": call.protocol,
            "guard.decision_id": call.id,
        }
        if call.protocol == "mcp":
            attributes |= {"mcp.method.name": "tools/call", "mcp.session.id": who.session}
        return self._tracer.start_span(
            f"execute_tool {_clean(call.tool)}",
            context=_parent(call.trace),
            kind=SpanKind.CLIENT,
            attributes={name: _clean(text) for name, text in attributes.items()},
            start_time=int(call.at * _NANOSECONDS),
        )

    def _end(self, span: Span, error: str) -> None:
        if error:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR, error)
        if self._ended - self._exporter.exported >= WAITING_SPANS:
            self._lost()
            return
        self._ended += 1
        span.end(time.time_ns())


class _Exporter(SpanExporter):
    """Exporter that counts the spans it has handled, and those that the receiver does not take."""

    def __init__(self, exporter: SpanExporter, lost: Callable[[], None]) -> None:
        self.exported = 0
        self._exporter, self._lost = exporter, lost

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self.exported += len(spans)
            if result is not SpanExportResult.SUCCESS:
                for _ in spans:
                    self._lost()
        return result

    def shutdown(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()


def _describe(span: Span, verdict: Verdict) -> None:
    """Add a verdict to a span; the verdict after a hold replaces the first one."""
    span.set_attribute("guard.action", verdict.action.label)
    span.set_attribute("guard.enforced", verdict.enforced.label)
    span.set_attribute("guard.policy", verdict.policy)
    span.set_attribute("guard.reasons", [reason.code for reason in verdict.reasons])


def _parent(trace: str) -> Context:
    """Return the context of a ``traceparent``, or one without a parent."""
    if not trace:
        return set_span_in_context(NonRecordingSpan(SpanContext(0, 0, is_remote=False)))
    context = SpanContext(
        int(trace[3:35], 16), int(trace[36:52], 16), is_remote=True, trace_flags=TraceFlags(1)
    )
    return set_span_in_context(NonRecordingSpan(context))


def _clean(text: str) -> str:
    """Return a text without halves of surrogate pairs: JSON may have them, protobuf may not."""
    return text.encode("utf-8", "replace").decode()
