"""Command of a hook: hands the payload to the running guard and prints its answer.

Imports two built-in modules besides those of an empty program: neither `os`, `json` nor `socket`.
The answer is a line of an exit code and a text.  Without one the command exits with 2, which Claude
Code, Codex and Cursor read as a refusal, and says why on stderr.
"""

import posix
import sys
from _json import encode_basestring_ascii as quoted
from _socket import AF_UNIX, SOCK_STREAM, socket

REFUSED = 2
"""Exit code with which the clients do not run the call."""
TIMEOUT = 20.0
"""Seconds for one answer: less than the clients wait for a hook."""
USAGE = "guard hook: name the client: claude-code, codex or cursor"
OPTIONS = ("--decisions", "--process", "--agent-secret")
_CHUNK = 65536


def main(arguments: list[str]) -> int:
    """Answer one hook; return the exit code."""
    names, values = arguments[1::2], arguments[2::2]
    if not arguments or len(names) != len(values) or not set(names) <= set(OPTIONS):
        return _failed(USAGE)
    client, options = arguments[0], dict(zip(names, values, strict=True))
    path = options.get("--decisions") or _variable("GUARD_DECISIONS") or _default_socket()
    # Claude Code names its project; Codex starts hooks in it whatever directory a call has.
    project = _variable("CLAUDE_PROJECT_DIR") if client == "claude-code" else ""
    try:
        question = {
            "op": "hook",
            "client": client,
            "process": options.get("--process", ""),
            "project": project or posix.getcwd(),
            "secret": _secret(options.get("--agent-secret", "")),
            "payload": sys.stdin.buffer.read().decode("utf-8"),
        }
        members = ", ".join(f"{quoted(name)}: {quoted(text)}" for name, text in question.items())
        code, _, text = _asked(path, f"{{{members}}}\n".encode()).partition(" ")
    except (OSError, ValueError) as failure:
        return _failed(
            f"the egress guard is not available ({type(failure).__name__}); nothing was run. "
            f"Start it: guard run --decisions {path}"
        )
    if code != "0":
        return _failed(f"the egress guard did not judge this: {text or 'no answer'}")
    sys.stdout.write(text)
    return 0


def _asked(path: str, question: bytes) -> str:
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.settimeout(TIMEOUT)
    connection.connect(path)
    connection.sendall(question)
    answer = b""
    while not answer.endswith(b"\n"):
        part = connection.recv(_CHUNK)
        if not part:
            raise OSError("the connection ended")
        answer += part
    return answer.decode().strip()


def _secret(path: str) -> str:
    if not path:
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def _variable(name: str) -> str:
    return posix.environ.get(name.encode(), b"").decode("utf-8", "surrogateescape")


def _default_socket() -> str:
    base = _variable("XDG_STATE_HOME") or _variable("HOME") + "/.local/state"
    return base + "/egress-guard/decide.sock"


def _failed(message: str) -> int:
    sys.stderr.write(message + "\n")
    return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
