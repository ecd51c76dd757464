"""Trial of action rules after an upgrade: a note beside the label key says until when.

A deployment that has run before, and knows of no action rules yet, judges by them without effect
for a while and counts the calls that they would ask about.  Every other rule is enforced.  A new
deployment enforces them at once, and so does one that cannot keep the note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

SECONDS: Final = 7 * 86400
"""Duration of the trial."""


def trial_end(key: Path, store: str, now: float, *, seconds: int = SECONDS) -> float:
    """Return the end of the trial of action rules, in seconds since the epoch; 0 for none.

    Args:
        key: file of the label key; the note lies beside it.
        store: kind of the label store, as its own note is named.
        now: time of the start.
        seconds: duration that the operator allows; 0 ends a trial.
    """
    note = key.with_name(f"{key.name}.{store}-actions")
    try:
        if note.exists():
            end = float(note.read_text(encoding="ascii"))
        else:
            ran_before = key.with_name(f"{key.name}.{store}-birth").exists()
            end = now + seconds if ran_before else 0.0
            note.write_text(f"{end:.0f}\n", encoding="ascii")
            note.chmod(0o600)
    except (OSError, ValueError):
        return 0.0
    return end if now < end <= now + seconds else 0.0
