"""Messages between the workers of one guard and their supervisor, which has one admin port.

Metrics are added up, prompts passed on, messages sent into streams that another worker has open,
and every worker knows which tools a server offers before a listing with a new name is released.

Each worker answers on a Unix socket in the directory of the run, which only the guard's user can
enter; the supervisor asks them and serves the admin address.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from guard.core import metrics
from guard.core.errors import MessageError
from guard.processes.workers import control_socket, control_sockets, last_words
from guard.runtime.admin_port import (
    METRICS_PATH,
    PROMPTS_PATH,
    HealthReport,
    prompt_length,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from wsgiref.types import WSGIEnvironment

    from guard.memory.pins import ToolOffers
    from guard.pipeline.handlers import Enforcement


ANSWER_SECONDS: Final = 3.0
_GAUGES: Final = {
    "guard_process_start_time_seconds": "min",
    "guard_process_max_fds": "max",
    **{
        metric.name: metric.combined
        for metric in metrics.declared()
        if isinstance(metric, metrics.Gauge | metrics.Share)
    },
}
"""Ways to combine gauges of several workers; those missing here are added up, like all counters."""

SampleKey = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels of a sample."""


Families = dict[str, tuple[str, str, dict[SampleKey, float]]]
"""Type, help and samples of each family, by its name."""
_COMBINED: Final[dict[str, Callable[[float, float], float]]] = {
    "sum": lambda one, other: one + other,
    "max": max,
    "min": min,
}


def add_families(total: Families, other: Families, *, lasting: bool = False) -> None:
    """Combine the metrics of one worker with those of others.

    Args:
        total: of the others; changed.
        other: of the worker.
        lasting: only what still holds when the worker has ended: what it has counted.
    """
    for name, (kind, text, samples) in other.items():
        if not lasting or kind != "gauge":
            values = total.setdefault(name, (kind, text, {}))[2]
            combine = _COMBINED[_GAUGES.get(name, "sum")]
            for key, value in samples.items():
                values[key] = combine(values[key], value) if key in values else value


def read(text: str) -> Families:
    """Return the metrics of a worker, as it shows them to a scrape."""
    return {
        family.name: (
            family.type,
            family.documentation,
            {(one.name, tuple(sorted(one.labels.items()))): one.value for one in family.samples},
        )
        for family in text_string_to_metric_families(text)
    }


class WorkerReports(Collector):
    """Reports of the workers, for the admin port's threads.

    Args:
        workers: number and pulse file of each that serves.
        count: how many there are meant to be.
    """

    def __init__(self, workers: Callable[[], list[tuple[int, Path]]], count: int) -> None:
        self.registry = CollectorRegistry()
        self._workers = workers
        self._count = count
        self._lock = threading.Lock()
        self._last: dict[Path, Families] = {}
        self._gone: set[Path] = set()
        self._ended: Families = {}
        """Counts of workers that have ended; without it counters would decrease."""
        self.registry.register(self)

    def describe(self) -> list[Family]:
        """Name no family in advance: nobody need be asked when it is registered."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield every family, added up over the workers."""
        for _, pulse in self._workers():
            # One that does not answer is shown as it was: its counters must not go back.
            with suppress(OSError, ValueError, http.client.HTTPException):
                status, body = ask(pulse, "GET", METRICS_PATH)
                if status == HTTPStatus.OK:
                    self._keep(pulse, read(body.decode()))
        total: Families = {}
        with self._lock:
            for families in (self._ended, *self._last.values()):
                add_families(total, families)
        for name, (kind, text, samples) in total.items():
            family = Family(name, text, kind)
            for (sample, labels), value in samples.items():
                family.add_sample(sample, dict(labels), value)
            yield family

    def _keep(self, pulse: Path, families: Families) -> None:
        with self._lock:
            if pulse not in self._gone:
                self._last[pulse] = families

    def ended(self, pulse: Path) -> None:
        """Keep what a worker has counted that has ended: its last words, or what it last said."""
        with suppress(OSError, ValueError):
            self._keep(pulse, read(last_words(pulse).read_text(encoding="utf-8")))
        with self._lock:
            self._gone.add(pulse)
            last = self._last.pop(pulse, None)
            if last is not None:
                add_families(self._ended, last, lasting=True)

    def health(self) -> HealthReport:
        """Return whether calls are decided: some worker serves, and none of those fails closed."""
        stages = {f"worker {number}": "not up" for number in range(self._count)}
        failing = False
        ready = 0
        for number, pulse in self._workers():
            name = f"worker {number}"
            try:
                status, body = ask(pulse, "GET", "/readyz")
                found = json.loads(body)["stages"]
            except (OSError, ValueError, KeyError, http.client.HTTPException):
                stages[name], failing = "does not answer", True
                continue
            del stages[name]
            ready += status == HTTPStatus.OK
            failing = failing or status != HTTPStatus.OK
            stages.update({f"{name}: {stage}": text for stage, text in found.items()})
        return HealthReport(bool(ready) and not failing, stages)

    def prompt(self, environ: WSGIEnvironment) -> tuple[HTTPStatus, dict[str, object]]:
        """Hand a prompt to a worker, which checks the credential; return its answer."""
        method = str(environ.get("REQUEST_METHOD", ""))
        try:
            length = prompt_length(environ) if method == "POST" else 0
        except MessageError as error:
            return HTTPStatus(error.status), {"error": str(error)}
        body = environ["wsgi.input"].read(length) if length else b""
        headers = {"Authorization": str(environ.get("HTTP_AUTHORIZATION", ""))}
        for _, pulse in self._workers():
            with suppress(OSError, ValueError, http.client.HTTPException):
                status, answer = ask(pulse, method, PROMPTS_PATH, body, headers)
                return HTTPStatus(status), json.loads(answer)
        return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "no worker serves"}


