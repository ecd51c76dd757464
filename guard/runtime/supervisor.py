"""The supervisor: owns the embedded Redis and the listening sockets, and keeps the workers running.

A worker is a process of its own because nothing inside a Python process can stop Python code
that loops.  State lives in Redis, so a replaced worker forgets nothing that was decided; sockets
live here, so it loses no connection that it has not accepted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.credentials.key_ring import open_signed_log
from guard.credentials.label_key import fallback_key, label_key_path
from guard.environment import say
from guard.processes.child_process import start_python
from guard.processes.listening_ports import (
    ADMIN,
    Sockets,
    close_sockets,
    open_sockets,
)
from guard.processes.notes import RunNote
from guard.processes.workers import (
    DetectionFiles,
    Launch,
    Replacement,
    Worker,
    WorkerSlot,
    ready_file,
    ready_line,
)
from guard.settings import EMBEDDED, MEMORY, Durability, Settings
from guard.store.embedded import DirectoryInUseError, EmbeddedRedis

if TYPE_CHECKING:
    import subprocess
    from types import FrameType

    from guard.core.model import Json
    from guard.runtime.admin_port import AdminServer
    from guard.runtime.worker_reports import WorkerReports

POLL_SECONDS: Final = 0.05
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
COMPANION_SECONDS: Final = 10.0
"""Pause before a companion process that ended is started again."""


@dataclass(slots=True)
class Companion:
    """A process beside the workers: no call waits for it."""

    module: str
    event: str
    """Audit line of its unexpected end."""
    process: subprocess.Popen[bytes] | None = None
    start_from: float = 0.0

    @property
    def runs(self) -> bool:
        """Return whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def end(self) -> None:
        """End it and wait for that."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


class Supervisor:
    """Runs the workers until told to stop.

    Args:
        settings: of ``guard run``, complete.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._signals: set[int] = set()
        """Signals that have come and were not followed yet."""
        self._redis: EmbeddedRedis | None = None
        self._slots: list[WorkerSlot] = []
        self._sockets: list[Sockets] = []
        self._to_replace: list[WorkerSlot] = []
        self._replacing: WorkerSlot | None = None
        self._is_ready = False
        self._reports: WorkerReports | None = None
        self._admin: AdminServer | None = None
        self._console = Companion("guard.console.server", "guard.console_lost")
        self._detector = Companion("guard.runtime.detector", "guard.detector_lost")

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; return the exit code."""
        for number in (*_STOPS, signal.SIGHUP, signal.SIGUSR2):
            signal.signal(number, self._on_signal)
        self._sockets = open_sockets(self._settings)
        directory = Path(tempfile.mkdtemp(prefix="guard-run-"))
        note: RunNote | None = None
        try:
            url = self._settings.redis
            if url == EMBEDDED:
                self._redis = self._embedded(directory)
                url = self._redis.url
            note = self._leave_note(directory, url)
            self._begin(directory, url)
            return self._watch(directory, url)
        finally:
            close_sockets(self._sockets)
            if note is not None:
                note.remove()
            if self._admin is not None:
                self._admin.close()
            self._console.end()
            self._detector.end()
            if self._redis is not None:
                self._redis.stop()
            for path in (self._settings.decisions, *self._settings.listening_sockets):
                if path is not None:
                    path.unlink(missing_ok=True)
            shutil.rmtree(directory, ignore_errors=True)

    def _embedded(self, directory: Path) -> EmbeddedRedis:
        """Return the Redis of this run, begun, with the state that an earlier one kept.

        Raises:
            GuardError: it cannot be started, or another guard uses the directory that was named.
        """
        data = self._settings.data or _beside_key(self._settings.label_key, directory)
        if data == MEMORY:
            data = None
        fsync = self._settings.durability is Durability.FSYNC
        if fsync and data is None:
            raise GuardError(
                "durability `fsync` needs a directory for the embedded redis; name it with --data"
            )
        try:
            redis = EmbeddedRedis(data_dir=data, fsync=fsync).begin()
        except DirectoryInUseError as error:
            if self._settings.data is not None or fsync:
                raise
            say(f"{error}; this run keeps its state in memory")
            data, redis = None, EmbeddedRedis().begin()
        self._settings = self._settings.model_copy(update={"data": data})
        return redis

    def _leave_note(self, directory: Path, url: str) -> RunNote:
        """Say where the state is, to people and to commands of the same user."""
        key = self._settings.label_key or fallback_key(directory)
        durability = self._settings.durability.value
        files = (key, self._settings.audit, self._settings.audit_key)
        label, audit, signing = (str(one.resolve()) if one else "" for one in files)
        forward = next(iter(self._settings.forward), "")
        note = RunNote(os.getpid(), url, label, durability, audit, signing, forward)
        written = note.write()
        if self._redis is not None:
            found = "`guard approvals grant` finds it" if written else f"pass --redis {url}"
            kept = f", kept in {self._settings.data}" if self._settings.data else ""
            say(f"the state is at {url}{kept}; {found}")
        return note

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._signals.add(number)

    def _begin(self, directory: Path, url: str) -> None:
        """Make the workers' places, and the admin port where no single worker serves it."""
        several = self._settings.workers > 1
        self._slots = [
            WorkerSlot(
                number,
                directory,
                start=lambda launch: self._start(launch, directory, url),
                heartbeat=self._settings.heartbeat,
                drain=self._settings.drain,
                died=lambda fields: self._note("guard.worker_lost", fields),
                retired=self._retired,
                alone=not several,
            )
            for number in range(self._settings.workers)
        ]
        if several:
            from guard.runtime.admin_port import AdminServer
            from guard.runtime.worker_reports import WorkerReports

            self._reports = WorkerReports(self._serving, len(self._slots))
            [listener] = self._sockets[0].pop(ADMIN, [None])
            self._admin = AdminServer(
                *self._settings.admin_address,
                self._reports.registry,
                self._reports.health,
                self._reports.prompt,
                listener=listener,
            )

    def _serving(self) -> list[tuple[int, Path]]:
        """Return number and pulse file of each worker that serves."""
        return [
            (slot.number, slot.current.path)
            for slot in self._slots
            if slot.current is not None and slot.current.serves
        ]

    def _retired(self, worker: Worker) -> None:
        if self._reports is not None:
            self._reports.ended(worker.path)

    def _watch(self, directory: Path, url: str) -> int:
        """Look after every process until all have ended; return the exit code."""
        while self._signals.isdisjoint(_STOPS):
            for slot in self._slots:
                slot.tend()
                if slot.failed is not None:
                    self._stop_workers()
                    return slot.failed
                if not slot.has_served:
                    break  # What the first one makes (keys, an authority), the others find.
            self._keep_redis()
            self._keep_companions(directory, url)
            self._pass_on_hangup()
            self._replace_workers()
            self._announce()
            time.sleep(POLL_SECONDS)
        return self._stop_workers()

    def _stop_workers(self) -> int:
        """End every worker in order; return the exit code of a stop."""
        # What still waits is refused, as soon as the workers stop listening as well.
        close_sockets(self._sockets)
        for slot in self._slots:
            slot.stop()
        running = list(self._slots)
        while running := [slot for slot in running if not slot.stopped()]:
            time.sleep(POLL_SECONDS)
        codes = set[int]().union(*(slot.exit_codes for slot in self._slots))
        return 0 if codes <= {0, -signal.SIGTERM} else 1

    def _pass_on_hangup(self) -> None:
        """Tell the processes that own policy and audit log of a SIGHUP."""
        if signal.SIGHUP not in self._signals:
            return
        self._signals.discard(signal.SIGHUP)
        for slot in self._slots:
            slot.hang_up()
        if self._console.process is not None and self._console.runs:
            self._console.process.send_signal(signal.SIGHUP)

    def _replace_workers(self) -> None:
        """Replace one worker after the other, as SIGUSR2 asks: each takes in what is new."""
        if signal.SIGUSR2 in self._signals:
            self._signals.discard(signal.SIGUSR2)
            self._to_replace = list(self._slots)
        if self._replacing is not None:
            if self._replacing.replacement is Replacement.GOING_ON:
                return
            if self._replacing.replacement is Replacement.FAILED:
                self._to_replace.clear()
                self._note("guard.worker_kept", {"worker": self._replacing.number})
            elif not self._to_replace:
                self._note("guard.workers_replaced", {"workers": len(self._slots)})
            self._replacing = None
        if self._to_replace:
            self._replacing = self._to_replace.pop(0)
            self._replacing.begin_replacement()

    def _announce(self) -> None:
        """Say that the guard is ready once every worker serves; one worker says so itself."""
        serving = self._serving()
        is_ready = len(serving) == len(self._slots)
        if is_ready and not self._is_ready and self._admin is not None:
            with suppress(OSError, ValueError):
                found = json.loads(ready_file(serving[0][1]).read_text(encoding="utf-8"))
                admin = (self._admin.host, self._admin.port)
                sys.stderr.write(ready_line(found["listening"], admin, found["policy"]) + "\n")
                sys.stderr.flush()
        self._is_ready = is_ready

    def _start(self, launch: Launch, directory: Path, url: str) -> subprocess.Popen[bytes]:
        sockets = self._sockets[launch.number]
        kept = self._settings.redis != EMBEDDED or self._settings.data is not None
        settings = self._settings.model_copy(
            update={
                "restarts": launch.restarts,
                "pulse": launch.pulse,
                "owner": launch.owner,
                "label_key": self._settings.label_key
                or (None if kept else fallback_key(directory)),
                "sockets": {
                    name: [one.fileno() for one in found] for name, found in sockets.items()
                },
            }
        )
        process = start_python(
            "guard.runtime.worker",
            *(str(os.getpid()), str(launch.directory), url),
            passed=[one.fileno() for found in sockets.values() for one in found],
            # Docstrings are four megabytes of a worker; the console shows those of its routes.
            level="-OO",
        )
        try:
            if self._redis is not None:
                self._redis.wait()  # Both take their time to begin; they share it.
        except GuardError:
            process.kill()
            process.wait()
            raise
        _tell(process, settings)
        return process

    def _keep_companions(self, directory: Path, url: str) -> None:
        """Run the console and the detector once a worker serves, and again where one ended."""
        if not self._serving():
            return
        detects = DetectionFiles(directory).is_wanted
        for one, wanted in ((self._console, self._settings.console), (self._detector, detects)):
            if not wanted or one.runs or time.monotonic() < one.start_from:
                continue
            if one.process is not None:
                self._note(one.event, {"exit_code": one.process.returncode})
            one.start_from = time.monotonic() + COMPANION_SECONDS
            one.process = start_python(one.module, str(os.getpid()), url, str(directory))
            _tell(one.process, self._settings)

    def _keep_redis(self) -> None:
        """Bring the embedded Redis back where it died; calls are refused until it answers."""
        if self._redis is None or self._redis.pid is not None:
            return
        self._note("guard.redis_lost", {})
        try:
            self._redis.start()
        except GuardError as error:
            self._note("guard.redis_lost", {"error": str(error)})

    def _note(self, event: str, fields: dict[str, Json]) -> None:
        """Write an audit line about something other than a call, and say it on stderr."""
        with closing(open_signed_log(self._settings.audit, self._settings.audit_key)) as audit:
            audit.event(event, fields)
        sys.stderr.write(f"{event}: {json.dumps(fields)}\n")
        sys.stderr.flush()


def _tell(process: subprocess.Popen[bytes], settings: Settings) -> None:
    """Hand one of our modules its settings; one that has died needs none."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            # What is not the default: a worker that takes over may be of another version, and not
            # know every setting that there is.
            process.stdin.write(settings.model_dump_json(exclude_defaults=True).encode() + b"\n")
        with suppress(BrokenPipeError):
            process.stdin.close()


def _beside_key(label_key: Path | None, directory: Path) -> Path | None:
    """Return where state is kept that is sealed with a key: beside it.

    None where the key does not outlive this run: nobody could read the labels any more.
    """
    if label_key is None and fallback_key(directory) is not None:
        return None
    return label_key_path(label_key).parent / "redis"
