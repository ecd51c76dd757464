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
    """Return the spans that arrived."""
    return [
        s
        for r in got.requests
        for rs in r.resource_spans
        for ss in rs.scope_spans
        for s in ss.spans
    ]


def play(recorder, number, trace="", verdict=ALLOWED):
    """Have one call recorded, from its verdict to its result."""
    call = replace(CALL, id=f"c{number}", trace=trace)
    recorder.call(call, verdict, required=False)
    recorder.result(ToolResult(untraced(ClassifiedCall(call, Role.SEND)), "sent", 2.0))


@pytest.mark.parametrize(
    ("trace", "verdict", "found"),
    [
        (
            PARENT,
            ALLOWED,
            {"guard.action": "allow", "parent": PARENT[36:52], "trace": TRACE, "code": 0},
        ),
        # Without a result a span ends with the verdict; without a parent it begins a trace.
        ("", REFUSED, {"error.type": "tainted", "parent": "", "code": 2}),
    ],
    ids=["allowed", "refused"],
)
def test_a_call_is_one_span_with_its_callers_as_parent(receiver, trace, verdict, found):
    """From verdict to result, without a word of its arguments; of none that is not sampled."""
    endpoint, got = receiver
    recorder = SpanRecorder(endpoint)
    play(recorder, 1, trace, verdict)
    play(recorder, 2, PARENT[:-2] + "00")
    recorder.close()
    [span] = spans_in(got)
    known = {a.key: a.value.string_value for a in span.attributes}
    known |= {
        "parent": span.parent_span_id.hex(),
        "trace": span.trace_id.hex(),
        "code": span.status.code,
    }

    assert found.items() <= known.items()
    assert span.name == "execute_tool send_mail"
    assert span.start_time_unix_nano == 1_000_000_000
    assert (len(span.trace_id), span.parent_span_id.hex()) == (16, found["parent"])
    assert known["gen_ai.operation.name"] == "execute_tool"
    assert known["mcp.method.name"] == "tools/call"
    assert "secret" not in str(got.requests)


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

    assert len(spans_in(got)) == 1
    assert lost == [1]


def test_too_many_that_wait_are_lost_and_told(receiver, monkeypatch):
    """Memory is bounded, whatever the receiver does."""
    monkeypatch.setattr("guard.telemetry.otel.WAITING_SPANS", 0)
    lost = []
    recorder = SpanRecorder(receiver[0], lambda: lost.append(1))
    play(recorder, 1)
    recorder.close()

    assert lost == [1]
