"""Recordings of whole exchanges: prompts, calls and results, enciphered with the operator's key.

Opt-in (``guard run --record DIR``).  ``docs/how-to/recordings.md`` describes the format: segments
of chunks, each chunk AES-256-GCM with a key that is the segment's alone, so that a chunk that was
changed, moved or taken away, and a segment that was cut off, are noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
import threading
import time
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from guard.core.errors import AuditError, InputError
from guard.core.metrics import ERRORS, FAIL_CLOSED, RECORDS_LOST, Metrics
from guard.environment import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from guard.core.calls import ToolResult
    from guard.core.model import Identity, Json, ToolCall
    from guard.core.policy import Verdict

MAGIC: Final = b"GUARDREC\x01"
SUFFIX: Final = ".guardrec"
KEY_BYTES: Final = 32
_INFO: Final = b"guard recording 1"
_LENGTH: Final = struct.Struct(">I")
_CHUNK_HEAD: Final = struct.Struct(">BI")
_DATA, _END = 0, 1
_TAG_BYTES: Final = 16
_LARGEST_CHUNK: Final = 64 * 1024 * 1024
CHUNK_BYTES: Final = 64 * 1024
"""Text gathered before it is written."""
FLUSH_SECONDS: Final = 1.0
SEGMENT_BYTES: Final = 64 * 1024 * 1024
SEGMENT_SECONDS: Final = 3600.0
WAITING_BYTES: Final = 32 * 1024 * 1024
"""Text that waits in memory while nothing can be written; more is lost, and counted."""
CONTENT_CHARS: Final = 1024 * 1024
"""Maximum characters of one result or argument document; a longer one is kept as its beginning."""
_STAGE: Final = "recording"
_TEXT: Final = json.JSONEncoder(separators=(",", ":"), default=str).encode


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a recording; the oldest segments are removed first."""

    total_bytes: int = 1024**3
    seconds: float = 7 * 24 * 3600.0


class RecordingWriter:
    """Writes recordings on a thread of its own.

    Args:
        directory: made if absent; only its user may enter it.
        key: ``KEY_BYTES`` of the operator's.
        metrics: for what is lost.
        limits: how much is kept.
        now: seconds since the epoch.

    Raises:
        InputError: the directory cannot be used.
    """

    keeps = True

    def __init__(
        self,
        directory: Path,
        key: bytes,
        metrics: Metrics,
        limits: Limits | None = None,
        now: Callable[[], float] = time.time,  # noqa: TID251  (the edge where time comes in)
    ) -> None:
        self._directory = directory
        self._key = key[:KEY_BYTES]
        self._metrics = metrics
        self._limits = limits or Limits()
        self._now = now
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._lost = 0
        self._failing = ""
        self._segment: _Segment | None = None
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._segment = self._open()
        except OSError as error:
            raise InputError(
                f"recordings cannot be written to `{directory}`: {error.strerror}"
            ) from error
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    def use_keys(self, keys: Sequence[bytes]) -> None:
        """Encipher with the first of some keys from the next segment on."""
        self._key = keys[0][:KEY_BYTES]

    def prompt(self, identity: Identity, text: str, at: float) -> None:
        """Record what a person typed."""
        self._add({"type": "prompt", "at": at, **_who(identity), "text": text})

    def call(self, call: ToolCall, verdict: Verdict, *, required: bool) -> None:
        """Record a call and its verdict.

        Args:
            call: as it was judged.
            verdict: on it.
            required: whether it must be in the file when this returns.

        Raises:
            AuditError: it is required, and could not be written.
        """
        self._add(
            {
                "type": "call",
                "at": call.at,
                **_who(call.identity),
                "id": call.id,
                "server": call.server,
                "upstream": call.upstream,
                "protocol": call.protocol,
                "tool": call.tool,
                "arguments": dict(call.arguments),
                "action": verdict.action.label,
                "forwarded": verdict.enforced.forwards,
                "reasons": [reason.code for reason in verdict.reasons],
                "policy": verdict.policy,
            }
        )
        if required:
            self._flush()
            if self._failing:
                raise AuditError(self._failing)

    def result(self, result: ToolResult) -> None:
        """Record what came back."""
        self._add(
            {
                "type": "result",
                "at": result.at,
                "id": result.call.call.id,
                "content": result.content,
                "is_error": result.is_error,
                "is_lost": result.is_lost,
            }
        )

    def close(self) -> None:
        """Write what waits, and close the segment."""
        self._closing = True
        self._wake.set()
        self._thread.join()
        self._flush()
        with self._writing:
            if self._segment is not None:
                self._segment.close()
                self._segment = None

    def _add(self, record: dict[str, Json]) -> None:
        try:
            line = _TEXT(record).encode()
        except (ValueError, RecursionError):
            line = b""
        if not line or len(line) > CONTENT_CHARS:
            line = _cut(record, len(line))
        with self._lock:
            if self._waiting_bytes + len(line) > WAITING_BYTES:
                self._lost += 1
                self._metrics.count(RECORDS_LOST)
                return
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            enough = self._waiting_bytes >= CHUNK_BYTES
        if enough:
            self._wake.set()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(FLUSH_SECONDS)
            self._wake.clear()
            self._flush()

    def _flush(self) -> None:
        """Write what waits as one chunk; where that fails it goes on waiting."""
        with self._writing:
            with self._lock:
                lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
                lost, self._lost = self._lost, 0
            if lost:
                lines.append(json.dumps({"type": "gap", "lost": lost}).encode())
            if not lines:
                return
            try:
                self._segment = self._segment or self._open()
                self._segment.write(lines)
                if self._segment.is_full(self._now()):
                    self._segment.close()
                    self._segment = None
                    self._forget_the_oldest()
            except OSError as error:
                self._failed(error, lines)
            else:
                if self._failing:
                    self._failing = ""
                    self._metrics.set(FAIL_CLOSED, 0, _STAGE)

    def _failed(self, error: OSError, lines: list[bytes]) -> None:
        """Keep what was not written, in front of what came meanwhile; begin a new segment."""
        if self._segment is not None:
            self._segment.abandon()
            self._segment = None
        with self._lock:
            self._waiting[:0] = lines
            self._waiting_bytes += sum(map(len, lines))
        self._metrics.count(ERRORS, _STAGE)
        if not self._failing:
            self._failing = f"recordings cannot be written: {error.strerror or 'error'}"
            self._metrics.set(FAIL_CLOSED, 1, _STAGE)
            say(f"{self._failing}; what waits in memory is written later")

    def _open(self) -> _Segment:
        return _Segment(self._directory, self._key, self._now())

    def _forget_the_oldest(self) -> None:
        """Remove the oldest segments beyond the limits."""
        kept = 0
        for path in sorted(self._directory.glob(f"*{SUFFIX}"), reverse=True):
            status = path.stat()
            kept += status.st_size
            if (
                kept > self._limits.total_bytes
                or self._now() - status.st_mtime > self._limits.seconds
            ):
                path.unlink(missing_ok=True)