class _Connection(http.client.HTTPConnection):
    def __init__(self, pulse: Path) -> None:
        super().__init__("worker", timeout=ANSWER_SECONDS)
        self._path = control_socket(pulse)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_SECONDS)
        self.sock.connect(str(self._path))


def ask(
    pulse: Path,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Return status and body of a worker's answer.

    Raises:
        OSError, http.client.HTTPException: it did not answer.
    """
    connection = _Connection(pulse)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


STREAMS_PATH: Final = "/streams"
OFFERS_PATH: Final = "/offers"
Stream = tuple[str, str, str]
"""Listener, principal and session of an open event stream."""


class Siblings:
    """The other workers.

    Args:
        pulse: this worker's pulse file; the others' lie beside it.
    """

    def __init__(self, pulse: Path) -> None:
        self._pulse = pulse
        self._tasks: set[asyncio.Task[bool]] = set()

    def send_into(self, stream: Stream, message: bytes) -> None:
        """Have a message sent into a stream, by whoever has it open; nobody waits for that."""
        task = asyncio.ensure_future(asyncio.to_thread(self._sent, stream, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _sent(self, stream: Stream, message: bytes) -> bool:
        fields = {"stream": list(stream), "message": base64.b64encode(message).decode()}
        for pulse in control_sockets(self._pulse):
            with suppress(OSError, ValueError, KeyError, http.client.HTTPException):
                if _asked(pulse, STREAMS_PATH, fields)["delivered"]:
                    return True
        return False

    async def offer(self, upstream: str, names: Sequence[str]) -> None:
        """Have every other worker know which tools a server offers.

        Raises:
            OSError: one that runs does not answer.
        """
        await asyncio.to_thread(self._offered, upstream, names)

    def _offered(self, upstream: str, names: Sequence[str]) -> None:
        fields = {"upstream": upstream, "names": list(names)}
        for pulse in control_sockets(self._pulse):
            # One that has ended answers no call; its successor reads what is pinned.
            with suppress(ConnectionRefusedError, FileNotFoundError):
                try:
                    _asked(pulse, OFFERS_PATH, fields)
                except (http.client.HTTPException, ValueError) as error:
                    raise OSError("a worker does not take in what is offered") from error


def _asked(pulse: Path, path: str, fields: Mapping[str, object]) -> dict[str, Any]:
    status, answer = ask(pulse, "POST", path, json.dumps(fields).encode())
    if status != HTTPStatus.OK:
        raise OSError(f"a worker answers with status {status}")
    found: dict[str, Any] = json.loads(answer)
    return found


def posts(
    enforcement: Enforcement,
    offers: ToolOffers,
    loop: asyncio.AbstractEventLoop,
    seconds: float,
) -> dict[str, Callable[[bytes], Mapping[str, object]]]:
    """Return what takes in what siblings say, by path, on threads of the admin port.

    Args:
        enforcement: has the open event streams.
        offers: of this worker.
        loop: of the worker, on which both are changed.
        seconds: how long that may take.
    """

    async def send(fields: dict[str, Any]) -> dict[str, object]:
        listener, principal, session = map(str, fields["stream"])
        message = base64.b64decode(fields["message"])
        return {"delivered": enforcement.send_into((listener, principal, session), message)}

    async def note(fields: dict[str, Any]) -> dict[str, object]:
        offers.note(str(fields["upstream"]), [str(name) for name in fields["names"]])
        return {}

    def on_loop(
        take: Callable[[dict[str, Any]], Any],
    ) -> Callable[[bytes], Mapping[str, object]]:
        def taken(body: bytes) -> Mapping[str, object]:
            work = take(json.loads(body))
            found: Mapping[str, object] = asyncio.run_coroutine_threadsafe(work, loop).result(
                seconds
            )
            return found

        return taken

    return {STREAMS_PATH: on_loop(send), OFFERS_PATH: on_loop(note)}
