"""The audit log as a verifiable one: a Merkle tree over its lines, and signed checkpoints.

Each process that writes lines keeps one tree (RFC 6962, section 2.1: leaves are lines without their
newline) and numbers its lines in it.  A checkpoint (C2SP ``tlog-checkpoint``, in a C2SP
``signed-note`` by Ed25519) says how many lines there were and what they hash to; checkpoints lie
beside the log, and the latest is kept elsewhere as an anchor (Redis, ``/metrics``).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from guard.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from guard.core.model import Json

FIELD_LOG: Final = "log"
"""Tree that a line belongs to: one for each run of a process."""
FIELD_NUMBER: Final = "n"
"""Its place in that tree, from 0."""
FIELD_PREVIOUS: Final = "previous"
"""In the first line of a tree: the digest of the checkpoint that was the last one then.  So a tree
cannot be taken away together with its checkpoints without a trace."""
EVENT_CONTINUED: Final = "guard.audit_continued"
"""First line of a tree in another file: how many lines came before, and what they hash to."""
EVENT_ERASURE: Final = "guard.erasure"
"""Says which lines were erased, by whom and why; ``lines`` is a list of [log, n]."""
EVENT_REMOVED: Final = "guard.audit_removed"
"""Says which file was removed because it is old, and how long each tree was in it; ``trees`` is a
list of [log, size]."""
EVENT_ERASED: Final = "guard.erased"
"""Event in place of an erased line: its ``leaf``."""
KEPT: Final = frozenset({EVENT_CONTINUED, EVENT_ERASURE, EVENT_REMOVED, EVENT_ERASED})
"""Events whose lines hold the tree together; they name no person."""
ORIGIN: Final = "egress-guard-audit"
CHECKPOINTS: Final = ".checkpoints"
"""Suffix that the file of checkpoints adds to the log's name."""
HASH_BYTES: Final = 32
_ALGORITHM: Final = b"\x01"
"""Ed25519, in the key ids of signed notes."""
_LOG_BYTES: Final = 8
_TAIL: Final = 4096
"""Bytes at the end of the file of checkpoints that are sure to hold the last one."""


def leaf_hash(line: bytes) -> bytes:
    """Return the hash of a line, without its newline, as a leaf."""
    return hashlib.sha256(b"\x00" + line).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(slots=True)
class MerkleTree:
    """A tree of which only the roots of its complete subtrees are kept."""

    size: int = 0
    subtrees: list[bytes] = field(default_factory=list)
    """Roots of the complete subtrees, the largest first: one for each bit of the size."""

    def append(self, leaf: bytes) -> None:
        """Add a leaf's hash."""
        node, rest = leaf, self.size
        while rest & 1:
            node = node_hash(self.subtrees.pop(), node)
            rest >>= 1
        self.subtrees.append(node)
        self.size += 1

    def root(self) -> bytes:
        """Return the tree's hash; an empty tree hashes to the hash of nothing."""
        if not self.subtrees:
            return hashlib.sha256(b"").digest()
        node = self.subtrees[-1]
        for left in reversed(self.subtrees[:-1]):
            node = node_hash(left, node)
        return node


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Length and root hash of one tree."""

    log: str
    size: int
    root: bytes

    @property
    def body(self) -> str:
        """The text that is signed."""
        encoded = base64.b64encode(self.root).decode("ascii")
        return f"{ORIGIN}/{self.log}\n{self.size}\n{encoded}\n"


class Signer:
    """Signs checkpoints.

    Args:
        seed: at least 32 bytes of the operator's; the first 32 are the Ed25519 key.
        further: other keys that sign as well, while one key gives way to another: a note may have
            several signatures.
    """

    def __init__(self, seed: bytes, further: Sequence[bytes] = ()) -> None:
        self._keys = [
            Ed25519PrivateKey.from_private_bytes(one[:HASH_BYTES]) for one in (seed, *further)
        ]
        self.verifiers = [Verifier(one.public_key()) for one in self._keys]
        """Verifiers of the public halves, in the same order."""

    @property
    def verifier(self) -> Verifier:
        """Return the name of the first key."""
        return self.verifiers[0]

    def note(self, checkpoint: Checkpoint) -> str:
        """Return the signed note of a checkpoint."""
        body = checkpoint.body.encode()
        lines = [
            base64.b64encode(verifier.key_id + key.sign(body)).decode("ascii")
            for key, verifier in zip(self._keys, self.verifiers, strict=True)
        ]
        signatures = "".join(f"\u2014 {ORIGIN} {line}\n" for line in lines)
        return f"{checkpoint.body}\n{signatures}"


class Verifier:
    """Checks signed checkpoints."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        public = _ALGORITHM + key.public_bytes_raw()
        self.key_id = hashlib.sha256(ORIGIN.encode() + b"\n" + public).digest()[:4]
        """First bytes of every signature of this key."""
        encoded = base64.b64encode(public).decode("ascii")
        self.text = f"{ORIGIN}+{self.key_id.hex()}+{encoded}"
        """The verifier key, as C2SP ``signed-note`` writes one."""

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """Return the verifier of a key in its text form.

        Raises:
            InputError: it is none, or of another algorithm.
        """
        try:
            public = base64.b64decode(text.strip().split("+", 2)[2], validate=True)
            if public[:1] != _ALGORITHM:
                raise ValueError
            return cls(Ed25519PublicKey.from_public_bytes(public[1:]))
        except (ValueError, IndexError) as error:
            raise InputError(
                "this is no audit verifier key; it looks like `egress-guard-audit+ID+KEY`"
            ) from error

    def opened(self, note: str) -> Checkpoint | None:
        """Return the checkpoint of a note that this key signed, None for any other."""
        try:
            body, signatures = note.split("\n\n", 1)
            origin, size, root = body.split("\n")
            prefix = f"\u2014 {ORIGIN} "
            raws = [
                base64.b64decode(one.removeprefix(prefix), validate=True)
                for one in signatures.splitlines()
                if one.startswith(prefix)
            ]
            [raw] = [one for one in raws if one[:4] == self.key_id]
            checkpoint = Checkpoint(
                origin.removeprefix(f"{ORIGIN}/"), int(size), base64.b64decode(root, validate=True)
            )
            if checkpoint.body != body + "\n":
                return None
            self._key.verify(raw[4:], checkpoint.body.encode())
        except (ValueError, InvalidSignature):
            return None
        return checkpoint


