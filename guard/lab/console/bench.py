"""``guard lab bench console``: the console on a real guard, a long log and a real browser.

The browser's part needs Chromium, Node.js and the packages of ``--browser-modules``; where they are
missing its figures are null.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_plus, urlencode

from guard.adapters.loopback import Rig, free_port
from guard.console.decisions import DecisionIndex
from guard.core.errors import GuardError
from guard.lab.audit_tampering import attempts
from guard.lab.console.costs import WITH_CONSOLE, WITH_SPANS, compare_console, compare_spans
from guard.lab.console.elicitation import elicitation
from guard.lab.console.held import held_calls
from guard.lab.console.hostile_texts import hostile_texts
from guard.lab.console.time_travel import travelled
from guard.lab.load import UPSTREAM
from guard.replay.reports import Check, Report, machine
from guard.settings import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guard.lab.load import Progress

SECRET: Final = "a secret of the bench, of no deployment"  # noqa: S105  (of a process of its own)
VIEWER: Final = "another secret of the bench"
PEOPLE: Final = f"""
[people.operator]
secret = "{hashlib.sha256(SECRET.encode()).hexdigest()}"
roles = ["admin"]
[people.viewer]
secret = "{hashlib.sha256(VIEWER.encode()).hexdigest()}"
roles = ["viewer"]
"""
DECISIONS: Final = 1_000_000
PAGES: Final = (
    "/",
    "/approvals",
    "/sessions",
    "/lineage",
    "/incidents",
    "/policies",
    "/policies/trial",
    "/tools",
    "/memory",
    "/record",
)
"""Each as somebody first meets it."""
BROWSE: Final = Path(__file__).with_name("browse.mjs")
WORKER: Final = "guard.worker"
CONSOLE: Final = "guard.console.server"
IDLE: Final = 0.03
"""Processor time that a console with nothing to do takes in half a second, at most."""
SLOW: Final = 3
"""How ``browse.mjs`` exits that was not done in time."""
PARTS: Final = (
    *("release", "pages", "feed", "routes", "tamper", "travel", "ratio", "browser", "held"),
    "elicitation",
)
IDS: Final = {
    "release": ("click_to_release_p50_ms",),
    "pages": ("page_p95_ms",),
    "feed": ("feed_events_per_second",),
    "routes": ("routes_denied_by_default",),
    "tamper": ("tamper_found",),
    "travel": ("timetravel_calls_per_second",),
    "ratio": (WITH_CONSOLE, WITH_SPANS),
    "browser": ("axe_violations", "xss_executed"),
    "elicitation": ("elicitation",),
    "held": ("held_calls", "held_bytes_per_call", "held_others_p99_ratio"),
}


@dataclass(slots=True)
class Figures:
    """What was measured so far."""

    checks: list[Check] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, value: float | None, unit: str, **more: Any) -> None:
        """Take one figure."""
        self.checks.append(Check(id=name, value=value, unit=unit, **more))


@dataclass(frozen=True, slots=True)
class Stage:
    """A guard with its console."""

    guard: int
    console: int
    audit: Path

    @property
    def url(self) -> str:
        """Of the console."""
        return f"http://127.0.0.1:{self.console}"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        parts: of :data:`PARTS`.
        decisions: in the long log.
        blocks: of four turns of an eighth of a second, of each ratio.
    """

    parts: tuple[str, ...] = PARTS
    decisions: int = DECISIONS
    blocks: int = 480


