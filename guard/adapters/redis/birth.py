"""Looks at the birth record of the label store: at start, again and again, and on suspicion.

Nothing of it is on the path of a call, with two exceptions: the first call on a new connection,
which may lead to another server or to one that has forgotten, and the first call of a principal of
whom the store knows nothing.  What the record means is decided in
:mod:`guard.provenance.store_continuity`.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.adapters.redis.connection import CommandRefusedError
from guard.adapters.redis.layout import load_script
from guard.core.errors import StateError
from guard.provenance.store_continuity import (
    ID_BYTES,
    Birth,
    Loss,
    Remembered,
    judged,
    opened_birth,
    sealed_birth,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.adapters.birth_note import BirthNote
    from guard.adapters.redis.connection import RedisClient
    from guard.provenance.seal import Seal

_TRIES: Final = 16
"""Looks, each spoilt by another guard's, after which something else must be at work."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one look found."""

    birth: Birth
    """The record as it is now."""
    loss: Loss
    at: float
    noted: bool
    """Whether the note beside the label key could be written."""

    @property
    def incomplete(self) -> bool:
        """Whether labels may be missing."""
        return self.at < self.birth.incomplete_until


class BirthWatch:
    """One guard's view of its label store's birth.

    Args:
        client: the connection to the store.
        seal: of the deployment's key.
        note: where the record that was seen last is remembered.
        now: seconds since the epoch.
        told: told of every look.
        kept: whether the store is meant to outlive the guard; the embedded one is not.
        namespace: first part of every key.

    Raises:
        GuardError: the note cannot be read.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        client: RedisClient,
        *,
        seal: Seal,
        note: BirthNote,
        now: Callable[[], float],
        told: Callable[[Sighting], None] = lambda _: None,
        kept: bool = True,
        namespace: str = "guard",
    ) -> None:
        self._client = client
        self._record = _BirthRecord(client, seal, namespace)
        self._note = note
        self._now = now
        self._told = told
        self.kept = kept
        self.incomplete_until = 0.0
        self._remembered = note.read()
        self._opened = -1
        self._looking = asyncio.Lock()
        self._coming: asyncio.Task[None] | None = None

    @property
    def is_unseen(self) -> bool:
        """Whether the connection is another than at the last look."""
        return self._client.endpoint.opened != self._opened

    async def look(self, lifetime: int) -> None:
        """Read the record, write the one that follows, and remember it.

        Whoever asks before a look begins shares it.

        Args:
            lifetime: seconds that a label lost now would have lived.

        Raises:
            StateError: the store did not answer, or its record does not hold still.
        """
        if self._coming is None:
            self._coming = asyncio.get_running_loop().create_task(self._look(lifetime))
            # Those who asked may all have been cancelled by the time it fails.
            self._coming.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._coming)

    async def _look(self, lifetime: int) -> None:
        async with self._looking:
            self._coming = None
            opened = self._client.endpoint.opened
            at = self._now()
            for tried in range(_TRIES):
                raw, found = await self._record.read()
                fresh = Birth(secrets.token_bytes(ID_BYTES), int(at))
                birth, loss = judged(found, self._remembered, fresh, lifetime)
                if tried and loss is Loss.NONE and isinstance(found, Birth):
                    # Another guard has looked meanwhile, and counted it.
                    birth = found
                    break
                if await self._record.replace(raw, birth):
                    break
            else:
                self.incomplete_until = max(self.incomplete_until, at + lifetime)
                msg = "the birth record of the label store does not hold still"
                raise StateError(msg)
            self._opened = opened
            self.incomplete_until = float(birth.incomplete_until)
            self._remembered = Remembered(birth.id, birth.serial)
            noted = await asyncio.to_thread(self._note.write, self._remembered)
            self._told(Sighting(birth, loss, at, noted))


async def accept_loss(client: RedisClient, seal: Seal, namespace: str = "guard") -> Birth:
    """Declare the labels of a store complete again; return the record as it was.

    Raises:
        StateError: it does not say that labels are missing, or the store did not answer.
    """
    record = _BirthRecord(client, seal, namespace)
    for _ in range(_TRIES):
        raw, found = await record.read()
        if isinstance(found, Loss):
            what = "has no birth record" if found is Loss.EMPTY else "has another key's record"
            msg = f"the label store {what}; start a guard on it, which writes one, and try again"
            raise StateError(msg)
        if not found.incomplete_until:
            msg = "the label store has lost nothing; there is no loss to accept"
            raise StateError(msg)
        if await record.replace(raw, Birth(found.id, found.began, 0, found.serial + 1)):
            return found
    msg = "the birth record of the label store does not hold still; try again"
    raise StateError(msg)


class _BirthRecord:
    """The record in Redis."""

    def __init__(self, client: RedisClient, seal: Seal, namespace: str) -> None:
        self._client = client
        self._seal = seal
        self._namespace = namespace
        self._key = f"{namespace}:birth"
        self._script = load_script("birth")

    async def read(self) -> tuple[bytes, Birth | Loss]:
        """Return the bytes that are there, and what they are."""
        try:
            raw = await self._client.execute("GET", self._key)
        except CommandRefusedError as error:
            if error.code != "WRONGTYPE":
                raise
            return b"", Loss.ALTERED
        if not isinstance(raw, bytes):
            return b"", Loss.EMPTY
        return raw, opened_birth(self._seal, self._namespace, raw) or Loss.ALTERED

    async def replace(self, raw: bytes, birth: Birth) -> bool:
        """Write the record, unless somebody else was faster."""
        record = sealed_birth(self._seal, self._namespace, birth)
        return await self._client.run(self._script, 1, self._key, raw, record) == 1