class _Segment:
    """One file of chunks."""

    def __init__(self, directory: Path, key: bytes, started: float) -> None:
        name = secrets.token_bytes(16)
        header = json.dumps(
            {"segment": name.hex(), "started": started, "key": key_id(key)}, sort_keys=True
        ).encode()
        stamp = datetime.fromtimestamp(started, UTC).strftime("%Y%m%dT%H%M%S%fZ")
        self.path = directory / f"{stamp}-{name.hex()[:8]}{SUFFIX}"
        self._cipher = _cipher(key, name)
        self._binding = hashlib.sha256(header).digest()
        self._started = started
        self._chunks = self._bytes = self._records = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._handle = os.open(self.path, flags, 0o600)
        self._put(MAGIC + _LENGTH.pack(len(header)) + header)

    def is_full(self, now: float) -> bool:
        """Return whether another segment should begin."""
        return self._bytes >= SEGMENT_BYTES or now - self._started >= SEGMENT_SECONDS

    def write(self, lines: list[bytes]) -> None:
        """Append records as one chunk.

        Raises:
            OSError: it was not written whole; the segment must be abandoned.
        """
        self._chunk(_DATA, b"\n".join(lines))
        self._records += len(lines)

    def close(self) -> None:
        """Write the end, which says that nothing is missing, and close the file."""
        try:
            self._chunk(_END, json.dumps({"records": self._records}).encode())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file as it is."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def _chunk(self, kind: int, text: bytes) -> None:
        nonce = self._chunks.to_bytes(12, "big")
        sealed = self._cipher.encrypt(nonce, zlib.compress(text), self._binding + bytes([kind]))
        self._put(_CHUNK_HEAD.pack(kind, len(sealed)) + sealed)
        self._chunks += 1

    def _put(self, data: bytes) -> None:
        written = os.write(self._handle, data)
        self._bytes += written
        if written != len(data):
            raise OSError(28, "the disk took only a part")


@dataclass(slots=True)
class SegmentReport:
    """Findings of reading one segment, besides its records."""

    path: Path
    records: int = 0
    problem: str = ""
    """Why it ends before its end; empty where it is whole."""