def bench_console(
    policy: Path, size: Size, *, modules: Path | None, suite: Path, progress: Progress
) -> Report:
    """Run the parts and return the report.

    Args:
        policy: of the guard.
        size: how much is measured.
        modules: directory with ``node_modules`` of the browser's driver; None leaves it out.
        suite: ``tests/conformance``, where the clients of the elicitation part are.
        progress: told what is going on.

    Raises:
        GuardError: a part could not be started.
    """
    figures = Figures()
    runs: dict[str, Callable[[Progress], None]] = {
        "release": lambda _: _release(policy, figures),
        "pages": lambda _: _long_log(figures, size.decisions),
        "feed": lambda _: _feed(figures),
        "routes": lambda _: _routes(policy, figures),
        "tamper": lambda _: _tampering(figures),
        "travel": lambda _: _time_travel(policy, figures),
        "ratio": lambda told: _ratio(policy, figures, size.blocks, told),
        "browser": lambda _: _browser(policy, figures, modules),
        "held": lambda told: _held(policy, figures, told),
        "elicitation": lambda _: _elicitation(policy, suite, figures),
    }
    for number, part in enumerate(PARTS):
        if part in size.parts:
            progress(part, number / len(PARTS))
            runs[part](partial(_within, progress, number))
        else:
            for name in IDS[part]:
                figures.add(name, None, "", reason="this part was not asked for")
    return Report(name="console", machine=machine(), checks=figures.checks, details=figures.details)


def _within(progress: Progress, number: int, what: str, done: float) -> None:
    """Report the progress of one part as a share of all parts."""
    progress(what, (number + done) / len(PARTS))


@contextmanager
def stage(policy: Path) -> Iterator[Stage]:
    """Start an upstream, a guard and its console, and end them with the block.

    Raises:
        GuardError: one did not start.
    """
    with Rig() as rig:
        people = rig.directory / "people.toml"
        people.write_text(PEOPLE, encoding="utf-8")
        console = free_port()
        options = ("--console", f"127.0.0.1:{console}", "--console-people", str(people))
        port = rig.guard(policy, rig.server(UPSTREAM), *options)
        wait_for(console)
        yield Stage(port, console, rig.audit)


def wait_for(port: int) -> None:
    """Wait until somebody listens on a port of loopback.

    Raises:
        GuardError: nobody did.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 1)):
            return
        time.sleep(0.05)
    msg = f"the console did not listen on {port}"
    raise GuardError(msg)


def ask(
    port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """Send one request; return status and body."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body or None, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()


def _api(port: int, path: str, document: Any = None) -> tuple[int, bytes]:
    headers = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
    body = b"" if document is None else json.dumps(document).encode()
    return ask(port, "POST" if body else "GET", path, body, headers)


def call(
    port: int, to: str, text: str, *, tool: str = "email_send_email", session: str = ""
) -> Any:
    """Send a tool call through the guard; return its answer."""
    arguments = {"to": to, "subject": "status", "body": text}
    document = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    headers = {"content-type": "application/json"}
    if session:
        headers["x-guard-session"] = session.encode("ascii", "ignore").decode()
    _, body = ask(port, "POST", "/mcp", json.dumps(document).encode(), headers)
    return json.loads(body)


def _decision(answer: Any) -> str:
    return str(answer.get("result", {}).get("_meta", {}).get("guard", {}).get("decision_id", ""))


def _release(policy: Path, figures: Figures, rounds: int = 50) -> None:
    """Time from a click on *approve* until the call that comes again has its result."""
    times: list[float] = []
    with stage(policy) as on:
        for number in range(rounds):
            to = f"stranger{number}@outside.test"
            decision = _decision(call(on.guard, to, "figures"))
            began = time.perf_counter()
            status, body = _api(
                on.console, f"/api/approvals/default/{decision}", {"answer": "once"}
            )
            if status != http.client.OK:
                raise GuardError(f"the console refused an approval: {body!r}")
            answer = call(on.guard, to, "figures")
            times.append((time.perf_counter() - began) * 1000)
            if "guard" in answer.get("result", {}).get("_meta", {}):
                raise GuardError("an approved call was refused")
    figures.add("click_to_release_p50_ms", round(median(times), 1), "ms", n=rounds, target="<= 150")
    figures.details["click_to_release"] = (
        "from the POST of the approval to the result of the repeated call; the call is not held"
    )


