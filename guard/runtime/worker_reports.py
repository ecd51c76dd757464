"""Messages between the workers of one guard and their supervisor, which has one admin port.

Metrics are added up, prompts passed on, messages sent into streams that another worker has open,
and every worker knows which tools a server offers before a listing with a new name is released.

Each worker answers on a Unix socket in the directory of the run, which only the guard's user can
enter; questions and answers are pickled.  The supervisor asks them and serves the admin address.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import threading
from contextlib import suppress
from http import HTTPStatus
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from guard.core import metrics
from guard.core.errors import MessageError
from guard.processes.workers import control_socket, control_sockets, last_words
from guard.runtime.admin_port import HealthReport, prompt_length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from wsgiref.types import WSGIEnvironment

    from guard.memory.pins import ToolOffers
    from guard.pipeline.handlers import Enforcement


ANSWER_SECONDS: Final = 3.0
BACKLOG: Final = 64
"""Questions that may wait for a worker."""
FAMILIES, HEALTH, PROMPT, SEND, NOTE = "families", "health", "prompt", "send", "note"
"""Questions to a worker."""
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


def read(families: Iterable[Family]) -> Families:
    """Return the metrics of a worker by name, with their samples by name and labels."""
    return {
        one.name: (
            one.type,
            one.documentation,
            {(x.name, tuple(sorted(x.labels.items()))): x.value for x in one.samples},
        )
        for one in families
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
            with suppress(OSError):
                self._keep(pulse, read(ask(pulse, FAMILIES)))
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
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            said = pickle.loads(last_words(pulse).read_bytes())  # noqa: S301  (from our worker)
            self._keep(pulse, read(said))
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
                report: HealthReport = ask(pulse, HEALTH)
            except OSError:
                stages[name], failing = "does not answer", True
                continue
            del stages[name]
            ready += report.ready
            failing = failing or not report.ready
            stages.update({f"{name}: {stage}": text for stage, text in report.stages.items()})
        return HealthReport(bool(ready) and not failing, stages)

    def prompt(self, environ: WSGIEnvironment) -> tuple[HTTPStatus, dict[str, object]]:
        """Hand a prompt to a worker, which checks the credential; all know what it notes."""
        method = str(environ.get("REQUEST_METHOD", ""))
        try:
            length = prompt_length(environ) if method == "POST" else 0
        except MessageError as error:
            return HTTPStatus(error.status), {"error": str(error)}
        passed = {
            "REQUEST_METHOD": method,
            "CONTENT_LENGTH": str(length),
            "HTTP_AUTHORIZATION": str(environ.get("HTTP_AUTHORIZATION", "")),
            "wsgi.input": io.BytesIO(environ["wsgi.input"].read(length) if length else b""),
        }
        for _, pulse in self._workers():
            with suppress(OSError):
                answer: tuple[HTTPStatus, dict[str, object]] = ask(pulse, PROMPT, passed)
                return answer
        return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "no worker serves"}


def ask(pulse: Path, question: str, *arguments: object) -> Any:
    """Return a worker's answer.

    Raises:
        OSError: it did not answer.
    """
    with Client(str(control_socket(pulse)), "AF_UNIX") as connection:
        connection.send((question, arguments))
        if not connection.poll(ANSWER_SECONDS):
            raise TimeoutError("a worker does not answer in time")
        try:
            return connection.recv()
        except EOFError as error:
            raise OSError("a worker gives no answer") from error


class AnswerServer:
    """Answers the supervisor and the other workers, on threads of its own.

    Args:
        pulse: this worker's pulse file; the socket lies beside it.
        answers: function of each question; if it raises, there is no answer.
    """

    def __init__(self, pulse: Path, answers: Mapping[str, Callable[..., Any]]) -> None:
        self.pulse = pulse
        self._answers = answers
        self._listener = Listener(str(control_socket(pulse)), "AF_UNIX", backlog=BACKLOG)
        threading.Thread(target=self._serve, name="guard-answers", daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection, suppress(Exception):
            question, arguments = connection.recv()
            connection.send(self._answers[question](*arguments))

    def close(self) -> None:
        """Take no more questions."""
        self._listener.close()


class Siblings:
    """The other workers.

    Args:
        pulse: this worker's pulse file; the others' lie beside it.
    """

    def __init__(self, pulse: Path) -> None:
        self._pulse = pulse
        self._tasks: set[asyncio.Task[None]] = set()

    def send_into(self, stream: tuple[str, str, str], message: bytes) -> None:
        """Have a message sent into a stream, by whoever has it open; nobody waits for that."""
        task = asyncio.ensure_future(asyncio.to_thread(self._send, stream, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, stream: tuple[str, str, str], message: bytes) -> None:
        for pulse in control_sockets(self._pulse):
            with suppress(OSError):
                if ask(pulse, SEND, stream, message):
                    return

    async def offer(self, upstream: str, names: Sequence[str]) -> None:
        """Have every other worker know which tools a server offers.

        Raises:
            OSError: one that runs does not answer.
        """
        await asyncio.to_thread(self._offer, upstream, names)

    def _offer(self, upstream: str, names: Sequence[str]) -> None:
        for pulse in control_sockets(self._pulse):
            # One that has ended answers no call; its successor reads what is pinned.
            with suppress(ConnectionRefusedError, FileNotFoundError):
                ask(pulse, NOTE, upstream, tuple(names))


def sibling_answers(
    enforcement: Enforcement,
    offers: ToolOffers,
    loop: asyncio.AbstractEventLoop,
    seconds: float,
) -> dict[str, Callable[..., Any]]:
    """Return what takes in what siblings say, by question, on threads.

    Args:
        enforcement: has the open event streams.
        offers: of this worker.
        loop: of the worker, on which both are changed.
        seconds: how long that may take.
    """

    def on_loop(take: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*arguments: object) -> Any:
            return take(*arguments)

        def taken(*arguments: object) -> Any:
            return asyncio.run_coroutine_threadsafe(called(*arguments), loop).result(seconds)

        return taken

    return {SEND: on_loop(enforcement.send_into), NOTE: on_loop(offers.note)}
