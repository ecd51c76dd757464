"""A stand-in for a server of ``init_truth``: the tools/list of that server, and short answers.

Run as ``python -m lab.adopt.stand_in NAME`` on standard input and output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).with_name("init_truth")


def serve(name: str) -> None:
    """Answer requests until the input ends."""
    listed = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params", {})
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": name, "version": "1"},
            },
            "tools/list": {"tools": listed},
            "tools/call": {"content": [{"type": "text", "text": f"{params.get('name')}: done"}]},
        }
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