def _elicitation(policy: Path, suite: Path, figures: Figures) -> None:
    checks, details = elicitation(policy, suite)
    figures.checks += checks
    figures.details["elicitation"] = details


def _held(policy: Path, figures: Figures, progress: Progress) -> None:
    checks, details = held_calls(policy, progress)
    figures.checks += checks
    figures.details["held"] = details


def _line(number: int, rng: random.Random, start: float) -> str:
    action = rng.choices(("allow", "redact", "ask", "block"), (90, 2, 5, 3))[0]
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(start + number * 0.1))
    code, principal = f"reason_{rng.randrange(30)}", f"p{rng.randrange(200)}"
    fields = {
        "event": "guard.decision",
        "decision_id": f"{number:032x}",
        "at": f"{at}.000+00:00",
        "principal": principal,
        "tenant": "default",
        "session": f"s{number // 40}",
        "server": "127.0.0.1:8080",
        "tool": f"tool_{int(rng.paretovariate(0.6)) % 300}",
        "role": "send",
        "action": action,
        "enforced": action,
        "reasons": [{"code": code, "rule": "r", "action": action, "detail": "why"}],
        "milliseconds": round(rng.lognormvariate(-1, 0.7), 3),
        "log": "L",
        "n": number,
    }
    return json.dumps(fields, separators=(",", ":")) + "\n"


@contextmanager
def _standing(log: Path, rig: Rig) -> Iterator[int]:
    """Serve a console over a log that no guard writes; yield its port."""
    from guard.adapters.redis.embedded import EmbeddedRedis

    people = rig.directory / "people.toml"
    people.write_text(PEOPLE, encoding="utf-8")
    port = free_port()
    with EmbeddedRedis() as redis:
        command = ("-m", "guard", "console", f"127.0.0.1:{port}", "--audit", str(log))
        more = ("--redis", redis.url, "--label-key", str(rig.directory / "label.key"))
        rig.start("console", *command, *more, "--people", str(people))
        wait_for(port)
        yield port


def _long_log(figures: Figures, decisions: int, rounds: int = 12) -> None:
    """Times of whole pages over a long log, each with filters and far back."""
    rng = random.Random(7)  # noqa: S311  (chosen again from the seed)
    with Rig() as rig:
        log = rig.directory / "long.jsonl"
        start = time.time() - decisions * 0.1  # noqa: TID251  (the log ends now)
        with log.open("w", encoding="utf-8") as file:
            file.writelines(_line(n, rng, start) for n in range(decisions))
        began = time.perf_counter()
        index = DecisionIndex(log)
        while index.take_in():
            pass
        took = time.perf_counter() - began
        index.close()
        with _standing(log, rig) as port:
            times, pages = _paged(port, rng, decisions, rounds)
        figures.details["pages"] = {
            "decisions": decisions,
            "lines_per_second_taken_in": round(decisions / took),
            "index_bytes": index.path.stat().st_size,
            "store": "SQLite beside the log, WAL, one index per filter, counters per hour",
            "p50_ms_by_page": pages,
        }
    value = round(quantiles(times, n=20)[18], 1)
    full = decisions >= DECISIONS
    figures.add(
        "page_p95_ms",
        value if full else None,
        "ms",
        n=len(times),
        target="<= 300",
        reason=None if full else f"{value} ms over {decisions} decisions only",
    )


def _paged(
    port: int, rng: random.Random, decisions: int, rounds: int
) -> tuple[list[float], dict[str, float]]:
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        wanted = {
            "now": "/",
            "blocked": "/?enforced=block",
            "tool": f"/?tool=tool_{rng.randrange(300)}",
            "tool and verdict": f"/?tool=tool_{rng.randrange(5)}&enforced=ask",
            "principal": f"/?principal=p{rng.randrange(200)}&enforced=block",
            "far back": f"/?before={rng.randrange(1000, decisions)}",
            "nothing": f"/?tool=tool_1&principal=p{rng.randrange(200)}&enforced=none",
            "session": f"/sessions?session=s{rng.randrange(decisions // 40)}",
            "a principal": f"/sessions?principal=p{rng.randrange(200)}",
            "sessions": "/sessions",
            "decision": f"/decisions/{rng.randrange(decisions):032x}",
            "chart": "/chart.svg",
            "record": "/record",
        }
        for name, path in wanted.items():
            began = time.perf_counter()
            status, _ = _api(port, path)
            if status != http.client.OK:
                raise GuardError(f"{path} answered {status}")
            times.setdefault(name, []).append((time.perf_counter() - began) * 1000)
    every = [one for found in times.values() for one in found]
    return every, {name: round(median(found), 1) for name, found in times.items()}