class AuditTree:
    """The tree of one process' lines, and where its checkpoints go.

    Args:
        signer: of the deployment.
        path: of the audit log.
    """

    def __init__(self, signer: Signer, path: Path) -> None:
        self.log = secrets.token_hex(_LOG_BYTES)
        """Names the tree."""
        self._signer = signer
        self._path = path.with_name(path.name + CHECKPOINTS)
        self._tree = MerkleTree()
        self._signed = 0
        self._previous = _last_note(self._path)

    @property
    def size(self) -> int:
        """Number of lines."""
        return self._tree.size

    def next_fields(self) -> dict[str, Json]:
        """Return what the next line says of its place."""
        fields: dict[str, Json] = {FIELD_LOG: self.log, FIELD_NUMBER: self._tree.size}
        if not self._tree.size and self._previous:
            fields[FIELD_PREVIOUS] = self._previous
        return fields

    def use_signer(self, signer: Signer) -> None:
        """Sign with other keys from now on."""
        self._signer = signer

    def append(self, line: bytes) -> None:
        """Add a line that was written, without its newline."""
        self._tree.append(leaf_hash(line))

    def continued(self) -> dict[str, Json]:
        """Return the fields of the first line in another file."""
        return {"size": self._tree.size, "subtrees": [one.hex() for one in self._tree.subtrees]}

    def checkpoint(self) -> str | None:
        """Sign the tree as it is and append that to the file of checkpoints.

        Returns:
            the signed note; None where nothing has been added since the last.

        Raises:
            OSError: it could not be written.
        """
        if self._tree.size == self._signed:
            return None
        note = self._signer.note(Checkpoint(self.log, self._tree.size, self._tree.root()))
        data = json.dumps({"note": note}).encode() + b"\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)
        self._signed = self._tree.size
        return note


