"""A model that calls a list of tools, one per turn: the streams that Claude Code and Codex read."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.model_wires import Call, stream


class PlayedModel(ThreadingHTTPServer):
    """Server of both model APIs on loopback; keeps the results that the client reports."""

    daemon_threads = True

    def __init__(self, calls):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls = list(calls)
        self.results = []

    def next_call(self, results):
        """Return the call of this turn; None where all were made."""
        self.results = max(self.results, results, key=len)
        return self.calls[len(results)] if len(results) < len(self.calls) else None


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing."""

    def do_HEAD(self):
        self._answer(b"", "text/plain")

    def do_GET(self):
        self._answer(b'{"data": [], "models": []}', "application/json")

    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        asked = json.loads(self.rfile.read(length) or b"{}")
        if not asked.get("stream"):
            self._answer(b'{"input_tokens": 1}', "application/json")
            return
        if "/responses" in self.path:
            kind, results = "openai_responses", _outputs(asked)
        else:
            kind, results = "anthropic_messages", _results(asked)
        call = self.server.next_call(results) if asked.get("tools") else None
        calls = [] if call is None else [Call(f"call_{len(results)}", *call)]
        self._answer(stream(kind, "done", calls), "text/event-stream")

    def _answer(self, body, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _results(asked):
    parts = [p for m in asked["messages"] if isinstance(m["content"], list) for p in m["content"]]
    return [json.dumps(p["content"]) for p in parts if p.get("type") == "tool_result"]


def _outputs(asked):
    items = [item for item in asked["input"] if item.get("type", "").endswith("_output")]
    return [json.dumps(item["output"]) for item in items]


@contextmanager
def played(calls):
    """Serve a model that makes these calls."""
    with PlayedModel(calls) as model:
        thread = threading.Thread(target=model.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            model.shutdown()
            thread.join()