def _feed(figures: Figures, events: int = 20_000) -> None:
    """Append lines to a log as fast as that goes; one browser reads all, one never reads."""
    rng = random.Random(8)  # noqa: S311  (chosen again from the seed)
    with Rig() as rig:
        log = rig.directory / "feed.jsonl"
        log.write_text(_line(0, rng, 0), encoding="utf-8")
        with _standing(log, rig) as port:
            slow = _follower(port)
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            reader = _follower(port)
            seen: list[int] = []
            thread = threading.Thread(target=_follow, args=(reader, events, seen), daemon=True)
            thread.start()
            time.sleep(1)
            began = time.perf_counter()
            with log.open("a", encoding="utf-8") as file:
                for number in range(1, events + 1):
                    file.write(_line(number, rng, 0))
                    if number % 50 == 0:
                        file.flush()
                        time.sleep(0.02)
            thread.join(120)
            took = time.perf_counter() - began
            dropped = _was_dropped(slow, log, rng, events)
            reader.close()
    lost = events - len(seen)
    ordered = seen == sorted(set(seen))
    figures.details["feed"] = {
        "events": events, "lost": lost, "in_order_once": ordered, "slow_browser_dropped": dropped,
    }  # fmt: skip
    whole = lost == 0 and ordered
    figures.add(
        "feed_events_per_second",
        round(len(seen) / took) if whole else None,
        "1/s",
        n=events,
        target=">= 500",
        reason=None if whole else f"{lost} of {events} were lost",
    )


def _follower(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), 60)
    head = f"GET /feed HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {SECRET}\r\n\r\n"
    client.sendall(head.encode())
    return client


def _follow(client: socket.socket, events: int, seen: list[int]) -> None:
    waiting = b""
    while len(seen) < events and (data := client.recv(1 << 20)):
        *lines, waiting = (waiting + data).split(b"\n")
        seen += [int(one[4:]) for one in lines if one.startswith(b"id: ")]


def _was_dropped(slow: socket.socket, log: Path, rng: random.Random, first: int) -> bool:
    """Return whether a browser that never read is sent away in time; more is written until then."""
    for round_ in range(100):
        with log.open("a", encoding="utf-8") as file:
            file.writelines(_line(first + 1 + round_ * 500 + n, rng, 0) for n in range(500))
        time.sleep(0.1)
    slow.settimeout(10)
    with closing(slow), suppress(TimeoutError):
        read = b""
        while data := slow.recv(1 << 20):
            read = (read + data)[-100:]
        return True
    return False