@dataclass(slots=True)
class LogReport:
    """Result of the check of one tree."""

    log: str
    lines: int = 0
    signed: int = 0
    """Lines that a valid checkpoint covers."""
    erased: int = 0
    first: int = 0
    """Its first line in these files; lines before it were in files that are not here."""
    problems: list[str] = field(default_factory=list)
    previous: str = ""
    """Digest of the checkpoint before it."""
    erasures: list[tuple[str, int]] = field(default_factory=list)
    removals: list[tuple[str, int]] = field(default_factory=list)
    erased_lines: list[int] = field(default_factory=list)
    tree: MerkleTree = field(default_factory=MerkleTree)
    has_begun: bool = False

    def take(self, line: bytes, fields: dict[str, Json], sizes: dict[int, bytes]) -> None:
        """Add a line, and compare the tree with the checkpoint of its size."""
        number = fields.get(FIELD_NUMBER)
        if not self.has_begun:
            self.has_begun = True
            self.previous = str(fields.get(FIELD_PREVIOUS, ""))
            if fields.get("event") == EVENT_CONTINUED and number != 0:
                self._continue(fields)
        if number != self.tree.size:
            self.problems.append(
                f"line {self.tree.size} is missing or out of its place: {number} stands there"
            )
            return
        if fields.get("event") == EVENT_ERASED:
            self.erased_lines.append(self.tree.size)
            self.tree.append(_hash_in(fields.get("leaf")))
        else:
            self.tree.append(leaf_hash(line))
        if fields.get("event") == EVENT_ERASURE:
            self.erasures += [(str(log), int(n)) for log, n in fields.get("lines", ())]
        if fields.get("event") == EVENT_REMOVED:
            self.removals += [(str(log), int(size)) for log, size in fields.get("trees", ())]
        size = self.tree.size
        self.lines += 1
        if size in sizes:
            if sizes[size] == self.tree.root():
                self.signed = size
            else:
                self.problems.append(f"a line between {self.signed} and {size - 1} was changed")

    def finish(self, sizes: dict[int, bytes], declared: set[tuple[str, int]]) -> None:
        """Complete the report, once every file was read."""
        self.erased = len(self.erased_lines)
        for number in self.erased_lines:
            if (self.log, number) not in declared:
                self.problems.append(f"line {number} was erased, and no erasure says so")
        longest = max(sizes, default=0)
        if longest > self.tree.size:
            self.problems.append(
                f"{longest} lines were signed and {self.tree.size} are there: the end was cut "
                "off, or the file set back"
            )

    def _continue(self, fields: dict[str, Json]) -> None:
        """Begin in the middle: the files before were removed by retention."""
        subtrees = [_hash_in(one) for one in fields.get("subtrees", ())]
        size = fields.get("size")
        if isinstance(size, int) and size.bit_count() == len(subtrees):
            self.tree = MerkleTree(size, subtrees)
            self.first = size


@dataclass(slots=True)
class AuditReport:
    """Result of the check of an audit log."""

    logs: dict[str, LogReport] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Problems that belong to no tree."""
    torn: int = 0
    """Lines that a full disk cut off: never acknowledged, what they stood for was blocked."""
    unnumbered: int = 0
    """Lines of earlier versions, which nothing protects."""
    anchored: bool = False
    """True if some checkpoint was kept elsewhere."""

    @property
    def is_sound(self) -> bool:
        """Return whether the log has no fault."""
        return not self.problems and not any(one.problems for one in self.logs.values())


def verify(
    files: Iterable[Path],
    verifier: Verifier | Sequence[Verifier],
    anchors: Iterable[str] = (),
) -> AuditReport:
    """Check every line of an audit log against its checkpoints.

    Args:
        files: the log's files in the order in which they were written, rotated ones first.
        verifier: of the deployment's key, or of each that it has had.
        anchors: signed checkpoints that were kept elsewhere.

    Raises:
        InputError: a file cannot be read.
    """
    report = AuditReport()
    files = list(files)
    verifiers = [verifier] if isinstance(verifier, Verifier) else list(verifier)
    notes = _notes(files, report)
    checkpoints = _checkpoints(notes, verifiers, report, "beside the log")
    kept = _checkpoints(list(anchors), verifiers, report, "given as an anchor")
    report.anchored = bool(kept)
    for log, sizes in kept.items():
        checkpoints.setdefault(log, {}).update(sizes)
    walks: dict[str, LogReport] = {}
    for path in files:
        for line, fields in _lines(path, report):
            name = fields.get(FIELD_LOG)
            if isinstance(name, str):
                walk = walks.setdefault(name, LogReport(name))
                walk.take(line, fields, checkpoints.get(name, {}))
            else:
                report.unnumbered += 1
    known = {_digest(note) for note in notes}
    for log, walk in walks.items():
        if walk.previous and walk.previous not in known:
            report.problems.append(f"a checkpoint from before {log} began is gone")
    declared = {pair for walk in walks.values() for pair in walk.erasures}
    removed = {log: size for walk in walks.values() for log, size in walk.removals}
    for log in {*walks, *checkpoints}:
        if log not in walks and max(checkpoints[log], default=0) <= removed.get(log, -1):
            continue
        report.logs[log] = walks.get(log) or LogReport(log)
        report.logs[log].finish(checkpoints.get(log, {}), declared)
    return report


def erase(path: Path, concerns: Callable[[dict[str, Json]], bool]) -> list[tuple[str, int]]:
    """Overwrite lines of a log in place, each by its leaf; return their trees and numbers.

    The file keeps its length, so processes that have it open go on writing at its end.  An erasure
    must then be recorded (``EVENT_ERASURE``), or the lines count as tampered with.

    Args:
        path: of the log, or of a rotated part of it.
        concerns: whether the fields of a line are to go.

    Raises:
        InputError: the file cannot be written, or a line is too short to hold its leaf.
    """
    erased: list[tuple[str, int]] = []
    try:
        with path.open("r+b") as stream:
            place = 0
            for line in stream.read().split(b"\n"):
                fields = _fields(line)
                if fields is not None and fields.get("event") not in KEPT and concerns(fields):
                    stream.seek(place)
                    stream.write(_tombstone(line, fields, path))
                    erased.append((str(fields[FIELD_LOG]), int(fields[FIELD_NUMBER])))
                place += len(line) + 1
    except OSError as error:
        raise InputError(f"`{path}` cannot be overwritten: {error.strerror}") from error
    return erased


def _fields(line: bytes) -> dict[str, Json] | None:
    """Return the fields of a numbered line."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and FIELD_NUMBER in fields else None


