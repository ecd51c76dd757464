"""Files that a worker leaves for its supervisor, beside its heartbeat file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


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
