"""Operators' commands: finding the running guard, acting on its state, audit records."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from guard.core.errors import GuardError, InputError
from guard.credentials.key_ring import load_seal, open_signed_log
from guard.credentials.label_key import label_key_path
from guard.processes.notes import RunNote, find_running
from guard.provenance.seal import Seal
from guard.settings import EMBEDDED, Durability, load_settings, models_directory
from guard.store.store import RedisSessionStore
from guard.telemetry.audit_log import AuditLogFile, NoAuditLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from guard.core.ports import Detector


ResultT = TypeVar("ResultT")
TIMEOUT_SECONDS: Final = 5.0


def _url() -> str:
    return find_running().redis


Redis = Annotated[
    str,
    typer.Option(
        envvar="GUARD_REDIS",
        default_factory=_url,
        show_default="the embedded one of this user's running guard",
        help="Redis URL of the guard.",
    ),
]
Key = Annotated[
    Path | None, typer.Option(envvar="GUARD_LABEL_KEY", help="The guard's label key file.")
]
Tenant = Annotated[str, typer.Option(help="The tenant, as audit lines have it.")]
Audit = Annotated[
    Path | None,
    typer.Option(
        envvar="GUARD_AUDIT",
        show_default="that of the running guard",
        help="The guard's audit log; appended to.",
    ),
]


@dataclass(frozen=True, slots=True)
class State:
    """The state of a running guard, as long as a command is connected to it."""

    store: RedisSessionStore
    redis: str
    label_key: Path | None

    @property
    def seal(self) -> Seal:
        """The seal of the key that was given, else of the guard with that state.

        Raises:
            GuardError: the key cannot be used.
        """
        return load_seal(label_key_path(self.label_key or _noted_key(self.redis)), now())


def _note_of(redis: str) -> RunNote | None:
    """Return the note of the running guard with that state, None where there is not one."""
    try:
        note = find_running()
    except GuardError:
        return None
    return note if note.redis == redis else None


def _noted_key(redis: str) -> Path | None:
    """Return the label key of the running guard with that state, None for the user's own."""
    note = _note_of(redis)
    return Path(note.label_key) if note and note.label_key else None


def _durability(redis: str) -> Durability:
    """Return what an operator's write must have reached: as much as the guard's own.

    A grant that is lost in a failover was acknowledged as well.
    """
    set_here = load_settings(None, redis=redis).durability
    note = _note_of(redis)
    if set_here is Durability.RELAXED and note is not None and note.durability:
        return Durability(note.durability)
    return set_here


def act_on(
    redis: str,
    act: Callable[[State], Awaitable[ResultT]],
    *,
    label_key: Path | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> ResultT:
    """Connect to a guard's state, act on it, and close the connection.

    Raises:
        GuardError: the state cannot be reached, or the act failed.
    """

    async def connected() -> ResultT:
        store = RedisSessionStore.at(redis, timeout=timeout, durability=_durability(redis))
        try:
            return await act(State(store, redis, label_key))
        finally:
            await store.aclose()

    return asyncio.run(connected())


@contextmanager
def on_record(
    audit: Path | None, redis: str = "", *, required: bool = False
) -> Iterator[AuditLogFile | NoAuditLog]:
    """Yield the audit log that an operator's act is recorded in, or say that there is none.

    Args:
        audit: the log; None for that of the running guard with this state.
        redis: URL of the state.
        required: whether there has to be one.

    Raises:
        InputError: there is none, and the record is required.
        AuditError: it cannot be written.
    """
    key, note = load_settings(None).audit_key, _note_of(redis) if audit is None else None
    if note is not None and note.audit:
        audit, key = Path(note.audit), Path(note.audit_key) if note.audit_key else None
    if audit is None:
        nothing = "no --audit given, so this is not on record"
        if required:
            raise InputError(nothing)
        typer.echo(f"guard: {nothing}", err=True)
    with closing(open_signed_log(audit, key)) as log:
        yield log


def shipped_detectors(models: Path | None) -> Sequence[Detector]:
    """Return every detector of live traffic, with the models of a directory or the shipped ones.

    Raises:
        GuardError: a model cannot be used.
    """
    # Here: loading the model runtime takes longer than most commands.
    from guard.detectors import DetectorResources, create_detectors
    from guard.inference.onnx import load_models
    from guard.inference.text_classifier import load_classifiers

    runners = load_models(models or models_directory())
    return create_detectors(DetectorResources(runners, load_classifiers()))


@contextmanager
def redis_url(redis: str) -> Iterator[str]:
    """Yield a URL of Redis: the given one, or that of an embedded one for this command alone."""
    from guard.store.embedded import EmbeddedRedis

    if redis != EMBEDDED:
        yield redis
        return
    with EmbeddedRedis() as server:
        yield server.url


def now() -> float:
    """Return the machine's time."""
    return time.time()  # noqa: TID251  (an operator acts at the machine's time)


def moment(text: str) -> float:
    """Return a time in ISO 8601 as seconds since the epoch; one without an offset is UTC.

    Raises:
        ValueError: it is not a time.
    """
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def minute(at: float) -> str:
    """Return a time as UTC, to the minute."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
