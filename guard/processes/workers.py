"""Worker processes: the place of each, its successor while it is replaced, and its files."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from guard.core.mappings import DetectionSettings
from guard.processes.child_process import Heartbeat

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from guard.core.model import Json


START_SECONDS: Final = 60.0
"""Seconds that a worker may take to its first heartbeat."""
BACKOFF_SECONDS: Final = (0.0, 0.1, 0.5, 1.0, 2.0)
"""Pause before the next worker, by how many in a row died young."""
YOUNG_SECONDS: Final = 10.0
STOP_SECONDS: Final = 5.0
"""Seconds that a worker gets beyond the time for its calls in flight before it is killed."""


@dataclass(slots=True)
class Worker:
    """One worker process."""

    process: subprocess.Popen[bytes]
    pulse: Heartbeat
    path: Path
    """File of its pulse; its files for the supervisor are beside that."""
    began: float = field(default_factory=time.monotonic)
    told_to_end: float | None = None
    """Time of the request to end, None before it."""

    @property
    def serves(self) -> bool:
        """True if it has started, and was not asked to end."""
        return self.told_to_end is None and self.process.poll() is None and self.has_served

    @property
    def has_served(self) -> bool:
        """True if it has ever started."""
        return bool(self.pulse.last_beat())

    def end(self) -> None:
        """Tell it to finish its calls and end; once."""
        if self.told_to_end is None:
            self.told_to_end = time.monotonic()
            self.process.send_signal(signal.SIGTERM)

    def ended(self, now: float, heartbeat: float, drain: float, awake: float) -> bool:
        """Return whether it has ended; kill it where it does not beat, or takes too long to end.

        Args:
            now: on the monotonic clock, as every time here.
            heartbeat: seconds that it may go without one.
            drain: seconds that it gets for its calls in flight.
            awake: since when the supervisor has been looking without a break.
        """
        if self.process.poll() is not None:
            return True
        beat = self.pulse.last_beat()
        if self.told_to_end is not None:
            overdue = now - self.told_to_end > drain + STOP_SECONDS
        else:
            since = max(beat or self.began, awake)
            overdue = now - since > (heartbeat if beat else START_SECONDS)
        if overdue:
            self.process.kill()
        return False


@dataclass(frozen=True, slots=True)
class Launch:
    """Parameters of a new worker."""

    number: int
    """Number of its slot, from 0."""
    owner: str
    """``NAME:NUMBER``; of a name, a lower number is dead."""
    restarts: int
    pulse: Path
    directory: Path
    """Directory of its slot: a successor gets the same."""


class Replacement(Enum):
    """Progress of a worker's replacement."""

    GOING_ON = auto()
    DONE = auto()
    FAILED = auto()
    """The successor did not come up; the worker goes on."""


