"""Spans as a real OTLP receiver gets them, over HTTP."""

import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.model import Identity, Role, ToolCall
from guard.core.policy import Action, Mode, Reason, Verdict
from guard.telemetry.otel import SpanRecorder

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CALL = ToolCall(
    "d1", Identity("alice", "s1"), "send_mail", {"to": "secret@x.example"}, "mcp", 1.0, "mail"
)
ALLOWED = Verdict(Action.ALLOW, Mode.ENFORCE, (), "digest")
REFUSED = Verdict(Action.ASK, Mode.ENFORCE, (Reason("tainted", "r", Action.ASK),), "digest")


@pytest.fixture
def receiver():
    """Yield an OTLP receiver's address, and what it took; a test gives its first statuses."""
    got = SimpleNamespace(requests=[], statuses=[])

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            status = got.statuses.pop(0) if got.statuses else 200
            if status == 200:
                got.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(status)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", got
    server.shutdown()
    thread.join()
    server.server_close()


def spans_in(got):
    """Return the spans that arrived, and the attributes of each."""
    spans = [
        s
        for r in got.requests
        for rs in r.resource_spans
        for ss in rs.scope_spans
        for s in ss.spans
    ]
    return spans, [{a.key: a.value.string_value for a in span.attributes} for span in spans]


def play(recorder, number, trace="", verdict=ALLOWED):
    """Have one call recorded, from its verdict to its result."""
    call = replace(CALL, id=f"c{number}", trace=trace)
    recorder.call(call, verdict, required=False)
    recorder.result(ToolResult(untraced(ClassifiedCall(call, Role.SEND)), "sent", 2.0))


def test_a_call_is_one_span_with_its_callers_as_parent(receiver):
    """From verdict to result, without a word of its arguments."""
    endpoint, got = receiver
    recorder = SpanRecorder(endpoint)
    play(recorder, 1, PARENT)
    recorder.close()
    [span], [attributes] = spans_in(got)

    assert span.name == "execute_tool send_mail"
    assert span.trace_id.hex() == TRACE
    assert span.parent_span_id.hex() == "b7ad6b7169203331"
    assert span.start_time_unix_nano == 1_000_000_000
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["mcp.method.name"] == "tools/call"
    assert attributes["guard.action"] == "allow"
    assert "secret" not in str(got.requests)


def test_a_refused_call_is_an_error_with_its_reason(receiver):
    """It has no result, so its span ends with the verdict."""
    endpoint, got = receiver
    recorder = SpanRecorder(endpoint)

    play(recorder, 1, verdict=REFUSED)
    recorder.close()
    [span], [attributes] = spans_in(got)

    assert span.status.code == 2
    assert attributes["error.type"] == "tainted"
    assert not span.parent_span_id


def test_what_the_caller_does_not_sample_is_not_sampled_here(receiver):
    """W3C's flag; a call without a `traceparent` begins a trace of its own."""
    endpoint, got = receiver
    recorder = SpanRecorder(endpoint)
    play(recorder, 1, PARENT[:-2] + "00")
    play(recorder, 2)
    recorder.close()
    [span], _ = spans_in(got)

    assert span.parent_span_id == b""
    assert len(span.trace_id) == 16


def test_a_span_that_the_receiver_does_not_take_is_counted(receiver):
    """A busy receiver is tried again; a refusal and an unreachable receiver lose the span."""
    endpoint, got = receiver
    lost = []
    for number, statuses in enumerate(([503], [400])):
        got.statuses[:] = statuses
        recorder = SpanRecorder(endpoint, lambda: lost.append(1))
        play(recorder, number)
        recorder._provider.force_flush()
        recorder.close()

    assert len(spans_in(got)[0]) == 1
    assert lost == [1]


def test_too_many_that_wait_are_lost_and_told(receiver, monkeypatch):
    """Memory is bounded, whatever the receiver does."""
    monkeypatch.setattr("guard.telemetry.otel.WAITING_SPANS", 0)
    lost = []
    recorder = SpanRecorder(receiver[0], lambda: lost.append(1))
    play(recorder, 1)
    recorder.close()

    assert lost == [1]
