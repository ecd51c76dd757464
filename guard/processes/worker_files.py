"""Files that a worker leaves for its supervisor, beside its heartbeat file."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from guard.core.mappings import DetectionSettings

if TYPE_CHECKING:
    from pathlib import Path

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