@dataclass(slots=True)
class RecordingReader:
    """Reads the recordings of a directory, oldest first.

    Attributes:
        directory: of ``--record``.
        key: the operator's.
        older: further keys that segments may have been written with.
        reports: one for each segment that was read.
    """

    directory: Path
    key: bytes
    older: Sequence[bytes] = ()
    reports: list[SegmentReport] = field(default_factory=list)

    def segments(self) -> list[Path]:
        """Return the segments, oldest first.

        Raises:
            InputError: there are none.
        """
        found = sorted(self.directory.glob(f"*{SUFFIX}"))
        if not found:
            raise InputError(f"`{self.directory}` has no recordings (*{SUFFIX})")
        return found

    def records(self, advance: Callable[[], object] = lambda: None) -> Iterator[dict[str, Json]]:
        """Yield every record; a segment that ends early yields what comes before that.

        Args:
            advance: called after each segment.

        Raises:
            InputError: there are no recordings, or the key is another one.
        """
        for path in self.segments():
            report = SegmentReport(path)
            self.reports.append(report)
            for record in self._read(path, report):
                report.records += 1
                yield record
            advance()

    def _read(self, path: Path, report: SegmentReport) -> Iterator[dict[str, Json]]:
        with path.open("rb") as stream:
            start = stream.read(len(MAGIC) + _LENGTH.size)
            if start[: len(MAGIC)] != MAGIC or len(start) < len(MAGIC) + _LENGTH.size:
                report.problem = "it is no recording, or of another version"
                return
            header = stream.read(_LENGTH.unpack_from(start, len(MAGIC))[0])
            try:
                fields = json.loads(header)
                name, known = bytes.fromhex(fields["segment"]), fields["key"]
            except (ValueError, KeyError, TypeError):
                report.problem = "its header is damaged"
                return
            keys = [one[:KEY_BYTES] for one in (self.key, *self.older)]
            key = next((one for one in keys if key_id(one) == known), None)
            if key is None:
                raise InputError(f"`{path}` was written with another key than the one given")
            cipher, binding = _cipher(key, name), hashlib.sha256(header).digest()
            number = 0
            while head := stream.read(_CHUNK_HEAD.size):
                text = _opened(cipher, binding, number, head, stream.read)
                if text is None:
                    report.problem = f"chunk {number} is cut off, altered or out of its place"
                    return
                number += 1
                if head[0] == _END:
                    if stream.read(1):
                        report.problem = "something was appended behind its end"
                    return
                yield from map(json.loads, text.split(b"\n"))
            report.problem = (
                "its end is missing: it is being written, was cut off, or the guard died"
            )


def erase(
    directory: Path,
    key: bytes,
    concerns: Callable[[dict[str, Json]], bool],
    older: Sequence[bytes] = (),
) -> int:
    """Write every whole segment anew without some records; return how many are gone.

    Args:
        directory: of ``--record``.
        key: the operator's.
        concerns: whether a prompt or call is to go; the result of a call goes with it.
        older: further keys that segments may have been written with.

    Raises:
        InputError: there are no recordings, or the key is another one.
    """
    reader, gone = RecordingReader(directory, key, older), 0
    for path in reader.segments():
        report = SegmentReport(path)
        records = list(reader._read(path, report))  # noqa: SLF001  (its own file)
        calls = {r["id"] for r in records if r["type"] == "call" and concerns(r)}
        kept = [
            r
            for r in records
            if r.get("id") not in calls and not (r["type"] == "prompt" and concerns(r))
        ]
        if report.problem or len(kept) == len(records):
            continue
        status = path.stat()
        fresh = _Segment(directory, key[:KEY_BYTES], status.st_mtime)
        fresh.write([json.dumps(record, separators=(",", ":")).encode() for record in kept])
        fresh.close()
        os.utime(fresh.path, (status.st_atime, status.st_mtime))
        path.unlink()
        gone += len(records) - len(kept)
    return gone


def key_id(key: bytes) -> str:
    """Return what names a key without telling it."""
    return hashlib.sha256(b"guard recording key" + key).hexdigest()[:16]


def _cipher(key: bytes, segment: bytes) -> AESGCM:
    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt=segment, info=_INFO).derive(key))


def _opened(
    cipher: AESGCM, binding: bytes, number: int, head: bytes, read: Callable[[int], bytes]
) -> bytes | None:
    """Return the text of a chunk, None where it is not whole."""
    if len(head) < _CHUNK_HEAD.size:
        return None
    kind, length = _CHUNK_HEAD.unpack(head)
    if not _TAG_BYTES <= length <= _LARGEST_CHUNK:
        return None
    sealed = read(length)
    try:
        packed = cipher.decrypt(number.to_bytes(12, "big"), sealed, binding + bytes([kind]))
        return zlib.decompress(packed)
    except (InvalidTag, zlib.error, ValueError):
        return None


def _who(identity: Identity) -> dict[str, Json]:
    return {
        "tenant": identity.tenant,
        "principal": identity.principal,
        "session": identity.session,
    }


def _cut(record: dict[str, Json], size: int) -> bytes:
    """Return a record whose long part is replaced by its beginning."""
    shortened = dict(record)
    for name in ("content", "arguments", "text"):
        if name in shortened:
            beginning = str(shortened[name])[: CONTENT_CHARS // 4]
            shortened[name] = {"cut": beginning} if name == "arguments" else beginning
    shortened["cut_from"] = size
    return json.dumps(shortened, default=str).encode()