def _routes(policy: Path, figures: Figures) -> None:
    """Walk all routes of a running console as nobody, as a viewer, and from another site."""
    from guard.adapters.redis.store import RedisSessionStore
    from guard.console.access import Access, Role
    from guard.console.app import Console
    from guard.console.server import further_pages
    from guard.provenance.seal import KEY_BYTES, Seal

    with stage(policy) as on, tempfile.TemporaryDirectory() as place:
        index = DecisionIndex(Path(place) / "none.jsonl")
        nothing: Any = None
        # Nothing is asked of it: only the table of routes is made.
        state = RedisSessionStore.at("redis://127.0.0.1:1"), Seal(bytes(KEY_BYTES))
        works = (nothing, nothing)
        parts = partial(further_pages, works, state, (index, nothing), nothing, time.monotonic)
        pages = Console(index, nothing, Access({}, time.monotonic), (), parts=parts).pages
        # To sign in is for everybody; each try is counted.
        kept = [page for page in pages if page.needs not in {"public", "counted"}]
        denied = 0
        for page in kept:
            path = re.sub(r"\{\w+\}", "x", page.path)
            answers = [ask(on.console, page.method, path)[0]]
            answers.append(
                ask(on.console, page.method, path, headers={"authorization": "Bearer no"})[0]
            )
            if page.needs is not Role.VIEWER:
                headers = {"authorization": f"Bearer {VIEWER}"}
                answers.append(ask(on.console, page.method, path, headers=headers)[0])
            # Secrets that are not known are soon too many in a minute.
            denied += all(status in {401, 403, 429} for status in answers)
    figures.add("routes_denied_by_default", denied, "routes", n=len(kept), target=f"== {len(kept)}")


def _tampering(figures: Figures) -> None:
    with tempfile.TemporaryDirectory() as place:
        found = sum(one.found for one in attempts(Path(place), 100))
    figures.add("tamper_found", found, "attempts", n=100, target="== 100")


def _time_travel(policy: Path, figures: Figures) -> None:
    """Replay a recording under the policy in force and under one whose asks are blocks."""
    found = travelled(policy, 3000)
    figures.add(
        "timetravel_calls_per_second", found["calls_per_second"], "1/s", n=found["replayed"]
    )
    figures.details["time_travel"] = {
        "each_call_is_judged": "by both policies, on fresh state, one tenant after the other",
        **{name: found[name] for name in ("calls", "flips", "kinds", "compared", "as_recorded")},
    }


def _ratio(policy: Path, figures: Figures, blocks: int, progress: Progress) -> None:
    check, costs = compare_console(policy, PEOPLE, SECRET, blocks, progress)
    figures.add(WITH_CONSOLE, **check)
    figures.details["console_costs"] = costs
    try:
        check, costs = compare_spans(policy, blocks, progress)
    except ImportError:
        reason = "OpenTelemetry is not installed: pip install agent-egress-guard[otel]"
        check, costs = {"value": None, "unit": "ratio", "reason": reason}, {}
    figures.add(WITH_SPANS, **check)
    figures.details["spans_cost"] = costs


class BrowserSlowError(GuardError):
    """The browser was not done in time."""


def browse(
    modules: Path | None, asked: dict[str, Any], seconds: float = 900.0
) -> dict[str, Any] | str:
    """Have Chromium view pages; return what it found, or why it could not.

    Args:
        modules: directory that holds ``node_modules`` with ``playwright-core`` and ``axe-core``.
        asked: what ``browse.mjs`` takes.
        seconds: after which it is ended.

    Raises:
        BrowserSlowError: it was ended.
        GuardError: the browser's script failed.
    """
    node, chromium = shutil.which("node"), shutil.which("chromium")
    if modules is None or not (modules / "node_modules" / "playwright-core").is_dir():
        return "playwright-core and axe-core are not installed: npm install, --browser-modules"
    if node is None or chromium is None:
        return "node or chromium is not installed"
    variables = {"BROWSER_MODULES": str(modules.resolve()), "CHROMIUM": chromium}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profiles,
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as told,
    ):
        # Files, not pipes: a Chromium that outlived its driver would hold a pipe open.
        process = subprocess.Popen(  # noqa: S603  (found on the path)
            [node, str(BROWSE)],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=told,
            env={**child_environment([]), **variables},
            start_new_session=True,
        )
        try:
            given = {"profiles": profiles, "seconds": seconds, **asked}
            process.communicate(json.dumps(given).encode(), seconds + 30)
        except subprocess.TimeoutExpired as error:
            raise BrowserSlowError("the browser's driver did not end") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        told.seek(0)
        if process.returncode:
            why = told.read().decode("utf-8", "replace")[-800:]
            kind = BrowserSlowError if process.returncode == SLOW else GuardError
            raise kind(f"the browser failed: {why}")
        found: dict[str, Any] = json.loads(said.read().splitlines()[-1])
    return found


