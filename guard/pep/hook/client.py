"""Command of a hook: hands the payload to the running guard and prints its answer.

Imports the standard library alone, so that it starts in milliseconds.  Without an answer it exits
with 2, which Claude Code, Codex and Cursor read as a refusal, and says why on stderr.
"""

from __future__ import annotations

import json
import os
import socket
import sys

REFUSED = 2
"""Exit code with which the clients do not run the call."""
TIMEOUT = 20.0
"""Seconds for one answer: less than the clients wait for a hook."""
USAGE = "guard hook: name the client: claude-code, codex or cursor"


def main(arguments: list[str]) -> int:
    """Answer one hook; return the exit code."""
    try:
        client, options = arguments[0], dict(zip(arguments[1::2], arguments[2::2], strict=True))
    except (IndexError, ValueError):
        return _refused(USAGE)
    path = options.get("--decisions") or os.environ.get("GUARD_DECISIONS") or _default_socket()
    # Claude Code names its project; Codex starts hooks in it whatever directory a call has.
    project = os.environ.get("CLAUDE_PROJECT_DIR") if client == "claude-code" else None
    try:
        question = {
            "op": "hook",
            "client": client,
            "process": options.get("--process", ""),
            "project": project or os.getcwd(),
            "secret": _secret(options.get("--agent-secret", "")),
            "payload": sys.stdin.buffer.read().decode("utf-8"),
        }
        answer = json.loads(_asked(path, json.dumps(question).encode() + b"\n"))
        output, error = answer.get("output"), answer.get("error")
    except (OSError, ValueError, AttributeError) as failure:
        return _refused(
            f"the egress guard is not available ({type(failure).__name__}); nothing was run. "
            f"Start it: guard run --decisions {path}"
        )
    if not isinstance(output, dict):
        return _refused(f"the egress guard did not judge this: {error}")
    sys.stdout.write(json.dumps(output))
    return 0


def _asked(path: str, question: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect(path)
        connection.sendall(question)
        with connection.makefile("rb") as answer:
            return answer.readline()


def _secret(path: str) -> str:
    if not path:
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def _default_socket() -> str:
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "egress-guard", "decide.sock")


def _refused(message: str) -> int:
    sys.stderr.write(message + "\n")
    return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
