"""The audit log: one JSON line per decision in a file that only its user can read.

``docs/reference/audit-lines.md`` describes each field.  A line never holds argument text:
destinations appear as keyed fingerprints, argument paths as the name of the argument with
everything below it masked, reasons without their evidence.

A line is written by one ``write`` on a descriptor opened for appending, so lines of several
processes do not mix.  Where another process was cut off in the middle of its line, by a full disk
or a kill, what was written behind that is written again.  It is not flushed to the disk's platter:
a power cut can lose the last lines.

``state: {audit: 90d}`` in the policy has the log rotated once a day.  A file that was set aside has
the time in its name.  It is removed whole once every line in it is older than the policy keeps.  A
line of the log itself names the trees that were removed with it, so that the rest verifies.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from guard.core.bounded_cache import bounded_cache
from guard.core.errors import AuditError
from guard.core.json_values import json_encoder
from guard.core.model import Json, PrincipalRung, SessionRung
from guard.core.policy import Action
from guard.telemetry.audit_tree import EVENT_CONTINUED, EVENT_REMOVED, AuditTree, Signer, trees_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from guard.core.ports import DecisionRecord


EVENT_DECISION: Final = "guard.decision"
"""Value of ``event`` in the line of a decision; other lines carry the name they were given."""


ID_CHARS: Final = 128
"""Longest id (session, principal, tool, rule) in a line; clients choose some of them."""
DETAIL_CHARS: Final = 512
ITEMS: Final = 64
"""Most reasons, targets and errors listed in a line; ``omitted`` counts the rest."""
KEY_BYTES: Final = 32
FINGERPRINT_BYTES: Final = 12

# Looked up by position: an enum's own `name` and `value` cost more than the rest of the line.
_ACTIONS: Final = tuple(action.label for action in Action)
_PRINCIPAL_RUNGS: Final = tuple(rung.name.lower() for rung in PrincipalRung)
_SESSION_RUNGS: Final = tuple(rung.name.lower() for rung in SessionRung)
_ENCODE: Final = json_encoder(allow_nan=False)
_FIRST_KEY: Final = re.compile(
    r"^\$(?:\['(?P<quoted>[A-Za-z_][A-Za-z0-9_-]{0,63})'\]|\.(?P<dot>\w{1,64}))"
)


class NoAuditLog:
    """Takes audit lines and drops them: ``guard run`` without ``--audit``."""

    def decision(self, record: DecisionRecord) -> None:
        """Drop the line."""

    def event(self, name: str, fields: Mapping[str, Json]) -> None:
        """Drop the line."""

    def reopen(self) -> None:
        """Nothing is open."""

    def follow(self) -> None:
        """Nothing is open."""

    def use_signer(self, signer: Signer) -> None:
        """Nothing is signed."""

    def checkpoint(self) -> str | None:
        """Nothing is signed."""
        return None

    def close(self) -> None:
        """Nothing is open."""


class AuditLogFile:
    """Appends audit lines to a file, created with mode 0600.

    Args:
        path: the file; its directory must exist.
        key: key of the destination fingerprints, up to 64 bytes.  Without one a fresh key is made,
            so fingerprints can be compared within one run of the process only.
        now: seconds since the epoch, for lines that are not about a decision.
        signer: signs checkpoints of the Merkle tree over the lines; without one a fresh key does.

    Raises:
        AuditError: the file cannot be opened for appending.
    """

    def __init__(
        self,
        path: Path,
        *,
        key: bytes | None = None,
        now: Callable[[], float] = time.time,  # noqa: TID251  (the edge where time comes in)
        signer: Signer | None = None,
    ) -> None:
        self._path = path
        self._tree = AuditTree(signer or Signer(secrets.token_bytes(KEY_BYTES)), path)
        self._lock = threading.Lock()
        key = key if key is not None else secrets.token_bytes(KEY_BYTES)
        self._marks = blake2b(digest_size=FINGERPRINT_BYTES, key=key)
        self._now = now
        self._torn = False
        self._end = -1
        """Length of the file behind the last line that was written here; -1 before there is one."""
        self._is_file = False
        """True if its content can be read; that of a pipe cannot."""
        self._descriptor = self._open()

    def decision(self, record: DecisionRecord) -> None:
        """Write the line of a decision.

        Raises:
            AuditError: it could not be written whole; the call must be blocked.
        """
        try:
            fields = self._decision_fields(record)
        except Exception as error:
            # A record that cannot be described was not recorded, whatever the cause.
            raise AuditError(
                f"the decision could not be described: {type(error).__name__}"
            ) from error
        self._write(fields)

    def event(self, name: str, fields: Mapping[str, Json]) -> None:
        """Write a line about something other than a decision.

        ``fields`` must hold no argument text; ``event`` and ``at`` are set here.

        Raises:
            AuditError: it could not be written whole.
        """
        self._write({**fields, "event": name, "at": _instant(self._now())})

    def reopen(self) -> None:
        """Open the path anew, after a log rotation moved the file.

        Raises:
            AuditError: the path cannot be opened; the old file stays in use.
        """
        fresh = self._open()
        self.checkpoint()
        stale, self._descriptor = self._descriptor, fresh
        self._torn, self._end = False, -1
        os.close(stale)
        if self._tree.size:
            self.event(EVENT_CONTINUED, self._tree.continued())

    def follow(self) -> None:
        """Go on in the file that has the log's name, where another has it by now.

        Raises:
            AuditError: it cannot be opened; the old file stays in use.
        """
        try:
            there = self._path.stat()
        except OSError:
            there = None
        mine = os.fstat(self._descriptor)
        if there is None or (there.st_ino, there.st_dev) != (mine.st_ino, mine.st_dev):
            self.reopen()

    def use_signer(self, signer: Signer) -> None:
        """Sign checkpoints with other keys from now on."""
        with self._lock:
            self._tree.use_signer(signer)

    @property
    def size(self) -> int:
        """Lines written since it was opened."""
        return self._tree.size

    def checkpoint(self) -> str | None:
        """Sign what was written so far; return the signed note, None where nothing is new.

        A checkpoint that cannot be written is tried again with the next: it covers more.
        """
        with self._lock, suppress(OSError):
            return self._tree.checkpoint()
        return None

    def close(self) -> None:
        """Close the file; every later line is an :class:`AuditError`."""
        self.checkpoint()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def fingerprint(self, canonical: str) -> str:
        """Return the keyed fingerprint of a canonical destination, in hex."""
        state = self._marks.copy()
        state.update(canonical.encode("utf-8", "surrogatepass"))
        return state.hexdigest()

    def _open(self) -> int:
        try:
            # What is read of a file is the end of somebody else's line; a pipe only takes.
            self._is_file = self._path.is_file() or not self._path.exists()
            way = os.O_RDWR if self._is_file else os.O_WRONLY
            return os.open(self._path, way | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise AuditError(
                f"cannot open the audit log `{self._path}`: {error.strerror}"
            ) from error

    def _write(self, fields: Mapping[str, Json]) -> None:
        with self._lock:
            self._tree.append(self._append({**fields, **self._tree.next_fields()}))

    def _append(self, fields: Mapping[str, Json]) -> bytes:
        """Write one line; return it without its newline."""
        try:
            text = "".join(_ENCODE(fields, 0)).encode("ascii")
        except (TypeError, ValueError, RecursionError) as error:
            raise AuditError(
                f"the audit line cannot be written as JSON: {type(error).__name__}"
            ) from error
        # A line that was cut off must not swallow the one after it.
        apart = self._torn
        line = b"\n%b\n" % text if apart else text + b"\n"
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise AuditError(
                f"cannot write to the audit log `{self._path}`: {error.strerror}"
            ) from error
        self._torn = written != len(line) and (written > 0 or self._torn)
        if written != len(line):
            raise AuditError(f"the audit log `{self._path}` took {written} of {len(line)} bytes")
        if self._is_file:
            known, self._end = self._end, os.lseek(self._descriptor, 0, os.SEEK_CUR)
            begin = self._end - len(line)
            # Whoever wrote before may have been cut off, and gone: looked at behind others' lines.
            if begin not in {0, known} and not apart and self._is_cut_off_at(begin):
                self._torn = True
                return self._append(fields)
        return text

    def _is_cut_off_at(self, end: int) -> bool:
        """Return True unless the line that ends at an offset of the file is whole."""
        try:
            return os.pread(self._descriptor, 1, end - 1) != b"\n"
        except OSError:
            return True

    def _decision_fields(self, record: DecisionRecord) -> dict[str, Json]:
        classified, verdict = record.call, record.verdict
        call, identity = classified.call, classified.call.identity
        fields: dict[str, Json] = {
            "event": EVENT_DECISION,
            "decision_id": call.id[:ID_CHARS],
            "at": _instant(call.at),
            "principal": identity.principal[:ID_CHARS],
            "principal_rung": _PRINCIPAL_RUNGS[identity.principal_rung],
            "tenant": identity.tenant[:ID_CHARS],
            "session": identity.session[:ID_CHARS],
            "session_rung": _SESSION_RUNGS[identity.session_rung],
            "server": call.server[:ID_CHARS],
            "protocol": call.protocol[:ID_CHARS],
            "tool": call.tool[:ID_CHARS],
            "role": classified.role,
            "mapped": classified.mapped,
            "action": _ACTIONS[verdict.action],
            "enforced": _ACTIONS[verdict.enforced],
            "mode": verdict.mode,
            "would_have_blocked": verdict.would_have_blocked,
            "reasons": [
                {
                    "code": reason.code[:ID_CHARS],
                    "rule": reason.rule[:ID_CHARS],
                    "action": _ACTIONS[reason.action],
                    "detail": reason.detail[:DETAIL_CHARS],
                }
                for reason in verdict.reasons[:ITEMS]
            ],
            "decided_by": [rule[:ID_CHARS] for rule in verdict.decided_by[:ITEMS]],
            "errors": [error[:DETAIL_CHARS] for error in verdict.errors[:ITEMS]],
            "score": verdict.score,
            "targets": [
                {
                    "kind": target.destination.kind,
                    "standing": target.status,
                    "path": masked_path(target.path),
                    "fingerprint": self.fingerprint(target.destination.canonical),
                }
                for target in classified.targets[:ITEMS]
            ],
            "policy": verdict.policy,
            "models": dict(record.models),
            "milliseconds": round(record.seconds * 1000, 3),
        }
        if verdict.facts:
            fields["facts"] = {
                name: fact[:DETAIL_CHARS] if isinstance(fact, str) else fact
                for name, fact in verdict.facts.items()
            }
        if record.action is not None:
            fields["change"] = record.action.described()
        omitted = {
            "reasons": len(verdict.reasons) - ITEMS,
            "targets": len(classified.targets) - ITEMS,
            "errors": len(verdict.errors) - ITEMS,
        }
        if any(count > 0 for count in omitted.values()):
            fields["omitted"] = {name: count for name, count in omitted.items() if count > 0}
        return fields


@bounded_cache(64)
def masked_path(path: str) -> str:
    """Return an argument's path with all that the caller may have made up masked.

    The argument's own name stays where it looks like one; keys below it are data
    (``$['rows']['alice@corp']`` becomes ``$['rows'][*]``).
    """
    if path in {"", "$"}:
        return path
    first = _FIRST_KEY.match(path)
    if first is None:
        return "$[*]"
    masked = f"$['{first['quoted'] or first['dot']}']"
    return masked if first.end() == len(path) else f"{masked}[*]"


def _instant(seconds: float) -> str:
    whole, rest = divmod(int(seconds * 1000), 1000)
    return f"{_second(whole)}.{rest:03}+00:00"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


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
            trees: list[Json] = [[log, size] for log, size in trees_in(file).items()]
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
