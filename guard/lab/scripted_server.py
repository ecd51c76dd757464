"""An MCP server on standard input/output that answers from a file and keeps what it was asked.

``python -m guard.lab.scripted_server SCRIPT SEEN``: the script is a JSON list of results, given to
the requests in order (``initialize`` apart); what reaches the server goes to the second file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from guard.lab.egress_world import DONE


def main(script: Path, seen: Path) -> None:
    """Answer until standard input ends."""
    results = iter(json.loads(script.read_text(encoding="utf-8")))
    with seen.open("a", encoding="utf-8") as kept:
        for line in sys.stdin:
            kept.write(line)
            kept.flush()
            asked = json.loads(line)
            if "id" not in asked or "method" not in asked:
                continue
            result = DONE
            if asked["method"] == "initialize":
                version = asked["params"]["protocolVersion"]
                about = {"name": "scripted", "version": "1"}
                result = {"protocolVersion": version, "capabilities": {}, "serverInfo": about}
            else:
                result = next(results, DONE)
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