def play_hostile(on: Stage, texts: list[str]) -> tuple[list[str], int]:
    """Send hostile texts through the guard in every field an agent chooses.

    Returns:
        The pages that show them, and how many texts stand in one of these pages as text.
    """
    decisions: list[str] = []
    for number, text in enumerate(texts):
        to = f"s{number}@outside.test"
        answer = call(on.guard, to, text, session=text)
        decisions.append(_decision(answer))
        if number % 4 == 0:
            call(on.guard, f"{text}@outside.test", text, tool=text[:100], session=text)
    pages = list(PAGES)
    pages += _drafted(on, texts[:: max(1, len(texts) // 10)])
    _, body = _api(on.console, "/api/decisions")
    ids = [one["id"] for one in json.loads(body)["decisions"]]
    while ids:
        pages.append(f"/?before={ids[-1]}")
        _, body = _api(on.console, f"/api/decisions?before={ids[-1]}")
        ids = [one["id"] for one in json.loads(body)["decisions"]]
    pages += [f"/approvals/default/{one}" for one in decisions if one]
    pages += [f"/decisions/{one}" for one in decisions[::10] if one]
    pages += ["/sessions?" + urlencode({"session": text}) for text in texts[::20]]
    shown = b"".join(_api(on.console, quote(page, safe="/?=&%+"))[1] for page in pages)
    # A mark of each text that survives escaping: its decision is on a page of its own.
    return pages, sum(one.encode() in shown for one in decisions if one)


def _drafted(on: Stage, texts: list[str]) -> list[str]:
    """Keep hostile texts as drafts of the policy; return the pages that show them."""
    headers = {
        "authorization": f"Bearer {SECRET}",
        "content-type": "application/x-www-form-urlencoded",
    }
    _, body = _api(on.console, "/policies")
    [file] = re.findall(r'name="file" value="([^"]*)"|edit[?]file=([^"]*)"', body.decode())[:1]
    name = unquote_plus(file[0] or file[1])
    for text in texts:
        form = urlencode({"file": name, "text": f"{text}:\n  - '{text}'\n", "draft": ""})
        ask(on.console, "POST", "/policies/drafts", form.encode(), headers)
    _, body = _api(on.console, "/policies")
    return re.findall(r'href="(/policies/drafts/[0-9a-f]+)"', body.decode())


def _browser(policy: Path, figures: Figures, modules: Path | None) -> None:
    texts = hostile_texts()[::3]
    with stage(policy) as on:
        pages, shown = play_hostile(on, texts)
        base = {"url": on.url, "secret": SECRET}
        hostile = browse(modules, {**base, "pages": pages, "axe": False, "control": texts})
        some = [*PAGES, *[p for p in pages if "/approvals/" in p][:2]]
        some += [p for p in pages if "/drafts/" in p][:1]
        some += [*[p for p in pages if "/decisions/" in p][:1], "/nothing", "/sign-in"]
        axe = browse(modules, {**base, "pages": some, "axe": True})
    if isinstance(hostile, str) or isinstance(axe, str):
        for name in IDS["browser"]:
            figures.add(name, None, "", reason=str(hostile if isinstance(hostile, str) else axe))
        return
    figures.add("axe_violations", len(axe["violations"]), "violations", n=axe["opened"], target="0")
    figures.add("xss_executed", hostile["executed"], "texts", n=len(texts), target="0 of >= 200")
    figures.details["browser"] = {
        "texts": len(texts),
        "texts_on_viewed_pages": shown,
        "pages_viewed": hostile["viewed"],
        "requests_to_other_origins": len(hostile["foreign"]),
        "executed_where_the_same_texts_are_shown_as_markup": hostile["control"],
        "axe": axe["violations"][:20],
    }
