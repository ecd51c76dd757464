"""A real guard process between a raw client and an upstream that keeps every byte it receives."""

import hashlib
import json
import os
import socket
import tempfile
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed_metrics

from guard.core.errors import GuardError
from guard.processes.loopback import Child, Rig, free_port, start
from lab.envoy_rig import Edge, FrontedRig, RunningEnvoy, find_envoy, fronted, start_envoy
from lab.guard_processes import worker_of
from tests.e2e.raw_server import PATIENCE, RawClient, RawServer, whole_request

ROOT = Path(__file__).resolve().parents[2]
BEHIND_ENVOY = os.environ.get("GUARD_PEP") == "envoy"
"""Whether every guard that can is started as `guard decide` with a real Envoy in front."""
if BEHIND_ENVOY:
    # It is no setting of a guard that a test starts by itself.
    del os.environ["GUARD_PEP"]
THE_RIG = FrontedRig if BEHIND_ENVOY else Rig
NO_ENVOY = "envoy is not installed (`make envoy`)"
needs_envoy = pytest.mark.skipif(find_envoy() is None, reason=NO_ENVOY)


WAIT_SECONDS = PATIENCE


def wait_until(condition, what, seconds=WAIT_SECONDS):
    """Poll until the condition is true and return its value; fail the test where it never is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        threading.Event().wait(0.02)
    pytest.fail(f"{what} did not happen within {seconds} s")


def listens(port):
    """Return whether something listens on a port of loopback."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Upstream(RawServer):
    """A tool server that answers every MCP request and remembers every byte it was sent."""

    def __init__(self, listener=None):
        self.received = bytearray()
        self.answer = default_answer
        super().__init__(listener)

    def requests(self, client):
        """Yield each whole request of a connection."""
        buffer = b""
        while data := client.recv(65536):
            self.received += data
            buffer += data
            while (request := whole_request(buffer)) is not None:
                buffer = buffer[len(request) :]
                yield request

    def _serve(self, client):
        for request in self.requests(client):
            with suppress(OSError):  # The guard, or who asked it, may have left.
                client.sendall(self.answer(request))


@dataclass
class Elsewhere:
    """A tool server that another process runs."""

    port: int

    def close(self):
        """End nothing: whoever started it does."""


def default_answer(request, text="done"):
    """Answer a JSON-RPC request with a tool result, anything else with an empty 200."""
    body = request.partition(b"\r\n\r\n")[2]
    message = json.loads(body) if b"jsonrpc" in body else []
    items = message if isinstance(message, list) else [message]
    answers = [
        {"jsonrpc": "2.0", "id": i["id"], "result": {"content": [{"type": "text", "text": text}]}}
        for i in items
        if "id" in i
    ]
    if not answers:
        return b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    return http_answer(json.dumps(answers if isinstance(message, list) else answers[0]).encode())


def http_answer(body, media="application/json"):
    """Return an HTTP answer with a body."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


@dataclass
class RunningGuard:
    """A ``guard run`` process and what the tests ask of it."""

    child: Child
    port: int
    admin: int
    audit_path: Path
    upstream: Upstream
    envoy: RunningEnvoy | None = None
    """What stands in front of it."""

    @property
    def process(self):
        """The supervisor's process."""
        return self.child.process

    @property
    def worker(self):
        """The process id of its worker."""
        return worker_of(self.process.pid)

    @property
    def log_path(self):
        """What it wrote to standard output and error."""
        return self.child.log

    def send(self, data):
        """Send raw bytes and return everything that comes back until the guard is silent."""
        with closing(RawClient(self.port)) as client:
            return client.ask(data)

    def post(self, document, headers=None):
        """POST JSON and return status and parsed body."""
        lines = (f"{name}: {value}" for name, value in (headers or {}).items())
        return parsed(self.send(json_bytes(document, *lines, host=f"127.0.0.1:{self.port}")))

    def note_prompt(self, text, secret, session, who="anonymous"):
        """Tell the guard what a user typed, as a front end does; return the status."""
        answer = httpx.post(
            f"http://127.0.0.1:{self.admin}/v1/prompts",
            json={"principal": who, "session": session, "text": text},
            headers={"authorization": f"Bearer {secret}"},
            trust_env=False,
            timeout=WAIT_SECONDS,
        )
        return answer.status_code

    def audit(self):
        """Return the audit lines so far; one that is being written is not there yet."""
        if not self.audit_path.exists():
            return []
        whole = self.audit_path.read_text("utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line]

    def metric(self, name, **labels):
        """Return the sum of a metric's samples whose labels include those given."""
        url = f"http://127.0.0.1:{self.admin}/metrics"
        text = httpx.get(url, trust_env=False, timeout=WAIT_SECONDS).text
        samples = (one for family in parsed_metrics(text) for one in family.samples)
        wanted = labels.items()
        return sum(
            one.value for one in samples if one.name == name and wanted <= one.labels.items()
        )

    def stop(self):
        """Stop the guard as an operator would and return its exit code."""
        code = self.child.stop()
        if self.envoy is not None:
            self.envoy.child.stop()
        return code


def parsed(raw):
    """Return the status of a raw answer, and its JSON."""
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), json.loads(body) if body else None


