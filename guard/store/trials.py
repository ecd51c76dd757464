"""The trial of a policy: a record that operators write, and counts that workers add.

The record is encrypted with the deployment's key, so access to Redis is not enough to begin or
change a trial; an old record is detected by its end and by its base policy.  A record is replaced
only if it is unchanged since it was read.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from guard.core.labels import LabelSet
from guard.pipeline.trial import VerdictPair
from guard.store.incident_records import REPLACE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.provenance.seal import Seal
    from guard.store.store import RedisSessionStore

RUNNING: Final = "running"
STOPPED: Final = "stopped"
STEPPED_BACK: Final = "stepped_back"
DONE: Final = "done"
SECONDS: Final = 14 * 24 * 3600
"""A trial that nobody ended is over then."""
JUMP: Final = 0.05
STEPS: Final = (0.0, 0.01, 0.1, 1.0)
_AREA: Final = LabelSet("p", ("",))
_FIELD: Final = b"trial"
_BYTES: Final = 8 * 1024 * 1024
_OTHERS: Final = "somebody else has changed the trial; look at it again"


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial."""

    id: str
    files: tuple[tuple[str, str], ...]
    """Name and text of each file of the candidate in order; no text: a shipped one."""
    candidate: str
    """Digest of the policy that these make."""
    base: str
    """Digest of the policy that it stands beside."""
    by: str
    at: float
    until: float
    share: float = 0.0
    """Share of the principals; 0 is shadow mode."""
    principals: tuple[str, ...] = ()
    jump: float = JUMP
    """Share of newly asked or blocked calls that ends it."""
    state: str = RUNNING
    why: str = ""
    log: tuple[tuple[float, str, str], ...] = ()
    """Times, actors and actions."""
    writers: tuple[tuple[str, str], ...] = ()
    """Authors of the candidate and of the trial: realm and subject."""
    seconded: str = ""
    """The name of somebody else who agreed that it decides for anybody."""

    def logged(self, at: float, by: str, what: str) -> TrialRecord:
        """Return it with one more line in its history."""
        return replace(self, log=(*self.log, (at, by, what)))

    def ended(self, at: float, by: str, state: str, why: str) -> TrialRecord:
        """Return it as ended."""
        return replace(self, state=state, why=why).logged(at, by, why or state)


class TrialStore:
    """Record and counts of the trial in Redis.

    Args:
        store: connected; its namespace is the guard's.
        seal: the deployment's key.
    """

    def __init__(self, store: RedisSessionStore, seal: Seal) -> None:
        self._client = store.client
        self._seal = seal
        self._key = f"{store.namespace}:trial".encode()
        self._counts = f"{store.namespace}:trial:counts:"

    async def read(self) -> tuple[TrialRecord | None, bytes]:
        """Return the last trial and its record as it lies there; None where there is none.

        Raises:
            GuardError: the store did not answer, or the record was altered.
        """
        raw = await self._client.execute("HGET", self._key, _FIELD)
        if not isinstance(raw, bytes):
            return None, b""
        body = self._seal.deciphered(_AREA, _FIELD, raw)
        if body is None:
            raise GuardError("the record of the trial was altered, or is of another key")
        reader = zlib.decompressobj()
        fields: dict[str, Any] = json.loads(reader.decompress(body, _BYTES))
        for name in ("files", "principals", "log", "writers"):
            fields[name] = tuple(
                tuple(one) if isinstance(one, list) else one for one in fields.get(name, ())
            )
        return TrialRecord(**fields), raw

    async def write(self, record: TrialRecord, before: bytes) -> None:
        """Put a record in the place of one that is as it was read.

        Raises:
            GuardError: it is another one by now.
        """
        body = json.dumps(asdict(record)).encode()
        if len(body) > _BYTES:
            raise GuardError("the policy is too large for a trial")
        raw = self._seal.enciphered(_AREA, _FIELD, zlib.compress(body))
        if await self._client.execute("EVAL", REPLACE, 1, self._key, _FIELD, before, raw) != 1:
            raise GuardError(_OTHERS)

    async def add(self, identifier: str, counts: Mapping[VerdictPair, int]) -> None:
        """Add what a worker has counted."""
        key = self._counts + identifier
        for pair, count in counts.items():
            await self._client.execute("HINCRBY", key, "|".join(pair), count)
        await self._client.execute("PEXPIRE", key, SECONDS * 1000)

    async def totals(self, identifier: str) -> Counter[VerdictPair]:
        """Return what all workers have counted."""
        found: Counter[VerdictPair] = Counter()
        for name, count in (await self._client.fields(self._counts + identifier)).items():
            parts = name.decode().split("|")
            if len(parts) == len(VerdictPair._fields):
                found[VerdictPair(*parts)] = int(count)
        return found
