"""Retention of the audit log: rotated once a day, removed after its retention time.

``state: {audit: 90d}`` in the policy turns it on.  A file that was set aside has the time in its
name and is removed whole once every line in it is older than the policy keeps; which trees went
with it is a line of the log itself, so that what is left verifies.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from guard.telemetry.audit_tree import EVENT_REMOVED, FIELD_LOG, FIELD_NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guard.core.model import Json
    from guard.telemetry.audit_log import AuditLogFile

DAY: Final = 86400.0
EVENT_ROTATED: Final = "guard.audit_rotated"
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_SET_ASIDE: Final = re.compile(r"\.(\d{8}T\d{6}Z)")


class AuditRetention:
    """Sets the log of a guard aside, and removes what is old.

    Of several workers one does: the first that has locked the file for it, until its process ends.
    The others only go on in the new file.

    Args:
        audit: the log, open.
        path: of the log.
        keep: returns for how many seconds lines are kept; 0: for good.
        now: seconds since the epoch.
    """

    def __init__(
        self, audit: AuditLogFile, path: Path, keep: Callable[[], int], now: Callable[[], float]
    ) -> None:
        self._audit = audit
        self._path = path
        self._keep = keep
        self._now = now
        self._lock: int | None = None

    def follow(self) -> None:
        """Set the log aside where it is due, and go on in the new file where anybody has.

        Not in a thread: a line that is being written must have its file.

        Raises:
            AuditError: the new file cannot be opened; the old one stays in use.
        """
        if self._keep() and self._is_due() and self._leads():
            self._set_aside()
        self._audit.follow()

    def remove_old(self) -> list[dict[str, Json]]:
        """Remove files that are old enough; return the fields of what is to be recorded.

        In a thread: the files are read first, for the trees in them.
        """
        keep = self._keep()
        found: list[dict[str, Json]] = []
        if not keep:
            return found
        if not self._leads():
            return found
        for _, file in [x for x in self._aside() if x[0] + keep < self._now()]:
            trees: list[Json] = [[log, size] for log, size in _trees(file).items()]
            found.append({"file": file.name, "keep": keep, "trees": trees})
        return found

    def removed(self, fields: dict[str, Json]) -> None:
        """Record a removal, then remove the file.

        Raises:
            AuditError: it cannot be recorded; the file stays.
        """
        self._audit.event(EVENT_REMOVED, fields)
        self._path.with_name(str(fields["file"])).unlink(missing_ok=True)

    def _is_due(self) -> bool:
        """Return whether the log began a day ago, or longer."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            with self._path.open("rb") as stream:
                first = json.loads(stream.readline())
            began = datetime.fromisoformat(first["at"]).timestamp()
            return self._now() - began >= min(DAY, self._keep())
        return False

    def _set_aside(self) -> None:
        # The worker that did it before this one may have been faster: then the log is young again.
        if not self._is_due():
            return
        at = datetime.fromtimestamp(self._now(), UTC).strftime(_STAMP)
        target = self._path.with_name(f"{self._path.name}.{at}")
        if not target.exists():
            self._path.rename(target)
            self._audit.follow()
            self._audit.event(EVENT_ROTATED, {"file": target.name})

    def _leads(self) -> bool:
        """Return whether this worker is the one that sets aside and removes."""
        if self._lock is None:
            lock = self._path.with_name(self._path.name + ".lock")
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                return False
            self._lock = handle
        return True

    def close(self) -> None:
        """Let another worker do it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _aside(self) -> list[tuple[float, Path]]:
        """Return the files that were set aside here, each with when, oldest first."""
        found: list[tuple[float, Path]] = []
        for file in self._path.parent.glob(f"{self._path.name}.*"):
            match = _SET_ASIDE.fullmatch(file.name.removeprefix(self._path.name))
            if match:
                at = datetime.strptime(match[1], _STAMP).replace(tzinfo=UTC).timestamp()
                found.append((at, file))
        return sorted(found)


def _trees(file: Path) -> dict[str, int]:
    """Return the trees with lines in a file, each with the number behind its last line there."""
    found: dict[str, int] = {}
    with file.open("rb") as stream:
        for line in stream:
            with suppress(ValueError, KeyError, TypeError):
                fields = json.loads(line)
                found[str(fields[FIELD_LOG])] = int(fields[FIELD_NUMBER]) + 1
    return found