def _tombstone(line: bytes, fields: dict[str, Json], path: Path) -> bytes:
    places = {name: fields[name] for name in (FIELD_LOG, FIELD_NUMBER)}
    stone = json.dumps(
        {"event": EVENT_ERASED, **places, "leaf": leaf_hash(line).hex()}, separators=(",", ":")
    ).encode()
    if len(stone) > len(line):
        raise InputError(f"`{path}`: line {places} is too short to be erased in place")
    return stone.ljust(len(line))


def trees_in(file: Path) -> dict[str, int]:
    """Return the trees with lines in a file, each with the number behind its last line there."""
    found: dict[str, int] = {}
    with file.open("rb") as stream:
        for line in stream:
            with suppress(ValueError, KeyError, TypeError):
                fields = json.loads(line)
                found[str(fields[FIELD_LOG])] = int(fields[FIELD_NUMBER]) + 1
    return found


def _digest(note: str) -> str:
    return hashlib.sha256(note.encode()).hexdigest()


def _last_note(path: Path) -> str:
    """Return the digest of the last checkpoint in a file, empty where there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL))
            lines = stream.read().splitlines()
        return _digest(str(json.loads(lines[-1])["note"]))
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return ""


def _hash_in(value: object) -> bytes:
    try:
        return bytes.fromhex(str(value))
    except ValueError:
        return b""


def _lines(path: Path, report: AuditReport) -> Iterator[tuple[bytes, dict[str, Json]]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}") from error
    for line in data.split(b"\n"):
        if not line:
            continue
        try:
            fields = json.loads(line)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            # Whoever damages a line of the tree takes its number away as well.
            report.torn += 1
            continue
        yield line, fields


def _notes(files: list[Path], report: AuditReport) -> list[str]:
    """Return the notes in the files of checkpoints beside a log's files."""
    notes: list[str] = []
    for path in dict.fromkeys(file.with_name(file.name + CHECKPOINTS) for file in files):
        if not path.exists():
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                notes.append(str(json.loads(line)["note"]))
            except (ValueError, KeyError, TypeError):
                report.problems.append(f"{path.name} has a line that is no checkpoint")
    return notes


def _checkpoints(
    notes: list[str], verifiers: Sequence[Verifier], report: AuditReport, where: str
) -> dict[str, dict[int, bytes]]:
    """Return the roots by tree and size."""
    found: dict[str, dict[int, bytes]] = {}
    for note in notes:
        opened = (verifier.opened(note) for verifier in verifiers)
        checkpoint = next((one for one in opened if one is not None), None)
        if checkpoint is None:
            report.problems.append(f"a checkpoint {where} was not signed with this key")
            continue
        sizes = found.setdefault(checkpoint.log, {})
        if sizes.setdefault(checkpoint.size, checkpoint.root) != checkpoint.root:
            report.problems.append(
                f"two checkpoints of {checkpoint.log} at {checkpoint.size} lines differ: the log "
                "was written twice"
            )
    return found
