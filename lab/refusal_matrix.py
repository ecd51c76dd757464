"""``guard lab bench refusals``: whether real clients hand their models the reason for a refusal.

Every client of ``tests/conformance/refusals/clients.toml`` that is installed calls the same tools
through a real guard, over each of its transports, and each tool with and without an output schema.
A cell is readable where the client neither raises nor waits, repeats nothing by itself, and what it
hands to its model names the decision, its code and what would help.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import Fate, GuardError
from guard.environment import inherited
from guard.processes.loopback import Child, Rig, free_port, start
from guard.protocols.refusals import BEGINS
from guard.replay.reports import Check, Report, machine
from guard.store.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

SECONDS: Final = 180
"""For one call of a client, or for its start: some start three processes for each call."""
MODEL_KINDS: Final = (
    "refused",
    "asked",
    "withheld",
    "unreadable",
    "oversize",
    "undeclared",
    "guard_error",
    "upstream_dead",
)
"""Kinds that a client of a model API can meet: calls in answers, results in requests, errors."""
LAST: Final = frozenset({"guard_error", "undeclared", "upstream_dead"})
SCHEMAS: Final = ("plain", "typed")
"""Without and with an output schema."""
ANSWERS: Final = ("whole", "streamed")
"""The two forms of a model's answer."""
MODELS: Final = 0
"""In the place of a server's version: a model's server."""
ALLOWED: Final = "team@example.com"
SECRET: Final = "AKIA" + "Q7" * 8
_MAIL: Final = {"to": ALLOWED, "body": "hello"}
BODY_LIMIT: Final = 64 * 1024
"""Body limit of the guard in the matrix."""
_LONG: Final = "a long text, " * (BODY_LIMIT // 10)
CALLS: Final[dict[str, tuple[tuple[str, dict[str, str]], ...]]] = {
    "refused": (("mail", {**_MAIL, "to": "thief@evil.example"}),),
    "asked": (("mail", {**_MAIL, "to": "new@partner.example"}),),
    "redacted": (("mail", {**_MAIL, "body": f"the key is {SECRET}"}),),
    "withheld": (("page", {"topic": "poisoned"}),),
    "unreadable": (("mail", {**_MAIL, "Body": "hello again"}),),
    "batch": (("mail", _MAIL), ("mail", {**_MAIL, "to": "thief@evil.example"})),
    "oversize": (("mail", {**_MAIL, "body": _LONG}),),
    "guard_error": (("mail", _MAIL),),
    "upstream_dead": (("crash", {"why": "asked to"}),),
}
"""The calls of one turn that lead to each kind, by the tool's name without its suffix."""
SENT: Final = "the mail was sent"
BEFORE: Final = frozenset({"oversize", "undeclared", "unreadable", "withheld"})
"""Kinds that stop a request to a model before it has left."""
CARRIED_OUT: Final = frozenset({"batch", "withheld", "upstream_dead"})
"""Kinds in whose turn one call reaches the tools."""
_ANSWERED: Final = frozenset({"withheld", "upstream_dead"})
"""Kinds whose refused call reached the tools; in a batch it is the other one."""
REPEAT: Final = "repeat this exact call after it was given"


@dataclass(frozen=True, slots=True)
class Client:
    """One row of ``clients.toml``."""

    name: str
    environment: str
    program: str
    transports: tuple[str, ...]
    server: int
    needs: str = ""
    """Another environment that must be there."""
    without: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Kinds that it cannot bring about, by transport."""

    def kinds(self, transport: str) -> list[str]:
        """Return what it can be refused; a frame on standard input has another limit."""
        kinds = MODEL_KINDS if self.server == MODELS else CALLS
        left_out = {*self.without.get(transport, ()), *(["oversize"] * (transport == "stdio"))}
        return [kind for kind in kinds if kind not in left_out]

    def forms(self, schemas: Sequence[str]) -> Sequence[str]:
        """Return the forms of what it calls."""
        return ANSWERS if self.server == MODELS else schemas

    def calls(self, transport: str, form: str, kind: str) -> list[dict[str, Any]]:
        """Return the calls of the turn that leads to a kind of refusal."""
        if self.server == MODELS:
            prompt = _LONG if kind == "oversize" else f"please {kind}"
            return [{"tool": form, "arguments": {"prompt": prompt, "kind": kind}}]
        mark = f"{transport}{self.server}"
        return [{"tool": f"{tool}_{form}_{mark}", "arguments": a} for tool, a in CALLS[kind]]


@dataclass(frozen=True, slots=True)
class Cell:
    """The outcome of one kind of refusal in one client."""

    name: str
    """Client, transport, form of what it calls, and kind of refusal."""
    problem: str
    """Why a model could not act on it; empty where it could."""
    seen: str


def program(folder: Path, environment: str) -> str | None:
    """Return the interpreter of an environment, None where it is not installed."""
    if environment == "here":
        return sys.executable
    path = folder / ".environments" / environment / "bin" / "python"
    if environment == "node":
        path = folder / "node_modules" / "node" / "bin" / "node"
    return str(path) if path.exists() else None


class Suite:
    """The installed clients.

    Args:
        folder: ``tests/conformance``.

    Raises:
        GuardError: the folder has no list of clients.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.matrix = self.folder / "refusals"
        try:
            rows = tomllib.loads((self.matrix / "clients.toml").read_text(encoding="utf-8"))
        except OSError as error:
            raise GuardError(
                f"`{folder}` has no refusals/clients.toml; run in a checkout"
            ) from error
        self.clients = [
            Client(**{**row, "transports": tuple(row["transports"])}) for row in rows["client"]
        ]

    def command(self, client: Client) -> list[str] | None:
        """Return how to start a client, None where it is not installed."""
        behind = "mcp2" if client.server > 1 else "here"
        environments = (client.environment, behind, client.needs or "here")
        found = [program(self.folder, one) for one in environments]
        if found[0] is None or None in found:
            return None
        return [found[0], str(self.matrix / "clients" / client.program)]

    def server(self, version: int, log: Path, *words: str) -> list[str]:
        """Return how to start a server of a version of the SDK, or a model's."""
        if version == MODELS:
            return [sys.executable, str(self.matrix / "model_server.py"), str(log), words[-1]]
        python = program(self.folder, "here" if version == 1 else "mcp2") or ""
        return [python, str(self.matrix / "server.py"), str(log), *words]


def _line(client: Child, calls: int = 1) -> bytes:
    """Return the next line, empty where none came in the time that so many calls have."""
    out = client.process.stdout
    # Counted in waits: time in which the machine, or this process, was stopped does not count.
    waits = range(SECONDS * calls)
    if out is None or not any(select.select([out], [], [], 1.0)[0] for _ in waits):
        return b""
    return out.readline()


def _turn(client: Child, calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Have one turn's calls made; return what the model is given for each."""
    try:
        if client.process.stdin is not None:
            client.process.stdin.write(json.dumps(calls).encode() + b"\n")
            client.process.stdin.flush()
        answer = json.loads(_line(client, len(calls)) or b"null")
    except (OSError, ValueError):
        answer = None
    return answer if isinstance(answer, list) else [{"hung": True} for _ in calls]


@dataclass
class Stage:
    """A guard with a Redis of its own, in front of servers that come and go."""

    suite: Suite
    rig: Rig
    redis: EmbeddedRedis
    guards: dict[tuple[str, int], int] = field(default_factory=dict)
    """The guard's port for each transport and server version."""
    upstreams: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def policy(self) -> Path:
        """The policy file of the guard."""
        return self.suite.matrix / "policy.yaml"

    @property
    def arrived(self) -> Path:
        """The log of what reached the servers."""
        return self.rig.directory / "arrived.jsonl"

    def begin(self) -> None:
        """Start the guard."""
        listeners = [(transport, version) for transport in ("http", "sse") for version in (1, 2)]
        listeners += [("model", MODELS), ("undeclared", MODELS)]
        options: list[str] = []
        for key in listeners:
            guard, upstream = free_port(), free_port()
            self.guards[key], self.upstreams[key] = guard, upstream
            options += ["--reverse", f"127.0.0.1:{guard}=http://127.0.0.1:{upstream}"]
        options += ["--model-api", f"127.0.0.1:{self.upstreams['model', MODELS]}"]
        options += ["--policy", str(self.policy), "--redis", self.redis.url]
        self.rig.directory.chmod(0o700)
        self.arrived.touch()
        options += ["--decisions", str(self.socket), "--body-limit", str(BODY_LIMIT)]
        # A machine that was stopped for a while is no failure of the worker.
        options += ["--heartbeat", "1800", "--state-timeout", "2"]
        self.rig.begin_guard(*options).wait_ready()

    @property
    def socket(self) -> Path:
        """Socket that ``guard stdio`` asks."""
        return self.rig.directory / "decide.sock"

    def server(self, transport: str, version: int) -> Child | None:
        """Start a server; a client starts one that speaks by a pipe itself."""
        if transport == "stdio":
            return None
        port = self.upstreams["model" if version == MODELS else transport, version]
        mark = f"{transport}{version}"
        command = self.suite.server(version, self.arrived, mark, transport, str(port))
        child = self.rig.start(f"server-{port}-{time.monotonic_ns()}", *command)
        child.wait_listening(port)
        return child

    def address(self, transport: str, version: int) -> str:
        """Return what a client is given: a URL, or the words of a command as JSON."""
        if version == MODELS:
            return f"http://127.0.0.1:{self.guards[transport, MODELS]}"
        if transport != "stdio":
            path = "sse" if transport == "sse" else "mcp"
            return f"http://127.0.0.1:{self.guards[transport, version]}/{path}"
        wrapper = [sys.executable, "-m", "guard", "stdio", "--policy", str(self.policy)]
        wrapper += ["--decisions", str(self.socket), "--"]
        return json.dumps(
            [*wrapper, *self.suite.server(version, self.arrived, f"stdio{version}", "stdio")]
        )


def _lines(path: Path, begin: int) -> list[dict[str, Any]]:
    """Return what was written to a file of JSON lines since an offset."""
    return [json.loads(line) for line in path.read_bytes()[begin:].splitlines()]


def bench_refusals(
    folder: Path,
    *,
    progress: Callable[[str, float], object],
    only: str = "",
    schemas: Sequence[str] = SCHEMAS,
    made: type[Rig] = Rig,
) -> Report:
    """Run the matrix over every installed client and return the report.

    Args:
        folder: ``tests/conformance``.
        progress: told which client runs.
        only: words in the names of the clients to run, all of them if empty.
        schemas: which of each tool's two forms to call.
        made: the kind of rig that starts the guard.

    Raises:
        GuardError: a part could not be started.
    """
    suite = Suite(folder)
    chosen = [one for one in suite.clients if only in one.name]
    installed = [one for one in chosen if suite.command(one) is not None]
    cells: list[Cell] = []
    with made() as rig, EmbeddedRedis() as redis:
        stage = Stage(suite, rig, redis)
        stage.begin()
        for number, client in enumerate(installed):
            for transport in client.transports:
                progress(f"{client.name} over {transport}", number / len(installed))
                cells += _client(stage, client, transport, schemas)
    return _report(cells, [one.name for one in chosen if one not in installed], len(installed))


def _report(cells: Sequence[Cell], absent: Sequence[str], clients: int) -> Report:
    broken = [cell for cell in cells if cell.problem]
    share = 1 - len(broken) / len(cells) if cells else None
    reason = None if cells else "no client is installed; run `make conformance`"
    return Report(
        name="refusals",
        machine=machine(),
        checks=[
            Check(
                id="refusals_readable",
                value=share,
                unit="fraction",
                n=len(cells),
                target="= 1",
                reason=reason,
            ),
            Check(id="clients", value=clients, unit="count", n=clients + len(absent)),
        ],
        details={
            "not_installed": list(absent),
            "unreadable": [
                {"cell": cell.name, "problem": cell.problem, "seen": cell.seen[:600]}
                for cell in broken
            ],
            "cells": {cell.name: not cell.problem for cell in cells},
        },
    )


def _client(stage: Stage, client: Client, transport: str, schemas: Sequence[str]) -> Iterator[Cell]:
    """Run one client over one transport; a server that was ended is started again."""
    # What a guard without its state refuses comes last, as it takes a moment to find it again; an
    # upstream dies once for each start.
    usual = [kind for kind in client.kinds(transport) if kind not in LAST]
    forms = client.forms(schemas)
    lives = [
        [(form, kind) for form in forms for kind in usual]
        + [(form, "guard_error") for form in forms],
        *([(form, "upstream_dead")] for form in forms),
    ]
    if client.server == MODELS:
        lives.append([(form, "undeclared") for form in forms])
    for steps in lives:
        server = stage.server(transport, client.server)
        try:
            yield from _life(stage, client, transport, steps)
        finally:
            if server is not None:
                server.stop()


def _life(
    stage: Stage, client: Client, transport: str, steps: Sequence[tuple[str, str]]
) -> Iterator[Cell]:
    node = program(stage.suite.folder, "node") or ""
    listener = transport
    if client.server == MODELS:
        listener = "undeclared" if steps[0][1] == "undeclared" else "model"
    child = start(
        stage.rig.directory / "client.log",
        *(stage.suite.command(client) or ()),
        transport,
        stage.address(listener, client.server),
        read=True,
        environment={**inherited(), "MATRIX_NODE": node},
    )
    try:
        is_up = _line(child) == b"ready\n"
        for schema, kind in steps:
            name = f"{client.name}/{transport}/{schema}/{kind}"
            if is_up:
                calls = client.calls(transport, schema, kind)
                yield Cell(name, *_step(stage, child, kind, calls, models=client.server == MODELS))
            else:
                yield Cell(name, "the client did not start", child.said()[-600:])
    finally:
        child.stop(2)


def _step(
    stage: Stage, child: Child, kind: str, calls: Sequence[dict[str, Any]], *, models: bool
) -> tuple[str, str]:
    """Have one turn's calls made; return the problem and what was seen."""
    before, reached = (one.stat().st_size for one in (stage.rig.audit, stage.arrived))
    stopped = stage.redis.pid if kind == "guard_error" else None
    if stopped is not None:
        os.kill(stopped, signal.SIGSTOP)
    try:
        seen = _turn(child, calls)
    finally:
        if stopped is not None:
            os.kill(stopped, signal.SIGCONT)
    lines, arrived = _lines(stage.rig.audit, before), _lines(stage.arrived, reached)
    if models and (kind not in BEFORE or not arrived):
        # That a model was asked is no call of a tool.
        arrived = [{}] * (kind in CARRIED_OUT)
    problem = next(_problems(kind, seen, lines, arrived), "")
    return problem, json.dumps([seen, lines])[:2000]


def _problems(
    kind: str,
    seen: Sequence[Mapping[str, Any]],
    lines: Sequence[Mapping[str, Any]],
    arrived: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    """Yield the problems that keep a model from understanding a refusal."""
    for one in seen:
        if one.get("hung"):
            yield "the client waits"
        if "raised" in one:
            yield f"the client raises {one['raised']}"
    texts = [str(one.get("seen", "")) for one in seen]
    if kind == "batch" and SENT not in texts.pop(0):
        yield "the other call of the turn did not go out"
    refusals = _refusals(kind, texts[0], lines)
    if kind == "redacted":
        if refusals or SENT not in texts[0]:
            yield "the call did not go out"
        if not arrived or SECRET in json.dumps(arrived):
            yield "the secret went out"
        return
    if len(arrived) != (kind in CARRIED_OUT):
        yield f"{len(arrived)} calls reached the tools"
    if len(refusals) != 1:
        yield f"{len(refusals)} refusals are on record, not one"
        return
    yield from _unnamed(kind, texts[0], refusals[0])


def _refusals(kind: str, text: str, lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the refusals on record, one for each decision."""
    named = {
        line["decision_id"]: line for line in lines if "decision_id" in line and _stopped(line)
    }
    found = list(named.values())
    if kind == "guard_error":
        # A client that lists first is refused each list; which of them it shows is its choice.
        judged = [line for line in found if "code" not in line]
        return judged or [line for line in found if line["decision_id"] in text]
    return found


def _stopped(line: Mapping[str, Any]) -> bool:
    return line.get("enforced", line.get("action")) not in {"allow", "redact"}


def _unnamed(kind: str, text: str, line: Mapping[str, Any]) -> Iterator[str]:
    code = line.get("code")
    codes = [code] if code else [reason["code"] for reason in line.get("reasons", ())]
    if line["decision_id"] not in text:
        yield "the decision is not named"
    if not any(code in text for code in codes):
        yield f"the reason is not named ({', '.join(map(str, codes))})"
    if "What would help: " not in text:
        yield "nothing says what would help"
    if (BEGINS[Fate.NOT_SENT].partition(" and ")[2] in text) == (kind in _ANSWERED):
        yield "what became of the request is said wrongly"
    if kind == "asked" and (REPEAT not in text or "do not retry" in text.lower()):
        yield "nothing says to repeat the call once it was approved"
