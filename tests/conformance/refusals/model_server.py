"""A model's server for the refusal matrix: its answers have the recorded shapes of the four APIs.

``python model_server.py LOG PORT``.  The prompt says what it answers: ``please NAME`` one call of
the tool, to the receiver that stands for a kind of refusal; ``please upstream_dead`` ends it.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.model_wires import Call, answered

LOG = Path(sys.argv[1])
RECEIVERS = {"refused": "thief@evil.example", "asked": "new@partner.example"}
RECEIVERS |= {"guard_error": "team@example.com"}


class Handler(BaseHTTPRequestHandler):
    """Answers as the API that was asked."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Answer one request."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        text = body.decode()
        with LOG.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"path": self.path}) + "\n")
        if "please upstream_dead" in text:
            os._exit(1)
        asked = [kind for kind in RECEIVERS if f"please {kind}" in text]
        arguments = [{"to": RECEIVERS[kind], "body": "hello"} for kind in asked]
        calls = [Call(f"call_{n}", "mail_model", one) for n, one in enumerate(arguments)]
        data, media = answered(self.path, body, calls)
        self.send_response(200)
        self.send_header("content-type", media)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format, *args):  # noqa: A002  (the base's name)
        """Say nothing."""


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
