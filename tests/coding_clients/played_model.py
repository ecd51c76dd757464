"""A model that calls a list of tools, one per turn: the streams that Claude Code and Codex read."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Call = tuple[str, dict[str, Any]]


class PlayedModel(ThreadingHTTPServer):
    """Server of both model APIs on loopback; keeps the results that the client reports."""

    daemon_threads = True

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls = list(calls)
        self.results: list[str] = []

    def next_call(self, results: list[str]) -> Call | None:
        """Return the call of this turn; None where all were made."""
        self.results = max(self.results, results, key=len)
        return self.calls[len(results)] if len(results) < len(self.calls) else None


class _Handler(BaseHTTPRequestHandler):
    server: PlayedModel

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(b"", "text/plain")

    def do_GET(self) -> None:
        self._answer(b'{"data": [], "models": []}', "application/json")

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        asked = json.loads(self.rfile.read(length) or b"{}")
        if not asked.get("stream"):
            self._answer(b'{"input_tokens": 1}', "application/json")
            return
        make = _responses if "/responses" in self.path else _messages
        events = (
            f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in make(self.server, asked)
        )
        self._answer("".join(events).encode(), "text/event-stream")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _messages(model: PlayedModel, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    parts = [p for m in asked["messages"] if isinstance(m["content"], list) for p in m["content"]]
    results = [json.dumps(p["content"]) for p in parts if p.get("type") == "tool_result"]
    call = model.next_call(results) if asked.get("tools") else None
    message = {"id": "m", "type": "message", "role": "assistant", "model": "played", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    if call is None:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}
    else:
        block = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    ends = {"stop_reason": "end_turn" if call is None else "tool_use", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ends, "usage": usage}
    yield {"type": "message_stop"}


def _responses(model: PlayedModel, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    items = [item for item in asked["input"] if item.get("type", "").endswith("_output")]
    call = model.next_call([json.dumps(item["output"]) for item in items])
    if call is None:
        text = {"type": "output_text", "text": "done", "annotations": []}
        item = {"type": "message", "id": "m", "role": "assistant", "content": [text]}
    else:
        item = {"type": "function_call", "id": f"f{len(items)}", "call_id": f"c{len(items)}"}
        item |= {"name": call[0], "arguments": json.dumps(call[1])}
    item["status"] = "completed"
    answer = {"id": "r", "object": "response", "status": "completed", "output": [item]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {"type": "response.created", "response": {**answer, "status": "in_progress"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {**answer, "usage": usage}}


@contextmanager
def played(calls: Sequence[Call]) -> Iterator[PlayedModel]:
    """Serve a model that makes these calls."""
    with PlayedModel(calls) as model:
        thread = threading.Thread(target=model.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            model.shutdown()
            thread.join()
