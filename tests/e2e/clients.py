"""Clients that several tests have: agents under load, a wrapper, a reader of a slow answer."""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
from contextlib import closing, suppress

import httpx

from guard.processes.loopback import START_SECONDS
from tests.e2e.raw_server import RawClient
from tests.e2e.running_guard import ROOT, json_bytes, parsed, tool_call, wait_until

SECONDS = 60.0
PAUSE_SECONDS = 0.05
"""Between two calls of one agent: the machine is there for the guards."""


def call_tool(port, tool, arguments, session="s", **headers):
    """Call a tool as an agent does and return the JSON-RPC answer."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = httpx.post(
        f"http://127.0.0.1:{port}/mcp",
        json=tool_call(tool=tool) | {"params": {"name": tool, "arguments": arguments}},
        headers={
            "accept": "application/json, text/event-stream",
            "x-guard-session": session,
            **given,
        },
        timeout=60,
        trust_env=False,
    )
    return dict(answer.json())


class Load:
    """Agents that call one after the other: half by a connection each time, half by one they keep.

    One that finds its kept connection closed before a byte of the answer came opens another and
    asks again (RFC 9112, 9.3.1).  New connections lead to the ports in turns, as with a cluster's
    service.  They call until the end of a ``with`` block.

    Args:
        ports: of the guards.
        to: receiver of calls that have to be released.
        stranger: receiver of every fifth call, which has to be refused.
    """

    def __init__(self, *ports, to, stranger):
        self.ports = ports
        self.released = []
        self.refused = []
        self.failures = []
        self._to, self._stranger = to, stranger
        self._stop = threading.Event()
        self._turns = itertools.count()
        self._lock = threading.Lock()
        """Held from the choice of a guard to the first answer: one that is taken out owes none."""
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(4)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def take_out(self, port):
        """Send a pod no further connections; it keeps those that it has."""
        with self._lock:
            self.ports = tuple(one for one in self.ports if one != port)

    def wait_for(self, count):
        """Wait until so many more calls have been released and some refused."""
        released = len(self.released) + count
        refused = len(self.refused) + 1
        wait_until(
            lambda: len(self.released) >= released and len(self.refused) >= refused,
            f"{count} more answers",
            START_SECONDS,
        )

    def _run(self, agent):
        kept = None
        for number in itertools.count():
            if self._stop.is_set():
                break
            stranger = number % 5 == 4
            ident = f"{'refuse' if stranger else 'release'}-{agent}-{number}"
            call = tool_call(self._stranger if stranger else self._to, ident=ident)
            try:
                kept, raw = self._asked(kept, json_bytes(call, "x-guard-session: s1"))
                result = parsed(raw)[1]["result"]
                if stranger != (result.get("isError") is True):
                    self.failures.append(f"{ident}: {result}")
                (self.refused if stranger else self.released).append(ident)
            except (OSError, ValueError, IndexError) as error:
                self.failures.append(f"{ident}: {error!r}")
            if agent % 2 and kept is not None:
                kept.close()
                kept = None
            self._stop.wait(PAUSE_SECONDS)
        if kept is not None:
            kept.close()

    def _asked(self, kept, data):
        """Return the connection that answered, and the answer."""
        if kept is not None:
            if answer := kept.ask(data):
                return kept, answer
            with closing(kept), suppress(ConnectionError):
                kept.socket.recv(1)  # One that is silent still has lost the call.
        with self._lock:
            made = RawClient(self.ports[next(self._turns) % len(self.ports)])
            return made, made.ask(data)


class Wrapper:
    """``guard stdio`` around a server; closes its pipes with a ``with`` block.

    Args:
        decisions: socket of the guard that judges.
        policies: that are to be in force there.
        command: of the server.
        options: of the wrapper.
    """

    def __init__(self, decisions, policies, *command, options=()):
        words = [sys.executable, "-m", "guard", "stdio", "--decisions", str(decisions), *options]
        for policy in policies:
            words += ["--policy", str(policy)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*words, "--", *command], cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe
        )

    def say(self, message):
        """Send a frame as the agent: bytes, or what is written as JSON."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def hear(self):
        """Return the next frame that the agent gets."""
        return json.loads(self.process.stdout.readline())

    def end(self):
        """Close its input, and return its exit code."""
        self.process.stdin.close()
        return int(self.process.wait(SECONDS))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(SECONDS)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


class Posting:
    """One POST of a client that reads events, whose answer is read by a task as it comes.

    Args:
        url: of the server.
        document: of the body; None makes it a GET.
        proxy: in between.
        headers: besides.
    """

    def __init__(self, url, document, proxy=None, headers=None):
        self._client = httpx.AsyncClient(
            trust_env=False, timeout=SECONDS, proxy=proxy, headers=headers
        )
        self._url, self._document = url, document
        self.status, self.headers, self.text = 0, {}, ""
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self):
        accept = {"accept": "application/json, text/event-stream"}
        method = "GET" if self._document is None else "POST"
        posted = self._client.stream(method, self._url, json=self._document, headers=accept)
        async with self._client, posted as answer:
            self.status, self.headers = answer.status_code, answer.headers
            async for piece in answer.aiter_text():
                self.text += piece

    async def reads(self, text):
        """Wait until something stands in what has come so far."""
        async with asyncio.timeout(SECONDS):
            while text not in self.text:
                assert not self.task.done() or text in self.text, self.text
                await asyncio.sleep(0.02)

    async def leave(self):
        """Hang up."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def messages(self):
        """The messages in the events so far."""
        lines = [one for one in self.text.splitlines() if one.startswith("data: ")]
        return [json.loads(one.removeprefix("data: ")) for one in lines]