def start_guard(
    directory,
    upstream,
    *,
    policy=None,
    options=(),
    environment=None,
    wait=True,
    port=None,
):
    """Start ``guard run`` as a user would and wait for its ready line."""
    directory.mkdir(parents=True, exist_ok=True)
    port, admin = port or free_port(), free_port()
    audit = directory / "audit.jsonl"
    words = ["--policy", str(policy or ROOT / "policies" / "default.yaml")]
    words += ["--reverse", f"127.0.0.1:{port}=http://127.0.0.1:{upstream.port}"]
    words += ["--admin", f"127.0.0.1:{admin}", "--audit", str(audit), *options]
    # Guards of one test are one deployment; those of another are another.
    key = {"GUARD_LABEL_KEY": str(directory.parent / "label.key"), "GUARD_DATA": "memory"}
    given = {**os.environ, **key, **(environment or {})}
    variables = {name: value for name, value in given.items() if value is not None}
    # The worker runs with -O: without its bytecode cache every start compiles every library.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    command, envoy = ["run", *words], None
    if variables.get("GUARD_PEP") == "envoy" or BEHIND_ENVOY:
        variables.pop("GUARD_PEP", None)
        if find_envoy() is None:
            pytest.skip(NO_ENVOY)
        # The path of a socket has 107 characters at most.
        place = Path(tempfile.mkdtemp(prefix="guard-envoy-"))
        try:
            command, edge = fronted(words, place)
        except GuardError as error:
            pytest.skip(f"not behind an Envoy: {error}")
        envoy = start_envoy(directory, edge)
    child = start(directory / "guard.log", "-m", "guard", *command, environment=variables)
    if wait:
        try:
            child.wait_ready()
        except GuardError:
            child.stop()
            raise
    return RunningGuard(child, port, admin, audit, upstream, envoy=envoy)


def edge_before(upstream, **more):
    """Return an Envoy's place before a guard, and again between that and a server named mail."""
    place = Path(tempfile.mkdtemp(prefix="guard-envoy-"))
    return Edge(
        guard=f"unix:{place / 'decide.sock'}",
        clear={free_port(): "mail"},
        egress=str(place / "egress.sock"),
        servers={"mail": ("127.0.0.1", upstream.port)},
        **more,
    )


def start_decider(directory, edge, upstream, *options, name="guard", **variables):
    """Start ``guard decide`` behind an Envoy, for a server that only the way out leads to.

    Args:
        directory: of its files.
        edge: of the Envoy.
        upstream: that the guard is asked about later.
        options: besides.
        name: of its log.
        variables: of its environment besides.
    """
    admin, audit = free_port(), directory / "audit.jsonl"
    words = ["-m", "guard", "decide", "--policy", str(ROOT / "policies" / "default.yaml")]
    words += ["--listen", edge.guard, "--egress", f"unix:{edge.egress}", "--audit", str(audit)]
    words += ["--admin", f"127.0.0.1:{admin}", "--data", "memory", *options]
    # Nobody is at that address: what arrives has come by the way out.
    words += [
        "--label-key",
        str(directory / "label.key"),
        "--server",
        "mail=http://mail.test:1/mcp",
    ]
    given = {k: v for k, v in os.environ.items() if k != "GUARD_PEP"} | variables
    child = start(directory / f"{name}.log", *words, environment=given)
    child.wait_ready()
    return RunningGuard(child, next(iter(edge.clear)), admin, audit, upstream)


def http_bytes(body=b"", *lines, method="POST", target="/mcp", host="tools.test"):
    """Return a request; where no line of its head says how long a body is, one is added."""
    sized = ("content-length", "transfer-encoding")
    bare = not body and method in {"GET", "CONNECT"}
    length = () if bare else (f"content-length: {len(body)}",)
    rest = lines if any(line.lower().startswith(sized) for line in lines) else (*lines, *length)
    head = (f"{method} {target} HTTP/1.1", f"host: {host}", *rest, "", "")
    return "\r\n".join(head).encode() + body


def json_bytes(document, *lines, **parts):
    """Return a request whose body is JSON."""
    given = document if isinstance(document, bytes) else json.dumps(document).encode()
    return http_bytes(given, "content-type: application/json", *lines, **parts)


@contextmanager
def serving(directory, upstream=None, **options):
    """Start a guard before an upstream, a new one if none is given; end both with the block."""
    server = upstream or Upstream()
    guard = start_guard(directory, server, **options)
    try:
        yield guard
    finally:
        guard.stop()
        server.close()


def tool_call(
    to="team@example.com",
    tool="email_send_email",
    ident=1,
    **arguments,
):
    """Return a ``tools/call`` request that sends mail, or has other arguments."""
    given = arguments or {"to": to, "subject": "status", "body": "all is well"}
    params = {"name": tool, "arguments": given}
    return {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}


def secrets_file(path, *names):
    """Write a file of principals or front ends, each with its name as secret; return its path."""
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in names}
    path.write_text("".join(f'{name} = "{one}"\n' for name, one in digests.items()), "utf-8")
    return str(path)