class WorkerSlot:
    """Keeps one worker running; all methods return at once.

    Args:
        number: from 0.
        directory: of the run; only its user may enter it.
        start: starts a worker process.
        heartbeat: seconds without a heartbeat after which a worker is killed.
        drain: seconds that a worker gets for its calls in flight.
        died: told of a worker that ended by itself: exit code, restarts, the call it was judging.
        retired: told of a worker that has ended, however it did.
        alone: whether the guard ends with its worker, where that ends without an error.
    """

    def __init__(  # noqa: PLR0913  (the supervisor passes each once, by name)
        self,
        number: int,
        directory: Path,
        *,
        start: Callable[[Launch], subprocess.Popen[bytes]],
        heartbeat: float,
        drain: float,
        died: Callable[[dict[str, Json]], None],
        retired: Callable[[Worker], None],
        alone: bool,
    ) -> None:
        self.number = number
        self._directory = directory
        self._start = start
        self._heartbeat = heartbeat
        self._drain = drain
        self._died = died
        self._retired = retired
        self._alone = alone
        self._name = ""
        self._restarts = 0
        self._young_deaths = 0
        self._from = 0.0
        """Time before which no worker is started."""
        self._looked = self._awake = time.monotonic()
        """Times of the last check and of the first one since the last break: where the whole
        machine stood still, its worker could not beat either."""
        self._serial = 0
        self.current: Worker | None = None
        self._successor: Worker | None = None
        self._retiring: Worker | None = None
        self._replacement = Replacement.DONE
        self._hangup = False
        self.failed: int | None = None
        """Exit code of the first worker, where it never came up: another would not either."""

    def tend(self) -> None:
        """Look after the processes: start what is missing, kill what hangs, note what died."""
        now = time.monotonic()
        if now - self._looked > self._heartbeat / 2:
            self._awake = now
        self._looked = now
        if self._retiring is not None and self._has_ended(self._retiring, now):
            self._retired(self._retiring)
            self._retiring = None
        if self._successor is not None:
            self._tend_successor(self._successor, now)
        if self.current is None:
            if now >= self._from:
                self.current = self._launch()
            return
        if self._has_ended(self.current, now):
            self._lost(self.current, now)
        elif self._hangup and self.current.has_served:
            # Before, SIGHUP would end the worker.
            self._hangup = False
            self.current.process.send_signal(signal.SIGHUP)

    def hang_up(self) -> None:
        """Have the worker told of a SIGHUP, as soon as it can take one."""
        self._hangup = True

    def begin_replacement(self) -> None:
        """Start the worker's successor beside it; once that serves, the worker finishes and ends.

        A worker that has yet to come up is new already.
        """
        self._replacement = Replacement.DONE
        if self.current is not None and self.current.has_served:
            # Both are alive: neither may take the other's calls for those of a dead one.
            self._name = ""
            self._successor = self._launch()

    @property
    def replacement(self) -> Replacement:
        """Progress of the latest replacement."""
        if self._successor is not None or self._retiring is not None:
            return Replacement.GOING_ON
        return self._replacement

    def _tend_successor(self, successor: Worker, now: float) -> None:
        if self._has_ended(successor, now):
            self._successor, self._replacement = None, Replacement.FAILED
        elif successor.has_served:
            if self.current is not None:
                self.current.end()
            self._retiring, self.current, self._successor = self.current, successor, None

    @property
    def has_served(self) -> bool:
        """True if a worker has started here before."""
        return self._restarts > 0 or (self.current is not None and self.current.has_served)

    def stop(self) -> None:
        """Tell every process to end."""
        for one in self._processes():
            one.end()

    def stopped(self) -> bool:
        """Return whether every process has ended; kill what takes too long."""
        now = time.monotonic()
        ended = [self._has_ended(one, now) for one in self._processes()]
        return all(ended)

    @property
    def exit_codes(self) -> set[int]:
        """Exit codes of processes that have ended."""
        return {one.process.returncode or 0 for one in self._processes()}

    def _processes(self) -> list[Worker]:
        return [one for one in (self.current, self._successor, self._retiring) if one is not None]

    def _has_ended(self, worker: Worker, now: float) -> bool:
        return worker.ended(now, self._heartbeat, self._drain, self._awake)

    def _launch(self) -> Worker:
        if not self._name:
            self._name = secrets.token_hex(8)
        self._serial += 1
        pulse = self._directory / f"pulse-{self.number}-{self._serial}"
        directory = self._directory / f"worker-{self.number}"
        directory.mkdir(mode=0o700, exist_ok=True)
        heartbeat = Heartbeat.create(pulse)
        owner = f"{self._name}:{self._restarts}"
        launch = Launch(self.number, owner, self._restarts, pulse, directory)
        return Worker(self._start(launch), heartbeat, pulse)

    def _lost(self, worker: Worker, now: float) -> None:
        """Note that the worker ended by itself, and when the next one is started."""
        code = worker.process.returncode
        self._retired(worker)
        self.current = None
        if self._successor is not None:
            self.current, self._successor = self._successor, None
        elif (code == 0 and self._alone) or (not self._restarts and not worker.has_served):
            self.failed = code
            return
        self._restarts += 1
        self._died(
            {
                "exit_code": code,
                "restarts": self._restarts,
                "judging": worker.pulse.current(),
                "worker": self.number,
            }
        )
        worker.pulse.close()
        young = now - worker.began < YOUNG_SECONDS
        self._young_deaths = self._young_deaths + 1 if young else 0
        self._from = now + BACKOFF_SECONDS[min(self._young_deaths, len(BACKOFF_SECONDS) - 1)]


NEVER: Final = 0.0


def control_socket(pulse: Path) -> Path:
    """Return where the worker with a pulse file answers."""
    return pulse.with_name(f"{pulse.name}.control")


def control_sockets(pulse: Path) -> list[Path]:
    """Return the pulse files of the other workers of a run that answer, or did."""
    found = sorted(pulse.parent.glob("pulse-*.control"))
    return [one for path in found if (one := path.with_suffix("")) != pulse]


def ready_file(pulse: Path) -> Path:
    """Return the file that says what it listens on, and under which policy."""
    return pulse.with_name(f"{pulse.name}.ready")


def last_words(pulse: Path) -> Path:
    """Return where it leaves its metrics when it ends."""
    return pulse.with_name(f"{pulse.name}.last")


def ready_line(listening: str, admin: tuple[str, int], policy: str) -> str:
    """Return the line that operators and scripts wait for."""
    return f"guard ready on {listening} admin {admin[0]}:{admin[1]} policy {policy}"


class DetectionFiles:
    """Files by which workers and the detector of committed saves know of each other.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path) -> None:
        self._wanted = directory / "detection"
        self._judged = directory / "detection-judged"

    def ask_for(self, settings: DetectionSettings | None) -> None:
        """Say how committed saves are to be judged under the policy in force; None: not at all."""
        if settings is None:
            self._wanted.unlink(missing_ok=True)
            return
        fresh = self._wanted.with_name(f"{self._wanted.name}.{os.getpid()}")
        fresh.write_text(json.dumps(asdict(settings)), encoding="ascii")
        fresh.replace(self._wanted)

    def wanted(self) -> DetectionSettings | None:
        """Return how committed saves are to be judged."""
        with suppress(OSError, ValueError, TypeError):
            return DetectionSettings(**json.loads(self._wanted.read_text(encoding="ascii")))
        return None

    @property
    def is_wanted(self) -> bool:
        """Return whether the policy in force has committed saves judged."""
        return self._wanted.exists()

    def note_round(self) -> None:
        """Note that every committed save was judged just now."""
        self._judged.touch()

    def age(self, now: float) -> float:
        """Return the seconds since every committed save was judged; 0 where none has to be."""
        if not self.is_wanted:
            return NEVER
        times = []
        for path in (self._judged, self._wanted):
            with suppress(OSError):
                times.append(path.stat().st_mtime)
        return max(0.0, now - times[0]) if times else NEVER
